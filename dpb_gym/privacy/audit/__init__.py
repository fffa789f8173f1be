"""Audits: lower bounds on the privacy that a mechanism really gives, from its outputs."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dpb_gym.lazy import lazy_names

if TYPE_CHECKING:
    from dpb_gym.privacy.audit.catalogue import audit_sum as audit_sum
    from dpb_gym.privacy.audit.catalogue import mechanism_audits as mechanism_audits
    from dpb_gym.privacy.audit.engine import audit_outputs as audit_outputs
    from dpb_gym.privacy.audit.engine import audit_scores as audit_scores
    from dpb_gym.privacy.audit.objective import ChoiceData as ChoiceData
    from dpb_gym.privacy.audit.objective import audit_objective as audit_objective
    from dpb_gym.privacy.audit.objective import hostile_choices as hostile_choices
    from dpb_gym.privacy.audit.objective import hostile_demand as hostile_demand
    from dpb_gym.privacy.audit.report import AuditReport as AuditReport
    from dpb_gym.privacy.audit.report import Comparison as Comparison

__all__, __getattr__, __dir__ = lazy_names(__name__)
