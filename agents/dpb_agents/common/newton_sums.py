"""One-pass private Newton: the core of one-pass-mnl and one-pass-pricing.

Every record enters once, as curvature H_t and response u_t at the parameter that was released
when it arrived; what leaves are noisy running sums of both, and everything else is
computed from those. `docs/one-pass.md` has the method and the proofs.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dpb_agents import kernels as agent_kernels
from dpb_agents.common.parameters import flag, integer, positive, real
from dpb_agents.common.prior import WarmStart
from dpb_gym import kernels, portable
from dpb_gym.problems.base import ProblemInfo
from dpb_gym.problems.rounds import LONGEST

if TYPE_CHECKING:
    from dpb_gym.privacy import Curator, Schedule

Array = NDArray[Any]
# Least prior deviation of the curvature from isotropy, relative to its level.
LEAST_EVENNESS = 0.3
# Largest weight: records without information are not blown up into noise.
LARGEST_WEIGHT = 4.0
# A theta that is so many prior sizes long was not foreseen by the first tenth of the records: they
# were taken where the link is flat, and what they say is left out. Noise alone may lengthen theta:
# then a larger size must be likelier, too.
UNFORESEEN, FIRST_PART = 2.5, 0.1
# Exact sums, of which there are many, are kept where the rounds have grown by so much.
SPARSE = 1.2


@dataclass(frozen=True)
class Rows:
    """One record of a generalised linear model as a row: curvature H, then response u.

    H, positive semidefinite, enters as its isometric half times sqrt((1 - q) / 2) / B, u times
    sqrt(q) / (2 U), both after a weight that keeps
    (1 - q) |H|_F^2 / B^2 + q max |u|^2 / U^2 at most 1, the maximum over the outcomes.
    Replacing a record then moves its row by at most 1 (`docs/one-pass.md`).

    Attributes:
        dim: Dimension d.
        bound: B.
        radius: U.
        share: q, the part of the sensitivity that u gets.
        private: False leaves weights and factors out.
    """

    dim: int
    bound: float
    radius: float
    share: float
    private: bool = True

    @property
    def width(self) -> int:
        """Numbers per row."""
        return self.dim * (self.dim + 1) // 2 + self.dim

    @property
    def factors(self) -> tuple[float, float]:
        """Of H and of u."""
        if not self.private:
            return 1.0, 1.0
        q = self.share
        return math.sqrt((1.0 - q) / 2.0) / self.bound, math.sqrt(q) / (2.0 * self.radius)

    @property
    def weighting(self) -> tuple[float, float, float, float]:
        """B, U, q and the largest weight, for the kernels."""
        if not self.private:
            return math.inf, math.inf, 0.5, 1.0
        return self.bound, self.radius, self.share, LARGEST_WEIGHT

    def unit_noise(self, norm: float) -> float:
        """Standard deviation per coordinate that unit noise in the row causes in u - H theta.

        For |theta| = `norm`; the noise N of H is isometric on symmetric matrices, so a
        coordinate of N theta has mean square (1 + 1/d) / 2 norm^2.
        """
        curvature, response = self.factors
        curved = 0.5 * (1.0 + 1.0 / self.dim) * (norm / curvature) ** 2
        return math.sqrt(1.0 / response**2 + curved)


class Combined(NamedTuple):
    """What the policy makes of all releases so far.

    Attributes:
        sums: Combined sums of all rounds so far, ``(B, width)``.
        std: Standard deviation of the noise in every coordinate of `sums`.
        uneven: Mean squared weight of the records in `sums`.
    """

    sums: Array
    std: float
    uneven: float


class OnePassNewton(WarmStart):
    """Base of the one-pass agents whose curvature is private: assortment and pricing.

    A prior with a precision (`ProblemInfo.prior`) takes the place of the candidate sizes.

    A subclass opens the sums in `begin`, fills `rows` in `observe` and calls `take`; it acts
    on `theta`.

    Args:
        first: Round of the first release, in units of t_0, the round at which the noise in one
            coordinate is as large as the signal.
        ratio: Factor between two releases' rounds, > 1.
        decay: Power of t with which the noise of a release grows, >= 0.
        anytime: Spread the releases over every horizon up to 10^9 instead of T; so it is if T is
            not known.
        window: Rounds that theta remembers at least (drift): the newest release from before them
            is subtracted, noise included, which costs no privacy. None: all.

    Attributes:
        theta: Posterior mean, ``(B, d)``, from releases only.
        covariance: Posterior covariance, ``(B, d, d)``.
        root: theta + root z, z standard normal, explores; see `kernels.posterior.posterior`.
        weak: Direction along which noisy records count more, ``(B, d)``, from releases; see
            `kernels.posterior.weak_direction`.
        rows: Buffer of one record per replicate, ``(B, width)``.
        layout: What the rows hold.
        rounds: Records per replicate so far.
        first_release: Round after which theta moves for the first time.

    Raises:
        ParameterError: If a parameter is out of range.
    """

    first: float = positive(2.2)
    ratio: float = real(1.1, 1.0, open_low=True)
    decay: float = real(1.25, 0.0)
    anytime: bool = flag(False)
    window: int | None = integer(None, 1)
    layout: Rows = field(init=False, repr=False)

    def horizon(self, problem: ProblemInfo) -> int:
        """The horizon that is planned for."""
        return LONGEST if self.anytime else problem.longest

    def open(
        self,
        problem: ProblemInfo,
        curator: Curator,
        *,
        layout: Rows,
        sizes: Array,
        beliefs: Array,
        rate: float,
        signal: float,
        earliest: int,
        rare: float = 0.0,
        loose: float = 0.0,
        lead: float = 0.0,
        calm: float = 0.0,
    ) -> None:
        """Makes the releaser, the first estimates and the row buffers.

        Args:
            problem: The problem.
            curator: Without a budget releases are exact.
            layout: What the rows hold.
            sizes: Candidates of the size of theta - prior mean, ``(m,)``.
            beliefs: Their prior probabilities, ``(m,)``.
            rate: A typical eigenvalue of one record's curvature.
            signal: Size of a coordinate of one record's response, for the first release.
            earliest: Exact sums are released from this round on, noisy ones not before.
            rare: See `kernels.posterior.posterior`.
            loose: See there.
            lead: See there; 0 where there is a prior mean.
            calm: See there.

        Raises:
            ParameterError: If the prior mean does not have d coordinates.
        """
        B, d = curator.replicates, problem.dim
        known = self.prior(problem)
        self._centre, self._known = known.centre, known.information()
        self._size = size = float(sizes[beliefs.argmax()])
        self.layout, self._sizes, self._beliefs = layout, sizes, beliefs
        self._exploring = (rare, loose, 0.0 if self._centre.any() else lead, calm)
        unit_noise, horizon = layout.unit_noise(size), self.horizon(problem)

        self._releaser = curator.weighted_sum(
            layout.width,
            schedule=partial(
                _plan,
                curator.private,
                horizon,
                earliest,
                self.first * unit_noise / signal,
                self.ratio,
                self.decay,
            ),
            sensitivity=1.0,
            # rows of any two records are at most 1 apart, so nothing is ever moved
            clip=2.0 if curator.private else None,
            what="running sums of curvature and response",
        )
        schedule, self._combinations = self._releaser.schedule, None
        if curator.private:
            noise = self._releaser.sigma * unit_noise
            self._combinations = schedule.best_weights(noise, rate)
        self._ends, self._releases = schedule.ends, 0
        self.first_release = int(self._ends[0])
        self._history: list[Array] = []
        self._kept = [0]
        self.theta = np.tile(self._centre, (B, 1))
        self.covariance = np.tile(np.eye(d) * float((beliefs * sizes**2).sum()) / d, (B, 1, 1))
        extra = np.maximum(0.0, self._exploring[2] ** 2 - sizes**2)
        self.covariance[:, -1, -1] += float((beliefs * extra).sum()) / d
        if self._known is not None:
            self._known = self._known + np.eye(d) * (d / size**2)
            kernels.linalg.inverse(np.repeat(self._known[None], B, axis=0), self.covariance)
        self.root, self.weak = np.zeros((B, d, d)), np.zeros((B, d))
        self.rows = np.empty((B, layout.width))
        self.rounds = 0

    def take(self) -> None:
        """Hands `rows` to the releaser and renews theta when there is a release."""
        self._releaser.add(self.rows)
        self.rounds += 1
        k = self._releases
        if k < len(self._ends) and self.rounds == self._ends[k]:
            dense = self._combinations is not None or self.window is not None
            if dense or self.rounds >= SPARSE * self._kept[-1]:
                self._history.append(self._releaser.value)
                self._kept.append(self.rounds)
            old = 0 if self.window is None else self._kept_by(self.rounds - self.window)
            early = self._kept_by(FIRST_PART * self.rounds)
            late = self._combined(k, early) if early > old else None
            self.learn(self._combined(k, old), late)
            self._releases += 1

    def _kept_by(self, rounds: float) -> int:
        """How many releases that are kept were made in the first `rounds` rounds."""
        return sum(end <= rounds for end in self._kept[1:])

    def _combined(self, k: int, without: int = 0) -> Combined:
        """Releases 0..k in one, less the records of the first `without` releases kept."""
        if self._combinations is None:
            start = self._history[without - 1] if without else 0.0
            return Combined(self._releaser.value - start, 0.0, 1.0)
        weights, std = self._combinations.weights[k], float(self._combinations.std[k])
        if without:
            weights = weights - self._combinations.weights[without - 1]
            std = math.sqrt(float(((weights / self._releaser.schedule.scales) ** 2).sum()))
        sums = np.zeros_like(self.rows)
        for weight, release in zip(weights, self._history):
            sums += weight * release
        return Combined(sums, self._releaser.sigma * std, float(self._combinations.uneven[k]))

    def learn(self, estimate: Combined, late: Combined | None) -> None:
        """Renews theta, its covariance and the exploring root.

        Args:
            estimate: From all records.
            late: Without the first ones, for a theta that is `UNFORESEEN`.
        """
        found = self._posterior(estimate)
        if late is not None:
            square = np.zeros(len(self.theta))
            for j, centre in enumerate(self._centre):
                square += (found[0][:, j] - centre) ** 2
            far = square > (UNFORESEEN * self._size) ** 2
            if self.layout.private:
                far &= found[3] > self._size
            if far.any():
                for whole, part in zip(found, self._posterior(late)):
                    whole[far] = part[far]
        self.theta, self.covariance, self.root, _, self.weak = found

    def _posterior(self, estimate: Combined) -> tuple[Array, ...]:
        """Mean, covariance and exploring root of theta, its likeliest size and `weak`."""
        B, d = self.theta.shape
        found = np.empty((B, d)), np.empty((B, d, d)), np.empty((B, d, d))
        likeliest, weak = np.full(B, np.inf), np.zeros((B, d))
        curvature, response = self.layout.factors
        information, left = np.empty((B, d, d)), np.empty(B)
        agent_kernels.posterior.unpack(estimate.sums, 1.0 / curvature, information)
        agent_kernels.posterior.even_out(
            information, estimate.std / curvature, LEAST_EVENNESS, left
        )
        if self.layout.private and self._exploring[0]:
            agent_kernels.posterior.weak_direction(information, left, weak)
        said = (information, estimate.sums[:, -d:] / response, self._centre)
        errors = (estimate.uneven, (estimate.std / response) ** 2, left)
        if self._known is not None:
            calm = self._exploring[3]
            agent_kernels.posterior.informed_posterior(*said, self._known, *errors, calm, *found)
        else:
            agent_kernels.posterior.posterior(
                *said, self._sizes, self._beliefs, *errors, *self._exploring, *found, likeliest
            )
        return *found, likeliest, weak


def _plan(
    private: bool,
    horizon: int,
    earliest: int,
    first: float,
    ratio: float,
    decay: float,
    sigma: float,
) -> Schedule:
    """Releases from round `first` sigma on."""
    from dpb_gym.privacy import Schedule

    if private:
        return Schedule.geometric(horizon, max(earliest, first * sigma), ratio, decay)
    # exact sums may be released often: nothing is spent
    return Schedule.unweighted(
        Schedule.geometric(horizon, earliest, portable.power(ratio, 0.2), 0.0).ends
    )
