"""Rows of one record: they are unbiased, and replacing a record moves its row by at most 1."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cache
from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize
from scipy.special import ndtri
from scipy.stats import multivariate_normal, norm

from dpb_agents.assortment import one_pass_mnl as mnl
from dpb_agents.kernels import curvature
from dpb_agents.pricing import one_pass_pricing as pricing
from dpb_gym.play import Offer
from dpb_gym.play.player import read_only

RANGE = {0: (0.0, 1.0), 1: (-3.0, 3.0)}
NO_SUMS = read_only(
    curvature.Combination(
        False, np.zeros((1, 1)), np.zeros((1, 1)), np.ones(1), 0.0, 0, 1, 0.3, 0.1
    )
)
"""Constants are read-only, as an agent's: other arrays would compile the kernels again."""
NO_HISTORY = np.zeros((1, 1)), np.zeros(2, np.int64), np.zeros(1, np.int64)
LEAST_TWIN = 0.4
"""Prices of twins are at least 1/e, because they are drawn blindly."""


@dataclass(frozen=True)
class Rows:
    """Bounds B and U of a record, and the part q of the sensitivity that u gets.

    Attributes:
        dim: Dimension d.
        bound: B.
        radius: U, at which choice records are cut as well.
        share: q.
        private: False leaves weights and factors out.
    """

    dim: int
    bound: float
    radius: float
    share: float
    private: bool = True

    @property
    def factors(self):
        """The factors of H and of u in a row: half of the sensitivity's square belongs to each."""
        if not self.private:
            return 1.0, 1.0
        q = self.share
        return math.sqrt((1.0 - q) / 2.0) / self.bound, math.sqrt(q) / (2.0 * self.radius)


EXACT = Rows(3, 1.0, math.inf, 0.5, private=False)


def belief(dim, **changes):
    return read_only(plain_belief(dim)._replace(**changes)) if changes else plain_belief(dim)


@cache
def plain_belief(dim):
    prior = curvature.Belief(
        sizes=np.ones(1),
        weights=np.ones(1),
        centre=np.zeros(dim),
        informed=False,
        precision=np.zeros((dim, dim)),
        level=0.0,
        rare=0.0,
        wide=0.0,
    )
    return read_only(prior)


def choice_row(x, choice, theta, layout, covariance=None, constant=0.0):
    """The row of an offer of all items of `x`, to whose features the agent adds the constant."""
    x = np.array(x, np.float64)
    (N, _), none = x.shape, np.zeros((layout.dim, layout.dim))
    a, b = layout.factors
    known = mnl.Known(
        private=layout.private,
        cut=layout.radius,
        B=layout.bound,
        share=layout.share,
        a=a,
        b=b,
        norm=1.0,
        largest=0,
        unsure=0.0,
        draws=1,
        K=N,
        exactly=False,
        equal=False,
        constant=constant,
        prior=belief(layout.dim),
        sums=NO_SUMS,
    )
    V = none if covariance is None else covariance
    state = mnl.State(theta, V, none, none, *NO_HISTORY)
    offer = Offer(x, np.ones(N))
    return mnl.record(
        read_only(known), read_only(state), 1, offer, np.arange(N), choice, np.zeros((0, 0))
    )


def demand_known(layout, model=0, zeta=4.0, **changes):
    d = layout.dim
    a, b = layout.factors
    low, high = RANGE[model]
    known = pricing.Known(
        logistic=model == 0,
        private=layout.private,
        zeta=zeta if model == 0 else 1.0,
        U=layout.radius,
        B=layout.bound,
        q=layout.share,
        a=a,
        b=b,
        disperse=0.0,
        constant=0.0,
        twins=0,
        blind=1,
        cautious=False,
        low=low,
        high=high,
        prior=belief(d),
        stock=False,
        sums=NO_SUMS,
    )
    return known._replace(**changes)


