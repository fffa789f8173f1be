"""Environments from logs: fit, summary, and errors for unsuitable logs."""

from __future__ import annotations

import io
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from queue import Queue
from threading import Event
from typing import Any, ClassVar

import gymnasium as gym
import numpy as np
import pytest
from scipy.optimize import minimize

import dpb_data
import dpb_gym
from dpb_data import synthetic
from dpb_gym import Budget
from dpb_gym.envs.registration import ENVIRONMENTS
from dpb_gym.errors import BudgetError, DataError, DPBError, ParameterError
from dpb_gym.kinds.pricing_kind import pricing_mode
from dpb_gym.problems.fitting import scale
from dpb_gym.problems.log_likelihood import fit_mnl, log_chances
from dpb_gym.problems.logged import (
    LoggedAssortment,
    LoggedPricing,
    LoggedRecommendation,
    _relative,
)
from dpb_gym.problems.released_fit import release_fit
from dpb_gym.progress_lines import progress_lines
from dpb_gym.streams import AgentStreams


@pytest.fixture(autouse=True)
def scratch_ids() -> Iterator[None]:
    """Unregister the ids that a test registers."""
    known = set(ENVIRONMENTS)
    yield
    for env_id in set(ENVIRONMENTS) - known:
        del ENVIRONMENTS[env_id], gym.registry[env_id]


FEATURES = ["term", "score", "channel"]


@pytest.fixture(scope="module")
def loans() -> Any:
    return dpb_data.prices("synthetic-loans", features=FEATURES)


@pytest.fixture(scope="module")
def trips() -> Any:
    return dpb_data.load_choices("synthetic-mode-canada")


def prices(n: int = 400, **changes: Any) -> Any:
    frame = {**synthetic.loans(n), **changes}
    return dpb_data.prices(frame, features=["score"])


# ----------------------------------------------------------------------------------- fitting


@pytest.mark.slow
def test_the_fit_is_the_penalised_maximum_likelihood() -> None:
    """Compare with a general optimiser of the likelihood."""
    rng = np.random.default_rng(0)
    sizes = rng.integers(1, 5, 120)
    starts = np.append(0, np.cumsum(sizes))
    rows = rng.normal(size=(starts[-1], 3)).astype(np.float32)
    choice = np.array([rng.integers(-1, size) for size in sizes])

    def loss(theta: np.ndarray) -> float:
        total = 0.5 * 0.7 * theta @ theta
        for s in range(len(sizes)):
            u = rows[starts[s] : starts[s + 1]].astype(float) @ theta
            total -= (u[choice[s]] if choice[s] >= 0 else 0.0) - np.log1p(np.exp(u).sum())
        return float(total)

    best = minimize(loss, np.zeros(3), tol=1e-12)
    fitted = fit_mnl(rows, starts, choice, 0.7, "t")
    np.testing.assert_allclose(fitted, best.x, atol=1e-5)
    inside, outside = map(np.exp, log_chances(rows, starts, fitted))
    np.testing.assert_allclose(np.add.reduceat(inside, starts[:-1]) + outside, 1.0, atol=1e-12)


@pytest.mark.slow
def test_the_penalty_has_a_centre() -> None:
    rng = np.random.default_rng(4)
    rows, choice = rng.normal(size=(90, 2)).astype(np.float32), rng.integers(-1, 1, 90)
    centre = np.array([1.5, -0.5])

    def loss(theta: np.ndarray) -> float:
        u = rows.astype(float) @ theta
        return float(
            5 * ((theta - centre) ** 2).sum() + np.log1p(np.exp(u)).sum() - u[choice == 0].sum()
        )

    fitted = fit_mnl(rows, np.arange(91), choice, 10.0, "t", centre)
    np.testing.assert_allclose(fitted, minimize(loss, np.zeros(2), tol=1e-12).x, atol=1e-5)


def test_bounds_are_public_where_they_are_declared() -> None:
    x = np.array([[20.0, 1.0], [60.0, 0.0], [95.0, 1.0]])
    scaled, used, notes = scale(x, ("age", "tier=gold"), {"age": (20.0, 100.0)}, "t")
    assert used == {"age": (20.0, 100.0), "tier=gold": (0.0, 1.0)}
    assert scaled[:, 0] == pytest.approx([-1.0, 0.0, 0.875]) and notes == []
    assert scaled[:, 1].tolist() == [1.0, -1.0, 1.0]
    scaled, used, notes = scale(x, ("age", "tier=gold"), {}, "t")
    assert used["age"] == (20.0, 95.0)
    assert scaled[:, 0].tolist() == pytest.approx([-1.0, 1 / 15, 1.0])
    assert "bounds of age were read off the table" in notes[0] and "tier" not in notes[0]
    with pytest.raises(ParameterError, match=r"bounds of \['agee'\]: the features are age"):
        scale(x, ("age", "tier=gold"), {"agee": (0, 1)}, "t")
    for bounds in ((5.0, 5.0), (9.0, 1.0), (0.0, float("inf"))):
        with pytest.raises(ParameterError, match="bounds of age must be finite and increasing"):
            scale(x, ("age", "tier=gold"), {"age": bounds}, "t")


# ----------------------------------------------------------------------------------- pricing


