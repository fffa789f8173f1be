"""dpb-gym: environments, agents and one harness for differentially private bandits.

Importing the package registers the environments with Gymnasium. Nothing heavy is
imported before it is used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from dpb_gym.envs.catalogue import register_environment, register_environments
from dpb_gym.lazy import lazy_names

if TYPE_CHECKING:
    from dpb_gym.agent import Agent, SingleAgent
    from dpb_gym.envs.catalogue import make_problem
    from dpb_gym.envs.logged import from_log
    from dpb_gym.evaluation import Result, evaluate
    from dpb_gym.evaluation.audit import audit
    from dpb_gym.evaluation.privacy_cost import cost_of_privacy
    from dpb_gym.offline import evaluate_offline
    from dpb_gym.privacy import Budget, Guarantee
    from dpb_gym.problems.kinds import Kind, register_kind
    from dpb_gym.problems.prior import Prior
    from dpb_gym.registry import (
        AgentSpec,
        agent_spec,
        agent_specs,
        list_agents,
        make_agent,
        register_agent,
    )
    from dpb_gym.serving import Session, serve

__version__ = "0.1.0"

_HOMES = {
    "agent": ("Agent", "SingleAgent"),
    "envs.catalogue": ("make_problem",),
    "envs.logged": ("from_log",),
    "evaluation": ("Result", "evaluate"),
    "evaluation.audit": ("audit",),
    "evaluation.privacy_cost": ("cost_of_privacy",),
    "offline": ("evaluate_offline",),
    "privacy": ("Budget", "Guarantee"),
    "problems.kinds": ("Kind", "register_kind"),
    "problems.prior": ("Prior",),
    "registry": (
        "AgentSpec",
        "agent_spec",
        "agent_specs",
        "list_agents",
        "make_agent",
        "register_agent",
    ),
    "serving": ("Session", "serve"),
}

__all__ = [
    "Agent",
    "AgentSpec",
    "Budget",
    "Guarantee",
    "Kind",
    "Prior",
    "Result",
    "Session",
    "SingleAgent",
    "__version__",
    "agent_spec",
    "agent_specs",
    "audit",
    "cost_of_privacy",
    "evaluate",
    "evaluate_offline",
    "from_log",
    "list_agents",
    "make_agent",
    "make_problem",
    "register_agent",
    "register_environment",
    "register_kind",
    "serve",
]


__getattr__, __dir__ = lazy_names(__name__, _HOMES)

register_environments()