def demand_row(
    x,
    prices,
    demand,
    theta,
    layout,
    model=0,
    zeta=4.0,
    covariance=None,
    weak=None,
    constant=0.0,
):
    """The row of the first price; the others, of at least 1/e, were drawn alike."""
    d = len(theta)
    prices = np.atleast_1d(prices)
    known = demand_known(layout, model, zeta, twins=len(prices) - 1, constant=constant)
    none = np.zeros((d, d))
    V = none if covariance is None else covariance
    w = np.zeros(d) if weak is None else weak
    state = pricing.State(theta, V, none, w, np.zeros(1), *NO_HISTORY)
    z = np.zeros((len(prices) - 1, d))
    # blind prices are exp(-U), U uniform
    z[:, 0] = ndtri(-np.log(prices[1:]))
    return pricing.record(known, state, 1, np.array(x, float), float(prices[0]), float(demand), z)


def unpack(row, layout):
    """Curvature and response of a row, by a route of its own."""
    d = layout.dim
    h = np.zeros((d, d))
    h[np.triu_indices(d)] = row[:-d]
    h = (h + h.T) / math.sqrt(2.0)
    h[np.diag_indices(d)] /= math.sqrt(2.0)
    return h / layout.factors[0], row[-d:] / layout.factors[1]


def choice_probabilities(x, theta):
    weights = np.exp(np.append(x @ theta, 0.0))
    return weights / weights.sum()


def numerical_jacobian(function, theta, step=1e-5):
    columns = [
        (function(theta + step * e) - function(theta - step * e)) / (2 * step)
        for e in np.eye(len(theta))
    ]
    return np.array(columns).T


@pytest.mark.slow
@pytest.mark.parametrize("cut", [0.1, 0.5, 30.0])
def test_choice_responses_are_unbiased_whatever_the_cut_and_the_weight(cut):
    """At V = 0 the mean of u under theta is H theta, and its derivative is H."""
    rng = np.random.default_rng(4)
    layouts = EXACT, replace(EXACT, radius=cut), Rows(3, 0.1, cut, 0.85)
    for layout, constant in product(layouts, (0.0, 1.5)):
        x, theta = rng.normal(size=(4, 3)), rng.normal(size=3)
        offered = x
        if constant:
            x[:, 0] = constant
            offered = x[:, 1:]
        outcomes = [-1, 0, 1, 2, 3]
        records = [
            unpack(choice_row(offered, c, theta, layout, constant=constant), layout)
            for c in outcomes
        ]
        h = records[0][0]
        for other, _ in records:
            np.testing.assert_array_equal(other, h)
        responses = np.array([u for _, u in records[1:] + records[:1]])
        mean = choice_probabilities(x, theta) @ responses
        np.testing.assert_allclose(mean, h @ theta, atol=1e-9)

        def expected(t, x=x, responses=responses):
            return choice_probabilities(x, t) @ responses

        slope = numerical_jacobian(expected, theta)
        np.testing.assert_allclose(slope, h, atol=1e-6)


def test_choice_records_without_a_budget_are_hessian_and_score():
    rng = np.random.default_rng(5)
    x, theta = rng.normal(size=(4, 3)), rng.normal(size=3)
    h, u = unpack(choice_row(x, 2, theta, EXACT), EXACT)
    p = choice_probabilities(x, theta)[:-1]
    np.testing.assert_allclose(h, (p * x.T) @ x - np.outer(p @ x, p @ x), atol=1e-12)
    np.testing.assert_allclose(u - h @ theta, x[2] - p @ x, atol=1e-12)


@pytest.mark.parametrize("layout", [EXACT, Rows(3, 0.3, 0.4, 0.7)])
def test_demand_responses_are_unbiased(layout):
    rng = np.random.default_rng(6)
    x, theta, zeta = rng.uniform(-1, 1, 2), rng.normal(size=3), 4.0
    phi = np.append(x, -0.6) / math.sqrt(3)

    def probability(t):
        return 1 / (1 + math.exp(-zeta * phi @ t))

    (h, u0), (same, u1) = (unpack(demand_row(x, 0.6, y, theta, layout), layout) for y in (0.0, 1.0))
    np.testing.assert_array_equal(h, same)
    f = probability(theta)
    np.testing.assert_allclose((1 - f) * u0 + f * u1, h @ theta, atol=1e-12)
    slope = numerical_jacobian(lambda t: u0 + probability(t) * (u1 - u0), theta)
    np.testing.assert_allclose(slope, h, atol=1e-7)


