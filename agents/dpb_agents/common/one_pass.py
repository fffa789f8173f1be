"""One-pass private Newton: the core that the three one-pass agents share.

Every record enters once, as curvature H_t and response u_t at the parameter that was released
when it arrived; what leaves are noisy running sums of both, and everything else is
computed from those. `docs/one-pass.md` has the method and the proofs.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from dpb_agents.common.weighted_sums import Estimate, Releases
from dpb_gym import kernels, validation
from dpb_gym.agent import Agent
from dpb_gym.privacy import Schedule
from dpb_gym.problems.base import ProblemInfo

if TYPE_CHECKING:
    from dpb_gym.privacy import Bound, Curator, Sum

Array = NDArray[Any]
MECHANISMS = ("weighted", "blt", "sqrt-toeplitz", "binary-tree")
# Prior standard deviation of the curvature's entries around an isotropic matrix, relative to
# its level.
EVENNESS = 0.15


@dataclass(frozen=True)
class Design:
    """How the sums are released; the same parameters in all one-pass agents.

    Attributes:
        mechanism: ``"weighted"`` (`Schedule.geometric`), or a continual sum of
            `dpb_gym.privacy`: ``"blt"``, ``"sqrt-toeplitz"``, ``"binary-tree"``.
        first: Round of the first release, in units of the round at which the noise is as
            large as the prior knowledge of the parameter.
        ratio: Factor between two releases' rounds.
        decay: Power of t with which the noise of a release grows.
        every: Release interval of the continual sums, in rounds.

    Raises:
        ParameterError: If a value is out of range.
    """

    mechanism: str = "weighted"
    first: float = 0.7
    ratio: float = 1.1
    decay: float = 1.25
    every: int = 100

    def __post_init__(self) -> None:
        validation.choice("mechanism", self.mechanism, MECHANISMS)
        validation.real("first", self.first, 0.0, open_low=True)
        validation.real("ratio", self.ratio, 1.0, open_low=True)
        validation.real("decay", self.decay, 0.0)
        validation.integer("every", self.every, 1)


def open_sums(
    design: Design,
    curator: Curator,
    *,
    width: int,
    horizon: int,
    start: int,
    sensitivity: float,
    what: str,
    unit_noise: float,
    spread: float,
    signal: float,
    clip: Bound | None = None,
    plan: Callable[[float], Schedule] | None = None,
) -> tuple[Sum, Releases]:
    """Makes the releaser of a row of running sums, and the policy's side of it.

    Args:
        design: See `Design`.
        curator: Without a budget the sums are exact.
        width: Numbers per record.
        horizon: Largest number of records per replicate.
        start: First release of the exact sums, and the earliest of the noisy ones.
        sensitivity: Largest distance between a record and its replacement.
        what: What is released, in words.
        unit_noise: Standard deviation that noise of standard deviation 1 in the row causes in
            one coordinate of the response that the estimate is made of.
        spread: Variance of a coordinate of one round's response itself.
        signal: Size of a coordinate of one round's response: information times the prior's
            standard deviation.
        clip: Bound of the records, if the releaser is to enforce it.
        plan: Makes the schedule of ``"weighted"`` from the noise of one release at scale 1 in
            a coordinate of the response, instead of `Schedule.geometric`.
    """
    from dpb_gym.privacy import RunningSum, WeightedSum

    def schedule(sigma: float) -> Schedule:
        if not curator.private:
            # exact sums may be released often: nothing is spent
            fine = Schedule.geometric(horizon, start, design.ratio**0.2, 0.0)
            return Schedule.unweighted(fine.ends)
        if plan is not None:
            return plan(sigma * unit_noise)
        first = max(start, design.first * sigma * unit_noise / signal)
        return Schedule.geometric(horizon, first, design.ratio, design.decay)

    bounds = {"clip": clip, "sensitivity": sensitivity, "horizon": horizon, "what": what}
    if curator.private and design.mechanism != "weighted":
        every = min(design.every, horizon)
        continual = RunningSum(curator, width, mechanism=design.mechanism, every=every, **bounds)
        return continual, Releases(Schedule.unweighted(np.arange(1, continual.steps + 1) * every))
    weighted = WeightedSum(curator, width, schedule=schedule, **bounds)
    if not curator.private:
        return weighted, Releases(weighted.schedule)
    combinations = weighted.schedule.best_weights(weighted.sigma * unit_noise, spread)
    return weighted, Releases(weighted.schedule, combinations, weighted.sigma)


# Least prior deviation of the curvature from isotropy, relative to its level.
LEAST_EVENNESS = 0.3
# Largest weight: records without information are not blown up into noise.
LARGEST_WEIGHT = 4.0
# Exact sums are released from here on, noisy ones not before.
LEAST_FIRST = 10
# Prior size in rare directions, relative to that in others: wide, but nothing where a budget is
# too small to believe in a theta that moves prices.
WIDER = 6.0


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


class OnePassNewton(Agent):
    """Base of the one-pass agents whose curvature is private: assortment and pricing.

    A subclass opens the sums in `begin`, fills `rows` in `observe` and calls `take`; it acts
    on `theta`.

    Attributes:
        theta: Posterior mean, ``(B, d)``, from releases only.
        covariance: Posterior covariance, ``(B, d, d)``.
        root: theta + root z, z standard normal, explores; see `kernels.one_pass.posterior`.
        rows: Buffer of one record per replicate, ``(B, width)``.
        layout: What the rows hold.
        rounds: Records per replicate so far.
        releaser: Takes the raw records; the policy reads its releases only.
    """

    layout: Rows
    releaser: Sum

    def __init__(
        self, prior_mean: Any, reach: float, first: float, ratio: float, decay: float
    ) -> None:
        self.prior_mean = (
            None if prior_mean is None else validation.array("prior_mean", prior_mean, (None,))
        )
        self.reach = validation.real("reach", reach, 0.0, open_low=True)
        self.design = Design("weighted", first, ratio, decay)

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
        rare: float = 0.0,
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
            rare: See `kernels.one_pass.posterior`.
            calm: See there.

        Raises:
            ParameterError: If the prior mean does not have d coordinates.
        """
        B, d = curator.replicates, problem.dim
        centre = np.zeros(d) if self.prior_mean is None else self.prior_mean
        self._centre = validation.array("prior_mean", centre, (d,))
        self.layout = layout
        size = float(sizes[beliefs.argmax()])
        self._sizes, self._beliefs = sizes, beliefs
        self._exploring = (rare, WIDER * size, calm)
        self.releaser, self._releases = open_sums(
            self.design,
            curator,
            width=layout.width,
            horizon=problem.horizon,
            start=LEAST_FIRST,
            sensitivity=1.0,
            what="running sums of curvature and response",
            unit_noise=layout.unit_noise(size),
            spread=rate,
            signal=signal,
        )
        self.theta = np.tile(self._centre, (B, 1))
        self.covariance = np.tile(np.eye(d) * float(beliefs @ sizes**2) / d, (B, 1, 1))
        self.root = np.zeros((B, d, d))
        self.rows = np.empty((B, layout.width))
        self.rounds = 0

    @property
    def first_release(self) -> int:
        """Round after which theta moves for the first time."""
        return int(self._releases.schedule.ends[0])

    def take(self) -> None:
        """Hands `rows` to the releaser and renews theta when there is a release."""
        self.releaser.add(self.rows)
        self.rounds += 1
        if self._releases.due(self.rounds):
            self._learn(self._releases.take(self.releaser.value, self.releaser.noise_std))

    def _learn(self, estimate: Estimate) -> None:
        from dpb_agents.kernels import one_pass

        B, d = self.theta.shape
        curvature, response = self.layout.factors
        information, left = np.empty((B, d, d)), np.empty(B)
        kernels.one_pass.unpack(estimate.sums, 1.0 / curvature, information)
        one_pass.even_out(information, estimate.std / curvature, LEAST_EVENNESS, left)
        one_pass.posterior(
            information,
            estimate.sums[:, -d:] / response,
            self._centre,
            self._sizes,
            self._beliefs,
            estimate.uneven,
            (estimate.std / response) ** 2,
            left,
            *self._exploring,
            self.reach,
            self.theta,
            self.covariance,
            self.root,
        )