def test_the_environment_responds_with_the_fitted_demand(loans: Any) -> None:
    problem = LoggedPricing(loans, horizon=300)
    assert float(np.linalg.norm(problem.theta)) == pytest.approx(1.0)
    instance = problem.instance([0, 1])
    x = instance.context().features.astype(float)
    price = np.array([0.3, 0.8])
    logit = x @ problem.fit.coefficients[:-1] - problem.fit.coefficients[-1] * price
    expected = price / (1.0 + np.exp(-logit))
    np.testing.assert_allclose(instance.respond(price).expected, expected, rtol=1e-5)
    # The generating model is recovered: utility 3.4 - .55 rate - ..., rate up to 12.
    names = dict(zip(problem.fit.names, problem.fit.coefficients))
    assert names["price"] == pytest.approx(0.55 * 12, rel=0.25)
    assert names["score"] < -0.2 and abs(names["term"]) < 0.2
    assert problem.elasticity < -1.0


def test_customers_repeat_only_after_all_have_arrived() -> None:
    problem = LoggedPricing(prices(100), horizon=250)
    order = problem.draw_hidden(np.random.default_rng(3))["order"]
    assert len(order) == 250
    assert sorted(order[:100]) == sorted(order[100:200]) == list(range(100))
    assert not np.array_equal(order[:100], order[100:200])
    instance = problem.instance([5])
    own = instance.hidden["order"][0]
    for t in range(250):
        np.testing.assert_array_equal(instance.context().features[0], problem._contexts[own[t]])
        if t < 249:
            instance.advance()


class Recorder(dpb_gym.Agent):
    """Plays prices from 0 to 1 and records those that it is told of."""

    seen: ClassVar[list[np.ndarray]] = []

    def begin(self, problem: Any, streams: Any, curator: Any) -> None:
        self._uniforms = streams.uniforms()

    def act(self, context: Any) -> Any:
        return self._uniforms.next()

    def observe(self, context: Any, action: Any, feedback: Any) -> None:
        Recorder.seen.append(np.array(action))


def test_only_prices_within_the_quoted_range_are_played() -> None:
    frame = {**synthetic.loans(600), "price": np.linspace(9.0, 11.0, 600)}
    frame["bought"] = (np.random.default_rng(0).random(600) < 2.2 - 0.17 * frame["price"]) * 1
    log = dpb_gym.from_log(frame, "pricing", horizon=60)
    problem = dpb_gym.make_problem(log)
    low, high = problem.info.price_range or (0.0, 0.0)
    assert (low, high) == (pytest.approx(9 / 11), 1.0)
    # the best price is one of the range: none of a grid in it earns more
    instance = problem.instance([0, 1])
    best, value = instance.oracle()
    grid = [instance.respond(np.full(2, p)).expected for p in np.linspace(low, high, 200)]
    assert (best >= low).all() and (value >= np.max(grid, axis=0) - 1e-9).all()
    outside = instance.respond(np.array([0.1, 0.5])).expected
    np.testing.assert_array_equal(outside, instance.respond(np.full(2, low)).expected)
    # agents learn from the price that was played, random choices are within the range
    Recorder.seen.clear()
    result = dpb_gym.evaluate(log, {"told": Recorder, "random": "random"}, 60, 2)
    told = np.concatenate(Recorder.seen)
    assert told.min() == low and (told > low).any() and told.max() <= high
    # without the range, random prices below it earn less
    free = dpb_gym.from_log(frame, "pricing", horizon=60, extrapolate=True)
    assert dpb_gym.make_problem(free).info.price_range is None
    everywhere = dpb_gym.evaluate(free, ["random"], 60, 2)
    assert everywhere.final_regret("random").mean() > 1.5 * result.final_regret("random").mean()
    env = gym.make(log)
    assert env.action_space.low[0] == pytest.approx(low)  # type: ignore[attr-defined]
    mode = pricing_mode(problem.info, 3)
    prices = [mode.decode(np.array([k]), 1).item() for k in range(3)]
    assert prices == pytest.approx([low, (low + high) / 2, high])
    session = dpb_gym.serve("random", None, problem.info, noise="seeded", seed=0)
    assert low <= session.decide(np.ones(1))[1] <= high
    with pytest.raises(ParameterError, match="extrapolate belongs to problem="):
        dpb_gym.from_log("synthetic-mode-canada", "assortment", outside="car", extrapolate=True)


LOANS = {"term": (24.0, 84.0), "score": (300.0, 850.0), "price": (0.0, 12.0)}


def test_the_parts_of_a_log_share_its_design(monkeypatch: pytest.MonkeyPatch) -> None:
    from dpb_gym.problems import logged

    made = []
    design = logged._price_design

    def counted(*arguments: Any) -> Any:
        made.append(arguments)
        return design(*arguments)

    monkeypatch.setattr(logged, "_price_design", counted)
    monkeypatch.setattr(logged, "_FITS", type(logged._FITS)())
    data = dpb_data.prices(synthetic.loans(600), features=["term"])
    parts = [LoggedPricing(data, 50, part=part) for part in ("all", "fitted", "held-out")]
    assert len(made) == 1
    assert parts[0].effects == parts[1].effects
    LoggedPricing(data, 50, bounds={"term": (0, 100)})
    LoggedPricing(replace(data, notes=("another",)), 50)
    assert len(made) == 3


