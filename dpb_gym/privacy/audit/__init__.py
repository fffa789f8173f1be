"""Audits: lower bounds on the privacy that a mechanism really gives, from its outputs."""

from __future__ import annotations

from dpb_gym.privacy.audit.catalogue import audit_sum, mechanism_audits
from dpb_gym.privacy.audit.engine import audit_outputs, audit_scores
from dpb_gym.privacy.audit.objective import (
    ChoiceData,
    audit_objective,
    hostile_choices,
    hostile_demand,
)
from dpb_gym.privacy.audit.report import AuditReport, Comparison

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
