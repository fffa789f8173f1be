"""The rivals' kernels against plain NumPy."""

from __future__ import annotations

import numpy as np
import pytest

from dpb_agents import kernels as agent_kernels


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
    features = rng.standard_normal((B, m, d)).astype(np.float32) * rng.choice([0.2, 2.0], (B, m, 1))
    return rng, features.astype(np.float32), rng.standard_normal((B, d)), inverses(rng, B, d)


def test_choose(drawn):
    rng, features, theta, inverse = drawn
    B = len(theta)
    width = rng.choice([0.0, 0.5, 3.0], B)
    action = np.empty(B, np.int64)
    agent_kernels.linear.choose(features, theta, inverse, width, action)
    x = features.astype(np.float64)
    form = np.einsum("bki,bij,bkj->bk", x, inverse, x)
    score = np.einsum("bki,bi->bk", x, theta) + width[:, None] * np.sqrt(form)
    np.testing.assert_array_equal(action, score.argmax(axis=1))


def test_choose_widest(drawn):
    rng, features, theta, inverse = drawn
    B, m, _ = features.shape
    active = rng.random((B, m)) < 0.5
    active[0] = False
    action = np.empty(B, np.int64)
    agent_kernels.linear.choose_widest(features, active, theta, inverse, action)
    x = clipped(features)
    form = np.einsum("bki,bij,bkj->bk", x, inverse, x)
    mean = np.einsum("bki,bi->bk", x, theta)
    widest = np.where(active, form, -np.inf).argmax(axis=1)
    expected = np.where(active.any(axis=1), widest, mean.argmax(axis=1))
    np.testing.assert_array_equal(action, expected)


def test_eliminate(drawn):
    rng, features, theta, inverse = drawn
    B, m, _ = features.shape
    active = rng.random((B, m)) < 0.8
    before = active.copy()
    agent_kernels.linear.eliminate(features, theta, inverse, 0.2, 0.1, active)
    x = clipped(features)
    image = np.einsum("bki,bij->bkj", x, inverse)
    width = 0.2 * np.sqrt((image * x).sum(-1)) + 0.1 * np.linalg.norm(image, axis=-1)
    mean = np.einsum("bki,bi->bk", x, theta)
    highest = np.where(before, mean - width, -np.inf).max(axis=1, keepdims=True)
    np.testing.assert_array_equal(active, before & (mean + width >= highest))
    if m > 1:
        assert (active != before).any()
    assert (active.any(axis=1) == before.any(axis=1)).all(), "the best lower bound stays"


def test_remember(drawn):
    rng, features, _, _ = drawn
    B, m, d = features.shape
    pool = 2 * m
    arms = np.stack([rng.permutation(pool)[:m] for _ in range(B)])
    table, seen = np.zeros((B, pool, d), np.float32), np.zeros((B, pool), bool)
    agent_kernels.linear.remember(features, arms, table, seen)
    assert (seen.sum(axis=1) == m).all()
    np.testing.assert_array_equal(np.take_along_axis(table, arms[:, :, None], axis=1), features)
    assert not table[~seen].any()


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


def test_with_reward(drawn):
    rng, _, x, _ = drawn
    B, d = x.shape
    x, reward = np.stack([x, 2.0 * x]), rng.random((2, B))
    x[1, 0] = 0.0
    out = np.empty((2, B, d + 1))
    agent_kernels.linear.with_reward(x, reward, out)
    v = np.concatenate([x, reward[..., None]], axis=2)
    v[1, 0] = 0.0  # nothing was observed
    np.testing.assert_array_equal(out, v)


def test_shifted_inverse(drawn):
    rng, _, _, good = drawn
    B, d = good.shape[:2]
    noisy = rng.standard_normal((B, d + 1, d + 1))
    noisy[:, :d, :d] = good
    noisy[:, :d, d] = noisy[:, d, :d]
    noisy[0, :d, :d] = -0.3 * np.eye(d)  # positive definite after the shift, but below half of it
    inverse, theta, logdet = np.full((B, d, d), 9.0), np.full((B, d), 9.0), np.empty(B)
    agent_kernels.linear.shifted_inverse(noisy, 0.5, inverse, theta, logdet)
    assert np.isnan(logdet[0]) and (inverse[0] == 9.0).all() and (theta[0] == 9.0).all()
    for b in range(1, B):
        V = good[b] + 0.5 * np.eye(d)
        np.testing.assert_allclose(inverse[b], np.linalg.inv(V), rtol=1e-8, atol=1e-10)
        solution = np.linalg.solve(V, noisy[b, :d, d])
        np.testing.assert_allclose(theta[b], solution, rtol=1e-8, atol=1e-10)
        assert logdet[b] == pytest.approx(np.linalg.slogdet(V)[1], abs=1e-9)
