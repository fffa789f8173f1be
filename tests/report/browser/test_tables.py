"""Sorting, filtering, links and details in a real browser."""

from __future__ import annotations

import re
from dataclasses import replace

import numpy as np
import pytest

from dpb_gym.report import records
from dpb_gym.report.columns import COLUMNS, ResultColumn, register
from dpb_gym.report.leaderboard_data import Interval
from dpb_gym.report.number_format import decimals, number
from dpb_gym.report.tables import board

pytestmark = pytest.mark.browser


def named(rows):
    return [f"{row.agent}|{row.budget or '–'}" for row in rows]


def groups(task):
    return [[line.row for line in lines] for _, lines in board(task).tasks[0].sections]


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
            assert number(row.regret.low, places) in cell.text
            assert number(row.score.mean, 3) in page.find(f"#row-{t}-{i} td.score").text
            said = page.find(f"#row-{t}-{i} .said").text
            assert said == ("computed · computed here" if row.private else "computed here")


def test_rows_are_sorted_by_group_and_regret_by_default(opened, make):
    data = make.data()
    page = opened(data)
    for t, task in enumerate(data.tasks):
        assert page.visible(t) == named(r for rows in groups(task) for r in rows)
    header = page.find("#task-0 th[data-sort=regret]")
    assert header.get_attribute("aria-sort") == "ascending"


def expected(task, key, reverse, apart=True):
    order = []
    for rows in groups(task) if apart else [list(task.rows)]:
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
    page.press("#task-0 th[data-sort=rounds_per_second] button")
    header = page.find("#task-0 th[data-sort=rounds_per_second]")
    assert header.get_attribute("aria-sort") == "descending"
    assert page.find("#task-0 th[data-sort=regret]").get_attribute("aria-sort") is None
    for t, task in enumerate(data.tasks):
        assert page.visible(t) == expected(task, lambda row: row.rounds_per_second, True)
    page.press("#task-0 th[data-sort=rounds_per_second] button")
    assert header.get_attribute("aria-sort") == "ascending"
    assert page.visible() == expected(data.tasks[0], lambda row: row.rounds_per_second, False)
    page.press("#task-0 th[data-sort=rounds_per_second] button")
    assert header.get_attribute("aria-sort") == "descending"


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
            budget=f"rho={(0.5, 2, 10, 30, 100)[k]:g}",
        )
        for k in range(5)
    )
    page = opened(make.data([replace(make.task(), rows=rows)]))
    assert page.find("th[data-sort=regret]").get_attribute("aria-sort") == "ascending"

    def agents():
        return [label.split("|")[0] for label in page.visible()]

    page.press("th[data-sort=score] button")
    assert agents() == ["A4", "A2", "A0", "A1", "A3"]
    page.press("th[data-sort=score] button")
    assert agents() == ["A0", "A2", "A4", "A1", "A3"]
    page.press("th[data-sort=rounds_per_second] button")
    assert agents() == ["A4", "A3", "A2", "A1", "A0"]
    page.press("th[data-sort=rounds_per_second] button")
    assert agents() == ["A1", "A2", "A3", "A4", "A0"]
    page.press("th[data-sort=budget] button")
    assert agents() == ["A0", "A1", "A2", "A3", "A4"]  # by number, not by text
    page.press("th[data-sort=agent] button")
    page.press("th[data-sort=agent] button")
    assert agents() == ["A4", "A3", "A2", "A1", "A0"]
    page.press("th[data-sort=guarantee] button")
    assert sorted(agents()) == agents()


def test_filters_by_problem_guarantee_budget_and_text(opened, make):
    data = make.data()
    page = opened(data)
    page.unfold()
    page.press("input[name=problem][value=pricing]")
    assert [bool(page.visible(t)) for t in range(3)] == [False, True, False]
    assert page.find("#status").text == "10 of 37 rows"
    page.press("input[name=problem][value=assortment]")
    assert [bool(page.visible(t)) for t in range(3)] == [True, True, False]

    page.press("#reset")
    page.press("input[name=guarantee][value='joint/user-round']")
    for t, task in enumerate(data.tasks):
        rows = [r for members in groups(task) for r in members if r.notion == "joint"]
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
    page.keys("#fold", " ")
    page.keys("input[name=problem][value=recommendation]", " ")
    assert [bool(page.visible(t)) for t in range(3)] == [False, False, True]


def test_rows_are_grouped_by_guarantee_by_default(opened, make):
    data = make.data()
    page = opened(data)
    assert not page.find("#mixed").is_displayed()
    page.unfold()
    page.press("#apart")
    assert page.find("#mixed").is_displayed()
    assert page.visible() == expected(data.tasks[0], lambda r: r.regret.mean, False, apart=False)
    page.press("#apart")
    assert page.visible() == expected(data.tasks[0], lambda r: r.regret.mean, False)


def test_the_address_stores_and_restores_the_view(opened, make):
    data = make.data()
    page = opened(data)
    page.unfold()
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
    assert not page.find("#logy").is_selected() and page.find("#logx").is_selected()
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


def test_an_address_with_a_task_goes_to_it(opened, make):
    page = opened(make.data(), height=700, hash="#task=pricing-clip")
    top = page.execute_script(
        "return document.querySelector('#task-1').getBoundingClientRect().top"
    )
    assert abs(top) < 40


