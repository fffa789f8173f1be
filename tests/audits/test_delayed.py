"""The guarantee under delayed feedback: the same plans, the same claim, audited in that world."""

from __future__ import annotations

import pytest

from dpb_gym import Budget
from dpb_gym.audits import audit

DELAY = {"delay": "geometric=3"}


@pytest.mark.parametrize(
    "name", ["one-pass-linear", "one-pass-mnl", "one-pass-pricing", "local-lin-ucb"]
)
def test_private_agents_keep_their_claim(name):
    """Arrival depends on no response, and a record enters a releaser at most once: what the
    releases tell of the target is what they tell without a delay, only later."""
    report = audit(name, Budget.zcdp(0.5), runs=500, env_kwargs=DELAY, deployment=64)
    assert report.verdict == "PASS" and report.control == "FAIL", report


def test_a_target_whose_response_never_comes_proves_nothing():
    report = audit(
        "one-pass-linear", Budget.zcdp(0.5), runs=100, env_kwargs={"delay": 40}, horizon=32
    )
    assert report.verdict == "NO POWER"