@pytest.mark.parametrize("model", [0, 1])
def test_prices_drawn_alike_count_more_without_bias(model):
    """Whichever of the prices is posted: u has mean H theta, and its derivative is H on average."""
    rng = np.random.default_rng(16)
    x, theta, prices = rng.uniform(-1, 1, 2), rng.normal(size=3), np.array([0.4, 0.5, 0.6, 1.0])
    total, slope, plain = np.zeros((3, 3)), np.zeros((3, 3)), np.zeros((3, 3))
    for k, price in enumerate(prices):
        order = [price, *np.delete(prices, k)]
        phi = np.append(x, -price) / math.sqrt(3)

        def mean(t, phi=phi):
            return phi @ t if model else 1 / (1 + math.exp(-4.0 * phi @ t))

        (h, u0), (same, u1) = (
            unpack(demand_row(x, order, y, theta, EXACT, model), EXACT) for y in (0.0, 1.0)
        )
        np.testing.assert_array_equal(h, same)
        np.testing.assert_allclose(u0 + mean(theta) * (u1 - u0), h @ theta, atol=1e-12)
        slope += numerical_jacobian(lambda t, u=u1 - u0, mean=mean: mean(t) * u, theta)
        total += h
        plain += unpack(demand_row(x, price, 0.0, theta, EXACT, model), EXACT)[0]
    np.testing.assert_allclose(slope, total, atol=1e-6)
    more = total - plain
    assert more[2, 2] > 0.02 and np.abs(more).sum() == pytest.approx(more[2, 2])


def test_a_weak_direction_counts_more_without_bias():
    """u has mean H theta; its derivative is H on average if the direction is an eigenvector."""
    rng = np.random.default_rng(17)
    theta, prices = rng.normal(size=3), rng.uniform(size=300)
    features = rng.uniform(-1, 1, (300, 2))

    def summed(weak):
        total, slope = np.zeros((3, 3)), np.zeros((3, 3))
        for x, price in zip(features, prices):
            phi = np.append(x, -price) / math.sqrt(3)
            (h, u0), (same, u1) = (
                unpack(demand_row(x, price, y, theta, EXACT, weak=weak), EXACT) for y in (0.0, 1.0)
            )
            np.testing.assert_array_equal(h, same)
            f = 1 / (1 + math.exp(-4.0 * phi @ theta))
            np.testing.assert_allclose(u0 + f * (u1 - u0), h @ theta, atol=1e-12)
            total += h
            slope += 4.0 * f * (1 - f) * np.outer(u1 - u0, phi)
        return total, slope

    plain, slope = summed(np.zeros(3))
    np.testing.assert_allclose(slope, plain, atol=1e-9)
    values, vectors = np.linalg.eigh(plain)
    weak = math.sqrt(2.0) * vectors[:, 0]
    total, slope = summed(weak)
    np.testing.assert_allclose(slope, total, atol=1e-9)
    assert weak @ total @ weak > 2.0 * 2.0 * values[0]
    total, slope = summed(math.sqrt(2.0) * np.array([0.6, 0.0, 0.8]))
    assert np.abs(slope - total).max() > 0.1


def test_the_weak_direction_counts_as_far_as_it_is_known():
    def direction(h, left=0.0):
        return curvature.weak_direction(h, left)

    v = np.array([0.0, 0.6, 0.8])
    others = np.outer([1.0, 0.0, 0.0], [1.0, 0.0, 0.0]) + np.outer(
        [0.0, 0.8, -0.6], [0.0, 0.8, -0.6]
    )
    h = 16.0 * others + np.outer(v, v)
    exact = direction(h)
    np.testing.assert_allclose(abs(exact), math.sqrt(math.sqrt(11.0) - 1.0) * v, atol=1e-9)
    np.testing.assert_allclose(abs(direction(h, 0.36)), 0.8 * abs(exact), atol=1e-9)
    np.testing.assert_allclose(direction(h, 1.01), 0.0)
    # not for what no price explores, nor where nothing is known
    np.testing.assert_allclose(direction(np.diag([1.0, 16.0, 16.0])), 0.0)
    np.testing.assert_allclose(direction(-np.eye(3)), 0.0)
    np.testing.assert_allclose(direction(np.zeros((3, 3))), 0.0)


