"""Private feedback: what users send, privatised before anybody else has it.

Mechanisms are batch functions with a guarantee; wrappers put them between an environment and
its agents. Loaded on first use.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dpb_gym.feedback.channel import ResponseChannel, response_mechanism
    from dpb_gym.feedback.curator import CentralCurator, VectorCentralCurator
    from dpb_gym.feedback.features import GaussianContexts, GaussianStatistics
    from dpb_gym.feedback.mechanisms import (
        GaussianResponse,
        LaplaceResponse,
        LocalMechanism,
        RandomizedResponse,
    )
    from dpb_gym.feedback.vector import (
        VectorPrivateContexts,
        VectorPrivateResponse,
        VectorPrivateStatistics,
    )
    from dpb_gym.feedback.wrappers import PrivateContexts, PrivateResponse, PrivateStatistics

_HOMES = {
    "channel": ("ResponseChannel", "response_mechanism"),
    "curator": ("CentralCurator", "VectorCentralCurator"),
    "features": ("GaussianContexts", "GaussianStatistics"),
    "mechanisms": (
        "GaussianResponse",
        "LaplaceResponse",
        "LocalMechanism",
        "RandomizedResponse",
    ),
    "vector": ("VectorPrivateContexts", "VectorPrivateResponse", "VectorPrivateStatistics"),
    "wrappers": ("PrivateContexts", "PrivateResponse", "PrivateStatistics"),
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}

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


def __getattr__(name: str) -> Any:
    if name not in _HOME_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(f"{__name__}.{_HOME_OF[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
