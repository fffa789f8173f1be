"""Advice on logs: the baseline, uncertainty, thin logs, doubts, the page and the command."""

from __future__ import annotations

import csv
import datetime
import hashlib
import json
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from scipy import stats

import dpb_gym
from dpb_data import synthetic
from dpb_gym import cli
from dpb_gym.errors import AgentError, BudgetError, DataError, ParameterError, QuestionError
from dpb_gym.kinds import price_doubts
from dpb_gym.planning import advice as advice_module
from dpb_gym.planning import log_checks
from dpb_gym.planning.advice import RANDOM, SINGLE, TODAY, Advice, _Constant, _thin
from dpb_gym.planning.fixed_actions import FixedAction, best_fixed_action
from dpb_gym.planning.privacy_cost import DRAWS, coefficients
from dpb_gym.report.leaderboard_data import Interval
from dpb_gym.results import metrics

SETTINGS: dict[str, Any] = {"horizon": 400, "replicates": 12, "progress": False}
LOG = synthetic.loans(1500) | {"price": [f"{p:.2f} €" for p in synthetic.loans(1500)["price"]]}


@pytest.fixture(scope="module")
def advice() -> Advice:
    answer = dpb_gym.advise(LOG, budgets=["eps=0.5,delta=1e-6", "eps=8,delta=1e-6"], **SETTINGS)
    assert isinstance(answer, Advice)
    return answer


@pytest.mark.slow
def test_the_baseline_and_the_bounds_are_always_there(advice: Advice) -> None:
    labels = [e.label for e in advice.earnings]
    budgets = ["eps=0.5,delta=1e-6", "eps=8,delta=1e-6"]
    assert labels == ["without privacy", *budgets, SINGLE, RANDOM, TODAY]
    base = advice.earnings[0]
    assert (base.lost.mean, base.amount.mean) == (0.0, 0.0)
    rows = {row.agent: row for row in advice.result.rows}
    price = dpb_gym.make_problem(advice.log).highest_price  # type: ignore[attr-defined]
    earned = rows["without privacy"].reward[:, -1] * price * 10_000 / 400
    assert base.earned.mean == pytest.approx(earned.mean())
    assert base.earned.low < base.earned.mean < base.earned.high, "of the fitted model"
    for e in advice.earnings[:-1]:
        lost = (rows[e.label].regret - rows["without privacy"].regret)[:, -1].mean()
        assert e.amount.mean == pytest.approx(lost * price * 10_000 / 400)
        assert e.earned.mean == pytest.approx(base.earned.mean - e.amount.mean)
        assert e.lost.mean == pytest.approx(100 * e.amount.mean / base.earned.mean)
        assert e.amount.low <= e.amount.mean <= e.amount.high
        assert e.earned.low < e.earned.high, "the model is estimated"


@pytest.mark.slow
def test_what_the_table_brought_is_always_a_row(advice: Advice) -> None:
    """It is the table's mean, with the error of a mean, and no model's."""
    today = advice.earnings[-1]
    earned = synthetic.loans(1500)["price"].round(2) * synthetic.loans(1500)["bought"] * 10_000
    assert (today.label, today.agent) == (TODAY, "as in the table")
    assert today.earned.mean == pytest.approx(earned.mean(), rel=1e-3)
    half = 1.96 * earned.std() / np.sqrt(1500)
    assert today.earned.high - today.earned.mean == pytest.approx(half, rel=0.01)
    assert today.lost.low <= today.lost.mean <= today.lost.high
    told: list[str] = []
    films = dpb_gym.advise(
        "synthetic-movielens", budgets="rho=1", **SETTINGS | {"progress": told.append}
    )
    (first,) = (text for text in told if text.startswith("First answer: this table earned"))
    assert "; " not in first, "no single action without a model"
    assert films.earnings[-1].label == TODAY and films.unit == "units of reward"
    clicks = dpb_gym.advise(thin_log(), budgets="rho=1", **SETTINGS)
    assert clicks.earnings[-1].earned.mean == pytest.approx(10_000 * noise()["click"].mean())


