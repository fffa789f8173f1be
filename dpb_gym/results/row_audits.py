"""Audit reports of the private agents of a result directory, stored in its manifest."""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from dpb_gym import audits
from dpb_gym.errors import DPBError, ParameterError
from dpb_gym.privacy import Budget
from dpb_gym.registry import agent_spec
from dpb_gym.results.result_directory import ResultDirectory
from dpb_gym.results.row_result import RowResult
from dpb_gym.suites.schema import plain
from dpb_gym.suites.spec import AgentRun

# At small budgets an audit has no power; the same code calibrates the noise of this budget.
AUDIT_BUDGET = Budget.zcdp(0.5)
MOST_AUDITED = 2  # sets of parameters per agent and kind of problem
LONGEST_DEPLOYMENT = 10_000  # rounds; an audit of more takes minutes
AUDIT_NOTE = (
    f"Audits run each agent at {AUDIT_BUDGET} on a small environment of its kind: claimed "
    "and lower bound are epsilon at delta=1e-05 there, whatever the budget of the row."
)


def audit_key(agent: AgentRun, kind: str) -> str:
    """Return the key of an audit: an agent with its parameters on a problem kind."""
    params = plain(agent.params, f"parameters of agent {agent.label!r}")
    return json.dumps([agent.name, params, kind], sort_keys=True)


def audit_rows(
    directory: str | os.PathLike[str],
    rows: Sequence[RowResult],
    runs: int = 2000,
    say: Callable[[str], None] | None = None,
) -> dict[str, dict[str, Any]]:
    """Audit every private agent of some results and store the reports with them.

    Each agent is audited once per problem kind with each of the `MOST_AUDITED` sets of parameters
    that most of its rows have, as a rule its defaults and one tuned point. The audit is at
    `AUDIT_BUDGET` on a small environment, whatever budgets the rows have. Own reports with at
    least as many runs are reused; imported reports are not.

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
        if reports.get(key, {}).get("runs", 0) >= runs:
            continue
        if say is not None:
            say(f"auditing {agent.name} on {kind}: 2 x {runs} runs")
        try:
            env_id, env_kwargs = small_setting(agent_spec(agent.name), kind)
            reports[key] = audits.audit(
                agent.name, AUDIT_BUDGET, runs, params=agent.params, env_id=env_id,
                env_kwargs=env_kwargs,
                deployment=min(row.cell.checkpoints[-1], LONGEST_DEPLOYMENT),
            ).to_dict()  # fmt: skip
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
    found: dict[str, RowResult] = {}
    for row in rows:
        agent, kind = row.cell.agent, row.cell.task.kind
        if row.guarantee is not None:
            key = audit_key(agent, kind)
            uses.setdefault((agent.name, kind), Counter())[key] += 1
            found.setdefault(key, row)
    chosen = [key for counts in uses.values() for key, _ in counts.most_common(MOST_AUDITED)]
    return {key: found[key] for key in chosen}


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
    if row is None or "by" not in report:
        return row
    return {**row, "verdict": f"{row['verdict']} ({report['by']})"}
