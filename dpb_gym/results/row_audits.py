"""Audits of the private rows of results: reports in the manifest, and the verdict that a row shows.

A verdict follows from a report and the digest of the code that it is about.
"""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from dpb_gym import audits
from dpb_gym.audits.audit_records import audit_key, audits_here, published_audit, record
from dpb_gym.errors import DPBError, ParameterError
from dpb_gym.play.algorithm import by_construction
from dpb_gym.privacy import Budget
from dpb_gym.registry import agent_spec
from dpb_gym.report.comparison_groups import verdict_class
from dpb_gym.results.result_directory import ResultDirectory
from dpb_gym.results.row_result import RowResult
from dpb_gym.suites.spec import AgentRun

# At small budgets an audit has no power; the same code calibrates the noise of this budget.
AUDIT_BUDGET = Budget.zcdp(0.5)
MOST_AUDITED = 2  # sets of parameters per agent and kind of problem
LONGEST_DEPLOYMENT = 10_000  # rounds; an audit of more takes minutes
NOT_AUDITED = "not audited"
BY_CONSTRUCTION = "by construction"
"""Verdict without an audit for an agent whose functions cannot receive raw data."""
AUDIT_NOTE = (
    f"Audits run each agent at {AUDIT_BUDGET} on a small environment of its kind: claimed "
    "and lower bound are epsilon at delta=1e-05 there, whatever the budget of the row."
)


def audit_rows(
    directory: str | os.PathLike[str],
    rows: Sequence[RowResult],
    runs: int = 2000,
    say: Callable[[str], None] | None = None,
) -> dict[str, dict[str, Any]]:
    """Audit every private agent of some results and store the reports with them.

    Each agent is audited once per problem kind with each of the `MOST_AUDITED` sets of parameters
    that most of its rows have, as a rule its defaults and one tuned point. The audit is at
    `AUDIT_BUDGET` on a small environment, whatever budgets the rows have. Own reports of the same
    code with at least as many runs are reused; imported reports are not.

    Args:
        directory: Result directory.
        rows: Rows of the results.
        runs: Runs in each of the two worlds.
        say: Called with a line of progress before each audit.

    Returns:
        Reports as dicts by `audit_key`; an agent that cannot be audited has
        ``{"error": why}``.
    """
    from dpb_gym.audits.agent_audit import small_setting

    reports = dict(ResultDirectory.open(directory).manifest["audits"])
    for key, row in _most_used(rows).items():
        agent, kind = row.cell.agent, row.cell.task.kind
        known = reports.get(key, {})
        try:
            # today's code is audited, which may not be that of the row
            today = AgentRun(spec=agent_spec(agent.name, **agent.params))
            if known.get("runs", 0) >= runs and known.get("code") == today.code:
                continue
            if say is not None:
                say(f"auditing {agent.name} on {kind}: 2 x {runs} runs")
            env_id, env_kwargs = small_setting(today.spec, kind)
            report = audits.audit(
                agent.name, AUDIT_BUDGET, runs, params=agent.params, env_id=env_id,
                env_kwargs=env_kwargs,
                deployment=min(row.cell.checkpoints[-1], LONGEST_DEPLOYMENT),
            )  # fmt: skip
            reports[key] = record(report, today)
        except DPBError as error:
            reports[key] = {"error": str(error)}
        store = ResultDirectory.open(directory)
        with ResultDirectory.writing(directory, store.suite) as store:
            store.manifest["audits"][key] = reports[key]
            store.save()
    return reports


def _most_used(rows: Sequence[RowResult]) -> dict[str, RowResult]:
    """Return a private row for each set of parameters that is audited, by `audit_key`."""
    uses: dict[tuple[str, str], Counter[str]] = {}
    by_key: dict[str, RowResult] = {}
    for row in rows:
        agent, kind = row.cell.agent, row.cell.task.kind
        if row.guarantee is not None:
            key = audit_key(agent, kind)
            uses.setdefault((agent.name, kind), Counter())[key] += 1
            by_key.setdefault(key, row)
    chosen = [key for counts in uses.values() for key, _ in counts.most_common(MOST_AUDITED)]
    return {key: by_key[key] for key in chosen}


