"""Figure files: what is accepted, and that those of the package fit together."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import yaml

from dpb_gym.errors import DPBError, ParameterError, SuiteError, UnknownNameError
from dpb_gym.papers import figure_files, judge, load_figures
from dpb_gym.papers.curves import Curve
from dpb_gym.papers.figure_result import fill
from dpb_gym.papers.figure_spec import Figure
from dpb_gym.results.row_result import RowResult
from dpb_gym.running.plan import plan_suite
from dpb_gym.suites.schema import read_spec
from dpb_gym.suites.spec import Cell

ALL = list(figure_files())


def fabricated(figure: Figure, replicates: int = 5) -> list[Curve]:
    """Curves of a figure with made-up regrets, as its suite would yield them."""
    series, points = [], int(figure.suite.checkpoints)
    tasks = tuple(task.model_copy(update={"requires": None}) for task in figure.suite.tasks)
    for plan in plan_suite(figure.suite.model_copy(update={"tasks": tasks})):
        for run in plan.runs:
            rng = np.random.default_rng(len(series))
            regret = np.cumsum(rng.random((replicates, points)) + 0.1, axis=1)
            cell = Cell(
                suite="s", protocol="p", task=plan.task, agent=run, checkpoints=(1,), seed=0,
                start=0, stop=1,
            )  # fmt: skip
            series.append(
                RowResult(
                    task=plan.task.name,
                    agent=run.label,
                    budget=cell.row[2],
                    cell=cell,
                    replicates=np.arange(replicates),
                    rounds=np.linspace(0, plan.task.horizon, points + 1)[1:].astype(int),
                    regret=regret,
                    reward=regret,
                    guarantee=None,
                    rounds_per_second=None,
                    trust="computed here",
                )
            )
    return figure.curves_of(series)


@pytest.mark.parametrize("target", ALL)
def test_every_claim_finds_what_it_compares(target: str) -> None:
    (figure,) = load_figures(target)
    curves = fabricated(figure)
    for one in figure.claims:
        judgement = judge(one, curves, figure.variants, figure.tables)
        if one.quantity.kind in ("spent", "recorded"):  # made-up curves promise and record nothing
            continue
        assert judgement.comparisons, (one.id, judgement.summary)
        expected = {a for a in figure.variants if any(c.axes[a] is not None for c in curves)}
        assert all(set(c.variant) >= expected for c in judgement.comparisons)
    assert figure.constants
    assert all(name in figure.axes for name in figure.drawing.lines)


@pytest.mark.parametrize("target", ALL)
def test_agents_and_quick_versions_can_be_made(target: str) -> None:
    (figure,) = load_figures(target)
    for one in (figure, figure.quick_version()):
        for plan in plan_suite(one.suite):
            assert set(plan.skipped.values()) <= {"not listed for this task"}
            for run in plan.runs:
                run.spec.make()
    quick = figure.quick_version().suite
    assert quick.protocol != figure.suite.protocol
    for small, full in zip(quick.tasks, figure.suite.tasks):
        expected = figure.quick.horizons.get(full.name, figure.quick.horizon)
        assert small.horizon == expected < full.horizon
    for agent in quick.agents:
        if "explore" in agent.params:
            assert agent.params["explore"] < quick.tasks[0].horizon


@pytest.mark.parametrize("target", ALL)
def test_every_table_is_filled_and_every_printed_number_has_its_place(target: str) -> None:
    (figure,) = load_figures(target)
    curves = fabricated(figure)
    for table in figure.tables:
        filled = fill(table, curves).values()
        if table.quantity.kind in ("guarantee-epsilon", "recorded"):
            continue
        cells = [cell for cell in filled if cell is not None]
        assert cells, table.id
        keys = ("printed", "printed_high")
        shown = [cell for cell in cells if any(cell[key] is not None for key in keys)]
        assert len(shown) == len(table.printed), table.id


def test_figures_that_share_results_agree() -> None:
    """Figures with shared results have equal protocols, and equal parameters by label."""
    groups: dict[str, list[Figure]] = {}
    for figure in load_figures("adaprivate-ts"):
        if figure.results is not None:
            groups.setdefault(figure.results, []).append(figure)
    assert len(groups["synthetic"]) == 5
    for figures in groups.values():
        for small in (False, True):
            shared = [figure.quick_version() if small else figure for figure in figures]
            assert len({figure.suite.protocol for figure in shared}) == 1
            assert len({(f.suite.block, f.suite.replicates) for f in shared}) == 1
            known: dict[str, Any] = {}
            for figure in shared:
                for agent in figure.suite.agents:
                    made = (agent.name, agent.params)
                    assert known.setdefault(agent.label, made) == made, agent.label


def test_printed_numbers_of_the_adaprivate_tables() -> None:
    """The paper's numbers against the text of its tables: rows in order, columns by epsilon."""
    tables = {(f.figure, t.id): t for f in load_figures("adaprivate-ts") for t in f.tables}
    expected = {
        ("table1", "own"): [92.2, 95.2, 96.9, 98.2, 93.5, 96.7, 98.2, 98.7],
        ("table2", "own"): [
            92.2, 95.2, 96.9, 98.2, 93.5, 96.7, 98.2, 98.7, 95.9, 96.5, 96.7, 96.7,
            95.4, 97.5, 97.7, 97.7, 93.6, 96.8, 98.3, 98.7,
        ],
        ("table3", "movielens"): [
            71.9, 74.2, 80.8, 84.2, 72.3, 74.4, 79.8, 84.1, 72.6, 75.2, 81.9, 84.7,
            71.7, 74.8, 80.7, 84.6, 70.9, 71.0, 71.1, 71.2, 71.7, 75.2, 84.4, 90.6,
            66.5, 67.8, 69.4, 71.8,
        ],
        ("table3", "jester"): [
            70.8, 71.5, 73.3, 75.7, 72.3, 73.1, 74.5, 76.3, 67.4, 68.0, 70.9, 74.6,
            70.1, 70.7, 76.3, 82.8, 70.1, 70.1, 70.5, 70.0, 73.7, 78.5, 81.3, 83.3,
            73.4, 74.0, 77.4, 81.6,
        ],
        ("table4", "own"): [91.2, 93.5, 95.2, 96.8, 97.5],
        ("table5", "value"): [0.534, 0.765, 0.766, 0.764],
        ("table6", "own"): [
            93.5, 96.7, 98.2, 98.7, 86.9, 91.1, 95.2, 98.2, 83.3, 84.9, 87.5, 92.1,
        ],
        ("user-level", "group"): [80.4, 26.0, 14.2],
        ("user-level", "clipping"): [90.6, 87.4, 96.4, 94.8],
    }  # fmt: skip
    for place_, values in expected.items():
        printed = tables[place_].printed
        numbers = [cell.value for (row, _), cell in printed.items() if ", tuned" not in row]
        assert numbers == values, place_
        for (row, column), cell in printed.items():
            assert cell == printed[row.removesuffix(", tuned"), column], place_


