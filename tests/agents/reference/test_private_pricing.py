"""private-pricing equals an independent edition in plain NumPy in every round."""

from __future__ import annotations

import numpy as np
import pytest

from tests.agents.reference.private_pricing_oracle import RADIUS, ReferencePrivatePricing

CASES = {
    "defaults": ("rho=1", {}, {}),
    "five dimensions": ("rho=30", {}, {"dim": 5}),
    "often updated": (
        "rho=100",
        {"growth": 1.1, "explore": 0, "mechanism": "binary-tree", "every": 3},
        {"dim": 2},
    ),
    "gaussian demand": ("rho=2", {"growth": 1.3, "demand_bound": 1.0}, {"demand": "gaussian"}),
    "estimates on the sphere": (
        "eps=1,delta=1e-6",
        {"growth": 1.2, "max_updates": 3, "mechanism": "sqrt-toeplitz", "share": 0.3},
        {"demand": "gaussian", "dim": 2},
    ),
    "long features": ("rho=50", {"growth": 1.4}, {"scale": 3.0}),
    "indefinite Gram matrices": (
        "rho=0.02",
        {"growth": 1.001, "max_updates": 40, "share": 0.99},
        {"dim": 2},
    ),
}


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("seeds", [[3, 4], [1_002_000]])
def test_prices_and_estimates_are_equal_in_every_round(lockstep, case, seeds):
    budget, params, env = CASES[case]
    run = lockstep(
        "private-pricing",
        "DPB/Pricing-v0",
        budget,
        seeds,
        400,
        params,
        oracle=ReferencePrivatePricing,
        **env,
    )
    updates, sizes = np.zeros(len(seeds), int), []
    for _, fast, copies, (price, expected) in run:
        # prices follow the estimates, whose two solvers stop at different points
        np.testing.assert_allclose(price, expected, rtol=0, atol=1e-8)
        updates = np.array([copy.calls for copy in copies])
        np.testing.assert_array_equal(fast.updates, updates)
        for theta, copy in zip(fast._theta, copies):
            np.testing.assert_allclose(theta, copy.theta, rtol=1e-9, atol=1e-9)
            sizes.append(np.linalg.norm(theta))
    assert (updates > 1).all()
    assert (max(sizes) > RADIUS - 1e-4) or case != "estimates on the sphere"


INDEFINITE = {"growth": 1.01, "max_updates": 90, "mechanism": "binary-tree", "every": 1}


@pytest.mark.parametrize(
    ("budget", "dim", "params"),
    [
        ("rho=5", 3, {"gamma": 0.5, "growth": 1.3}),
        ("rho=0.02", 6, {"gamma": 5.0, "explore": 0, "share": 0.9, **INDEFINITE}),
    ],
)
def test_both_searches_find_the_largest_upper_bound(lockstep, budget, dim, params):
    """Prices are equal in value: the objective may have several maximisers."""

    def upper_bounds(copy, x, prices):
        phi = np.column_stack([np.tile(x, (2, 1)), -prices]) / np.sqrt(dim)
        values, vectors = np.linalg.eigh(copy.Lambda)
        raised.append(values.min() < copy.rho / 2)
        width = (phi @ vectors) ** 2 @ (1 / np.maximum(values, copy.rho / 2))
        return prices / (1 + np.exp(-4 * phi @ copy.theta)) + copy.gamma * np.sqrt(width)

    raised, seeds = [], [3, 4, 5, 6]
    run = lockstep(
        "private-pricing",
        "DPB/Pricing-v0",
        budget,
        seeds,
        100,
        params,
        oracle=ReferencePrivatePricing,
        dim=dim,
    )
    for context, fast, copies, actions in run:
        thetas = [copy.theta for copy in copies]
        np.testing.assert_allclose(fast._theta, thetas, rtol=1e-9, atol=1e-9)
        np.testing.assert_array_equal(fast.updates, [copy.calls for copy in copies])
        if context.t <= fast.explore:
            np.testing.assert_array_equal(*actions)
        elif not fast._due.any():  # else the estimates are newer than the prices
            for copy, x, prices in zip(copies, context.features, np.transpose(actions)):
                bound, expected = upper_bounds(copy, x, prices)
                assert bound == pytest.approx(expected, abs=2e-7)
    assert (fast.updates > 1).all()
    assert any(raised) == (dim == 6)
