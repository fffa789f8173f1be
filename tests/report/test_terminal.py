"""Tables in the terminal, records and JSON."""

from __future__ import annotations

import io
import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.console import Console

from dpb_gym.errors import ParameterError
from dpb_gym.privacy.budget import Budget
from dpb_gym.report import records, table, to_csv, to_json, to_latex
from dpb_gym.report.columns import COLUMNS, ResultColumn, register
from dpb_gym.report.comparison_groups import COMPARISON_NOTE
from dpb_gym.report.leaderboard_data import Interval, TaskResult
from dpb_gym.report.number_format import decimals, number


def printed(data, width=200):
    stream = io.StringIO()
    table(data, console=Console(file=stream, width=width, color_system=None))
    return stream.getvalue()


def line_of(text, label):
    (line,) = [line for line in text.splitlines() if line.startswith(label)]
    return line


def test_every_number_is_in_the_line_of_its_row(make):
    task = make.task("assortment")
    text = printed(task)
    places = decimals(row.regret.mean for row in task.rows)
    for row in task.rows:
        label = row.agent if row.budget is None else f"{row.agent} {row.budget}"
        line = line_of(text, f"{label}  ")
        for value in (row.regret.mean, row.regret.low, row.regret.high):
            assert number(value, places) in line
        for value in (row.score.mean, row.score.low, row.score.high):
            assert number(value, 3) in line
        assert number(row.rounds_per_second) in line
        assert row.guarantee.split()[0] in line


def test_rows_are_sorted_by_group_and_regret_with_the_note(make):
    task = make.task("recommendation")
    text = printed(task)
    order = [record["agent"] + " " + record["budget"] for record in records(task)]
    starts = [text.index(label.replace(" none", "  ")) for label in order]
    assert starts == sorted(starts)
    assert COMPARISON_NOTE in text
    assert "DPB/Recommendation-v0" in text and "T=10,000" in text


@pytest.mark.parametrize("width", [60, 80, 100, 139, 140, 200])
def test_no_line_is_wider_than_the_console_and_all_guarantees_are_printed(make, width):
    data = make.data()
    text = printed(data, width)
    assert max(len(line) for line in text.splitlines()) <= width
    flat = " ".join(text.split())
    if width < 140:
        for row in data.tasks[0].rows:
            assert row.guarantee in flat
        assert "(a)" in text and "(d)" in text
    else:
        assert "(a)" not in text


@pytest.fixture
def more_columns():
    before = list(COLUMNS)
    for i in (0, 1):
        register(ResultColumn(f"more_{i}", f"More {i}", "number", value=lambda *_: 1e6))
    yield
    COLUMNS[:] = before


@pytest.mark.usefixtures("more_columns")
def test_columns_that_do_not_fit_are_left_out_and_named(make):
    task = make.task("assortment")
    wide, narrow = printed(task, 200), printed(task, 80)
    assert wide.count("1,000,000") == 2 * len(task.rows) and "left out" not in wide
    (left_out,) = [line for line in narrow.splitlines() if "left out" in line]
    assert left_out.startswith("Columns left out at a width of 80: ") and "More 1" in left_out
    titles = set(left_out.split(": ")[1].split(", "))
    shown = {"Regret [95%]", "Score", "Reward", "Rounds/s", "More 0", "More 1"} - titles
    assert "Regret [95%]" in shown and all(title in narrow.split("left out")[0] for title in shown)
    places = decimals(row.regret.mean for row in task.rows)
    assert all(number(row.regret.high, places) in narrow for row in task.rows)


def test_a_table_of_many_guarantees_gives_each_its_letter(make, monkeypatch):
    monkeypatch.setattr("dpb_gym.report.terminal.MOST", 40)
    rng = np.random.default_rng(0)
    rows = tuple(
        make.row(rng, agent=f"A{i}", guarantee=f"promise {i:02d}!", regret=Interval(i, i, i))
        for i in range(30)
    )
    task = make.task()
    text = printed(TaskResult(**(vars(task) | {"rows": rows})), 100)
    assert "(z)  promise 25!" in text and "(aa)  promise 26!" in text and "(ad)" in text


def test_labels_are_no_markup(make):
    row = make.row(np.random.default_rng(0), agent="[bold]x[/bold] :smile:")
    text = printed(TaskResult(**(vars(make.task()) | {"rows": (row,)})))
    assert "[bold]x[/bold] :smile:" in text


def test_empty_leaderboards_and_tasks_say_so(make):
    assert "No tasks." in printed(make.data([]))
    empty = TaskResult(**(vars(make.task()) | {"rows": ()}))
    assert "No results yet." in printed(make.data([empty]))


def test_the_default_console_is_the_standard_output(make, capsys):
    table(make.task())
    assert "DPMNL" in capsys.readouterr().out