def test_a_private_release_hides_the_log_from_agents() -> None:
    table = dpb_data.prices("synthetic-loans", features=["term", "score"])
    raw = LoggedPricing(table, bounds=LOANS)
    near, problem = (LoggedPricing(table, bounds=LOANS, private=b) for b in ("rho=1e7", "rho=1"))
    assert near.fit.coefficients == pytest.approx(raw.fit.coefficients, abs=0.3)
    # The noise is of the operating system: a release is this near in 1 of 400 cases, and all of
    # four independent ones in 1 of 10^10.
    others = [LoggedPricing(table, bounds=LOANS, private="rho=1") for _ in range(3)]
    far = [np.abs(one.fit.coefficients - raw.fit.coefficients).max() for one in (problem, *others)]
    assert max(far) > 0.1
    assert "was released with central zCDP rho=1 per user-round" in problem.info.provisos[0]
    other = replace(table, bought=np.random.default_rng(0).permutation(table.bought))
    again = LoggedPricing(other, bounds=LOANS, private=problem.released)
    assert problem.info.price_range == (0.0, 1.0), "declared, not read off the table"
    assert again.info == problem.info and (again.theta == problem.theta).all()
    assert again.draw_hidden(np.random.default_rng(0))["theta"] is again.theta
    with pytest.raises(ParameterError, match="leave out draws or private"):
        LoggedPricing(table, bounds=LOANS, private="rho=1", draws=4)
    assert (problem.wide_posterior(3) == problem.theta).all(), "the raw log has other draws"
    assert np.ptp(raw.wide_posterior(3), axis=0).min() > 0.0


def test_tests_of_the_raw_rows_are_left_out_with_a_private_release() -> None:
    """Prices that followed demand are refused, but a refusal would tell the rows."""
    rng = np.random.default_rng(0)
    season = np.repeat(rng.normal(size=40), 100)
    price = np.clip(6 + 2 * season + rng.uniform(-2, 2, 4000), 0.1, 12)
    bought = rng.random(4000) < 1 / (1 + np.exp(-(3 + 1.5 * season - 0.8 * price)))
    table = dpb_data.prices({"price": price, "bought": bought.astype(int)}, features=[])
    with pytest.raises(DataError, match="endogenous prices: "):
        LoggedPricing(table, bounds={"price": (0.0, 12.0)})
    problem = LoggedPricing(table, bounds={"price": (0.0, 12.0)}, private="rho=100")
    assert "are not tested with private=, as tests read the raw rows" in problem.doubts[0]


def test_a_private_environment_says_what_was_released() -> None:
    env = dpb_gym.from_log(
        "synthetic-loans", "pricing", features=["term", "score"], bounds=LOANS,
        private="eps=2,delta=1e-6",
    )  # fmt: skip
    problem = dpb_gym.make_problem(env)
    assert "eps=2 at delta=1e-06" in problem.info.provisos[0]
    agent = dpb_gym.make_agent("one-pass-pricing")
    agent.set_up(problem.info, AgentStreams([0]), Budget.parse("rho=1"))
    assert "apart from the log: features are raw, its model was released" in str(
        agent.curator.guarantee
    )
    clicks = dpb_gym.from_log(
        banners(), "recommendation", private="rho=1", bounds={"age": (20, 80)}, **BANNERS
    )
    assert "released with central zCDP rho=1" in dpb_gym.make_problem(clicks).info.provisos[0]


@pytest.mark.parametrize(
    ("changes", "error"),
    [
        ({"bounds": {"term": (24, 84), "price": (0, 12)}}, "needs the bounds of all columns"),
        ({"person": "channel"}, "leave out the column of people"),
        ({"private": 1.0}, "a budget"),
        ({"private": "rho=1@local"}, "private must be a budget"),
    ],
)
def test_what_cannot_be_released_is_rejected(changes: Any, error: str) -> None:
    given = {"features": ["term", "score"], "bounds": LOANS, "private": "rho=1", **changes}
    with pytest.raises((ParameterError, BudgetError), match=error):
        dpb_gym.from_log("synthetic-loans", "pricing", **given)


def test_rows_of_a_release_are_in_the_declared_ball() -> None:
    rows = np.full((100, 4), 1.1, np.float32)
    with pytest.raises(ParameterError, match=r"a row has norm 2.2, above 2"):
        release_fit(rows, np.arange(100) % 2, 2.0, "rho=1")


def test_a_fit_reports_its_quality_on_held_out_people(loans: Any) -> None:
    figures = LoggedPricing(loans).summary()
    assert figures["held_out_log_likelihood"] > figures["held_out_null"] + 0.02
    assert figures["held_out_rows"] == 800 and figures["rows"] == 4000
    calibration = figures["calibration"]
    assert sum(count for _, _, count in calibration) == 800
    assert max(abs(predicted - seen) for predicted, seen, _ in calibration) < 0.12
    assert (
        figures["revenue_per_customer_at_the_models_best"]
        > (figures["revenue_per_customer_in_the_log"])
    )
    rng = np.random.default_rng(1)
    noise = prices(300, bought=rng.integers(0, 2, 300), price=rng.uniform(1, 9, 300))
    try:
        notes = LoggedPricing(noise).summary()["notes"]
    except DataError as error:
        assert "with the price" in str(error)
    else:
        assert any("predicts no better than the mean" in note for note in notes)


