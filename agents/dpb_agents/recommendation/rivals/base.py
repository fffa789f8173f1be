"""What the private linear bandits of this package share."""

from __future__ import annotations

import math
from abc import abstractmethod
from dataclasses import field
from typing import Any, ClassVar

import numpy as np

from dpb_agents import kernels as zoo
from dpb_agents.common.parameters import flag, positive, real
from dpb_agents.common.prior import WarmStart
from dpb_agents.recommendation.linear import take_recommended
from dpb_gym import kernels
from dpb_gym.errors import AgentError, ParameterError
from dpb_gym.privacy import Curator, Segment, Sum
from dpb_gym.problems.base import Array, Context, Feedback, ProblemInfo
from dpb_gym.problems.offers import among_available
from dpb_gym.streams import AgentStreams

COMPOSITIONS = ("sequential", "parallel")


class LinearRival(WarmStart):
    """A linear bandit that plays the largest <x, theta> + width ||x|| in some metric.

    Subclasses open their releasers in `_open` and learn in `_learn`; between releases they
    see public numbers only.

    Args:
        alpha: Width of the bonus, >= 0.
        ridge: lambda, > 0.
        centre: Subtract the middle of the reward's range (erratum R9).

    Attributes:
        tuning_grid: Values to try per parameter, eight points for every agent.
        releaser: Takes the raw records; the policy reads its releases only.
    """

    releaser: Sum = field(init=False, repr=False)
    tuning_grid: ClassVar[dict[str, list[Any]]] = {}
    alpha: float = real(1.0, 0.0)
    ridge: float = positive(1.0)
    centre: bool = flag(False)

    def begin(self, problem: ProblemInfo, streams: AgentStreams, curator: Curator) -> None:
        name = type(self).__name__
        if problem.kind != "recommendation":
            raise AgentError(f"{name} plays recommendation, not {problem.kind}")
        low, high = problem.reward_range
        if not (math.isfinite(low) and math.isfinite(high)):
            raise ParameterError(f"rewards must be bounded, got the range [{low}, {high}]")
        B, d = streams.replicates, problem.dim
        self._shift = 0.5 * (low + high) if self.centre else 0.0
        self._half = 0.5 * (high - low)
        # where only one in n_candidates rounds is observed, schedules stretch as much
        self._stretch = problem.n_candidates or 1 if problem.partial_feedback else 1
        self._horizon = problem.longest
        self._rounds = 0
        self._theta = np.zeros((B, d))
        self._mean, self._pull = np.tile(self.prior(problem).centre, (B, 1)), np.full(B, self.ridge)
        self._informed = bool(self._mean.any())
        self._inverse = np.broadcast_to(np.eye(d) / self.ridge, (B, d, d)).copy()
        self._width = np.full(B, self.alpha)
        self._chosen = np.empty((B, d))
        self._spare = np.zeros(B)
        self._ones = np.ones(B)
        self._all = np.ones(B, bool)
        bound = Segment(low - self._shift, high - self._shift)
        self._open(problem, bound, curator)

    @abstractmethod
    def _open(self, problem: ProblemInfo, bound: Segment, curator: Curator) -> None:
        """Makes the releasers; rewards, less the shift, lie in `bound`."""

    @abstractmethod
    def _learn(self, reward: Array) -> None:
        """Takes one shifted reward per replicate; the candidates are in ``_chosen``."""

    @among_available
    def act(self, context: Context) -> Array:
        action, theta = np.empty(len(self._theta), np.int64), self._estimate()
        zoo.linear.choose(context.features, theta, self._inverse, self._width, action)
        return action

    def _estimate(self) -> Array:
        """V^-1 (b + pull m): ``_theta`` = V^-1 b, and V holds ``_pull`` times the identity."""
        if not self._informed:
            return self._theta
        pulled = np.empty_like(self._theta)
        kernels.linalg.multiply(self._inverse, self._pull[:, None] * self._mean, pulled)
        return self._theta + pulled

    def observe(self, context: Context, action: Array, feedback: Feedback) -> None:
        observed = self._all if feedback.observed is None else feedback.observed
        take_recommended(context.features, action, observed, self._chosen)
        self._rounds += 1
        self._learn(feedback.reward - self._shift)


def operator_norm(matrices: Array) -> Array:
    """Largest absolute eigenvalues of symmetric matrices ``(n, d, d)``, rounded up."""
    found: Array = np.abs(kernels.linalg.eigvalsh(matrices)).max(axis=1)
    return found * (1.0 + 1e-9)