def test_ranges_and_bounds_are_those_of_the_paper() -> None:
    """Section 4.9 prints a range over T, Table 5 one upper bound, Table 2 a spread of 2.0."""
    figures = {figure.figure: figure for figure in load_figures("adaprivate-ts")}
    tables = {(name, t.id): t.printed for name, figure in figures.items() for t in figure.tables}
    for name, ends in (("root-1", (1.56, 1.75)), ("root-5", (0.84, 0.88))):
        cells = tables["scaling", name].values()
        assert {(cell.value, cell.low, cell.high) for cell in cells} == {(None, *ends)}
    naive = tables["table5", "naive"]["AdaPrivate (epsilon=10)", None]
    assert (naive.value, naive.low, naive.high) == (None, None, 0.001)
    adaptive = tables["table2", "own"]["TS-Adaptive", 5.0]
    assert (adaptive.value, adaptive.spread) == (98.7, 2.0)


def test_constants_of_private_pricing() -> None:
    """The paper's constants, read from the files that are run."""
    figures = {figure.figure: figure for figure in load_figures("private-assortment")}
    assert sorted(figures) == ["fig4", "fig5", "fig6", "fig7", "fig8", "fig8-prefix"]
    sweeps = {
        "fig4": ("rho", {0.1, 0.5, 1.0}),
        "fig5": ("dim", {3, 7, 11, 15}),
        "fig6": ("rho", {0.1, 0.5, 1.0, 5.0}),
        "fig7": ("rho", {0.1, 0.5, 1.0}),
        "fig8": ("rho", {0.5, 1.0, 5.0}),
        "fig8-prefix": ("rho", {0.5, 1.0, 5.0}),
    }
    for name, (axis, values) in sweeps.items():
        figure = figures[name]
        curves = [c for c in fabricated(figure) if str(c.series.agent) != "Random"]
        assert {c.axes[axis] for c in curves} == values
        synthetic = not name.startswith("fig8")
        calibrations = {"paper", "verified"} | ({"as-run"} if synthetic else set())
        assert {c.axes["calibration"] for c in curves} == calibrations
        assert figure.suite.replicates >= (30 if synthetic else 10)
        for agent in figure.suite.agents:
            if agent.name != "random":
                stated = 1e-4 if synthetic else 1e-7
                control = agent.label.endswith("c=0")
                assert math.isclose(agent.params["scale"], 0.0 if control else stated)
        if synthetic:
            assert {c.axes["contexts"] for c in curves} == {"raw", "scale", "clip"}
            assert {c.horizon for c in curves} == {10_000}
        else:
            assert {c.horizon for c in curves} == {100_000}
            assert ("synthetic data" in figure.synthetic) == (name == "fig8")
            assert all(claim.untested for claim in figure.judged if claim.by == "paper")


