"""Parts of the multi-armed agents: checks, indicators, and private reward sums per arm."""

from __future__ import annotations

import math

import numpy as np

from dpb_gym import portable, validation
from dpb_gym.errors import AgentError
from dpb_gym.play import jit
from dpb_gym.privacy import Curator, Event, LaplaceEvent, PureEvent, Sum, SystemNoise
from dpb_gym.privacy.noise import grid_of
from dpb_gym.problems.base import Array, ProblemInfo

SUPPORTS = ["recommendation"]
LAWS = ("gaussian", "laplace")


def check_arms(name: str, problem: ProblemInfo) -> None:
    """Raise `AgentError` unless every round offers the same arms, with bounded rewards."""
    if problem.kind != "recommendation" or not problem.fixed_arms:
        raise AgentError(f"{name} needs the same arms in every round: DPB/MultiArmed-v0")
    low, high = problem.reward_range
    if not (math.isfinite(high - low) and high > low):
        raise AgentError(f"rewards must be bounded, got the range [{low}, {high}]")


@jit
def place(x, arm):
    """Position of an arm among the candidates x, which are arms."""
    for k in range(x.shape[0]):
        if x[k] == arm:
            return k
    return 0


@jit
def indicator(n, arm):
    """Unit vector of an arm, ``(n,)``."""
    v = np.zeros(n)
    v[arm] = 1.0
    return v


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
        # Pure epsilon-privacy implies zCDP of epsilon^2 / 2.
        epsilon = math.sqrt(2.0 * rho)
        scale = self.sensitivity / epsilon
        if not self.curator.system_noise:
            # The first number is a standard deviation, sqrt(2) times the scale of Laplace noise.
            return math.sqrt(2.0) * scale, 0.0, LaplaceEvent(scale, self.sensitivity)
        grid = grid_of(scale)
        distance = self.sensitivity + grid  # a reward is rounded in one coordinate
        # The discrete law needs a multiple of the grid, rounded up so that epsilon holds.
        scale = math.ceil(distance / (epsilon * grid)) * grid
        return math.sqrt(2.0) * scale, grid, PureEvent(distance / scale)

    @property
    def scale(self) -> float:
        """Scale of the Laplace noise, 0 if exact."""
        return self.sigma / math.sqrt(2.0)

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
        # The rewards are discarded, so that none is in two releases.
        self._total[due] = 0.0
        return self._released.copy()

    def _discrete(self, width: int) -> Array:
        """Return system noise on the grid, ``(B, width)``."""
        assert isinstance(self._noise, SystemNoise)
        if self.law == "laplace":
            return self._noise.laplace(self.scale, width)
        return self._noise.gaussian(self._sigma, width)
