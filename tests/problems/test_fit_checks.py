"""What a fit refuses or doubts: each check by a table that it alone concerns."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy.optimize import minimize

import dpb_data
from dpb_gym.errors import DataError, ParameterError
from dpb_gym.planning import log_checks
from dpb_gym.problems.fitting import (
    Effect,
    Fit,
    Member,
    check_outliers,
    check_tail,
    order_share,
    scale,
)
from dpb_gym.problems.logged import (
    LoggedAssortment,
    LoggedPricing,
    LoggedRecommendation,
    check_falls,
    moved_doubt,
)
from dpb_gym.problems.price_form import price_form


def sigmoid(u: Any) -> Any:
    return 1.0 / (1.0 + np.exp(-u))


def quotes(n: int = 600, seed: int = 0, **columns: Any) -> dict[str, Any]:
    rng = np.random.default_rng(seed)
    price = rng.uniform(1, 5, n)
    bought = (rng.random(n) < sigmoid(2.5 - price)).astype(int)
    return {"price": price, "bought": bought, **columns}


def priced(frame: dict[str, Any], **settings: Any) -> LoggedPricing:
    features = [name for name in frame if name not in ("price", "bought", "household")]
    person = "household" if "household" in frame else None
    return LoggedPricing(dpb_data.prices(frame, features=features, person=person), **settings)


def shown(n: int = 2_000, items: int = 4, **columns: Any) -> dict[str, Any]:
    rng = np.random.default_rng(1)
    item = rng.integers(0, items, n)
    click = (rng.random(n) < 0.1 + 0.1 * (item == 1)).astype(int)
    return {"ad": item, "click": click, "p": np.full(n, 1 / items), **columns}


def clicked(frame: dict[str, Any], **settings: Any) -> LoggedRecommendation:
    features = [name for name in frame if name not in ("ad", "click", "p")]
    table = dpb_data.clicks(frame, item="ad", reward="click", propensity="p", features=features)
    return LoggedRecommendation(table, **settings)


def trips(n: int = 400, **columns: Any) -> dpb_data.ChoiceTable:
    """Return choices among three items, with further attributes of all rows."""
    rng = np.random.default_rng(2)
    cost = rng.uniform(1, 5, (n, 3))
    taken = (-0.8 * cost + rng.gumbel(size=(n, 3))).argmax(axis=1)
    frame = {
        "case": np.repeat(np.arange(n), 3), "alt": np.tile(["car", "bus", "rail"], n),
        "cost": cost.ravel(), "choice": (np.arange(3) == taken[:, None]).astype(int).ravel(),
        **columns,
    }  # fmt: skip
    features = [name for name in frame if name not in ("case", "alt", "choice")]
    return dpb_data.choices(frame, case="case", item="alt", chosen="choice", features=features)


@pytest.mark.parametrize("value", [0, 1])
def test_responses_without_variation_are_refused(value: int) -> None:
    same = np.full(600, value)
    who = ["no customer", "every customer"][value]
    with pytest.raises(DataError, match=f"{who} bought: there is no variation to learn from"):
        priced(quotes(bought=same))
    with pytest.raises(DataError, match=f"{who} responded: there is no variation"):
        clicked(shown(click=np.full(2_000, value)))


def test_copies_of_the_response_are_refused_wherever_they_stand() -> None:
    rng = np.random.default_rng(0)
    frame = quotes()
    copy = np.where(rng.random(600) < 0.995, frame["bought"], 1 - frame["bought"])
    for leak in (copy, -copy + 0.01 * rng.normal(size=600)):
        with pytest.raises(DataError, match="leak tells the response of nearly every customer"):
            priced({**frame, "leak": leak})
    own = shown()
    with pytest.raises(DataError, match="leak tells the response of nearly every customer"):
        clicked({**own, "leak": own["click"] * 1.0})
    table = trips()
    leak = np.zeros(len(table.items))
    leak[table.starts[:-1] + table.chosen] = 1.0
    with pytest.raises(DataError, match="leak tells the response of nearly every customer"):
        LoggedAssortment(trips(leak=leak), outside="car")
    # the same for all alternatives of a set is no copy
    LoggedAssortment(trips(of_set=np.repeat(rng.normal(size=400), 3)), outside="car")


def test_one_price_between_purchases_and_refusals_is_refused() -> None:
    price = np.random.default_rng(0).uniform(1, 5, 600)
    with pytest.raises(DataError, match="one price separates purchases from refusals"):
        priced({"price": price, "bought": (price < 2.5).astype(int)})


def test_customers_must_be_enough_for_the_coefficients() -> None:
    rng = np.random.default_rng(0)
    many = {f"x{k}": rng.normal(size=79) for k in range(6)}
    with pytest.raises(DataError, match="79 customers are too few for 8 coefficients"):
        priced(quotes(79, **many))
    with pytest.raises(DataError, match="49 customers are too few for 2 coefficients"):
        priced(quotes(49))
    priced(quotes(80, seed=1, **{f"x{k}": rng.normal(size=80) for k in range(6)}))


def test_single_values_and_long_tails_set_no_scale() -> None:
    rng = np.random.default_rng(0)
    plain = rng.uniform(0, 1, 1_000)
    check_outliers(plain, "x", "t")
    check_tail(plain, "x", "t")
    for odd in (-500.0, 500.0):
        with pytest.raises(DataError, match=rf"x is {odd:g} in some row, and from .* in 98%"):
            check_outliers(np.append(plain, odd), "x", "t")
    tail = np.exp(rng.normal(0, 3, 1_000))
    with pytest.raises(DataError, match=r"largest values alone set the scale: give log_scale"):
        check_tail(tail, "x", "t")
    with pytest.raises(DataError, match="one demand curve cannot hold for such prices"):
        check_tail(tail, "price", "t")
    # the most frequent value, if it is half of all, does not count
    check_tail(np.concatenate([np.zeros(3_000), plain]), "x", "t")
    with pytest.raises(DataError, match="largest values alone"):
        check_tail(np.concatenate([np.zeros(3_000), tail]), "x", "t")
    for column, said in ((np.append(plain[:-1], 500.0), "in some row"), (tail, "alone set")):
        scale(column[:, None], ["x"], {"x": (0.0, float(column.max()))}, "t")
        with pytest.raises(DataError, match=said):
            scale(column[:, None], ["x"], None, "t")


def test_bounds_and_scales_must_fit_the_values() -> None:
    column = np.linspace(1.0, 2.0, 1_000)[:, None]
    for bounds, said in (
        ((1.2, 2.0), "20% of the values lie outside"),
        ((-2_000.0, 2_000.0), "over 1,000 times as wide"),
        ((2.0, 1.0), "must be finite and increasing"),
    ):
        with pytest.raises(ParameterError, match=said):
            scale(column, ["x"], {"x": bounds}, "t")
    _, _, notes = scale(column, ["x"], {"x": (1.02, 2.0)}, "t")
    assert notes == ["x: 2.00% of the values are clipped to the bounds"]
    with pytest.raises(ParameterError, match="bounds of"):
        scale(column, ["x"], {"y": (0.0, 1.0)}, "t")
    with pytest.raises(ParameterError, match="negative values or bounds"):
        scale(column - 1.5, ["x"], None, "t", ["x"])
    with pytest.raises(ParameterError, match="negative values or bounds"):
        scale(column, ["x"], {"x": (-1.0, 3.0)}, "t", ["x"])
    with pytest.raises(ParameterError, match="log_scale"):
        scale(column, ["price"], None, "t", ["price"])
    with pytest.raises(ParameterError, match="no interval: leave out what never varies"):
        scale(np.ones((50, 1)), ["x"], None, "t")


def test_items_and_coefficients_have_limits() -> None:
    with pytest.raises(DataError, match="only 0 was shown: nothing to choose"):
        clicked(shown(items=1))
    with pytest.raises(ParameterError, match="300 items with 4 coefficients each are more than"):
        rng = np.random.default_rng(0)
        clicked(shown(items=300, **{f"x{k}": rng.normal(size=2_000) for k in range(3)}))


def test_revenues_differ_in_sets_and_are_positive() -> None:
    table = trips(fee=np.repeat(np.random.default_rng(0).uniform(1, 2, 400), 3))
    with pytest.raises(ParameterError, match="fee does not differ between the items of a set"):
        LoggedAssortment(table, outside="car", revenue="fee")
    below = trips(margin=np.random.default_rng(0).uniform(-2, 1, 1_200))
    with pytest.raises(DataError, match=r"margin is negative or 0|with the price"):
        LoggedAssortment(below, outside="car", revenue="margin")
    fixed = trips(margin=np.tile([1.0, -2.0, 1.0], 400))
    with pytest.raises(DataError, match="margin is negative or 0"):
        LoggedAssortment(fixed, outside="car", revenue="margin")
    with pytest.raises(ParameterError, match="cost is the revenue, whose effect is linear"):
        LoggedAssortment(trips(), outside="car", revenue="cost", log_scale=["cost"])
    with pytest.raises(DataError, match="every set has a choice"):
        LoggedAssortment(trips(), revenue="cost")


def test_penalties_that_move_a_rate_or_an_effect_are_doubts() -> None:
    heavy = clicked(shown(), ridge=1e5)
    assert any("the penalty moves the rates of items" in doubt for doubt in heavy.doubts)
    assert not any("penalty" in doubt for doubt in clicked(shown(), ridge=0.01).doubts)
    assert moved_doubt(priced(quotes()).effects, "") == []
    far, near = Effect(-1.0, 0.1, -2.0, 0.9), Effect(-1.0, 0.1, -1.2, 0.3)
    assert far.moved and not near.moved and not Effect(-1.0, 0.1, None, None).moved
    (doubt,) = moved_doubt({"near": near, "far": far}, "Mend it")
    assert doubt.startswith("the penalty moves far: -1 with it, -2 (95% interval -3.76 to -0.236)")
    assert doubt.endswith("more than one standard error. Mend it")


def test_wrong_propensities_are_a_doubt() -> None:
    wrong = clicked(shown(p=np.full(2_000, 0.5)))
    assert any(doubt.startswith("wrong propensities: the mean of 1 /") for doubt in wrong.doubts)
    assert not any("propensities" in doubt for doubt in clicked(shown()).doubts)


def test_persons_with_several_rows_widen_the_intervals() -> None:
    rng = np.random.default_rng(3)
    own = np.repeat(rng.normal(0, 1.5, 60), 20)
    price = np.repeat(rng.uniform(1, 5, 60), 20) + rng.uniform(-0.1, 0.1, 1_200)
    frame = {"price": price, "bought": (rng.random(1_200) < sigmoid(2.5 + own - price)).astype(int)}
    wide = priced({**frame, "household": np.repeat(np.arange(60), 20)}).effects["price"].error
    assert wide > 1.5 * priced(frame).effects["price"].error


def test_rows_of_few_persons_are_held_out_one_by_one() -> None:
    """Otherwise no customer remains to be fitted to, or nearly none."""
    for count in (1, 3):
        frame = quotes(household=np.arange(600) % count)
        assert priced(frame).fit.figures["held_out_rows"] == 120
    several = priced(quotes(household=np.arange(600) % 50)).fit
    assert (
        several.figures["held_out_rows"] == 120 and len({*np.flatnonzero(several.held) % 50}) == 10
    )


def test_draws_of_demand_do_not_rise_with_the_price() -> None:
    rng = np.random.default_rng(5)
    for seed in range(20):
        price = rng.uniform(1, 5, 100)
        bought = (rng.random(100) < sigmoid(0.2 - 0.15 * price)).astype(int)
        try:
            problem = priced({"price": price, "bought": bought})
        except DataError:
            continue
        assert (problem.fit.draws(200)[:, -1] < 0).any() and (
            problem.posterior(200)[:, -1] > 0
        ).all()
        data = dpb_data.prices({"price": price, "bought": bought})
        doubts = log_checks.model_warnings(problem, data)
        assert any("not distinguishable from none" in doubt for doubt in doubts), seed
        return
    raise AssertionError("no log with a flat demand")


def test_models_that_predict_nothing_are_doubts() -> None:
    frame = quotes()
    problem = priced(frame)
    table = dpb_data.prices(frame)
    assert not log_checks.model_warnings(problem, table)
    rng = np.random.default_rng(7)
    for seed in range(20):
        coin = {"price": rng.uniform(1, 5, 200), "bought": rng.integers(0, 2, 200)}
        try:
            problem = priced(coin)
        except DataError:
            continue
        if not problem.fit.informed:
            said = log_checks.model_warnings(problem, dpb_data.prices(coin))
            assert "the model predicts held-out customers no better than a constant" in said, seed
            return
    raise AssertionError("every coin was predicted")


def test_the_share_of_ordered_pairs_counts_ties_as_half() -> None:
    rng = np.random.default_rng(0)
    for _ in range(100):
        values = rng.integers(0, 5, rng.integers(3, 25)).astype(float)
        hit = rng.random(len(values)) < 0.5
        pairs = [(a > b) + 0.5 * (a == b) for a in values[hit] for b in values[~hit]]
        expected = float(np.mean(pairs)) if pairs else 0.5
        assert order_share(values, hit) == pytest.approx(expected, abs=1e-12)


def test_demand_that_does_not_fall_is_refused_without_significance() -> None:
    for value, said in ((0.1, "do not fall"), (0.0, "do not fall"), (3.0, "rise")):
        with pytest.raises(DataError, match=f"a: purchases {said} with the price"):
            check_falls(Effect(value, 1.0, None, None), "purchases", "a", "")
    check_falls(Effect(-0.1, 1.0, None, None), "purchases", "a", "")


@pytest.mark.slow
def test_the_error_of_a_figure_contains_the_difference_between_penalties() -> None:
    """It is the root mean square deviation of the mixture's draws from the reported figure."""
    own = [(0.7, 1.0, 16.0), (0.3, 3.0, 4.0)]
    members = [Member(w, np.array([c]), np.array([[i]]), np.zeros(1)) for w, c, i in own]
    one, none = np.ones(1), np.zeros(1, bool)
    fit = Fit(np.array([1.0]), ("x",), {}, (), (), none, one, one, none, none,
              np.array([[16.0]]), np.zeros(1), tuple(members))  # fmt: skip
    (effect,) = fit.effects(lambda theta: 2.0 * theta)
    draws = 2.0 * fit.draws(20_000)[:, 0]
    assert effect.value == 2.0
    assert effect.error == pytest.approx(np.sqrt(np.mean((draws - 2.0) ** 2)), rel=0.02)
    assert effect.error**2 == pytest.approx(0.7 * 0.25 + 0.3 * (1.0 + 16.0))


