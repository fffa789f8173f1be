"""The page of an agent, at #agent=NAME: its rows, guarantees, audits, code and versions."""

from __future__ import annotations

from dataclasses import replace

import pytest

from dpb_gym.report.leaderboard_data import Origin

pytestmark = pytest.mark.browser
ROWS = """
return [...document.querySelectorAll('#agent tbody tr')].map(tr =>
  [...tr.children].map(cell => cell.innerText.trim()));
"""


@pytest.fixture(scope="module")
def board(make):
    """Two tasks; one-pass-mnl is audited on the first, with another code than on the second."""
    tasks = []
    for name, verdict, source in (
        ("assortment-a", "PASS", "a1b2c3d4e5f60718"),
        ("assortment-b", "not audited", "0817f6e5d4c3b2a1"),
    ):
        task = replace(make.task("assortment", budgets=(0.1, 1.0)), task=name)
        rows = [
            replace(row, verdict=verdict if row.private else "", source=source)
            if row.name == "one-pass-mnl"
            else row
            for row in task.rows
        ]
        tasks.append(replace(task, rows=tuple(rows)))
    paper = "https://arxiv.org/abs/2410.22488"
    page = "_generated/agents/one-pass-mnl.html"
    origin = Origin("one-pass-mnl", "agents/one_pass_mnl.py", (paper,), page, standing="ours")
    return make.data(tasks, origins=(origin,))


def expected(board):
    return [
        (task.task, row.agent) for task in board.tasks for row in task.rows
        if row.name == "one-pass-mnl"
    ]  # fmt: skip


def test_an_address_opens_the_page_of_an_agent(opened, board):
    page = opened(board, hash="#agent=one-pass-mnl", height=500)
    text = page.find("#agent").text
    rows = page.execute_script(ROWS)
    assert [(row[0], row[1]) for row in rows] == expected(board) and len(rows) >= 4
    private = [row for task in board.tasks for row in task.rows if row.name == "one-pass-mnl"]
    private = [row for row in private if row.private]
    assert f"PASS: {len(private) // 2} rows" in text
    assert f"not audited: {len(private) // 2} rows" in text
    assert "agents/one_pass_mnl.py" in text and "arXiv:2410.22488" in text
    assert "a1b2c3d4e5f6" in text and "0817f6e5d4c3" in text
    assert f"dpb-gym {board.version}" in text and "joint" in text
    assert page.fragment() == "#agent=one-pass-mnl"
    top = "return document.querySelector('#agent').getBoundingClientRect().top"
    assert 0 <= page.execute_script(top) < 500 / 4  # in the upper quarter of the window


def test_the_details_of_a_row_link_to_the_page_of_its_agent(opened, board):
    page = opened(board)
    assert not page.find("#agent").is_displayed()
    number = next(i for i, r in enumerate(board.tasks[0].rows) if r.name == "one-pass-mnl")
    page.press(f"#task-0 #row-0-{number} .more button")
    page.press("#task-0 tr.detail a[href^='#agent=']")
    assert page.find("#agent").is_displayed()
    name = page.find("#agent h2 code").text
    assert page.fragment() == f"#agent={name}"
    page.press("#agent tbody tr:last-child a")
    assert page.fragment() == "#task=assortment-b" and not page.find("#agent").is_displayed()


def test_a_name_without_rows_opens_no_page(opened, board):
    page = opened(board, hash="#agent=nobody")
    assert not page.find("#agent").is_displayed()


def test_the_page_of_an_agent_fits_a_phone(opened, board):
    page = opened(board, hash="#agent=one-pass-mnl", width=360)
    assert page.execute_script("return document.documentElement.scrollWidth") <= 360