@pytest.mark.slow
def test_policies_are_compared_with_today_under_the_same_coefficients(advice: Advice) -> None:
    """Else the error of the fitted level would be taken for a gain."""
    base = next(row for row in advice.result.rows if row.agent == "without privacy")
    settings = {"part": "held-out", "draws": DRAWS, "horizon": 400}
    problem: Any = dpb_gym.make_problem(advice.log, **settings)
    thetas, which = coefficients(problem, base.replicates, 0)
    shares = np.full((len(thetas), len(problem.pool)), 1.0 / len(problem.pool))
    earned = 10_000 * problem.highest_price * problem.log_values(thetas, problem.pool, shares)
    assert earned.std() > 0.0
    today = advice.earnings[-1]
    gap = advice.earnings[0].earned.mean - earned[which].mean()
    assert today.amount.mean == pytest.approx(gap)


def test_sentences_name_losses_gains_and_neither(advice: Advice) -> None:
    worst = advice.earnings[1]
    assert worst.lost.low > 0.0, "a strict budget costs something here"
    assert "you lose" in advice.sentences[1]
    assert advice.sentences[1].endswith("] EUR.")
    assert "earns in the first 400 customers: about" in advice.sentences[1]
    assert advice.unit == "EUR" and any("€ removed (1,500" in r for r in advice.repairs)
    assert (
        "Trusted with raw records: a curator" in advice.sentences[-2]
        and "Not protected" in advice.sentences[-1]
    )
    from dataclasses import replace

    from dpb_gym.report.leaderboard_data import Interval

    gain = replace(worst, lost=Interval(-5.0, -8.0, -2.0), amount=Interval(-50.0, -80.0, -20.0))
    assert "you gain 5.0% [2.0, 8.0]" in advice._cost(gain)
    # 50 in 10,000 customers are 2 in 400
    assert "about 2.00 [0.80, 3.20] EUR" in advice._cost(gain)
    unclear = replace(worst, lost=Interval(5.0, -2.0, 12.0))
    assert "in the first 400 customers it earns between 12.0% less and 2.0% more than the best" in (
        advice._cost(unclear)
    )
    assert "5.0%" not in advice._cost(unclear)
    same = replace(worst, lost=Interval(0.0, 0.0, 0.0))
    assert "[" not in advice._cost(same) and "the same choices are made" in advice._cost(same)


@pytest.mark.slow
def test_the_answer_names_decision_table_version_and_horizon(
    advice: Advice, tmp_path: Path
) -> None:
    assert advice.sentences[0] == advice.decision.text
    assert advice.decision.kind == "fixed" and advice.decision.text.startswith("Charge ")
    assert advice.decision.gain is not None and advice.decision.gain.low > 0.0
    lines = str(advice).splitlines()
    assert lines[0] == advice.facts and lines[1] == advice.sentences[0]
    assert f"dpb-gym {dpb_gym.__version__}, {datetime.date.today().isoformat()}" in advice.facts
    assert "frame: 1,500 rows, digest " in advice.facts
    assert "(at the rate of the first 400 customers)" in str(advice)
    file = tmp_path / "loans.csv"
    file.write_text("price,bought\n" + "\n".join(
        f"{p},{b}" for p, b in zip(synthetic.loans(300)["price"], synthetic.loans(300)["bought"])
    ) + "\n")  # fmt: skip
    told: list[str] = []
    answer = dpb_gym.advise(file, budgets="rho=1", **SETTINGS | {"progress": told.append})
    digest = hashlib.sha256(file.read_bytes()).hexdigest()
    assert f"loans.csv: 300 rows, SHA-256 {digest[:16]}" in answer.facts
    # a first answer comes before any run
    (first,) = (k for k, text in enumerate(told) if text.startswith("First answer: "))
    assert first < next(k for k, text in enumerate(told) if text.startswith("choosing agents"))
    assert "this table earned" in told[first] and answer.decision.kind in (
        "fixed",
        "collect",
        "keep",
    )


