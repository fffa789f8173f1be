"""Running sums of weighted records, released at times that grow geometrically.

Records are weighted so that each spends the whole budget, however long it stays in the sums.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar

import numpy as np
from numpy.typing import ArrayLike

from dpb_gym.errors import ParameterError
from dpb_gym.overrides import overridden
from dpb_gym.privacy.calibration import gaussian_sigma
from dpb_gym.privacy.noise import NoiseSource
from dpb_gym.privacy.releasers.record_bounds import RecordShape
from dpb_gym.privacy.releasers.release_schedule import ReleaseModel, Schedule
from dpb_gym.privacy.releasers.releaser import CuratorProtocol
from dpb_gym.privacy.releasers.sums import Sum
from dpb_gym.validation import FloatArray

Plan = Schedule | Callable[[float], Schedule]
"""A schedule, or a function that returns it for a given sigma."""


class WeightedSum(Sum):
    """Running sums of weighted records with independent noise at the times of a `Schedule`.

    This composes Gaussian mechanisms that are chosen before the first record; records may depend
    on earlier releases. All releases together cost as much as one release of unweighted records
    at scale 1.

    Args:
        schedule: The schedule, or a function that returns it for a given sigma, the standard
            deviation of the noise at scale 1 (0 without a budget). Its `Schedule.cost` must be at
            most 1.
        model: Model from which the other trust models plan their batches; see `DisjointSum`.
        **options: Further parameters of `Sum`.

    Attributes:
        schedule: The schedule in use.
        releases: Number of releases so far.
    """

    evolves: ClassVar[tuple[str, ...]] = ("releases", "_sum")

    def __init__(
        self,
        curator: CuratorProtocol,
        width: int | RecordShape,
        *,
        schedule: Plan,
        model: ReleaseModel | None = None,
        **options: object,
    ) -> None:
        options.setdefault("what", "weighted running sums")
        super().__init__(curator, width, **options)  # type: ignore[arg-type]
        self._plan = self._planned(schedule, model)
        if isinstance(self._plan, Schedule):
            self._plan = _copied(self._plan)
        self._sum = np.zeros_like(self._total)
        self.releases = 0

    def _planned(self, schedule: Plan, model: ReleaseModel | None) -> Plan:
        """Return the plan; with system noise, fix it and the smallest weight."""
        if not self.curator.system_noise:
            return schedule
        # rounding to the grid depends on the smallest weight, so fix the schedule before it
        if not isinstance(schedule, Schedule):
            schedule = schedule(gaussian_sigma(self.curator.most_rho, self.sensitivity))
        # a record is rounded twice: when it is added, and in the weighted sum of its batch
        least = float(schedule.weights.min())
        self.least_weight = least / (1.0 + least)
        return schedule

    def open(self, rho: float | None, noise: NoiseSource) -> None:
        super().open(rho, noise)
        plan = self._plan
        self._schedule = _copied(plan if isinstance(plan, Schedule) else plan(self._sigma))
        self._plan = self._schedule
        if self._sigma and self._schedule.cost > 1.0 + 1e-12:
            raise ParameterError(
                f"{self.what}: the schedule costs a record {self._schedule.cost:.4g} times what "
                "one release does, which is what is charged; take smaller weights or scales"
            )

    @property
    def schedule(self) -> Schedule:
        self.ready()
        return self._schedule

    def _add(self, records: ArrayLike, along: ArrayLike | None) -> None:
        self._take(records, along, self._total)
        self._release_if_due()

    def add_rounds(self, records: FloatArray, along: FloatArray | None = None) -> None:
        self.ready()
        matrices = self.shape.symmetric and along is None
        if matrices or overridden(self, "add_rounds", "add"):
            super().add_rounds(records, along)
            return
        start, n = 0, len(records)
        while start < n:
            left = self._schedule.ends[self.releases :][:1] - self.rounds
            part = slice(start, min([n, *(start + left).tolist()]))
            self._take_rounds(records[part], None if along is None else along[part], self._total)
            self._release_if_due()
            start = part.stop

    def _release_if_due(self) -> None:
        """Release after the rounds of the schedule."""
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
    def record_std(self) -> float:
        """Standard deviation of noise that every record has along its direction, instead."""
        return 0.0

    @property
    def noise_std(self) -> float:
        """Standard deviation of the newest release's noise; 0 before the first."""
        if not self.releases:
            return 0.0
        return self.sigma / float(self.schedule.scales[self.releases - 1])


def _copied(schedule: Schedule) -> Schedule:
    """Return a schedule with arrays that nobody else has, so that its scales stay as charged."""
    return Schedule(
        np.array(schedule.ends),
        np.array(schedule.weights),
        np.array(schedule.scales),
        schedule.carry,
    )
