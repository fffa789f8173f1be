"""Symmetric eigenvalues by our own Jacobi, the same bits in any batch, no fused multiply-add."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dpb_gym.kernels import linalg

SEEDS = st.integers(0, 2**32 - 1)


def symmetric(seed: int, count: int, d: int, rank: int, scale: float) -> np.ndarray:
    """Indefinite or low-rank positive semidefinite matrices of a given scale."""
    rng = np.random.default_rng(seed)
    rows = rng.standard_normal((count, rank, d))
    if seed % 2:
        return scale * np.einsum("bri,brj->bij", rows, rows)
    full = rng.standard_normal((count, d, d))
    return scale * (full + full.transpose(0, 2, 1))


@given(SEEDS, st.sampled_from([1, 2, 3, 5, 10, 24, 64]), st.sampled_from([1e-150, 1.0, 1e150]))
@settings(max_examples=60, deadline=None)
def test_eigh_equals_numpys(seed, d, scale):
    matrices = symmetric(seed, 3, d, max(1, d // 2), scale)
    values, vectors = linalg.eigh(matrices)
    size = np.abs(matrices).max() * d
    np.testing.assert_allclose(values, np.linalg.eigvalsh(matrices), rtol=0, atol=1e-14 * size)
    np.testing.assert_array_equal(values, linalg.eigvalsh(matrices))
    assert (np.diff(values, axis=1) >= 0).all()
    again = (vectors * values[:, None, :]) @ vectors.transpose(0, 2, 1)
    np.testing.assert_allclose(again, matrices, rtol=0, atol=1e-14 * size)
    np.testing.assert_allclose(
        vectors.transpose(0, 2, 1) @ vectors, np.broadcast_to(np.eye(d), (3, d, d)), atol=1e-13
    )
    lead = np.take_along_axis(vectors, np.abs(vectors).argmax(axis=1)[:, None, :], axis=1)
    assert (lead > 0).all()


def test_eigh_of_special_matrices():
    for matrix in (np.zeros((4, 4)), np.eye(4), np.diag([3.0, -1.0, 2.0, 2.0])):
        values, vectors = linalg.eigh(matrix[None])
        np.testing.assert_array_equal(values[0], np.sort(np.diag(matrix)))
        np.testing.assert_array_equal(np.abs(vectors[0]).sum(axis=0), np.ones(4))
    graded = np.diag([1e300, 1.0, 1e-300]) + 1e-8
    np.testing.assert_allclose(linalg.eigvalsh(graded[None])[0, -1], 1e300)
    bad = np.eye(3)
    bad[2, 1] = np.nan
    values, vectors = linalg.eigh(np.stack([bad, np.eye(3)]))
    assert np.isnan(values[0]).all() and np.isnan(vectors[0]).all()
    np.testing.assert_array_equal(values[1], np.ones(3))


@pytest.mark.slow
@given(SEEDS, st.sampled_from([1, 4, 17]))
@settings(max_examples=30, deadline=None)
def test_a_matrix_has_the_same_bits_in_any_batch_and_layout(seed, d):
    matrices = symmetric(seed | 1, 5, d, 2 * d, 1.0) + np.eye(d)
    strided = np.asfortranarray(matrices)
    values, vectors = linalg.eigh(matrices)
    inverses, solved = np.empty_like(matrices), np.empty((5, d))
    rhs = np.random.default_rng(seed).standard_normal((5, d))
    assert linalg.inverse(matrices, inverses) == linalg.solve(matrices, rhs, solved) == 0
    for b in range(5):
        one = slice(b, b + 1)
        for array in (matrices, strided):
            alone, own = linalg.eigh(array[one])
            np.testing.assert_array_equal(alone[0], values[b])
            np.testing.assert_array_equal(own[0], vectors[b])
            out, x = np.empty((1, d, d)), np.empty((1, d))
            linalg.inverse(array[one], out)
            linalg.solve(array[one], rhs[one], x)
            np.testing.assert_array_equal(out[0], inverses[b])
            np.testing.assert_array_equal(x[0], solved[b])


def test_no_multiplication_is_fused_with_an_addition():
    x = 1.0 + 2.0**-30
    # fused, the last product keeps the 2^-60 that rounding cuts off
    assert linalg.dot_one(np.array([-1.0, x]), np.array([x * x, x])) == 0.0
    lower = np.array([[1.0, 0.0], [x, 1.0]])
    out = np.empty(2)
    linalg.solve_lower_one(lower, np.array([x, x * x]), out)
    assert out[1] == 0.0
