"""one-pass-linear and its joint form equal their oracles in every round."""

from __future__ import annotations

import numpy as np
import pytest

from tests.agents.reference.one_pass_linear_joint_oracle import OnePassLinearJointOracle
from tests.agents.reference.one_pass_linear_oracle import OnePassLinearOracle

ORACLES = {
    "one-pass-linear": OnePassLinearOracle,
    "one-pass-linear-joint": OnePassLinearJointOracle,
}
RECOMMENDATION, ARMS = "DPB/Recommendation-v0", "DPB/MultiArmed-v0"
CASES = {
    "much noise": (RECOMMENDATION, "rho=0.05", {}, {"dim": 4, "n_arms": 20}),
    "a usual budget": (RECOMMENDATION, "eps=1,delta=1e-5", {}, {"dim": 6}),
    "little noise": (RECOMMENDATION, "rho=200", {"ratio": 1.3}, {"dim": 2, "fresh": True}),
    "exact sums": (RECOMMENDATION, None, {}, {"dim": 3, "reward": "linear"}),
    "a prior mean": (
        RECOMMENDATION,
        "rho=1",
        {"prior_mean": [0.3, -0.1, 0.0, 0.2], "norm": 0.5, "intercept": 0.7},
        {"dim": 4},
    ),
    "candidates that share a taste": ("DPB/MovieLensReplay-v0", "rho=1", {}, {"dim": 4}),
    "fixed arms": (ARMS, "rho=0.5", {}, {"n_arms": 5}),
    "fixed arms, exact sums": (ARMS, None, {"norm": 2.0}, {"n_arms": 3}),
    "all candidates in every round": (
        RECOMMENDATION,
        "rho=2",
        {"first": 0.2},
        {"dim": 3, "n_arms": 6, "n_candidates": 6},
    ),
}


@pytest.mark.parametrize("length", [0.3, 2.0])
def test_actions_and_theta_are_equal_with_a_public_length(lockstep, length):
    name, params = "one-pass-linear-joint", {"length": length}
    run = lockstep(name, RECOMMENDATION, "rho=1", [3, 4], 600, params, oracle=ORACLES[name])
    for _, fast, copies, (action, expected) in run:
        np.testing.assert_array_equal(action, expected)
        for theta, copy in zip(fast.state.theta, copies):
            np.testing.assert_allclose(theta, copy.theta, rtol=1e-6, atol=1e-8)
    assert fast.plan.sums.releases > 8 and fast.state.theta.any()


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("seeds", [[3, 4], [1_007_000]])
@pytest.mark.parametrize("name", ORACLES)
def test_actions_and_theta_are_equal_in_every_round(lockstep, name, seeds, case):
    env_id, budget, params, env = CASES[case]
    run = lockstep(name, env_id, budget, seeds, 600, params, oracle=ORACLES[name], **env)
    for _, fast, copies, (action, expected) in run:
        np.testing.assert_array_equal(action, expected)
        for theta, copy in zip(fast.state.theta, copies):
            # exact sums count as of noise 1e-3, which makes the filter's systems worst
            np.testing.assert_allclose(theta, copy.theta, rtol=1e-6, atol=1e-8)
    assert fast.plan.sums.releases > 8 and fast.state.theta.any()