def test_unknown_targets_offer_close_ones() -> None:
    with pytest.raises(UnknownNameError, match="did you mean 'private-assortment"):
        load_figures("private-asortment")
    with pytest.raises(UnknownNameError, match="fig9"):
        load_figures("private-assortment/fig9")


def change(data: dict[str, Any], path: str, value: Any) -> dict[str, Any]:
    *way, last = path.split(".")
    place_: Any = data
    for step in way:
        place_ = place_[int(step) if step.isdigit() else step]
    if value is None:
        place_.pop(last)
    else:
        place_[last] = value
    return data


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        ("claims.0.expect", "falls", "expect must be one of below, above"),
        ("claims.0.along", "explore", "exactly one of along, than, value and printed"),
        ("claims.0.than", None, "exactly one of along, than, value and printed"),
        ("claims.0.where", {"agnet": "x"}, "unknown axis 'agnet'; did you mean 'agent'"),
        ("claims.0.quantity", "regret", "unknown quantity 'regret'"),
        ("claims.0.quantity", "relative-regret", "relative-regret needs a reference"),
        ("claims.0.quantity", {"kind": "slope-ratio", "early": [0.5, 0.2]}, "two increasing"),
        ("claims.0.tolerance", -1.0, "tolerance"),
        ("claims.0.id", "No spaces", "id"),
        ("claims.0.extra", 1, "extra"),
        ("claims", [], "claims"),
        ("variants", ["context"], "unknown axis 'context'"),
        ("drawing.lines", ["x"], "unknown axis 'x'"),
        ("axes.agent", "budget", "axes.agent"),
        ("suite.replicates", 0, "replicates"),
        ("suite.agents.0.parms", {}, "parms: unknown key"),
        ("title", None, "title"),
        ("claims.0.printed", "t1", "exactly one of along, than, value and printed"),
        ("tables", [{"id": "t", "title": "T", "quantity": "final-regret", "rows": "x"}], "table t"),
        (
            "tables",
            [
                {
                    "id": "t",
                    "title": "T",
                    "quantity": "final-regret",
                    "rows": "agent",
                    "columns": "explore",
                    "printed": {"Random": 1.0},
                }
            ],
            "a row maps columns",
        ),
        (
            "tables",
            [{"id": "t", "title": "T", "quantity": "final-regret", "rows": "agent"}] * 2,
            "table given twice: t",
        ),
        ("claims.0.quantity", {"kind": "recorded", "name": "x", "of": "y"}, "recorded.of: Extra"),
        ("claims.0.quantity", {"kind": "spent", "reference": {"agent": "x"}}, "has no reference"),
        ("claims.0.quantity", {"kind": "recorded"}, "recorded.name: Field required"),
        ("study", {"kind": "other"}, "study.kind"),
        ("axes.agent", {"path": [], "values": []}, "axes.agent"),
        ("quick.horizon", 1, "quick.horizon"),
    ],
)
def test_invalid_files_name_the_key(
    figure_data: dict[str, Any], path: str, value: Any, message: str
) -> None:
    text = yaml.safe_dump(change(figure_data, path, value))
    with pytest.raises(SuiteError, match=message) as caught:
        read_spec(Figure, text, "a-file")
    assert str(caught.value).startswith("a-file: ")
    assert isinstance(caught.value, DPBError)


def test_claims_are_distinct(figure_data: dict[str, Any]) -> None:
    figure_data["claims"] *= 2
    with pytest.raises(SuiteError, match="claim given twice: below-random"):
        read_spec(Figure, yaml.safe_dump(figure_data), "a-file")


def test_other_environments_get_another_name(figure: Figure) -> None:
    changed = figure.with_environment({"n_items": 9})
    assert {task.env_kwargs["n_items"] for task in changed.suite.tasks} == {9}
    assert changed.suite.name != figure.suite.name
    assert "n_items=9" in changed.notes[0]
    with pytest.raises(ParameterError, match="horizon"):
        figure.with_environment({"horizon": 10})


def test_claims_about_generated_data_say_so(figure_data: dict[str, Any]) -> None:
    figure_data["synthetic"] = "Generated."
    made_up = Figure.model_validate(figure_data)
    assert made_up.judged[0].text.endswith("[On synthetic data.]")
    assert made_up.remarks == ("Generated.",)
    own = made_up.with_environment({"data": "a-file.csv"})
    assert own.judged == made_up.claims and "Generated." not in own.remarks
