"""dpmnl equals an independent edition in plain NumPy in every round."""

from __future__ import annotations

import numpy as np
import pytest

from tests.agents.reference.dpmnl_oracle import ReferenceDPMNL

CASES = {
    "nearly the defaults": ("rho=1", {"explore": 50, "growth": 1.3}, {}),
    "often updated": (
        "rho=100",
        {"explore": 20, "max_updates": 9, "growth": 1.1, "scale": 0.01},
        {"n_items": 15, "capacity": 3, "dim": 3, "revenues": "random"},
    ),
    "wide bonus": (
        "rho=5",
        {"explore": 10, "scale": 1.0, "growth": 1.05, "share": 0.5},
        {"n_items": 12, "capacity": 4, "dim": 2, "context_norm": "clip", "revenues": "random"},
    ),
    "one item, no random start": (
        "eps=8,delta=1e-5",
        {"explore": 0, "growth": 1.01, "mechanism": "blt", "every": 7},
        {"n_items": 10, "capacity": 1, "dim": 4},
    ),
    "sets of exactly K items": (
        "rho=20",
        {"explore": 5, "growth": 1.2, "mechanism": "sqrt-toeplitz"},
        {"n_items": 8, "capacity": 5, "dim": 6, "revenues": "random", "exactly": True},
    ),
    "noise that exceeds its bound": (
        "rho=0.001",
        {"explore": 3, "share": 0.999, "growth": 1.0001},
        {"n_items": 8, "capacity": 2, "dim": 2},
    ),
}


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("seeds", [[3, 4], [1_002_000]])
def test_actions_and_estimates_are_equal_in_every_round(lockstep, case, seeds):
    budget, params, env = CASES[case]
    run = lockstep(
        "dpmnl", "DPB/Assortment-v0", budget, seeds, 300, params, oracle=ReferenceDPMNL, **env
    )
    updates = np.zeros(len(seeds), int)
    for _, fast, copies, (action, expected) in run:
        np.testing.assert_array_equal(action, expected)
        updates = np.array([copy.D for copy in copies])
        np.testing.assert_array_equal(fast.updates, updates)
        for theta, logdet, copy in zip(fast._theta, fast._V.logdet, copies):
            # both solve to a gradient of 1e-10, and the ridge is above 1
            np.testing.assert_allclose(theta, copy.theta, rtol=1e-9, atol=1e-9)
            assert logdet == pytest.approx(np.linalg.slogdet(copy.V)[1], rel=1e-9)
    assert (updates > 1).all() or case == "noise that exceeds its bound"
