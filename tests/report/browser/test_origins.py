"""Origins of rows on the page: papers, code, files; defaults and tuned; cost of privacy."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from dpb_gym.report.leaderboard_data import Interval, Origin
from dpb_gym.report.number_format import number
from dpb_gym.report.page import placed, render
from dpb_gym.results.profiles import improvements, profiles

pytestmark = pytest.mark.browser
PAPER = "https://arxiv.org/abs/2410.22488"


@pytest.fixture(scope="module")
def board(make):
    """A task with a default and a tuned row of one agent, whose origin is known."""
    rng, task = np.random.default_rng(1), make.task("assortment", budgets=(0.5,))
    (dpmnl,) = [row for row in task.rows if row.name == "dpmnl"]
    (one_pass,) = [row for row in task.rows if row.name == "one-pass-mnl"]
    cost = "best of 8 points on 4 seeds (1,000 agent rounds, 2 s)"
    between = replace(dpmnl, agent="Between", name="between", regret=Interval(20, 19, 21))
    rows = (
        replace(dpmnl, tuning="default parameters", source="a1b2c3d4e5f60718"),
        between,
        replace(one_pass, regret=Interval(30, 29, 31), excess=Interval(-3.0, -4.0, -2.0)),
        make.row(
            rng, agent="DPMNL best", name="dpmnl", notion="joint", unit="user-round",
            guarantee="joint", budget="rho=0.5", regret=Interval(10, 9, 11), tuning=cost,
            ruling="tuned",
        ),
    )  # fmt: skip
    origins = (Origin("dpmnl", "agents/dpmnl.py", (PAPER,), "_generated/agents/dpmnl.html"),)
    return make.data([replace(task, rows=rows)], origins=origins)


def links(page):
    return [(a.text, a.get_attribute("href")) for a in page.all("a[href]") if a.is_displayed()]


def test_defaults_and_tuned_rows_of_an_agent_are_adjacent_and_marked(opened, board):
    page = opened(board)
    order = [row.split("|")[0] for row in page.visible()]
    assert order == ["DPMNL best", "DPMNL", "Between", "One-pass MNL"]
    assert page.find("#row-0-3 .tag").text == "tuned" and not page.all("#row-0-0 .tag")
    assert page.find("#row-0-2 td.excess .mean").text == number(-3.0, 2)
    assert "−4.00 to −2.00" in page.find("#row-0-2 td.excess").text
    page.press("#task-0 th[data-sort=agent] button")
    order = [row.split("|")[0] for row in page.visible()]
    assert order == ["Between", "DPMNL", "DPMNL best", "One-pass MNL"]


def test_a_page_alone_links_to_papers_only(opened, board):
    page = opened(board)
    page.keys("#row-0-0 .more button", "\ue007")
    said = page.find("#detail-0-0").text
    assert "agents/dpmnl.py @ a1b2c3d4e5f6" in said and "arXiv:2410.22488" in said
    outside = [pair for pair in links(page) if not pair[1].startswith("file:")]
    assert outside == [("arXiv:2410.22488", PAPER)]
    assert all("#task=" in href or "#agent=" in href for _, href in links(page) if href != PAPER)
    assert not page.find("#parquet").is_displayed()
    page.keys("#row-0-3 .more button", "\ue007")
    assert "(1,000 agent rounds, 2 s)" in page.find("#detail-0-3").text


def test_a_published_page_links_to_agents_audits_and_files(driver, opened, board, tmp_path):
    page = opened(board)
    path = tmp_path / "placed.html"
    path.write_text(placed(render(board), "../docs/", "result/"), encoding="utf-8")
    driver.get(path.as_uri())
    page.settle()
    page.keys("#row-0-0 .more button", "\ue007")
    home = tmp_path.parent.as_uri()
    addresses = dict(links(page))
    assert addresses["dpmnl"] == f"{home}/docs/_generated/agents/dpmnl.html"
    assert addresses["how agents are audited"] == f"{home}/docs/audit.html"
    assert addresses["Download Parquet"] == f"{tmp_path.as_uri()}/result/result.parquet"
    assert addresses["manifest.json"] == f"{tmp_path.as_uri()}/result/manifest.json"


def test_profiles_and_chances_of_a_track_are_those_of_python(opened, make):
    data = make.arena(agents=12, sizes=2, budgets=2)
    page = opened(data, hash="#task=assortment")
    largest = [r for r in profiles(data, (1.0,)) if r["track"] == "assortment"]
    largest = [r for r in largest if r["budget"] in ("rho=0.1", "none")]
    drawn = page.execute_script(
        """
        const found = {};
        for (const svg of document.querySelectorAll('#task-6 .profiles svg')) {
          const scale = [...svg.querySelectorAll('line.grid')].map(l => +l.getAttribute('y1'));
          const zero = Math.max(...scale), one = Math.min(...scale);
          for (const group of svg.querySelectorAll('.series')) {
            const path = group.querySelector('path').getAttribute('d');
            const first = path.match(/^M\\S+ ([\\d.]+)/)[1];
            found[group.dataset.rows] = (zero - first) / (zero - one);
          }
        }
        return found;
        """
    )
    track = next(track for track in data.tracks if track.track == "assortment")
    shown = {track.rows[int(i)].agent: share for i, share in drawn.items()}
    assert shown == pytest.approx({r["agent"]: r["share"] for r in largest}, abs=2e-3)
    i = next(k for k, row in enumerate(track.rows) if row.notion == "joint")
    row = track.rows[i]
    page.keys(f"#row-6-{i} .more button", "\ue007")
    expected = [
        r["probability"]
        for r in improvements(data)
        if (r["track"], r["agent"], r["budget"]) == ("assortment", row.agent, str(row.budget))
    ]
    chances = [e.text for e in page.all(f"#detail-6-{i} .chances b")]
    assert chances == [f"{p:.2f}" for p in sorted(expected, reverse=True)] and len(chances) > 1


def test_an_old_browser_shows_a_message(driver, opened, board):
    page = opened(board)
    script = "delete window.DecompressionStream"
    (name,) = driver.execute_cdp_cmd(
        "Page.addScriptToEvaluateOnNewDocument", {"source": script}
    ).values()
    try:
        driver.refresh()
        assert page.find("#old").is_displayed() and not page.find("#controls").is_displayed()
    finally:
        driver.execute_cdp_cmd("Page.removeScriptToEvaluateOnNewDocument", {"identifier": name})
