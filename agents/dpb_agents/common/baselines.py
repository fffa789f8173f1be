"""Baselines of normalised scores: uniformly random actions, and the best action in every round."""

from __future__ import annotations

import numpy as np

from dpb_gym.agent import Agent
from dpb_gym.errors import AgentError
from dpb_gym.privacy import Curator
from dpb_gym.problems.base import Array, Context, Feedback, Instance, ProblemInfo
from dpb_gym.problems.kinds import kind_of
from dpb_gym.registry import register_agent
from dpb_gym.streams import AgentStreams


@register_agent("random", supports="any")
class RandomPolicy(Agent):
    """Uniformly random slates of K items, prices or candidates; learns nothing.

    The baseline with normalised score 0.
    """

    def begin(self, problem: ProblemInfo, streams: AgentStreams, curator: Curator) -> None:
        self._problem, self._kind = problem, kind_of(problem.kind)
        self._uniforms = streams.uniforms(*self._kind.action_shape(problem))

    def act(self, context: Context) -> Array:
        offer = () if context.available is None else (context.available,)
        return self._kind.random(self._problem, self._uniforms.next(), *offer)

    def probabilities(self, context: Context) -> Array | None:
        if self._problem.kind != "recommendation":
            return None
        B, m, _ = context.features.shape
        if context.available is None:
            return np.full((B, m), 1.0 / m)
        return context.available / context.available.sum(axis=1, keepdims=True)

    def observe(self, context: Context, action: Array, feedback: Feedback) -> None:
        pass


@register_agent("oracle", supports="any", uses_oracle=True)
class OraclePolicy(Agent):
    """Plays the best action in every round; it uses the environment's hidden state.

    The baseline with normalised score 1: its pseudo-regret is zero.

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
