"""Private feedback: what users send, privatised before anybody else has it.

Mechanisms are batch functions with a guarantee; wrappers put them between an environment and
its agents.
"""

from __future__ import annotations

from dpb_gym.feedback.channel import ResponseChannel, response_mechanism
from dpb_gym.feedback.curator import CentralCurator, VectorCentralCurator
from dpb_gym.feedback.features import GaussianContexts, GaussianStatistics
from dpb_gym.feedback.mechanisms import (
    GaussianResponse,
    LaplaceResponse,
    LocalMechanism,
    RandomizedResponse,
)
from dpb_gym.feedback.wrappers import (
    PrivateContexts,
    PrivateResponse,
    PrivateStatistics,
    VectorPrivateContexts,
    VectorPrivateResponse,
    VectorPrivateStatistics,
)

__all__ = [
    "CentralCurator",
    "GaussianContexts",
    "GaussianResponse",
    "GaussianStatistics",
    "LaplaceResponse",
    "LocalMechanism",
    "PrivateContexts",
    "PrivateResponse",
    "PrivateStatistics",
    "RandomizedResponse",
    "ResponseChannel",
    "VectorCentralCurator",
    "VectorPrivateContexts",
    "VectorPrivateResponse",
    "VectorPrivateStatistics",
    "response_mechanism",
]
