"""adaprivate-ts and adaprivate-ucb equal independent editions in plain NumPy in every round."""

from __future__ import annotations

import numpy as np
import pytest

from tests.agents.reference.adaprivate_ts_oracle import AdaPrivateTSOracle
from tests.agents.reference.adaprivate_ucb_oracle import AdaPrivateUCBOracle

RECOMMENDATION = "DPB/Recommendation-v0"
CASES = {
    "defaults": (RECOMMENDATION, "eps=1,delta=1e-5", {}, {"dim": 6, "n_arms": 20}),
    "short batches, little noise": (
        RECOMMENDATION,
        "rho=50",
        {"batch": 20, "ridge": 0.3, "centre": True},
        {"dim": 3, "fresh": True},
    ),
    "the printed calibration": (
        RECOMMENDATION,
        "eps=5,delta=1e-5",
        {"batch": 50, "calibration": "paper"},
        {"dim": 4, "reward": "linear"},
    ),
    "a prior mean": (
        RECOMMENDATION,
        "rho=0.1",
        {"batch": 100, "prior_mean": [0.5, -0.2, 0.0, 1.0]},
        {"dim": 4},
    ),
    "fixed arms": ("DPB/MultiArmed-v0", "rho=1", {"batch": 60}, {"n_arms": 5}),
}
OWN = {"adaprivate-ts": {"v": 0.5, "decay": 0.9}, "adaprivate-ucb": {"alpha": 0.4}}
ORACLES = {"adaprivate-ts": AdaPrivateTSOracle, "adaprivate-ucb": AdaPrivateUCBOracle}


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("seeds", [[3, 4], [1_007_000]])
@pytest.mark.parametrize("name", OWN)
@pytest.mark.parametrize("own", [False, True])
def test_actions_and_sums_are_equal_in_every_round(lockstep, name, own, case, seeds):
    env_id, budget, params, env = CASES[case]
    params = params | OWN[name] if own else params
    scale = 3.0 if case == "short batches, little noise" else 1.0  # features to be clipped
    run = lockstep(name, env_id, budget, seeds, 700, params, scale, oracle=ORACLES[name], **env)
    for _, fast, copies, (action, expected) in run:
        np.testing.assert_array_equal(action, expected)
        for response, copy in zip(fast.state.b, copies):
            # sums of at most 700 rounded products
            np.testing.assert_allclose(response, copy.b, rtol=1e-12, atol=1e-10)
    assert fast.plan.sums.releases >= 2


def test_the_width_of_section_4_2(lockstep):
    for *_, (action, expected) in lockstep(
        "adaprivate-ts",
        RECOMMENDATION,
        "rho=0.5",
        [5],
        400,
        {"v": None},
        oracle=AdaPrivateTSOracle,
        dim=4,
    ):
        np.testing.assert_array_equal(action, expected)
