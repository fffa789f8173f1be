"""dpb-gym: environments, agents and one harness for differentially private bandits.

Importing the package registers the environments with Gymnasium. Heavy dependencies are imported
lazily.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from dpb_gym.program_start import exit_on_interruption

exit_on_interruption()  # first, as the other imports take most of a second

from dpb_gym.envs.registration import register_environment as register_environment  # noqa: E402
from dpb_gym.envs.registration import register_environments  # noqa: E402
from dpb_gym.lazy import lazy_names  # noqa: E402

if TYPE_CHECKING:
    from dpb_gym.agent import Agent as Agent
    from dpb_gym.agent import SingleAgent as SingleAgent
    from dpb_gym.audits import audit as audit
    from dpb_gym.envs.log_environments import from_log as from_log
    from dpb_gym.envs.registration import make_problem as make_problem
    from dpb_gym.offline import evaluate_offline as evaluate_offline
    from dpb_gym.planning.advice import advise as advise
    from dpb_gym.planning.privacy_cost import cost_of_privacy as cost_of_privacy
    from dpb_gym.privacy import Budget as Budget
    from dpb_gym.privacy import Guarantee as Guarantee
    from dpb_gym.problems.kinds import Kind as Kind
    from dpb_gym.problems.kinds import register_kind as register_kind
    from dpb_gym.problems.prior import Prior as Prior
    from dpb_gym.registry import AgentSpec as AgentSpec
    from dpb_gym.registry import agent_spec as agent_spec
    from dpb_gym.registry import agent_specs as agent_specs
    from dpb_gym.registry import list_agents as list_agents
    from dpb_gym.registry import make_agent as make_agent
    from dpb_gym.registry import register_agent as register_agent
    from dpb_gym.results.result import Result as Result
    from dpb_gym.running.api import evaluate as evaluate
    from dpb_gym.serving import Session as Session
    from dpb_gym.serving import serve as serve

__version__ = "0.1.0"

__all__, __getattr__, __dir__ = lazy_names(__name__, "__version__", "register_environment")

register_environments()
