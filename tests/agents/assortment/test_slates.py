"""Optimistic and sampled utilities and the slates chosen from them, against NumPy."""

from __future__ import annotations

from itertools import combinations, pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from dpb_agents.assortment.optimistic_slates import optimistic_samples
from dpb_gym import kernels
from dpb_gym.kernels import slates as slates_kernel

Array = NDArray[Any]


def draw(seed: int, B: int, N: int, d: int) -> tuple[Array, Array, Array, Array]:
    """Features, revenues, theta and a positive semidefinite matrix per replicate."""
    rng = np.random.default_rng(seed)
    features = rng.normal(size=(B, N, d)).astype(np.float32)
    revenues = rng.random((B, N)).astype(np.float32)
    half = rng.normal(size=(B, d, d + 2))
    return features, revenues, rng.normal(size=(B, d)), half @ half.transpose(0, 2, 1)


def roots(gram: Array, shift: float = 1.0, floor: float = 0.0) -> tuple[Array, Array, Array]:
    B, d = gram.shape[:2]
    root, logdet, ok = np.zeros((B, d, d)), np.zeros(B), np.zeros(B, bool)
    kernels.slates.roots(gram, shift, floor, root, logdet, ok)
    return root, logdet, ok


def best_by_enumeration(utility: Array, revenues: Array, K: int) -> float:
    best = 0.0
    for size in range(1, K + 1):
        for items in combinations(range(len(utility)), size):
            v = np.exp(utility[list(items)])
            best = max(best, float(v @ revenues[list(items)].astype(float)) / (1 + v.sum()))
    return best


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 10_000), st.integers(1, 6), st.floats(0.1, 10.0))
def test_roots_invert_the_shifted_matrix(seed: int, d: int, shift: float) -> None:
    gram = draw(seed, 3, 2, d)[3]
    root, logdet, ok = roots(gram, shift, floor=0.5 * shift)
    V = gram + shift * np.eye(d)
    assert ok.all()
    np.testing.assert_allclose(logdet, np.linalg.slogdet(V)[1], rtol=1e-10, atol=1e-10)
    inverse = np.linalg.inv(V)
    np.testing.assert_allclose(root.transpose(0, 2, 1) @ root, inverse, atol=1e-9)


def test_roots_report_small_eigenvalues() -> None:
    gram = np.array([np.diag([3.0, -0.4]), np.diag([3.0, -0.6]), np.diag([3.0, -1.2])])
    assert roots(gram, 1.0, floor=0.5)[2].tolist() == [True, False, False]
    assert roots(gram, 1.0, floor=0.0)[2].tolist() == [True, True, False]


@settings(max_examples=25, deadline=None)
@given(
    st.integers(0, 10_000),
    st.integers(1, 5),
    st.floats(0.0, 3.0),
    st.integers(1, 7),
    st.sampled_from([0.0, 0.4, 0.8, 3.0]),
)
def test_optimistic_slates(seed: int, d: int, width: float, K: int, guess: float) -> None:
    features, revenues, theta, gram = draw(seed, 2, 7, d)
    values, slates = np.full(2, guess), np.empty((2, K), np.int64)
    args = (features, revenues, False, False, theta, roots(gram)[0], width, values, slates)
    kernels.slates.optimistic_slates(*args)
    utility = np.empty((2, 7))
    for b in range(2):
        x = features[b].astype(float)
        V = gram[b] + np.eye(d)
        bonus = np.sqrt(np.sum(x * np.linalg.solve(V, x.T).T, axis=1))
        utility[b] = x @ theta[b] + width * bonus
        items = slates[b][slates[b] >= 0]
        v = np.exp(utility[b, items])
        value = v @ revenues[b, items].astype(float) / (1 + v.sum())
        best = best_by_enumeration(utility[b], revenues[b], K)
        assert value == pytest.approx(best, rel=1e-9)
        assert values[b] == pytest.approx(best, rel=1e-9)
    kernels.slates.optimistic_slates(*args[:2], True, *args[3:])
    for b in range(2):
        assert sorted(np.argsort(-utility[b], kind="stable")[:K]) == slates[b].tolist()


