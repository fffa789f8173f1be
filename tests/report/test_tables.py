"""Comparison groups, and the text of budgets and numbers."""

from __future__ import annotations

import doctest
import itertools
import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dpb_gym.privacy.budget import Budget
from dpb_gym.report import number_format
from dpb_gym.report.comparison_groups import Group, budget_order, scale_of, short
from dpb_gym.report.leaderboard_data import Interval, Origin
from dpb_gym.report.number_format import MINUS, decimals, number, tick
from dpb_gym.report.palette import shade
from dpb_gym.report.tables import board


def only(task):
    """Return the table of a single task."""
    return board(task).tasks[0]


def test_groups_split_by_notion_and_unit_and_sort_by_regret(make):
    for problem in ("assortment", "pricing", "recommendation"):
        task = make.task(problem)
        sections = only(task).sections
        assert sum(len(members) for _, members in sections) == len(task.rows)
        assert len({group for group, _ in sections}) == len(sections)
        for group, members in sections:
            assert {(x.row.notion, x.row.unit) for x in members} == {(group.notion, group.unit)}
            regrets = [line.row.regret.mean for line in members]
            assert regrets == sorted(regrets)
        assert sections[-1][0] == Group(None, None)


def test_best_is_the_lowest_regret_of_each_contest_and_never_a_reference(make):
    task = make.task("assortment")
    best = {line.row.key for line in only(task).lines if line.best}
    by_key = {row.key: row for row in task.rows}
    assert "Oracle" not in best and "Random" not in best
    contests = {}
    for row in task.rows:
        if row.name not in ("oracle", "random"):
            contests.setdefault((row.notion, row.unit, row.budget), []).append(row)
    assert len(best) == len(contests) == 4
    for key in best:
        row = by_key[key]
        rivals = contests[row.notion, row.unit, row.budget]
        assert all(row.regret.mean <= rival.regret.mean for rival in rivals)


def test_a_row_alone_at_its_budget_is_not_best(make):
    lines = only(make.task("recommendation")).lines
    assert not any(line.best for line in lines if line.row.agent.startswith("JDP"))


def test_rows_stated_by_a_sender_are_not_ranked(make):
    task = make.task("assortment")
    liar = replace(task.rows[0], agent="Liar", regret=Interval(0, 0, 0), trust="stated by somebody")
    shown = only(replace(task, rows=(liar, *task.rows)))
    assert not shown.lines[0].best
    assert [x.best for x in shown.lines[1:]] == [x.best for x in only(task).lines]
    assert not shown.lines[0].rivals
    honest = only(replace(task, rows=(replace(liar, trust="recomputed here"), *task.rows)))
    assert honest.lines[0].best


def test_agents_that_read_hidden_state_are_not_ranked(make):
    task = make.task("assortment")
    told = replace(task.rows[0], agent="Told", regret=Interval(0, 0, 0), oracle=True)
    shown = only(replace(task, rows=(told, *task.rows)))
    assert shown.lines[0].number is None and not shown.lines[0].rivals


def test_budgets_sort_by_scale_and_number_and_none_comes_last():
    texts = ["none", "rho=10", "eps=3,delta=1e-6", "rho=2", "eps=2,delta=1e-5", "rho=0.1"]
    budgets = sorted(map(Budget.parse, texts), key=budget_order)
    assert [Budget.text(budget) for budget in budgets] == [
        "eps=2,delta=1e-5", "eps=3,delta=1e-6", "rho=0.1", "rho=2", "rho=10", "none",
    ]  # fmt: skip
    assert len({scale_of(budget) for budget in budgets[:-1]}) == 3
    assert short(budgets[0]) == "eps=2"


def test_strength_is_full_for_the_largest_budget_and_falls(make):
    task = make.task("assortment", budgets=(0.1, 0.5, 1.0, 10.0))
    alpha = {line.row.key: line.strength for line in only(task).lines}
    family = [alpha[f"DPMNL (rho={rho})"] for rho in ("10", "1", "0.5", "0.1")]
    assert family[0] == 1.0
    assert family == sorted(family, reverse=True) and len(set(family)) == 4
    assert min(family) >= 0.4
    assert alpha["UCB-MNL"] == 1.0


def test_a_label_names_the_budget_once(make):
    rng = np.random.default_rng(0)
    rows = (
        make.row(rng, agent="A", budget="rho=1"),
        make.row(rng, agent="A (rho=1)", budget="rho=1"),
        make.row(rng, agent="A"),
    )
    lines = only(replace(make.task(), rows=rows)).lines
    assert [line.label for line in lines] == ["A rho=1", "A (rho=1)", "A"]