def test_a_fixed_decision_states_the_wide_interval_of_the_gain(advice: Advice) -> None:
    fixed = best_fixed_action(dpb_gym.make_problem(advice.log))
    assert advice.decision.gain == fixed.decided
    assert fixed.decided.low < fixed.gain.low < fixed.gain.high < fixed.decided.high


@pytest.mark.slow
def test_a_model_that_predicts_nothing_decides_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    sure = Interval(20.0, 10.0, 30.0)
    fixed = FixedAction(np.array(1), "always 1", sure, sure, sure)
    monkeypatch.setattr("dpb_gym.planning.advice.best_fixed_action", lambda *args: fixed)
    monkeypatch.setattr("dpb_gym.problems.fitting.Fit.informed", False)
    useless = dpb_gym.advise(thin_log(), budgets="rho=1", **SETTINGS)
    assert "the model predicts held-out customers no better than a constant" in useless.warnings
    decision = useless.decision
    assert decision.kind == "collect" and "20" not in decision.text.partition(".")[0]


def test_a_certificate_has_the_pair_that_was_asked_for(advice: Advice) -> None:
    first, second = advice.certificate()
    assert "eps=0.5 at delta=1e-06" in first and "eps=8 at delta=1e-06" in second


def test_curves_add_up_to_the_loss(advice: Advice) -> None:
    rows = {row.agent: row for row in advice.result.rows}
    assert {c.label for c in advice.curves} == {"without privacy", "eps=0.5,delta=1e-6",
                                                "eps=8,delta=1e-6"}  # fmt: skip
    for curve in advice.curves:
        row = rows[curve.label]
        assert curve.ends[-1] == 400 and list(curve.ends) == row.rounds.tolist()
        sizes = np.diff([0, *curve.ends])
        whole = float(np.dot(curve.lost, sizes) / 400)
        best = (row.reward + row.regret)[:, -1].mean()
        assert whole == pytest.approx(100 * row.regret[:, -1].mean() / best)


@pytest.mark.slow
def test_doubts_about_the_fit_come_first() -> None:
    log = LOG | {"channel": np.where(np.arange(1500) < 4, "rare", "usual")}
    log["bought"] = np.where(np.arange(1500) < 4, 0, log["bought"])
    answer = dpb_gym.advise(log, budgets="rho=1", **SETTINGS | {"replicates": 8})
    assert answer.warnings[0].startswith("separated: none of the 4 rows with channel")
    lines = str(answer).splitlines()
    assert lines[2] == f"warning: {answer.warnings[0]}", "after the decision, before all else"


@pytest.mark.slow
def test_choices_that_count_alike_whatever_their_price_are_doubted() -> None:
    rng = np.random.default_rng(0)
    n = 300
    cost = rng.uniform(1.0, 5.0, (n, 2))
    took = (1.0 - cost + rng.gumbel(size=(n, 2))).argmax(axis=1)
    table = {"case": np.repeat(np.arange(n), 2), "alt": np.tile(["a", "b"], n),
             "ticket cost": cost.ravel(), "seats": rng.integers(4, 8, 2 * n),
             "chosen": (np.arange(2) == took[:, None]).astype(int).ravel()}  # fmt: skip
    given: dict[str, Any] = {"outside": "a", "progress": False, "horizon": 100, "replicates": 8}
    silent = dpb_gym.advise(table, budgets="rho=1", **given)
    text = "all choices count alike, whatever their ticket cost: give revenue='ticket cost'"
    assert sum(text in doubt for doubt in silent.warnings) == 1
    said = dpb_gym.advise(table, budgets="rho=1", revenue="ticket cost", **given)
    assert not any("count alike" in doubt for doubt in said.warnings)


