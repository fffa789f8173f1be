"""Audits stored with results, and the verdicts that rows show."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

import dpb_gym
from dpb_gym import report
from dpb_gym.audits import audit_records
from dpb_gym.audits.audit_records import audit_key, remember
from dpb_gym.audits.audit_report import AuditReport
from dpb_gym.cli import main
from dpb_gym.registry import agent_spec
from dpb_gym.results.result_directory import ResultDirectory
from dpb_gym.results.row_audits import (
    AUDIT_BUDGET,
    AUDIT_NOTE,
    BY_CONSTRUCTION,
    NOT_AUDITED,
    RowAudits,
    _most_used,
    audit_rows,
    own_report,
    worst,
)
from dpb_gym.suites.spec import AgentRun


@pytest.fixture(autouse=True)
def nothing_remembered(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setattr(audit_records, "_here", {})


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
    by_name, notes = rows(saved)
    assert by_name["private"].audit is None and AUDIT_NOTE not in notes
    assert by_name["private"].verdict == "PASS (published)" and by_name["LinUCB"].verdict == ""
    result = dpb_gym.Result.load(saved)
    series = result.rows
    said = []
    reports = audit_rows(saved, series, 200, said.append)
    assert len(reports) == 1 and len(said) == 1
    (report,) = ResultDirectory.open(saved).manifest["audits"].values()
    assert report["runs"] == 200 and report["verdict"] == "PASS"
    by_name, notes = rows(saved)
    audit = by_name["private"].audit
    assert audit.verdict == by_name["private"].verdict == "PASS"
    claimed = dpb_gym.Guarantee.from_dict(report["claimed"])
    assert claimed.rho == pytest.approx(AUDIT_BUDGET.rho)
    assert audit.claimed == pytest.approx(claimed.epsilon(1e-5))
    assert 0 <= audit.lower_bound <= audit.claimed
    assert by_name["LinUCB"].audit is None and AUDIT_NOTE in notes
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


@pytest.mark.slow
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


@pytest.mark.slow
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
        assert len(list((audit_records.state_directory() / "audits").iterdir())) == 1
        run = AgentRun(spec=agent_spec(arguments[0]))
        assert verdict_of(run, {}) in ("PASS", "NO POWER")  # not that of the published audit
        assert "raw data: run 13 of 13" in captured.err and "target in round" in captured.err
    else:
        assert "Traceback" not in captured.err and "error" in captured.err


class Outside(dpb_gym.SingleAgent):
    """Greedy on a private sum, an agent of another package."""

    protects = ("central", "reward")

    def __init__(self, ridge: float = 1.0) -> None:
        self.ridge = ridge

    def begin(self) -> None:
        self.sums = self.curator.running_sum(self.problem.dim, reward=(0.0, 1.0))

    def act(self, context: Any) -> int:
        return int((context.features @ self.sums.value / self.ridge).argmax())

    def observe(self, context: Any, action: Any, feedback: Any) -> None:
        self.sums.add(feedback.reward, along=context.features[action])


def agent_of(spec: Any, **params: Any) -> AgentRun:
    return AgentRun(spec=spec.over(params))


@pytest.fixture
def outside() -> AgentRun:
    return AgentRun(spec=dpb_gym.registry.spec_of(Outside, "recommendation"))


def a_report(verdict: str = "PASS", claim: tuple[str, str] = ("central", "reward")) -> AuditReport:
    claimed = dpb_gym.Guarantee(
        *claim, curve=dpb_gym.privacy.Composition.of(dpb_gym.privacy.GaussianEvent(1.0))
    )
    return AuditReport(
        "mine", claimed, 100, 70, "score", 30, 30, 0.6, 0.6, (),
        interference=verdict == "READS RAW DATA", residuals=verdict == "FAIL",
        control="PASS" if verdict == "NO POWER" else "FAIL",
    )  # fmt: skip


def verdict_of(outside: AgentRun, reports: dict[str, Any], *claim: str) -> str:
    claim = claim or ("central", "reward")
    return RowAudits(reports).of(outside, "recommendation", *claim)[1]


def test_an_agent_of_another_package_is_not_audited(outside: AgentRun) -> None:
    assert verdict_of(outside, {}) == NOT_AUDITED


def test_a_report_counts_for_the_code_and_unit_that_it_is_about(outside: AgentRun) -> None:
    key = audit_key(outside, "recommendation")
    full = audit_records.record(a_report(), outside)
    assert verdict_of(outside, {key: full}) == "PASS"
    assert own_report({key: full}, outside, "recommendation") == a_report().to_dict()
    other = {**full, "code": "0" * 32}
    assert verdict_of(outside, {key: other}) == NOT_AUDITED
    assert own_report({key: other}, outside, "recommendation") is None
    old = {name: value for name, value in full.items() if name != "code"}
    assert verdict_of(outside, {key: old}) == "PASS (code not recorded)"
    assert verdict_of(outside, {key: full}, "central", "user") == NOT_AUDITED
    assert verdict_of(outside, {key: full}, "local", "reward") == "PASS (central)"
    assert verdict_of(outside, {key: {**full, "by": "stated by X"}}) == "PASS (stated by X)"
    assert verdict_of(outside, {key: {"error": "no worlds"}}) == NOT_AUDITED
    assert verdict_of(outside, {key.replace("recommendation", "pricing"): full}) == NOT_AUDITED


def test_a_report_about_other_parameters_says_so(outside: AgentRun) -> None:
    some = agent_of(outside.spec, ridge=2.0)
    others = {
        audit_key(agent_of(outside.spec, ridge=ridge), "recommendation"): audit_records.record(
            a_report(verdict), outside
        )
        for ridge, verdict in ((3.0, "PASS"), (4.0, "FAIL"))
    }
    assert verdict_of(some, others) == "FAIL (other parameters)"
    own = {audit_key(some, "recommendation"): audit_records.record(a_report(), some)}
    assert verdict_of(some, {**others, **own}) == "PASS"
    assert RowAudits(others).of(some, "recommendation", "central", "reward")[0] is None


def test_an_audit_is_remembered_for_the_same_code(outside: AgentRun) -> None:
    remember(a_report("NO POWER"), outside, "recommendation")
    assert verdict_of(outside, {}) == "NO POWER"
    assert not audit_records.state_directory().exists()
    remember(a_report(), outside, "recommendation", on_disk=True)
    audit_records._here.clear()  # another process
    assert verdict_of(outside, {}) == "PASS"
    (file,) = (audit_records.state_directory() / "audits").iterdir()
    for damaged in ("", "[]", "{", '{"a": 1}', file.read_text().replace(outside.code, "0" * 32)):
        file.write_text(damaged)
        assert verdict_of(outside, {}) == NOT_AUDITED, damaged


def test_an_audit_of_what_a_function_makes_is_not_remembered(outside: AgentRun) -> None:
    made = AgentRun(spec=dpb_gym.registry.spec_of(lambda: Outside(), "recommendation"))
    remember(a_report(), made, "recommendation", on_disk=True)
    assert verdict_of(made, {}) == NOT_AUDITED


def test_the_published_verdict_is_that_of_the_code_and_claim(outside: AgentRun) -> None:
    agent = AgentRun(spec=agent_spec("adaprivate-ucb"))
    assert verdict_of(agent, {}) == "PASS (published)"
    assert verdict_of(agent, {}, "local", "reward") == "PASS (published, central)"
    assert verdict_of(agent, {}, "central", "user-round") == BY_CONSTRUCTION
    changed = agent.model_copy(update={"source": "0" * 32})
    assert verdict_of(changed, {}) == NOT_AUDITED


def test_the_worst_verdict_of_a_track() -> None:
    order = ("READS RAW DATA", NOT_AUDITED, "NO POWER (published)", "PASS")
    for place, verdict in enumerate(order):
        assert worst([*order[:place:-1], verdict]) == verdict
    assert worst(["FAIL", NOT_AUDITED]) == "FAIL" and worst([]) == ""


@pytest.mark.slow
def test_every_table_says_that_a_row_was_not_audited(outside: AgentRun, capsys: Any) -> None:
    agents = {"mine": (Outside, "rho=0.5"), "plain": Outside, "ours": ("adaprivate-ucb", "rho=0.5")}
    result = dpb_gym.evaluate(
        "DPB/Recommendation-v0", agents, horizon=40, replicates=2, progress=False
    )
    data = result.to_leaderboard()
    result.table()
    shown = {
        "terminal": capsys.readouterr().out, "notebook": result._repr_html_(),
        "csv": result.to_csv(), "latex": result.to_latex(), "json": report.to_json(data),
    }  # fmt: skip
    assert [name for name, text in shown.items() if NOT_AUDITED not in text] == []
    records = {row["agent"]: row for row in report.records(data)}
    assert records["mine"]["audit_verdict"] == NOT_AUDITED
    assert records["plain"]["audit_verdict"] is None
    said = result.guarantees()
    assert said["mine (rho=0.5)"].endswith("; not audited")
    assert NOT_AUDITED not in said["ours (rho=0.5)"] + said["plain"]
    assert any(note.startswith("Not audited") for note in data.notes)


@pytest.mark.slow
@pytest.mark.parametrize("verdict", ["FAIL", "READS RAW DATA"])
def test_a_refuted_row_says_so_in_place_of_its_guarantee(outside: AgentRun, verdict: str) -> None:
    result = dpb_gym.evaluate(
        "DPB/Recommendation-v0", {"mine": (Outside, "rho=0.5")}, horizon=40, replicates=2
    )
    remember(a_report(verdict), AgentRun(spec=outside.spec), "recommendation")
    (row,) = result.to_leaderboard().tasks[0].rows
    assert row.verdict == verdict
    if verdict == "FAIL":
        assert row.guarantee.endswith("; audit: FAIL") and row.private
    else:
        assert row.guarantee == "none: an audit found that the agent reads raw data"
        assert not row.private and row.epsilons == ()
