"""Intervals where demand is not of the fitted form, beside independent computations."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from scipy.optimize import minimize
from scipy.special import expit, log_expit, ndtr

import dpb_data
from dpb_gym.planning.fixed_actions import best_fixed_action
from dpb_gym.planning.log_checks import _against_others
from dpb_gym.problems import price_curve
from dpb_gym.problems.logged import LoggedPricing
from dpb_gym.problems.logged_figures import customer_weights, price_values
from dpb_gym.problems.price_curve import PriceCurve, equal_rows

Demand = Callable[[Any, Any], Any]


def quotes(demand: Demand, seed: int, n: int = 1_500) -> dict[str, Any]:
    rng = np.random.default_rng(seed)
    price, age = rng.uniform(2, 9, n), rng.uniform(-1, 1, n)
    bought = rng.random(n) < demand(price, age)
    return {"price": price, "bought": bought.astype(int), "age": age}


OTHER_FORMS: dict[str, Demand] = {
    "a step": lambda p, x: expit(1.2 + 0.4 * x - 0.2 * p - expit(4 * (p - 5.5))),
    "a limit": lambda p, x: 0.5 * expit(4 + x - 0.8 * p),
    "lognormal": lambda p, x: ndtr((1.5 + 0.2 * x - np.log(p)) / 0.5),
    "by age": lambda p, x: expit(2 + 0.5 * x**2 - 0.45 * p * np.exp(0.6 * x)),
}


@pytest.mark.slow
@pytest.mark.parametrize("form", OTHER_FORMS)
def test_intervals_hold_where_demand_has_another_form(form: str) -> None:
    """Of 12 intervals at least 9 hold, nominally 11.4: fewer have a chance of 0.2%."""
    demand = OTHER_FORMS[form]
    grid, ages = np.meshgrid(np.linspace(2, 9, 400), np.linspace(-1, 1, 41))
    chance = demand(grid, ages)
    today = float(np.mean(grid * chance))
    slopes = np.log(demand(1.001 * grid, ages) / demand(0.999 * grid, ages)) / np.log(1.001 / 0.999)
    held = []
    for seed in range(6):
        problem = LoggedPricing(dpb_data.prices(quotes(demand, seed), features=["age"]))
        best = best_fixed_action(problem)
        price = float(best.action) * problem.highest_price
        gain = 100.0 * (price * np.mean(demand(price, ages[:, 0])) / today - 1.0)
        low, high = problem.effects["elasticity"].interval
        held += [best.gain.low <= gain <= best.gain.high, low <= slopes.mean() <= high]
    assert sum(held) >= 9


def test_intervals_stay_narrow_where_demand_has_the_fitted_form() -> None:
    frame = quotes(lambda p, x: expit(2 + x - 0.5 * p), 0)
    effect = LoggedPricing(dpb_data.prices(frame, features=["age"])).effects["elasticity"]
    assert effect.plain_error is not None and effect.plain_error < effect.error
    assert effect.error < 3.0 * effect.plain_error


def rows_of(n: int, seed: int, levels: int = 0) -> tuple[Any, Any]:
    rng = np.random.default_rng(seed)
    price = rng.integers(1, levels + 1, n) / levels if levels else rng.uniform(0.3, 1.0, n)
    rows = np.column_stack([np.ones(n), rng.uniform(-1, 1, n), -price])
    bought = rng.random(n) < expit(rows @ np.array([2.0, 0.5, 3.0]))
    return rows, bought.astype(int)


def test_without_further_columns_it_is_the_linear_model(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(price_curve, "BENDS", (0.0,))
    monkeypatch.setattr(price_curve, "SHIFTS", (0.0,))
    rows, bought = rows_of(600, 1)
    penalty = np.array([1e-6, 2.0, 1e-6])

    def loss(b: Any) -> float:
        u = rows @ b
        taken = np.where(bought == 1, log_expit(u), log_expit(-u))
        return float(-taken.sum() + 0.5 * penalty @ b**2)

    best = minimize(loss, np.zeros(3), tol=1e-10).x
    chance = expit(rows @ best)
    information = (rows * (chance * (1 - chance))[:, None]).T @ rows + np.diag(penalty)
    draws = PriceCurve(rows, bought, np.zeros(3), penalty, None).draws(4_000)
    assert draws[:, 3:].any() == 0
    error = np.sqrt(np.linalg.inv(information).diagonal())
    assert draws[:, :3].mean(axis=0) == pytest.approx(best, abs=0.06 * error.max())
    scale = np.outer(error, error)
    assert np.cov(draws[:, :3].T) / scale == pytest.approx(
        np.linalg.inv(information) / scale, abs=0.06
    )
    people = np.argsort(np.argsort(bought - chance, kind="stable")) // 2  # equal surprises
    scores = rows * (bought - chance)[:, None]
    sums = np.stack([np.bincount(people, column) for column in scores.T])
    inverse = np.linalg.inv(information)
    middle = sums @ sums.T * 300 / 299 + np.diag(penalty)
    draws = PriceCurve(rows, bought, np.zeros(3), penalty, people).draws(4_000)
    expected = inverse @ middle @ inverse / scale
    assert np.cov(draws[:, :3].T) / scale == pytest.approx(expected, abs=0.06)
    assert np.abs(expected - inverse / scale).max() > 0.06, "persons make a difference"


def test_the_spline_is_the_posterior_mode_of_integrated_brownian_motion(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Demand at five prices, beside the mode of the utilities at these prices themselves."""
    monkeypatch.setattr(price_curve, "BENDS", (0.3,))
    monkeypatch.setattr(price_curve, "SHIFTS", (0.0,))
    rows, bought = rows_of(200, 2, levels=5)
    rows[:, 1] = 0.0
    curve = PriceCurve(rows, bought, np.zeros(3), np.full(3, 1e-6), None)
    u = np.linspace(0, 1, 5)
    line = np.column_stack([np.ones(5), u])
    rest = np.eye(5) - line @ np.linalg.pinv(line)
    low, high = np.minimum(u[:, None], u), np.maximum(u[:, None], u)
    covariance = rest @ (low**2 * (3 * high - low) / 6) @ rest
    covariance *= 0.3**2 * 5 / np.trace(covariance)
    inverse = np.linalg.pinv(covariance, rcond=1e-10)
    level = np.rint(-5 * rows[:, 2]).astype(int) - 1
    seen, sold = np.bincount(level), np.bincount(level, bought)

    def loss(f: Any) -> float:
        return float(-(sold @ log_expit(f) + (seen - sold) @ log_expit(-f)) + 0.5 * f @ inverse @ f)

    best = minimize(loss, np.zeros(5), tol=1e-10).x
    there = np.column_stack([np.ones(5), np.zeros(5), -(u * 0.8 + 0.2)])
    fitted = curve.columns(there) @ curve.draws(4_000).mean(axis=0)
    assert fitted == pytest.approx(best, abs=0.03)


