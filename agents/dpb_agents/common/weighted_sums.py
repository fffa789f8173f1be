"""The policy's side of weighted running sums: it keeps the releases and combines them."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dpb_gym.privacy import Combinations, Schedule

Array = NDArray[Any]


class Estimate(NamedTuple):
    """What the policy makes of all releases so far.

    Attributes:
        sums: Combined sums over `rounds` rounds, ``(B, width)``.
        std: Standard deviation of the noise in every coordinate of `sums`.
        uneven: Mean squared weight of the records in `sums`.
        rounds: t.
    """

    sums: Array
    std: float
    uneven: float
    rounds: int


class Releases:
    """The policy's side: keeps the releases and combines them.

    Args:
        schedule: Times and weights.
        combinations: Public coefficients; None if the newest release says it all.
        sigma: Standard deviation of the releases' noise at scale 1.
    """

    def __init__(
        self, schedule: Schedule, combinations: Combinations | None = None, sigma: float = 0.0
    ) -> None:
        self.ends = schedule.ends
        self.combinations = combinations
        self._sigma = sigma
        self.schedule = schedule
        self._history: list[Array] = []
        self._count = 0

    def due(self, rounds: int) -> bool:
        """Whether a release has just been made."""
        return self._count < len(self.ends) and rounds == int(self.ends[self._count])

    def take(self, release: Array, noise_std: float) -> Estimate:
        """Adds a release, with noise of the given size, and combines all so far."""
        k = self._count
        self._count += 1
        rounds = int(self.ends[k])
        if self.combinations is None:
            return Estimate(release, noise_std, 1.0, rounds)
        self._history.append(release)
        sums = _combine(self.combinations.weights[k], self._history)
        std = self._sigma * float(self.combinations.std[k])
        return Estimate(sums, std, float(self.combinations.uneven[k]), rounds)


class PublicSums:
    """The sums of public records, weighted and combined exactly as the releases are.

    Attributes:
        pending: Sum of the records since the last release ``(B, width)``; add to it.
    """

    def __init__(self, releases: Releases, replicates: int, width: int) -> None:
        self._releases = releases
        self.pending = np.zeros((replicates, width))
        self._sum = np.zeros((replicates, width))
        self._history: list[Array] = []
        self._batch = 0

    def combined(self) -> Array:
        """Closes the batch; what the newest estimate's sums are of these records."""
        releases, k = self._releases, self._batch
        self._sum = self._sum + releases.schedule.weights[k] * self.pending
        self.pending[:] = 0.0
        self._batch += 1
        if releases.combinations is None:
            return self._sum
        self._history.append(self._sum)
        return _combine(releases.combinations.weights[k], self._history)


def _combine(weights: Array, rows: list[Array]) -> Array:
    out = np.zeros_like(rows[0])
    for weight, row in zip(weights, rows):
        out += weight * row
    return out
