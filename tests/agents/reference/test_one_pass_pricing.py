"""one-pass-pricing equals its oracle in every round."""

from __future__ import annotations

import numpy as np
import pytest

import dpb_gym
from dpb_gym.agent import BatchedSingle
from dpb_gym.privacy import Budget
from dpb_gym.registry import make_agent
from dpb_gym.streams import AgentStreams
from tests.agents.reference.one_pass_pricing_oracle import OnePassPricingOracle

CUSTOMERS = np.random.default_rng(5).uniform(-1, 1, (300, 2))
SHOP = {  # price 1 is the worst, and the intercept against the slope a rare direction
    "dim": 4,
    "customers": np.column_stack([np.ones(300), CUSTOMERS]),
    "theta": [0.5, 0.25, -0.15, 1.5],
}
CASES = {
    "intercept": ("rho=50", {}, SHOP),
    "hidden intercept": ("rho=50", {"level": 0.5}, {"dim": 4, "zeta": 6.0, "intercept": -0.3}),
    "hidden intercept, no budget": (None, {"level": 0.5}, {"dim": 3, "intercept": -0.5}),
    "no hidden intercept": ("rho=2", {"level": 0.1}, {"dim": 4}),
    "intercept, no budget": (None, {}, SHOP),
    "no budget": (None, {}, {}),
    "tight budget": ("rho=0.05", {}, {}),
    "loose budget": ("rho=2", {}, {}),
    "unexpected theta": ("rho=9", {}, {"theta": [-4.5, 4.5, 6.3]}),
    "unexpected theta, no budget": (None, {}, {"theta": [-3.0, 3.0, 4.2]}),
    "gaussian demand": ("rho=2", {}, {"demand": "gaussian"}),
    "gaussian demand, no budget": (None, {}, {"demand": "gaussian"}),
    "two dimensions": ("eps=2,delta=1e-4", {}, {"dim": 2}),
    "five dimensions, no budget": (None, {}, {"dim": 5}),
    "steep demand": ("eps=2,delta=1e-3", {}, {"dim": 6, "zeta": 9.0}),
    "hopeless budget": ("rho=0.0001", {}, {}),
    "other parameters": (
        "rho=5",
        {"norm": 0.6, "disperse": 0.3, "clip": 0.5, "bound": 0.4},
        {"dim": 4},
    ),
    "local": ("rho=50@local", {}, SHOP),
    "secure aggregation": ("rho=5@aggregator", {}, {"dim": 4}),
    "greedy": ("rho=1", {"disperse": 0.0, "first": 1.0, "decay": 0.5}, {"dim": 4}),
}


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("seeds", [[3, 4], [1_002_000]])
def test_prices_and_posteriors_are_equal_in_every_round(lockstep, case, seeds):
    budget, params, env = CASES[case]
    env = env | {"oracle": OnePassPricingOracle}
    run = lockstep("one-pass-pricing", "DPB/Pricing-v0", budget, seeds, 300, params, **env)
    moved = leveled = 0
    for _, fast, copies, (price, expected) in run:
        # closed forms of a theta that differs by rounding
        np.testing.assert_allclose(price, expected, rtol=0, atol=1e-8)
        theta, covariance = np.array([c.theta for c in copies]), np.array([c.V for c in copies])
        # sums of 300 records and a solve: 1e-13 in exact sums; noise of 1e3 leaves 1e-10
        np.testing.assert_allclose(fast.state.theta, theta, rtol=1e-9, atol=1e-9)
        np.testing.assert_allclose(fast.state.V, covariance, rtol=1e-8, atol=1e-10)
        moved += theta.any()
        leveled += theta[:, 0].any() and "level" in params
    assert moved > 100 or case == "hopeless budget"
    assert (leveled > 50) == case.startswith("hidden")


@pytest.mark.parametrize("rho", [1e-7, 3e-6, 1e-4, 2e-4, 3e-4, 1e-3, 1e-2])
@pytest.mark.parametrize("horizon", [100, 3000, 10**6])
def test_the_same_budgets_are_hopeless(rho, horizon):
    problem = dpb_gym.make_problem("DPB/Pricing-v0", horizon=horizon)
    context, prices = problem.instance([3]).context(), []
    oracle = BatchedSingle(OnePassPricingOracle)
    oracle.protects = OnePassPricingOracle.protects
    for agent in (make_agent("one-pass-pricing"), oracle):
        agent.set_up(problem.info, AgentStreams([3]), Budget.zcdp(rho))
        prices.append(agent.act(context)[0])
    assert prices[0] == pytest.approx(prices[1])
