"""Prices that move with demand, found or not, in prices, counts and choices."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy.optimize import minimize

import dpb_data
import dpb_gym
from dpb_gym.errors import DataError
from dpb_gym.problems.endogeneity import DOUBTED, REFUSED, PeriodEffects, period_effects
from dpb_gym.problems.log_likelihood import ChoiceSets
from dpb_gym.problems.logged import LoggedPricing, endogenous_doubt

Array = Any


def sigmoid(u: Array) -> Array:
    return 1.0 / (1.0 + np.exp(-u))


def exogenous(kind: str, n: int, rng: Any) -> tuple[Array, Array]:
    """Return prices and levels of demand that have nothing to do with each other."""
    when = np.arange(n)
    level = np.sin(2 * np.pi * when / 500) if kind == "drift" else np.zeros(n)
    if kind == "weeks":
        return np.repeat(rng.uniform(1, 5, n // 100 + 1), 100)[:n], level
    if kind == "trend":
        return 1 + 4 * when / n + rng.normal(0, 0.3, n), level
    if kind == "walk":
        return np.clip(3 + np.cumsum(rng.normal(0, 0.05, n)), 1, 5), level
    return rng.uniform(1, 5, n), level


def season(n: int, rng: Any) -> dict[str, Array]:
    """Return quotes that are higher in the weeks in which more customers want to buy."""
    tide = np.sin(2 * np.pi * np.arange(n) / 700)
    price = np.maximum(3 + 0.5 * tide + rng.normal(0, 0.7, n), 0.3)
    bought = rng.random(n) < sigmoid(2.5 - price + tide)
    return {"price": price, "bought": bought.astype(int)}


def effects(price: Array, bought: Array, rows: Array | None = None) -> PeriodEffects:
    """Return the effects of a logit fitted by another optimiser."""
    x = np.column_stack([np.ones(len(price)), -price])

    def loss(b: Array) -> float:
        u = x @ b
        return float(np.logaddexp(0.0, np.where(bought == 1, -u, u)).sum())

    theta = minimize(loss, np.zeros(2), method="BFGS").x
    sets = ChoiceSets(x.astype(np.float32), np.arange(len(x) + 1), bought - 1)
    one = np.zeros(len(x), np.int64)
    return period_effects(sets, theta, 1, -1.0, one, np.arange(len(x)) if rows is None else rows)


@pytest.mark.parametrize("kind", ["random", "weeks", "trend", "walk", "drift"])
def test_prices_that_move_alone_are_no_doubt(kind: str) -> None:
    """Not for prices that stay for weeks, trends, walks, nor demand that drifts."""
    errors = []
    for seed in range(25):
        rng = np.random.default_rng(seed)
        price, level = exogenous(kind, 1_500, rng)
        bought = (rng.random(1_500) < sigmoid(2.5 - price + level)).astype(int)
        errors.append(effects(price, bought).errors)
    assert np.abs(errors).max() < REFUSED
    assert np.mean(np.abs(errors) > DOUBTED) <= 0.04, "one of 25 at most"


def test_seasons_are_found_with_the_effect_within_them() -> None:
    frame = season(6_000, np.random.default_rng(0))
    effect = effects(frame["price"], frame["bought"])
    assert effect.errors > REFUSED
    assert effect.within == pytest.approx(-1.0, abs=0.15), "the true effect"
    assert effect.between > effect.within + 0.5
    # without its order the table says nothing
    mixed = np.random.default_rng(1).permutation(6_000)
    assert abs(effects(frame["price"][mixed], frame["bought"][mixed]).errors) < DOUBTED


def test_the_test_is_that_of_a_second_fit_with_period_means() -> None:
    """By another optimiser, on columns of the periods' means and the rest."""
    frame = season(6_000, np.random.default_rng(3))
    price, bought = frame["price"], frame["bought"]
    effect = effects(price, bought)
    period = np.arange(6_000) * 30 // 6_000
    mean = (np.bincount(period, price) / np.bincount(period))[period]
    x = np.column_stack([np.ones(6_000), price - mean, mean])

    def loss(b: Array) -> float:
        u = x @ b
        return float(np.logaddexp(0.0, np.where(bought == 1, -u, u)).sum())

    both = minimize(loss, np.zeros(3), method="BFGS").x
    assert effect.within == pytest.approx(both[1], abs=0.002)
    assert effect.between == pytest.approx(both[2], abs=0.002)


def test_endogenous_prices_are_refused_and_weak_signs_are_a_doubt() -> None:
    frame = season(6_000, np.random.default_rng(0))
    with pytest.raises(DataError, match=r"endogenous prices: one unit .* give what prices were"):
        dpb_gym.from_log(frame, "pricing", progress=False)
    assert endogenous_doubt(PeriodEffects(-1.0, -0.9, 3.0), "t") == []
    (doubt,) = endogenous_doubt(PeriodEffects(-1.0, -0.5, -4.0), "t")
    assert doubt.startswith("endogenous prices: one unit") and "4.0 standard errors" in doubt
    with pytest.raises(DataError):
        endogenous_doubt(PeriodEffects(-1.0, -0.5, -5.1), "t")
    # what the seller knew, as a feature, mends it
    tide = np.sin(2 * np.pi * np.arange(6_000) / 700)
    problem = LoggedPricing(dpb_data.prices({**frame, "tide": tide}, features=["tide"]))
    assert not any("endogenous" in doubt for doubt in problem.doubts)
    assert problem.effects["price"].value == pytest.approx(-1.0, abs=0.15)


