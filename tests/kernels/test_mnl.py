"""Likelihoods of one item per record."""

from __future__ import annotations

import numpy as np

from dpb_gym import kernels


def test_records_of_one_item_have_the_bits_of_the_general_loop():
    rng = np.random.default_rng(0)
    n, d = 200, 5
    x = (3.0 * rng.normal(size=(n, 1, d))).astype(np.float32)
    offered = (rng.random(n) < 0.9).astype(np.int32)
    chosen = np.where(offered == 1, rng.integers(-1, 1, n), -1).astype(np.int32)
    theta = rng.normal(size=d)
    sums = [(np.zeros(d), np.zeros((d, d))) for _ in range(2)]
    own = kernels.mnl.add_responses_one(x, offered, chosen, 3, n, theta, *sums[0])
    scratch = np.empty(1), np.empty(d)
    general = kernels.mnl.add_choices_one(x, offered, chosen, 3, n, theta, *sums[1], *scratch)
    assert own == general
    for one, other in zip(*sums):
        np.testing.assert_array_equal(one, other)
