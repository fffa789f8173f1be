"""Base of the private linear bandits of this package, and private sums of rewards."""

from __future__ import annotations

import math
from abc import abstractmethod
from dataclasses import field
from typing import Any, ClassVar

import numpy as np

from dpb_agents import kernels as agent_kernels
from dpb_agents.common.parameters import flag, positive, real
from dpb_agents.common.prior import WarmStart
from dpb_agents.recommendation.linear_policy import take_recommended
from dpb_gym import kernels
from dpb_gym.errors import AgentError, BudgetExceeded, ParameterError
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
    public numbers only.

    Args:
        alpha: Width of the bonus, >= 0.
        ridge: lambda, > 0.
        centre: Subtract the middle of the reward's range (erratum R9).

    Attributes:
        tuning_grid: Values to try per parameter, eight points for every agent.
        releaser: Receives the raw records; the policy reads its releases only.
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
        self._noisy = curator.private
        self._half = 0.5 * (high - low)
        # schedules stretch as much where only one in n_candidates rounds is observed
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
        self.stretches = self._rounds_until_update() > 1

    def _rounds_until_update(self) -> int:
        """Return the rounds until the policy changes; 0 where the data decide."""
        return 0

    @abstractmethod
    def _open(self, problem: ProblemInfo, bound: Segment, curator: Curator) -> None:
        """Make the releasers; rewards minus the shift are in `bound`."""

    @abstractmethod
    def _learn(self, reward: Array) -> None:
        """Update with one shifted reward per replicate, of the candidates in ``_chosen``."""

    @among_available
    def act(self, context: Context) -> Array:
        action, theta = np.empty(len(self._theta), np.int64), self._estimate()
        agent_kernels.linear.choose(context.features, theta, self._inverse, self._width, action)
        return action

    def play(self, rounds: Stretch) -> Array:
        (n, B), features = rounds.shape, rounds.context.features
        chosen, (weight, reward) = np.empty((n, *self._chosen.shape)), np.empty((2, n, B))
        action, start = np.empty((n, B), np.int64), 0
        while start < n:
            part = slice(start, min(n, start + self._rounds_until_update()))
            agent_kernels.linear.play_frozen(
                (features[part], rounds.reward[part], rounds.observed[part]),
                self._estimate(),
                self._inverse,
                self._width,
                chosen[part],
                weight[part],
                reward[part],
                action[part],
            )
            for t in range(start, part.stop):
                self._chosen[:] = chosen[t]
                self._rounds += 1
                shifted = reward[t] - self._shift
                self._learn(shifted if self._noisy else weight[t] * shifted)
            start = part.stop
        return action

    def _estimate(self) -> Array:
        """Return V^-1 (b + pull m); ``_theta`` is V^-1 b, and V includes ``_pull`` I."""
        if not self._informed:
            return self._theta
        pulled = np.empty_like(self._theta)
        kernels.linalg.multiply(self._inverse, self._pull[:, None] * self._mean, pulled)
        return self._theta + pulled

    def observe(self, context: Context, action: Array, feedback: Feedback) -> None:
        observed = self._all if feedback.observed is None else feedback.observed
        weight = take_recommended(context.features, action, observed, self._chosen)
        self._rounds += 1
        reward = feedback.reward - self._shift
        self._learn(reward if self._noisy else weight * reward)


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
