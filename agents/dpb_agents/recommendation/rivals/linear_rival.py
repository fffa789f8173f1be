"""Base of the private linear bandits of this package, and private sums of rewards."""

from __future__ import annotations

import math
import sys
from abc import abstractmethod
from dataclasses import field
from typing import Any, ClassVar

import numpy as np

from dpb_agents import kernels as agent_kernels
from dpb_agents.common.parameters import flag, positive, real
from dpb_agents.common.prior import WarmStart
from dpb_agents.recommendation.linear_records import take_recommended
from dpb_gym import kernels
from dpb_gym.errors import AgentError, BudgetExceeded, ParameterError
from dpb_gym.overrides import overridden
from dpb_gym.privacy import Curator, Event, GaussianEvent, Segment, Sum, gaussian_sigma
from dpb_gym.problems.availability import among_available
from dpb_gym.problems.base import Array, Context, Feedback, ProblemInfo
from dpb_gym.problems.stretch import Stretch
from dpb_gym.streams import AgentStreams

COMPOSITIONS = ("sequential", "parallel")
AHEAD = 256  # normals that are drawn at a time


class LinearRival(WarmStart):
    """A linear bandit that plays the largest <x, theta> + width ||x||_M for a metric M.

    Subclasses make their releasers in `_open` and update in `_learn`. Between releases they use
    public numbers only. Records are added to the Gram matrices in ``_grown``, given by their
    inverses ``(G, B, d, d)`` and the growth of log det ``(G, B)``.

    Args:
        alpha: Width of the bonus, >= 0.
        ridge: lambda, > 0.
        centre: Subtract the middle of the reward's range (erratum R9).

    Attributes:
        tuning_grid: Values to try per parameter, eight points for every agent.
        releaser: Receives the raw records; the policy reads its releases only.
    """

    releaser: Sum = field(init=False, repr=False)
    moves: ClassVar[bool] = False
    """Whether M is the inverse of the first of the Gram matrices in ``_grown``."""
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
        self._noisy = curator.private
        self._half = 0.5 * (high - low)
        # schedules stretch as much where only one in n_candidates rounds is observed
        self._stretch = problem.n_candidates or 1 if problem.partial_feedback else 1
        self._horizon = problem.longest
        self._rounds, self._next = 0, sys.maxsize  # the next scheduled update
        self._theta = np.zeros((B, d))
        self._mean, self._pull = np.tile(self.prior(problem).centre, (B, 1)), np.full(B, self.ridge)
        self._informed = bool(self._mean.any())
        self._inverse = np.broadcast_to(np.eye(d) / self.ridge, (B, d, d)).copy()
        self._width = np.full(B, self.alpha)
        self._all = np.ones(B, bool)
        bound = Segment(low - self._shift, high - self._shift)
        self._grown = self._grams(0)
        self._open(problem, bound, curator)
        self.stretches = True

    def _grams(self, number: int) -> tuple[Array, Array]:
        """Return so many Gram matrices ridge I; see `_grown`."""
        shape = number, len(self._theta)
        return np.tile(self._inverse[0], (*shape, 1, 1)), np.zeros(shape)

    @property
    def _metric(self) -> Array:
        """M, ``(B, d, d)``."""
        return self._grown[0][0] if self.moves else self._inverse

    def _limits(self) -> tuple[Array, Array, float]:
        """Return the least rounds until an update, a log det A and its growth that cause one."""
        return np.zeros(len(self._theta), np.int64), np.zeros(len(self._theta)), math.inf

    @abstractmethod
    def _open(self, problem: ProblemInfo, bound: Segment, curator: Curator) -> None:
        """Make the releasers; rewards minus the shift are in `bound`."""

    @abstractmethod
    def _learn(self, reward: Array, chosen: Array) -> None:
        """Update after rounds of one policy: shifted rewards ``(n, B)`` of x ``(n, B, d)``."""

    @among_available
    def act(self, context: Context) -> Array:
        action, theta = np.empty(len(self._theta), np.int64), self._estimate()
        agent_kernels.linear.choose(context.features, theta, self._metric, self._width, action)
        return action

    def play(self, rounds: Stretch) -> Array:
        (n, B), features, arms = rounds.shape, rounds.context.features, rounds.context.arms
        chosen, (weight, reward) = np.empty((n, *self._theta.shape)), np.empty((2, n, B))
        action, start = np.empty((n, B), np.int64), 0
        while start < n:
            part = slice(start, min(n, start + self._next - self._rounds))
            shown = features[part], rounds.reward[part], rounds.observed[part]
            out = chosen[part], weight[part], reward[part], action[part]
            played = self._play(shown, None if arms is None else arms[part], *out)
            part = slice(start, start + played)
            self._rounds += played
            shifted = reward[part] - self._shift
            self._learn(shifted if self._noisy else weight[part] * shifted, chosen[part])
            start = part.stop
        return action

    def _play(self, rounds: tuple[Array, ...], arms: Array | None, *out: Array) -> int:
        """Play until the next update; see `kernels.linear.play_growing`."""
        policy = self._theta, self._pulled(), self._metric, self._width
        return int(
            agent_kernels.linear.play_growing(rounds, policy, self._grown, self._limits(), *out)
        )

    def _pulled(self) -> Array:
        """Return the vectors that V^-1 multiplies in the estimate, ``(B, d)``, or no row."""
        pulled = self._pull[:, None] * self._mean
        return pulled if self._informed else pulled[:0]

    def _estimate(self) -> Array:
        """Return V^-1 (b + pull m); ``_theta`` is V^-1 b, and V includes ``_pull`` I."""
        pulled = self._pulled()
        if not len(pulled):
            return self._theta
        image = np.empty_like(self._theta)
        kernels.linalg.multiply(self._metric, pulled, image)
        return self._theta + image

    def observe(self, context: Context, action: Array, feedback: Feedback) -> None:
        observed = self._all if feedback.observed is None else feedback.observed
        chosen = np.empty((1, *self._theta.shape))
        weight = take_recommended(context.features, action, observed, chosen[0])
        for gram, gain in zip(*self._grown):
            agent_kernels.linear.grow(gram, chosen[0], gain)
        self._rounds += 1
        reward = feedback.reward - self._shift
        self._learn((reward if self._noisy else weight * reward)[None], chosen)


