"""Noisy running sums of curvature and response: the core of one-pass-mnl and one-pass-pricing.

Every record enters once, as curvature H_t and response u_t at the released theta of its round.
The releases are noisy running sums of both, and theta is computed from them alone.
`docs/one-pass.md` has the method and the proofs.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

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
# Least prior deviation of the curvature from isotropy, relative to its mean eigenvalue. 0 costs
# 4% on pricing tasks and up to 17%, .1 and 1 at most 3% (docs/one-pass.md, "Constants").
LEAST_EVENNESS = 0.3
# Part of the rounds that is left out where theta is longer than expected: if their records are
# as good as the others, the variance of the estimate grows by 1 / (1 - FIRST_PART).
FIRST_PART = 0.1
# Prior probability up to which a size, together with larger ones, is unexpected: the usual 5%.
# Every value from .04 to .1 gives the same agents with default parameters.
UNEXPECTED = 0.05
# Exact sums are free: they are released so many times as often, and every so many-th is stored.
EXACT_RELEASES = 5


@dataclass(frozen=True)
class Rows:
    """One record of a generalised linear model as a row: curvature H, then response u.

    H, positive semidefinite, enters as its isometric half times sqrt((1 - q) / 2) / B, and u times
    sqrt(q) / (2 U). Both are first multiplied by the weight that makes
    (1 - q) |H|_F^2 / B^2 + q max |u|^2 / U^2 equal to 1, the maximum over the outcomes.
    Replacing a record then moves its row by at most 1 (`docs/one-pass.md`).

    Attributes:
        dim: Dimension d.
        bound: B.
        radius: U.
        share: q, the part of the sensitivity that u gets.
        rate: Typical eigenvalue of H.
        private: False leaves weights and factors out.
    """

    dim: int
    bound: float
    radius: float
    share: float
    rate: float = 1.0
    private: bool = True

    @property
    def width(self) -> int:
        """The number of entries of a row."""
        return self.dim * (self.dim + 1) // 2 + self.dim

    @property
    def factors(self) -> tuple[float, float]:
        """The factors of H and of u."""
        if not self.private:
            return 1.0, 1.0
        q = self.share
        return math.sqrt((1.0 - q) / 2.0) / self.bound, math.sqrt(q) / (2.0 * self.radius)

    @property
    def weighting(self) -> tuple[float, float, float]:
        """B, U and q for the kernels; without privacy B and U are infinite."""
        if not self.private:
            return math.inf, math.inf, 0.5
        return self.bound, self.radius, self.share

    def unit_noise(self, norm: float) -> float:
        """Return the standard deviation that unit noise in a row causes in u - H theta.

        It is per coordinate and for |theta| = `norm`. The noise N of H is isometric on symmetric
        matrices, so a coordinate of N theta has mean square (1 + 1/d) / 2 norm^2.
        """
        curvature, response = self.factors
        curved = 0.5 * (1.0 + 1.0 / self.dim) * (norm / curvature) ** 2
        return math.sqrt(1.0 / response**2 + curved)


@dataclass(frozen=True)
class SizePrior:
    """Prior of theta - m: N(0, r^2 / d I) with an unknown size r.

    Attributes:
        sizes: Candidates of r, ``(m,)``.
        beliefs: Their probabilities, ``(m,)``.
        rare: Part of the mean information, and of the price's, below which a direction is rare
            (see `kernels.posterior.posterior`); 0: no direction is rare.
        wide: Least prior size in rare directions.
    """

    sizes: Array
    beliefs: Array
    rare: float = 0.0
    wide: float = 0.0

    @property
    def size(self) -> float:
        """The most probable size."""
        return float(self.sizes[self.beliefs.argmax()])

    @property
    def largest_expected(self) -> float:
        """The largest size that the prior expects: larger ones have at most `UNEXPECTED` in all."""
        tail = np.array([self.beliefs[self.sizes >= size].sum() for size in self.sizes])
        return float(self.sizes[tail > UNEXPECTED].max())

    @property
    def variance(self) -> float:
        """The mean of |theta - m|^2."""
        return float((self.beliefs * self.sizes**2).sum())


class Combined(NamedTuple):
    """The best estimate of the running sums from all releases so far.

    Attributes:
        sums: Sums of curvature and response, ``(B, width)``.
        std: Standard deviation of the noise in every coordinate of `sums`.
        uneven: Mean squared weight of the records in `sums`.
    """

    sums: Array
    std: float
    uneven: float


class OnePassNewton(WarmStart):
    """Base of the one-pass agents whose curvature is private: assortment and pricing.

    A subclass calls `open` in `begin`, fills `rows` and calls `take` in `observe`, and acts on
    `theta`. A prior with a precision (`ProblemInfo.prior`) replaces the candidate sizes.

    Args:
        first: Round of the first release, in units of t_0, the round at which the noise in one
            coordinate is as large as the signal.
        ratio: Factor between two releases' rounds, > 1.
        decay: Power of t with which the noise of a release grows, >= 0.
        anytime: Plan the releases for every horizon up to 10^9 instead of T. Always the case if
            T is not known.
        window: Number of last rounds that theta is estimated from, at least (drift): the newest
            release before them is subtracted, which costs no privacy. None: all rounds.
        max_rounds_per_user: k, the most rounds of a user that are learnt from, if all rounds of
            one user are protected; user ids are public. None: a single round is protected.

    Attributes:
        notion: Notion of the guarantee.
        theta: Posterior mean, ``(B, d)``, from releases only.
        covariance: Posterior covariance, ``(B, d, d)``.
        root: Factor of exploring draws theta + root z, ``(B, d, d)``, z standard normal; see
            `kernels.posterior.posterior`.
        weak: Direction in which noisy records count more, ``(B, d)``, from releases; see
            `kernels.posterior.weak_direction`.
        rows: Buffer of one record per replicate, ``(B, width)``.
        layout: Form and bounds of the rows.
        rounds: Records per replicate so far.
        first_release: Round of the first release.

    Raises:
        ParameterError: If a parameter is out of range.
    """

    notion: ClassVar[str] = "joint"
    first: float = positive(2.2)
    ratio: float = real(1.1, 1.0, open_low=True)
    decay: float = real(1.25, 0.0)
    anytime: bool = flag(False)
    window: int | None = integer(None, 1)
    max_rounds_per_user: int | None = integer(None, 1)
    layout: Rows = field(init=False, repr=False)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.max_rounds_per_user is not None:
            self.protects = (self.notion, "user")

    def horizon(self, problem: ProblemInfo) -> int:
        """Return the number of rounds that the releases are planned for."""
        return LONGEST if self.anytime else problem.longest

    def first_exact(self, problem: ProblemInfo) -> int:
        """Return the round of the first release without a budget."""
        return 1

    def open(
        self,
        problem: ProblemInfo,
        curator: Curator,
        layout: Rows,
        prior: SizePrior,
        signal: float,
        calm: float,
    ) -> None:
        """Create the releaser, the prior estimates and the row buffer.

        Args:
            problem: The problem.
            curator: Without a budget releases are exact.
            layout: Form and bounds of the rows.
            prior: Prior of theta around its mean.
            signal: Growth of a coordinate of the summed response in a round. The first release
                is at `first` times the round t_0 at which this growth adds up to the noise.
            calm: Factor of the posterior's standard deviation in `root`.

        Raises:
            ParameterError: If the prior mean does not have d coordinates.
        """
        from dpb_gym.privacy import ReleaseModel

        B, d = curator.replicates, problem.dim
        known = self.prior(problem)
        self._centre, self._known = known.centre, known.information()
        self.layout, self._prior, self._calm = layout, prior, calm
        unit_noise, horizon = layout.unit_noise(prior.size), self.horizon(problem)

        self._releaser = curator.weighted_sum(
            layout.width,
            schedule=partial(
                _plan,
                curator.private,
                horizon,
                self.first_exact(problem),
                self.first * unit_noise / signal,
                self.ratio,
                self.decay,
            ),
            model=ReleaseModel(
                horizon,
                unit_noise,
                layout.rate,
                1.0 / layout.rate,
                prior.size**2 / d,
                self.anytime or problem.horizon is None,
                linear=False,
            ),
            sensitivity=1.0,
            limit=self.max_rounds_per_user,
            # no row is longer (`Rows`), so no row is clipped
            clip=math.sqrt(0.5) * (1.0 + 1e-9) if curator.private else None,
            what="running sums of curvature and response",
        )
        schedule, self._combinations = self._releaser.schedule, None
        if curator.private:
            noise = self._releaser.sigma * unit_noise
            self._combinations = schedule.best_weights(noise, layout.rate)
        self._ends, self._releases = schedule.ends, 0
        self.first_release = int(self._ends[0])
        self._history: list[Array] = []
        self._stored = [0]
        self.theta = np.tile(self._centre, (B, 1))
        self.covariance = np.tile(np.eye(d) * prior.variance / d, (B, 1, 1))
        if self._known is not None:
            self._known = self._known + np.eye(d) * (d / prior.size**2)
            kernels.linalg.inverse(np.repeat(self._known[None], B, axis=0), self.covariance)
        self.root, self.weak = np.zeros((B, d, d)), np.zeros((B, d))
        self.rows = np.empty((B, layout.width))
        self.rounds = 0

    def take(self, users: Array | None) -> None:
        """Add `rows`, of these users, to the sums and update theta if there is a release."""
        self._releaser.add(self.rows, users=users)
        self.rounds += 1
        k = self._releases
        if k < len(self._ends) and self.rounds == self._ends[k]:
            dense = self._combinations is not None or self.window is not None
            if dense or k % EXACT_RELEASES == 0:
                self._history.append(self._releaser.value)
                self._stored.append(self.rounds)
            old = 0 if self.window is None else self._stored_by(self.rounds - self.window)
            early = self._stored_by(FIRST_PART * self.rounds)
            late = self._combined(k, early) if early > old else None
            self.learn(self._combined(k, old), late)
            self._releases += 1

    def _stored_by(self, rounds: float) -> int:
        """Return the number of stored releases of the first `rounds` rounds."""
        return sum(end <= rounds for end in self._stored[1:])

    def _combined(self, k: int, without: int = 0) -> Combined:
        """Combine releases 0..k, without the records of the first `without` stored releases."""
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
        """Update theta, its covariance, the exploring root and the weak direction.

        Args:
            estimate: Sums over all records.
            late: Sums without the first records. They are used in replicates where the likeliest
                size is larger than the prior expects: the first records were taken at a theta
                that was too short, where the link is flat.
        """
        found = self._posterior(estimate)
        if late is not None:
            far = found[3] > self._prior.largest_expected
            if far.any():
                for whole, part in zip(found, self._posterior(late)):
                    whole[far] = part[far]
        self.theta, self.covariance, self.root, _, self.weak = found

    def _posterior(self, estimate: Combined) -> tuple[Array, ...]:
        """Return mean, covariance and exploring root of theta, its likeliest size and `weak`."""
        B, d = self.theta.shape
        prior, private = self._prior, self.layout.private
        found = np.empty((B, d)), np.empty((B, d, d)), np.empty((B, d, d))
        likeliest, weak = np.full(B, prior.size), np.zeros((B, d))
        curvature, response = self.layout.factors
        information, left = np.empty((B, d, d)), np.empty(B)
        agent_kernels.posterior.unpack(estimate.sums, 1.0 / curvature, information)
        agent_kernels.posterior.even_out(
            information, estimate.std / curvature, LEAST_EVENNESS, left
        )
        if private and prior.rare:
            agent_kernels.posterior.weak_direction(information, left, weak)
        sums = (information, estimate.sums[:, -d:] / response, self._centre)
        errors = (estimate.uneven, (estimate.std / response) ** 2, left)
        if self._known is not None:
            agent_kernels.posterior.informed_posterior(
                *sums, self._known, *errors, self._calm, *found
            )
        else:
            exploring = prior.rare, prior.wide, self._calm
            agent_kernels.posterior.posterior(
                *sums, prior.sizes, prior.beliefs, *errors, *exploring, *found, likeliest
            )
        return *found, likeliest, weak


def _plan(
    private: bool,
    horizon: int,
    first_exact: int,
    first: float,
    ratio: float,
    decay: float,
    sigma: float,
) -> Schedule:
    """Return the schedule of releases from round `first` sigma on, or from `first_exact` on."""
    from dpb_gym.privacy import Schedule

    if private:
        return Schedule.geometric(horizon, first * sigma, ratio, decay)
    often = portable.power(ratio, 1.0 / EXACT_RELEASES)
    return Schedule.unweighted(Schedule.geometric(horizon, first_exact, often, 0.0).ends)