def test_people_are_either_fitted_or_held_out() -> None:
    frame = {**synthetic.loans(600), "who": np.arange(600) // 30}
    table = dpb_data.prices(frame, features=["score"], person="who")
    assert LoggedPricing(table).summary()["held_out_rows"] % 30 == 0


def _telling_levels() -> Any:
    """Return indices of levels that tell a purchase together, while none does alone."""
    bought = synthetic.loans(400)["bought"] == 1
    return np.where(bought, 2, np.arange(400) % 2)


@pytest.mark.parametrize(
    ("table", "message"),
    [
        (lambda: prices(20), "20 customers are too few for 3 coefficients: give at least 50"),
        (
            lambda: prices(price=np.full(400, 7.0)),
            "every customer was quoted 7: a single price does not",
        ),
        (lambda: prices(bought=np.ones(400, int)), "every customer bought: there is no variation"),
        (lambda: prices(bought=np.zeros(400, int)), "no customer bought: there is no variation"),
        (lambda: prices(bought=(synthetic.loans(400)["price"] > 8) ^ (np.arange(400) % 9 == 0)),
         "rise with the"),
        (lambda: prices(bought=synthetic.loans(400)["price"] < 8), "one price separates purchases"),
        (lambda: prices(score=np.full(400, 3.0)), "score lies in .* leave out what never varies"),
        (lambda: prices(score=synthetic.loans(400)["bought"]), "score tells the response of"),
        (
            lambda: prices(score=np.array([*("off", "on", "odd")])[_telling_levels()]),
            "the features tell the response of every held-out customer",
        ),
        (lambda: prices(score=np.append(np.arange(399.0), 1e308)), r"score is 1e\+308 in some row"),
        (lambda: prices(price=np.append(np.arange(1.0, 400), 1e308)), "row 399: expected price"),
    ],
)  # fmt: skip
def test_unsuitable_price_logs_are_rejected(table: Any, message: str) -> None:
    with pytest.raises(DPBError, match=message):
        LoggedPricing(table())


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"ridge": "1"}, "ridge must be a finite number"),
        ({"ridge": 0}, "ridge must be"),
        ({"bounds": {"price": "ab"}}, "bounds of price must be"),
        ({"bounds": [("price", 0, 9)]}, r"bounds must be \{name: \(lowest, highest\)\}, got \["),
        (
            {"bounds": {"price": (0, 1)}},
            r"price: 100% of the values lie outside \(0, 1\)",
        ),
        ({"bounds": {"price": (20, 30)}}, r"100% .* are from 3.53 to 12"),
        ({"missing": "guess"}, "missing must be one of"),
    ],
)
def test_settings_that_would_change_the_fit_silently_are_rejected(
    settings: dict[str, Any], message: str
) -> None:
    with pytest.raises(ParameterError, match=message):
        dpb_gym.from_log(synthetic.loans(400), "pricing", **settings)


def test_few_clipped_values_are_reported() -> None:
    bounds = {"price": (0, 11.9)}
    log = dpb_gym.from_log(synthetic.loans(400), "pricing", bounds=bounds)
    assert any("% of the values are clipped to the bounds" in n for n in log.summary()["notes"])


def test_an_attribute_that_marks_the_choice_is_rejected(trips: Any) -> None:
    marked = dpb_data.load_choices("synthetic-mode-canada")
    chosen = np.zeros(len(marked))
    chosen[marked.starts[:-1] + marked.chosen] = 1.0
    copied = np.column_stack([marked.features, 5.0 - 2.0 * chosen])
    table = replace(marked, features=copied, feature_names=(*marked.feature_names, "ticket"))
    with pytest.raises(DataError, match="ticket tells the response of nearly every"):
        LoggedAssortment(table, outside="car")


# -------------------------------------------------------------------------------- assortment


def test_an_outside_option_among_the_items_does_not_change_the_model() -> None:
    """Probabilities with relative attributes equal those of the logit over all alternatives."""
    rng = np.random.default_rng(2)
    sizes = np.array([3, 2, 4, 2, 1])
    starts = np.append(0, np.cumsum(sizes))
    items = np.array([0, 1, 2, 1, 2, 3, 2, 0, 1, 0, 3, 2])
    features = rng.normal(size=(12, 2))
    choice = np.array([2, 0, 2, 1, 0])
    sets, _ = _relative(
        dpb_data.ChoiceTable(
            "sets", starts, items, np.arange(4), features, ("a", "b"), choice, np.arange(5)
        ),
        2,
    )
    assert sets.starts.tolist() == [0, 2, 3, 6], (
        "without the sets that lack item 2 or have it alone"
    )
    assert sets.items.tolist() == [0, 1, 1, 3, 0, 1]
    assert sets.chosen.tolist() == [-1, 0, 1] and sets.people.tolist() == [0, 1, 2]
    theta = np.array([0.4, -1.1])
    inside, outside = map(np.exp, log_chances(2.0 * sets.features, sets.starts, theta))
    for k, s in enumerate((0, 1, 2)):
        part = slice(starts[s], starts[s + 1])
        weight = np.exp(features[part] @ theta)
        weight /= weight.sum()
        reference = items[part] == 2
        np.testing.assert_allclose(outside[k], weight[reference][0], rtol=1e-6)
        own = slice(sets.starts[k], sets.starts[k + 1])
        np.testing.assert_allclose(inside[own], weight[~reference], rtol=1e-6)