@pytest.mark.slow
def test_draws_for_persons_with_several_rows_have_the_sandwich_covariance() -> None:
    """Liang & Zeger (1986): inverse information, covariance of the scores, inverse information."""
    information, penalty = np.array([[9.0, 0.0], [2.0, 4.0]]), np.array([0.0, 1.0])
    scores = np.array([[30.0, 5.0], [5.0, 12.0]])
    member = Member(1.0, np.array([1.0, -2.0]), information, penalty)
    one, none = np.ones(1), np.zeros(1, bool)
    fit = Fit(member.coefficients, ("x", "y"), {}, (), (), none, one, one, none, none, information,
              penalty, (member,), variation=scores)  # fmt: skip
    whole = np.array([[9.0, 2.0], [2.0, 5.0]])
    expected = np.linalg.inv(whole) @ scores @ np.linalg.inv(whole)
    draws = fit.draws(20_000)
    np.testing.assert_allclose(draws.mean(axis=0), member.coefficients, atol=0.03)
    np.testing.assert_allclose(np.cov(draws.T), expected, rtol=0.05, atol=0.01)


def test_no_penalty_moves_the_effect_of_the_revenue() -> None:
    rng = np.random.default_rng(0)
    n = 500
    cost, comfort = rng.uniform(1.0, 5.0, (2, n, 3))
    took = (0.8 * comfort - cost + rng.gumbel(size=(n, 3))).argmax(axis=1)
    frame = {"set": np.repeat(np.arange(n), 3), "alt": np.tile(["a", "b", "c"], n),
             "cost": cost.ravel(), "comfort": comfort.ravel(),
             "chosen": (np.arange(3) == took[:, None]).ravel()}  # fmt: skip
    table = dpb_data.choices(
        frame, case="set", item="alt", chosen="chosen", features=["cost", "comfort"]
    )
    without = dpb_data.choices(frame, case="set", item="alt", chosen="chosen", features=["cost"])
    loose = LoggedAssortment(without, outside="a", revenue="cost").effects["cost"].value
    strict = LoggedAssortment(table, outside="a", revenue="cost", ridge=1e6).effects["cost"].value
    assert strict == pytest.approx(loose, rel=1e-3)


