"""What the agents of the multi-armed bandit share: arms by number, features ignored."""

from __future__ import annotations

import math
from abc import abstractmethod

import numpy as np

from dpb_agents.common.parameters import Configured
from dpb_gym.errors import ActionError, AgentError
from dpb_gym.privacy import Curator
from dpb_gym.problems.base import Array, Context, Feedback, ProblemInfo
from dpb_gym.streams import AgentStreams

SUPPORTS = ["recommendation"]


class MultiArmed(Configured):
    """An agent that knows an arm by its number in the pool alone.

    Raises:
        AgentError: If not every round offers the same arms, or rewards are not bounded.
    """

    def begin(self, problem: ProblemInfo, streams: AgentStreams, curator: Curator) -> None:
        name = type(self).__name__
        if problem.kind != "recommendation" or not problem.fixed_arms:
            raise AgentError(f"{name} needs the same arms in every round: DPB/MultiArmed-v0")
        self._low, high = problem.reward_range
        self._range = high - self._low
        if not (math.isfinite(self._range) and self._range > 0.0):
            raise AgentError(f"rewards must be bounded, got the range [{self._low}, {high}]")
        assert problem.n_arms is not None
        self._shape = streams.replicates, problem.n_arms
        self._rows = np.arange(streams.replicates)
        self._open(problem, curator)

    @abstractmethod
    def _open(self, problem: ProblemInfo, curator: Curator) -> None:
        """Starts with ``_shape``, replicates and arms."""

    @abstractmethod
    def _choose(self, t: int) -> Array:
        """The arms to play in round t, ``(B,)``."""

    @abstractmethod
    def _learn(self, t: int, arm: Array, reward: Array, seen: Array) -> None:
        """Takes the rewards of `arm`, ``(B,)``, where `seen`."""

    def act(self, context: Context) -> Array:
        assert context.arms is not None
        place: Array = (context.arms == self._choose(context.t)[:, None]).argmax(axis=1)
        return place

    def observe(self, context: Context, action: Array, feedback: Feedback) -> None:
        assert context.arms is not None
        B, n = self._shape
        wrong = (np.asarray(action) < 0) | (np.asarray(action) >= n)
        if wrong.any():
            i = int(wrong.argmax())
            raise ActionError(f"candidate {action[i]} of replicate {i} is outside 0..{n - 1}")
        seen = np.ones(B, bool) if feedback.observed is None else feedback.observed
        self._learn(context.t, context.arms[self._rows, action], feedback.reward, seen)