def test_assortment_on_real_shaped_choices(trips: Any) -> None:
    problem = LoggedAssortment(trips, horizon=100, outside="car", revenue="cost", capacity=2)
    assert problem.item_ids.tolist() == ["air", "bus", "train"] and problem.info.capacity == 2
    names = dict(zip(problem.fit.names, problem.fit.coefficients))
    span = np.ptp(trips.features[:, 0])
    assert names["cost"] / span == pytest.approx(-0.03, rel=0.25)
    assert names["ivt"] < 0 and names["ovt"] < 0
    figures = problem.summary()
    assert figures["held_out_log_likelihood"] > figures["held_out_null"] + 0.1
    instance = problem.instance([0, 1])
    outcome = instance.respond(np.array([[0, 1], [2, -1]]))
    x = instance.context().features.astype(float)
    u = np.exp(x @ problem.fit.coefficients)
    r = instance.context().revenues
    first = (r[0, 0] * u[0, 0] + r[0, 1] * u[0, 1]) / (1 + u[0, 0] + u[0, 1])
    second = r[1, 2] * u[1, 2] / (1 + u[1, 2])
    np.testing.assert_allclose(outcome.expected, [first, second], rtol=1e-5)
    # an item's usual revenue is its mean cost, in units of the largest
    costs = trips.features[trips.items != trips.item_ids.tolist().index("car"), 0]
    item = trips.item_ids.tolist().index(problem.item_ids[0])
    usual = trips.features[trips.items == item, 0].mean()
    assert problem.revenues[0] * problem.revenue_unit == pytest.approx(usual, rel=0.02)
    assert problem.revenue_unit == costs.max()
    # revenues are the customer's own: the costs of the items of a set
    assert problem.info.reward_range == (0.0, 1.0)
    sets = np.repeat(np.arange(trips.n_sets), np.diff(trips.starts))
    others = np.array([np.any(trips.items[sets == s] != 2) for s in range(trips.n_sets)])
    cars = np.array([np.any(trips.item_ids[trips.items[sets == s]] == "car") for s in range(600)])
    usable = np.flatnonzero(others & cars)
    for b in range(2):
        rows = np.flatnonzero(sets == usable[instance.hidden["order"][b, 0]])
        for row in rows:
            name = trips.item_ids[trips.items[row]]
            if name != "car":
                item = problem.item_ids.tolist().index(name)
                assert r[b, item] * problem.revenue_unit == pytest.approx(trips.features[row, 0])


def test_sets_without_a_choice_are_the_outside_option() -> None:
    frame = synthetic.mode_canada()
    frame["choice"] = [
        0 if mode == "car" and case % 5 else took
        for mode, took, case in zip(frame["alt"], frame["choice"], frame["case"])
    ]
    table = dpb_data.choices(
        frame, case="case", item="alt", chosen="choice", features=["cost", "ivt"]
    )
    problem = LoggedAssortment(table, horizon=60)
    assert len(problem.item_ids) == 4 and problem.info.equal_revenues
    others = [problem.fit.names.index(f"is {item}") for item in ("air", "bus", "train")]
    car = problem.fit.coefficients[problem.fit.names.index("is car")]
    assert car < problem.fit.coefficients[others].max() - 1.0


@pytest.mark.parametrize(
    ("kwargs", "message"),
    [
        ({}, "every set has a choice.*outside=one of"),
        ({"outside": "boat"}, "outside must be one of"),
        ({"outside": "car", "revenue": "fare"}, "revenue must be one of cost, ivt"),
        ({"outside": "car", "bounds": {"x": (0, 1)}}, r"bounds of \['x'\]"),
    ],
)
def test_unsuitable_choice_logs_are_rejected(
    trips: Any, kwargs: dict[str, Any], message: str
) -> None:
    with pytest.raises(DPBError, match=message):
        LoggedAssortment(trips, **kwargs)


@pytest.mark.slow
@pytest.mark.real_data("choice")
def test_real_choices_are_learned() -> None:
    import os
    from pathlib import Path

    root = Path(os.environ.get("DPB_DATA") or Path(__file__).parents[3] / "shared" / "data")
    if not (root / "choice").exists():
        pytest.skip("the choice data are not here (set DPB_DATA)")
    for name, outside in (("ModeCanada", "car"), ("electricity", 4), ("swissmetro", "CAR")):
        table = dpb_data.load_choices(root / "choice" / f"{name}.csv.gz")
        figures = LoggedAssortment(table, 50, outside=outside).summary()
        assert figures["held_out_log_likelihood"] > figures["held_out_null"] + 0.2, name
        price = {"ModeCanada": "cost", "electricity": "pf", "swissmetro": "CO"}[name]
        assert figures["utilities"][price] < 0.0, name


# -------------------------------------------------------------------------------------- call


def test_one_call_from_a_frame_to_results() -> None:
    frame = synthetic.loans(500)
    env_id = dpb_gym.from_log(frame, "pricing", features=["score"], horizon=80)
    assert env_id == dpb_gym.from_log(
        synthetic.loans(500), "pricing", features=["score"], horizon=80
    )
    assert env_id.startswith("Log/Pricing-Frame-") and env_id.endswith("-v0")
    assert env_id == dpb_gym.from_log(frame, "pricing", features="score", horizon=80)
    assert env_id != dpb_gym.from_log(frame, "pricing", features=["term"], horizon=80)
    declared = dpb_gym.from_log(
        frame,
        "pricing",
        features=["score"],
        horizon=80,
        bounds={"score": (500, 850), "price": (0, 15)},
    )
    assert declared != env_id and "were read off" not in declared.report
    assert declared.summary()["price_unit"] == 15
    assert "bounds of score, price were read off the table" in env_id.report
    for backwards in ((15, 0), (0, float("nan"))):
        with pytest.raises(ParameterError, match="bounds of price must be finite and incr"):
            dpb_gym.from_log(frame, "pricing", bounds={"price": backwards})
    assert "held out log likelihood" in env_id.report and "elasticity" in env_id.report
    env = gym.make(env_id)
    env.reset(seed=0)
    assert 0.0 <= env.step(np.array([0.4], np.float32))[1] <= 1.0
    here = dpb_gym.evaluate(env_id, ["random", "oracle"], replicates=2)
    far = dpb_gym.evaluate(env_id, ["random", "oracle"], replicates=2, workers=2)
    for agent in ("random", "oracle"):
        assert here.final_regret(agent).tolist() == far.final_regret(agent).tolist()
    table = dpb_data.prices(frame, features=["score"])
    assert {c.cell.task.data_digest() for c in here.cells} == {table.digest()}


