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
from dpb_gym import validation
from dpb_gym.agent import Agent
from dpb_gym.privacy import Schedule
from dpb_gym.problems.base import ProblemInfo

if TYPE_CHECKING:
    from dpb_gym.privacy import Bound, Budget, Curator, Sum

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


def solve(
    information: Array,
    response: Array,
    *,
    prior: float,
    spread: float,
    noise: float,
    radius: float,
) -> Array:
    """theta from released sums: posterior mean in the eigenbasis of the information.

    Args:
        information: Combined curvature ``(B, d, d)``, symmetric, possibly indefinite.
        response: Combined response ``(B, d)``.
        prior: Prior variance per coordinate, > 0.
        spread: Variance of the responses per unit of information.
        noise: Variance of the noise per coordinate of the response.
        radius: Largest norm of theta.

    Returns:
        ``(B, d)``; see `dpb_gym.kernels.one_pass.shrink`.
    """
    from dpb_gym.kernels import one_pass

    values, vectors = np.linalg.eigh(information)
    out = np.empty_like(response)
    one_pass.shrink(
        values, np.ascontiguousarray(vectors), response, prior, spread, noise, radius, out
    )
    return out


@dataclass(frozen=True)
class CurvatureRows:
    """One record of a generalised linear model as a row: curvature, then response.

    The curvature H (positive semidefinite, Frobenius norm at most `bound`) enters as its
    isometric half times `curvature_weight`, the response u (norm at most `radius`) times
    `response_weight`. Replacing a record moves H by at most sqrt(2) bound and u by at most
    2 radius, so it moves the row by at most 1; `share` of that, squared, is the response's.

    Attributes:
        dim: Dimension d.
        bound: Largest Frobenius norm of H.
        radius: Norm U to which u is clipped.
        share: Part of the budget that pays for u.
    """

    dim: int
    bound: float
    radius: float
    share: float

    @property
    def width(self) -> int:
        """Numbers per row."""
        return self.dim * (self.dim + 1) // 2 + self.dim

    @property
    def curvature_weight(self) -> float:
        """Factor of H in the row."""
        return math.sqrt(1.0 - self.share) / (math.sqrt(2.0) * self.bound)

    @property
    def response_weight(self) -> float:
        """Factor of u in the row."""
        return math.sqrt(self.share) / (2.0 * self.radius)

    def unit_noise(self, norm: float) -> float:
        """Standard deviation per coordinate that unit noise in the row causes in u - H theta.

        For ||theta|| = `norm`; the noise N of H is isometric on symmetric matrices, so a
        coordinate of N theta has mean square (1 + 1/d) / 2 norm^2.
        """
        curved = 0.5 * (1.0 + 1.0 / self.dim) * (norm / self.curvature_weight) ** 2
        return math.sqrt(1.0 / self.response_weight**2 + curved)

    def solve(self, estimate: Estimate, *, norm: float, reach: float) -> Array:
        """theta from the combined sums: see `solve`.

        Args:
            estimate: Combined rows.
            norm: Prior size: variance ``norm^2 / d`` per coordinate.
            reach: Largest norm of theta.
        """
        from dpb_gym.kernels import one_pass

        d = self.dim
        information = np.empty((len(estimate.sums), d, d))
        one_pass.unpack(estimate.sums, 1.0 / self.curvature_weight, information)
        one_pass.flatten(information, estimate.std / self.curvature_weight, EVENNESS)
        return solve(
            information,
            np.ascontiguousarray(estimate.sums[:, -d:]) / self.response_weight,
            prior=norm**2 / d,
            spread=estimate.uneven,
            noise=(estimate.std * self.unit_noise(norm)) ** 2,
            radius=reach,
        )


class OnePassNewton(Agent):
    """Base of the one-pass agents whose curvature is private: assortment and pricing.

    A subclass opens the sums in `begin`, fills `rows` in `observe` and calls `take`; it acts
    on `theta`.

    Attributes:
        theta: The newest estimate, ``(B, d)``, from releases only.
        rows: Buffer of one record per replicate, ``(B, width)``.
        layout: What the rows hold.
        prior_norm: Prior size of theta in use.
        rounds: Records per replicate so far.
        releaser: Takes the raw records; the policy reads its releases only.
    """

    def __init__(
        self, norm: float, reach: float, clip: float, share: float, start: int, design: Design
    ) -> None:
        self.norm = validation.real("norm", norm, 0.0, open_low=True)
        self.prior_norm = self.norm
        self.reach = validation.real("reach", reach, 0.0, open_low=True)
        self.clip = validation.real("clip", clip, 0.0, open_low=True)
        self.share = validation.real("share", share, 0.0, 1.0, open_low=True, open_high=True)
        self.start = validation.integer("start", start, 1)
        self.design = design
        self.releaser: Sum

    def open(
        self,
        problem: ProblemInfo,
        curator: Curator,
        *,
        bound: float,
        radius: float,
        rate: float,
    ) -> None:
        """Makes the releaser; sets `guarantee`, `theta` and the row buffers.

        Args:
            problem: The problem.
            curator: Without a budget releases are exact.
            bound: Largest Frobenius norm of one record's curvature.
            radius: Largest norm of one record's response.
            rate: A typical eigenvalue of one record's curvature, for the schedule.
        """
        B, d = curator.replicates, problem.dim
        self.layout = CurvatureRows(d, bound, radius, self.share)
        self.prior_norm = self.choose_norm(problem.horizon, curator.budget, rate)
        self.releaser, self._releases = open_sums(
            self.design,
            curator,
            width=self.layout.width,
            horizon=problem.horizon,
            start=self.start,
            sensitivity=1.0,
            what="running sums of curvature and response",
            unit_noise=self.layout.unit_noise(self.prior_norm),
            spread=rate,
            signal=rate * self.prior_norm / math.sqrt(d),
        )
        self.theta = np.zeros((B, d))
        self.rows = np.empty((B, self.layout.width))
        self._clipped = np.zeros(B, np.int64)
        self.rounds = 0

    def choose_norm(self, horizon: int, budget: Budget | None, rate: float) -> float:
        """Prior size of theta under a budget; `norm` whatever the budget, unless overridden."""
        return self.norm

    @property
    def first_release(self) -> int:
        """Round after which theta moves for the first time."""
        return int(self._releases.schedule.ends[0])

    def take(self) -> None:
        """Hands `rows` to the releaser and renews theta when there is a release."""
        self.releaser.add(self.rows)
        self.rounds += 1
        if self._releases.due(self.rounds):
            estimate = self._releases.take(self.releaser.value, self.releaser.noise_std)
            self.theta = self.layout.solve(estimate, norm=self.prior_norm, reach=self.reach)