def test_gaussian_demand_records_are_least_squares():
    x, theta = np.array([0.2, -0.7]), np.ones(3)
    phi = np.append(x, -0.5) / math.sqrt(3)
    h, u = unpack(demand_row(x, 0.5, 1.3, theta, EXACT, model=1), EXACT)
    np.testing.assert_allclose(h, np.outer(phi, phi))
    np.testing.assert_allclose(u, 1.3 * phi)


def test_the_link_is_averaged_over_the_posterior():
    """The probit's approximation of E sigmoid(s + N(0, v)) by sigmoid(s / sqrt(1 + pi v / 8))."""
    rng = np.random.default_rng(7)
    x, theta, zeta = np.array([0.9, -0.1]), np.array([0.9, 0.2, -0.5]), 4.0
    phi = np.append(x, -0.7) / math.sqrt(3)
    root = rng.normal(size=(3, 3)) * 0.6
    h, u = unpack(demand_row(x, 0.7, 1.0, theta, EXACT, covariance=root @ root.T), EXACT)
    believed = 1 - (u - h @ theta) @ phi / (phi @ phi) / zeta
    draws = theta + rng.normal(size=(200_000, 3)) @ root.T
    averaged = (1 / (1 + np.exp(-zeta * draws @ phi))).mean()
    at_the_mean = 1 / (1 + np.exp(-zeta * theta @ phi))
    assert abs(believed - averaged) < 0.15 * abs(at_the_mean - averaged)
    errors = []
    for _ in range(30):
        x, theta = rng.normal(size=(3, 3)), rng.normal(size=3)
        h, u = unpack(choice_row(x, -1, theta, EXACT, root @ root.T), EXACT)
        apart = (np.vstack([x, np.zeros(3)]) - x.sum(axis=0) / 4) @ root
        score = (h @ theta - u) * math.sqrt(1 + math.pi / 4 * (apart**2).sum() / 4)
        draws = theta + rng.normal(size=(2000, 3)) @ root.T
        averaged = x.T @ np.mean([choice_probabilities(x, t)[:-1] for t in draws], axis=0)
        plain = x.T @ choice_probabilities(x, theta)[:-1]
        errors.append([np.linalg.norm(m - averaged) for m in (score, plain)])
    ours, without = np.mean(errors, axis=0)
    assert ours < 0.8 * without


wild = st.floats(-1e3, 1e3, width=32)


def drawn_layout(data, d):
    positive = st.floats(0.01, 10.0)
    return Rows(d, data.draw(positive), data.draw(positive), data.draw(st.floats(0.05, 0.95)))


def check_pair(rows, layout):
    for row in rows:
        h, u = unpack(row, layout)
        assert np.linalg.eigvalsh(h)[0] >= -1e-9 * np.linalg.norm(h) - 1e-100
        q = layout.share
        load = (1 - q) * (np.linalg.norm(h) / layout.bound) ** 2
        assert load + q * (np.linalg.norm(u) / layout.radius) ** 2 <= 1 + 1e-9
    assert np.linalg.norm(rows[0] - rows[1]) <= 1 + 1e-9


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_replacing_a_choice_record_moves_its_row_by_at_most_one(data):
    d = data.draw(st.integers(1, 4))
    layout = drawn_layout(data, d)
    theta = np.array(data.draw(st.lists(st.floats(-30, 30), min_size=d, max_size=d)))
    root = np.array(data.draw(st.lists(st.floats(-3, 3), min_size=d, max_size=d)))
    # the agent's own constant is the first of the d features
    constant = data.draw(st.sampled_from([0.0, 1.0, 30.0]))
    m = d - (constant > 0.0)
    rows = []
    for _ in range(2):
        K = data.draw(st.integers(1, 4))
        x = np.array(data.draw(st.lists(wild, min_size=K * m, max_size=K * m))).reshape(K, m)
        choice = data.draw(st.integers(-1, K - 1))
        rows.append(choice_row(x, choice, theta, layout, np.outer(root, root), constant))
    check_pair(rows, layout)


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_replacing_a_demand_record_moves_its_row_by_at_most_one(data):
    d, model = data.draw(st.integers(2, 4)), data.draw(st.integers(0, 1))
    layout, zeta = drawn_layout(data, d), data.draw(st.floats(0.1, 30.0))
    theta = np.array(data.draw(st.lists(st.floats(-30, 30), min_size=d, max_size=d)))
    root, weak = np.array(
        data.draw(st.lists(st.floats(-3, 3), min_size=2 * d, max_size=2 * d))
    ).reshape(2, d)
    constant = data.draw(st.sampled_from([0.0, 0.5, 30.0]))
    m = d - 1 - (constant > 0.0)
    rows = []
    for _ in range(2):
        x = np.array(data.draw(st.lists(wild, min_size=m, max_size=m)))
        price = [data.draw(st.floats(0, 1))]
        price += data.draw(st.lists(st.floats(LEAST_TWIN, 1), max_size=3))
        demand = data.draw(st.floats(-100, 100))
        if model == 0:
            demand = float(demand > 0)
        released = np.outer(root, root), weak
        row = demand_row(x, price, demand, theta, layout, model, zeta, *released, constant)
        rows.append(row)
    check_pair(rows, layout)