def banners(n: int = 4000, **changes: Any) -> dict[str, Any]:
    """Return a recommender's log in which b suits old customers, a young ones, and c nobody."""
    rng = np.random.default_rng(8)
    age = rng.uniform(20, 80, n)
    shares = np.array([0.5, 0.3, 0.2])
    item = rng.choice(3, n, p=shares)
    utility = np.choose(item, [1.0 - (age - 20) / 20, -2.0 + (age - 20) / 20, -2.5 + 0 * age])
    return {
        "age": age, "ad": np.array(["a", "b", "c"])[item], "p": shares[item],
        "click": (rng.random(n) < 1 / (1 + np.exp(-utility))).astype(int), **changes,
    }  # fmt: skip


BANNERS = {"item": "ad", "reward": "click", "propensity": "p", "features": ["age"]}


def test_a_recommenders_log_with_propensities() -> None:
    env_id = dpb_gym.from_log(
        banners(), "recommendation", horizon=200, bounds={"age": (20, 80)}, **BANNERS
    )
    assert env_id.startswith("Log/Recommendation-Frame-")
    problem = dpb_gym.make_problem(env_id)
    assert problem.info.n_candidates == 3 and problem.info.dim == 6
    instance = problem.instance([0, 1])
    x = instance.context().features.astype(float)
    scaled = x[:, 0, 1] / x[:, 0, 0]
    assert np.allclose(x[:, 0, 0], np.sqrt(0.5)) and (np.abs(scaled) <= 1).all()
    for item in range(3):
        own = x[:, item, 2 * item : 2 * item + 2]
        np.testing.assert_array_equal(own, x[:, 0, :2])
        assert np.count_nonzero(x[:, item]) == 4, "nothing outside its own block"
    # The generating model is recovered: utility of a over [20, 80] is 1 to -2.
    age = 20 + 30 * (scaled + 1)
    expected = 1 / (1 + np.exp(-(1.0 - (age - 20) / 20)))
    np.testing.assert_allclose(instance.respond(np.array([0, 0])).expected, expected, atol=0.06)
    figures = env_id.summary()
    check = figures["held_out_responses_to_the_models_best"]
    assert abs(check["model"] - check["log"]) < 3 * check["log_standard_error"] < 0.15
    assert check["log"] > figures["responses_in_the_log"] + 0.1
    assert figures["bounds"] == {"age": (20.0, 80.0)} and figures["notes"] == []
    result = dpb_gym.evaluate(env_id, ["random", "oracle", "lin-ucb"], replicates=2)
    assert result.final_regret("oracle").tolist() == [0.0, 0.0]
    assert result.final_regret("lin-ucb").mean() < result.final_regret("random").mean()


def test_items_with_little_data_get_the_overall_rate() -> None:
    frame = {k: np.asarray(v) for k, v in banners().items()}
    rare = np.flatnonzero(frame["ad"] == "c")[:3]
    kept = np.sort(np.append(np.flatnonzero(frame["ad"] != "c"), rare))
    table = dpb_data.clicks({k: v[kept] for k, v in frame.items()}, **BANNERS)
    problem = LoggedRecommendation(table, ridge=100.0)
    x = problem.instance([0]).context().features[0, 2].astype(float)
    share = 1 / (1 + np.exp(-x @ problem.fit.coefficients))
    assert share == pytest.approx(problem.today[0], abs=0.05)


@pytest.mark.real_data("obd-men")
def test_the_open_bandit_log_becomes_an_environment() -> None:
    import os
    from pathlib import Path

    root = Path(os.environ.get("DPB_DATA") or Path(__file__).parents[3] / "shared" / "data")
    file = root / "obd-men" / "random" / "men.csv.gz"
    if not file.exists():
        pytest.skip("the Open Bandit sample is not here (set DPB_DATA)")
    env_id = dpb_gym.from_log(
        file, "recommendation", item="item_id", reward="click", propensity="propensity_score"
    )
    figures = env_id.summary()
    assert len(figures["items"]) == 34 and figures["rows"] == 10_000
    assert abs(figures["held_out_log_likelihood"] - figures["held_out_null"]) < 0.003
    check = figures["held_out_responses_to_the_models_best"]
    assert 20 < check["log_rounds"] < 200, "one round in 34 shows what the model recommends"


def test_the_log_contradicts_a_model_of_the_wrong_form() -> None:
    """The held-out estimate uses propensities and contradicts a misspecified model."""
    frame = banners()
    table = dpb_data.clicks(frame, **BANNERS)
    plain = LoggedRecommendation(table).check
    weighted = dpb_data.clicks({**frame, "p": np.where(frame["click"], 1.0, 0.1)}, **BANNERS)
    assert LoggedRecommendation(weighted).check["log"] < plain["log"] - 0.1


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"ad": ["a"] * 4000}, "only a was shown"),
        ({"click": [1] * 4000}, "every customer responded"),
        ({"p": [0.0] * 4000}, "expected p to be a number above 0 to 1, found '0'"),
        ({"ad": [str(k % 900) for k in range(4000)]}, "900 items with 2 coefficients each"),
    ],
)
def test_unsuitable_recommender_logs_are_rejected(changes: Any, message: str) -> None:
    with pytest.raises(DPBError, match=message):
        dpb_gym.from_log(banners(**changes), "recommendation", **BANNERS)
    few = {k: v[:20] for k, v in banners().items()}
    with pytest.raises(DataError, match="20 customers are too few for 6 coefficients"):
        dpb_gym.from_log(few, "recommendation", **BANNERS)


