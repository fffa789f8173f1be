"""The best action, known."""

from __future__ import annotations

from dpb_gym.agent import Agent
from dpb_gym.errors import AgentError
from dpb_gym.privacy import Curator
from dpb_gym.problems.base import Array, Context, Feedback, Instance, ProblemInfo
from dpb_gym.registry import register_agent
from dpb_gym.streams import AgentStreams


@register_agent("oracle", supports="any", uses_oracle=True)
class OraclePolicy(Agent):
    """Plays the best action in every round; it reads the environment's hidden state.

    The yardstick of normalised scores (oracle = 1): its pseudo-regret is zero.

    Raises:
        AgentError: From `begin`, if no running environment was attached.
    """

    _instance: Instance | None = None

    def attach(self, instance: Instance) -> None:
        self._instance = instance

    def begin(self, problem: ProblemInfo, streams: AgentStreams, curator: Curator) -> None:
        if self._instance is None:
            raise AgentError("the oracle must be attached to a running environment before begin()")
        if self._instance.replicates != streams.replicates:
            raise AgentError(
                f"the oracle is attached to {self._instance.replicates} replicates, "
                f"but begins with {streams.replicates}"
            )

    def act(self, context: Context) -> Array:
        assert self._instance is not None
        return self._instance.best_action().copy()

    def observe(self, context: Context, action: Array, feedback: Feedback) -> None:
        pass
