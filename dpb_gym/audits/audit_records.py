"""Audits by the digest of the agent's code: those published with this package, and those run here.

A record says what was audited (name, parameters, kind of problem, digest of the code) and the
report. It counts for results of that very code only.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from dpb_gym.audits.audit_report import AuditReport
from dpb_gym.errors import ParameterError
from dpb_gym.files import read_regular, state_directory, write_file
from dpb_gym.registry import FACTORY
from dpb_gym.suites.schema import plain
from dpb_gym.suites.spec import AgentRun

PUBLISHED = Path(__file__).with_name("published_audits.json")
"""Verdicts of the audits of docs/audit.md by agent, with the digests of the audited code."""
MOST_BYTES = 1 << 20
_here: dict[str, dict[str, Any]] = {}
"""Reports of this process, by the name of their file."""


def audit_key(agent: AgentRun, kind: str) -> str:
    """Return the key of an audit: an agent with its parameters on a problem kind."""
    params = plain(agent.params, f"parameters of agent {agent.label!r}")
    return json.dumps([agent.name, params, kind], sort_keys=True)


def record(report: AuditReport, agent: AgentRun) -> dict[str, Any]:
    """Return a report as plain JSON values, with the digest of the agent's code."""
    return {**report.to_dict(), "code": agent.code}


def remember(report: AuditReport, agent: AgentRun, kind: str, *, on_disk: bool = False) -> None:
    """Remember a report for results of the same code in this process, and on this machine.

    Nothing is remembered of agents that a function made, whose digest does not cover what the
    function refers to.

    Args:
        report: The report.
        agent: What was audited.
        kind: The kind of problem.
        on_disk: Whether to write it to the `state_directory`.

    Raises:
        ResultError: If the file cannot be written.
    """
    if agent.entry_point.startswith(FACTORY):
        return
    try:
        key = audit_key(agent, kind)
    except ParameterError:  # a parameter that results cannot store either
        return
    place = _place(agent, kind)
    audits = {**audits_here(agent, kind), key: record(report, agent)}
    _here[place] = audits
    if on_disk:
        content = json.dumps(audits, indent=1, allow_nan=False).encode()
        write_file(state_directory() / "audits" / place, content)


def audits_here(agent: AgentRun, kind: str) -> dict[str, dict[str, Any]]:
    """Return the remembered reports of an agent's code on a kind of problem, by `audit_key`."""
    place = _place(agent, kind)
    return _here.get(place) or _read(state_directory() / "audits" / place, agent.code)


def published_audit(agent: AgentRun) -> Mapping[str, Any] | None:
    """Return verdict, runs and audited claim of the code of this package's agent, or None."""
    audit = _published().get(agent.name)
    return audit if audit is not None and audit["source"] == agent.code else None


def published_claim(name: str) -> tuple[str, str] | None:
    """Return notion and unit for which an agent of this package was audited, or None."""
    audit = _published().get(name)
    return None if audit is None else (audit["claim"][0], audit["claim"][1])


@cache
def _published() -> dict[str, dict[str, Any]]:
    return dict(json.loads(PUBLISHED.read_text(encoding="utf-8")))


def _place(agent: AgentRun, kind: str) -> str:
    names = json.dumps([agent.code, agent.entry_point, agent.name, kind])
    return f"{hashlib.sha256(names.encode()).hexdigest()[:32]}.json"


def _read(path: Path, code: str) -> dict[str, dict[str, Any]]:
    """Return the reports in a file, those of a damaged file left out."""
    try:
        reports = json.loads(read_regular(path, MOST_BYTES))
        return {
            str(key): report
            for key, report in reports.items()
            if report["code"] == code and AuditReport.from_dict(report)
        }
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return {}
