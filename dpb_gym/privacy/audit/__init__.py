"""Audits: lower bounds on the privacy that a mechanism really gives, from its outputs.

Loaded on first use.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dpb_gym.privacy.audit.catalogue import mechanism_audits
    from dpb_gym.privacy.audit.engine import audit_outputs, audit_scores
    from dpb_gym.privacy.audit.objective import (
        ChoiceData,
        audit_objective,
        hostile_choices,
        hostile_demand,
    )
    from dpb_gym.privacy.audit.report import AuditReport, Comparison
    from dpb_gym.privacy.audit.sums import audit_sum

_HOMES = {
    "catalogue": ("mechanism_audits",),
    "engine": ("audit_outputs", "audit_scores"),
    "objective": ("ChoiceData", "audit_objective", "hostile_choices", "hostile_demand"),
    "report": ("AuditReport", "Comparison"),
    "sums": ("audit_sum",),
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}

__all__ = [
    "AuditReport",
    "ChoiceData",
    "Comparison",
    "audit_objective",
    "audit_outputs",
    "audit_scores",
    "audit_sum",
    "hostile_choices",
    "hostile_demand",
    "mechanism_audits",
]


def __getattr__(name: str) -> Any:
    if name not in _HOME_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(f"{__name__}.{_HOME_OF[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