def test_coefficients_differ_between_replicates_and_follow_their_posterior(advice: Advice) -> None:
    problem = dpb_gym.make_problem(advice.log, draws=400, part="held-out")
    fit = problem.fit  # type: ignore[attr-defined]
    rows = np.column_stack([problem.rows]).astype(float)  # type: ignore[attr-defined]
    chance = 1 / (1 + np.exp(-rows @ fit.coefficients))
    exact = np.linalg.inv((rows * (chance * (1 - chance))[:, None]).T @ rows + np.diag(fit.penalty))
    drawn = problem.thetas * problem.scale  # type: ignore[attr-defined]
    np.testing.assert_allclose(drawn.mean(axis=0), fit.coefficients, atol=0.3)
    np.testing.assert_allclose(np.cov(drawn.T), exact, atol=0.25 * exact.max())
    orders = problem.instance([0, 1]).hidden["order"]
    assert set(orders.ravel()) <= set(np.flatnonzero(fit.held)), "held-out customers only"
    assert not np.array_equal(*problem.instance([0, 1]).hidden["theta"])


def test_grouped_intervals_cover_the_mean_of_one_truth() -> None:
    """In 95% of studies the interval holds the mean under another truth of the same kind."""
    rng, hits = np.random.default_rng(0), 0
    for _ in range(400):
        truth = rng.normal(size=17)
        groups = np.repeat(np.arange(16), 3)
        one = metrics.grouped(truth[:16][groups] + 0.5 * rng.normal(size=48), groups)
        hits += one.low <= truth[16] <= one.high
    assert 0.91 <= hits / 400 <= 0.98
    plain = metrics.grouped(values := rng.normal(size=40), np.zeros(40))
    assert plain == metrics.interval(values), "one group has no variation between groups"


def noise(n: int = 1500, rate: float = 0.02) -> dict[str, Any]:
    rng = np.random.default_rng(2)
    return {"ad": rng.integers(0, 6, n), "click": (rng.random(n) < rate).astype(int),
            "propensity": np.full(n, 1 / 6)}  # fmt: skip


def thin_log() -> Any:
    columns = {"item": "ad", "reward": "click", "propensity": "propensity"}
    return dpb_gym.from_log(noise(), "recommendation", progress=False, **columns)


@pytest.mark.slow
def test_a_thin_log_gets_no_percentage() -> None:
    answer = dpb_gym.advise(thin_log(), budgets="eps=1,delta=1e-6", **SETTINGS)
    problem = dpb_gym.make_problem(answer.log)
    constant = "its model predicts held-out customers no better than a constant"
    random = "no agent is shown to beat random choices in 400 customers"
    beaten = next(e for e in answer.earnings if e.label == RANDOM).lost.low > 0.0
    assert not problem.fit.informed or not beaten  # type: ignore[attr-defined]
    assert answer.sentences[0].startswith(
        "Collect more customers before you change anything. This table is too thin: "
        f"{constant if beaten else random}. "
    )
    assert "such customers" in answer.sentences[0] and "%" not in "".join(answer.sentences)
    assert log_checks.customers_needed(problem) >= 400


@pytest.mark.parametrize(("horizon", "end"), [
    (400, "About 200 such customers would do if the fitted model were exact, as simulated."),
    (100, "About 200 such customers would be needed, as simulated."),
])  # fmt: skip
def test_customers_that_were_simulated_are_enough_for_an_exact_model(
    horizon: int, end: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_checks, "customers_needed", lambda problem: 200)
    rows = [SimpleNamespace(agent="agent", regret=np.array([[1.0], [2.0]])),
            SimpleNamespace(agent=RANDOM, regret=np.array([[9.0], [10.5]]))]  # fmt: skip
    run = SimpleNamespace(horizon=horizon, fitted=True, say=print,
                          play=lambda *args, **kwargs: SimpleNamespace(rows=rows))  # fmt: skip
    assert _thin(run, None, "best", beaten=False).endswith(end)  # type: ignore[arg-type]