def test_records_are_flat_complete_and_sorted(make):
    data = make.data()
    exported = records(data)
    assert len(exported) == sum(len(task.rows) for task in data.tasks)
    assert len({tuple(record) for record in exported}) == 1
    flat = (str, int, float, type(None))
    assert all(isinstance(value, flat) for record in exported for value in record.values())
    by_key = {(t.task, r.agent, Budget.text(r.budget)): r for t in data.tasks for r in t.rows}
    for record in exported:
        row = by_key[record["task"], record["agent"], record["budget"]]
        assert record["regret"] == row.regret.mean
        assert record["score_low"] == row.score.low
        assert record["reward_high"] == row.reward.high
        assert record["audit_verdict"] == (row.audit and row.audit.verdict)
        assert record["rho"] == (row.budget and row.budget.rho) and record["epsilon"] is None
    for task in data.tasks:
        assert records(task) == [r for r in exported if r["task"] == task.task]
    json.dumps(exported, allow_nan=False)


def test_json_holds_everything(make):
    data = make.data()
    read = json.loads(to_json(data))
    assert read["title"] == data.title and read["revision"] == data.revision
    for task, read_task in zip(data.tasks, read["tasks"]):
        assert read_task["normalisation"] == vars(task.normalisation)
        for row, read_row in zip(task.rows, read_task["rows"]):
            assert read_row["regret"] == vars(row.regret)
            assert [tuple(point) for point in read_row["curve"]] == list(row.curve)
            assert read_row["params"] == row.params
            assert {int(k): v for k, v in read_row["finals"].items()} == row.finals
            assert read_row["budget"] == Budget.text(row.budget)


def test_notes_are_printed_once_each(make):
    data = make.data(notes=("One remark.", "Another.", "One remark."))
    text = printed(data)
    assert text.count("One remark.") == 1 == text.count("Another.")


def test_a_long_table_is_cut_with_the_number_of_other_rows(make):
    rng = np.random.default_rng(0)
    rows = tuple(make.row(rng, agent=f"A{i:03d}", regret=Interval(i, i, i)) for i in range(90))
    task = TaskResult(**(vars(make.task()) | {"rows": rows}))
    text = printed(task)
    assert "A019" in text and "A020" not in text and "and 70 more" in text
    assert len(records(task)) == 90


def test_csv_reads_back_and_runs_no_formula(make, tmp_path):
    import csv

    rows = (make.row(np.random.default_rng(0), agent="=1+1", regret=Interval(-2, -3, 1)),)
    task = TaskResult(**(vars(make.task()) | {"rows": (*rows, *make.task().rows)}))
    path = to_csv(task, tmp_path / "rows.csv")
    with open(path, encoding="utf-8", newline="") as file:
        parsed = list(csv.DictReader(file))
    assert path.read_text(encoding="utf-8") == to_csv(task)
    for read, record in zip(parsed, records(task), strict=True):
        for key, value in record.items():
            shown = "'=1+1" if value == "=1+1" else "" if value is None else str(value)
            assert read[key] == shown
    assert {read["agent"] for read in parsed} >= {"'=1+1"}


def test_latex_holds_every_row_and_bold_winners(make):
    task = make.task("assortment", task="a_b & 100%")
    text = to_latex(task)
    assert r"a\_b \& 100\%" in text and text.count(r"\\") == len(task.rows) + 4
    assert r"\textbf{One-pass MNL} & rho=1 &" in text and r"\textbf{DPMNL}" not in text
    assert text.count("{") == text.count("}")


def test_a_frame_needs_pandas_and_says_so(make, monkeypatch):
    import sys

    from dpb_gym.errors import MissingExtraError
    from dpb_gym.report import to_frame

    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(MissingExtraError, match="pip install pandas"):
        to_frame(make.task())


def test_a_frame_is_the_records(make):
    pytest.importorskip("pandas")
    from dpb_gym.report import to_frame

    task = make.task()
    frame = to_frame(task)
    assert list(frame.columns) == list(records(task)[0])
    assert frame["regret"].tolist() == [record["regret"] for record in records(task)]
    assert frame["rho"].dtype == float


LEAVES = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(),
    st.text(),
    st.complex_numbers(),
    st.builds(np.float32, st.floats(width=32)),
    st.builds(np.int64, st.integers(-9, 9)),
    st.just(np.arange(6.0).reshape(2, 3)),
    st.just(object),
    st.just({1, 2}),
)


@pytest.mark.slow
@settings(max_examples=60, deadline=None)
@given(
    params=st.dictionaries(
        st.text("abc_", min_size=1), st.recursive(LEAVES, lambda inner: st.lists(inner, max_size=3))
    )
)
def test_any_parameters_become_strict_json(make, params):
    row = make.row(np.random.default_rng(0), params=params)
    task = TaskResult(**(vars(make.task()) | {"rows": (row,)}))

    def refuse(constant):
        raise AssertionError(f"{constant} is no JSON")

    read = json.loads(to_json(task), parse_constant=refuse)
    assert read["rows"][0]["params"].keys() == params.keys()


@pytest.mark.parametrize("bad", [None, [], {"tasks": []}, "data"])
def test_other_types_are_refused(bad):
    for function in (table, records, to_json, to_csv, to_latex):
        with pytest.raises(ParameterError, match="LeaderboardData"):
            function(bad)
