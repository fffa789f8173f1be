"""Audits: empirical lower bounds on privacy loss, of mechanisms, of local messages and of agents.

An audit compares outputs in two neighbouring worlds. `audit` does so for a registered agent, end to
end; the other functions do so for a single mechanism.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from dpb_gym.lazy import lazy_names

if TYPE_CHECKING:
    from dpb_gym.audits.agent_audit import audit as audit
    from dpb_gym.audits.audit_report import AuditReport as AuditReport
    from dpb_gym.audits.audit_report import Comparison as Comparison
    from dpb_gym.audits.distinguisher import audit_outputs as audit_outputs
    from dpb_gym.audits.distinguisher import audit_scores as audit_scores
    from dpb_gym.audits.releaser_audits import audit_sum as audit_sum
    from dpb_gym.audits.repetition import check_audits as check_audits
    from dpb_gym.audits.worlds import Pair as Pair
    from dpb_gym.audits.worlds import World as World

__all__, __getattr__, __dir__ = lazy_names(__name__)