def test_details_open_by_click_and_keyboard(opened, make):
    page = opened(make.data())
    assert page.all("tr.detail") == []
    page.press("#row-0-0 .more button")
    panel = page.find("#detail-0-0")
    assert panel.is_displayed() and "Probability of improvement" in panel.text
    assert page.find("#row-0-0 .more button").get_attribute("aria-expanded") == "true"
    assert page.find("#row-0-0 .pin").get_attribute("aria-pressed") == "false"
    page.keys("#row-0-0 .more button", " ")
    assert page.all("tr.detail") == []
    page.keys("#row-0-1 .more button", "\ue007")
    panel = page.find("#detail-0-1")
    assert panel.is_displayed()
    page.press("th[data-sort=agent] button")
    after = page.execute_script("return document.querySelector('#row-0-1').nextElementSibling.id")
    assert after == "detail-0-1" and page.find("#detail-0-1").is_displayed()


def test_a_search_accepts_every_spelling_of_a_budget(opened, make):
    task = make.task()
    rows = tuple(
        replace(row, budget=f"eps={row.budget.limit},delta=1e-5") if row.budget else row
        for row in task.rows
    )
    page = opened(make.data([replace(task, rows=rows)]))
    for words in ("eps=0.5", "epsilon=0.5", "EPSILON = 0.5", "ε=0.5"):
        page.execute_script("document.querySelector('#q').value = ''")
        page.keys("#q", words)
        assert page.find("#status").text == "3 of 14 rows", words
        assert all(row.endswith("|eps=0.5,delta=1e-5") for row in page.visible())


def test_the_download_holds_the_rows_that_pass(opened, make):
    import csv

    task = make.task(task="a,b")
    liar = replace(task.rows[0], agent="=1+1", trust="stated by somebody", name="mine")
    page = opened(make.data([replace(task, rows=(*task.rows, liar))]))
    assert "stated by somebody" in page.find(f"#row-0-{len(task.rows)} .said").text
    page.keys("#q", "rho=0.1")
    text = page.execute_script(
        """
        let blob = null;
        const make = URL.createObjectURL;
        URL.createObjectURL = b => { blob = b; return 'data:,'; };
        HTMLAnchorElement.prototype.click = function () {};
        document.querySelector('#csv').click();
        URL.createObjectURL = make;
        return blob.text();
        """
    )
    downloaded = list(csv.DictReader(text.splitlines()))
    assert list(downloaded[0]) == list(records(task)[0])
    rows = {r.agent: r for r in (*task.rows, liar) if str(r.budget) == "rho=0.1"}
    assert [row["task"] for row in downloaded] == ["a,b"] * len(rows)
    assert {row["agent"].lstrip("'") for row in downloaded} == set(rows) and "'=1+1" in {
        row["agent"] for row in downloaded
    }
    for row in downloaded:
        mine = rows[row["agent"].lstrip("'")]
        assert float(row["regret"]) == pytest.approx(mine.regret.mean, rel=1e-5)
        assert row["trust"] == mine.trust and row["budget"] == "rho=0.1"


def test_a_registered_column_is_shown_and_sorts(opened, make):
    register(ResultColumn("spread", "Spread", "number", value=lambda task, row: row.regret.high))
    try:
        data = make.data()
        page = opened(data, hash="#sort=spread")
    finally:
        COLUMNS.pop()
    task = data.tasks[0]
    assert page.find("#row-0-0 td.spread").text == number(task.rows[0].regret.high)
    assert page.visible() == expected(task, lambda row: row.regret.high, False)
    page.press("#row-0-0 .more button")
    assert "Spread" in page.find("#detail-0-0").text


def test_an_old_name_of_a_column_still_sorts(opened, make):
    page = opened(make.data(), hash="#sort=speed")
    header = page.find("#task-0 th[data-sort=rounds_per_second]")
    assert header.get_attribute("aria-sort") == "descending"


def test_guarantees_are_explained_on_demand(opened, make):
    page = opened(make.data())
    text = page.find("#task-0 tbody tr.group p")
    assert not text.is_displayed()
    page.press("#task-0 tbody tr.group summary")
    assert text.is_displayed() and "one customer" in text.text


def test_one_replicate_has_no_interval_on_the_page(opened):
    import dpb_gym

    agents = {
        "ours": ("one-pass-pricing", "rho=1"),
        "more": ("one-pass-pricing", "rho=9"),
        "random": "random",
    }
    result = dpb_gym.evaluate("DPB/Pricing-v0", agents, 200, replicates=1, progress=False)
    page = opened(result.to_leaderboard())
    page.unfold_all()
    assert len(page.ends()) == 3
    page.hover("#task-0 .curves svg")
    text = page.find("body").text
    assert "ours" in text and "NaN" not in text and "undefined" not in text
    assert not re.search(r"([\d.,]+) to \1\b|\[([\d.,]+), \2\]", text), text
    titles = " ".join(e.get_attribute("textContent") for e in page.all("svg title"))
    titles += " ".join(e.get_attribute("title") for e in page.all("[title]"))
    assert not re.search(r"([\d.,]+) to \1\b|NaN|undefined", titles), titles