def test_records_whose_squares_underflow_are_no_longer_than_the_others():
    layout = Rows(4, 1.0, 1.0, 0.75)
    for price in (1e-150, 2.3e-161, 1e-200):
        rows = [demand_row(np.zeros(3), price, y, np.zeros(4), layout) for y in (0.0, 1.0)]
        check_pair(rows, layout)


def search(distance, size, starts=8):
    """Largest distance that an optimiser finds over pairs of records."""
    rng = np.random.default_rng(8)
    best = 0.0
    for _ in range(starts):
        start = rng.normal(size=size) * 10.0 ** rng.uniform(-1, 1.5)
        optimum = minimize(
            lambda z: -distance(z), start, method="Nelder-Mead", options={"maxfev": 1500}
        )
        best = max(best, -optimum.fun)
    return best


def test_search_finds_no_larger_distance_and_comes_near():
    """theta, both records and both outcomes belong to the adversary."""
    layout = Rows(3, 0.175, 0.5, 0.85)

    def leveled(z):
        theta, pair = z[:3], z[3:].reshape(2, 2, 2)
        first, second = (choice_row(x, 0, theta, layout, constant=1.0) for x in pair)
        return np.linalg.norm(first - second)

    assert 0.97 < search(leveled, 11) <= 1 + 1e-9
    layout = Rows(3, 0.8, 1.2, 0.7)

    def intercepted(z):
        first, second = (
            demand_row(z[i : i + 1], 1 / (1 + z[i + 1] ** 2), 1.0, z[:3], layout, constant=0.2)
            for i in (3, 5)
        )
        return np.linalg.norm(first - second)

    assert 0.9 < search(intercepted, 7) <= 1 + 1e-9
    layout = Rows(2, 0.175, 0.5, 0.85)

    def choices(z):
        theta, pair = z[:2], z[2:].reshape(2, 2, 2)
        first, second = (choice_row(x, 0, theta, layout) for x in pair)
        return np.linalg.norm(first - second)

    assert 0.97 < search(choices, 10) <= 1 + 1e-9
    layout = Rows(2, 0.8, 1.2, 0.7)

    def demands(z):
        first, second = (
            demand_row(
                z[i : i + 1], 1 / (1 + z[i + 1 : i + 3] ** 2), 1.0, z[:2], layout, weak=z[8:]
            )
            for i in (2, 5)
        )
        return np.linalg.norm(first - second)

    assert 0.97 < search(demands, 10) <= 1 + 1e-9


def test_the_bound_is_attained():
    """Purchases that theta holds impossible have no curvature, and opposite features."""
    layout, theta = Rows(2, 0.175, 0.5, 0.85), np.array([1.0, 0.0])
    far = [np.array([[-30.0, side]]) for side in (1e6, -1e6)]
    first, second = (choice_row(x, 0, theta, layout) for x in far)
    assert np.linalg.norm(first - second) == pytest.approx(1.0, abs=1e-6)
    layout = Rows(2, 0.8, 1.2, 0.7)
    first, second = (
        demand_row(np.array([side]), 1.0, 1.0, np.array([0.0, 30.0]), layout)
        for side in (1e4, -1e4)
    )
    assert np.linalg.norm(first - second) == pytest.approx(1.0, abs=1e-6)


