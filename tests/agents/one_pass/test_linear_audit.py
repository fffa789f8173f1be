"""End-to-end audits of one-pass-linear's other units: sound ones pass, faulty ones fail."""

from __future__ import annotations

import math

import pytest

from dpb_agents.recommendation.one_pass import OnePassLinear
from dpb_gym import Budget
from dpb_gym.evaluation.audit import audit

SMALL = {"dim": 2, "n_arms": 12, "n_candidates": 3, "interactions_per_user": 3}


class Underestimating(OnePassLinear):
    """Adds a tenth of the noise variance that it charges."""

    def begin(self, problem, streams, curator):
        super().begin(problem, streams, curator)
        self.releaser.sigma *= math.sqrt(0.1)


def run(agent, unit, seed=0):
    return audit(
        agent,
        Budget.zcdp(2.0),
        runs=400,
        params={"unit": unit} if agent == "one-pass-linear" else None,
        env_id="DPB/Recommendation-v0",
        env_kwargs=SMALL,
        seed=seed,
    )


@pytest.mark.parametrize("unit", ["user-round", "user", "user-rewards"])
def test_units_pass(unit):
    report = run("one-pass-linear", unit)
    if not report.passed:  # a true claim may fail one audit in twenty, not two in a row
        report = run("one-pass-linear", unit, seed=1)
    assert report.verdict == "PASS", report


@pytest.mark.parametrize("unit", ["user-round", "user", "user-rewards"])
def test_too_little_noise_is_seen(unit):
    report = run(lambda: Underestimating(unit=unit), unit)
    assert report.verdict == "FAIL", report
