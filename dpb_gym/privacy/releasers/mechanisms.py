"""Mechanisms of sums: what a budget buys, as scale of the noise and accounting event.

A mechanism is data without state. `scales` calibrates it to a sum, and `messages` returns what
devices do: for each batch a pair of pure functions, `of` and `released`. Who adds the noise is the
trust model's matter (`trust_models`), and when something is released the schedule's
(`release_times`).

Let s = sensitivity / sqrt(2 rho), the noise of a curator's sum. After k batches the noise of the
sum is about s sqrt(k) with `Discrete` and 1.1 to 1.4 s sqrt(k) with `Bits`.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass, is_dataclass, replace
from functools import lru_cache
from typing import ClassVar, NamedTuple

import numpy as np
from numpy.typing import NDArray

from dpb_gym import portable, state, validation
from dpb_gym.errors import BudgetError, ParameterError
from dpb_gym.privacy.budget import Budget
from dpb_gym.privacy.calibration import fit_rho, gaussian_sigma
from dpb_gym.privacy.events import Event, GaussianEvent, PureEvent, ZCDPEvent
from dpb_gym.privacy.noise import grid_of
from dpb_gym.privacy.releasers.messages import (
    MOST_EPSILON,
    CapMessage,
    GaussianMessage,
    LocalMessage,
    SignMessage,
)
from dpb_gym.privacy.releasers.record_bounds import Segment
from dpb_gym.privacy.releasers.release_schedule import ReleaseModel, Schedule
from dpb_gym.privacy.releasers.secure_aggregation import CELLS, ROUNDING, Quantisation
from dpb_gym.privacy.releasers.shuffled_bits import ShuffledBits
from dpb_gym.privacy.releasers.sum_state import SumState

Message = LocalMessage | ShuffledBits | Quantisation
"""What a device does: `of` makes the message of a row, `released` reads a batch's sum."""


class Scales(NamedTuple):
    """Noise of a sum that spends some rho.

    Attributes:
        sigma: Standard deviation per coordinate.
        grid: Records are rounded to multiples of it, 0 for none.
        event: Cost of all releases together.
    """

    sigma: float
    grid: float
    event: Event


class Mechanism(ABC):
    """Base of the mechanisms.

    Attributes:
        name: Its name in `curator.running_sum`, and in texts.
        trusts: Trust models in which it works, by name.
        shuffled: Whether a shuffler stands between devices and the sum.
    """

    name: ClassVar[str]
    trusts: ClassVar[tuple[str, ...]] = ("curator",)
    shuffled: ClassVar[bool] = False

    def gain(self, sums: SumState) -> float:
        """Return the sensitivity of all releases together at unit distance of two records."""
        return 1.0

    def check(self, sums: SumState) -> None:  # noqa: B027 (most mechanisms hold for all records)
        """Raise an error unless the bound of the mechanism holds for the records of a sum."""

    @abstractmethod
    def scales(self, sums: SumState, rho: float, sizes: NDArray[np.int64]) -> Scales:
        """Return the noise of a sum that spends `rho`.

        Args:
            sums: The sum.
            rho: Nominal zCDP of all releases together.
            sizes: Records of each batch, if devices send messages.
        """

    def messages(self, sums: SumState, rho: float, sizes: NDArray[np.int64]) -> tuple[Message, ...]:
        """Return what devices do in each batch; nothing if the curator adds the noise."""
        return ()

    def is_pure(self, sums: SumState) -> bool:
        """Return whether messages are private for any two rows."""
        return False

    def plan(self, sums: SumState, model: ReleaseModel) -> Schedule:
        """Return the rounds at which batches of messages are released."""
        return model.batches(likely_sigma(sums))

    @property
    def proviso(self) -> str:
        """Clause of the guarantee if devices use the mechanism, see `Guarantee.provisos`."""
        return ""


def copied(mechanism: Mechanism) -> Mechanism:
    """Return a mechanism with the same fields, and nothing else that was set on the instance."""
    if not (is_dataclass(mechanism) and isinstance(mechanism, Mechanism)):
        raise ParameterError(f"mechanism must be a Mechanism that is a dataclass, got {mechanism}")
    return replace(mechanism)


