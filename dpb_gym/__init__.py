"""dpb-gym: environments, agents and one harness for differentially private bandits.

Importing the package registers the environments with Gymnasium. Nothing heavy is
imported before it is used.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from dpb_gym.envs.registration import register_environment, register_environments

if TYPE_CHECKING:
    from dpb_gym.agent import (
        Agent,
        AgentSpec,
        SingleAgent,
        agent_spec,
        agent_specs,
        make_agent,
        register_agent,
    )
    from dpb_gym.envs.catalogue import make_problem
    from dpb_gym.evaluation import Result, evaluate
    from dpb_gym.privacy import Budget, Guarantee

__version__ = "0.1.0"

_LAZY = {
    "Agent": "dpb_gym.agent",
    "AgentSpec": "dpb_gym.agent",
    "SingleAgent": "dpb_gym.agent",
    "agent_spec": "dpb_gym.agent",
    "agent_specs": "dpb_gym.agent",
    "make_agent": "dpb_gym.agent",
    "register_agent": "dpb_gym.agent",
    "make_problem": "dpb_gym.envs.catalogue",
    "Result": "dpb_gym.evaluation",
    "evaluate": "dpb_gym.evaluation",
    "Budget": "dpb_gym.privacy",
    "Guarantee": "dpb_gym.privacy",
}

__all__ = [
    "Agent",
    "AgentSpec",
    "Budget",
    "Guarantee",
    "Result",
    "SingleAgent",
    "__version__",
    "agent_spec",
    "agent_specs",
    "evaluate",
    "make_agent",
    "make_problem",
    "register_agent",
    "register_environment",
]


def __getattr__(name: str) -> Any:
    if name in _LAZY:
        value = getattr(importlib.import_module(_LAZY[name]), name)
        globals()[name] = value
        return value
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted([*globals(), *_LAZY])


register_environments()