@settings(max_examples=25, deadline=None)
@given(
    st.integers(0, 10_000),
    st.integers(1, 5),
    st.floats(0.1, 3.0),
    st.integers(1, 9),
    st.sampled_from([0.0, 0.8, 3.0]),
)
def test_sampled_slates(seed: int, d: int, width: float, M: int, guess: float) -> None:
    features, revenues, theta, gram = draw(seed, 2, 7, d)
    normals = np.random.default_rng(seed).normal(size=(2, M, d))
    values, slates = np.full(2, guess), np.empty((2, 3), np.int64)
    args = (theta, roots(gram)[0], width, normals, values, slates)
    kernels.slates.sampled_slates(features, revenues, False, False, *args)
    ranked = np.empty_like(slates)
    kernels.slates.sampled_slates(features, revenues, True, False, *args[:-1], ranked)
    for b in range(2):
        L = np.linalg.cholesky(gram[b] + np.eye(d))
        samples = theta[b] + width * np.linalg.solve(L.T, normals[b].T).T
        utility = (features[b].astype(float) @ samples.T).max(axis=1)
        assert sorted(np.argsort(-utility, kind="stable")[:3]) == ranked[b].tolist()
        items = slates[b][slates[b] >= 0]
        v = np.exp(utility[items])
        value = v @ revenues[b, items].astype(float) / (1 + v.sum())
        assert value == pytest.approx(best_by_enumeration(utility, revenues[b], 3), rel=1e-9)


def test_thompson_draws_have_the_right_covariance() -> None:
    d, width = 3, 0.7
    gram = draw(1, 1, 1, d)[3]
    root = roots(gram)[0]
    normals = np.random.default_rng(0).normal(size=(1, 200_000, d))
    samples = width * normals[0] @ root[0]
    expected = width**2 * np.linalg.inv(gram[0] + np.eye(d))
    np.testing.assert_allclose(np.cov(samples.T), expected, atol=0.02 * expected.max())


def test_optimistic_sample_counts() -> None:
    # 1 - (1 - p)^M: the chance that one of M draws is optimistic, p = 1 / (4 sqrt(e pi))
    assert [optimistic_samples(K) for K in (1, 2, 10)] == [1, 9, 27]


@pytest.mark.parametrize("exactly", [False, True])
def test_expected_slates_take_what_adds_most(exactly: bool) -> None:
    """Revenues of either sign, items that are missing: against NumPy, item by item."""
    B, N, K, d, M = 5, 8, 4, 3, 6
    features, revenues, theta, gram = draw(11, B, N, d)
    revenues -= 0.6
    revenues[0, 1:3] = -np.inf
    revenues[1, 3:] = -np.inf  # fewer than K are there
    root = roots(gram)[0]
    normals = np.random.default_rng(12).normal(size=(B, M, d))
    slates = np.empty((B, K), np.int64)
    kernels.slates.expected_slates(features, revenues, exactly, theta, root, normals, slates)
    for b in range(B):
        there = np.flatnonzero(revenues[b] > -np.inf)
        w = np.exp(features[b].astype(float) @ (theta[b] + normals[b] @ root[b].T).T)

        def earned(items: list[int], w: Array = w, r: Array = revenues[b]) -> float:
            v = w[items]
            return float(((r[items].astype(float) @ v) / (1 + v.sum(axis=0))).mean())

        chosen: list[int] = []
        while len(chosen) < min(K, len(there)):
            more = {int(i): earned([*chosen, int(i)]) for i in there if i not in chosen}
            best = max(more, key=lambda i: more[i])
            if not exactly and more[best] < (earned(chosen) if chosen else 0.0):
                break
            chosen.append(best)
        assert slates[b].tolist() == sorted(chosen) + [-1] * (K - len(chosen))


