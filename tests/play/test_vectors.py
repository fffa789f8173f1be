"""Helpers of agents' functions: equal to NumPy, and IndexError for shapes that do not fit.

They are compiled without bounds checks. So every function is called here with every array too long
and too short in every axis: it raises IndexError, or the axis is free and the result is right.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
import pytest
from scipy.optimize import minimize_scalar
from scipy.special import expit, ndtr

from dpb_gym.kernels import (
    customer_candidates,
    customer_prices,
    customer_slates,
    filters,
    vectors,
)
from dpb_gym.kernels.deferred import Deferred

RNG = np.random.default_rng(7)
D, N = 3, 5
V, W, Z = RNG.normal(size=(3, D))
X = RNG.normal(size=(N, D))
HALF = RNG.normal(size=(D, D + 2))
M = HALF @ HALF.T + 0.1 * np.eye(D)
E = np.linalg.eigh(M)[1]
R = np.linalg.cholesky(M).T
SCORES, P = RNG.normal(size=N), RNG.dirichlet(np.ones(N))
REVENUES = RNG.uniform(0.2, 1.0, N)
SLATE = np.array([0, 2, -1])
PRICE_THETA = np.append(V, 1.3)


class Case(NamedTuple):
    """A call of a function.

    Attributes:
        args: Its arguments.
        oracle: Returns the same from NumPy; in place: returns the changed argument.
        free: Pairs (argument, axis) whose length may be any.
        changed: Number of the argument that the function changes, if any.
    """

    args: tuple[Any, ...]
    oracle: Any
    free: tuple[tuple[int, int], ...] = ()
    changed: int | None = None


def inverse(M):
    return np.linalg.inv(M)


def slogdet(M):
    return tuple(np.linalg.slogdet(M))


def optimistic(x, theta, metric, logistic, zeta, gamma, tolerance):
    """The best price on a fine grid, refined."""

    def value(p):
        phi = np.append(x, -p) / math.sqrt(len(theta))
        return p * expit(zeta * (phi @ theta)) + gamma * math.sqrt(phi @ metric @ phi)

    grid = np.linspace(0.0, 1.0, 2001)
    near = grid[np.argmax([value(p) for p in grid])]
    ends = max(0.0, near - 1e-3), min(1.0, near + 1e-3)
    return minimize_scalar(
        lambda p: -value(p), bounds=ends, method="bounded", options={"xatol": 1e-9}
    ).x


def chosen(slate, choice):
    items = [a for a in range(len(slate)) if slate[a] >= 0]
    return items.index(choice) if choice in items else len(items)


def expected_revenue(slate, u, r):
    items = slate[: next((a for a in range(len(slate)) if slate[a] < 0), len(slate))]
    w = np.exp(u[items])
    return w @ r[items] / (1 + w.sum())


def slates(n, K):
    """All slates of at most K of n items."""
    for number in range(2**n):
        items = [i for i in range(n) if number >> i & 1]
        if len(items) <= K:
            yield items


def padded(items, K):
    return np.array([*items, *[-1] * (K - len(items))])


def best_slate(u, r, K, equal, exactly):
    if equal:
        return padded(np.sort(np.argsort(-u, kind="stable")[:K]), K)
    candidates = [s for s in slates(len(u), K) if not exactly or len(s) == min(K, len(u))]
    return padded(max(candidates, key=lambda s: expected_revenue(np.array(s, int), u, r)), K)


def expected_slate(x, r, theta, root, z, K, exactly):
    """Greedy, as `best_slate` of the mean over the draws with one item more in each step."""
    w = np.exp(x @ (theta + z @ root.T).T)

    def value(items):
        v = w[items]
        return (r[items] @ v / (1 + v.sum(axis=0))).mean()

    items: list[int] = []
    while len(items) < min(K, len(r)):
        more = {i: value([*items, i]) for i in range(len(r)) if i not in items}
        best = max(more, key=more.__getitem__)
        if not exactly and items and more[best] < value(items):
            break
        items.append(best)
    return padded(sorted(items), K)


def best_price(x, theta, logistic, zeta):
    root = math.sqrt(len(theta))
    return price_of_line(x @ theta[:-1] / root, theta[-1] / root, zeta, 0.0, logistic)


def price_of_line(a, slope, zeta, cost, logistic=True):
    def loss(p):
        s = a - p * slope
        return -(p - cost) * (expit(zeta * s) if logistic else s)

    grid = np.linspace(0.0, 1.0, 1001)
    near = grid[np.argmin([loss(p) for p in grid])]
    inside = minimize_scalar(
        loss, bounds=(max(0, near - 0.01), min(1, near + 0.01)), method="bounded",
        options={"xatol": 1e-10},
    ).x  # fmt: skip
    return min((0.0, 1.0, inside), key=loss)


def grown(inverse, v):
    return np.linalg.inv(np.linalg.inv(inverse) + np.outer(v, v))


def factor(R, v):
    return np.linalg.cholesky(R.T @ R + np.outer(v, v)).T


def drawn(R, b, width, z):
    return np.linalg.solve(R, np.linalg.solve(R.T, b) + width * z)


def unit(x):
    return x / max(1.0, np.linalg.norm(x))


CASES: dict[str, Case] = {
    "vectors.exp": Case((0.7,), np.exp),
    "vectors.log": Case((0.7,), np.log),
    "vectors.sigmoid": Case((0.7,), expit),
    "vectors.normal_cdf": Case((0.7,), ndtr),
    "vectors.power": Case((0.7, 1.6), np.power),
    "vectors.dot": Case((V, W), np.dot),
    "vectors.squared_norm": Case((V,), lambda v: v @ v, ((0, 0),)),
    "vectors.times": Case((M, V), np.dot),
    "vectors.product": Case((X, V), np.dot, ((0, 0),)),
    "vectors.quadratic": Case((M, V), lambda M, v: v @ M @ v),
    "vectors.distance": Case((M, V, W), lambda M, v, w: (v - w) @ M @ (v - w)),
    "vectors.upper_bounds": Case(
        (X, V, M, 0.4),
        lambda x, v, M, a: x @ v + a * np.sqrt(np.einsum("ij,jk,ik->i", x, M, x)),
        ((0, 0),),
    ),
    "vectors.dots": Case((X, V), np.dot, ((0, 0),)),
    "vectors.squares": Case((X,), lambda M: (M**2).sum(), ((0, 0), (0, 1))),
    "vectors.squared": Case((V, 0.3, W), lambda v, k, w: ((v + k * w) ** 2).sum()),
    "vectors.add": Case((V, 0.3, W), lambda v, k, w: v + k * w, changed=0),
    "vectors.add_outer": Case((M, 0.3, V), lambda M, k, v: M + k * np.outer(v, v), changed=0),
    "vectors.add_products": Case(
        (X, 0.3, SCORES, V), lambda M, k, v, w: M + k * np.outer(v, w), changed=0
    ),
    "vectors.scaled": Case((0.3, V), lambda k, v: k * v, ((1, 0),)),
    "vectors.moved": Case((V, X[:D], Z), lambda v, M, z: v + M @ z),
    "vectors.copy_to": Case((V, W), lambda v, out: v, changed=1),
    "vectors.put_sum": Case((V, W, Z), lambda v, w, out: v + w, changed=2),
    "vectors.copy_matrix": Case((X, 2 * X), lambda M, out: M, changed=1),
    "vectors.transposed": Case((X,), np.transpose, ((0, 0), (0, 1))),
    "vectors.with_constant": Case(
        (X, 0.5),
        lambda x, c: np.column_stack([x, np.full(len(x), c)]) / math.sqrt(1 + c * c),
        ((0, 0), (0, 1)),
    ),
    "vectors.clipped": Case((4 * V,), unit, ((0, 0),)),
    "vectors.clip_factor": Case(
        (4 * V,), lambda x: 1 / max(1.0, np.linalg.norm(x)), ((0, 0),)
    ),
    "vectors.grow_inverse": Case((inverse(M), V), grown, changed=0),
    "vectors.grow_inverse_clipped": Case(
        (inverse(M), 4 * V), lambda A, v: grown(A, v / max(1.0, np.linalg.norm(v))), changed=0
    ),
    "vectors.grow_factor": Case((R, V), factor, changed=0),
    "vectors.sampled": Case((R, V, 0.6, Z), drawn),
    "vectors.eigh": Case((M,), np.linalg.eigh),
    "vectors.cholesky": Case((M,), np.linalg.cholesky),
    "vectors.inverse": Case((M,), inverse),
    "vectors.definite": Case((M,), lambda M: bool((np.linalg.eigvalsh(M) > 0.0).all())),
    "vectors.solved": Case((M, V), np.linalg.solve),
    "vectors.matmul": Case((X, M), np.matmul, ((0, 0), (1, 1))),
    "vectors.signed_logdet": Case((E @ np.diag([2.0, -1.0, 3.0]),), slogdet),
    "vectors.compose": Case((E, V), lambda E, v: E @ np.diag(v) @ E.T),
    "vectors.inner": Case((V, W), np.dot),
    "vectors.spectral": Case((V, E), lambda v, E: E @ np.diag(v) @ E.T),
    "vectors.eigenvalues": Case((M,), np.linalg.eigvalsh),
    "vectors.operator_norm": Case((M,), lambda M: np.linalg.norm(M, 2) * (1 + 1e-9)),
    "vectors.between": Case((M, inverse(M) + M), lambda A, B: A @ B @ A),
    "vectors.shifted_inverse": Case(
        (M, 0.7), lambda M, k: (inverse(M + k * np.eye(D)), slogdet(M + k * np.eye(D))[1])
    ),
    "vectors.mean_row": Case((P, X), np.dot, ((1, 1),)),
    "vectors.softmax": Case(
        (SCORES, 0.7), lambda s, k: np.exp(s / k) / np.exp(s / k).sum(), ((0, 0),)
    ),
    "vectors.any_nonzero": Case((X,), np.any, ((0, 0), (0, 1))),
    "vectors.positive_mean": Case((SCORES,), lambda v: np.maximum(v, 0).mean(), ((0, 0),)),
    "vectors.largest": Case((SCORES, 0.3), lambda s, u: np.argmax(s), ((0, 0),)),
    "customer_prices.intercept": Case(
        (V, PRICE_THETA), lambda x, t: (x @ t[:-1] / math.sqrt(len(t)), t[-1] / math.sqrt(len(t)))
    ),
    "customer_prices.best_price": Case((V, PRICE_THETA, True, 4.0), best_price),
    "customer_prices.best_price_of": Case(
        (0.4, 0.9, True, 4.0), lambda a, b, _, zeta: price_of_line(a, b, zeta, 0.0)
    ),
    "customer_prices.best_net_price_of": Case(
        (0.4, 0.9, 4.0, 0.2), lambda a, b, zeta, cost: price_of_line(a, b, zeta, cost)
    ),
    "customer_prices.optimistic_price": Case(
        (V, PRICE_THETA, np.eye(D + 1), True, 4.0, 0.3, 1e-9), optimistic
    ),
    "customer_prices.revenue_of": Case(
        (0.4, 0.9, 0.3, 4.0), lambda a, b, p, zeta: p / (1.0 + math.exp(-zeta * (a - b * p)))
    ),
    "customer_candidates.best_candidate": Case(
        (X, V, 0.0), lambda x, v, u: np.argmax(x @ v), ((0, 0),)
    ),
    "customer_candidates.optimistic_candidate": Case(
        (X, V, M, 0.4, 0.0),
        lambda x, b, M, a, u: np.argmax(
            x @ M @ b + a * np.sqrt(np.einsum("ij,jk,ik->i", x, M, x))
        ),
        ((0, 0),),
    ),
    "customer_candidates.mean_candidate": Case(
        (X,), lambda x: (x.mean(axis=0), (x**2).sum(axis=1).mean()), ((0, 0), (0, 1))
    ),
    "customer_candidates.shared_part": Case(
        (5, 3, 1.0, 0.6), lambda m, d, a, t: 1.0 - (1.0 + 2.0 / d) * (a - t) / ((m - 1) * t)
    ),
    "customer_slates.utilities": Case((X, V), np.dot, ((0, 0),)),
    "customer_slates.all_offered": Case((REVENUES,), lambda r: True, ((0, 0),)),
    "customer_slates.best_slate": Case((SCORES, REVENUES, 2, False, False), best_slate),
    "customer_slates.expected_slate": Case(
        (X, REVENUES, V, R, RNG.normal(size=(4, D)), 3, False), expected_slate, ((4, 0),)
    ),
    "customer_slates.slate_revenue": Case(
        (SLATE, SCORES, REVENUES), expected_revenue, ((0, 0), (1, 0), (2, 0))
    ),
    "customer_slates.alternatives": Case(
        (X, SLATE), lambda x, s: np.vstack([x[s[s >= 0]], np.zeros(x.shape[1])]),
        ((0, 0), (0, 1), (1, 0)),
    ),
    "customer_slates.chosen_row": Case((SLATE, 1), chosen, ((0, 0),)),
}  # fmt: skip


def functions():
    """Return every function of the modules by name."""
    return {
        f"{module.__name__.rpartition('.')[2]}.{name}": value
        for module in (vectors, customer_prices, customer_slates, customer_candidates)
        for name, value in vars(module).items()
        if isinstance(value, Deferred)
        and value.py_func.__module__ == module.__name__
        and not name.startswith("_")
    }


def called(name, args):
    """Return what a function returns or changes, given copies of the arguments."""
    copies = [a.copy() if isinstance(a, np.ndarray) else a for a in args]
    returned = functions()[name](*copies)
    changed = CASES[name].changed
    return returned if changed is None else copies[changed]


def resized(array, axis, by):
    """Return an array that is longer by one, or shorter, in an axis."""
    if by > 0:
        last = np.take(array, [-1], axis)
        return np.concatenate([array, last], axis)
    return np.delete(array, -1, axis)


def wrong_shapes():
    """Return every array of every function with every axis, longer and shorter."""
    changes = []
    for name, case in CASES.items():
        for i, value in enumerate(case.args):
            if isinstance(value, np.ndarray):
                for axis in range(value.ndim):
                    for by in (1, -1):
                        changes.append((name, i, axis, by))
    return changes


def test_the_table_has_every_function():
    assert functions().keys() == CASES.keys()


def parts(returned, expected):
    """Return pairs of results, of functions with one or several."""
    return zip(*((p if isinstance(p, tuple) else (p,)) for p in (returned, expected)), strict=True)


@pytest.mark.parametrize("name", CASES)
def test_functions_equal_numpy(name):
    case = CASES[name]
    for own, other in parts(called(name, case.args), case.oracle(*case.args)):
        if name == "vectors.eigh" and np.ndim(own) == 2:
            other = other * np.sign((own * other).sum(axis=0))
        near = 1e-6 if "price" in name else 1e-12
        np.testing.assert_allclose(own, other, rtol=near, atol=near)


@pytest.mark.parametrize(("name", "argument", "axis", "by"), wrong_shapes())
def test_other_shapes_are_refused_or_right(name, argument, axis, by):
    case = CASES[name]
    args = list(case.args)
    args[argument] = resized(args[argument], axis, by)
    if (argument, axis) in case.free:
        for own, other in parts(called(name, args), case.oracle(*args)):
            np.testing.assert_allclose(own, other, rtol=1e-9, atol=1e-12)
    else:
        with pytest.raises(IndexError):
            called(name, args)


def unchecked_dot(a, b):
    s = 0.0
    for j in range(b.shape[0]):
        s += a[j] * b[j]
    return s


def test_a_function_without_its_check_reads_beyond_its_arrays():
    """So the test above fails for a function that does not compare shapes."""
    memory = np.array([1.0, 2.0])
    assert Deferred(unchecked_dot, bounds=False)(memory[:1], np.ones(2)) == 3.0


def test_items_that_do_not_exist_are_refused():
    for slate in ([N], [0, N], [10**9]):
        with pytest.raises(IndexError):
            customer_slates.slate_revenue(np.array(slate), SCORES, REVENUES)
        with pytest.raises(IndexError):
            customer_slates.alternatives(X, np.array(slate))
    for K in (-1, -5):
        with pytest.raises(IndexError):
            customer_slates.best_slate(SCORES, REVENUES, K, False, False)
        with pytest.raises(IndexError):
            customer_slates.expected_slate(X, REVENUES, V, R, np.zeros((1, D)), K, False)


@pytest.mark.parametrize("function", [vectors.softmax, vectors.largest])
def test_nothing_has_no_largest_score(function):
    with pytest.raises(IndexError):
        function(np.zeros(0), 0.5)


@pytest.mark.parametrize("exactly", [False, True])
@pytest.mark.parametrize("equal", [False, True])
def test_slates_of_more_items_than_there_are_are_padded(equal, exactly):
    """No entry is what happened to be in memory."""
    for _ in range(20):
        np.full(9, 123456.0)  # what may be in memory
        slate = customer_slates.best_slate(SCORES, REVENUES, 9, equal, exactly)
        assert set(slate[slate >= 0]) <= set(range(N)) and (slate[slate < 0] == -1).all()
        assert (slate == -1).sum() >= 4
        z = np.zeros((2, D))
        slate = customer_slates.expected_slate(X, REVENUES, V, R, z, 9, exactly)
        assert (slate == -1).sum() >= 4 and slate.max() < N


def test_ties_are_broken_by_the_uniform_number():
    scores = np.array([1.0, 3.0, 3.0, 2.0, 3.0])
    choices = [vectors.largest(scores, u) for u in (0.0, 0.3, 0.34, 0.66, 0.67, 1.0 - 2**-53)]
    assert choices == [1, 1, 2, 2, 4, 4]
    assert vectors.largest(scores, 1.0) == 4


def test_prices_of_other_demands():
    for slope in (-1.0, 0.0, 0.4, 3.0):
        theta = np.append(V, slope)
        for logistic in (True, False):
            price = customer_prices.best_price(V, theta, logistic, 4.0)
            assert price == pytest.approx(best_price(V, theta, logistic, 4.0), abs=1e-6)


def test_equal_candidates_are_chosen_at_random():
    x = np.array([[1.0, 0.0], [0.0, 1.0], [-1.0, 0.0], [0.0, 1.0 + 1e-9], [0.0, 0.5]])
    choices = [
        customer_candidates.best_candidate(x, np.zeros(2), u) for u in (0.0, 0.1, 0.3, 0.6, 0.9)
    ]
    assert choices == [0, 0, 1, 2, 3], "the shorter candidate is never chosen among equals"


@pytest.mark.parametrize("number", [0, 1, 2, 3, 6])
def test_a_step_of_the_filter_refuses_other_shapes(number):
    m, n = 2, 3
    args = [np.zeros(n + m), np.eye(n + m), np.ones((m, n)), np.eye(m), 1.0, 1.0, np.ones(m), 1.0]
    filters.filter_step(*args)
    for axis in range(args[number].ndim):
        wrong = list(args)
        wrong[number] = np.delete(args[number], 0, axis)
        with pytest.raises(IndexError):
            filters.filter_step(*wrong)
