"""The first screen: switches, pictures, the table of agents, and a first visitor's question."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from dpb_gym.report.leaderboard_data import Interval, Origin, RulingComparison
from dpb_gym.report.number_format import number
from dpb_gym.results.result import Result

pytestmark = pytest.mark.browser
PUBLISHED = Path(__file__).parents[3] / "docs" / "leaderboard" / "dpb-bench-v1"
CELLS = """
return [...document.querySelectorAll('#heat tbody tr:not(.group)')].map(tr =>
  [tr.querySelector('button').textContent,
   ...[...tr.querySelectorAll('td.num .times')].map(n => n.textContent)]);
"""


def heat(page):
    """Rows of the table of agents: label, then the text of each filled cell."""
    return page.execute_script(CELLS)


def headers(page):
    return [e.text.split("\n")[0] for e in page.all("#heat thead th.num")]


@pytest.fixture(scope="module")
def board(make):
    """One task: our agent and a rival, default and tuned, and an agent that trusts nobody."""
    task = make.task("assortment", budgets=(0.1, 1.0))
    kept = [r for r in task.rows if r.name not in ("noisy-newton", "ucb-mnl", "ts-mnl")]
    rows = [replace(row, epsilons=(2.0, 1.0, 0.9, 0.8)) if row.private else row for row in kept]

    def more(of, factor, **fields):
        for row in [r for r in rows if r.name == of and r.private and r.ruling != "tuned"]:
            mean = row.regret.mean * factor
            rows.append(replace(row, regret=Interval(mean, mean, mean), **fields))

    more("one-pass-mnl", 1.5, agent="One-pass MNL (tuned)", ruling="tuned")
    more("dpmnl", 0.1, agent="DPMNL (tuned)", ruling="tuned")
    more("dpmnl", 3.0, agent="Local", name="local", notion="local")
    origins = (Origin("one-pass-mnl", standing="ours"), Origin("dpmnl", standing="paper"))
    first, second = "One-pass MNL (rho=1)", "DPMNL (rho=1)"
    pair = RulingComparison(
        task.task,
        "default",
        "curator",
        "joint",
        "user-round",
        "rho=1",
        first,
        second,
        Interval(5, 1, 9),
        True,
        survives=True,
    )
    return make.data([replace(task, rows=tuple(rows))], origins=origins, comparisons=(pair,))


def ratio(data, key):
    rows = {row.key: row for row in data.tasks[0].rows}
    base = min(r.regret.mean for r in rows.values() if not r.private and not r.reference)
    value = rows[key].regret.mean / base
    return f"{value:.1f}×" if value < 100 else f"{number(value)}×"


def test_the_table_shows_defaults_with_a_trusted_server_first(opened, board):
    page = opened(board)
    table = {label: cells for label, *cells in heat(page)}
    mine = [ratio(board, f"One-pass MNL (rho={rho})") for rho in ("0.1", "1")]
    assert table["One-pass MNL"][:2] == [mine[0], f"{mine[1]} ●"]
    assert table["DPMNL"][:2] == [ratio(board, f"DPMNL (rho={rho})") for rho in ("0.1", "1")]
    assert table["Local"] == [ratio(board, f"Local (rho={rho})") for rho in ("0.1", "1")]
    notes = "return [...document.querySelectorAll('#heat .from')].map(one => one.textContent)"
    assert sum(note.endswith(", trusts nobody") for note in page.execute_script(notes)) == 2
    assert "Random" in table and "Oracle" not in table
    assert headers(page)[:2] == ["ε ≤ 1", "ε ≤ 1"]
    badges = {e.text for e in page.all("#heat td.source")}
    assert {"ours", "paper's"} <= badges


def test_the_ruling_switch_shows_tuned_rows(opened, board):
    page = opened(board)
    page.press("input[value=tuned]")
    table = {label: cells for label, *cells in heat(page)}
    # Ours is the tuned row although its default is better; the other is the better of both.
    assert table["One-pass MNL"][0] == ratio(board, "One-pass MNL (tuned) (rho=0.1)")
    assert table["DPMNL"][0] == ratio(board, "DPMNL (tuned) (rho=0.1)")
    assert page.fragment() == "#ruling=tuned"
    again = opened(board, hash="#ruling=tuned")
    assert {label: cells for label, *cells in heat(again)} == table


def test_the_trust_switch_selects_who_sees_the_data(opened, board):
    page = opened(board)
    # Its local rows imply the guarantee of an aggregator.
    page.press("input[value=aggregator]")
    assert "Local" in {label.split("\n")[0] for label, *_ in heat(page)}
    page.press("input[value=local]")
    table = {label: cells for label, *cells in heat(page)}
    assert "Local" in table and "DPMNL" not in table
    lines = page.find("#pictures svg").get_attribute("aria-label")
    assert "best other" in lines and "ours (server)" in lines
    page.keys("input[value=curator]", " ")
    assert "DPMNL" in {label for label, *_ in heat(page)}


def test_a_row_of_a_smaller_budget_answers_and_says_so(opened, board):
    """And the mean rank, which one task and two budgets give here."""
    task = board.tasks[0]
    less = {"DPMNL (rho=0.1)": 1e-3, "One-pass MNL (rho=1)": 50.0}
    rows = [
        replace(row, regret=Interval(*[less[row.key]] * 3)) if row.key in less else row
        for row in task.rows
    ]
    page = opened(replace(board, tasks=(replace(task, rows=tuple(rows)),)))
    cells = page.execute_script(
        "return Object.fromEntries([...document.querySelectorAll('#heat tbody tr:not(.group)')]"
        ".map(tr => [tr.querySelector('button').textContent, "
        "[...tr.querySelectorAll('td.num')].map(td => td.textContent)]))"
    )
    assert cells["DPMNL"][1].endswith("at rho=0.1") and "at rho" not in cells["DPMNL"][0]
    assert [cells[name][2] for name in ("DPMNL", "One-pass MNL", "Local")] == [
        "1.0", "2.0", "3.0"
    ]  # fmt: skip


def test_a_mark_is_about_the_two_best_agents(opened, board):
    """The stored comparison is of our agent; here two others have less regret."""
    task = board.tasks[0]
    less = {"DPMNL (rho=1)": 1e-3, "Local (rho=1)": 2e-3}
    rows = [
        replace(row, regret=Interval(*[less[row.key]] * 3)) if row.key in less else row
        for row in task.rows
    ]
    (pair,) = board.comparisons
    data = replace(board, tasks=(replace(task, rows=tuple(rows)),))
    for second, mark in (("DPMNL (rho=1)", ""), ("Local (rho=1)", "")):
        behind = replace(pair, second=second, gain=Interval(-5, -9, -1))
        page = opened(replace(data, comparisons=(behind,)))
        table = {label: cells for label, *cells in heat(page)}
        assert table["DPMNL"][1].partition("×")[2] == mark
    two = replace(pair, first="DPMNL (rho=1)", second="Local (rho=1)", ours=False)
    page = opened(replace(data, comparisons=(two,)))
    table = {label: cells for label, *cells in heat(page)}
    assert table["DPMNL"][1].endswith("●")


def test_rows_without_an_audit_say_so(opened, board):
    task = board.tasks[0]
    rows = [
        replace(row, audit=None, verdict="not audited" if row.name == "dpmnl" else "consistent")
        if row.private else row
        for row in task.rows
    ]  # fmt: skip
    page = opened(replace(board, tasks=(replace(task, rows=tuple(rows)),)))
    said = page.execute_script(
        "return [...document.querySelectorAll('#heat th.who')].filter(th => "
        "th.textContent.includes('not audited')).map(th => th.querySelector('button').textContent)"
    )
    assert said == ["DPMNL"]


def test_multiples_are_of_the_best_default_or_tuned_agent_without_privacy(opened, board):
    task = board.tasks[0]
    exact = next(row for row in task.rows if row.name == "greedy-mnl")
    half = Interval(*[exact.regret.mean / 2] * 3)
    tuned = replace(exact, agent="Greedy MNL (tuned)", ruling="tuned", regret=half)
    data = replace(board, tasks=(replace(task, rows=(*task.rows, tuned)),))
    table = {label: cells for label, *cells in heat(opened(data))}
    assert table["DPMNL"][0] == ratio(data, "DPMNL (rho=0.1)") != ratio(board, "DPMNL (rho=0.1)")


def test_the_outcome_at_an_epsilon_names_its_tasks(opened, board):
    task = board.tasks[0].task
    (pair,) = board.comparisons
    behind = replace(pair, trust="local", first="Local (rho=1)", gain=Interval(-5, -9, -1))
    alone = replace(pair, trust="shuffler", first="Local (rho=1)", second=None, gain=None)
    page = opened(replace(board, comparisons=(pair, behind, alone)))
    said = "return document.querySelector(arguments[0]).textContent"
    counts = "ahead in {}, undecided in 0, behind in {}, not compared in {}."
    names = (
        "return [...document.querySelectorAll('#verdict dt, #verdict dd')].map(x => x.textContent)"
    )
    for trust, numbers, outcome in (
        ("curator", (1, 0, 0), "ahead"),
        ("local", (0, 1, 0), "behind"),
        ("shuffler", (0, 0, 1), "not compared"),
    ):
        page.press(f"input[value={trust}]")
        assert page.execute_script(said, "#verdict summary").endswith(counts.format(*numbers))
        assert page.execute_script(names) == [outcome, f"{task} (a whole visit)"]
    choose = "const box = document.querySelector('#epsilon'); box.value = '0.5';"
    page.execute_script(choose + "box.dispatchEvent(new Event('input', {bubbles: true}))")
    assert not page.find("#verdict").is_displayed()


def test_processor_time_is_shown_beside_regret(opened, board):
    page = opened(board)
    assert page.all("#speeds svg") == []
    page.press("#speeds summary")
    (picture,) = page.all("#speeds svg")
    label = picture.get_attribute("aria-label")
    rows = {row.key: row for row in board.tasks[0].rows}
    for key in ("One-pass MNL (rho=1)", "DPMNL (rho=1)", "Local (rho=1)"):
        time = number(1e6 / float(f"{rows[key].rounds_per_second:.6g}"))
        assert f"{rows[key].agent} {time} and {number(rows[key].regret.mean)}" in label


def test_the_delta_switch_states_other_epsilons(opened, board):
    page = opened(board)
    page.execute_script(
        "const box = document.querySelector('#delta'); box.value = '0.0001';"
        "box.dispatchEvent(new Event('input', {bubbles: true}))"
    )
    assert headers(page)[0] == "ε ≤ 2" and page.fragment() == "#delta=0.0001"


def test_pictures_tell_their_numbers_and_every_figure_has_a_name(opened, make, board):
    page = opened(board)
    rows = {row.key: row for row in board.tasks[0].rows}
    label = page.find("#pictures svg").get_attribute("aria-label")
    for rho in ("0.1", "1"):
        assert number(rows[f"One-pass MNL (rho={rho})"].regret.mean) in label
    assert "ours" in label and "paper's agent" in label and "no privacy" in label
    ends = [e.text for e in page.all("#pictures text.end")]
    assert {"ours", "paper's agent", "no privacy", "random"} <= set(ends)
    for box in page.all("#switches input, #boards input, #pictures select"):
        name = box.get_attribute("aria-label") or box.find_element("xpath", "..").text
        assert name.strip()


def test_another_problem_is_one_action(opened, make):
    page = opened(make.arena(agents=9, sizes=2, budgets=3))
    assert len(page.all("#pictures figure")) == 3
    page.press("#boards input[value='1']")
    assert all("of pricing" in label for label, *_ in heat(page) if label.startswith("Agent"))
    assert page.fragment() == "#board=pricing-size0"


WINNERS = """
return Object.fromEntries([...document.querySelectorAll('#pictures figure')].map(figure =>
  [figure.querySelector('h3').textContent,
   [...figure.querySelectorAll('.wins b')].map(b => b.textContent)]));
