"""Worlds of audits of assortments."""

from __future__ import annotations

import numpy as np

import dpb_gym
from dpb_gym.audits.worlds import pairs_for


def test_items_of_a_pair_are_multiples_of_one_vector() -> None:
    info = dpb_gym.make_problem("DPB/Assortment-v0", n_items=6, capacity=2, dim=3).info
    pairs = {pair.name: pair for pair in pairs_for(info, "reward")}
    for name, pattern, norm in (
        ("items x and -x, buys x or -x", [1, -1, 1, -1, 1, -1], 1.0),
        ("items x, -x and 0, norm 0.3, buys x or -x", [1, -1, 0, 0, 1, -1], 0.3),
    ):
        worlds = pairs[name].first, pairs[name].second
        for world in worlds:
            items = np.asarray(world.features)
            np.testing.assert_allclose(items, np.outer(pattern, items[0]), atol=1e-7)
            assert np.linalg.norm(items[0]) == np.float32(norm)