def likely_sigma(sums: SumState) -> float:
    """Return the noise of normal releases that spend all that the sum can have of the budget."""
    return gaussian_sigma(sums.curator.most_rho * sums.part, sums.sensitivity * sums.gain)


@state.register
@dataclass(frozen=True)
class Gaussian(Mechanism):
    """Independent normal noise of every release; with system noise discrete, on a grid."""

    name: ClassVar[str] = "gaussian"

    def scales(self, sums: SumState, rho: float, sizes: NDArray[np.int64]) -> Scales:
        return gaussian_scales(sums, rho)


def gaussian_scales(sums: SumState, rho: float) -> Scales:
    """Return sigma, the grid and the cost of normal noise that spends `rho`.

    System noise lies on a grid. Rounding moves each of a unit's records by up to half a cell per
    coordinate, relative to its weight.
    """
    distance = sums.gain * sums.sensitivity
    sigma = sums.printed_sigma or gaussian_sigma(rho, distance)
    if not sums.curator.system_noise:
        return Scales(sigma, 0.0, GaussianEvent(sigma, distance))

    grid = grid_of(sigma)
    rounding = grid * math.sqrt(sums.shape.width) / sums.least_weight
    distance = sums.gain * (sums.sensitivity + sums.records_per_unit * rounding)
    sigma = sums.printed_sigma or gaussian_sigma(rho, distance)
    # up to a point of the grid, so that scaled noise is on it as well
    sigma = math.ceil(sigma / grid) * grid
    # discrete noise has the zCDP of normal noise, but not its Gaussian differential privacy
    return Scales(sigma, grid, ZCDPEvent(0.5 * (distance / sigma) ** 2))


@state.register
@dataclass(frozen=True)
class Correlated(Mechanism):
    """Normal noise that is correlated over the releases of a running sum.

    The guarantee also holds if records depend on earlier releases (Denisov, McMahan, Rush, Smith &
    Thakurta 2022, Theorem 2.1).

    Attributes:
        name: ``"blt"`` (buffered linear Toeplitz, constant memory), ``"sqrt-toeplitz"`` (square
            root; memory grows with the number of steps) or ``"binary-tree"`` (logarithmic memory;
            about twelve times the variance at 10^4 steps).
    """

    name: str = "blt"  # type: ignore[misc]

    def check(self, sums: SumState) -> None:
        if sums.curator.system_noise and self.name != "binary-tree":
            raise ParameterError(
                f"system noise is not available for {self.name!r}: it weighs noise by real "
                "numbers, and the guarantee of noise on a grid does not carry over; use "
                "'binary-tree'"
            )

    def scales(self, sums: SumState, rho: float, sizes: NDArray[np.int64]) -> Scales:
        return gaussian_scales(sums, rho)


