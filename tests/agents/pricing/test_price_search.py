"""The price search against dense grids on adversarial customers, and its edges."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dpb_gym import kernels

search = kernels.price_search
LOGISTIC, GAUSSIAN = kernels.demand_models.LOGISTIC, kernels.demand_models.GAUSSIAN
TOLERANCE = 1e-6
GRID = np.linspace(0.0, 1.0, 100_001)


def objective(p, a, slope, q, model, zeta, gamma):
    """The objective at prices `p`, by NumPy; q = (q0, q1, q2)."""
    z = a - slope * p
    if model == LOGISTIC:
        with np.errstate(over="ignore"):
            z = 1.0 / (1.0 + np.exp(-zeta * z))
    width = np.sqrt(np.maximum(q[0] - 2.0 * q[1] * p + q[2] * p * p, 0.0))
    return p * z + gamma * width


def solve(a, slope, q, model, zeta, gamma, tolerance=TOLERANCE):
    stack = np.empty((search.STACK, 6))
    return search.best_optimistic_price(a, slope, *q, model, zeta, gamma, tolerance, stack)


@st.composite
def customers(draw):
    """Linear predictors and widths of every size, aimed at sharp and flat objectives."""
    size = st.floats(-3.0, 3.0).map(lambda e: 10.0**e)
    sign = st.sampled_from([-1.0, 1.0])
    slope = draw(sign) * draw(size)
    # Half of the time demand falls from 1 to 0 inside the interval.
    a = slope * draw(st.floats(0.0, 1.0)) if draw(st.booleans()) else draw(sign) * draw(size)
    q2 = 10.0 ** draw(st.floats(-6.0, 2.0))
    centre = draw(st.floats(-1.0, 2.0))
    floor = draw(st.sampled_from([0.0, 1e-8, 1e-4, 1.0]))
    gamma = draw(st.sampled_from([0.0, 1e-3, 0.1, 1.0, 10.0]))
    model = draw(st.sampled_from([LOGISTIC, GAUSSIAN]))
    zeta = draw(st.sampled_from([0.1, 1.0, 4.0, 50.0]))
    return a, slope, (q2 * centre**2 + floor, q2 * centre, q2), model, zeta, gamma


@settings(max_examples=400, deadline=None)
@given(customers())
def test_no_grid_price_is_better_on_adversarial_customers(customer):
    price, value = solve(*customer)
    assert 0.0 <= price <= 1.0
    at_price = float(objective(np.array(price), *customer))
    scale = max(1.0, abs(value))
    # Rounding of the quadratic near its zero costs gamma sqrt(1e-16 q0).
    rounding = 1e-12 * scale + customer[-1] * np.sqrt(1e-15 * max(customer[2][0], customer[2][2]))
    assert abs(value - at_price) <= rounding
    assert objective(GRID, *customer).max() <= value + TOLERANCE + rounding


def test_finds_the_better_of_two_separated_maxima():
    # A narrow revenue peak near p = 0.25 against a bonus that grows towards p = 1.
    narrow = dict(slope=200.0, model=LOGISTIC, zeta=1.0)
    missed = 0
    for gamma in np.linspace(0.1, 0.6, 101):
        q = (1.0, 1.0, 1.05)
        case = (0.25 * narrow["slope"], narrow["slope"], q, LOGISTIC, 1.0, gamma)
        values = objective(GRID, *case)
        inner = values[1:-1]
        peaks = (inner > values[:-2]) & (inner > values[2:])
        assert peaks.sum() + (values[0] > values[1]) + (values[-1] > values[-2]) >= 2
        price, value = solve(*case)
        assert value >= values.max() - TOLERANCE
        missed += abs(price - GRID[values.argmax()]) > 0.1
    assert missed <= 1  # at most where the two are equal to within the tolerance


def test_without_bonus_it_agrees_with_the_closed_form():
    rng = np.random.default_rng(0)
    B, d = 500, 4
    features = rng.uniform(-1, 1, (B, d - 1)).astype(np.float32)
    theta = rng.standard_normal((B, d)) * 10.0 ** rng.uniform(-1, 1, (B, 1))
    inverse = np.broadcast_to(np.eye(d), (B, d, d)).copy()
    price, value, exact_price, exact = (np.empty(B) for _ in range(4))
    for model in (LOGISTIC, GAUSSIAN):
        search.optimistic_prices(features, theta, inverse, model, 4.0, 0.0, 1e-12, price, value)
        kernels.demand_models.best_prices(features, theta, model, 4.0, exact_price, exact)
        np.testing.assert_allclose(value, exact, atol=1e-11)


@pytest.mark.parametrize("model", [LOGISTIC, GAUSSIAN])
def test_batch_matches_the_definition_and_itself(model):
    rng = np.random.default_rng(1)
    B, d = 24, 5
    features = rng.uniform(-1, 1, (B, d - 1)).astype(np.float32)
    theta = rng.standard_normal((B, d))
    root = rng.standard_normal((B, d, d))
    inverse = root @ root.transpose(0, 2, 1) + 0.01 * np.eye(d)
    inverse = 0.5 * (inverse + inverse.transpose(0, 2, 1))
    price, value = np.empty(B), np.empty(B)
    search.optimistic_prices(features, theta, inverse, model, 4.0, 0.7, 1e-7, price, value)
    grid = np.linspace(0.0, 1.0, 20_001)
    for b in range(B):
        x = np.broadcast_to(features[b].astype(np.float64), (len(grid), d - 1))
        phi = np.column_stack([x, -grid]) / np.sqrt(d)
        z = phi @ theta[b]
        mean = 1.0 / (1.0 + np.exp(-4.0 * z)) if model == LOGISTIC else z
        width = np.sqrt(np.einsum("ni,ij,nj->n", phi, inverse[b], phi))
        values = grid * mean + 0.7 * width
        assert abs(values.max() - value[b]) < 1e-6
    for size in (1, 3, 8):
        for start in range(0, B, size):
            part = slice(start, start + size)
            p, v = np.empty(size), np.empty(size)
            args = (features[part], theta[part], inverse[part], model, 4.0, 0.7, 1e-7, p, v)
            search.optimistic_prices(*args)
            assert (p == price[part]).all() and (v == value[part]).all()


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf, 1e308])
@pytest.mark.parametrize("place", range(5))
@pytest.mark.parametrize("model", [LOGISTIC, GAUSSIAN])
def test_numbers_that_overflow_still_end_in_a_price(bad, place, model):
    numbers = [0.5, 1.0, 1.0, 0.0, 1.0]
    numbers[place] = bad
    a, slope, q0, q1, q2 = numbers
    price, _ = solve(a, slope, (q0, q1, q2), model, 4.0, 1.0)
    assert 0.0 <= price <= 1.0