@pytest.mark.slow
def test_a_fit_is_plotted_and_shown_in_notebooks(tmp_path: Any) -> None:
    env_id = dpb_gym.from_log(synthetic.loans(500), "pricing", features=["score"])
    bins = env_id.summary()["calibration"]
    figure = env_id.plot(tmp_path / "fit.svg")
    assert "<svg" in (tmp_path / "fit.svg").read_text()
    (axes,) = [a for a in figure.axes if a.get_xlabel() == "predicted"]
    dots = [
        tuple(map(float, line.get_xydata()[0]))
        for line in axes.lines
        if len(line.get_xydata()) == 1
    ]
    assert dots == [(predicted, seen) for predicted, seen, _ in bins]
    spans = [line.get_xydata() for line in axes.lines[1:] if len(line.get_xydata()) == 2]
    for (predicted, seen, _), span in zip(bins, spans):
        assert span[0, 1] < seen < span[1, 1] or seen in (0.0, 1.0)
        assert span[0, 0] == predicted
    page = env_id._repr_html_()
    assert "held out log likelihood" in page and "data:image/png;base64," in page
    assert "[500, 850]" in page or "bounds" in page
    table = dpb_data.load_ratings("synthetic-jester")
    ratings = dpb_gym.from_log(table, "recommendation", horizon=50)
    assert "<img" not in ratings._repr_html_()
    with pytest.raises(ParameterError, match="no model to calibrate"):
        ratings.plot()


def test_own_price_elasticities_of_items(trips: Any) -> None:
    """Compare with finite differences of the fitted probabilities."""
    problem = LoggedAssortment(trips, horizon=50, outside="car", revenue="cost")
    elasticities = problem.summary()["price_elasticities"]
    assert list(elasticities) == ["air", "bus", "train"] and all(
        v < 0 for v in elasticities.values()
    )
    low, high = problem.bounds["cost"]
    slope = problem.fit.coefficients[0] / (high - low)
    sets = np.repeat(np.arange(trips.n_sets), np.diff(trips.starts))
    scaled = 2 * (trips.features - trips.features.min(0)) / np.ptp(trips.features, axis=0) - 1
    ids = trips.item_ids[trips.items]
    utility = 0.5 * scaled @ problem.fit.coefficients[:4]
    for k, item in enumerate(elasticities):
        utility += (ids == item) * problem.fit.coefficients[4 + k]
    weight = np.exp(utility)
    usable = np.array([(ids[sets == s] == "car").any() for s in range(trips.n_sets)])
    chance = weight / np.bincount(sets, weight)[sets]
    for item, value in elasticities.items():
        rows = (ids == item) & usable[sets]
        expected = np.mean(slope * trips.features[rows, 0] * (1 - chance[rows]))
        assert value == pytest.approx(expected, rel=1e-3)


def test_a_message_names_a_few_of_many_items() -> None:
    sets, items = np.divmod(np.arange(4000), 2)
    frame = {"case": sets, "item": np.where(items == 0, sets, sets + 5000), "chosen": items,
             "fee": np.arange(4000) % 7 * 1.0}  # fmt: skip
    columns = {"case": "case", "item": "item", "chosen": "chosen", "features": ["fee"]}
    with pytest.raises(DataError, match=r"outside=one of \[0, 1, 2, ") as caught:
        dpb_gym.from_log(frame, "assortment", **columns)  # type: ignore[arg-type]
    assert len(str(caught.value)) < 400


def test_slow_steps_are_reported(monkeypatch: Any) -> None:
    said: list[str] = []
    dpb_gym.from_log(synthetic.loans(300), "pricing", features=["term"], progress=said.append)
    assert said[0] == "reading" and said[1] == "scaling the features"
    assert said[2].startswith("fitting to 2") and said[3] == "fitting to all 300 customers"

    class Finished(Event):
        """Event whose waits end when the test says so."""

        def __init__(self) -> None:
            self.ticks, self.waits = Queue[bool](), list[float | None]()
            made.append(self)

        def wait(self, timeout: float | None = None) -> bool:
            self.waits.append(timeout)
            return not self.ticks.get()

        def set(self) -> None:
            self.ticks.put(False)

    class Lines(io.StringIO):
        """Stream that counts its lines."""

        def flush(self) -> None:
            lines.put(self.getvalue())

    made, lines = list[Finished](), Queue[str]()
    monkeypatch.setattr("dpb_gym.progress_lines.Event", Finished)
    for terminal, waits in ((False, [2.0, 4.0]), (True, [0.5, 1.0])):
        monkeypatch.setattr("sys.stderr", Lines())
        monkeypatch.setattr("sys.stderr.isatty", lambda terminal=terminal: terminal)
        with progress_lines("from_log", True) as say, progress_lines("inner") as inner:
            say("reading")
            inner("fitting to all 320 customers")
            for count in (1, 2):
                made[-1].ticks.put(True)
                text = lines.get(timeout=60)
                assert text.count("from_log: fitting to all 320 customers (") == count
                assert text.count("\r" if terminal else "\n") == count
        assert made[-1].waits[:2] == waits, "a line is due after these seconds"
        left = sys.stderr.getvalue().split("\r")[-2].strip() if terminal else ""
        assert not left, "the last line on a terminal is erased"


