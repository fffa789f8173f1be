"""Sorting, filtering, links and details in a real browser."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from dpb_gym.report import Interval
from dpb_gym.report.grouping import groups
from dpb_gym.report.numerals import decimals, number

pytestmark = pytest.mark.browser


def named(rows):
    return [f"{row.agent}|{'–' if row.budget == 'none' else row.budget}" for row in rows]


def test_numbers_on_the_page_are_those_of_the_data(opened, make):
    data = make.data()
    page = opened(data)
    assert page.title == data.title
    for t, task in enumerate(data.tasks):
        places = decimals(row.regret.mean for row in task.rows)
        for i, row in enumerate(task.rows):
            cell = page.find(f"#row-{t}-{i} td.regret")
            assert page.find(f"#row-{t}-{i} td.regret .mean").text == number(
                row.regret.mean, places
            )
            assert float(cell.get_attribute("data-value")) == row.regret.mean
            assert number(row.regret.low, places) in cell.text
            score = page.find(f"#row-{t}-{i} td.score")
            assert float(score.get_attribute("data-value")) == row.score.mean


def test_rows_stand_by_group_and_regret_at_first(opened, make):
    data = make.data()
    page = opened(data)
    for t, task in enumerate(data.tasks):
        assert page.visible(t) == named(r for _, rows in groups(task.rows) for r in rows)
    header = page.find("#task-0 th[data-sort=regret]")
    assert header.get_attribute("aria-sort") == "ascending"


def expected(task, key, reverse, apart=True):
    order = []
    for rows in [rows for _, rows in groups(task.rows)] if apart else [list(task.rows)]:
        rows = sorted(rows, key=lambda row: row.key)
        order += (
            sorted(rows, key=key, reverse=False)
            if not reverse
            else sorted(rows, key=lambda row: -key(row))
        )
    return named(order)


def test_a_click_sorts_a_column_within_each_guarantee(opened, make):
    data = make.data()
    page = opened(data)
    page.press("#task-0 th[data-sort=speed] button")
    header = page.find("#task-0 th[data-sort=speed]")
    assert header.get_attribute("aria-sort") == "descending"
    assert page.find("#task-0 th[data-sort=regret]").get_attribute("aria-sort") is None
    for t, task in enumerate(data.tasks):
        assert page.visible(t) == expected(task, lambda row: row.rounds_per_second, True)
    page.press("#task-0 th[data-sort=speed] button")
    assert header.get_attribute("aria-sort") == "ascending"
    assert page.visible() == expected(data.tasks[0], lambda row: row.rounds_per_second, False)


@pytest.mark.parametrize("key", ["\ue007", " "], ids=["enter", "space"])
def test_the_keyboard_sorts_too(opened, make, key):
    data = make.data()
    page = opened(data)
    page.keys("#task-1 th[data-sort=reward] button", key)
    header = page.find("#task-1 th[data-sort=reward]")
    assert header.get_attribute("aria-sort") == "descending"
    assert page.visible(1) == expected(data.tasks[1], lambda row: row.reward.mean, True)


def test_every_column_sorts_and_missing_values_stay_last(opened, make):
    rng = np.random.default_rng(3)
    rows = tuple(
        make.row(
            rng,
            agent=f"A{k}",
            score=None if k % 2 else Interval(k / 10, 0, 1),
            rounds_per_second=None if k == 0 else float(10 + k),
            budget=f"rho={10.0 ** (k - 2):g}",
        )
        for k in range(5)
    )
    page = opened(make.data([replace(make.task(), rows=rows)]))

    def agents():
        return [label.split("|")[0] for label in page.visible()]

    page.press("th[data-sort=score] button")
    assert agents() == ["A4", "A2", "A0", "A1", "A3"]
    page.press("th[data-sort=score] button")
    assert agents() == ["A0", "A2", "A4", "A1", "A3"]
    page.press("th[data-sort=speed] button")
    assert agents() == ["A4", "A3", "A2", "A1", "A0"]
    page.press("th[data-sort=speed] button")
    assert agents() == ["A1", "A2", "A3", "A4", "A0"]
    page.press("th[data-sort=budget] button")
    assert agents() == ["A0", "A1", "A2", "A3", "A4"]  # 0.01 ... 100, not by text
    page.press("th[data-sort=agent] button")
    page.press("th[data-sort=agent] button")
    assert agents() == ["A4", "A3", "A2", "A1", "A0"]
    page.press("th[data-sort=guarantee] button")
    assert sorted(agents()) == agents()


def test_filters_by_problem_guarantee_budget_and_text(opened, make):
    data = make.data()
    page = opened(data)
    page.press("input[name=problem][value=pricing]")
    assert [bool(page.visible(t)) for t in range(3)] == [False, True, False]
    assert page.find("#status").text == "10 of 37 rows"
    page.press("input[name=problem][value=assortment]")
    assert [bool(page.visible(t)) for t in range(3)] == [True, True, False]

    page.press("#reset")
    page.press("input[name=guarantee][value='joint/user-round']")
    for t, task in enumerate(data.tasks):
        rows = [r for _, members in groups(task.rows) for r in members if r.notion == "joint"]
        assert page.visible(t) == named(rows)
    page.press("input[name=guarantee][value='non-private']")
    assert len(page.visible(1)) == 4

    page.press("#reset")
    page.press("input[name=budget][value='rho=0.5']")
    for t in range(3):
        assert page.visible(t) and all(x.endswith("|rho=0.5") for x in page.visible(t))

    page.press("#reset")
    page.keys("#q", "adaprivate -UCB")
    assert [page.visible(t) for t in (0, 1)] == [[], []]
    assert {x.split("|")[0] for x in page.visible(2)} == {"AdaPrivate-TS"}
    page.keys("#q", " nothing like it")
    assert page.find("#nothing").is_displayed()
    page.press("#clear")
    assert sum(len(page.visible(t)) for t in range(3)) == 37
    assert not page.find("#nothing").is_displayed()
    assert page.fragment() == ""


def test_the_keyboard_reaches_the_filters(opened, make):
    page = opened(make.data())
    page.keys("input[name=problem][value=recommendation]", " ")
    assert [bool(page.visible(t)) for t in range(3)] == [False, False, True]


def test_guarantees_stand_apart_unless_asked_otherwise(opened, make):
    data = make.data()
    page = opened(data)
    assert not page.find("#mixed").is_displayed()
    page.press("#apart")
    assert page.find("#mixed").is_displayed()
    assert page.visible() == expected(data.tasks[0], lambda r: r.regret.mean, False, apart=False)
    page.press("#apart")
    assert page.visible() == expected(data.tasks[0], lambda r: r.regret.mean, False)


def test_the_address_holds_the_view_and_gives_it_back(opened, make):
    data = make.data()
    page = opened(data)
    page.press("input[name=problem][value=assortment]")
    page.press("input[name=budget][value='rho=1']")
    page.press("th[data-sort=score] button")
    page.press("th[data-sort=score] button")
    page.keys("#q", "mnl")
    page.press("#logy")
    page.press("#row-0-2 .pin")
    seen, link = page.visible(), page.fragment()
    assert len(seen) == 2

    page = opened(data, hash=link)
    assert page.visible() == seen
    assert page.find("#q").get_attribute("value") == "mnl"
    assert page.find("input[name=budget][value='rho=1']").is_selected()
    assert page.find("#logy").is_selected() and not page.find("#logx").is_selected()
    header = page.find("#task-0 th[data-sort=score]")
    assert header.get_attribute("aria-sort") == "ascending"
    assert page.find("#row-0-2 .pin").get_attribute("aria-pressed") == "true"
    assert page.fragment() == link

    page.execute_script("location.hash = 'problem=pricing&sort=agent'")
    assert [bool(page.visible(t)) for t in range(3)] == [False, True, False]
    header = page.find("#task-1 th[data-sort=agent]")
    assert header.get_attribute("aria-sort") == "ascending"


@pytest.mark.parametrize(
    "odd",
    [
        "#sort=nonsense&dir=up&problem=poker&budget=rho%3D77&task=no&pin=a/b",
        "#%E0%A4%A",
        "#q=%00",
        "#problem=<script>alert(1)</script>",
    ],
)
def test_a_broken_address_does_no_harm(opened, make, odd):
    page = opened(make.data(), hash=odd)
    if "q=" in odd:
        assert page.find("#nothing").is_displayed()
    else:
        assert sum(len(page.visible(t)) for t in range(3)) == 37


def test_task_links_go_to_their_task_and_into_the_address(opened, make):
    page = opened(make.data())
    page.press(".tasks a:nth-child(3)")
    top = page.execute_script(
        "return document.querySelector('#task-2').getBoundingClientRect().top"
    )
    assert abs(top) < 40
    assert page.fragment() == "#task=recommendation-clip"
    page = opened(make.data(), hash="#task=pricing-clip")
    top = page.execute_script(
        "return document.querySelector('#task-1').getBoundingClientRect().top"
    )
    assert abs(top) < 40


def test_details_open_by_click_and_keyboard(opened, make):
    page = opened(make.data())
    panel = page.find("#detail-0-0")
    assert not panel.is_displayed()
    page.press("#row-0-0 .more button")
    assert panel.is_displayed() and "Probability of improvement" in panel.text
    assert page.find("#row-0-0 .more button").get_attribute("aria-expanded") == "true"
    assert page.find("#row-0-0 .pin").get_attribute("aria-pressed") == "false"
    page.keys("#row-0-0 .more button", " ")
    assert not panel.is_displayed()
    page.keys("#row-0-1 .more button", "\ue007")
    panel = page.find("#detail-0-1")
    assert panel.is_displayed()
    page.press("th[data-sort=agent] button")
    after = page.execute_script("return document.querySelector('#row-0-1').nextElementSibling.id")
    assert after == "detail-0-1" and panel.is_displayed()


def test_guarantees_are_explained_on_demand(opened, make):
    page = opened(make.data())
    text = page.find("#task-0 tbody tr.group p")
    assert not text.is_displayed()
    page.press("#task-0 tbody tr.group summary")
    assert text.is_displayed() and "one customer" in text.text
