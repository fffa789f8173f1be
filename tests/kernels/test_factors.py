"""Factors, solutions and rank-one updates against numpy.linalg."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dpb_gym import kernels

L = kernels.linalg


def matrices(seed: int, B: int, d: int, spread: float = 1.0) -> np.ndarray:
    """Symmetric positive definite matrices with eigenvalues 10^-spread..10^spread."""
    rng = np.random.default_rng(seed)
    out = np.empty((B, d, d))
    for b in range(B):
        q = np.linalg.qr(rng.standard_normal((d, d)))[0]
        m = (q * 10.0 ** rng.uniform(-spread, spread, d)) @ q.T
        out[b] = 0.5 * (m + m.T)
    return out


shapes = st.tuples(st.integers(0, 2**32 - 1), st.integers(1, 5), st.integers(1, 12))


@settings(max_examples=60, deadline=None)
@given(shapes)
def test_factor_solve_inverse_logdet_agree_with_numpy(shape: tuple[int, int, int]) -> None:
    seed, B, d = shape
    A = matrices(seed, B, d)
    v = np.random.default_rng(seed + 1).standard_normal((B, d))
    lower, out, inv = np.empty_like(A), np.empty_like(v), np.empty_like(A)

    assert L.cholesky(A, lower) == 0
    np.testing.assert_allclose(lower, np.linalg.cholesky(A), rtol=1e-9, atol=1e-12)
    assert (np.triu(lower, 1) == 0.0).all()

    expected = np.linalg.solve(A, v[..., None])[..., 0]
    scale = np.abs(expected).max()
    assert L.solve(A, v, out) == 0
    np.testing.assert_allclose(out, expected, rtol=1e-9, atol=1e-11 * scale)
    assert L.inverse(A, inv) == 0
    np.testing.assert_allclose(inv, np.linalg.inv(A), rtol=1e-8, atol=1e-10 * np.abs(inv).max())
    assert (inv == inv.transpose(0, 2, 1)).all()
    logdet = np.array([L.logdet_cholesky_one(factor) for factor in lower])
    np.testing.assert_allclose(logdet, np.linalg.slogdet(A)[1], rtol=1e-10, atol=1e-10)


@settings(max_examples=60, deadline=None)
@given(shapes, st.sampled_from([0.0, 1e-6, 1.0, 1e4]))
def test_rank_one_updates_agree_with_recomputation(
    shape: tuple[int, int, int], weight: float
) -> None:
    seed, B, d = shape
    A = matrices(seed, B, d)
    rng = np.random.default_rng(seed + 1)
    v, w = rng.standard_normal((B, d)), np.full(B, weight)
    updated = A + weight * v[:, :, None] * v[:, None, :]

    inv, growth = np.linalg.inv(A), np.empty(B)
    inv = 0.5 * (inv + inv.transpose(0, 2, 1))
    before = inv.copy()
    L.sherman_morrison(inv, v, w, growth)
    np.testing.assert_allclose(
        inv, np.linalg.inv(updated), rtol=1e-7, atol=1e-9 * np.abs(before).max()
    )
    assert (inv == inv.transpose(0, 2, 1)).all()
    np.testing.assert_allclose(
        np.log(growth), np.linalg.slogdet(updated)[1] - np.linalg.slogdet(A)[1], atol=1e-8
    )
    if weight == 0.0:
        assert (inv == before).all() and (growth == 1.0).all()

    upper = np.linalg.cholesky(A).transpose(0, 2, 1).copy()
    L.cholesky_update(upper, v, w)
    lower = upper.transpose(0, 2, 1)
    np.testing.assert_allclose(lower, np.linalg.cholesky(updated), rtol=1e-7, atol=1e-9)


@settings(max_examples=40, deadline=None)
@given(shapes)
def test_products_agree_with_numpy(shape: tuple[int, int, int]) -> None:
    seed, B, d = shape
    rng = np.random.default_rng(seed)
    M = rng.standard_normal((B, d, d))
    M = M + M.transpose(0, 2, 1)
    v = rng.standard_normal((B, d))
    out = np.empty((B, d))
    L.multiply(M, v, out)
    np.testing.assert_allclose(out, (M @ v[..., None])[..., 0], atol=1e-11)
    for b in range(B):
        form = L.quadratic_form_one(M[b], v[b], out[b])
        assert form == pytest.approx(v[b] @ M[b] @ v[b], abs=1e-10)


def test_bits_do_not_depend_on_the_batch() -> None:
    d, B = 7, 8
    A = matrices(3, B, d)
    rng = np.random.default_rng(4)
    v, w = rng.standard_normal((B, d)), rng.random(B)

    def everything(lanes: slice) -> list[np.ndarray]:
        M, x, weight = A[lanes].copy(), v[lanes].copy(), w[lanes].copy()
        n = len(M)
        lower, inv, out = np.empty_like(M), np.empty_like(M), np.empty_like(x)
        growth = np.empty(n)
        L.cholesky(M, lower)
        L.inverse(M, inv)
        L.solve(M, x, out)
        L.sherman_morrison(inv, x, weight, growth)
        upper = lower.transpose(0, 2, 1).copy()
        L.cholesky_update(upper, x, weight)
        return [lower, inv, out, growth, upper]

    full = everything(slice(None))
    for size in (1, 3):
        for start in range(0, B, size):
            lanes = slice(start, start + size)
            for whole, part in zip(full, everything(lanes)):
                assert (whole[lanes] == part).all()


@pytest.mark.parametrize("bad", ["indefinite", "zero", "nan", "inf"])
def test_matrices_that_are_not_positive_definite_are_reported(bad: str) -> None:
    A = matrices(5, 3, 4)
    A[1] = {
        "indefinite": np.diag([1.0, -1.0, 1.0, 1.0]),
        "zero": np.zeros((4, 4)),
        "nan": np.full((4, 4), np.nan),
        "inf": np.diag([1.0, np.inf, 1.0, 1.0]),
    }[bad]
    v, out = np.ones((3, 4)), np.empty((3, 4))
    assert L.cholesky(A, np.empty_like(A)) == 2
    assert L.inverse(A, np.empty_like(A)) == 2
    assert L.solve(A, v, out) == 2


@pytest.mark.slow
def test_updates_in_place_stay_exact_over_a_hundred_thousand_rounds() -> None:
    d = 6
    rng = np.random.default_rng(6)
    inv, upper, A = np.eye(d)[None].copy(), np.eye(d)[None].copy(), np.eye(d)[None].copy()
    growth, one, log_growth = np.empty(1), np.ones(1), 0.0
    scales = np.array([1.0, 1.0, 0.3, 0.1, 0.03, 0.01])
    for _ in range(100_000):
        v = (rng.standard_normal(d) * scales)[None] / 3.0
        A += v[:, :, None] * v[:, None, :]
        L.sherman_morrison(inv, v, one, growth)
        L.cholesky_update(upper, v, one)
        log_growth += float(np.log(growth[0]))
    exact = np.linalg.inv(A)
    np.testing.assert_allclose(inv, exact, rtol=1e-9, atol=1e-10 * np.abs(exact).max())
    np.testing.assert_allclose(upper[0].T, np.linalg.cholesky(A)[0], rtol=1e-9, atol=1e-9)
    assert log_growth == pytest.approx(np.linalg.slogdet(A)[1][0], rel=1e-9)
