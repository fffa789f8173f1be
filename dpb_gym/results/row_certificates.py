"""Certificates of the private rows of a result directory."""

from __future__ import annotations

import os

from dpb_gym.envs.registration import environment
from dpb_gym.errors import ResultError
from dpb_gym.privacy.certificate import Certificate
from dpb_gym.results.result import Result
from dpb_gym.results.row_audits import audit_key


def certify(directory: str | os.PathLike[str]) -> Certificate:
    """Return the certificate of all private rows, whose noise is seeded.

    Raises:
        ResultError: If there is no result directory, or no private row.
    """
    result, entries = Result.load(directory), []
    for row in result.rows:
        if row.guarantee is None or row.guarantee.get("curve") is None:
            continue
        agent, task = row.cell.agent, row.cell.task
        report = result.audits.get(audit_key(agent, task.kind), {"error": "not audited"})
        provisos = task.problem().info.provisos if task.requires is None else ()
        entries.append({
            "agent": agent.name, "parameters": agent.params, "budget": row.budget,
            "problem": {**task.identity, "horizon": row.cell.checkpoints[-1]},
            "guarantee": row.guarantee, "provisos": provisos, "generator": "seeded",
            "reveals": environment(task.env).reveals, "lifetime": None,
            "audit": None if "error" in report else report,
            "code": {"revision": result.revision, **agent.identity},
        })  # fmt: skip
    if not entries:
        raise ResultError(f"{directory} holds no private results")
    return Certificate.of(entries)
