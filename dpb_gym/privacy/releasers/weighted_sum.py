"""Running sums under a fixed privacy budget, released at times that grow geometrically.

Records are weighted so that each spends the whole budget, however long it is part of the
sums; `Schedule.best_weights` combines the releases into the most precise estimate.
`docs/one-pass.md` derives both.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dpb_gym import kernels, portable
from dpb_gym.errors import ParameterError
from dpb_gym.privacy.calibration import gaussian_sigma
from dpb_gym.privacy.noise import NoiseSource
from dpb_gym.privacy.releasers.sums import Sum

if TYPE_CHECKING:
    from dpb_gym.privacy.curator import Curator

Array = NDArray[Any]


def _from_the_end(scales: Array) -> Array:
    """Sums of squares of the scales from each release on."""
    return np.cumsum(scales[::-1] ** 2)[::-1]


@dataclass(frozen=True)
class Schedule:
    """When running sums are released, and what records and releases weigh in them.

    Release i, at the end of round ``ends[i]``, is S_i + sigma / scales[i] z_i with fresh
    normals z_i and S_i = sum_{j <= i} weights[j] (sum of the records of batch j). A record of
    batch j has sensitivity Delta weights[j] in every release i >= j, so all releases together
    cost it (Delta / sigma)^2 weights[j]^2 sum_{i >= j} scales[i]^2, in units of mu^2; the
    weights make that (Delta / sigma)^2 for every record.

    Attributes:
        ends: Rounds of the releases, ascending, ``(m,)``.
        weights: Of the batches' records, ``(m,)``.
        scales: Precision of the releases, ``(m,)``.
    """

    ends: Array
    weights: Array
    scales: Array

    @classmethod
    def geometric(cls, horizon: int, first: float, ratio: float, decay: float) -> Schedule:
        """Releases at rounds that grow by `ratio`, noise that grows like t^decay.

        Nothing grows with the horizon: a record's weight falls like t^-decay in the later
        releases, so the sum of squares over all of them stays bounded. `best_weights` makes up
        for the releases' different ages.
        """
        ends = [min(horizon, max(1, round(first)))]
        while ends[-1] < horizon:
            ends.append(min(horizon, max(ends[-1] + 1, round(ends[-1] * ratio))))
        # nobody sees a release at the end of the last round
        rounds = np.array(ends[:-1] or ends, dtype=np.int64)
        scales = portable.each(lambda v: portable.power(v, -decay), rounds / rounds[0])
        return cls(rounds, 1.0 / np.sqrt(_from_the_end(scales)), scales)

    @classmethod
    def unweighted(cls, ends: Array) -> Schedule:
        """Plain running sums, for releases whose noise is accounted for elsewhere."""
        return cls(ends, np.ones(len(ends)), np.ones(len(ends)))

    @property
    def cost(self) -> float:
        """What all releases cost a record at most, in units of one at weight and scale 1."""
        return float((self.weights**2 * _from_the_end(self.scales)).max())

    @property
    def sizes(self) -> Array:
        """Records per batch, ``(m,)``."""
        return np.diff(self.ends, prepend=0)

    def best_weights(self, noise: float, spread: float) -> Combinations:
        """How to combine releases 1..k into the best estimate of a running sum, for every k.

        Generalised least squares for a constant rate of unit information per round: release i
        estimates c_i = sum_j weights_j sizes_j of it, with covariance
        spread B sizes B' + noise^2 / scales^2. The result is scaled to a sum over
        ``ends[k]`` rounds. Everything here is public.

        Args:
            noise: Standard deviation of the noise at scale 1, in units of one round's
                information.
            spread: Variance of one round's own randomness in the same units, >= 0.
        """
        m = len(self.ends)
        exposure = np.tril(np.ones((m, m))) * self.weights
        covariance = spread * np.einsum("ij,kj->ik", exposure * self.sizes, exposure)
        covariance[np.diag_indices(m)] += (noise / self.scales) ** 2
        total = (exposure * self.sizes).sum(axis=1)
        combine, std, uneven = np.zeros((m, m)), np.empty(m), np.empty(m)
        for k in range(m):
            n = k + 1
            alpha = np.empty(n)
            kernels.linalg.solve(covariance[None, :n, :n], total[None, :n], alpha[None, :n])
            alpha *= self.ends[k] / (alpha * total[:n]).sum()
            records = (alpha[:, None] * exposure[:n, :n]).sum(axis=0)
            combine[k, :n] = alpha
            std[k] = math.sqrt(float(((alpha / self.scales[:n]) ** 2).sum()))
            uneven[k] = float((records**2 * self.sizes[:n]).sum()) / self.ends[k]
        return Combinations(combine, std, uneven)


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


class WeightedSum(Sum):
    """Running sums of weighted records with fresh noise at the times of a `Schedule`.

    A composition of Gaussian mechanisms, each chosen before the first record, on records that
    may depend on earlier releases; together they cost what one release at scale 1 of unweighted
    records would.

    Args:
        schedule: Times and weights, or a function that makes them from sigma, the standard
            deviation of the noise at scale 1 (0 without a budget). Its `Schedule.cost` may be 1
            at most: that is what is charged.
        **options: The others of `Sum`.

    Attributes:
        schedule: The schedule in use.
    """

    def __init__(
        self,
        curator: Curator,
        width: int | None = None,
        *,
        schedule: Schedule | Callable[[float], Schedule],
        **options: object,
    ) -> None:
        options.setdefault("what", "weighted running sums")
        self._plan = schedule
        super().__init__(curator, width, **options)  # type: ignore[arg-type]
        if curator.system_noise:
            # what the grid adds depends on the least weight, so the schedule cannot depend on it
            if not isinstance(schedule, Schedule):
                self._plan = schedule(gaussian_sigma(curator.most_rho, self.sensitivity))
            assert isinstance(self._plan, Schedule)
            # a record is rounded twice: when it comes, and in the weighted sum of its batch
            least = float(self._plan.weights.min())
            self.least_weight = least / (1.0 + least)
        self._sum = np.zeros_like(self._total)
        self.releases = 0

    def open(self, rho: float | None, noise: NoiseSource) -> None:
        super().open(rho, noise)
        plan = self._plan
        self._plan = self._schedule = plan if isinstance(plan, Schedule) else plan(self._sigma)
        if self._sigma and self._schedule.cost > 1.0 + 1e-12:
            raise ParameterError(
                f"{self.what}: the schedule costs a record {self._schedule.cost:.4g} times what "
                "one release does, which is what is charged; take smaller weights or scales"
            )

    @property
    def schedule(self) -> Schedule:
        self.ready()
        return self._schedule

    def add(self, records: ArrayLike, along: ArrayLike | None = None) -> None:
        self.ready()
        self._take(records, along, self._total)
        schedule, k = self._schedule, self.releases
        if k == len(schedule.ends) or self.rounds != schedule.ends[k]:
            return
        self._sum += self._rounded(schedule.weights[k] * self._total)
        self._total[:] = 0.0
        self._released = self._sum.copy()
        if self._sigma:
            std = self._sigma / float(schedule.scales[k])
            self._released += self._noise.gaussian(std, self.shape.width)
        self.releases += 1

    @property
    def noise_std(self) -> float:
        """Standard deviation of the newest release's noise; 0 before the first."""
        if not self.releases:
            return 0.0
        return self.sigma / float(self.schedule.scales[self.releases - 1])