@state.register
@dataclass(frozen=True)
class Bits(Mechanism):
    """Randomised bits of a shuffled batch; `shuffled_bits` has the mechanism and its bound.

    Every batch spends the same rho, which is that of all batches, as a record is in one.

    Attributes:
        batch: Customers per batch, if whole batches are shuffled on request; None: as planned.
        levels: Steps from 0 to the largest coordinate. None: the larger of twice the batch and 16
            times the root of a record's width, which makes flips and rounding negligible.
    """

    batch: int | None = None
    levels: int | None = None
    name: ClassVar[str] = "bits"
    trusts: ClassVar[tuple[str, ...]] = ("shuffler",)
    shuffled: ClassVar[bool] = True

    def __post_init__(self) -> None:
        for name in ("batch", "levels"):
            if getattr(self, name) is not None:
                validation.settle(self, name, validation.integer, 1)

    def check(self, sums: SumState) -> None:
        curator = sums.curator
        if self.batch is not None and sums.printed_sigma:
            raise ParameterError("shuffled sums have their own noise: leave sampling and sigma out")
        if self.batch is not None and curator.system_noise:
            raise ParameterError("the bits of whole batches are simulated: noise='seeded'")
        if curator.private and (curator.relation != "replace-one" or sums.clip is None):
            raise ParameterError("shuffled records need a bound (clip, reward) and replace-one")

    def levels_of(self, batch: int, width: int) -> int:
        """Return the steps from 0 to the largest coordinate, for records of so many numbers."""
        return ShuffledBits.fine_levels(batch, width) if self.levels is None else self.levels

    def scales(self, sums: SumState, rho: float, sizes: NDArray[np.int64]) -> Scales:
        batches = self.messages(sums, rho, sizes)
        # a record is in one batch, so the batch that costs most bounds the cost of all
        worst = max(batches, key=lambda bits: bits.event.zcdp)
        # batches on request round records as they enter; devices round their own
        grid = 0.0 if self.batch is None else batches[0].grid
        return Scales(min(bits.sigma for bits in batches), grid, worst.event)

    @property
    def proviso(self) -> str:
        return (
            "shuffler: it is trusted with every device's bits and permutes each bit on its own, "
            "and all devices of a batch send their coins"
        )

    def messages(
        self, sums: SumState, rho: float, sizes: NDArray[np.int64]
    ) -> tuple[ShuffledBits, ...]:
        width = sums.shape.width
        batches = sizes.tolist() if self.batch is None else [self.batch]
        return tuple(
            ShuffledBits.calibrated(rho, size, self.levels_of(size, width), sums)
            for size in batches
        )


@state.register
@dataclass(frozen=True)
class Discrete(Mechanism):
    """Discrete normal noise in parts, one per device; see `secure_aggregation`.

    Attributes:
        dropout: Largest part of a batch's devices that may be lost, in [0, 1).
    """

    dropout: float = 0.05
    name: ClassVar[str] = "discrete"
    trusts: ClassVar[tuple[str, ...]] = ("aggregator",)

    def __post_init__(self) -> None:
        validation.settle(self, "dropout", validation.real, 0.0, 1.0, open_high=True)

    def check(self, sums: SumState) -> None:
        if sums.clip is None or sums.curator.relation != "replace-one":
            raise ParameterError("aggregated records need a bound (clip, reward) and replace-one")

    @property
    def proviso(self) -> str:
        share = f"{100 * (1 - self.dropout):g}% of a batch's devices add their noise"
        return f"secure aggregation: {share}"

    def scales(self, sums: SumState, rho: float, sizes: NDArray[np.int64]) -> Scales:
        # rounding at random moves two rows apart by so much more; `Quantisation` keeps to it
        distance = sums.sensitivity * (1.0 + ROUNDING)
        sigma = gaussian_sigma(rho, distance)
        # tau: how far a sum of discrete normals is from a discrete normal, for any batch
        tau = 10.0 * (sums.horizon or 1) * portable.exp(-((math.pi * CELLS) ** 2))
        mu = distance / sigma + tau * math.sqrt(sums.shape.width)
        return Scales(sigma, 0.0, ZCDPEvent(0.5 * mu * mu))

    def messages(
        self, sums: SumState, rho: float, sizes: NDArray[np.int64]
    ) -> tuple[Quantisation, ...]:
        sigma = self.scales(sums, rho, sizes).sigma
        return tuple(
            Quantisation.calibrated(rho, size, sigma, self.dropout, sums) for size in sizes.tolist()
        )