def operator_norm(matrices: Array) -> Array:
    """Return the largest absolute eigenvalues of symmetric matrices ``(n, d, d)``, rounded up."""
    largest: Array = np.abs(kernels.linalg.eigvalsh(matrices)).max(axis=1)
    return largest * (1.0 + 1e-9)


class RewardSums(Sum):
    """Sums of r x plus Gaussian noise, released for the replicates that are due.

    A record is a protected reward r, clipped to its range, times a public direction x, clipped
    to the unit ball. Neighbours differ in one reward, so a sum has sensitivity
    ``high - low``. The end of a segment may depend on directions and on earlier releases, which
    are public, but not on rewards of the open segment.

    Without `keep` a release closes the segment. Every record is then in one release, and all of
    them together cost as much as one. With ``keep=n`` the sums stay open, every record is in all
    later releases, and n releases are charged. System noise is continuous, in double precision.

    Args:
        curator: Provides budget and noise.
        width: Length d of a direction.
        reward: Range of the rewards.
        what: Description for the ledger.
        split: Number of equal parts of the budget; the releases cost one of them.
        keep: Most releases per replicate that include all of its records.
    """

    def __init__(
        self,
        curator: Curator,
        width: int,
        reward: Segment,
        what: str,
        *,
        split: int = 1,
        keep: int | None = None,
    ) -> None:
        B = curator.replicates
        self.keep, self.gain = keep, math.sqrt(keep or 1)
        self.releases = np.zeros(B, np.int64)
        self._released = np.zeros((B, width))
        self._normals = np.empty((B, AHEAD // width + 1, width))
        self._cursor = np.full(B, self._normals.shape[1])
        self._plain = np.tile(np.eye(width), (B, 1, 1)), np.ones(B)
        super().__init__(
            curator, width, reward=(reward.low, reward.high), share=1.0 / split, what=what
        )

    def _scales(self, rho: float) -> tuple[float, float, Event]:
        """Return sigma, no grid, and the cost; images of sums would leave a grid."""
        sigma = gaussian_sigma(rho, self.sensitivity * self.gain)
        return sigma, 0.0, GaussianEvent(sigma, self.sensitivity * self.gain)

    def add_rounds(self, records: Array, along: Array | None = None) -> None:
        if overridden(self, "add_rounds", "add"):
            super().add_rounds(records, along)
            return
        self.ready()
        self._take_rounds(records, along, self._total)

    def release(self, due: Array, inverse: Array | None = None, norm: Array | None = None) -> Array:
        """Release where `due`, and return the newest releases ``(B, d)``.

        Args:
            due: ``(B,)`` bool.
            inverse: Public symmetric matrices M ``(B, d, d)``: release M s + norm sigma z
                instead of s + sigma z. Sensitivity ||M x|| (high - low) of the image is at most
                norm times that of the sum.
            norm: Upper bounds of the operator norms of M, ``(B,)``, which are not checked. Needed
                with `inverse`.

        Raises:
            BudgetExceeded: If a replicate has used up its releases; nothing is released.
            ParameterError: If only one of `inverse` and `norm` is given.
        """
        if (inverse is None) != (norm is None):
            raise ParameterError("give both inverse and norm, or neither")
        self.ready()
        if self.keep is not None and (self.releases[due] >= self.keep).any():
            raise BudgetExceeded(f"all {self.keep} releases of a replicate are used up")
        for b in np.flatnonzero(due & (self._cursor == self._normals.shape[1])):
            self._noise.fill(int(b), self._normals[b])
            self._cursor[b] = 0
        sums, keep = (self._total, self._normals, self._cursor, due), self.keep is not None
        image = self._plain if inverse is None else (inverse, norm)
        agent_kernels.linear.release(*sums, self._sigma, *image, keep, self._released)
        if self.curator.system_noise:  # a saved agent has no noise of the past or the future
            self._normals[:] = 0.0
            self._cursor[:] = self._normals.shape[1]
        self.releases += due
        return self._released.copy()