def own_report(
    reports: Mapping[str, Mapping[str, Any]], agent: AgentRun, kind: str
) -> dict[str, Any] | None:
    """Return the report about this code with these parameters, without the digest, or None.

    A report that a sender stated is left out.
    """
    report = reports.get(audit_key(agent, kind), {})
    if not report or "error" in report or "by" in report:
        return None
    if report.get("code") not in (agent.code, None):
        return None
    return {name: value for name, value in report.items() if name != "code"}


class RowAudits:
    """Reports of a result directory, from which each row gets its verdict.

    Args:
        reports: Reports as dicts by `audit_key`.
    """

    def __init__(self, reports: Mapping[str, Mapping[str, Any]]) -> None:
        self._by_agent: dict[tuple[str, str], dict[str, Mapping[str, Any]]] = {}
        for key, report in reports.items():
            name, _, kind = json.loads(key)
            self._by_agent.setdefault((name, kind), {})[key] = report

    def of(
        self, agent: AgentRun, kind: str, notion: str, unit: str
    ) -> tuple[dict[str, Any] | None, str]:
        """Return the audit of a private row, and the verdict that the row shows.

        The reports are those of the directory and of this machine (`audits_here`) that are about
        the row's code and unit. A report about other parameters counts if there is none about the
        row's own; the worst of several is taken. Else the verdict is that of the audit that this
        package was published with, `BY_CONSTRUCTION` for an `Algorithm`, or `NOT_AUDITED`.

        Args:
            agent: The row's agent.
            kind: The kind of problem.
            notion: The notion of its guarantee.
            unit: The unit of its guarantee.

        Returns:
            The leaderboard's fields of a report about the row's own parameters, or None; and the
            verdict with remarks in brackets.
        """
        own = audit_key(agent, kind)
        reports = {**audits_here(agent, kind), **self._by_agent.get((agent.name, kind), {})}
        shown: list[tuple[bool, dict[str, Any], str]] = []
        for key, report in reports.items():
            fields = leaderboard_audit(report)
            claimed = report.get("claimed") or {}
            if fields is None or claimed.get("unit") != unit:
                continue
            if report.get("code") not in (agent.code, None):
                continue
            remarks = [
                *([str(report["by"])] if "by" in report else []),
                *([str(claimed["notion"])] if claimed.get("notion") != notion else []),
                *(["other parameters"] if key != own else []),
                *(["code not recorded"] if "code" not in report else []),
            ]
            shown.append((key == own, fields, _remarked(fields["verdict"], remarks)))
        exact = [one for one in shown if one[0]]
        if exact or shown:
            of_own, fields, verdict = min(exact or shown, key=lambda one: _rank(one[2]))
            return ({**fields, "verdict": verdict} if of_own else None), verdict
        published = published_audit(agent)
        if published is None or published["claim"][1] != unit:
            return None, BY_CONSTRUCTION if _constructed(agent) else NOT_AUDITED
        other = [] if published["claim"][0] == notion else [published["claim"][0]]
        return None, _remarked(published["verdict"], ["published", *other])


def _constructed(agent: AgentRun) -> bool:
    """Return whether the row's code is today's, of an agent that cannot receive raw data."""
    try:
        spec = agent_spec(agent.name, **agent.params)
        same = AgentRun(spec=spec).code == agent.code
    except DPBError:
        return False
    return same and by_construction(spec.maker)


def _remarked(verdict: str, remarks: Sequence[str]) -> str:
    return f"{verdict} ({', '.join(remarks)})" if remarks else verdict


def _rank(verdict: str) -> int:
    return ("fail", "open", "pass").index(verdict_class(verdict))


def worst(verdicts: Sequence[str]) -> str:
    """Return the worst of some verdicts, empty if there is none.

    A refuted claim is worse than a row that was not audited, and this than one without power.
    """
    return min(
        verdicts, key=lambda one: (_rank(one) > 0, one != NOT_AUDITED, _rank(one)), default=""
    )


def leaderboard_audit(
    report: Mapping[str, Any] | None, *, strict: bool = False
) -> dict[str, Any] | None:
    """Return the leaderboard's fields of a stored report, None if it has no verdict.

    Raises:
        ParameterError: If it cannot be read and `strict` is true; None is returned otherwise.
    """
    if report is None or "error" in report:
        return None
    try:
        row = audits.AuditReport.from_dict(report).leaderboard_row()
    except ParameterError:
        if strict:
            raise
        return None
    return row
