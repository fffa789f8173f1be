"""Best single actions beside independent computations, with the uncertainty of the fit."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy.stats import norm, t

import dpb_data
import dpb_gym
from dpb_data import synthetic
from dpb_gym.planning.advice import relative_gain
from dpb_gym.planning.fixed_actions import DECIDED, best_fixed_action, ratio_interval
from dpb_gym.problems.logged import LoggedAssortment, LoggedPricing, LoggedRecommendation


def narrow(n: int, seed: int) -> dict[str, Any]:
    """Return quotes in a narrow band, of which the lowest price is best."""
    rng = np.random.default_rng(seed)
    price = rng.uniform(90, 110, n)
    chance = 1 / (1 + np.exp(-(1.2 - 0.022 * price)))
    return {"price": price, "bought": (rng.random(n) < chance).astype(int)}


def earned(price: float) -> float:
    return float(price / (1 + np.exp(-(1.2 - 0.022 * price))))


@pytest.mark.slow
def test_the_interval_of_a_fixed_price_holds_its_true_earnings() -> None:
    """Of 24 logs, at least 20 intervals of the gain hold the truth of the generating demand."""
    held = []
    grid = np.linspace(90, 110, 500)
    today = np.mean([earned(price) for price in grid])
    for seed in range(24):
        try:
            problem = LoggedPricing(dpb_data.prices(narrow(4000, seed)))
        except dpb_data.DataError:
            continue
        fixed = best_fixed_action(problem)
        price = float(fixed.action) * problem.highest_price
        assert 90.0 - 0.1 <= price <= 110.0 + 0.1, "no price that was never quoted"
        true = 100 * (earned(price) - today) / today
        held.append(fixed.gain.low <= true <= fixed.gain.high)
        assert fixed.gain.low < fixed.gain.high and fixed.earned.low < fixed.earned.high
    assert len(held) > 18 and sum(held) >= 0.85 * len(held)


def test_the_price_is_that_of_a_grid_search_of_the_fitted_demand() -> None:
    frame = synthetic.loans(3000)
    problem = LoggedPricing(dpb_data.prices(frame, features=["score"]))
    names = dict(zip(problem.fit.names, problem.fit.coefficients))
    low, high = problem.bounds["score"]
    score = 2 * (frame["score"] - low) / (high - low) - 1
    level = names["intercept"] + names["score"] * score
    grid = np.linspace(problem.info.price_range[0], 1, 400)  # type: ignore[index]
    slope = names["price"]
    value = [np.mean(p / (1 + np.exp(-(level - slope * p)))) for p in grid]
    fixed = best_fixed_action(problem)
    assert float(fixed.action) == pytest.approx(grid[int(np.argmax(value))], abs=0.02)
    assert fixed.earned.mean == pytest.approx(max(value), rel=0.02)
    assert fixed.label.startswith("always ")


def test_slates_and_items_are_the_best_of_all() -> None:
    trips = LoggedAssortment(dpb_data.load_choices("synthetic-mode-canada"), outside="car",
                             revenue="cost", capacity=2)  # fmt: skip
    fixed = best_fixed_action(trips)
    everyone, theta = np.arange(len(trips._contexts)), trips.theta[None]
    equal = np.full((1, len(everyone)), 1 / len(everyone))
    slates = np.array([[a, b] for a in range(3) for b in range(-1, a)])
    values = trips.action_values(slates, theta, everyone, equal)[0]
    own = trips.action_values(fixed.action[None], theta, everyone, equal)[0, 0]
    assert own >= values.max() - 0.01 * abs(values.max())
    rng = np.random.default_rng(0)
    item = rng.integers(0, 4, 3000)
    click = rng.random(3000) < np.array([0.1, 0.3, 0.2, 0.05])[item]
    table = dpb_data.clicks({"ad": item, "click": click.astype(int), "p": np.full(3000, 0.25)},
                            item="ad", reward="click", propensity="p")  # fmt: skip
    best = best_fixed_action(LoggedRecommendation(table))
    assert best.label == "always 1" and best.earned.low < 0.3 < best.earned.high
    assert best.gain.low > 0.0


def test_values_of_the_logs_own_actions_are_what_was_observed() -> None:
    """A model with an intercept reproduces the mean of the log in every problem."""
    loans = LoggedPricing(dpb_data.prices("synthetic-loans"))
    trips = LoggedAssortment(dpb_data.load_choices("synthetic-mode-canada"), outside="car")
    for problem in (loans, trips):
        everyone = np.arange(len(problem._contexts))
        equal = np.full((1, len(everyone)), 1 / len(everyone))
        (value,) = problem.log_values(problem.theta[None], everyone, equal)
        assert value == pytest.approx(problem.today[0], rel=0.02)
    assert dpb_gym.make_problem("DPB/Pricing-v0").info.price_range is None


def steep(n: int, seed: int) -> dict[str, Any]:
    """Return quotes to steep demand, whose best price earns more than twice what the log did."""
    rng = np.random.default_rng(seed)
    price = rng.uniform(2, 9, n)
    chance = 1 / (1 + np.exp(-(3.0 - 1.1 * price)))
    return {"price": price, "bought": (rng.random(n) < chance).astype(int)}


@pytest.mark.slow
def test_large_gains_contain_the_error_of_what_they_are_relative_to() -> None:
    """A gain in percent is a ratio: the error of today's earnings counts by the ratio's size."""
    grid = np.linspace(2, 9, 2_000)
    true = grid / (1 + np.exp(-(3.0 - 1.1 * grid)))
    held, decided, width = 0, 0, []
    for seed in range(30):
        problem = LoggedPricing(dpb_data.prices(steep(600, seed)))
        fixed = best_fixed_action(problem)
        price = float(fixed.action) * problem.highest_price
        gain = 100 * (price / (1 + np.exp(-(3.0 - 1.1 * price))) / true.mean() - 1)
        held += fixed.gain.low <= gain <= fixed.gain.high
        decided += fixed.decided.low <= gain <= fixed.decided.high
        strict, plain = (
            np.log1p(i.high / 100.0) - np.log1p(i.low / 100.0) for i in (fixed.decided, fixed.gain)
        )
        width.append(strict / plain)
    assert held >= 25, "6 of 30 misses have a chance of 0.3% at 95%"
    assert decided == 30 and min(width) > norm.ppf(0.9995) / norm.ppf(0.975) - 1e-9


def test_intervals_of_ratios_are_those_of_lognormal_draws() -> None:
    """Against quantiles of the lognormal distribution, at levels that no draw reaches."""
    logs = 0.3 + 0.2 * norm.ppf((np.arange(4_000) + 0.5) / 4_000)
    for confidence in (0.95, DECIDED):
        for freedom in (20.0, 1e9):
            half = 0.2 * t.ppf(0.5 + 0.5 * confidence, freedom)
            interval = ratio_interval(np.exp(logs), freedom, confidence)
            assert interval.mean == pytest.approx(np.exp(0.3), rel=1e-3)
            assert interval.low == pytest.approx(np.exp(0.3 - half), rel=2e-3)
            assert interval.high == pytest.approx(np.exp(0.3 + half), rel=2e-3)
    skewed = np.where(logs < 0.3, logs, 0.3 + 3.0 * (logs - 0.3))
    plain, wide = ratio_interval(np.exp(logs), 1e9), ratio_interval(np.exp(skewed), 1e9)
    assert wide.low == pytest.approx(plain.low, rel=1e-3) and wide.high > plain.high


@pytest.mark.slow
def test_the_best_of_many_items_has_an_interval_that_holds_for_all_of_them() -> None:
    """Of items with the same rate the best in the log is none, and its gain is not shown."""
    outside = 0
    for seed in range(30):
        rng = np.random.default_rng(seed)
        item, rates = rng.integers(0, 12, 2_400), np.random.default_rng(seed).uniform(0.1, 0.3, 12)
        columns = {"ad": item, "click": (rng.random(2_400) < rates[item]).astype(int),
                   "p": np.full(2_400, 1 / 12)}  # fmt: skip
        problem = LoggedRecommendation(
            dpb_data.clicks(columns, item="ad", reward="click", propensity="p"), ridge=0.01
        )
        fixed = best_fixed_action(problem)
        gain = 100 * (rates[int(fixed.action)] / rates.mean() - 1)
        outside += gain < fixed.gain.low
    assert outside <= 1


def test_relative_gains_are_those_of_many_worlds() -> None:
    """Over worlds of 16 coefficients each, 95% and 99.9% intervals hold the ratio of means."""
    rng = np.random.default_rng(0)
    held = 0
    for _ in range(200):
        which = np.repeat(np.arange(16), 3)
        before = 1.0 + 0.3 * rng.normal(size=16)[which]
        earned = 3.0 * before + 0.1 * rng.normal(size=48)
        gain = relative_gain(earned, before, which)
        held += gain.low <= 200.0 <= gain.high
        assert gain.high - gain.low < 60.0, "both rise and fall together"
    assert held == 200


def test_some_customers_stand_for_all_of_a_log() -> None:
    """The mean over them varies as that of all customers would, of whom they are a part."""
    from dpb_gym.problems.logged_figures import customer_weights

    values = np.random.default_rng(0).normal(size=80)
    for customers in (80, 2_000):
        means = customer_weights(np.arange(80), 4_000, customers) @ values
        assert means.std() == pytest.approx(values.std() / np.sqrt(customers), rel=0.05)
    persons = customer_weights(np.repeat(np.arange(20), 4), 4_000, 80)
    assert np.array_equal(persons[:, 0], persons[:, 3])
