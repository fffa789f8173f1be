"""Tables in notebooks: plain HTML with every text escaped."""

from __future__ import annotations

from dataclasses import replace
from html.parser import HTMLParser

import numpy as np

import dpb_gym
from dpb_gym.audits.audit_report import AuditReport, Comparison
from dpb_gym.report import html_table
from dpb_gym.report.number_format import number


class Cells(HTMLParser):
    """Parser of the cells and tags of some HTML."""

    def __init__(self, text):
        super().__init__()
        self.tags, self.cells = [], []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag, attributes):
        self.tags.append(tag)
        if tag in ("td", "th"):
            self.cells.append("")

    def handle_data(self, data):
        if self.cells:
            self.cells[-1] += data


def test_a_leaderboard_shows_every_row_and_bold_winners(make):
    task = make.task("assortment")
    shown = Cells(html_table(make.data([task])))
    for row in task.rows:
        assert row.agent in shown.cells and row.guarantee in shown.cells
        assert any(cell.startswith(number(row.regret.mean, 2)) for cell in shown.cells)
    assert html_table(task).count("<b>One-pass MNL</b>") == 3
    nasty = "<script>alert(1)</script>"
    rows = (make.row(np.random.default_rng(0), agent=nasty, guarantee=nasty),)
    read = Cells(html_table(replace(task, rows=rows, task=nasty)))
    assert "script" not in read.tags and nasty in read.cells


def test_agents_are_listed_as_a_table():
    agents = dpb_gym.list_agents()
    shown = Cells(agents._repr_html_())
    assert [a["name"] for a in agents] == sorted(dpb_gym.agent_specs())
    for agent in agents:
        assert agent["name"] in shown.cells and agent["summary"] in shown.cells
    assert len(str(agents).splitlines()) == len(agents) + 1


def test_an_audit_shows_its_verdict_and_bounds():
    comparison = Comparison("eps", 1.25, claim=2.0, delta=1e-5)
    report = AuditReport("<agent>", None, 100, 70, "score", 1, 2, 0.1, 0.1, (comparison,))
    shown = report._repr_html_()
    assert "&lt;agent&gt;" in shown and "<agent>" not in shown
    assert "eps(1e-05) &gt;= 1.25 (claimed 2)" in shown and shown.count("<tr>") >= 5


def test_an_off_policy_report_shows_its_estimates():
    from dpb_gym.offline import LoggedData, evaluate_offline

    log = LoggedData.from_problem("DPB/Recommendation-v0", 200, seed=1, dim=4)
    uniform = np.full(log.expected.shape, 1.0 / log.expected.shape[1])
    evaluation = evaluate_offline(uniform, log, resamples=20)
    shown = Cells(evaluation._repr_html_())
    for estimate in evaluation.estimates:
        assert {estimate.name, f"{estimate.value:.4f}"} <= set(shown.cells)
    assert "not private" in evaluation._repr_html_()
