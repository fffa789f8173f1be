"""Release times, record weights and noise scales of weighted running sums.

`docs/one-pass.md` derives the formulas.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpb_gym import kernels, portable

Array = NDArray[Any]


def _later_precision(scales: Array) -> Array:
    """Return the sum of squared scales of each release and all later ones, ``(m,)``."""
    return np.cumsum(scales[::-1] ** 2)[::-1]


@dataclass(frozen=True)
class Schedule:
    """Release times of running sums, weights of their records and scales of their noise.

    Release i, at the end of round ``ends[i]``, is S_i + sigma / scales[i] z_i with independent
    normals z_i and S_i = sum_{j <= i} weights[j] (sum of the records of batch j). A record of
    batch j has sensitivity Delta weights[j] in every release i >= j. So all releases together
    cost it (Delta / sigma)^2 weights[j]^2 sum_{i >= j} scales[i]^2, in units of mu^2. The weights
    of `geometric` make that (Delta / sigma)^2 for every record.

    Attributes:
        ends: Rounds of the releases, ascending, ``(m,)``.
        weights: Weight of the records of each batch, ``(m,)``.
        scales: sigma over the standard deviation of each release's noise, ``(m,)``.
    """

    ends: Array
    weights: Array
    scales: Array

    @classmethod
    def geometric(cls, horizon: int, first: float, ratio: float, decay: float) -> Schedule:
        """Return a schedule whose release rounds grow by `ratio` and whose noise grows as t^decay.

        The scales fall as t^-decay, so the sum of their squares stays bounded for every horizon.
        `best_weights` combines the releases into the most precise estimate.
        """
        ends = [min(horizon, max(1, round(first)))]
        while ends[-1] < horizon:
            ends.append(min(horizon, max(ends[-1] + 1, round(ends[-1] * ratio))))
        # a release at the end of the last round has no use
        rounds = np.array(ends[:-1] or ends, dtype=np.int64)
        scales = portable.each(lambda v: portable.power(v, -decay), rounds / rounds[0])
        return cls(rounds, 1.0 / np.sqrt(_later_precision(scales)), scales)

    @classmethod
    def unweighted(cls, ends: Array) -> Schedule:
        """Return a schedule with all weights and scales 1."""
        return cls(ends, np.ones(len(ends)), np.ones(len(ends)))

    @property
    def cost(self) -> float:
        """Largest cost of a record over all releases, relative to one at weight and scale 1."""
        return float((self.weights**2 * _later_precision(self.scales)).max())

    @property
    def sizes(self) -> Array:
        """Records per batch, ``(m,)``."""
        return np.diff(self.ends, prepend=0)

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