@pytest.mark.parametrize("length", [1e-150, 1e-3, 0.1])
def test_short_features_are_brought_to_the_full_sensitivity(length):
    layout = Rows(2, 0.175, 0.5, 0.85)
    h, u = unpack(choice_row(np.array([[length, 0.0]]), 0, np.zeros(2), layout), layout)
    load = 0.15 * (np.linalg.norm(h) / 0.175) ** 2 + 0.85 * (np.linalg.norm(u) / 0.5) ** 2
    assert load == pytest.approx(1.0)
    assert h[0, 0] / u[0] == pytest.approx(length / 2)


def test_a_record_without_features_adds_nothing():
    layout = Rows(2, 0.175, 0.5, 0.85)
    assert not choice_row(np.zeros((1, 2)), 0, np.zeros(2), layout).any()


def evened(matrix, noise, evenness):
    out = matrix.copy()
    return out, curvature.even_out(out, noise, evenness)


def test_evenness_is_estimated_beyond_the_noise():
    rng = np.random.default_rng(9)
    d, noise = 12, 0.5
    level, deviation = 8.0, 3.0
    m = rng.normal(size=(d, d)) * deviation
    matrix = level * np.eye(d) + np.triu(m) / math.sqrt(2) + np.triu(m).T / math.sqrt(2)
    matrix[np.diag_indices(d)] = level + np.diag(m)
    out, left = evened(matrix, 0.0, 0.3)
    np.testing.assert_array_equal(out, matrix)
    assert left == 0.0
    out, left = evened(matrix, noise, 0.3)
    mu = np.trace(matrix) / d
    square = np.linalg.norm(matrix - mu * np.eye(d)) ** 2 / (d * (d + 1) / 2)
    own = square - noise**2
    assert own == pytest.approx(deviation**2, rel=0.3)
    w = own / square
    np.testing.assert_allclose(out, mu * np.eye(d) + w * (matrix - mu * np.eye(d)))
    assert left == pytest.approx(w * noise**2)
    # an even matrix: only the floor is believed
    out, left = evened(level * np.eye(d), 10.0, 0.3)
    np.testing.assert_allclose(out, level * np.eye(d))
    assert left == pytest.approx(100 * 2.4**2 / (100 + 2.4**2))


def test_the_posterior_is_that_of_the_mixture():
    rng = np.random.default_rng(10)
    d, sizes, beliefs = 3, np.array([0.5, 2.0]), np.array([0.7, 0.3])
    spread, noise = 1.3, 0.8
    for left in (0.2, 0.4):
        m = rng.normal(size=(d, d))
        h, u, centre = m @ m.T, rng.normal(size=d) * 3, rng.normal(size=d)
        theta, V, vectors, deviation, few, likeliest, zero = curvature.size_mixture(
            h, u, centre, sizes**2 / d, beliefs, spread, noise, left, 0.0, 9.0
        )
        weights, means, own = [], [], []
        for r, belief in zip(sizes, beliefs):
            prior = r**2 / d * np.eye(d)
            extra = noise + left * (1 + 1 / d) / 2 * (np.trace(prior) + centre @ centre)
            total = h @ prior @ h + spread * h + extra * np.eye(d)
            apart = u - h @ centre
            gain = prior @ h @ np.linalg.inv(total)
            means.append(centre + gain @ apart)
            own.append(prior - gain @ h @ prior)
            logdet = np.linalg.slogdet(total)[1]
            weights.append(belief * math.exp(-(logdet + apart @ np.linalg.solve(total, apart)) / 2))
        weights, means = np.array(weights) / sum(weights), np.array(means)
        mean = weights @ means
        expected = np.einsum("r,rij->ij", weights, own)
        expected += np.einsum("r,ri,rj->ij", weights, means - mean, means - mean)
        np.testing.assert_allclose(theta, mean, rtol=1e-9)
        assert likeliest == weights.argmax()
        deviations = [math.sqrt(v[0, 0]) for v in own]
        after = weights @ norm.pdf(centre[0], means[:, 0], deviations)
        before = beliefs @ norm.pdf(0.0, 0.0, sizes / math.sqrt(d))
        assert zero == pytest.approx(math.log(after / before))
        np.testing.assert_allclose(V, expected, rtol=1e-9)
        np.testing.assert_allclose(h @ vectors, vectors * np.linalg.eigvalsh(h), atol=1e-9)
        np.testing.assert_allclose(
            deviation**2, np.diag(vectors.T @ expected @ vectors), rtol=1e-9, atol=1e-12
        )
        assert not few.any()


