"""Built-in pairs of worlds: valid customers of their problems."""

from __future__ import annotations

import numpy as np
import pytest

from dpb_gym.audits.worlds import pairs_for
from dpb_gym.envs.registration import make_problem


@pytest.mark.parametrize("dim", [1, 2, 3, 5])
def test_opposite_items_are_x_minus_x_and_zero(dim: int) -> None:
    """Item features are multiples 1, -1 and 0 of the taste, and lie in the unit ball."""
    info = make_problem("DPB/Assortment-v0", n_items=8, capacity=4, dim=dim).info
    pairs = [p for p in pairs_for(info, "user-round", False) if p.name.endswith("buys x or -x")]
    assert pairs
    for pair in pairs:
        for world in (pair.first, pair.second):
            features = np.asarray(world.features, np.float64)
            x = np.asarray(world.taste, np.float64)
            assert 0.0 < np.linalg.norm(x) <= 1.0 + 1e-6
            multiples = features @ x / (x @ x)
            np.testing.assert_allclose(multiples, np.round(multiples), atol=1e-6)
            assert {-1.0, 1.0} <= set(np.round(multiples)) <= {-1.0, 0.0, 1.0}
            np.testing.assert_allclose(features, np.outer(multiples, x), atol=1e-6)
