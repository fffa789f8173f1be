"""Base of the multi-armed agents, and private reward sums per arm."""

from __future__ import annotations

import math
from abc import abstractmethod

import numpy as np

from dpb_agents.common.parameters import Configured
from dpb_gym import portable, validation
from dpb_gym.errors import ActionError, AgentError
from dpb_gym.privacy import Curator, Event, LaplaceEvent, PureEvent, Sum, SystemNoise
from dpb_gym.privacy.noise import grid_of
from dpb_gym.problems.base import Array, Context, Feedback, ProblemInfo
from dpb_gym.streams import AgentStreams

SUPPORTS = ["recommendation"]
LAWS = ("gaussian", "laplace")


class MultiArmed(Configured):
    """An agent that identifies arms by their number in the pool and ignores features.

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
        """Initialise the state; ``_shape`` is (replicates, arms)."""

    @abstractmethod
    def _choose(self, t: int) -> Array:
        """Return the arms to play in round t, ``(B,)``."""

    @abstractmethod
    def _learn(self, t: int, arm: Array, reward: Array, seen: Array) -> None:
        """Update with the rewards of `arm`, ``(B,)``, where `seen`."""

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


class ArmSums(Sum):
    """Sums of the rewards of every arm plus noise, released for the replicates that are due.

    A release closes a segment. Every reward is in one release, so all releases together cost as
    much as one. The arm of a reward is public, so neighbours differ in one coordinate by the
    reward's range, which is the sensitivity in every norm. The end of a segment may depend on
    arms and earlier releases but not on rewards of the open segment.

    Args:
        curator: Provides budget and noise.
        arms: Number of arms.
        reward: Range of the rewards.
        law: ``"gaussian"``, or ``"laplace"`` of scale range / epsilon, which is pure
            epsilon-differential privacy; its nominal rho is epsilon^2 / 2. System noise is the
            discrete law on a grid.
        what: Description for the ledger.
    """

    def __init__(
        self, curator: Curator, arms: int, *, reward: tuple[float, float], law: str, what: str
    ) -> None:
        self.law = validation.choice("law", law, LAWS)
        super().__init__(curator, arms, reward=reward, what=what)
        self._arms = np.arange(arms)

    def _scales(self, rho: float) -> tuple[float, float, Event]:
        if self.law == "gaussian":
            return super()._scales(rho)
        epsilon = math.sqrt(2.0 * rho)
        scale = self.sensitivity / epsilon
        if not self.curator.system_noise:
            return math.sqrt(2.0) * scale, 0.0, LaplaceEvent(scale, self.sensitivity)
        grid = grid_of(scale)
        distance = self.sensitivity + grid  # a reward is rounded in one coordinate
        scale = math.ceil(distance / (epsilon * grid)) * grid
        return math.sqrt(2.0) * scale, grid, PureEvent(distance / scale)

    @property
    def scale(self) -> float:
        """Scale of the Laplace noise, 0 if exact."""
        return self.sigma / math.sqrt(2.0)

    def add(self, reward: Array, arm: Array, seen: Array) -> None:  # type: ignore[override]
        """Add one reward of `arm` per replicate, ``(B,)``, where `seen`."""
        super().add(reward, (self._arms == arm[:, None]) & seen[:, None])

    def release(self, due: Array) -> Array:
        """Close the segments where `due`, ``(B,)`` bool; return the newest sums ``(B, arms)``."""
        self.ready()
        noise = np.zeros((1, len(self._arms)))
        if self.grid:
            self._released[due] = (self._total + self._discrete(len(self._arms)))[due]
        for b in () if self.grid else np.flatnonzero(due):
            if self._sigma:
                self._noise.fill(int(b), noise)
                if self.law == "laplace":  # a normal of exponential variance
                    uniform = self._noise.generators[b].random(len(self._arms))
                    noise *= np.sqrt(-portable.each(portable.log1p, -uniform))
            self._released[b] = self._total[b] + self._sigma * noise[0]
        self._total[due] = 0.0
        return self._released.copy()

    def _discrete(self, width: int) -> Array:
        """Return system noise on the grid, ``(B, width)``."""
        assert isinstance(self._noise, SystemNoise)
        if self.law == "laplace":
            return self._noise.laplace(self.scale, width)
        return self._noise.gaussian(self._sigma, width)
