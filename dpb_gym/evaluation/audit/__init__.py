"""Audits of agents, end to end, on the code that ships."""

from __future__ import annotations

from dpb_gym.evaluation.audit.api import audit
from dpb_gym.evaluation.audit.worlds import Pair, World
from dpb_gym.privacy.audit.report import AuditReport

__all__ = ["AuditReport", "Pair", "World", "audit"]
