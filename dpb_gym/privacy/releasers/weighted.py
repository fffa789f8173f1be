"""Running sums under a fixed privacy budget, released at times that grow geometrically.

Records are weighted so that each spends the whole budget, however long it is part of the
sums; `Schedule.best_weights` combines the releases into the most precise estimate.
`docs/one-pass.md` derives both.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpb_gym.privacy.events import GaussianEvent
from dpb_gym.privacy.ledger import Ledger
from dpb_gym.privacy.noise import NoiseSource
from dpb_gym.privacy.releasers.base import Intake
from dpb_gym.privacy.releasers.bounds import Bound
from dpb_gym.privacy.releasers.shapes import RecordShape

Array = NDArray[Any]


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
        scales = (rounds / rounds[0]) ** -float(decay)
        rest = np.cumsum(scales[::-1] ** 2)[::-1]
        return cls(rounds, 1.0 / np.sqrt(rest), scales)

    @classmethod
    def unweighted(cls, ends: Array) -> Schedule:
        """Plain running sums, for releases whose noise is accounted for elsewhere."""
        return cls(ends, np.ones(len(ends)), np.ones(len(ends)))

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
        covariance = spread * (exposure * self.sizes) @ exposure.T
        covariance[np.diag_indices(m)] += (noise / self.scales) ** 2
        total = exposure @ self.sizes
        combine, std, uneven = np.zeros((m, m)), np.empty(m), np.empty(m)
        for k in range(m):
            n = k + 1
            alpha = np.linalg.solve(covariance[:n, :n], total[:n])
            alpha *= self.ends[k] / (alpha @ total[:n])
            records = alpha @ exposure[:n, :n]
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


class WeightedSum:
    """Running sums of weighted records with fresh noise at the times of a `Schedule`.

    A composition of Gaussian mechanisms, each chosen before the first record, on records that
    may depend on earlier releases; charged once, when it is made.

    Args:
        width: Numbers per record.
        replicates: Number of replicates B.
        horizon: Largest number of records per replicate.
        schedule: Times and weights.
        sensitivity: Largest distance between a record and its replacement.
        sigma: Standard deviation of the noise at scale 1.
        noise: Source of the noise; the releaser spawns its own stream from it.
        ledger: Charged here.
        what: What is released, in words.
        clip: Bound of the records, if the releaser is to enforce it.

    Raises:
        BudgetExceeded: If the ledger refuses.
    """

    def __init__(
        self,
        width: int,
        replicates: int,
        horizon: int,
        schedule: Schedule,
        *,
        sensitivity: float,
        sigma: float,
        noise: NoiseSource,
        ledger: Ledger,
        what: str,
        clip: Bound | None = None,
    ) -> None:
        self.schedule = schedule
        self.replicates = replicates
        self.sigma = sigma
        self.event = GaussianEvent(sigma, sensitivity)
        ledger.charge(self.event, what=what)
        self._intake = Intake(RecordShape(dim=width), replicates, clip, horizon)
        self._noise = noise.spawn()
        self._pending = np.zeros((replicates, width))
        self._sum = np.zeros((replicates, width))
        self._released = np.zeros((replicates, width))
        self._batch = 0

    @property
    def rounds(self) -> int:
        """Records per replicate so far."""
        return self._intake.rounds

    @property
    def clipped_count(self) -> Array:
        """Records per replicate that the releaser's own bound changed."""
        return self._intake.clipped_count

    def add(self, records: Array, directions: Array | None = None) -> None:
        """Adds one record per replicate; see `dpb_gym.privacy.Releaser.add`."""
        self._intake.take(records, directions, self._pending)
        schedule = self.schedule
        if self._batch < len(schedule.ends) and self.rounds == schedule.ends[self._batch]:
            self._sum += schedule.weights[self._batch] * self._pending
            self._pending[:] = 0.0
            draw = self._noise.normal(self._sum.shape[1])
            self._released = self._sum + (self.sigma / schedule.scales[self._batch]) * draw
            self._batch += 1

    def release(self) -> Array:
        """The newest release, ``(B, width)``; zeros before the first."""
        return self._released.copy()

    @property
    def noise_std(self) -> float:
        """Standard deviation of the newest release's noise; 0 before the first."""
        return self.sigma / float(self.schedule.scales[self._batch - 1]) if self._batch else 0.0

    def state_dict(self) -> dict[str, Any]:
        """Everything that a checkpoint needs (the ledger has its own)."""
        return {
            "intake": self._intake.state_dict(),
            "noise": self._noise.state_dict(),
            "batch": self._batch,
            **{k: getattr(self, "_" + k).copy() for k in ("pending", "sum", "released")},
        }

    def load_state(self, state: dict[str, Any]) -> None:
        """Restores `state_dict`."""
        self._intake.load_state(state["intake"])
        self._noise.load_state(state["noise"])
        self._batch = int(state["batch"])
        for k in ("pending", "sum", "released"):
            getattr(self, "_" + k)[:] = state[k]