def lognormal_values(n: int, seed: int) -> dict[str, Any]:
    """Return quotes to customers whose highest acceptable price is lognormal."""
    rng = np.random.default_rng(seed)
    price, x = rng.uniform(2.0, 9.0, n), rng.uniform(-1.0, 1.0, n)
    value = np.exp(1.5 + 0.2 * x + 0.4 * rng.normal(size=n))
    return {"price": price, "x": x, "bought": (value > price).astype(int)}


@pytest.mark.slow
def test_demand_of_another_form_in_the_price_is_doubted() -> None:
    said = "misspecified: the effect of the price is not the same at low and at high prices"
    doubted = [any(said in doubt for doubt in priced(lognormal_values(5_000, k)).doubts)
             for k in range(8)]  # fmt: skip
    assert all(doubted)
    right = [priced(quotes(800, seed=k)).doubts for k in range(60)]
    assert sum(any(said in doubt for doubt in doubts) for doubts in right) <= 1, "at p = 0.001"


def test_the_form_of_demand_is_tested_as_by_a_likelihood_ratio() -> None:
    frame = lognormal_values(4_000, 3)
    problem = priced(frame)
    x = np.column_stack([problem.rows, np.log(frame["price"])]).astype(float)
    x[:, 1:] -= x[:, 1:].mean(axis=0)
    sign = np.where(frame["bought"] == 1, -1.0, 1.0)

    def loss(columns: Any) -> float:
        own = x[:, columns]
        best = minimize(lambda b: np.logaddexp(0.0, sign * (own @ b)).sum(), np.zeros(own.shape[1]),
                        method="BFGS", options={"gtol": 1e-4})  # fmt: skip
        return float(best.fun)

    ratio = np.sqrt(2.0 * (loss([0, 1, 2]) - loss([0, 1, 2, 3])))
    score = price_form(problem.rows, problem.fit.coefficients, frame["bought"], None)
    assert abs(score) == pytest.approx(ratio, rel=0.15)
    twice = np.repeat(np.arange(2_000), 2)
    same = price_form(np.repeat(problem.rows[:2_000], 2, axis=0), problem.fit.coefficients,
                      np.repeat(frame["bought"][:2_000], 2), twice)  # fmt: skip
    alone = price_form(
        problem.rows[:2_000], problem.fit.coefficients, frame["bought"][:2_000], None
    )
    assert same == pytest.approx(alone, rel=1e-6), "a person's second equal row adds nothing"
    two = np.column_stack([np.ones(400), -np.tile([0.5, 1.0], 200)])
    assert price_form(two, np.zeros(2), np.arange(400) % 3 == 0, None) == 0.0