@state.register
@dataclass(frozen=True)
class Randomised(Mechanism):
    """Messages that each device randomises alone, so that nobody is trusted.

    A message is a `GaussianMessage` of the row or a `CapMessage`, whichever has less noise within
    the budget. If only rewards are protected, the direction is public. Then the message is of the
    number alone: a `GaussianMessage` or a `SignMessage`.

    Relation: replace-one. Sensitivity of a Gaussian message: the distance of two rows, as for the
    other sums; if all rounds of a user are protected, k^(1/2) times that for the `limit` k of the
    user's messages. The other messages are private for any two rows. They need the number of
    messages of a user, so a sum with a stated distance of two users has Gaussian messages.
    """

    name: ClassVar[str] = "randomised"
    trusts: ClassVar[tuple[str, ...]] = ("local",)

    def gain(self, sums: SumState) -> float:
        # a unit's k messages have independent noise, so the distance grows as k^(1/2), not as k
        return 1.0 / math.sqrt(sums.records_per_unit)

    def check(self, sums: SumState) -> None:
        if sums.clip is None or sums.curator.budget is None:
            raise BudgetError(f"{sums.what}: local records need clip or reward, and replace-one")
        if sums.curator.relation != "replace-one":
            raise BudgetError(f"{sums.what}: local records need clip or reward, and replace-one")

    @staticmethod
    def numbers_of(sums: SumState) -> Segment | None:
        """Return the range of the numbers that messages are about; None: they are about rows."""
        if isinstance(sums.clip, Segment) and sums.curator.unit == "reward":
            return sums.clip
        return None

    def _pure_sigma(self, sums: SumState) -> float:
        """Return the noise of the pure message that the budget allows; infinite if none is used."""
        budget = sums.curator.budget
        # a pure bound is per message, so of a user with any number of them there is none
        if not sums.counted:
            return math.inf
        # p and q of a larger epsilon would be 1 in floating point
        if budget is None or (budget.epsilon or 0.0) > MOST_EPSILON:
            return math.inf
        return self._pure_message(sums, _pure_rho(budget, sums.records_per_unit) * sums.part).sigma

    def is_pure(self, sums: SumState) -> bool:
        # of the two messages the one with less noise
        return self._pure_sigma(sums) < likely_sigma(sums)

    def plan(self, sums: SumState, model: ReleaseModel) -> Schedule:
        sigma = min(likely_sigma(sums), self._pure_sigma(sums))
        return self.spread_model(sums, model).batches(sigma, per_record=True)

    def spread_model(self, sums: SumState, model: ReleaseModel) -> ReleaseModel:
        """Return the model in which the noise of messages about numbers is part of the spread."""
        if not self.numbers_of(sums):
            return model
        # noise along the direction of each record adds to the spread of the responses
        sigma = min(likely_sigma(sums), self._pure_sigma(sums))
        return replace(model, spread=model.spread + sigma**2 / model.rate, unit_noise=0.0)

    def scales(self, sums: SumState, rho: float, sizes: NDArray[np.int64]) -> Scales:
        if not sums.pure:
            return gaussian_scales(sums, rho)
        return Scales(self._pure_message(sums, rho).sigma, 0.0, _pure_event(sums, rho))

    def messages(
        self, sums: SumState, rho: float, sizes: NDArray[np.int64]
    ) -> tuple[LocalMessage, ...]:
        message: LocalMessage
        if sums.pure:
            message = self._pure_message(sums, rho)
        else:
            message = GaussianMessage(gaussian_scales(sums, rho).sigma)
        return (message,) * len(sizes)

    def _pure_message(self, sums: SumState, rho: float) -> CapMessage | SignMessage:
        epsilon = _pure_event(sums, rho).epsilon
        numbers = self.numbers_of(sums)
        if numbers:
            return SignMessage.of_range(epsilon, 0.5 * (numbers.high - numbers.low))
        assert sums.clip is not None
        return CapMessage.best(epsilon, sums.clip.longest)


def _pure_event(sums: SumState, rho: float) -> PureEvent:
    """Return the cost of a unit's pure messages that spend `rho` together, nominally."""
    return _pure_messages(rho, sums.records_per_unit)


def _pure_messages(rho: float, times: int) -> PureEvent:
    return PureEvent(math.sqrt(2.0 * rho / times), times)


@lru_cache(maxsize=64)  # the accountant is asked some fifty times
def _pure_rho(budget: Budget, times: int) -> float:
    """Return the nominal rho of so many pure messages that spend a budget."""
    return fit_rho(budget, lambda rho: [_pure_messages(rho, times)])
