"""When sums release: on request, after every interval, or at planned rounds.

Release times are data without state. They say when a release is due and how many records can
enter before that; `Sum` makes the releases.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from dpb_gym import state, validation
from dpb_gym.errors import ParameterError, shown
from dpb_gym.privacy.events import Event, PoissonGaussianEvent
from dpb_gym.privacy.releasers.release_schedule import ReleaseModel, Schedule
from dpb_gym.privacy.releasers.sum_state import SumState

Plan = Schedule | Callable[[float], Schedule]
"""A schedule, or a function that returns it for a given sigma."""


@state.register
@dataclass(frozen=True)
class OnRequest:
    """Batches that `Sum.release` closes: the records since the last release (RU, Algorithm 1).

    Every record is in one batch, so all releases together cost as much as one. When a batch closes
    must not depend on the records of the open batch.

    Attributes:
        cumulative: True: a release is the sum of all noisy batches so far (the noise accumulates,
            erratum R5); False: the batch just closed.
        sampling: q: each record enters with probability q, by a secret bit, and the sums are
            divided by q (RU, section 3.2). An (epsilon, delta) budget is accounted with the exact
            profile of the sampled mechanism, for one record per unit. zCDP must hold at every
            order, where sampling does not help, so its noise is that without sampling.
    """

    cumulative: bool = False
    sampling: float = 1.0

    def __post_init__(self) -> None:
        validation.settle(self, "sampling", validation.real, 0.0, 1.0, open_low=True)

    def due(self, rounds: int, releases: int) -> bool:
        """Return whether a release is due after so many rounds and releases: never by itself."""
        return False

    def until(self, rounds: int, releases: int) -> int | None:
        """Return how many records can enter before the next release is due; None: any number."""
        return None

    def cost(self, sums: SumState, sigma: float, event: Event) -> Event:
        """Return the cost of all releases, of which `event` is that without sampling."""
        if self.sampling == 1:
            return event
        assert sums.clip is not None
        longest = sums.clip.longest
        symmetric = math.isclose(2 * longest, sums.sensitivity)
        # a record may also be left out altogether, which moves the sum by its own length
        distance = sums.sensitivity if symmetric else max(sums.sensitivity, longest)
        pair = "symmetric" if symmetric else "zero-out"
        return PoissonGaussianEvent(self.sampling, sigma, distance, 1, pair)


@state.register
@dataclass(frozen=True)
class Every:
    """A running sum that is readable at any time, and changes once per interval.

    Noise is drawn once per interval. Records after the last full interval are never released.

    Attributes:
        rounds: Length of an interval.
    """

    rounds: int = 1

    def __post_init__(self) -> None:
        object.__setattr__(self, "rounds", validation.integer("every", self.rounds, 1))

    def steps(self, horizon: int | None) -> int:
        """Return the number of intervals before a horizon, which must be known."""
        horizon = validation.integer("horizon", horizon, 1)
        if self.rounds > horizon:
            raise ParameterError(f"every must be at most the horizon {horizon}; got {self.rounds}")
        return horizon // self.rounds

    def due(self, rounds: int, releases: int) -> bool:
        """Return whether an interval ends after so many rounds."""
        return rounds % self.rounds == 0

    def until(self, rounds: int, releases: int) -> int | None:
        """Return how many records the open interval still takes."""
        return self.rounds - rounds % self.rounds


@state.register
@dataclass(frozen=True)
class Planned:
    """Running sums of weighted records at the times of a `Schedule`, or disjoint batches.

    With a trusted curator this composes Gaussian mechanisms that are chosen before the first
    record; records may depend on earlier releases. All releases together cost as much as one
    release of unweighted records at scale 1.

    In the other trust models batches of messages are disjoint, each released once, at the rounds of
    `ReleaseModel.batches`. The schedule of a trusted curator is not used there.

    Attributes:
        schedule: The schedule, or a function that returns it for a given sigma, the standard
            deviation of the noise at scale 1 (0 without a budget). Its `Schedule.cost` must be at
            most 1.
        model: Model from which batches of messages are planned.
    """

    schedule: Plan | None
    model: ReleaseModel | None = None


def fixed(schedule: Schedule) -> Schedule:
    """Return a checked schedule with arrays of its own, so that its scales stay as charged.

    It has the fields alone, because a subclass could state another cost.

    Raises:
        ParameterError: If the rounds do not ascend, an array has another length or a number that
            is not finite, a scale is not positive, or `Schedule.carry` is neither 0 nor 1.
    """
    if not isinstance(schedule, Schedule):
        raise ParameterError(f"schedule must be a Schedule, got {shown(schedule)}")
    m = np.size(schedule.ends)
    ends = validation.array("the schedule's ends", schedule.ends, (m,), 1)
    whole = ends.astype(np.int64)
    if not m or (whole != ends).any() or (np.diff(whole) < 1).any():
        raise ParameterError(f"ends of a schedule are ascending rounds, got {shown(schedule.ends)}")
    # as floats, because the square of a large integer overflows
    weights = np.array(validation.array("the schedule's weights", schedule.weights, (m,)))
    scales = np.array(validation.array("the schedule's scales", schedule.scales, (m,)))
    if (scales <= 0.0).any():
        raise ParameterError(f"scales of a schedule are positive, got {shown(schedule.scales)}")
    if schedule.carry not in (0, 1):
        raise ParameterError(f"carry of a schedule is 0 or 1, got {shown(schedule.carry)}")
    return Schedule(whole, weights, scales, float(schedule.carry))


ReleaseTimes = OnRequest | Every | Planned
