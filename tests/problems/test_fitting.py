"""Fits of logs beside independent maximum likelihood, with intervals and their coverage."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize

import dpb_data
from dpb_gym.errors import DataError, ParameterError
from dpb_gym.problems.fitting import RIDGES, fit_log, scale
from dpb_gym.problems.log_likelihood import ChoiceSets, ItemBlocks
from dpb_gym.problems.logged import LoggedAssortment, LoggedPricing, LoggedRecommendation


def quotes(
    n: int, low: float, high: float, level: float, slope: float, seed: int, **more: Any
) -> dict[str, Any]:
    rng = np.random.default_rng(seed)
    price = rng.uniform(low, high, n)
    chance = 1 / (1 + np.exp(-(level - slope * price)))
    return {"price": price, "bought": (rng.random(n) < chance).astype(int), **more}


def logit(x: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return maximum-likelihood coefficients and their covariance, by a general optimiser."""
    centre, width = x.mean(axis=0), x.std(axis=0)
    design = np.column_stack([np.ones(len(x)), (x - centre) / width])

    def loss(b: np.ndarray) -> float:
        u = design @ b
        return float(np.logaddexp(0, u).sum() - u @ y)

    best = minimize(loss, np.zeros(design.shape[1]), tol=1e-10).x
    p = 1 / (1 + np.exp(-design @ best))
    covariance = np.linalg.inv((design * (p * (1 - p))[:, None]).T @ design)
    back = np.diag(np.append(1.0, 1.0 / width))
    back[0, 1:] = -centre / width
    return back @ best, back @ covariance @ back.T


@pytest.mark.parametrize(("low", "high", "level", "slope"), [
    (90, 110, 1.2, 0.02), (2, 4, 2.0, 1.2), (0.5, 9.0, 1.5, 0.55), (9.8, 10.2, 4.0, 0.5),
])  # fmt: skip
def test_price_effects_and_errors_are_those_of_maximum_likelihood(
    low: float, high: float, level: float, slope: float
) -> None:
    frame = quotes(3000, low, high, level, slope, 1)
    best, covariance = logit(frame["price"][:, None], frame["bought"])
    effect = LoggedPricing(dpb_data.prices(frame)).effects["price"]
    error = np.sqrt(covariance[1, 1])
    assert effect.value == pytest.approx(best[1], abs=0.01 * error)
    assert effect.error == pytest.approx(error, rel=0.01)
    assert effect.plain == pytest.approx(best[1], abs=0.01 * error)
    assert effect.interval[0] == pytest.approx(best[1] - 1.96 * error, abs=0.02 * error)


def test_the_elasticity_and_its_error_follow_from_the_likelihood() -> None:
    frame = quotes(2000, 3, 9, 2.0, 0.5, 3)
    best, covariance = logit(frame["price"][:, None], frame["bought"])

    def elasticity(b: np.ndarray) -> float:
        return float(np.mean(b[1] * frame["price"] / (1 + np.exp(b[0] + b[1] * frame["price"]))))

    draws = np.random.default_rng(0).multivariate_normal(best, covariance, 4000)
    spread = np.std([elasticity(b) for b in draws])
    problem = LoggedPricing(dpb_data.prices(frame))
    effect = problem.effects["elasticity"]
    assert effect.plain == pytest.approx(elasticity(best), abs=1e-3)
    assert effect.plain_error == pytest.approx(spread, rel=0.05)
    assert problem.elasticity == pytest.approx(elasticity(best), abs=1e-3)
    low, high = effect.interval
    assert low < effect.value < high and spread < effect.error < 3.0 * spread


@pytest.mark.slow
@pytest.mark.parametrize("width", [0.1, 1.0])
def test_intervals_of_the_elasticity_hold_in_generated_logs(width: float) -> None:
    """Of 40 logs, at least 34 hold the truth (nominal 38), with and without noise features."""
    held = []
    for seed in range(40):
        rng = np.random.default_rng(1000 + seed)
        noise = {f"x{k}": rng.normal(size=1000) for k in range(3)}
        frame = quotes(1000, 10 - 5 * width, 10 + 5 * width, 3.0, 0.4, seed, **noise)
        try:
            problem = LoggedPricing(dpb_data.prices(frame, features=list(noise)))
        except DataError:  # demand that rises by chance is refused
            held.append(True)
            continue
        low, high = problem.effects["price"].interval
        held.append(low <= -0.4 <= high)
    assert sum(held) >= 34


