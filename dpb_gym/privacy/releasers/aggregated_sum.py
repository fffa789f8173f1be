"""Sums that a secure aggregator computes: masked messages with distributed discrete noise."""

from __future__ import annotations

import math
import warnings
from dataclasses import dataclass, replace
from typing import ClassVar, Protocol

import numpy as np
from numpy.typing import NDArray

from dpb_gym import portable, state, validation
from dpb_gym.errors import BudgetError, ParameterError
from dpb_gym.privacy.calibration import gaussian_sigma
from dpb_gym.privacy.events import Event, ZCDPEvent
from dpb_gym.privacy.noise import NoiseSource
from dpb_gym.privacy.releasers.disjoint_sum import DisjointSum
from dpb_gym.privacy.releasers.record_bounds import RecordShape
from dpb_gym.privacy.releasers.releaser import CuratorProtocol
from dpb_gym.validation import FloatArray

Integers = NDArray[np.int64]
# A device's noise has at least so many cells of the grid as standard deviation.
CELLS = 8.0
# Most that rounding adds to the sensitivity, as a part of it.
ROUNDING = 1.0 / 128
# Sums leave the range of the modulus only if their noise exceeds so many standard deviations.
TAIL = 12.0
# Scale of a batch of which nothing was released: its noise is so large that it has no weight.
WORTHLESS = 1e-6


class SecureAggregator(Protocol):
    """What an `AggregatedSum` uses of secure aggregation, such as Bonawitz et al. (2017).

    An application gives its own to `AggregatedSum.aggregator` before the first record.
    """

    def open(self, shape: tuple[int, ...], modulus: int) -> None:
        """Begin a batch of messages of this shape, integers modulo `modulus`."""

    def submit(self, message: Integers) -> None:
        """Take the message of one device per replicate."""

    def total(self) -> tuple[Integers, int]:
        """End the batch: its sum modulo `modulus`, and the number of devices in it."""


@state.register
class SimulatedAggregator:
    """Ideal functionality of secure aggregation: it stores only the modular sum.

    Args:
        lost: Messages that are lost, as numbers of the devices of a batch, from 0.
    """

    evolves: ClassVar[tuple[str, ...]] = ("_sum", "_modulus", "_asked", "_came")

    def __init__(self, lost: tuple[int, ...] = ()) -> None:
        self._lost = frozenset(lost)

    def open(self, shape: tuple[int, ...], modulus: int) -> None:
        self._sum, self._modulus = np.zeros(shape, np.int64), modulus
        self._asked = self._came = 0

    def submit(self, message: Integers) -> None:
        if self._asked not in self._lost:
            self._sum = (self._sum + message) % self._modulus
            self._came += 1
        self._asked += 1

    def total(self) -> tuple[Integers, int]:
        return self._sum, self._came


@state.register
@dataclass(frozen=True)
class Quantisation:
    """Public numbers of a batch: what a device needs for its message.

    Attributes:
        clients: Devices of the batch.
        enough: Devices whose noise is enough; with fewer nothing is released.
        grid: Distance of two values that a message can state.
        std: Standard deviation of a device's noise.
        modulus: Messages and sums are integers modulo this power of two.
    """

    clients: int
    enough: int
    grid: float
    std: float
    modulus: int

    @property
    def bits(self) -> int:
        """Bits of a message per coordinate."""
        return self.modulus.bit_length() - 1

    @property
    def released_std(self) -> float:
        """Standard deviation of the noise of the sum of all devices, with that of rounding."""
        return math.sqrt(self.clients * (self.std**2 + 0.25 * self.grid**2))