"""


@pytest.mark.parametrize("dark", [False, True])
def test_the_answer_is_the_least_regret_within_an_epsilon(opened, board, dark):
    """At delta 1e-5 all rows of the board have epsilon 1."""
    page = opened(board, dark=dark)
    assert page.execute_script(WINNERS) == {"Assortment": ["One-pass MNL"]}
    one = next(r for r in board.tasks[0].rows if r.key == "One-pass MNL (rho=1)")
    assert ratio(board, one.key) in page.find(".wins").text
    said = "return document.querySelector('#told').textContent"
    assert page.execute_script(said) == (
        "Least regret at epsilon 1 if you trust a server: Assortment One-pass MNL"
    )
    page.press("input[value=local]")
    assert page.execute_script(WINNERS) == {"Assortment": ["Local"]}
    choose = "const box = document.querySelector('#epsilon'); box.value = '0.5';"
    page.execute_script(choose + "box.dispatchEvent(new Event('input', {bubbles: true}))")
    assert page.execute_script(WINNERS) == {"Assortment": ["no agent"]}
    assert page.execute_script(said).endswith("trust nobody: Assortment no agent")
    assert page.fragment() == "#trust=local&epsilon=0.5"
    again = opened(board, hash="#trust=local&epsilon=0.5")
    assert again.find("#epsilon").get_attribute("value") == "0.5"


BEHIND = """
const svg = document.querySelector('#pictures svg'), box = svg.getBoundingClientRect();
const at = (x, y) => svg.contains(document.elementFromPoint(box.left + x, box.top + y));
return [box.top, box.bottom, box.right, at(1, 1) && at(box.width - 1, box.height - 1)];
"""


@pytest.mark.parametrize(("width", "height", "dark"), [(390, 844, True), (1400, 900, False)])
def test_the_first_screen_shows_a_whole_picture(opened, make, width, height, dark):
    page = opened(make.arena(agents=9, sizes=2, budgets=3), width=width, height=height, dark=dark)
    top, bottom, right, uncovered = page.execute_script(BEHIND)
    assert 0 < top < bottom <= height and right <= width and uncovered
    assert bottom - top > 200


def test_a_budget_sorts_the_table_of_agents(opened, board):
    task = board.tasks[0]
    odd = [replace(row, agent="Odd", name="odd") for row in task.rows if row.name == "dpmnl"]
    least = [Interval(v, v, v) for v in (1e-3, 1e4)]
    rows = (*task.rows, *(replace(row, regret=value) for row, value in zip(odd, least)))
    page = opened(replace(board, tasks=(replace(task, rows=rows),)))
    first = [label for label, *_ in heat(page)]
    assert first[0] == "Odd"
    page.press("#heat thead button[value='rho=1']")
    th = page.find("#heat thead th:has(button[value='rho=1'])")
    assert th.get_attribute("aria-sort") == "ascending"
    group = page.execute_script(
        "return [...document.querySelector('#heat tbody').querySelectorAll('tr:not(.group)')]"
        ".map(tr => parseFloat(tr.querySelectorAll('td.num')[1].textContent.replace(',', '')))"
    )
    assert group == sorted(group) and len(group) > 1
    assert page.switch_to.active_element.get_attribute("value") == "rho=1"
    page.keys("#heat thead button[value='rho=1']", "\n")
    assert [label for label, *_ in heat(page)] == first


def test_the_name_of_an_agent_opens_its_rows(opened, make):
    data = make.arena(agents=9, sizes=2, budgets=3)
    page = opened(data, hash="#board=pricing-size1", height=900)
    label = heat(page)[0][0]
    page.press("#heat tbody tr:not(.group) button")
    task = next(t for t, one in enumerate(data.tasks) if one.task == "pricing-size1")
    shown = page.visible(task)
    assert shown and {text.partition("|")[0] for text in shown} == {label}
    place = "return document.querySelector(arguments[0]).getBoundingClientRect().top"
    assert abs(page.execute_script(place, f"#task-{task}")) < 40
    assert page.switch_to.active_element.tag_name == "summary"


@pytest.fixture(scope="module")
def published():
    if not PUBLISHED.is_dir():
        pytest.skip("the published result is not in the sdist")
    return Result.load(PUBLISHED).to_leaderboard()


CUT = """
return [...document.querySelectorAll('#switches *')].filter(node => node.getClientRects().length)
  .filter(node => node.getBoundingClientRect().right > document.documentElement.clientWidth)
  .map(node => node.textContent || node.value);