@pytest.mark.slow
def test_persons_with_several_rows_widen_intervals() -> None:
    rng, covered, alone = np.random.default_rng(7), 0, 0
    for _ in range(40):
        people = np.repeat(np.arange(50), 20)
        usual = rng.uniform(3, 9, 50)  # prices differ between persons more than within
        price = usual[people] + rng.uniform(-0.2, 0.2, 1000)
        level = 3.0 + rng.normal(0, 1.5, 50)[people]
        bought = (rng.random(1000) < 1 / (1 + np.exp(0.5 * price - level))).astype(int)
        frame = {"price": price, "bought": bought, "who": people}
        errors = []
        for person in ("who", None):
            table = dpb_data.prices(frame, person=person)
            try:
                effect = LoggedPricing(table).effects["price"]
            except DataError:
                break
            errors.append(effect.error)
        if len(errors) == 2:
            covered += errors[0] > 1.5 * errors[1]
            alone += 1
    assert alone > 30 and covered > 0.9 * alone


def test_the_penalty_is_chosen_by_the_likelihood_of_other_customers() -> None:
    """Noise gets a large penalty, strong effects a small one, and the price none."""
    rng = np.random.default_rng(2)
    chosen = {}
    for strength in (0.0, 1.0):
        x = rng.normal(size=(1500, 12))
        price = rng.uniform(1, 9, 1500)
        weights = strength * np.where(np.arange(12) % 2, 1.0, -1.0)
        u = 2 - 0.4 * price + x @ weights
        frame = {f"x{k}": column for k, column in enumerate(x.T)}
        frame |= {"price": price, "bought": (rng.random(1500) < 1 / (1 + np.exp(-u))).astype(int)}
        fit = LoggedPricing(dpb_data.prices(frame, features=[f"x{k}" for k in range(12)])).fit
        chosen[strength] = fit.figures["penalty"]
        assert fit.penalty[-1] < 1e-5 and fit.penalty[0] < 1e-5
        again = LoggedPricing(dpb_data.prices(frame, features=[f"x{k}" for k in range(12)])).fit
        np.testing.assert_array_equal(fit.coefficients, again.coefficients)
    assert chosen[0.0] >= 100.0 and chosen[1.0] <= 10.0
    assert set(chosen.values()) <= set(RIDGES)


def test_the_unit_of_a_column_does_not_change_the_fit() -> None:
    rng = np.random.default_rng(5)
    frame = quotes(800, 1, 9, 2.0, 0.5, 4, age=rng.uniform(20, 80, 800))
    first = LoggedPricing(dpb_data.prices(frame, features=["age"]))
    cents = {**frame, "price": 100 * frame["price"], "age": 1e4 * frame["age"]}
    other = LoggedPricing(dpb_data.prices(cents, features=["age"]))
    assert other.elasticity == pytest.approx(first.elasticity, rel=1e-5)
    wide = {"age": (0.0, 2000.0)}
    declared = LoggedPricing(dpb_data.prices(frame, features=["age"]), bounds=wide)
    assert declared.elasticity == pytest.approx(first.elasticity, rel=1e-4)


def test_a_penalty_that_moves_the_elasticity_is_a_doubt() -> None:
    rng = np.random.default_rng(6)
    income = rng.normal(size=3000)
    price = 5 + income + rng.uniform(-1, 1, 3000)
    u = 1.0 - 0.8 * (price - 5) + 1.2 * income
    frame = {"price": price, "income": income,
             "bought": (rng.random(3000) < 1 / (1 + np.exp(-u))).astype(int)}  # fmt: skip
    table = dpb_data.prices(frame, features=["income"])
    plain = LoggedPricing(table)
    assert plain.doubts == () and plain.effects["price"].value == pytest.approx(-0.8, abs=0.2)
    moved = LoggedPricing(table, ridge=300.0)
    assert len(moved.doubts) == 1
    assert moved.doubts[0].startswith("the penalty moves the mean price elasticity: ")
    assert "more than one standard error" in moved.doubts[0]


@pytest.mark.parametrize(("rows", "base", "error"), [
    (150, False, r"none of the 150 rows with group=b was chosen"),
    (150, True, r"none of the 150 rows with group other than b was chosen"),
    (4, False, None),
])  # fmt: skip
def test_groups_that_never_buy_are_refused_or_doubted(
    rows: int, base: bool, error: str | None
) -> None:
    frame = quotes(1000, 1, 9, 2.0, 0.5, 8)
    never = np.arange(1000) < rows
    frame["bought"] = np.where(never, 0, frame["bought"])
    frame["group"] = np.where(never != base, "b", "a")
    table = dpb_data.prices(frame, features=["group"])
    if error:
        with pytest.raises(DataError, match=error):
            LoggedPricing(table)
        return
    (doubt,) = LoggedPricing(table).doubts
    assert doubt.startswith("separated: none of the 4 rows with group=b was chosen")


