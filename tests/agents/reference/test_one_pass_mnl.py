"""one-pass-mnl equals its oracle in every round."""

from __future__ import annotations

import numpy as np
import pytest

from tests.agents.reference.one_pass_mnl_oracle import OnePassMNLOracle

ITEMS = {"n_items": 12, "capacity": 3, "dim": 3}
LONG = {"theta": [7.2, 0.0, -9.6]}  # norm 12, which the prior does not expect
# Items with constants of their own, of which those that are not offered stay unknown.
CATALOGUE = np.tile(np.eye(4, 6, dtype=np.float32), (300, 1, 1))
CATALOGUE[..., 4:] = np.random.default_rng(1).normal(0.0, 0.15, (300, 4, 2))
CONSTANTS = {"n_items": 4, "capacity": 1, "dim": 6, "contexts": CATALOGUE}
CASES = {
    "no budget": (None, {}, {"n_items": 30, "capacity": 4}),
    "tight budget": ("rho=0.05", {}, {"n_items": 30, "capacity": 4}),
    "no level": ("rho=2", {"level": 0.0}, {"n_items": 30, "capacity": 4}),
    "hidden level": ("rho=20", {}, {"capacity": 4, "intercept": -4.0}),
    "hidden level, uneven revenues": ("rho=20", {}, {"revenues": "random", "intercept": -3.0}),
    "hidden level, no budget": (None, {"level": 0.5}, {"capacity": 4, "intercept": -3.0}),
    "loose budget": ("rho=2", {}, {"n_items": 30, "capacity": 4}),
    "two dimensions, uneven revenues": (
        "eps=2,delta=1e-4",
        {},
        {"dim": 2, "revenues": "random", "context_norm": "clip"},
    ),
    "uneven revenues, no budget": (None, {}, {"dim": 8, "revenues": "random"}),
    "early release in many dimensions": ("rho=5", {}, {"dim": 11}),
    "unexpected theta": ("rho=9", {}, LONG),
    "unexpected theta, no budget": (None, {}, LONG),
    "constants of items": ("rho=50", {"norm": 6.0}, CONSTANTS),
    "one item, not all available": (
        "rho=5",
        {"norm": 1.0, "cut": 1.0, "bound": 0.5, "share": 0.6, "first": 2.0},
        {"capacity": 1, "available": 0.5},
    ),
    "sets of exactly K items": (
        "rho=1",
        {"decay": 0.5},
        {"capacity": 5, "revenues": "random", "exactly": True},
    ),
}


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("seeds", [[3, 4], [1_002_000]])
def test_offers_and_posteriors_are_equal_in_every_round(lockstep, case, seeds):
    budget, params, env = CASES[case]
    env = ITEMS | env | {"oracle": OnePassMNLOracle}
    run = lockstep("one-pass-mnl", "DPB/Assortment-v0", budget, seeds, 300, params, **env)
    moved = rare = leveled = 0
    for _, fast, copies, (offer, expected) in run:
        np.testing.assert_array_equal(offer, expected)
        theta, covariance = np.array([c.theta for c in copies]), np.array([c.V for c in copies])
        # sums of 300 records and a solve: 1e-13 in exact sums; noise of 1e3 leaves 1e-10
        np.testing.assert_allclose(fast.state.theta, theta, rtol=1e-9, atol=1e-9)
        np.testing.assert_allclose(fast.state.V, covariance, rtol=1e-8, atol=1e-10)
        moved += theta.any()
        rare += any(copy.rare.any() for copy in copies)
        leveled += theta[:, 0].any() and params.get("level", 0.1) > 0
    assert moved > 100
    assert rare > 30 or "constants" not in case
    assert (leveled > 100) == ("hidden" in case)
