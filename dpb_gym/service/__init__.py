"""A decision service: one process that decides for customers by HTTP (extra ``[serve]``).

`settings` reads the configuration, `bodies` the requests, `journal` and `decision_service` keep
the session through crashes, and `application` answers HTTP. ``dpb serve`` starts it.
"""

from __future__ import annotations

from dpb_gym.service.decision_service import DecisionService
from dpb_gym.service.settings import ServiceSettings

__all__ = ["DecisionService", "ServiceSettings"]