def test_a_column_recorded_after_some_purchases_is_refused() -> None:
    frame = quotes(1000, 1, 9, 2.0, 0.5, 9)
    rng = np.random.default_rng(0)
    some = (frame["bought"] == 1) & (rng.random(1000) < 0.6)
    frame["basket"] = np.where(some, rng.uniform(1, 5, 1000), 0.0)
    with pytest.raises(DataError, match=r"customers with some values of basket bought"):
        LoggedPricing(dpb_data.prices(frame, features=["basket"]))


def test_columns_that_nearly_depend_on_each_other_are_no_separation() -> None:
    frame = quotes(2000, 1, 9, 2.0, 0.5, 10)
    rng = np.random.default_rng(0)
    frame["tier"] = rng.normal(size=2000)
    frame["copy"] = frame["tier"] + 1e-4 * rng.normal(size=2000)
    problem = LoggedPricing(dpb_data.prices(frame, features=["tier", "copy"]))
    assert problem.doubts == () and problem.fit.plain is not None


@settings(max_examples=20, deadline=None)
@given(st.integers(0, 10**6))
def test_separation_is_found_whenever_a_linear_programme_finds_it(seed: int) -> None:
    """Independent rule: a direction with no negative and some positive margins exists."""
    from scipy.optimize import linprog

    rng = np.random.default_rng(seed)
    n = 60
    x = np.column_stack([np.ones(n), rng.integers(0, 2, (n, 3))]).astype(np.float32)
    y = rng.random(n) < np.where(x[:, 1] == 1, 0.04, 0.5)
    if y.min() == y.max() or np.linalg.matrix_rank(x) < 4:
        return
    signed = x * np.where(y, 1.0, -1.0)[:, None]
    optimum = linprog(-signed.sum(axis=0), A_ub=-signed, b_ub=np.zeros(n), bounds=(-1, 1))
    separated = -optimum.fun > 1e-6
    data = ChoiceSets(x, np.arange(n + 1), np.where(y, 0, -1))
    names = ("intercept", "a", "b", "c")
    try:
        fit = fit_log(data, None, 1.0, np.array([0, 0.5, 0.5, 0.5]), names, (), "t")
    except DataError as error:
        assert separated and "separated" in str(error)
    else:
        assert separated == (fit.plain is None)


def test_a_feature_with_a_long_tail_asks_for_its_logarithm() -> None:
    frame = quotes(1000, 1, 9, 2.0, 0.5, 11)
    rng = np.random.default_rng(0)
    frame["amount"] = np.exp(rng.normal(4.6, 2.2, 1000))
    table = dpb_data.prices(frame, features=["amount"])
    with pytest.raises(DataError, match=r"give log_scale=\['amount'\], or bounds="):
        LoggedPricing(table)
    problem = LoggedPricing(table, log_scale=("amount",))
    assert any("logarithmic scale" in note for note in problem.fit.notes)
    x = np.array([[0.0], [9.0], [99.0]])
    scaled, used, _ = scale(x, ("amount",), {"amount": (0, 99)}, "t", ("amount",))
    assert scaled[:, 0].tolist() == pytest.approx([-1.0, 0.0, 1.0]) and used["amount"] == (0, 99)
    with pytest.raises(ParameterError, match="log_scale must be one of"):
        LoggedPricing(table, log_scale=("price",))
    skewed = {**frame, "price": np.exp(rng.normal(2, 2.2, 1000))}
    with pytest.raises(DataError, match="one demand curve cannot hold for such prices"):
        LoggedPricing(dpb_data.prices(skewed))


# ----------------------------------------------------------------------------------- choices


def choices(n: int, slope: float, seed: int, income: bool = False) -> dict[str, Any]:
    """Return choices among a, b and c; income makes b and c more or less likely."""
    rng = np.random.default_rng(seed)
    cost = rng.uniform(1, 6, (n, 3))
    wealth = rng.normal(size=n)
    u = slope * cost + np.array([0.0, 0.5, -0.3])
    if income:
        u += wealth[:, None] * np.array([0.0, 0.8, -0.6])
    took = (u + rng.gumbel(size=u.shape)).argmax(axis=1)
    return {
        "set": np.repeat(np.arange(n), 3), "alt": np.tile(["a", "b", "c"], n),
        "cost": cost.ravel(), "income": np.repeat(wealth, 3),
        "took": (np.arange(3) == took[:, None]).astype(int).ravel(),
    }  # fmt: skip


