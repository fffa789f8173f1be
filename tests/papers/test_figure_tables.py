"""Tables, axes that are maps, and the quantities that tables need."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from figure_helpers import cell_of, claim, curve
from pydantic import ValidationError

from dpb_gym.errors import ResultError
from dpb_gym.papers.claims import AxisMap, FigureTable, Quantity
from dpb_gym.papers.curves import Curve
from dpb_gym.papers.figure_result import fill, grid, plain_table
from dpb_gym.papers.figure_spec import Figure
from dpb_gym.papers.verdicts import judge
from dpb_gym.privacy import Budget, Composition, GaussianEvent, Guarantee

EPSILON = Budget.approx(1.0, 1e-5)


def table(**fields: Any) -> FigureTable:
    base = {"id": "t", "title": "T", "quantity": "final-regret", "rows": "run"}
    return FigureTable.model_validate({**base, **fields})


def value(one: Curve, kind: str, curves: Any, **fields: Any) -> float:
    measured = Quantity.model_validate({"kind": kind, **fields}).of(one, curves)
    return float(measured.of(*(np.mean(list(column.values())) for column in measured.columns)))


@pytest.fixture
def curves() -> list[Curve]:
    return [
        curve([4.0, 8.0], reward=[50.0, 40.0], run="UCB", family="u", epsilon=None),
        curve([5.0, 9.0], reward=[40.0, 40.0], run="TS", family="t", epsilon=None),
        curve([6.0, 9.0], reward=[30.0, 44.0], run="P-UCB", family="u", epsilon=1.0),
        curve([7.0, 9.0], reward=[30.0, 30.0], run="P-TS", family="t", epsilon=1.0),
        curve([5.0, 9.0], reward=[36.0, 40.0], run="P-TS", family="t", epsilon=5.0),
        curve([10.0, 30.0], reward=[10.0, 10.0], run="Random", family=None, epsilon=None),
    ]


OWN = {"kind": "percent-of-reference", "reference": {"run": ["UCB", "TS"]}}


def test_percentages_are_per_replicate_and_per_reference(curves: list[Curve]) -> None:
    reference = {"reference": {"run": ("UCB", "TS")}}
    by_hand = {2: (60 + 110) / 2, 3: 75.0, 4: (90 + 100) / 2, 0: 100.0}
    for i, expected in by_hand.items():
        percent = value(curves[i], "percent-of-reference", curves, **reference)
        assert percent == pytest.approx(expected)
    with pytest.raises(ResultError, match="2 references"):
        value(curves[5], "percent-of-reference", curves, **reference)
    one = {"reference": {"run": "UCB", "family": "u"}}
    assert value(curves[3], "percent-of-reference", curves, **one) == pytest.approx(
        (30 / 50 + 30 / 40) * 50
    )
    nothing = [curves[2], curve([1.0, 1.0], reward=[0.0, 1.0], run="UCB", family="u", epsilon=None)]
    with pytest.raises(ResultError, match="percentages of nothing"):
        value(curves[2], "percent-of-reference", nothing, **reference)


def test_scores_excess_roots_and_rates(curves: list[Curve]) -> None:
    random = {"reference": {"run": "Random"}}
    assert value(curves[0], "normalised-score", curves, **random) == pytest.approx(1 - 6 / 20)
    assert value(curves[5], "normalised-score", curves, **random) == pytest.approx(0.0)
    assert value(curves[2], "regret-excess", curves, reference={"run": "UCB"}) == 1.5
    assert value(curves[0], "root-regret", curves) == pytest.approx(6 / math.sqrt(100))
    assert value(curves[0], "reward-rate", curves) == pytest.approx(0.45)


def test_the_true_epsilon() -> None:
    event = GaussianEvent(2.0, 1.0)
    promise = Guarantee("central", "reward", curve=Composition.of(event))
    for budget, delta in ((EPSILON, 1e-5), (Budget.approx(1.0, 1e-9), 1e-9), (None, 1e-5)):
        one = curve([1.0, 2.0], guarantee=promise.to_dict(), budget=budget)
        assert value(one, "guarantee-epsilon", []) == pytest.approx(promise.epsilon(delta))
    assert value(curve([1.0, 2.0]), "guarantee-epsilon", []) == math.inf


def test_recorded_numbers_and_their_ratios() -> None:
    base = curve([1.0, 2.0], run="A")
    recorded = {"x": {0: 2.0, 1: 4.0}, "y": {0: 10.0, 1: 20.0}}
    one = Curve(replace(base.series, recorded=recorded), base.axes)
    assert value(one, "recorded", [], name="x") == 3.0
    assert value(one, "recorded", [], name="x", over="y") == pytest.approx(0.2)
    with pytest.raises(ResultError, match="has no 'z'"):
        value(one, "recorded", [], name="z")
    assert one.first(1).recorded["y"] == {0: 10.0}
    assert one.first(1).series.regret.shape == (1, 1)


def test_tables_are_filled_in_order(curves: list[Curve]) -> None:
    own = table(quantity=OWN, columns="epsilon", printed={"P-TS": {1.0: [76.0, 2.0], 5: 96.0}})
    cells = fill(own, curves)
    assert ("P-TS", None) not in cells
    one, five = cells["P-TS", 1.0], cells["P-TS", 5.0]
    assert one is not None and five is not None
    assert (one["mean"], one["sd"], one["printed"], one["printed_spread"]) == (75.0, 0.0, 76.0, 2.0)
    assert five["sd"] == pytest.approx(np.std([90, 100], ddof=1))
    assert five["printed"] == 96.0 and five["printed_spread"] is None
    assert cells["Random", None] is None  # two references: no percentage
    shown = grid(own, cells)
    assert shown.head == ("", "–", "epsilon=1", "epsilon=5")
    assert [line[0] for line in shown.rows] == ["UCB", "TS", "P-UCB", "P-TS", "Random"]
    assert shown.rows[3] == ("P-TS", "–", "75.0 ± 0.0 [76.0 ± 2.0]", "95.0 ± 7.1 [96.0]")
    assert shown.rows[4][1] == "–"
    assert "the paper's numbers in brackets" in shown.note


def test_tables_without_columns_and_with_intervals(curves: list[Curve]) -> None:
    scores = {"kind": "normalised-score", "reference": {"run": "Random"}}
    own = table(quantity=scores, where={"run": ["UCB", "TS"]}, printed={"UCB": 0.7})
    cells = fill(own, curves)
    cell = cells["UCB", None]
    assert cell is not None and cell["sd"] is None and cell["printed"] == 0.7
    assert cell["low"] is not None and cell["high"] is not None
    assert cell["low"] <= 0.7 <= cell["high"]
    shown = grid(own, cells)
    assert "95% intervals" in shown.note and len(shown.head) == 2
    assert shown.rows[0][1] == "0.7 (-0.1 to 1.5) [0.7]"
    with pytest.raises(ResultError, match="fall into one cell"):
        fill(table(where={"run": "P-TS"}), curves)
    spent = table(quantity="guarantee-epsilon")
    cells = fill(spent, curves[:1])
    assert grid(spent, cells).rows == (("UCB", "unbounded"),)
    assert plain_table(spent, cells)["cells"][0]["mean"] is None


def test_ranges_and_bounds_are_shown_as_printed(curves: list[Curve]) -> None:
    own = table(
        quantity=OWN,
        columns="epsilon",
        printed={"P-TS": {1.0: "70 to 76.5", 5.0: "< 0.001"}},
    )
    cells = fill(own, curves)
    one = cells["P-TS", 1.0]
    assert one is not None and one["printed"] is None
    assert (one["printed_low"], one["printed_high"]) == (70.0, 76.5)
    shown = grid(own, cells)
    assert shown.rows[3] == ("P-TS", "–", "75.0 ± 0.0 [70.0 to 76.5]", "95.0 ± 7.1 [< 0.001]")
    assert "the paper's range or bound in brackets" in shown.note
    near = claim(quantity=OWN, printed="t", expect="near", tolerance=30.0)
    assert judge(near, curves, ("epsilon",), [own]).comparisons == ()  # no number to compare with


@pytest.mark.parametrize(
    "cell", ["about 3", "3 to x", "3 to 3", "5 to 4", "< ", "< x", [1, 2, 3], "nan to 3", [1, -1]]
)
def test_other_texts_are_no_printed_numbers(cell: Any) -> None:
    with pytest.raises(ValidationError):
        table(quantity=OWN, columns="epsilon", printed={"P-TS": {1.0: cell}})


def test_claims_against_printed_numbers(curves: list[Curve]) -> None:
    curves = [
        curve([*c.final_regret.values()] * 4, reward=[*c.final_reward.values()] * 4, **c.axes)
        for c in curves
    ]
    shown = table(quantity=OWN, columns="epsilon", printed={"P-TS": {1.0: 76.0, 5.0: 50.0}})
    assert shown.printed_for(curves[2]) is None
    one = claim(quantity=OWN, printed="t", expect="near", tolerance=30.0)
    judgement = judge(one, curves, ("epsilon",), [shown])
    assert [(c.right, c.outcome) for c in judgement.comparisons] == [
        ("76", "supported"),
        ("50", "contradicted"),
    ]
    assert [c.variant["epsilon"] for c in judgement.comparisons] == [1.0, 5.0]


# ------------------------------------------------------------------ axes


def test_axes_that_are_maps(figure_data: dict[str, Any]) -> None:
    figure_data["axes"]["family"] = {
        "path": ["agent.explore", "agent.name"],
        "values": [[5, "early"], [40, "late"], ["random", "none"]],
    }
    figure_data["axes"]["either"] = {"path": ["agent.explore", "agent.name"]}
    figure_data["axes"]["task"] = "task.name"
    figure = Figure.model_validate(figure_data)
    one = curve([1.0, 2.0]).series

    def series(name: str, label: str, params: dict[str, Any], explore: Any) -> Any:
        cell = cell_of(60, name=name, label=label, params=params)
        cell = cell.model_copy(update={"task": cell.task.model_copy(update={"name": "raw"})})
        return replace(one, agent=label, task="raw", cell=cell)

    placed = figure.curves_of(
        [
            series("greedy-mnl", "Greedy 5", {"explore": 5}, 5),
            series("greedy-mnl", "Greedy 40", {"explore": 40}, 40),
            series("random", "Random", {}, None),
        ]
    )
    assert [c.axes["family"] for c in placed] == ["early", "late", "none"]
    assert [c.axes["either"] for c in placed] == [5, 40, "random"]
    assert {c.axes["task"] for c in placed} == {"raw"}


def test_map_values_not_listed_are_none() -> None:
    axis_map = AxisMap.model_validate({"path": "agent.label", "values": [["a", "b"]]})
    assert axis_map.path == ("agent.label",) and axis_map.values == (("a", "b"),)