def test_results_are_shown_without_the_log(tmp_path: Any) -> None:
    env_id = dpb_gym.from_log(synthetic.loans(200), "pricing", features=["score"], horizon=40)
    private = ("one-pass-pricing", "rho=1")
    result = dpb_gym.evaluate(env_id, ["random", "oracle", private], replicates=2)
    result.save(tmp_path / "kept")
    del ENVIRONMENTS[env_id], gym.registry[env_id]
    there = dpb_gym.Result.load(tmp_path / "kept")
    assert there.kinds == {result.suite.tasks[0].name: "pricing"}
    assert there.final_regret("random").tolist() == result.final_regret("random").tolist()
    assert env_id in there._repr_html_()
    rows = there.to_leaderboard().tasks[0].rows
    assert any("; apart from the log" in row.guarantee for row in rows)
    with pytest.raises(DataError, match=r"call dpb_gym\.from_log with that log"):
        dpb_gym.evaluate(env_id, ["random"], replicates=1)
    with pytest.raises(DPBError, match="unknown environment"):
        dpb_gym.evaluate("Log/Nothing-v0", ["random"])
    again = dpb_gym.from_log(synthetic.loans(200), "pricing", features=["score"], horizon=40)
    assert again == env_id and dpb_gym.evaluate(again, ["random"], replicates=1)


def test_the_other_two_problems(trips: Any) -> None:
    env_id = dpb_gym.from_log(trips, "assortment", outside="car", horizon=40)
    again = dpb_gym.from_log(
        synthetic.mode_canada(), "assortment", outside="car", horizon=40, case="case", item="alt",
        chosen="choice", features=["cost", "ivt", "ovt", "freq"],
    )  # fmt: skip
    assert env_id.startswith("Log/Assortment-SyntheticModeCanada-")
    assert again.startswith("Log/Assortment-Frame-")
    assert env_id[-11:] == again[-11:], "the name does not count"
    result = dpb_gym.evaluate(env_id, ["random", "oracle"], replicates=1)
    assert result.final_regret("oracle")[0] == 0.0
    table = dpb_data.load_ratings("synthetic-jester")
    columns = {
        "who": table.user_ids[table.users], "what": table.item_ids[table.items], "r": table.ratings,
    }  # fmt: skip
    ratings = dpb_gym.from_log(
        columns, "recommendation", user="who", item="what", rating="r", rating_range=(-10, 10),
        horizon=50,
    )  # fmt: skip
    assert ratings.summary()["data"] == "frame"
    for wrong in (
        {"problem": "auctions"},
        {"problem": "pricing", "outside": "x"},
        {"problem": "recommendation", "bounds": {"a": (0, 1)}},
    ):
        with pytest.raises(ParameterError):
            dpb_gym.from_log("synthetic-loans", **wrong)


def test_unknown_columns_are_reported(tmp_path: Path) -> None:
    place = tmp_path / "quotes.csv"
    place.write_bytes("price,bought,größe\n3,1,2\n4,0,1\n".encode("latin-1"))
    for columns, message in (
        ({"features": ["price"]}, "quotes.csv: line 1: column price is named for two purposes"),
        ({"features": [7]}, "expected the columns 7, found"),
    ):
        with pytest.raises(DataError, match=message):
            dpb_gym.from_log(place, "pricing", **columns)
    table = {"who": [1], "what": [2], "stars": [3], "case": [1], "took": [1]}
    for problem, columns, message in (
        ("recommendation", {"item": "what", "reward": "took"}, "required argument: 'propensity'"),
        ("assortment", {"case": "case", "item": "what", "chosen": "took", "features": []},
         "choices need features="),
        ("recommendation", {"user": "who", "item": "what", "rating": "stars", "rating_range": 5},
         r"rating_range must be \(lowest, highest\), got 5"),
    ):  # fmt: skip
        with pytest.raises(ParameterError, match=message):
            dpb_gym.from_log(table, problem, **columns)


def test_a_revenue_that_only_constants_explain_is_read_without_an_elasticity() -> None:
    """Its columns belong to a published layout in part, so that they are read as one's own."""
    sets = np.repeat(np.arange(60), 3)
    items = np.tile(np.arange(3), 60)
    frame = {
        "case": sets,
        "alt": np.array([*"abc"])[items],
        "choice": (items == sets % 3).astype(int),
        "cost": 1.0 + sets % 5 + items,
        "quality": (sets * 7 + items * items) % 4,
    }
    log = dpb_gym.from_log(frame, "assortment", outside="a", revenue="cost", progress=False)
    summary = log.summary()
    assert summary["items"] == ("b", "c") or list(summary["items"]) == ["b", "c"]
    assert any("cost differs between items by the same amount" in n for n in summary["notes"])
    assert "price_elasticities" not in summary
    frame["cost"] = frame["cost"] + (sets * items) % 2
    log = dpb_gym.from_log(
        frame | {"choice": (items == np.argmin(frame["cost"].reshape(-1, 3) + 0.3 * np.arange(3),
                                               axis=1)[sets]).astype(int)},
        "assortment", outside="a", revenue="cost", ridge=10.0, progress=False,
    )  # fmt: skip
    assert log.summary()["price_elasticities"]["b"] < 0.0


def test_rounds_of_a_long_run_are_played_in_stretches() -> None:
    """The order of all customers is not repeated for each round."""
    env = dpb_gym.from_log("synthetic-loans", "pricing", features=["term"], progress=False)
    instance = dpb_gym.make_problem(env, horizon=10_000).instance(range(32))
    for _ in range(2):
        instance.advance()
    stretch = instance.stretch(500)
    assert stretch is not None and len(stretch.best) > 16
