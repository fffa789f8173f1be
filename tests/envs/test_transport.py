"""Environments in processes that start fresh: specs carry what an id stands for."""

from __future__ import annotations

import copy
import pickle
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import cloudpickle
import gymnasium as gym
import numpy as np
import pytest

import dpb_data
import dpb_gym
from dpb_gym.envs.registration import ENVIRONMENTS, EnvironmentId
from dpb_gym.problems.pricing import PricingProblem

FRESH = """
import pickle, sys
import gymnasium as gym
import numpy as np

for spec in map(pickle.loads, pickle.loads(sys.stdin.buffer.read())):
    observation, info = gym.make(spec).reset(seed=3)
    print(np.ravel(observation).tolist())
"""


@pytest.fixture(autouse=True)
def scratch_ids() -> Iterator[None]:
    """Unregister the ids that a test registers."""
    known = set(ENVIRONMENTS)
    yield
    for env_id in set(ENVIRONMENTS) - known:
        del ENVIRONMENTS[env_id], gym.registry[env_id]


def prices(**settings: Any) -> str:
    log = dpb_data.prices("synthetic-loans", features=["term", "score"])
    return dpb_gym.from_log(log, "pricing", horizon=10, **settings)


def ratings() -> str:
    return dpb_gym.from_log("synthetic-movielens", "recommendation", horizon=10)


def choices() -> str:
    return dpb_gym.from_log("synthetic-mode-canada", "assortment", outside="car", horizon=10)


def of_a_function() -> str:
    class Own(PricingProblem):
        """A problem that only this function has."""

    dpb_gym.register_environment("Mine/Own-v0", Own, kind="pricing", dim=4, horizon=10)
    return "Mine/Own-v0"


MAKERS = [prices, ratings, choices, of_a_function]


def test_a_spec_makes_the_same_environment_in_a_fresh_process() -> None:
    envs = [gym.make(make()) for make in MAKERS]
    sent = pickle.dumps([cloudpickle.dumps(env.unwrapped.spec) for env in envs])
    done = subprocess.run(
        [sys.executable, "-c", FRESH], input=sent, capture_output=True, check=True
    )
    seen = [str(np.ravel(env.reset(seed=3)[0]).tolist()) for env in envs]
    assert done.stdout.decode().splitlines() == seen


@pytest.mark.slow
def test_asynchronous_environments_of_a_log_start_from_a_clean_server() -> None:
    log = prices()
    asked = {"vectorization_mode": "async", "vector_kwargs": {"context": "forkserver"}}
    there = gym.make_vec(str(log), num_envs=2, **asked)
    here = gym.make_vec(str(log), num_envs=2)
    try:
        assert (there.reset(seed=3)[0] == here.reset(seed=3)[0]).all()
    finally:
        there.close()


@pytest.mark.slow
def test_an_id_is_text_and_registers_again_what_is_unknown() -> None:
    log = prices()
    entry = ENVIRONMENTS[log]
    sent = pickle.dumps(log)
    assert copy.deepcopy(log) is log and isinstance(log, str)
    del ENVIRONMENTS[log], gym.registry[log]
    again = pickle.loads(sent)
    assert again == log and type(again) is type(log)
    assert ENVIRONMENTS[log].defaults.keys() == entry.defaults.keys()
    assert gym.make(again).reset(seed=0)[1]["t"] == 0
    built_in = EnvironmentId("DPB/Pricing-v0")
    assert type(pickle.loads(pickle.dumps(built_in))) is str, "every process knows it"


def test_a_registration_that_exists_is_not_replaced() -> None:
    log = prices()
    entry = ENVIRONMENTS[log]
    pickle.loads(pickle.dumps(log))
    assert ENVIRONMENTS[log] is entry


def test_an_id_in_a_closure_reaches_workers_of_other_libraries(tmp_path: Path) -> None:
    log = prices()
    sent = cloudpickle.dumps(lambda: gym.make(log).reset(seed=3)[0].tolist())
    script = "import pickle, sys; print(pickle.loads(sys.stdin.buffer.read())())"
    done = subprocess.run(
        [sys.executable, "-c", script], input=sent, capture_output=True, check=True, cwd=tmp_path
    )
    assert done.stdout.decode().strip() == str(gym.make(log).reset(seed=3)[0].tolist())
