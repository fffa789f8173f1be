"""Mechanism of secure aggregation: masked messages with distributed discrete Gaussian noise.

After Kairouz, Liu & Steinke (2021). A device clips its row, rounds it to a grid at random and
without bias, adds discrete Gaussian noise, and sends the result modulo a power of two. The
aggregator, which only learns the sum of a batch, is trusted not to open single messages.

* Relation: replace-one, one device's record exchanged. Sensitivity: the distance of two rows plus
  grid * width^(1/2), because two rows rounded with the same random numbers move apart by less than
  a cell per coordinate.
* Noise: a device's variance is sigma^2 / n, where n = (1 - `dropout`) times the devices of the
  batch must answer. With fewer nothing of the batch is released: its value is 0, and its
  `noise_std` is 1e6 sigma. The sum of n discrete Gaussians is one of variance sigma^2 up to the
  factor e^tau per coordinate, tau = 10 sum_{k < n} exp(-2 pi^2 s^2 k / (k + 1)) for s cells of
  noise per device (Theorem 1 there): tau is below 1e-260 for the 8 cells of `CELLS`. So a batch is
  zCDP with rho = (sensitivity / sigma + tau width^(1/2))^2 / 2. It holds given the random numbers
  of rounding, and the divergence of mixtures with the same weights is at most the largest. The
  paper bounds the norm of a rounded row instead, and draws it again if it is exceeded.
* The modulus leaves room for the largest sum and `TAIL` standard deviations of noise. A sum beyond
  it would wrap around, which does not affect privacy.

Lost messages are made up for: the sum is scaled to all devices of the batch.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar, Protocol, Self

import numpy as np
from numpy.typing import NDArray

from dpb_gym import state
from dpb_gym.errors import BudgetError
from dpb_gym.privacy.noise import NoiseSource
from dpb_gym.privacy.releasers.sum_state import SumState
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
    """What a sum uses of secure aggregation, such as Bonawitz et al. (2017).

    An application gives its own to `Sum.aggregator` before the first record.
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
        self._sum = np.zeros(shape, np.int64)
        self._modulus = modulus
        self._asked = 0
        self._came = 0

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
    """Public numbers of a batch; a pair of pure functions, `of` and `released`.

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

    @classmethod
    def calibrated(
        cls, rho: float, clients: int, sigma: float, dropout: float, sums: SumState
    ) -> Self:
        """Return the numbers of a batch of so many devices, whose noise has scale `sigma`.

        Raises:
            BudgetError: If messages would need integers of more than 62 bits.
        """
        assert sums.clip is not None
        enough = max(1, math.ceil((1.0 - dropout) * clients))
        std = sigma / math.sqrt(enough)
        finest = ROUNDING * sums.sensitivity
        finest /= sums.records_per_unit * math.sqrt(sums.shape.width)
        grid = math.ldexp(0.5, math.frexp(min(std / CELLS, finest))[1])  # a power of two
        largest = clients * (sums.clip.longest / grid + 1.0)
        largest += TAIL * math.sqrt(clients) * std / grid
        # twice the largest sum, because residues have a sign
        modulus = 1 << math.ceil(2.0 * largest).bit_length()
        made = cls(clients, enough, grid, std, modulus)
        if made.bits > 62:
            raise BudgetError(
                f"{sums.what}: rho = {rho:g} needs integers of {made.bits} bits; at most 62 "
                "are possible, so give a smaller budget"
            )
        return made

    @property
    def bits(self) -> int:
        """Bits of a message per coordinate."""
        return self.modulus.bit_length() - 1

    @property
    def released_std(self) -> float:
        """Standard deviation of the noise of the sum of all devices, with that of rounding."""
        return math.sqrt(self.clients * (self.std**2 + 0.25 * self.grid**2))

    @property
    def sigma(self) -> float:
        """See `released_std`."""
        return self.released_std

    def of(self, rows: FloatArray, noise: NoiseSource) -> Integers:
        """Return the residues ``(B, width)`` of one device per replicate."""
        width = rows.shape[1]
        # a random shift before rounding down: no bias, whatever the row is
        cells = np.floor(rows / self.grid + noise.uniform((width,)))
        cells += noise.discrete_gaussian(self.std / self.grid, width)
        return cells.astype(np.int64) % self.modulus

    def width(self, numbers: int) -> int:
        """Return the length of a message of a row of so many numbers."""
        return numbers

    def bounds(self, longest: float) -> tuple[float, float]:
        """Return the range of a residue."""
        return 0, self.modulus - 1

    def released(self, total: Integers, devices: int) -> FloatArray:
        """Return the sum that stands for all devices, from the residues of those that came."""
        if devices < self.enough:
            return np.zeros(total.shape)
        signed = (total + self.modulus // 2) % self.modulus - self.modulus // 2
        # a lost device counts as the mean of the others
        values = signed * (self.grid * self.clients / devices)
        return np.asarray(values, dtype=np.float64)

    def stated_scale(self, scale: float, devices: int) -> float:
        """Return the scale of the release of so many devices, `scale` being that of all."""
        return WORTHLESS if devices < self.enough else scale * math.sqrt(devices / self.clients)