def conditional(frame: dict[str, Any], income: bool) -> tuple[np.ndarray, np.ndarray]:
    """Return (cost, b, c[, income b, income c]) by maximum likelihood, and standard errors."""
    n = len(frame["set"]) // 3
    cost, took = frame["cost"].reshape(n, 3), frame["took"].reshape(n, 3).argmax(axis=1)
    parts = [cost[:, :, None], np.broadcast_to(np.eye(3)[:, 1:], (n, 3, 2))]
    if income:
        parts.append(frame["income"].reshape(n, 3)[:, :, None] * np.eye(3)[None, :, 1:])
    x = np.concatenate(parts, axis=2)

    def loss(b: np.ndarray) -> float:
        u = x @ b
        return float(np.log(np.exp(u).sum(axis=1)).sum() - u[np.arange(n), took].sum())

    best = minimize(loss, np.zeros(x.shape[2]), tol=1e-10).x
    p = np.exp(x @ best)
    p /= p.sum(axis=1, keepdims=True)
    mean = np.einsum("ni,nid->nd", p, x)
    inner = np.einsum("ni,nid,nie->de", p, x, x) - mean.T @ mean
    return best, np.sqrt(np.linalg.inv(inner).diagonal())


@pytest.mark.parametrize("income", [False, True])
def test_choices_have_the_effects_of_an_independent_conditional_logit(income: bool) -> None:
    frame = choices(1500, -0.7, 1, income)
    columns = {"case": "set", "item": "alt", "chosen": "took"}
    features = ["cost", "income"] if income else ["cost"]
    table = dpb_data.choices(frame, features=features, **columns)
    problem = LoggedAssortment(table, outside="a", revenue="cost", ridge=1e-3)
    best, errors = conditional(frame, income)
    effect = problem.effects["cost"]
    assert effect.value == pytest.approx(best[0], abs=0.02 * errors[0])
    assert effect.error == pytest.approx(errors[0], rel=0.02)
    assert problem.doubts == ()
    if income:  # a column of the customer has an effect per item
        low, high = problem.bounds["income"]
        named = dict(zip(problem.fit.names, problem.fit.coefficients))
        for k, item in enumerate("bc"):
            slope = named[f"income: {item}"] * 2.0 / (high - low)
            assert slope == pytest.approx(best[3 + k], abs=0.1 * errors[3 + k])
        assert any("income: the same for all items of a set" in n for n in problem.fit.notes)


def test_missing_items_have_the_customers_own_attributes() -> None:
    frame = {k: np.asarray(v) for k, v in choices(900, -0.7, 3, income=True).items()}
    gone = (frame["alt"] == "c") & (frame["took"] == 0) & (frame["set"] % 2 == 0)
    table = dpb_data.choices({k: v[~gone] for k, v in frame.items()}, case="set", item="alt",
                             chosen="took", features=["cost", "income"])  # fmt: skip
    problem = LoggedAssortment(table, outside="a", revenue="cost")
    k = problem.fit.names.index("income: c")
    low, high = problem.bounds["income"]
    own = 2 * (frame["income"][::3] - low) / (high - low) - 1
    np.testing.assert_allclose(problem._contexts[:, 1, k], own, atol=1e-6)
    assert (problem._contexts[:, 0, k] == 0.0).all()


def test_choices_that_rise_with_the_price_are_refused_as_purchases_are() -> None:
    frame = choices(500, 0.5, 2)
    table = dpb_data.choices(frame, case="set", item="alt", chosen="took", features=["cost"])
    with pytest.raises(DataError, match=r"choices rise with the price \(coefficient \+0\."):
        LoggedAssortment(table, outside="a", revenue="cost")
    LoggedAssortment(table, outside="a")  # without a revenue there is no price
    rising = quotes(500, 1, 5, -1.0, -0.5, 3)
    with pytest.raises(DataError, match=r"purchases rise with the price \(coefficient \+0\."):
        LoggedPricing(dpb_data.prices(rising))


def test_an_item_that_is_never_chosen_is_refused() -> None:
    frame = choices(300, -0.7, 2)
    sets = frame["took"].reshape(-1, 3)
    sets[sets[:, 2] == 1] = [1, 0, 0]
    table = dpb_data.choices(frame, case="set", item="alt", chosen="took", features=["cost"])
    with pytest.raises(DataError, match="none of the 300 rows with is c was chosen"):
        LoggedAssortment(table, outside="a")


# ------------------------------------------------------------------------------ recommendations