"""


@pytest.mark.parametrize("width", [360, 1400])
def test_no_switch_is_cut(opened, published, width):
    page = opened(published, width=width, height=900)
    assert page.find("#delta").is_displayed() and page.find("[data-switch=trust]").is_displayed()
    assert page.execute_script(CUT) == []


@pytest.mark.parametrize("width", [390])
def test_a_visitor_finds_who_wins_at_epsilon_1_without_trust(opened, published, width):
    """One action; the answer is computed from the published numbers."""
    page = opened(published, width=width, height=900)
    page.press("input[value=local]")
    shown = page.execute_script(WINNERS)["Recommendation"]
    finals: dict[str, list[float]] = {}
    columns = ["task", "agent", "budget", "regret"]
    for record in pq.read_table(PUBLISHED / "result.parquet", columns=columns).to_pylist():
        agent, budget = record["agent"], record["budget"]
        if record["task"] != "recommendation-standard" or "tuned" in agent:
            continue
        local = agent.startswith("Local") or budget.endswith("@local")
        if local and budget.startswith("eps=1,delta=1e-5"):
            finals.setdefault(agent, []).append(record["regret"][-1])
    assert len(finals) >= 4
    task = next(task for task in published.tasks if task.task == "recommendation-standard")
    units = {row.agent: row.unit for row in task.rows if row.trust_model == "local"}
    ranked = sorted(finals, key=lambda agent: sum(finals[agent]) / len(finals[agent]))
    winners = {units[agent]: agent for agent in reversed(ranked)}
    assert sorted(shown) == sorted(winners.values()) and len(winners) == 2