class AggregatedSum(DisjointSum):
    """Sums of batches by secure aggregation, with distributed discrete Gaussian noise.

    After Kairouz, Liu & Steinke (2021). A device clips its row, rounds it to a grid at random and
    without bias, adds discrete Gaussian noise, and sends the result modulo a power of two. The
    aggregator, which only learns the sum of a batch, is trusted not to open single messages.

    * Relation: replace-one, one device's record exchanged. Sensitivity: the distance of two rows
      plus grid * width^(1/2), because two rows rounded with the same random numbers move apart by
      less than a cell per coordinate.
    * Noise: a device's variance is sigma^2 / n, where n = (1 - `dropout`) times the devices of the
      batch must answer. With fewer nothing of the batch is released: its value is 0, and its
      `noise_std` is 1e6 sigma. The sum of n discrete Gaussians is one of
      variance sigma^2 up to the factor e^tau per coordinate,
      tau = 10 sum_{k < n} exp(-2 pi^2 s^2 k / (k + 1)) for s cells of noise per device (Theorem 1
      there). So a batch is zCDP with rho = (sensitivity / sigma + tau width^(1/2))^2 / 2.
    * The modulus leaves room for the largest sum and `TAIL` standard deviations of noise. A sum
      beyond it would wrap around, which does not affect privacy.

    Lost messages are made up for: the sum is scaled to all devices of the batch.

    Args:
        dropout: Largest part of a batch's devices that may be lost, in [0, 1).
        **options: Parameters of `WeightedSum`. Records need `clip` or `reward`.

    Attributes:
        aggregator: The secure aggregation; a `SimulatedAggregator` by default.
        message_bytes: Size of a message in the current batch.
    """

    evolves: ClassVar[tuple[str, ...]] = ("_opened", "_schedule.scales")
    whole = True

    def __init__(
        self,
        curator: CuratorProtocol,
        width: int | RecordShape,
        *,
        dropout: float = 0.05,
        **options: object,
    ) -> None:
        self.dropout = validation.real("dropout", dropout, 0.0, 1.0, open_high=True)
        super().__init__(curator, width, **options)  # type: ignore[arg-type]
        self.aggregator: SecureAggregator = SimulatedAggregator()
        self._opened = -1  # newest batch that the aggregator was opened for
        if self.clip is None or curator.relation != "replace-one":
            raise ParameterError("aggregated records need a bound (clip, reward) and replace-one")
        share = f"{100 * (1 - self.dropout):g}% of a batch's devices add their noise"
        self.proviso = "; ".join(filter(None, [self.proviso, f"secure aggregation: {share}"]))

    def _scales(self, rho: float) -> tuple[float, float, Event]:
        distance = self.sensitivity * (1.0 + ROUNDING)
        sigma = gaussian_sigma(rho, distance)
        close = 10.0 * (self.horizon or 1) * portable.exp(-((math.pi * CELLS) ** 2))  # tau
        mu = distance / sigma + close * math.sqrt(self.shape.width)
        return sigma, 0.0, ZCDPEvent(0.5 * mu * mu)

    def open(self, rho: float | None, noise: NoiseSource) -> None:
        super().open(rho, noise)
        self.batches = [self._quantised(int(size)) for size in self._schedule.sizes]
        stds = np.array([batch.released_std for batch in self.batches])
        self._schedule = replace(self._schedule, scales=self._sigma / stds)

    def _quantised(self, clients: int) -> Quantisation:
        assert self.clip is not None
        enough = max(1, math.ceil((1.0 - self.dropout) * clients))
        std, width = self._sigma / math.sqrt(enough), self.shape.width
        finest = ROUNDING * self.sensitivity / (self.records_per_unit * math.sqrt(width))
        grid = math.ldexp(0.5, math.frexp(min(std / CELLS, finest))[1])  # a power of two
        largest = clients * (self.clip.longest / grid + 1.0)
        largest += TAIL * math.sqrt(clients) * std / grid
        found = Quantisation(clients, enough, grid, std, 1 << math.ceil(2.0 * largest).bit_length())
        if found.bits > 62:
            raise BudgetError(
                f"{self.what}: rho = {self.rho:g} needs integers of {found.bits} bits; at most 62 "
                "are possible, so give a smaller budget"
            )
        return found

    @property
    def _batch(self) -> Quantisation:
        return self.batches[min(self.releases, len(self.batches) - 1)]

    @property
    def modulus(self) -> int | None:
        return self._batch.modulus

    @property
    def message_bytes(self) -> int:
        self.ready()
        return math.ceil(self.shape.width * self._batch.bits / 8)

    def message(self, rows: FloatArray) -> Integers:
        batch, width = self._batch, self.shape.width
        cells = np.floor(rows / batch.grid + self._noise.uniform((width,)))
        cells += self._noise.discrete_gaussian(batch.std / batch.grid, width)
        return cells.astype(np.int64) % batch.modulus

    def become_device(self, noise: NoiseSource | None) -> None:
        super().become_device(noise)
        self.aggregator = SimulatedAggregator()

    @property
    def message_range(self) -> tuple[float, float]:
        return 0, self._batch.modulus - 1

    def receive(self, messages: Integers) -> None:
        if self._opened != self.releases:
            self.aggregator.open(messages.shape, self._batch.modulus)
            self._opened = self.releases
        self.aggregator.submit(messages.astype(np.int64, copy=False))

    def _close(self, batch: int) -> FloatArray:
        (sums, came), plan = self.aggregator.total(), self.batches[batch]
        if came < plan.enough:
            warnings.warn(
                f"{came} of {plan.clients} devices are left in batch {batch + 1}, which needs "
                f"{plan.enough}: nothing of it was released",
                RuntimeWarning,
                stacklevel=2,
            )
            self._schedule.scales[batch] = WORTHLESS
            return np.zeros(sums.shape)
        self._schedule.scales[batch] *= math.sqrt(came / plan.clients)
        signed = (sums + plan.modulus // 2) % plan.modulus - plan.modulus // 2
        return np.asarray(signed * (plan.grid * plan.clients / came), dtype=np.float64)
