"""Pricing: best prices against grids, demand, losses, customers."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import numpy_kernels
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from scipy.special import lambertw

import dpb_gym
from dpb_gym import kernels
from dpb_gym.errors import ActionError, ParameterError
from dpb_gym.problems.base import Context, Round
from dpb_gym.problems.pricing import GLM, PricingProblem

FINITE = st.floats(-50, 50, allow_nan=False)


@given(st.floats(-600, 600, allow_nan=False))
@settings(max_examples=300, deadline=None)
def test_lambert_w_of_exp(z):
    w = kernels.demand_models.lambert_exp(z)
    if z < 700:
        assert w == pytest.approx(float(lambertw(np.exp(z)).real), rel=1e-12)
    if z > -20:
        assert w + np.log(w) == pytest.approx(z, rel=1e-12, abs=1e-12)


@pytest.mark.slow
@given(st.floats(0.1, 30), FINITE, FINITE, st.sampled_from(["logistic", "gaussian"]))
@example(0.5, 0.0, 5e-324, "logistic")  # zeta times the slope underflows
@settings(max_examples=300, deadline=None)
def test_best_price_beats_a_dense_grid(zeta, a, b, demand):
    problem = PricingProblem(dim=2, demand=demand, zeta=zeta)
    theta, features = np.array([[a, b]]), np.ones((1, 1), np.float32)
    price, value = problem.best_prices(theta, features)
    assert 0 <= price[0] <= 1
    grid = np.linspace(0, 1, 20_001)
    revenue = numpy_kernels.pricing_revenue(
        np.repeat(features, len(grid), 0), np.repeat(theta, len(grid), 0), grid, demand, zeta
    )
    assert value[0] >= revenue.max() - 1e-12 * max(1.0, abs(revenue.max()))
    np.testing.assert_allclose(
        value,
        numpy_kernels.pricing_revenue(features, theta, price, demand, zeta),
        rtol=1e-12,
        atol=0,
    )


@given(st.integers(0, 10_000))
@settings(max_examples=50, deadline=None)
def test_best_price_equals_the_closed_form(seed):
    rng = np.random.default_rng(seed)
    theta, features = rng.normal(size=(7, 4)), rng.uniform(-1, 1, (7, 3)).astype(np.float32)
    for demand in ("logistic", "gaussian"):
        problem = PricingProblem(dim=4, demand=demand)
        np.testing.assert_allclose(
            problem.best_prices(theta, features)[0],
            numpy_kernels.best_price(features, theta, demand, 4.0),
            rtol=1e-10,
            atol=1e-14,
        )


@pytest.mark.parametrize("demand", ["logistic", "gaussian"])
def test_demand_has_the_stated_mean(demand):
    n = 40_001
    problem = PricingProblem(dim=3, demand=demand)
    features = np.tile(np.float32([[0.4, -0.7]]), (n, 1))
    theta = np.tile([[-0.3, 0.5, 0.9]], (n, 1))
    uniform = (np.arange(n) + 0.5) / n
    price = np.full(n, 0.6)
    round_ = Round(Context(1, features), uniform, {})
    feedback, expected = problem.respond({"theta": theta}, round_, price)
    z = (0.4 * -0.3 - 0.7 * 0.5 - 0.6 * 0.9) / np.sqrt(3)
    mean = 1 / (1 + np.exp(-4 * z)) if demand == "logistic" else z
    assert expected[0] == pytest.approx(0.6 * mean, rel=1e-6)
    assert feedback.demand.mean() == pytest.approx(mean, abs=1e-4)
    assert feedback.reward == pytest.approx(0.6 * feedback.demand)
    if demand == "gaussian":
        assert feedback.demand.var() == pytest.approx(1.0, abs=2e-3)
    else:
        assert set(np.unique(feedback.demand)) == {0.0, 1.0}


@pytest.mark.parametrize("demand", ["logistic", "gaussian"])
def test_loss_matches_finite_differences_and_bounds(demand):
    rng = np.random.default_rng(0)
    B, model = 8, GLM.index(demand)
    features, price = rng.uniform(-1, 1, (B, 3)).astype(np.float32), rng.random(B)
    y = rng.integers(0, 2, B).astype(float) if demand == "logistic" else rng.normal(size=B)
    theta = rng.normal(size=(B, 4))

    def losses(at):
        loss, gradient, hessian = np.zeros(B), np.zeros((B, 4)), np.zeros((B, 4, 4))
        for b in range(B):
            record = features[b : b + 1], price[b : b + 1], y[b : b + 1], 1.0, 1, model, 4.0
            terms = at[b], gradient[b], hessian[b]
            loss[b] = kernels.demand_models.add_demands_one(*record, *terms)
        return loss, gradient, hessian

    _, gradient, hessian = losses(theta)
    step = 1e-5
    for k in range(4):
        e = np.zeros(4)
        e[k] = step
        above, below = losses(theta + e), losses(theta - e)
        slope, curve = ((up - down) / (2 * step) for up, down in zip(above[:2], below[:2]))
        np.testing.assert_allclose(gradient[:, k], slope, atol=1e-7)
        np.testing.assert_allclose(hessian[:, k, : k + 1], curve[:, : k + 1], atol=1e-7)
    if demand == "logistic":
        assert (np.linalg.norm(gradient, axis=1) <= 4).all()
        assert (np.trace(hessian, axis1=1, axis2=2) <= 4).all()


@pytest.mark.slow
def test_published_regret_of_simple_prices():
    """Average regret per round: random .0329 and p = 1 .0201 at d = 3; .0680 and .0010 at d = 5."""
    for dim, random, one in ((3, 0.0329, 0.0201), (5, 0.0680, 0.0010)):
        n = 20_000
        problem = PricingProblem(dim=dim, horizon=n)
        instance = problem.instance([11])
        rng = np.random.default_rng(0)
        totals = np.zeros(2)
        for t in range(n):
            totals += [
                instance.respond(rng.random(1)).regret[0],
                instance.respond(np.ones(1)).regret[0],
            ]
            if t < n - 1:
                instance.advance()
        assert totals[0] / n == pytest.approx(random, rel=0.05)
        assert totals[1] / n == pytest.approx(one, rel=0.1)


def test_two_type_customers_are_those_of_proposition_1():
    """x = 1: best price 1; x = -1: about 0.524 (the paper's appendix A)."""
    problem = PricingProblem(dim=2, customers="two-type", horizon=50)
    theta = np.tile(problem.theta, (2, 1))
    price, _ = problem.best_prices(theta, np.float32([[1], [-1]]))
    assert price[0] == 1.0
    assert price[1] == pytest.approx(0.524, abs=0.04)
    z = numpy_kernels.pricing_revenue(
        np.float32([[1]]), theta[:1], np.array([1.0]), "gaussian", 1.0
    )
    assert 4 * z[0] == pytest.approx(0.0, abs=1e-12)
    instance = problem.instance([0, 1, 2])
    seen = []
    for _ in range(49):
        seen.append(instance.context().features[:, 0].copy())
        instance.advance()
    assert set(np.unique(seen)) == {-1.0, 1.0}


def test_oblivious_customers_are_played_in_order():
    rows = np.linspace(-1, 1, 12).reshape(6, 2)
    instance = PricingProblem(dim=3, horizon=6, customers=rows).instance([0, 9])
    for t in range(6):
        np.testing.assert_array_equal(instance.context().features[0], rows[t].astype(np.float32))
        np.testing.assert_array_equal(instance.context().features[1], rows[t].astype(np.float32))
        if t < 5:
            instance.advance()


def test_drifting_customers_move_and_stay_in_range():
    problem = PricingProblem(dim=4, horizon=1000, customers="drifting")
    assert np.abs(problem.sequence).max() <= 1
    assert problem.sequence[:100].mean() < -0.3 and problem.sequence[-100:].mean() > 0.3


def test_theta_has_unit_norm():
    for dim in (2, 5, 10):
        assert np.linalg.norm(PricingProblem(dim=dim).theta) == pytest.approx(1.0)
    high = PricingProblem(dim=15).instance([0, 1])
    np.testing.assert_allclose(np.linalg.norm(high.hidden["theta"], axis=1), 1.0)
    assert (high.hidden["theta"][0] != high.hidden["theta"][1]).all()


@pytest.mark.parametrize(
    "kwargs",
    [
        {"dim": 1},
        {"zeta": 0.0},
        {"zeta": 1e-20},
        {"zeta": 1e20},
        {"zeta": float("nan")},
        {"demand": "poisson"},
        {"customers": "random"},
        {"customers": np.zeros((5, 2))},
        {"customers": np.full((10_000, 2), 1.5)},
        {"customers": np.zeros((10_000, 3))},
        {"theta": [1.0]},
        {"horizon": "10"},
    ],
)
def test_bad_parameters(kwargs):
    with pytest.raises(ParameterError):
        PricingProblem(**kwargs)


@pytest.mark.parametrize("price", [[1.5], [-0.1], [np.nan], [np.inf], [0.1, 0.2], 0.5, ["a"]])
def test_bad_prices(price):
    with pytest.raises(ActionError):
        PricingProblem(horizon=4).instance([0]).respond(np.asarray(price))


@pytest.mark.parametrize("zeta", [1e-20, 1e-10, 1e10])
def test_a_link_scale_beyond_the_range_of_formulas_is_refused(zeta):
    with pytest.raises(ParameterError, match=r"zeta must be a finite number in \[1e-09, 1"):
        PricingProblem(zeta=zeta)
    info = PricingProblem(horizon=20).info
    with pytest.raises(ParameterError, match="zeta must be"):
        dpb_gym.serve("one-pass-pricing", "rho=0.5", replace(info, zeta=zeta), warm=False)


@pytest.mark.parametrize("zeta", [1e-9, 1e9])
@pytest.mark.parametrize("agent", ["one-pass-pricing", "resolving-pricing"])
def test_agents_play_with_the_limits_of_the_link_scale(zeta, agent):
    problem = PricingProblem(horizon=30, zeta=zeta)
    session = dpb_gym.serve(agent, "rho=0.5", problem, noise="seeded", seed=1, warm=False)
    for _ in range(30):
        decision, price = session.decide([0.3, 0.8])
        assert 0.0 <= price <= 1.0
        session.observe(decision, price < 0.5)