@pytest.mark.parametrize("precision", [None, 4.0])
def test_the_likelier_of_a_level_and_none_is_chosen(precision):
    """The odds are those of the densities of u, computed without theta."""
    rng = np.random.default_rng(11)
    spread, noise, variance, chance = 1.2, 0.6, 0.25, 0.2
    informed = precision is not None
    chosen = []
    for _ in range(200):
        root = rng.normal(size=(3, 3))
        h = root @ root.T
        u = h @ np.append(rng.normal() * 3.0, rng.normal(size=2)) + rng.normal(size=3)
        level = belief(
            3,
            sizes=np.array([variance]),
            level=chance,
            informed=informed,
            precision=(precision or 0.0) * np.eye(3),
        )
        posterior = curvature.posterior(level, h, u, 0.3, 0.0, spread, noise)
        errors = spread * h + noise * np.eye(3)
        with_level = multivariate_normal.logpdf(u, cov=variance * h @ h + errors)
        none = multivariate_normal.logpdf(u, cov=variance * h[:, 1:] @ h[1:] + errors)
        odds = with_level - none + math.log(chance / (1 - chance))
        chosen.append(odds > 0)
        assert len(posterior.theta) == (3 if odds > 0 else 2)
        if odds > 0:
            V = np.linalg.inv(np.eye(3) / variance + h @ np.linalg.solve(errors, h))
            np.testing.assert_allclose(posterior.theta, V @ h @ np.linalg.solve(errors, u))
        else:
            # without a level u_0 is not used
            part, own = h[1:, 1:], errors[1:, 1:]
            V = np.linalg.inv(np.eye(2) / variance + part @ np.linalg.solve(own, part))
            np.testing.assert_allclose(posterior.theta, V @ part @ np.linalg.solve(own, u[1:]))
        np.testing.assert_allclose(posterior.V, V, rtol=1e-7, atol=1e-12)
    assert 20 < sum(chosen) < 180


def test_rare_directions_have_a_wide_prior_and_whole_draws():
    confounded, known = np.array([0.0, 1.0, -1.0]) / math.sqrt(2), np.array([0.0, 1.0, 1.0])
    unseen, other = np.array([1.0, 0.0, 0.0]), np.array([0.0, 0.0, 1.0])
    for rare, weak, told, strong, prior, factor in (
        (0.0, confounded, 1.0, (unseen, known), 0.03, 0.2),
        (0.1, confounded, 1.0, (unseen, known), 25 / 3, 1.0),
        # known as well as a tenth of the ordinary prior's variance, and better than that
        (0.1, confounded, 333.3, (unseen, known), 25 / 3, 0.1**0.5),
        (0.1, confounded, 999.0, (unseen, known), 25 / 3, 0.2),
        (0.1, unseen, 1.0, (confounded, known, other), 0.03, 0.2),
    ):
        h = told * np.outer(weak, weak) + 1e5 * sum(np.outer(v, v) for v in strong)
        believed = belief(3, rare=rare, wide=25 / 3, sizes=np.array([0.03]))
        c = demand_known(EXACT, disperse=0.2, prior=believed)
        none = np.zeros((3, 3))
        s = pricing.State(
            np.zeros(3), none.copy(), none.copy(), np.zeros(3), np.zeros(1), *NO_HISTORY
        )
        row = curvature.isometric(h, 2.0 * weak, 1.0, 1.0)
        assert not pricing.learn_from(c, s, (row, 0.0, 1.0))
        assert s.theta @ weak == pytest.approx(prior * 2.0 / (prior * told + 1.0))
        own = prior / (prior * told + 1.0)
        assert weak @ s.V @ weak == pytest.approx(own)
        assert np.linalg.norm(weak @ s.root) == pytest.approx(factor * math.sqrt(own), rel=1e-3)
