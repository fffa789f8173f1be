"""Audits kept beside results, and shown on the leaderboard."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

import dpb_gym
from dpb_gym.audits.audit_records import audit_key
from dpb_gym.cli import main
from dpb_gym.results.result_directory import ResultDirectory
from dpb_gym.results.row_audits import AUDIT_BUDGET, AUDIT_NOTE, _most_used, audit_rows


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    folder = tmp_path_factory.mktemp("audited") / "results"
    budget = dpb_gym.Budget.approx(1.0, 1e-5)
    agents = {"private": ("adaprivate-ucb", budget, {"batch": 20}), "LinUCB": "lin-ucb"}
    result = dpb_gym.evaluate(
        "DPB/Recommendation-v0", agents, horizon=60, replicates=2, progress=False
    )
    result.save(folder)
    return folder


def rows(folder):
    data = dpb_gym.Result.load(folder).to_leaderboard()
    return {row.agent: row for task in data.tasks for row in task.rows}, data.notes


@pytest.mark.slow
def test_private_agents_are_audited_once_and_shown(saved):
    found, notes = rows(saved)
    assert found["private"].audit is None and AUDIT_NOTE not in notes
    result = dpb_gym.Result.load(saved)
    series = result.rows
    said = []
    reports = audit_rows(saved, series, 200, said.append)
    assert len(reports) == 1 and len(said) == 1
    (report,) = ResultDirectory.open(saved).manifest["audits"].values()
    assert report["runs"] == 200 and report["verdict"] == "PASS"
    found, notes = rows(saved)
    audit = found["private"].audit
    assert audit.verdict == "PASS"
    claimed = dpb_gym.Guarantee.from_dict(report["claimed"])
    assert claimed.rho == pytest.approx(AUDIT_BUDGET.rho)
    assert audit.claimed == pytest.approx(claimed.epsilon(1e-5))
    assert 0 <= audit.lower_bound <= audit.claimed
    assert found["LinUCB"].audit is None and AUDIT_NOTE in notes
    audit_rows(saved, series, 200, said.append)
    assert len(said) == 1, "a kept report is not computed again"


def test_the_parameters_of_most_rows_are_audited(saved):
    series = dpb_gym.Result.load(saved).rows
    private = next(row for row in series if row.guarantee is not None)
    agent = private.cell.agent

    def used(ridge):
        params = {"ridge": ridge}
        cell = private.cell.model_copy(
            update={"agent": agent.model_copy(update={"params": params})}
        )
        return replace(private, cell=cell)

    rows = [used(2.0), used(3.0), private, used(3.0), private]
    chosen = _most_used([*series, *rows])
    assert list(chosen) == [audit_key(row.cell.agent, row.cell.task.kind)
                            for row in (private, used(3.0))]  # fmt: skip


def test_the_command_audits_and_keeps_the_reports(saved, capsys, monkeypatch):
    with ResultDirectory.writing(saved, ResultDirectory.open(saved).suite) as store:
        store.manifest["audits"].clear()
        store.save()
    monkeypatch.setattr(
        "sys.argv", ["dpb", "leaderboard", str(saved), "--audit", "--runs", "100", "--json"]
    )
    with pytest.raises(SystemExit) as done:
        main()
    assert done.value.code in (0, None)
    captured = capsys.readouterr()
    assert "auditing adaprivate-ucb on recommendation: 2 x 100 runs" in captured.err
    assert '"verdict": "PASS"' in captured.out
    assert json.loads((saved / "manifest.json").read_text())["audits"]


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (["adaprivate-ts", "--runs", "100", "--deployment", "64"], 0),
        (["lin-ucb", "--runs", "60"], 2),
        (["adaprivate-tz"], 2),
        (["adaprivate-ts", "--rho", "1"], 2),
        (["adaprivate-ts", "--runs", "3"], 2),
        (["oracle"], 2),
    ],
)
def test_the_audit_command(arguments, code, capsys, monkeypatch):
    monkeypatch.setattr("sys.argv", ["dpb", "audit", *arguments])
    with pytest.raises(SystemExit) as done:
        main()
    captured = capsys.readouterr()
    assert (done.value.code or 0) == code, captured.err
    if code == 0:
        assert "Audit of" in captured.out
        assert "raw data: run 12 of 12" in captured.err and "target in round" in captured.err
    else:
        assert "Traceback" not in captured.err and "error" in captured.err