def test_more_information_needs_fewer_customers() -> None:
    strong = dpb_gym.from_log(synthetic.loans(1500), "pricing", features=["score"], progress=False)
    needed = log_checks.customers_needed(dpb_gym.make_problem(strong))
    assert needed is not None and needed <= 400
    weak = log_checks.customers_needed(dpb_gym.make_problem(thin_log()))
    assert weak is None or weak > needed


def test_calibration_is_doubted_only_if_wrong() -> None:
    rng, calls = np.random.default_rng(4), 0
    for _ in range(200):
        chance = rng.uniform(0.02, 0.5, 800)
        calls += bool(log_checks.calibration_doubt(chance, rng.random(800) < chance))
    assert calls <= 3, "at level 0.001"
    wrong = log_checks.calibration_doubt(chance, rng.random(800) < chance**0.5)
    assert wrong.startswith("misspecified: where the model predicts")
    assert stats.chi2.sf(29.6, 10) == pytest.approx(log_checks.DOUBT, rel=0.05)


def test_calibration_is_doubted_from_one_in_a_thousand_on() -> None:
    """With 100 rows per tenth, 8 more or less than 50 have p = 0.004, and 9 have p = 0.0003."""
    chance = np.full(1_000, 0.5)
    for more, doubted in ((8, False), (9, True)):
        hit = np.tile(np.arange(100) < 50 + more, 10)
        assert bool(log_checks.calibration_doubt(chance, hit)) == doubted


def test_agents_are_compared_on_customers_that_were_held_out(advice: Advice) -> None:
    problem: Any = advice.result.suite.tasks[0].problem()
    assert problem.fit.held[problem.pool].all() and len(problem.pool) == problem.fit.held.sum()


