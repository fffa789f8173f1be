"""The rows of one record: they are what the method says, and replacing one moves them by 1."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import approx_fprime

from dpb_agents.common.one_pass import CurvatureRows
from dpb_gym.kernels import one_pass

RANGE = {0: (0.0, 1.0), 1: (-3.0, 3.0)}


def choice_row(features, slate, choice, theta, layout):
    rows = np.empty((1, layout.width))
    one_pass.choice_rows(
        features[None],
        np.array([slate]),
        np.array([choice]),
        theta[None],
        layout.radius,
        layout.curvature_weight,
        layout.response_weight,
        rows,
        np.zeros(1, np.int64),
    )
    return rows[0]


def demand_row(x, price, demand, theta, model, zeta, layout):
    rows = np.empty((1, layout.width))
    one_pass.demand_rows(
        x[None],
        np.array([price]),
        np.array([demand]),
        theta[None],
        model,
        zeta,
        *RANGE[model],
        layout.bound,
        layout.radius,
        layout.curvature_weight,
        layout.response_weight,
        rows,
        np.zeros(1, np.int64),
    )
    return rows[0]


def unpack(row, layout):
    """Curvature and response of a row, by a route of its own."""
    d = layout.dim
    h = np.zeros((d, d))
    upper = np.triu_indices(d)
    h[upper] = row[:-d]
    h = (h + h.T) / math.sqrt(2.0)
    h[np.diag_indices(d)] /= math.sqrt(2.0)
    return h / layout.curvature_weight, row[-d:] / layout.response_weight


def mnl_loss(theta, x, choice):
    u = np.append(x @ theta, 0.0)
    return np.log(np.exp(u - u.max()).sum()) + u.max() - u[choice]


@pytest.mark.parametrize("choice", [-1, 0, 2])
def test_choice_rows_are_curvature_and_response_of_the_likelihood(choice):
    rng = np.random.default_rng(4)
    d = 3
    layout = CurvatureRows(d, 1.0, 100.0, 0.6)
    features = rng.normal(size=(6, d)) * 0.4
    theta = rng.normal(size=d)
    slate = np.array([4, 1, 0])
    h, u = unpack(choice_row(features.astype(np.float32), slate, choice, theta, layout), layout)
    x = features.astype(np.float32).astype(float)[slate]
    gradient = approx_fprime(theta, mnl_loss, 1e-7, x, choice)
    hessian = approx_fprime(theta, lambda t: approx_fprime(t, mnl_loss, 1e-5, x, choice), 1e-4)
    np.testing.assert_allclose(h, hessian, atol=2e-3)
    np.testing.assert_allclose(h @ theta - u, gradient, atol=1e-5)


@pytest.mark.parametrize("model", [0, 1])
def test_demand_rows_are_curvature_and_response_of_the_likelihood(model):
    rng = np.random.default_rng(5)
    d, zeta = 3, 4.0
    layout = CurvatureRows(d, 100.0, 1e4, 0.6)
    x = rng.uniform(-1, 1, d - 1)
    theta = rng.normal(size=d)
    price, demand = 0.6, 1.0
    h, u = unpack(demand_row(x, price, demand, theta, model, zeta, layout), layout)
    phi = np.append(x, -price) / math.sqrt(d)

    def loss(t):
        z = phi @ t
        if model == 1:
            return 0.5 * (demand - z) ** 2
        return np.log1p(np.exp(zeta * z)) - demand * zeta * z

    hessian = approx_fprime(theta, lambda t: approx_fprime(t, loss, 1e-5), 1e-4)
    np.testing.assert_allclose(h, hessian, atol=2e-3)
    np.testing.assert_allclose(h @ theta - u, approx_fprime(theta, loss, 1e-7), atol=1e-5)


@pytest.mark.parametrize("clip", [0.05, 0.3, 0.8])
def test_weights_of_demand_records_leave_the_estimating_equation_unbiased(clip):
    """At the true theta the mean of u is H theta, however tight the bounds."""
    rng = np.random.default_rng(6)
    d, zeta = 4, 4.0
    layout = CurvatureRows(d, clip * zeta**2 / 4, clip * zeta, 0.7)
    scaled = 0
    for _ in range(100):
        x, theta = rng.uniform(-1, 1, d - 1), rng.normal(size=d) * 0.5
        price = rng.random()
        mean = 1 / (1 + math.exp(-zeta * (np.append(x, -price) @ theta) / math.sqrt(d)))
        h1, u1 = unpack(demand_row(x, price, 1.0, theta, 0, zeta, layout), layout)
        h0, u0 = unpack(demand_row(x, price, 0.0, theta, 0, zeta, layout), layout)
        np.testing.assert_allclose(h1, h0, atol=1e-12)
        np.testing.assert_allclose(mean * u1 + (1 - mean) * u0, h1 @ theta, atol=1e-9)
        scaled += np.linalg.norm(h1) > 0.999 * layout.bound
        scaled += max(np.linalg.norm(u1), np.linalg.norm(u0)) > 0.999 * layout.radius
    assert scaled > 0 or clip > 0.5


wild = st.floats(-1e3, 1e3, width=32)


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_replacing_a_choice_record_moves_its_row_by_at_most_one(data):
    d = data.draw(st.integers(1, 4))
    layout = CurvatureRows(
        d, 1.0, data.draw(st.floats(0.05, 3.0)), data.draw(st.floats(0.05, 0.95))
    )
    theta = np.array(data.draw(st.lists(st.floats(-30, 30), min_size=d, max_size=d)))
    rows = []
    for _ in range(2):
        K = data.draw(st.integers(1, 4))
        numbers = data.draw(st.lists(wild, min_size=5 * d, max_size=5 * d))
        features = np.array(numbers, np.float32).reshape(5, d)
        slate = np.array(data.draw(st.permutations(range(5)))[:K])
        choice = data.draw(st.integers(-1, K - 1))
        row = choice_row(features, slate, choice, theta, layout)
        h, u = unpack(row, layout)
        assert np.trace(h) <= 1 + 1e-9
        assert np.linalg.eigvalsh(h)[0] >= -1e-9
        assert np.linalg.norm(u) <= layout.radius * (1 + 1e-9)
        rows.append((row, h))
    (row, h), (other, g) = rows
    assert np.linalg.norm(h - g) <= math.sqrt(2) * (1 + 1e-9)
    assert np.linalg.norm(row - other) <= 1 + 1e-9


@settings(max_examples=150, deadline=None)
@given(st.data())
def test_replacing_a_demand_record_moves_its_row_by_at_most_one(data):
    d = data.draw(st.integers(2, 4))
    model, zeta = data.draw(st.integers(0, 1)), data.draw(st.floats(0.1, 10.0))
    steepest = zeta**2 / 4 if model == 0 else 1.0
    layout = CurvatureRows(
        d,
        data.draw(st.floats(0.05, 1.0)) * steepest,
        data.draw(st.floats(0.05, 1.0)) * zeta,
        data.draw(st.floats(0.05, 0.95)),
    )
    theta = np.array(data.draw(st.lists(st.floats(-30, 30), min_size=d, max_size=d)))
    rows = []
    for _ in range(2):
        x = np.array(data.draw(st.lists(wild, min_size=d - 1, max_size=d - 1)))
        price, demand = data.draw(st.floats(0, 1)), data.draw(st.floats(-100, 100))
        row = demand_row(x, price, demand, theta, model, zeta, layout)
        h, u = unpack(row, layout)
        assert np.linalg.norm(h) <= layout.bound * (1 + 1e-9)
        assert np.linalg.eigvalsh(h)[0] >= -1e-9 * layout.bound
        assert np.linalg.norm(u) <= layout.radius * (1 + 1e-9)
        rows.append((row, h))
    (row, h), (other, g) = rows
    assert np.linalg.norm(h - g) <= math.sqrt(2) * layout.bound * (1 + 1e-9)
    assert np.linalg.norm(row - other) <= 1 + 1e-9


def test_the_bounds_are_attained():
    """Opposite choices about orthogonal items: the sensitivity cannot be lowered."""
    layout = CurvatureRows(2, 1.0, 0.5, 0.6)
    items = np.array([[1, 0], [-1, 0], [0, 1], [0, -1]], np.float32) * 5
    theta = np.array([25.0, 25.0])
    # offers of (x, -x) at a large utility gap have no curvature; at none they have nearly 1
    zero = np.zeros(2)
    far = choice_row(items, np.array([0, 1]), 0, zero, layout)
    near = choice_row(items, np.array([2, 3]), 1, zero, layout)
    h, _ = unpack(far, layout)
    g, _ = unpack(near, layout)
    assert np.linalg.norm(h - g) > 0.65 * math.sqrt(2)
    opposite = choice_row(items, np.array([0, 1]), 1, zero, layout)
    assert np.linalg.norm(opposite - far) == pytest.approx(math.sqrt(layout.share), rel=1e-9)
    assert (
        np.linalg.norm(unpack(choice_row(items, np.array([0, 1]), 0, theta, layout), layout)[0])
        < 1e-6
    )


def test_shrink_is_the_posterior_mean():
    rng = np.random.default_rng(7)
    d, B = 4, 3
    roots = rng.normal(size=(B, d, d))
    h = roots @ roots.transpose(0, 2, 1)
    u = rng.normal(size=(B, d))
    prior, spread, noise = 0.3, 0.7, 1.9
    values, vectors = np.linalg.eigh(h)
    out = np.empty((B, d))
    one_pass.shrink(values, vectors.copy(), u, prior, spread, noise, np.inf, out)
    for b in range(B):
        joint = prior * h[b] @ h[b] + spread * h[b] + noise * np.eye(d)
        np.testing.assert_allclose(out[b], prior * h[b] @ np.linalg.solve(joint, u[b]), rtol=1e-9)
    one_pass.shrink(values, vectors.copy(), u, prior, spread, noise, 0.01, out)
    np.testing.assert_allclose(np.linalg.norm(out, axis=1), 0.01)


def test_flatten_is_the_posterior_mean_and_leaves_exact_matrices_alone():
    rng = np.random.default_rng(8)
    m = rng.normal(size=(1, 3, 3))
    m = m + m.transpose(0, 2, 1) + 6 * np.eye(3)
    same = m.copy()
    one_pass.flatten(same, 0.0, 0.15)
    np.testing.assert_array_equal(same, m)
    level = np.trace(m[0]) / 3
    v = (0.15 * level) ** 2
    expected = level * np.eye(3) + v / (v + 4.0) * (m[0] - level * np.eye(3))
    one_pass.flatten(same, 2.0, 0.15)
    np.testing.assert_allclose(same[0], expected)