def test_item_blocks_have_the_likelihood_of_one_wide_model() -> None:
    rng = np.random.default_rng(0)
    n, m, w = 400, 3, 2
    x = np.column_stack([np.ones(n), rng.normal(size=n)]).astype(np.float32)
    items, choice = rng.integers(0, m, n), rng.integers(-1, 1, n)
    wide = np.zeros((n, m, w), np.float32)
    wide[np.arange(n), items] = x
    blocks = ItemBlocks(x, items, choice, m)
    sets = ChoiceSets(wide.reshape(n, -1), np.arange(n + 1), choice)
    penalty = rng.uniform(0.1, 2.0, m * w)
    centre = rng.normal(size=m * w)
    ours, information = blocks.fit(penalty, "t", centre)
    other, whole = sets.fit(penalty, "t", centre)
    np.testing.assert_allclose(ours, other, atol=1e-6)
    np.testing.assert_allclose(np.tril(information), np.tril(whole), atol=1e-4)
    np.testing.assert_allclose(blocks.likelihoods(ours), sets.likelihoods(ours), atol=1e-6)
    people = rng.integers(0, 50, n)
    whole = sets.variation(ours, people).reshape(m, w, m, w)
    within = blocks.variation(ours, people).reshape(m, w, m, w)
    for k in range(m):
        np.testing.assert_allclose(within[k, :, k], whole[k, :, k], rtol=0.1)
        assert not within[k, :, (k + 1) % m].any()
    kept = rng.random(n) < 0.5
    assert len(blocks.keep(kept)) == len(sets.keep(kept)) == kept.sum()


def shown(n: int, rates: list[float], seed: int, **changes: Any) -> dict[str, Any]:
    rng = np.random.default_rng(seed)
    item = rng.integers(0, len(rates), n)
    return {
        "ad": item, "click": (rng.random(n) < np.array(rates)[item]).astype(int),
        "p": np.full(n, 1 / len(rates)), **changes,
    }  # fmt: skip


ADS = {"item": "ad", "reward": "click", "propensity": "p"}


def test_rates_of_items_are_pulled_together_only_if_they_are_alike() -> None:
    alike = LoggedRecommendation(dpb_data.clicks(shown(3000, [0.1] * 10, 1), **ADS))
    spread = np.ptp([rate for rate, *_ in alike.rates.values()])
    seen = np.ptp([rate for _, rate, *_ in alike.rates.values()])
    assert spread < 0.3 * seen and alike.doubts == ()
    table = dpb_data.clicks(shown(3000, [0.05, 0.3, 0.6], 2), **ADS)
    apart = LoggedRecommendation(table)
    for rate, observed, low, high in apart.rates.values():
        assert rate == pytest.approx(observed, abs=0.25 * (high - low)) and low < rate < high
    assert apart.doubts == ()
    (doubt,) = LoggedRecommendation(table, ridge=1e5).doubts
    assert doubt.startswith("the penalty moves the rates of items: ")


def test_propensities_that_do_not_fit_the_number_of_items_are_doubted() -> None:
    right = shown(3000, [0.05, 0.3, 0.6], 2)
    assert LoggedRecommendation(dpb_data.clicks(right, **ADS)).doubts == ()
    wrong = {**right, "p": np.full(3000, 0.9)}
    (doubt,) = LoggedRecommendation(dpb_data.clicks(wrong, **ADS)).doubts
    assert doubt.startswith("wrong propensities: the mean of 1 / propensity is 1.111 and should be")


def test_elasticities_contain_the_sampling_of_customers_and_prices() -> None:
    """Against the spread of the mean over days that are drawn again, with known coefficients."""
    rng = np.random.default_rng(0)
    price = rng.choice(np.linspace(2.0, 4.0, 9), 120)
    visitors = rng.poisson(40, 120) + 1
    sold = rng.binomial(visitors, 1 / (1 + np.exp(-(2.0 - price))))
    frame = {"price": price, "units": sold, "visitors": visitors}
    problem = LoggedPricing(dpb_data.prices(frame, bought="units", offered="visitors"))
    own = problem.effects["elasticity"]
    rows = np.column_stack([np.ones(120), -price / problem.highest_price])
    chance = 1 / (1 + np.exp(-rows @ problem.fit.coefficients))
    each = -problem.fit.coefficients[-1] * price / problem.highest_price * (1 - chance)
    drawn = rng.integers(0, 120, (4_000, 120))
    means = (each[drawn] * visitors[drawn]).sum(axis=1) / visitors[drawn].sum(axis=1)
    assert own.sampling == pytest.approx(means.std(), rel=0.05)
    half = 1.96 * np.hypot(own.error, own.sampling)
    assert own.interval == pytest.approx((own.value - half, own.value + half), rel=1e-3)
    assert problem.effects["price"].sampling == 0.0