def test_elasticities_are_those_of_differences_of_demand() -> None:
    rows, bought = rows_of(500, 3)
    curve = PriceCurve(rows, bought, np.zeros(3), np.full(3, 1e-6), None)
    draws = curve.draws(3)

    def demand(factor: float) -> Any:
        moved = rows.copy()
        moved[:, -1] *= factor
        return expit(curve.columns(moved) @ draws.T)

    expected = np.log(demand(1.001) / demand(0.999)) / np.log(1.001 / 0.999)
    assert curve.elasticities(rows, draws) == pytest.approx(expected.mean(axis=0), rel=1e-3)


def test_customers_of_one_row_are_weighed_like_persons() -> None:
    rng = np.random.default_rng(2)
    expected = []
    for _ in range(3):
        drawn = np.maximum(1.0 + (rng.standard_exponential(50) - 1.0) * np.sqrt(0.5), 0.0)
        expected.append(drawn / drawn.sum())
    np.testing.assert_array_equal(customer_weights(np.arange(50), 3, 100), expected)
    mixed = customer_weights(np.arange(50)[::-1], 3, 100)
    np.testing.assert_allclose(mixed[:, ::-1], expected, rtol=1e-12)


def test_equal_customers_are_counted_together_without_an_effect(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rows, bought = rows_of(900, 4, levels=4)
    rows[:, 1] = np.sign(rows[:, 1])
    first, place = equal_rows(rows)
    assert len(first) == 8 and (rows[first][place] == rows).all()
    penalty = np.full(3, 1e-6)
    apart = PriceCurve(rows, bought, np.zeros(3), penalty, None).draws(5)
    monkeypatch.setattr(price_curve, "_MOST", 100)
    together = PriceCurve(rows, bought, np.zeros(3), penalty, None).draws(5)
    assert together == pytest.approx(apart, rel=1e-4, abs=1e-4)
    people = np.arange(900) // 3
    shares = customer_weights(people, 3, 2_000)
    merged = customer_weights(people, 3, 2_000, place)
    assert merged == pytest.approx(np.array([np.bincount(place, row) for row in shares]))
    price = -rows[:, -1]
    theta = np.array([[2.0, 0.5, 3.0]] * 3)
    whole = price_values(rows, price, theta, shares)
    assert whole == pytest.approx([np.sum(row * price * expit(rows @ theta[0])) for row in shares])
    assert price_values(rows[first], price[first], theta, merged) == pytest.approx(whole)


def test_a_large_table_of_counts_has_the_figures_of_its_customers() -> None:
    rng = np.random.default_rng(5)
    price = rng.choice([2.0, 2.5, 3.0, 4.0], 300)
    visitors = rng.integers(20, 60, 300)
    frame = {"price": price, "units": rng.binomial(visitors, expit(2 - price)), "seen": visitors}
    problem = LoggedPricing(dpb_data.prices(frame, bought="units", offered="seen", features=[]))
    who = np.arange(len(problem.rows))
    some, shares = problem.population(who, 4)
    assert len(some) == 4 and shares.sum(axis=1) == pytest.approx(1.0)
    thetas = problem.wide_posterior(4)
    merged = problem.log_values(thetas, some, shares)
    assert merged == pytest.approx(problem.log_values(thetas, who, problem.shares(who, 4)))


@pytest.mark.parametrize("opposed", [False, True])
def test_shares_of_equal_rows_stand_for_trees_where_few_rows_differ(opposed: bool) -> None:
    """They agree with a linear utility, and find a product that it lacks."""
    rng = np.random.default_rng(6)
    price, side = rng.choice([2.0, 3.0, 4.0, 5.0], 6_000), rng.choice([-1.0, 1.0], 6_000)
    utility = 2 - 0.6 * price + (side * (price - 3.5) if opposed else 0.5 * side)
    frame = {"price": price, "bought": (rng.random(6_000) < expit(utility)).astype(int),
             "side": side}  # fmt: skip
    problem = LoggedPricing(dpb_data.prices(frame, features=["side"]))
    hit = problem.fit.chosen[problem.fit.held_rows]
    said = _against_others(problem, hit)
    assert ("shares of equal rows predict held-out rows better" in said) == opposed
    assert (said == "") != opposed