def test_a_doubt_of_a_log_is_printed_first() -> None:
    """Between the two limits the log is read, and the doubt comes before all others."""
    for seed in range(40):
        frame = season(400 + 20 * seed, np.random.default_rng(seed))
        size = abs(effects(frame["price"], frame["bought"]).errors)
        if DOUBTED + 0.2 < size < REFUSED - 0.2:
            break
    problem = LoggedPricing(dpb_data.prices(frame))
    assert problem.doubts[0].startswith("endogenous prices: ")


def trips(n: int, rng: Any, follows: float) -> dict[str, Array]:
    """Return choices among three items, of which two become dearer when they are wanted."""
    tide = np.sin(2 * np.pi * np.arange(n)[:, None] / 600 + np.array([0.0, 1.0, 2.5]))
    tide[:, 0] = 0.0
    cost = 6.0 + follows * tide + rng.uniform(-2, 2, (n, 3))
    utility = -0.5 * cost + 0.8 * tide + rng.gumbel(size=(n, 3))
    taken = utility.argmax(axis=1)
    return {
        "case": np.repeat(np.arange(n), 3), "alt": np.tile(["car", "bus", "rail"], n),
        "cost": cost.ravel(), "choice": (np.arange(3) == taken[:, None]).astype(int).ravel(),
    }  # fmt: skip


def test_choices_have_the_same_rule() -> None:
    settings: dict[str, Any] = {
        "case": "case", "item": "alt", "chosen": "choice", "features": ["cost"], "outside": "car",
        "revenue": "cost", "progress": False,
    }  # fmt: skip
    log = trips(3_000, np.random.default_rng(0), 1.2)
    with pytest.raises(DataError, match="endogenous prices: one unit of the price"):
        dpb_gym.from_log(log, "assortment", **settings)
    alone = dpb_gym.from_log(trips(3_000, np.random.default_rng(0), 0.0), "assortment", **settings)
    problem: Any = dpb_gym.make_problem(alone)
    assert not any("endogenous" in doubt for doubt in problem.doubts)
    # without the price as revenue no statement depends on its effect
    dpb_gym.from_log(log, "assortment", **{**settings, "revenue": None})


def test_customers_of_one_row_are_in_one_period() -> None:
    rng = np.random.default_rng(8)
    price = rng.choice([2.0, 2.5, 3.0, 3.5], 400)
    frame = {"price": price, "units": rng.binomial(60, sigmoid(1.0 - price))}
    problem = LoggedPricing(dpb_data.prices(frame, bought="units", offered=60))
    assert not any("endogenous" in doubt for doubt in problem.doubts)
    # of the customers of one row none comes before another
    price = rng.uniform(1, 5, 100)
    sizes = np.where(np.arange(100) == 50, 2_000, 1)
    rows = np.repeat(np.arange(100), sizes)
    bought = (rng.random(len(rows)) < sigmoid(2.5 - price[rows])).astype(int)
    ordered = bought.copy()
    ordered[rows == 50] = np.sort(bought[rows == 50])
    assert ordered.sum() == bought.sum() and (ordered != bought).any()
    effect = effects(price[rows], bought, rows)
    assert effect.errors != 0.0
    assert effects(price[rows], ordered, rows).errors == pytest.approx(effect.errors, rel=1e-6)


def test_the_last_customers_of_a_long_log_count() -> None:
    """Of more than 100,000 customers the last ones are compared, with the items of their rows."""
    rng = np.random.default_rng(4)
    quiet = rng.uniform(1, 5, 30_000)
    frame = season(100_000, rng)
    price = np.concatenate([quiet, frame["price"]])
    bought = np.concatenate(
        [(rng.random(30_000) < sigmoid(2.5 - quiet)).astype(int), frame["bought"]]
    )
    assert effects(price, bought).errors == pytest.approx(
        effects(frame["price"], frame["bought"]).errors, rel=0.2
    )


def test_few_rows_and_prices_of_whole_periods_say_nothing() -> None:
    rng = np.random.default_rng(2)
    price = rng.uniform(1, 5, 90)
    bought = (rng.random(90) < sigmoid(2.5 - price)).astype(int)
    assert effects(price, bought) == PeriodEffects(0.0, 0.0, 0.0)
    steps = np.repeat(rng.uniform(1, 5, 30), 50)
    bought = (rng.random(1_500) < sigmoid(2.5 - steps)).astype(int)
    assert effects(steps, bought).errors == 0.0


def test_demand_of_one_half_at_every_price_is_refused() -> None:
    """Its link scale would be 0, by which agents divide."""
    rng = np.random.default_rng(0)
    price = np.tile(rng.permutation(np.repeat([1.0, 2.0], 500)), 2)
    bought = np.repeat([0, 1], 1_000)
    table = dpb_data.prices({"price": price, "bought": bought})
    with pytest.raises(DataError, match="half of the customers buy at every price"):
        LoggedPricing(table)
