"""Public facts of a problem as JSON values, and back."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest

import dpb_gym
from dpb_gym.envs.registration import ENVIRONMENTS
from dpb_gym.errors import ParameterError
from dpb_gym.problems.prior import Prior
from dpb_gym.problems.rounds import ProblemInfo

SYNTHETIC = [
    entry.id
    for entry in ENVIRONMENTS.values()
    if entry.id.startswith("DPB/") and not any(x in entry.id for x in ("Replay", "Expedia", "Log"))
]
FULL = ProblemInfo(
    "pricing", 50, 3, (-np.inf, 2.0), stock=(3, 4), masked=True, delay="fixed=3",
    prior=Prior((0.1, 0.2, 0.3), np.eye(3)),
)  # fmt: skip


def test_facts_of_every_synthetic_environment_are_read_back():
    assert len(SYNTHETIC) > 5
    for name in SYNTHETIC:
        info = dpb_gym.make_problem(name).info
        assert ProblemInfo.from_dict(json.loads(json.dumps(info.to_dict()))) == info, name


def test_all_fields_are_read_back():
    read = ProblemInfo.from_dict(json.loads(json.dumps(FULL.to_dict())))
    assert read == FULL and read.stock == (3, 4) and read.prior == FULL.prior
    unknown = replace(FULL, horizon=None)
    assert ProblemInfo.from_dict(unknown.to_dict()) == unknown
    bounds = {**FULL.to_dict(), "reward_range": [None, None]}
    assert ProblemInfo.from_dict(bounds).reward_range == (-np.inf, np.inf)


@pytest.mark.parametrize(
    "change",
    [
        {"theta": 3},
        {"reward_range": 1.0},
        {"reward_range": [0.0, 1.0, 2.0]},
        {"reward_range": [float("nan"), 1.0]},
        {"reward_range": ["a", 1.0]},
        {"reward_range": [np.inf, 1.0]},
        {"stock": "three"},
        {"prior": 3},
        {"prior": {"mean": "x"}},
    ],
    ids=str,
)
def test_other_values_are_refused(change):
    with pytest.raises(ParameterError):
        ProblemInfo.from_dict({**FULL.to_dict(), **change})


def test_missing_facts_are_named():
    with pytest.raises(ParameterError, match="kind, dim"):
        ProblemInfo.from_dict({"reward_range": [0.0, 1.0]})
    with pytest.raises(ParameterError, match="mapping"):
        ProblemInfo.from_dict(None)
