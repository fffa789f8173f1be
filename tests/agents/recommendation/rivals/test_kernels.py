"""The rivals' functions and the kernel of their sums, against plain NumPy."""

from __future__ import annotations

import numpy as np
import pytest

from dpb_agents import kernels as agent_kernels
from dpb_agents.recommendation.rivals import coreset
from dpb_agents.recommendation.rivals.linear_rival import optimistic, shrunk
from dpb_gym.kernels import vectors
from dpb_gym.play import Candidates

NO_NUMBERS = np.zeros((0, 0))


def clipped(x):
    x = x.astype(np.float64)
    return x / np.maximum(1.0, np.linalg.norm(x, axis=-1, keepdims=True))


def inverses(rng, B, d):
    root = rng.standard_normal((B, d, d))
    return np.linalg.inv(root @ root.transpose(0, 2, 1) + np.eye(d))


@pytest.fixture(params=[(1, 1, 1), (7, 4, 3), (5, 6, 20)], name="drawn")
def drawn_fixture(request):
    B, m, d = request.param
    rng = np.random.default_rng(d)
    features = rng.standard_normal((B, m, d)) * rng.choice([0.2, 2.0], (B, m, 1))
    return rng, features, rng.standard_normal((B, d)), inverses(rng, B, d)


def test_optimistic(drawn):
    _, features, theta, inverse = drawn
    for x, at, M in zip(features, theta, inverse):
        for width in (0.0, 0.5, 3.0):
            form = np.einsum("ki,ij,kj->k", x, M, x)
            score = x @ at + width * np.sqrt(form)
            assert optimistic(x, at, M, width, NO_NUMBERS) == score.argmax()


def test_equal_scores_are_decided_by_the_number_that_is_given():
    x, M = np.eye(4), np.eye(4)
    played = [optimistic(x, np.zeros(4), M, 1.0, np.full((1, 1), u)) for u in (0.0, 0.3, 0.6, 0.9)]
    assert played == [0, 1, 2, 3]
    assert optimistic(x, np.zeros(4), M, 1.0, NO_NUMBERS) == 0


def test_shrunk(drawn):
    _, features, theta, inverse = drawn
    for x, at, M in zip(features, theta, inverse):
        np.testing.assert_allclose(shrunk(at, M, 0.7, x[0]), at + 0.7 * M @ x[0], atol=1e-12)


def coreset_of(theta, M, own, arms):
    d = len(theta)
    known = coreset.Known(1.0, np.zeros(d), False, 0.0, True, 0.2, 0.1)
    none = np.zeros(arms, np.bool_)
    return known, coreset.State(
        theta, M, own, np.ones(1, np.int64), np.zeros((arms, d)), none, ~none
    )


def test_eliminate(drawn):
    rng, features, theta, inverse = drawn
    changed = False
    for x, at, M in zip(features, theta, inverse):
        left = rng.random(len(x)) < 0.8
        before = left.copy()
        coreset.eliminate(*coreset_of(at, M, M, 0), x, left)
        v = clipped(x)
        image = v @ M
        width = 0.2 * np.sqrt((image * v).sum(-1)) + 0.1 * np.linalg.norm(image, axis=-1)
        highest = np.where(before, v @ at - width, -np.inf).max()
        np.testing.assert_array_equal(left, before & (v @ at + width >= highest))
        assert left.any() == before.any(), "the best lower bound stays"
        changed = changed or (left != before).any()
    assert changed or features.shape[1] == 1


def test_the_widest_remaining_arm_is_played_and_arms_are_remembered(drawn):
    rng, features, theta, inverse = drawn
    for x, at, M in zip(features, theta, inverse):
        m = len(x)
        known, state = coreset_of(at, inverse[0], M.copy(), 2 * m)
        state.active[:] = rng.random(2 * m) < 0.5
        arms = rng.permutation(2 * m)[:m]
        shown = Candidates(x, arms)
        v, left = clipped(x), state.active[arms]
        form = np.einsum("ki,ij,kj->k", v, M, v)
        expected = np.where(left, form, -np.inf).argmax() if left.any() else (v @ at).argmax()
        action = coreset.act(known, state, 1, shown, NO_NUMBERS)
        assert action == expected
        coreset.see(known, state, 1, shown, action)
        assert state.seen.sum() == m and state.seen[arms].all()
        np.testing.assert_array_equal(state.table[arms], x)
        grown = np.linalg.inv(np.linalg.inv(M) + np.outer(v[action], v[action]))
        np.testing.assert_allclose(state.own, grown, atol=1e-10)


@pytest.mark.parametrize("through", [False, True])
@pytest.mark.parametrize("keep", [False, True])
def test_release(drawn, through, keep):
    rng, _, start, inverse = drawn
    B, d = start.shape
    normals, cursor = rng.standard_normal((B, 4, d)), rng.integers(0, 4, B)
    due, norm, sums = rng.random(B) < 0.6, rng.random(B), start.copy()
    out, at = np.full((B, d), 9.0), cursor.copy()
    if not through:
        inverse, norm = np.tile(np.eye(d), (B, 1, 1)), np.ones(B)
    args = (sums, normals, at, due, 3.0, inverse, norm, keep, out)
    agent_kernels.linear.release(*args)
    picked = normals[np.arange(B), cursor]
    expected = start + 3.0 * picked
    if through:
        expected = np.einsum("bij,bj->bi", inverse, start) + 3.0 * norm[:, None] * picked
    np.testing.assert_allclose(out[due], expected[due], rtol=1e-12, atol=1e-12)
    assert (out[~due] == 9.0).all()
    np.testing.assert_array_equal(at, cursor + due)
    np.testing.assert_array_equal(sums[~due], start[~due])
    np.testing.assert_array_equal(sums[due], start[due] if keep else 0.0)


def test_shifted_inverse_raises_eigenvalues_below_half_the_shift():
    rng = np.random.default_rng(0)
    basis = np.linalg.qr(rng.standard_normal((6, 6)))[0]
    values = np.array([-50.0, -0.5, -0.4, 0.0, 1.0, 30.0])
    for these in (values, np.abs(values)):
        M = basis @ np.diag(these) @ basis.T
        inverse, logdet = vectors.shifted_inverse(0.5 * (M + M.T), 0.8)
        raised = np.maximum(these + 0.8, 0.4)
        expected = basis @ np.diag(1.0 / raised) @ basis.T
        np.testing.assert_allclose(inverse, expected, rtol=1e-9, atol=1e-12)
        np.testing.assert_array_equal(inverse, inverse.T)
        assert logdet == pytest.approx(np.log(raised).sum(), rel=1e-12)


def test_matrices(drawn):
    _, _, _, inverse = drawn
    M, outer = inverse[0], inverse[-1]
    values, E = np.linalg.eigh(M)
    np.testing.assert_allclose(vectors.spectral(values, E), M, atol=1e-12)
    np.testing.assert_allclose(vectors.eigenvalues(M), values, atol=1e-12)
    largest = np.linalg.norm(M, 2)
    assert largest <= vectors.operator_norm(-M) <= largest * (1.0 + 1e-8)
    product = vectors.between(outer, M)
    np.testing.assert_allclose(product, outer @ M @ outer, atol=1e-12)
    np.testing.assert_array_equal(product, product.T)
    assert vectors.definite(M) and not vectors.definite(-M)
