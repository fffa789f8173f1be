"""Who is compared with whom, and how budgets and numbers read."""

from __future__ import annotations

import doctest
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dpb_gym.report import grouping, numerals
from dpb_gym.report.grouping import (
    Group,
    best_keys,
    budget_order,
    budget_scale,
    display,
    groups,
    strength,
)
from dpb_gym.report.numerals import MINUS, decimals, number, tick
from dpb_gym.report.palette import colours


def test_groups_split_by_notion_and_unit_and_sort_by_regret(make):
    for problem in ("assortment", "pricing", "recommendation"):
        rows = make.task(problem).rows
        found = groups(rows)
        assert sum(len(members) for _, members in found) == len(rows)
        assert len({group for group, _ in found}) == len(found)
        for group, members in found:
            assert {(r.notion, r.unit) for r in members} == {(group.notion, group.unit)}
            regrets = [r.regret.mean for r in members]
            assert regrets == sorted(regrets)
        assert found[-1][0] == Group(None, None)


def test_best_is_the_lowest_regret_of_each_contest_and_never_a_reference(make):
    task = make.task("assortment")
    best = best_keys(task)
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
    task = make.task("recommendation")
    assert not any(key.startswith("JDP") for key in best_keys(task))


@given(
    st.sampled_from(["rho", "eps", "ε", "epsilon"]),
    st.floats(1e-6, 1e6),
    st.sampled_from(["", ", delta=1e-5", "; delta = 1e-6"]),
)
def test_budgets_read_back(name, value, rest):
    scale = budget_scale(f"{name}={value!r}{rest}")
    assert scale is not None
    assert scale.value == value
    assert scale.kind.startswith(name) and ("delta" in scale.kind) == bool(rest)


@pytest.mark.parametrize(
    "text",
    ["none", "rho=0", "rho=", "=1", "rho=-1", "rho=nan", "rho=1.2.3", "rho=1e999", "3=4", ""],
)
def test_what_is_no_positive_number_is_no_scale(text):
    assert budget_scale(text) is None


def test_budgets_sort_by_number_and_none_comes_last():
    texts = ["none", "rho=10", "strict", "rho=2", "rho=0.1"]
    assert sorted(texts, key=budget_order) == ["rho=0.1", "rho=2", "rho=10", "strict", "none"]


def test_strength_is_full_for_the_largest_budget_and_falls(make):
    task = make.task("assortment", budgets=(0.1, 0.5, 1.0, 10.0))
    alpha = strength(task)
    family = [alpha[f"DPMNL (rho={rho})"] for rho in ("10", "1", "0.5", "0.1")]
    assert family[0] == 1.0
    assert family == sorted(family, reverse=True) and len(set(family)) == 4
    assert min(family) >= 0.4
    assert alpha["UCB-MNL"] == 1.0


def test_display_names_the_budget_once(make):
    rng = np.random.default_rng(0)
    assert display(make.row(rng, agent="A", budget="rho=1")) == "A rho=1"
    assert display(make.row(rng, agent="A (rho=1)", budget="rho=1")) == "A (rho=1)"
    assert display(make.row(rng, agent="A")) == "A"


def test_one_colour_per_agent_and_distinct_ones(make):
    data = make.crowd()
    shades = colours(data.tasks)
    assert len(shades) == 30
    assert len({pair[0] for pair in shades.values()}) == 30
    assert len({pair[1] for pair in shades.values()}) == 30
    assert all(len(c) == 7 and int(c[1:], 16) >= 0 for pair in shades.values() for c in pair)
    assert colours(reversed(data.tasks)).keys() == shades.keys()


def luminance(colour):
    channels = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def test_colours_stand_out_from_both_backgrounds(make):
    """WCAG asks for a contrast of 3 for graphics."""
    for light, dark in colours(make.crowd(rows=60).tasks).values():
        assert 1.05 / (luminance(light) + 0.05) >= 3
        assert (luminance(dark) + 0.05) / (luminance("#10151b") + 0.05) >= 3


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


def test_extremes_leave_the_choice_to_each_number():
    assert decimals([1.0, 1e9]) is None
    assert decimals([1e-9, 1e-10]) is None
    assert decimals([0.0, 0.0]) == decimals([]) == 0
    assert number(-0.0001, 2) == "0.00"
    assert number(None) == "–"


@pytest.mark.parametrize("module", [grouping, numerals])
def test_docstrings_run(module):
    result = doctest.testmod(module)
    assert result.attempted > 0 and result.failed == 0
