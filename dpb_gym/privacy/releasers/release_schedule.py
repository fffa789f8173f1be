"""Release times, record weights and noise scales of running sums and of sums of batches.

`docs/one-pass.md` derives the formulas.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpb_gym import kernels, portable, state

Array = NDArray[Any]


# Candidates for plans of disjoint batches: the first release in units of the round at which noise
# and prior have the same variance, and the factor between two releases.
FIRSTS = np.sqrt(np.ldexp(1.0, np.arange(-10, 7)))
RATIOS = (1.1, 1.2, 1.35, 1.5, 1.75, 2.0, 2.5, 3.0)
# A plan may cost this part more than the best of the candidates if it has fewer releases.
TOLERANCE = 0.01


def _later_precision(scales: Array) -> Array:
    """Return the sum of squared scales of each release and all later ones, ``(m,)``."""
    return np.cumsum(scales[::-1] ** 2)[::-1]


def _growing(horizon: int, first: float, ratio: float) -> Array:
    """Return rounds that grow by `ratio`, from `first` to before the horizon."""
    ends = [min(horizon, max(1, round(first)))]
    while ends[-1] < horizon:
        ends.append(min(horizon, max(ends[-1] + 1, round(ends[-1] * ratio))))
    # a release at the end of the last round has no use
    return np.array(ends[:-1] or ends, dtype=np.int64)


@state.register
@dataclass(frozen=True)
class Schedule:
    """Release times of sums, weights of their records and scales of their noise.

    Release i, at the end of round ``ends[i]``, is S_i + sigma / scales[i] z_i with independent
    normals z_i and S_i = sum_{j <= i} weights[j] (sum of the records of batch j). A record of
    batch j has sensitivity Delta weights[j] in every release i >= j. So all releases together
    cost it (Delta / sigma)^2 weights[j]^2 sum_{i >= j} scales[i]^2, in units of mu^2. The weights
    of `geometric` make that (Delta / sigma)^2 for every record.

    If releases are disjoint, S_i is the sum of batch i alone, so that a record is in one release.

    Attributes:
        ends: Rounds of the releases, ascending, ``(m,)``.
        weights: Weight of the records of each batch, ``(m,)``.
        scales: sigma over the standard deviation of each release's noise, ``(m,)``.
        carry: Part of the last release's sum that is in the next one: 1, or 0 if disjoint.
    """

    ends: Array
    weights: Array
    scales: Array
    carry: float = 1.0

    @classmethod
    def geometric(cls, horizon: int, first: float, ratio: float, decay: float) -> Schedule:
        """Return a schedule whose release rounds grow by `ratio` and whose noise grows as t^decay.

        The scales fall as t^-decay, so the sum of their squares stays bounded for every horizon.
        `best_weights` combines the releases into the most precise estimate.
        """
        rounds = _growing(horizon, first, ratio)
        scales = portable.each(lambda v: portable.power(v, -decay), rounds / rounds[0])
        return cls(rounds, 1.0 / np.sqrt(_later_precision(scales)), scales)

    @classmethod
    def unweighted(cls, ends: Array) -> Schedule:
        """Return a schedule with all weights and scales 1."""
        return cls(ends, np.ones(len(ends)), np.ones(len(ends)))

    @property
    def cost(self) -> float:
        """Largest cost of a record over all releases, relative to one at weight and scale 1."""
        later = _later_precision(self.scales) if self.carry else self.scales**2
        return float((self.weights**2 * later).max())

    @property
    def sizes(self) -> Array:
        """Records per batch, ``(m,)``."""
        return np.diff(self.ends, prepend=0)

    def variances(self, noise: float | Array, spread: float) -> Array:
        """Return the variance of the best estimate of a record's mean after each release, ``(m,)``.

        It is 1 / (c' C^-1 c) for the mean c and the covariance C of the releases so far, as in
        `best_weights`.

        Args:
            noise: Standard deviation of the noise at scale 1, in units of a record's mean; or that
                of every release at its scale 1, ``(m,)``.
            spread: Variance of a record in the same units, >= 0.
        """
        m = len(self.ends)
        total, covariance = self._moments(noise, spread)
        kernels.linalg.cholesky(covariance[None], covariance[None])
        # the leading block of the factor is the factor of the leading block
        explained = np.empty(m)
        kernels.linalg.solve_lower_one(covariance, total, explained)
        variances: Array = 1.0 / np.cumsum(explained**2)
        return variances

    def best_weights(self, noise: float, spread: float) -> Combinations:
        """Return, for every k, the best linear combination of releases 1..k for a running sum.

        Generalised least squares for records of constant mean 1: release i has mean
        c_i = sum_j weights_j sizes_j and covariance spread B sizes B' + noise^2 / scales^2. The
        result is scaled to a sum over ``ends[k]`` rounds. All inputs are public.

        Args:
            noise: Standard deviation of the noise at scale 1, in units of a record's mean.
            spread: Variance of a record in the same units, >= 0.
        """
        m = len(self.ends)
        exposure = self._exposure
        total, covariance = self._moments(noise, spread)
        combine = np.zeros((m, m))
        std = np.empty(m)
        uneven = np.empty(m)
        for k in range(m):
            n = k + 1
            alpha = np.empty(n)
            kernels.linalg.solve(covariance[None, :n, :n], total[None, :n], alpha[None, :n])
            # scaled to the sum over all rounds so far, which estimates expect
            alpha *= self.ends[k] / (alpha * total[:n]).sum()
            records = (alpha[:, None] * exposure[:n, :n]).sum(axis=0)
            combine[k, :n] = alpha
            std[k] = math.sqrt(float(((alpha / self.scales[:n]) ** 2).sum()))
            uneven[k] = float((records**2 * self.sizes[:n]).sum()) / self.ends[k]
        return Combinations(combine, std, uneven)

    @property
    def _exposure(self) -> Array:
        """Weight of the records of each batch in each release, ``(m, m)``."""
        m = len(self.ends)
        exposure: Array = (np.tril(np.ones((m, m))) if self.carry else np.eye(m)) * self.weights
        return exposure

    def _moments(self, noise: float | Array, spread: float) -> tuple[Array, Array]:
        """Return mean ``(m,)`` and covariance ``(m, m)`` of the releases for records of mean 1."""
        m = len(self.ends)
        exposure = self._exposure
        # records vary, and those of a batch are in all later releases
        covariance = spread * np.einsum("ij,kj->ik", exposure * self.sizes, exposure)
        covariance[np.diag_indices(m)] += (noise / self.scales) ** 2
        return (exposure * self.sizes).sum(axis=1), covariance


@state.register
@dataclass(frozen=True)
class ReleaseModel:
    """Model of a greedy policy's regret, from which releases are planned; all inputs are public.

    Releases that determine a coordinate of theta up to the variance v leave about
    (prior / (prior + v))^(1/2) of what can be earned if the reward is linear in the decision, and
    the square of that if a decision's loss is quadratic in the error of theta.

    Attributes:
        horizon: T.
        unit_noise: Standard deviation in a coordinate of the response that noise of standard
            deviation 1 in a row causes.
        rate: Information of one round about a coordinate of theta.
        spread: Variance of one round's response in a coordinate, in units of the square of `rate`.
        prior: Prior variance of a coordinate of theta.
        anytime: Round t counts 1 / t.
        linear: Whether the reward is linear, as for the best of many candidates; prices and
            assortments have a quadratic loss.
        binary: Whether every response is known to be one of the two ends of its range.
    """

    horizon: int
    unit_noise: float
    rate: float
    spread: float
    prior: float
    anytime: bool = False
    linear: bool = True
    binary: bool = False

    def lengths(self, ends: Array) -> Array:
        """Return how much the rounds between each release and the next count."""
        # a release at the end of the last round counts one round
        lengths: Array = np.maximum(np.diff(ends, append=self.horizon), 1)
        return lengths / (ends if self.anytime else 1)

    def regret(self, ends: Array, variances: Array) -> float:
        """Return the modelled regret, in rounds whose whole gain is lost.

        Args:
            ends: Rounds of the releases ``(m,)``; the rounds before the first earn nothing.
            variances: Variance of a coordinate of theta after each release ``(m,)``.
        """
        earned = self.prior / (self.prior + variances)
        loss = self.lengths(ends) * (1.0 - (np.sqrt(earned) if self.linear else earned))
        blind = 1.0 + portable.log(ends[0]) if self.anytime else float(ends[0])
        return blind + float(loss.sum())

    def running(self, start: Schedule, sigma: float) -> Schedule:
        """Return running sums released at the rounds of `start` with the best scales.

        The reward is taken as linear.

        With b_j^2 = 1 / sum_{i >= j} a_i^2 the releases 1..k determine a coordinate of theta up to
        the variance v_k = noise^2 / P_k + spread / t_k,
        P_k = sum_{i <= k} a_i^2 (sum_{j <= i} b_j n_j)^2. The a_i maximise what all rounds earn, by
        a fixed-point iteration a_i <- lambda_i q_i, q_i = a_i sum_{j <= i} b_j n_j,
        lambda_i = sum_{k >= i} d rho_k / d P_k.

        Args:
            start: Rounds of the releases, and first iterate.
            sigma: Standard deviation of the noise in a row at scale 1.
        """
        # bytes, because arrays have no hash
        return _running(self, start.ends.tobytes(), start.scales.tobytes(), sigma)

    def batches(self, sigma: float, per_record: bool = False) -> Schedule:
        """Return the best plan of disjoint batches, each released once.

        Batches grow by a factor. The plan is the one with the fewest releases among those of
        `FIRSTS` and `RATIOS` whose modelled regret is within `TOLERANCE` of the least.

        Args:
            sigma: Standard deviation of the noise in the row of a batch, or of a record.
            per_record: Whether every record has noise of its own, so that the noise of a batch of
                n records has standard deviation n^(1/2) sigma.
        """
        return _batches(self, sigma, per_record)


# Every block of replicates of a run has the same plan, which takes milliseconds to compute.
PLANS = 64


@lru_cache(maxsize=PLANS)
def _running(model: ReleaseModel, ends_: bytes, scales_: bytes, sigma: float) -> Schedule:
    """Return `ReleaseModel.running`, read-only, for rounds and first scales as bytes."""
    ends = np.frombuffer(ends_, np.int64).copy()
    scales = np.frombuffer(scales_)
    sizes = np.diff(ends, prepend=0)
    noise = sigma * model.unit_noise / model.rate
    prior = model.prior
    rounds = model.lengths(ends)
    for _ in range(100):  # gives six digits of the model's regret
        weights = 1.0 / np.sqrt(_later_precision(scales))
        signal = scales * np.cumsum(weights * sizes)
        precision = np.cumsum(signal**2)
        variance = noise**2 / precision + model.spread / ends
        share = np.sqrt(prior / (prior + variance))
        gain = share / (prior + variance) * (noise / precision) ** 2 * rounds
        scales = np.cumsum(gain[::-1])[::-1] * signal
        # the noise of releases without value must stay finite
        scales = np.maximum(scales / scales.max(), 1e-6)
    return _shared(Schedule(ends, 1.0 / np.sqrt(_later_precision(scales)), scales))


@lru_cache(maxsize=PLANS)
def _batches(model: ReleaseModel, sigma: float, per_record: bool) -> Schedule:
    """Return `ReleaseModel.batches`, read-only."""
    noise = (sigma * model.unit_noise / model.rate) ** 2
    # the round at which noise and prior have the same variance
    even = (noise + model.spread) / model.prior if per_record else math.sqrt(noise / model.prior)
    plans = []
    for first in dict.fromkeys(max(1, round(even * x)) for x in FIRSTS):
        for ratio in RATIOS:
            ends = _growing(model.horizon, first, ratio)
            sizes = np.diff(ends, prepend=0)
            own = noise * sizes if per_record else noise
            variance = 1.0 / np.cumsum(sizes**2 / (own + model.spread * sizes))
            plans.append((model.regret(ends, variance), ends))
    # fewer releases are easier on devices and aggregators, at next to no regret
    enough = min(loss for loss, _ in plans) * (1.0 + TOLERANCE)
    ends = min((ends for loss, ends in plans if loss <= enough), key=len)
    ones = np.ones(len(ends))
    scales = 1.0 / np.sqrt(np.diff(ends, prepend=0)) if per_record else ones
    return _shared(Schedule(ends, ones, scales, carry=0.0))


def _shared(schedule: Schedule) -> Schedule:
    """Return a schedule whose arrays are made read-only."""
    for part in (schedule.ends, schedule.weights, schedule.scales):
        part.flags.writeable = False
    return schedule


@state.register
@dataclass(frozen=True)
class Combinations:
    """Linear combinations of releases, one per release time.

    Attributes:
        weights: Row k combines releases 0..k, ``(m, m)``.
        std: Standard deviation of the noise in combination k, in units of sigma.
        uneven: Mean squared weight of the records in combination k (1 if all are equal).
    """

    weights: Array
    std: Array
    uneven: Array