def test_one_colour_per_agent_and_distinct_ones(make):
    data = make.crowd()
    shades = {x.row.agent: x.colour for table in board(data).tasks for x in table.lines}
    assert len(shades) == len({pair[0] for pair in shades.values()}) == 30
    assert len({pair[1] for pair in shades.values()}) == 30
    assert all(int(c[1:], 16) >= 0 and len(c) == 7 for pair in shades.values() for c in pair)
    for table in board(data).tasks:
        assert all(line.colour == shades[line.row.agent] for line in table.lines)
    assert {x.colour for x in only(make.task()).lines if x.row.reference} == {shade(None)}


def test_tuned_rows_have_their_agents_colour_and_ours_come_first(make):
    task = make.task("assortment")
    tuned = replace(task.rows[0], agent=f"{task.rows[0].agent} (tuned)", ruling="tuned")
    rows = (*reversed(task.rows), tuned)
    origins = (Origin("one-pass-mnl", standing="ours"), Origin("dpmnl", standing="paper"))
    data = make.data([replace(task, rows=rows), make.task("pricing")], origins=origins)
    first, second = board(data).tasks
    shades = {line.row.agent: line.colour for line in first.lines}
    assert shades["One-pass MNL"] == shades["One-pass MNL (tuned)"] == shade(0)
    assert shades["DPMNL"] == shade(1)
    assert {line.stroke for line in first.lines if line.row.ruling == "tuned"} == {"dashdot"}
    # Agents that never meet may share a colour.
    assert shade(0) in {line.colour for line in second.lines}


def luminance(colour):
    channels = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def test_colours_can_be_read_on_both_backgrounds():
    """WCAG requires a contrast of 4.5 for text; names at the ends of curves have these colours."""
    for index in (None, *range(60)):
        light, dark = shade(index)
        assert 1.05 / (luminance(light) + 0.05) >= 4.5, index
        assert (luminance(dark) + 0.05) / (luminance("#10151b") + 0.05) >= 4.5, index


# Machado, Oliveira and Fernandes (2009), full severity, on linear RGB.
SIGHT = {
    "protan": [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216],
               [-0.003882, -0.048116, 1.051998]],
    "deutan": [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413],
               [-0.011820, 0.042940, 0.968881]],
    "usual": np.eye(3),
}  # fmt: skip


def oklab(linear):
    cones = np.array([[0.4122214708, 0.5363325363, 0.0514459929],
                      [0.2119034982, 0.6806995451, 0.1073969566],
                      [0.0883024619, 0.2817188376, 0.6299787005]])  # fmt: skip
    lab = np.array([[0.2104542553, 0.7936177850, -0.0040720468],
                    [1.9779984951, -2.4285922050, 0.4505937099],
                    [0.0259040371, 0.7827717662, -0.8086757660]])  # fmt: skip
    return lab @ np.cbrt(cones @ np.clip(linear, 0, 1))


@pytest.mark.parametrize("sight", SIGHT)
@pytest.mark.parametrize("theme", [0, 1])
def test_colours_of_eight_agents_are_distinct_for_all_colour_vision(sight, theme):
    points = []
    for index in range(8):
        colour = shade(index)[theme]
        channels = np.array([int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)])
        linear = np.where(
            channels <= 0.04045, channels / 12.92, ((channels + 0.055) / 1.055) ** 2.4
        )
        points.append(oklab(np.asarray(SIGHT[sight]) @ linear))
    assert min(np.linalg.norm(a - b) for a, b in itertools.combinations(points, 2)) > 0.09


@given(st.floats(-1e300, 1e300))
def test_a_written_number_reads_back_to_three_digits(value):
    for text in (number(value), tick(value)):
        read = float(text.replace(",", "").replace(MINUS, "-"))
        assert math.isclose(read, value, rel_tol=5.01e-3, abs_tol=0)
        assert len(text) <= 14


@given(st.lists(st.floats(0.01, 1e6), min_size=1))
def test_a_column_keeps_three_digits_of_its_smallest_number(values):
    places = decimals(values)
    assert places is not None
    for value in values:
        read = float(number(value, places).replace(",", ""))
        assert abs(read - value) <= 0.5 * 10.0**-places * 1.001
        assert places == 3 or math.isclose(read, value, rel_tol=5.01e-3)


def test_columns_of_extreme_numbers_have_no_common_decimals():
    assert decimals([1.0, 1e9]) is None
    assert decimals([1e-9, 1e-10]) is None
    assert decimals([0.0, 0.0]) == decimals([]) == 0
    assert number(-0.0001, 2) == "0.00"
    assert number(None) == "–"


def test_docstrings_run():
    result = doctest.testmod(number_format)
    assert result.attempted > 0 and result.failed == 0
