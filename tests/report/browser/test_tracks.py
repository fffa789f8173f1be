"""Tracks, many rows and details rendered on demand, in a real browser."""

from __future__ import annotations

import numpy as np
import pytest

pytestmark = pytest.mark.browser


@pytest.fixture(scope="module")
def arena(make):
    """Six tasks (0 to 5) in three tracks (6 to 8)."""
    return make.arena(agents=9, sizes=2, budgets=3)


def best_first(track):
    """Labels and budgets by group, budget and score."""
    order = [("joint", "user-round"), ("central", "reward"), (None, None)]
    rows = sorted(
        track.rows,
        key=lambda r: (
            order.index((r.notion, r.unit)),
            r.budget.rho if r.budget else 0,
            -r.score.mean,
        ),
    )
    return [f"{r.agent}|{r.budget or '–'}" for r in rows]


def test_tracks_rank_within_guarantee_and_budget(opened, arena):
    page = opened(arena)
    assert page.all("tr.row") == []  # rows are made when their part is opened
    for k, track in enumerate(arena.tracks):
        page.press(f"#task-{6 + k} summary")
        assert page.visible(6 + k) == best_first(track)
    headings = [e.text for e in page.all("#task-6 tr.group summary")]
    assert headings[:3] == [f"joint, per user-round, rho={rho}" for rho in (0.02, 0.1, 0.5)]
    assert page.find("#status").text == f"{sum(len(t.rows) for t in arena.tasks)} rows"


def test_a_track_is_chosen_by_filter_and_address(opened, arena):
    page = opened(arena)
    page.unfold()
    page.press("input[name=track][value=pricing]")
    shown = [bool(page.visible(t)) for t in range(9)]
    assert shown == [False, False, True, True, False, False, False, True, False]
    assert page.fragment() == "#track=pricing"
    page.press("#reset")
    assert not any(page.visible(t) for t in range(9))  # folded again
    page = opened(arena, height=700, hash="#task=recommendation")
    top = page.execute_script(
        "return document.querySelector('#task-8').getBoundingClientRect().top"
    )
    assert abs(top) < 40
    page = opened(arena)
    page.unfold()
    page.press("input[name=budget][value='rho=0.1']")
    assert all(row.endswith("|rho=0.1") for t in range(9) for row in page.visible(t))


def test_a_table_without_the_sorted_column_keeps_its_order(opened, arena):
    page = opened(arena, hash="#q=agent")
    before = page.visible(6)
    page.keys("#task-0 th[data-sort=rounds_per_second] button", " ")
    assert page.visible(6) == before
    assert page.find("#task-6 th[data-sort=score]").get_attribute("aria-sort") == "descending"
    rows = page.visible(0)
    page.keys("#task-6 th[data-sort=ahead] button", " ")
    assert page.find("#task-6 th[data-sort=ahead]").get_attribute("aria-sort") == "descending"
    assert page.find("#task-0 th[data-sort=regret]").get_attribute("aria-sort") == "ascending"
    assert page.visible(0) != rows
    page.keys("#task-6 th[data-sort=score] button", " ")
    page.keys("#task-6 th[data-sort=score] button", " ")
    assert page.visible(6) != before
    assert "sort=score&dir=asc" in page.fragment()


def test_pointing_at_a_row_of_a_track_highlights_its_frontier(opened, arena):
    page = opened(arena, hash="#task=assortment")
    page.keys("#task-6 tr.row .pin", " ")
    hot = page.execute_script(
        "return [...document.querySelectorAll('#task-6 .frontiers .series.hot')].length"
    )
    assert hot == 1
    assert "pin=assortment%2FAgent" in page.fragment()


def test_details_list_probabilities_of_improvement_at_equal_privacy(opened, arena):
    page = opened(arena, hash=f"#task={arena.tasks[0].task}")
    assert page.all(".chances") == []
    task = arena.tasks[0]
    i = next(k for k, row in enumerate(task.rows) if row.notion == "joint")
    row = task.rows[i]
    page.keys(f"#row-0-{i} .more button", "\ue007")
    items = page.all(f"#detail-0-{i} .chances li")
    rivals = [
        np.mean([row.finals[k] < r.finals[k] for k in range(30)])
        for r in task.rows
        if r.notion == "joint" and r.budget == row.budget and r.key != row.key
    ]
    assert [e.find_element("css selector", "b").text for e in items] == [
        f"{p:.2f}" for p in sorted(rivals, reverse=True)
    ]


def test_every_end_of_a_curve_names_its_agent(opened, make):
    task = make.task("assortment", budgets=(0.1, 0.5, 1.0))
    page = opened(make.data([task]))
    names = [e.text for e in page.all(".curves text.end")]
    expected = [
        row.agent if row.budget is None else f"{row.agent} {row.budget}"
        for row in task.rows
        if row.curve[-1][1] > 0
    ]
    assert sorted(names) == sorted(expected)


def test_two_thousand_rows_are_rendered_on_demand(opened, make):
    page = opened(make.crowd(rows=400, tasks=5), height=900)
    count = "return document.querySelectorAll(arguments[0]).length"
    assert page.execute_script(count, "*") < 1500 and page.execute_script(count, "tr.row") == 0
    page.press("#task-0 summary")
    assert len(page.visible(0)) == 40
    page.press("#task-0 tr.rest button")
    assert len(page.visible(0)) == 240 and page.find("#task-0 tr.rest").text == "160 more rows"
    page.keys("#q", "agent number 07")
    assert 0 < page.execute_script(count, "tr.row") < 60


def test_many_curves_are_reduced_to_largest_budgets_and_pinned_rows(opened, make):
    data = make.arena(agents=12, sizes=1, budgets=4)
    task = data.tasks[0]
    page = opened(data, hash=f"#task={task.task}")
    drawn = {int(i) for i in page.ends(0)}
    largest = {
        i for i, row in enumerate(task.rows) if str(row.budget or "none") in ("none", "rho=1")
    }
    assert drawn == largest and len(task.rows) == 30
    assert "largest budget" in page.find("#task-0 .curves figcaption").text
    other = min(set(range(30)) - largest)
    page.keys(f"#row-0-{other} .pin", " ")
    assert {int(i) for i in page.ends(0)} == largest | {other}
    page.press("#reset")
    page.unfold()
    page.press("input[name=budget][value='rho=0.1']")
    shown = {i for i, row in enumerate(task.rows) if str(row.budget) == "rho=0.1"}
    best = min((r.regret.mean, i) for i, r in enumerate(task.rows) if not r.private)[1]
    shown.add(best)  # the best without privacy always shows
    assert {int(i) for i in page.ends(0)} == shown
    assert "largest budget" not in page.find("#task-0 .curves figcaption").text


@pytest.mark.parametrize(("width", "dark"), [(375, False), (375, True), (1280, True)])
def test_a_full_arena_fits_and_names_do_not_overlap(opened, arena, width, dark):
    page = opened(arena, width=width, dark=dark, hash="#q=agent")
    inner, outer = page.execute_script(
        "const d = document.documentElement; return [d.scrollWidth, d.clientWidth]"
    )
    assert inner <= outer == width
    count = len(page.all(".canvas"))
    assert count >= 6
    for chart in range(count):
        places = page.execute_script(
            "return [...document.querySelectorAll('.canvas')[arguments[0]]"
            ".querySelectorAll('text.end')].map(t => +t.getAttribute('y'))",
            chart,
        )
        assert len(places) == 0 or (np.diff(sorted(places)) > 13).all()