@pytest.mark.parametrize(
    ("workers", "horizon", "used"), [(None, 100, 1), (None, 101, None), (3, 100, 3)]
)
def test_short_runs_stay_in_one_process(
    workers: int | None, horizon: int, used: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = []
    monkeypatch.setattr(advice_module, "evaluate", lambda *a: calls.append(a))
    log: Any = "Log"
    run = advice_module._Runs(log, 50, 8, 0, workers, print, rounds_alone=2 * 3 * 8 * 100)
    run.play("choosing", ["a", "b"], "fitted", 8, horizon, budgets=["rho=1", "rho=2", "none"])
    assert calls[0][8] == used


def test_prices_that_hardly_vary_are_named() -> None:
    rng, n = np.random.default_rng(5), 3000
    x, price = rng.normal(size=(n, 2)), rng.uniform(4.0, 9.0, n)
    assert price_doubts.price_doubts(x, price) == []
    fixed = price_doubts.price_doubts(x, 6 + x @ [1.0, 0.5] + 0.05 * rng.normal(size=n))
    assert any("the features determine 100%" in d for d in fixed)
    alike = price_doubts.price_doubts(x, 6 + 0.05 * rng.normal(size=n))
    assert any("prices vary by 0.8% for like customers" in d for d in alike)
    few = price_doubts.price_doubts(x, rng.choice([4.0, 5.0], n))
    assert "lack of variation: the table has only 2 prices" in few


@pytest.mark.slow
def test_a_model_without_an_interaction_is_doubted() -> None:
    rng, n = np.random.default_rng(6), 4000
    frame = {
        "price": rng.uniform(1, 9, n),
        "age": rng.uniform(-1, 1, n),
        "day": rng.uniform(-1, 1, n),
    }
    u = 2.0 - 0.5 * frame["price"] + 3.0 * np.sign(frame["age"] * frame["day"])
    frame["bought"] = (rng.random(n) < 1 / (1 + np.exp(-u))).astype(int)
    log = dpb_gym.from_log(frame, "pricing", features=["age", "day"], progress=False)
    problem = dpb_gym.make_problem(log)
    data = dpb_gym.envs.registration.environment(log).defaults["data"]
    doubts = log_checks.model_warnings(problem, data)
    assert any("boosted trees predict held-out rows better" in d for d in doubts)
    honest = dpb_gym.from_log(
        synthetic.loans(4000), "pricing", features=["term", "score", "amount"], progress=False
    )
    data = dpb_gym.envs.registration.environment(honest).defaults["data"]
    assert log_checks.model_warnings(dpb_gym.make_problem(honest), data) == []


@pytest.mark.parametrize(
    "budget", ["rho=1_000", "rho=1e308", "eps=1,delta=0.9", "none", "eps=99,delta=1e-6"]
)
def test_budgets_that_protect_nobody_are_refused(budget: str) -> None:
    with pytest.raises(BudgetError, match=r"protects nobody|give a budget"):
        dpb_gym.advise(LOG, budgets=budget, **SETTINGS)
    if budget != "none":
        with pytest.raises(BudgetError, match="protects nobody"):
            dpb_gym.cost_of_privacy("DPB/Pricing-v0", [budget])


@pytest.mark.slow
def test_columns_are_guessed_once_and_shown() -> None:
    roles = dpb_gym.advise(LOG, dry_run=True)
    assert roles.problem == "pricing"
    assert roles.columns == {"price": "price", "bought": "bought",
                             "features": ["amount", "term", "score", "channel"]}  # fmt: skip
    assert "read as prices, for pricing\n  price: price" in str(roles)
    with pytest.raises(QuestionError, match="price is 'room rate', but no name of a column says"):
        dpb_gym.advise({"room rate": [1.0], "kept": [0], "offer": [1]})
    with pytest.raises(
        QuestionError, match=r"not known by their names\..*problem='pricing', price="
    ):
        dpb_gym.advise({"fee": [1.0], "kept": [0]})
    with pytest.raises(DataError, match=r"write_sample\(.*need no file: .*synthetic-loans"):
        dpb_gym.advise("synthetic-open-bandit", **SETTINGS)
    with pytest.raises(ParameterError, match="replicates must be an integer >= 8"):
        dpb_gym.advise(LOG, **{**SETTINGS, "replicates": 4})
    for budgets in (None, []):
        with pytest.raises(BudgetError, match="give a budget"):
            dpb_gym.advise(LOG, budgets=budgets, **SETTINGS)
    with pytest.raises(ParameterError, match="leave out private="):
        dpb_gym.advise(LOG, private="rho=1", **SETTINGS)
    with pytest.raises(ParameterError, match="currency must be"):
        dpb_gym.advise(LOG, currency=3, **SETTINGS)
    with pytest.raises(ParameterError, match=r"over 1,000 times as wide as the values"):
        dpb_gym.advise(LOG, bounds={"price": (0, 1e300)}, **SETTINGS)
    with pytest.raises(AgentError, match="none of private-pricing runs at none"):
        dpb_gym.advise(LOG, agents="private-pricing", budgets="rho=1", **SETTINGS)


def test_a_column_with_a_given_role_is_guessed_for_no_other() -> None:
    table = {"cliente": [1, 1, 2, 2], "prodotto": ["a", "b"] * 2, "scelto": [1, 0, 0, 1],
             "qualita": [0.1, 0.7, 0.1, 0.7]}  # fmt: skip
    given = {"case": "cliente", "item": "prodotto", "chosen": "scelto"}
    roles = dpb_gym.advise(table, dry_run=True, progress=False, **given)
    assert roles.layout == "long choices" and "person" not in roles.columns


@pytest.mark.parametrize(
    ("source", "layout", "columns"),
    [
        ("synthetic-loans", "prices", {"price": "price"}),
        ("synthetic-mode-canada", "the data set synthetic-mode-canada", {}),
        ("synthetic-movielens", "a published file of ratings", {}),
        ({"srch_id": [1, 1], "prop_id": [3, 4], "booking_bool": [0, 1], "fee": [1.0, 2.0]},
         "long choices", {"case": "srch_id", "item": "prop_id", "chosen": "booking_bool"}),
        ({"Quoted Fare (USD)": [1.0, 2.0], "wasBooked?": [0, 1], "offer_id": [7, 8]}, "prices",
         {"price": "Quoted Fare (USD)", "bought": "wasBooked?", "features": []}),
        ({"row": [2, 5, 9], "Price": [3.0, 2.0, 4.0], "isSold": [0, 1, 1], "userId": [7, 8, 9]},
         "prices", {"price": "Price", "person": "userId", "features": []}),
    ],
)  # fmt: skip
def test_names_of_published_data_are_known(source: Any, layout: str, columns: Any) -> None:
    given = {"bought": "isSold"} if "isSold" in source else {}
    roles = dpb_gym.advise(source, dry_run=True, progress=False, **given)
    assert roles.layout == layout and columns.items() <= roles.columns.items()


@pytest.mark.slow
def test_a_budget_that_does_not_beat_random_choices_is_doubted() -> None:
    budgets = ["eps=1,delta=1e-6@local", "eps=8,delta=1e-6"]
    answer = dpb_gym.advise("synthetic-mode-canada", budgets=budgets, outside="bus", **SETTINGS)
    doubted = [d for d in answer.warnings if "not shown to earn more than random choices" in d]
    assert len(doubted) == 1 and doubted[0].startswith("at eps=1,delta=1e-6@local ")


@pytest.mark.slow
def test_several_rounds_of_one_person_are_named_as_not_protected(advice: Advice) -> None:
    log = LOG | {"user": np.arange(1500) // 5}
    answer = dpb_gym.advise(log, budgets="rho=1", **SETTINGS | {"replicates": 8})
    assert "what one person does in up to 5 rounds together (see the notes)" in answer.sentences[-1]
    assert any("one-pass-pricing at rho=1: eps=" in note for note in answer.notes)
    assert "one person" not in advice.sentences[-1], "the simulation alone repeats customers"
    assert not any("one person" in note for note in advice.notes)
    clicks = dpb_gym.advise(thin_log(), budgets="rho=1", **SETTINGS | {"replicates": 8})
    assert clicks.unit == "responses"


@pytest.mark.slow
def test_the_page_and_the_picture(advice: Advice, tmp_path: Path) -> None:
    page = advice.to_html(tmp_path / "deep" / "advice.html").read_text()
    for sentence in (*advice.sentences, *advice.notes):
        assert sentence.replace("'", "&#39;") in page
    assert 'name="viewport"' in page
    assert "light-dark(" in page and "@media print" in page and "<script" not in page
    assert "<h1>Advice on frame</h1>" in page and "http" not in page.split("http-equiv")[1]
    assert page.count('class="line"') == len(advice.earnings)
    assert advice.facts in page and page.count("<polyline") == 2 * len(advice.curves)
    advice.plot(tmp_path / "advice.png")
    assert (tmp_path / "advice.png").read_bytes().startswith(b"\x89PNG")


IMPORTS = """
import sys
from dpb_gym.cli import run
from dpb_gym.progress_lines import LISTENER

class Finder:
    def find_spec(name, *_):
        if name in ("gymnasium", "matplotlib", "numba", "pyarrow", "scipy"):
            print("import:", name, LISTENER.get() is not None)
        if name == "scipy.stats" and not hasattr(sys.modules["dpb_gym.planning.advice"], "advise"):
            print("import:", name, False)

sys.meta_path.insert(0, Finder)
if sys.argv[1] == "script":
    import dpb_gym
    dpb_gym.cost_of_privacy
else:
    run(sys.argv[1:])
"""


@pytest.mark.parametrize(
    ("command", "last"),
    [
        ("script", "numba"),
        ("advise synthetic-loans --dry-run", "pyarrow"),
        ("cost-of-privacy DPB/Pricing-v0 --horizon 40 --replicates 2 --budget rho=1 --workers 1 "
         "--plot a.png", "matplotlib"),
    ],
)  # fmt: skip
def test_slow_imports_happen_while_a_line_is_shown(command: str, last: str, tmp_path: Path) -> None:
    done = subprocess.run([sys.executable, "-c", IMPORTS, *command.split()], cwd=tmp_path,
                          text=True, capture_output=True, check=False)  # fmt: skip
    lines = [line.split() for line in done.stdout.splitlines() if line.startswith("import: ")]
    assert {"numba", "scipy", last} <= {name for _, name, _ in lines}, done.stderr
    assert {shown for *_, shown in lines} == {"True"}, lines


@pytest.mark.slow
def test_the_command(tmp_path: Path, monkeypatch: Any, capsys: Any) -> None:
    with (tmp_path / "loans.csv").open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(LOG)
        writer.writerows(zip(*LOG.values()))
    monkeypatch.chdir(tmp_path)
    assert cli.run(["advise", "loans.csv", "--dry-run"]) == 0
    assert "read as prices, for pricing" in capsys.readouterr().out
    options = ["--horizon", "400", "--replicates", "8", "--workers", "1", "--budget", "rho=1"]
    assert cli.run(["advise", "loans.csv", *options, "--html", "a.html", "--json"]) == 0
    said = json.loads(capsys.readouterr().out)
    labels = ["without privacy", "rho=1", SINGLE, RANDOM, TODAY]
    assert [e["label"] for e in said["earnings"]] == labels
    assert said["decision"]["text"] == said["sentences"][0] and said["curves"]
    assert said["sentences"][0].replace("'", "&#39;") in (tmp_path / "a.html").read_text()


@pytest.mark.slow
@pytest.mark.parametrize("name", ["synthetic-loans", "synthetic-mode-canada", "clicks"])
def test_one_action_earns_the_same_in_stretches(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import dpb_data
    from dpb_gym.envs.registration import environment

    clicks = name == "clicks"
    source = dpb_data.write_sample("synthetic-open-bandit", tmp_path / "c.csv") if clicks else name
    choices = {"outside": "car", "revenue": "cost", "capacity": 2} if "mode" in name else {}
    reading = dpb_data.read(source, **choices)
    log = dpb_gym.from_log(reading.table(), reading.problem, progress=False, **reading.settings)
    action = best_fixed_action(environment(log).make_problem(horizon=100)).action
    rows = []
    for stretches in (False, True):
        monkeypatch.setattr(_Constant, "stretches", stretches)
        result = dpb_gym.evaluate(
            log, {"one": lambda: _Constant(action)}, 100, 4, 3, [40, 100],
            {"draws": DRAWS, "part": "held-out"},
        )  # fmt: skip
        rows.append(result.rows[0])
    assert np.array_equal(rows[0].regret, rows[1].regret)
    assert np.array_equal(rows[0].reward, rows[1].reward)


@pytest.mark.slow
@pytest.mark.parametrize("slope", [0.5, -0.5])
def test_choices_that_rise_with_a_price_are_a_doubt(slope: float) -> None:
    """Also where the price is not named as the revenue; with it the table is refused."""
    rng = np.random.default_rng(0)
    price = rng.uniform(1, 4, (500, 3)).round(2)
    utility = np.column_stack([slope * price + rng.gumbel(size=(500, 3)), rng.gumbel(size=500)])
    frame = {
        "set": np.repeat(np.arange(500), 3), "alt": [*"abc"] * 500, "price": price.ravel(),
        "chosen": (utility.argmax(axis=1)[:, None] == np.arange(3)).astype(int).ravel(),
    }  # fmt: skip
    advice = dpb_gym.advise(frame, budgets="rho=1", **{**SETTINGS, "horizon": 100, "replicates": 8})
    assert any("choices rise with price" in doubt for doubt in advice.warnings) == (slope > 0)
