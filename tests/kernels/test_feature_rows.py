"""Upper confidence bounds of rows: the bits of single products, for rows of every length."""

from __future__ import annotations

import numpy as np
import pytest

from dpb_gym.kernels import feature_rows, linalg, scratch, vectors
from dpb_gym.kernels.customer_candidates import optimistic_candidate


def bounds(x, theta, metric, width):
    """Return the bounds, one row after the other, without compilation."""
    image = np.empty(len(theta))
    out = []
    for row in x:
        linalg.multiply_one.py_func(metric, row, image)
        square = linalg.dot_one.py_func(row, image)
        out.append(linalg.dot_one.py_func(row, theta) + width * np.sqrt(max(0.0, square)))
    return np.array(out)


def problem(m, d):
    """Return rows ``(m, d)``, a vector, and a positive definite matrix."""
    rng = np.random.default_rng([m, d])
    half = rng.normal(size=(d, d))
    return rng.normal(size=(m, d)), rng.normal(size=d), half @ half.T + 0.1 * np.eye(d)


# on both sides of a full group of four rows or columns, and of `SHORT`
@pytest.mark.parametrize("d", [*range(1, feature_rows.SHORT + 2), 20])
@pytest.mark.parametrize("m", [1, 3, 4, 6, 9])
def test_upper_bounds_have_the_bits_of_single_products(m, d):
    x, theta, metric = problem(m, d)
    out = np.empty(m)
    feature_rows.upper_bounds(x, theta, metric, 0.7, np.empty(d), out)
    assert out.tolist() == bounds(x, theta, metric, 0.7).tolist()


# scratch memory in the frame, and beyond its length
@pytest.mark.parametrize(("m", "d"), [(5, 3), (scratch.MOST, 3), (3, scratch.MOST + 1)])
def test_short_and_long_scratch_memory_give_the_same(m, d):
    x, b, metric = problem(m, d)
    chosen = optimistic_candidate(x, b, metric, 0.7, 0.0)
    assert chosen == np.argmax(bounds(x, metric @ b, metric, 0.7))
    inverse = np.eye(d)
    growth = vectors.grow_inverse(inverse, b)
    np.testing.assert_allclose(inverse, np.eye(d) - np.outer(b, b) / growth, atol=1e-12)