def test_expected_slates_of_equal_revenues_are_nearly_best() -> None:
    """At least 1 - 1/e of the best; here far more, and large utilities stay finite."""
    features, revenues, theta, gram = draw(13, 6, 9, 2)
    revenues[:] = 1.0
    root, normals = roots(gram)[0], np.random.default_rng(14).normal(size=(6, 8, 2))
    slates = np.empty((6, 3), np.int64)
    kernels.slates.expected_slates(features, revenues, False, theta, root, normals, slates)
    for b in range(6):
        w = np.exp(features[b].astype(float) @ (theta[b] + normals[b] @ root[b].T).T)
        value = {c: 1 - 1 / (1 + w[list(c)].sum(axis=0)) for c in combinations(range(9), 3)}
        assert value[tuple(slates[b])].mean() > 0.98 * max(v.mean() for v in value.values())
    kernels.slates.expected_slates(1e4 * features, revenues, True, theta, root, normals, slates)
    assert (slates >= 0).all()


def greedy_slate(w: Array, items: Array, K: int) -> list[int]:
    """Items of `items` that add most to the mean probability of a sale, one by one."""
    sold, chosen = np.zeros(w.shape[1]), list[int]()
    for _ in range(K):
        left = np.setdiff1d(items, chosen)
        gains = (1 - 1 / (1 + sold + w[left])).mean(axis=1)
        chosen.append(int(left[gains.argmax()]))
        sold += w[chosen[-1]]
    return sorted(chosen)


@pytest.mark.parametrize("missing", [0, 700])
def test_of_many_items_those_that_lead_a_block_are_considered(missing: int) -> None:
    N, K, d, M = slates_kernel.MANY_ITEMS + 900, 5, 4, 12
    features, revenues, theta, gram = draw(15, 1, N, d)
    revenues[:] = 0.5
    there = np.sort(np.random.default_rng(16).permutation(N)[missing:])
    revenues[0, np.setdiff1d(np.arange(N), there)] = -np.inf
    root, normals = roots(gram)[0], np.random.default_rng(17).normal(size=(1, M, d))
    draws = theta[0] + normals[0] @ root[0].T
    utility = features[0].astype(float) @ draws.T
    blocks = slates_kernel.MANY_ITEMS // slates_kernel.JUDGES
    ends = np.arange(blocks + 1) * len(there) // blocks
    leaders = {
        int(block[utility[block, judge].argmax()])
        for block in (there[a:b] for a, b in pairwise(ends))
        for judge in range(slates_kernel.JUDGES)
    }
    items = np.empty(N, np.int64)
    n = slates_kernel._considered(features[0], revenues[0], draws, K, items)
    assert items[:n].tolist() == sorted(leaders)
    slates = np.empty((1, K), np.int64)
    kernels.slates.expected_slates(features, revenues, False, theta, root, normals, slates)
    w = np.exp(utility)
    best = greedy_slate(w, np.array(sorted(leaders)), K)
    assert slates[0].tolist() == best
    every = greedy_slate(w, there, K)
    ours, most = ((1 - 1 / (1 + w[slate].sum(axis=0))).mean() for slate in (best, every))
    assert ours > 0.98 * most


def test_many_items_of_different_revenues_are_all_considered() -> None:
    N, d = slates_kernel.MANY_ITEMS + 300, 2
    features, revenues = draw(18, 1, N, d)[:2]
    items = np.empty(N, np.int64)
    normals = np.random.default_rng(19).normal(size=(3, d))
    assert slates_kernel._considered(features[0], revenues[0], normals, 2, items) == N
    revenues[:] = 1.0
    some = slates_kernel._considered(features[0], revenues[0], normals, 2, items)
    assert some <= slates_kernel.MANY_ITEMS
    assert slates_kernel._considered(features[0], revenues[0], normals, 600, items) >= 600
