"""Audits of a certificate, run again with the arguments that it states."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from typing import Any

from dpb_gym.audits.agent_audit import audit
from dpb_gym.audits.audit_report import AuditReport
from dpb_gym.errors import DPBError, ParameterError
from dpb_gym.privacy import Budget
from dpb_gym.privacy.certificate import Certificate, versions

MOST_RUNS = 100_000
MOST_ROUNDS = 100_000
"""Limits of an audit that a file asks for."""
TOLERANCE = 1e-6  # of bounds, whose last digits can differ on another machine


def repeat(origin: Mapping[str, Any], say: Callable[[str], None] | None = None) -> AuditReport:
    """Run an audit again.

    Args:
        origin: `AuditReport.origin`.
        say: Called with a line of progress before each step.

    Raises:
        ParameterError: If it asks for more than `MOST_RUNS` runs or `MOST_ROUNDS` rounds, or reads
            data of this machine.
        DPBError: If it cannot be run here, as its agent is not installed.
    """
    rounds = [origin["env_kwargs"].get("horizon"), origin["horizon"], origin["deployment"]]
    largest = max((n for n in rounds if isinstance(n, (int, float))), default=0)
    if origin["runs"] > MOST_RUNS or largest > MOST_ROUNDS:
        raise ParameterError(
            f"it asks for {origin['runs']:,} runs and {largest:,} rounds; the limits are "
            f"{MOST_RUNS:,} and {MOST_ROUNDS:,}"
        )
    if "data" in origin["env_kwargs"]:
        raise ParameterError("it reads data of the machine on which it ran")
    return audit(
        origin["agent"], Budget.parse(origin["budget"]), origin["runs"],
        params=origin["parameters"], env_id=origin["env_id"], env_kwargs=origin["env_kwargs"],
        horizon=origin["horizon"], seed=origin["seed"], confidence=origin["confidence"],
        deployment=origin["deployment"], say=say,
    )  # fmt: skip


def check_audits(
    certificate: Certificate, say: Callable[[str], None] | None = None
) -> tuple[list[str], int]:
    """Run the audits of a certificate again, and return the differences and how many agree.

    An audit takes seconds to minutes. It runs the installed agent of that name, with the seed and
    parameters of the certificate.

    Args:
        certificate: A certificate without differences, see `Certificate.check`.
        say: Called with a line of progress before each step.

    Returns:
        One line per entry whose audit differs or cannot be run again, and the number of audits
        that gave the stated report.
    """
    wrong: list[str] = []
    agreeing = 0
    for number, entry in enumerate(certificate.content["entries"]):
        stated = entry["facts"]["audit"]
        if stated is None:
            continue
        try:
            if stated["origin"] is None:
                raise ParameterError("it has no origin, so nobody can repeat it")
            repeated = repeat(stated["origin"], say).summary()
        except (DPBError, MemoryError) as error:
            wrong.append(f"entry {number}: audit: cannot be run again here: {error}")
            continue
        names = [
            name for name in repeated.keys() - {"origin"} if not _same(stated[name], repeated[name])
        ]
        names.sort()
        wrong += [
            f"entry {number}: audit: {name} should be {json.dumps(repeated[name])}"
            for name in names
        ]
        if stated["origin"]["versions"] != versions():
            wrong += [f"entry {number}: audit: it ran with other versions"] if names else []
        agreeing += not names
    return wrong, agreeing


def _same(stated: Any, repeated: Any) -> bool:
    if isinstance(repeated, float) and isinstance(stated, (int, float)):
        return math.isclose(stated, repeated, rel_tol=TOLERANCE, abs_tol=TOLERANCE)
    return bool(stated == repeated)
