"""Parts of the private linear bandits of this package, and private sums of rewards."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

from dpb_agents import kernels as agent_kernels
from dpb_gym import kernels
from dpb_gym.agent import unsuitable
from dpb_gym.errors import BudgetExceeded, ParameterError
from dpb_gym.kernels.vectors import clip_factor, clipped, largest, times, upper_bounds
from dpb_gym.overrides import overridden
from dpb_gym.parameters import flag, positive, real
from dpb_gym.play import Algorithm, Plan, jit
from dpb_gym.privacy import Curator, Event, GaussianEvent, Segment, Sum, gaussian_sigma
from dpb_gym.problems.base import Array, ProblemInfo
from dpb_gym.problems.prior import Prior

COMPOSITIONS = ("sequential", "parallel")
AHEAD = 256  # normals that are drawn at a time


@jit
def optimistic(x, theta, M, width, z):
    """Candidate of the largest <x, theta> + width ||x||_M; z is empty or decides ties."""
    u = z[0, 0] if z.shape[0] > 0 else 0.0
    return largest(upper_bounds(x, theta, M, width), u)


@jit
def shrunk(theta, M, pull, m):
    """theta + pull M m: an estimate M b with the prior mean m, where M^-1 includes pull I."""
    out = np.zeros(theta.shape[0])
    for j in range(theta.shape[0]):
        # M^-1 (theta + pull M m) = b + pull m: the ridge pulls to m instead of to 0.
        out[j] = pull * m[j]
    out = times(M, out)
    for j in range(theta.shape[0]):
        out[j] = theta[j] + out[j]
    return out


@jit
def record_reward(c, x, k, reward):
    """r and x, in the unit ball. In exact sums both are scaled: a linear model is unchanged."""
    centred = reward - c.shift
    # Scaling x alone would bias the model. Under noise the weaker reward costs more than this bias.
    if not c.noisy:
        centred *= clip_factor(x[k])
    return centred, clipped(x[k])


def doubling(first: int, horizon: int) -> tuple[int, ...]:
    """Return the ends of phases that double in length, of which the last reaches the horizon."""
    # The first number of phases for which first (2^k - 1) is at least T.
    phases = math.ceil(math.log2(horizon / first + 1))
    return tuple(first * (2**k - 1) for k in range(1, phases + 1))


class RivalFacts(NamedTuple):
    """Numbers of a linear bandit on a problem.

    Attributes:
        dim: d.
        shift: Subtracted from rewards.
        low: Lowest shifted reward.
        high: Highest shifted reward.
        half: Half the width of the rewards' range.
        stretch: Factor of schedules: the candidates, where one in so many rounds is observed.
        horizon: T.
        mean: Prior mean of theta, ``(d,)``.
    """

    dim: int
    shift: float
    low: float
    high: float
    half: float
    stretch: int
    horizon: int
    mean: Any

    @property
    def reward(self) -> tuple[float, float]:
        """Range of the shifted rewards."""
        return self.low, self.high


class LinearRival(Algorithm):
    """A linear bandit that plays the largest <x, theta> + width ||x||_M for a metric M.

    Between releases it uses public numbers only.

    Args:
        prior_mean: Public prior mean of theta, ``(d,)``, which theta is shrunk towards. It replaces
            `ProblemInfo.prior`; zeros give a cold start. None: use `ProblemInfo.prior`.
        alpha: Width of the bonus, >= 0.
        ridge: lambda, > 0.
        centre: Subtract the middle of the reward's range (erratum R9).
    """

    prior_mean: Any = None
    alpha: float = real(1.0, 0.0)
    ridge: float = positive(1.0)
    centre: bool = flag(False)

    def check(self, problem: ProblemInfo) -> None:
        if problem.kind != "recommendation":
            raise unsuitable(type(self).__name__, problem, "recommendation")

    def facts(self, problem: ProblemInfo) -> RivalFacts:
        """Return the numbers of the bandit.

        Raises:
            ParameterError: If rewards are not bounded.
        """
        low, high = problem.reward_range
        if not (math.isfinite(low) and math.isfinite(high)):
            raise ParameterError(f"rewards must be bounded, got the range [{low}, {high}]")
        shift = 0.5 * (low + high) if self.centre else 0.0
        prior = (problem.prior or Prior((0.0,) * problem.dim)).fitting(problem.dim)
        return RivalFacts(
            dim=problem.dim,
            shift=shift,
            low=low - shift,
            high=high - shift,
            half=0.5 * (high - low),
            stretch=problem.n_candidates or 1 if problem.partial_feedback else 1,
            horizon=problem.longest,
            mean=prior.centre,
        )

    def planned(self, problem: ProblemInfo, sums: Any, **options: Any) -> Plan:
        """Return a plan of sums of rewards, with a number that decides ties among fixed arms."""
        ties = int(problem.fixed_arms)
        return Plan(sums, directed=True, draws=ties, dim=ties, law="uniforms", **options)


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
        # n releases of the same records compose in sequence, so sigma grows by sqrt(n).
        self.keep, self.gain = keep, math.sqrt(keep or 1)
        self.releases = np.zeros(B, np.int64)
        self._released = np.zeros((B, width))
        self._normals = np.zeros((B, AHEAD // width + 1, width))
        self._cursor = np.full(B, self._normals.shape[1])
        self._plain = np.tile(np.eye(width), (B, 1, 1)), np.ones(B)
        super().__init__(
            curator, width, reward=(reward.low, reward.high), share=1.0 / split, what=what
        )

    def _scales(self, rho: float) -> tuple[float, float, Event]:
        """Return sigma, no grid, and the cost; images of sums would leave a grid."""
        sigma = gaussian_sigma(rho, self.sensitivity * self.gain)
        return sigma, 0.0, GaussianEvent(sigma, self.sensitivity * self.gain)

    @property
    def noise_std(self) -> float:
        """Standard deviation of the noise of a sum; that of an image is `norm` times it."""
        return float(self.sigma)

    def add_rounds(self, records: Array, along: Array | None = None) -> None:
        if overridden(self, RewardSums, "add"):
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
            norm: Upper bounds of the operator norms of M, ``(B,)``. Needed with `inverse`.

        Raises:
            BudgetExceeded: If a replicate has used up its releases; nothing is released.
            ParameterError: If only one of `inverse` and `norm` is given, or a norm is too small;
                nothing is released.
        """
        if (inverse is None) != (norm is None):
            raise ParameterError("give both inverse and norm, or neither")
        self.ready()
        if inverse is not None and norm is not None and self._sigma:
            self._check_image(inverse[due], norm[due])
        if self.keep is not None and (self.releases[due] >= self.keep).any():
            raise BudgetExceeded(f"all {self.keep} releases of a replicate are used up")
        # In blocks per replicate, so that its noise does not depend on the releases of others.
        for b in np.flatnonzero(due & (self._cursor == self._normals.shape[1])):
            self._noise.fill(int(b), self._normals[b])
            self._cursor[b] = 0
        sums = (self._total, self._normals, self._cursor, due)
        keep = self.keep is not None
        image = self._plain if inverse is None else (inverse, norm)
        agent_kernels.linear.release(*sums, self._sigma, *image, keep, self._released)
        if self.curator.system_noise:  # a saved agent has no noise of the past or the future
            self._normals[:] = 0.0
            self._cursor[:] = self._normals.shape[1]
        self.releases += due
        return self._released.copy()

    def _check_image(self, inverse: Array, norm: Array) -> None:
        """Raise ParameterError unless norms bound matrices: the noise has their size."""
        # eigenvalues are computed from a triangle
        if not (inverse == inverse.swapaxes(1, 2)).all():
            raise ParameterError(f"{self.what}: inverse must be symmetric and finite")
        exact = np.abs(kernels.linalg.eigvalsh(np.ascontiguousarray(inverse))).max(axis=1)
        # negated, so that NaN is refused
        if not (norm >= exact * (1.0 - 1e-12)).all():
            raise ParameterError(f"{self.what}: norm is smaller than the norm of inverse")
