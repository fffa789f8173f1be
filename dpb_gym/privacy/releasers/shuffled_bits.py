"""Mechanism of the shuffle model: customers' bits are randomised, then shuffled, then counted.

After the vector sums of Cheu, Joseph, Mao & Peng (2022), which Chowdhury & Zhou (2022) use. A
customer clips the record to radius r and rounds it to multiples of r / `levels`. For each
coordinate, k steps above -r, the customer sends 2 `levels` bits, k of them ones, each flipped with
probability 1/5, and a public number of fair coins. The shuffler mixes the bits of `batch` customers
per coordinate, so that only the number of ones remains. The release is that number without its
bias.

Relation: replace-one, one customer's record exchanged. Every batch has `batch` customers, who all
follow the protocol. Sensitivity: the number of bits in which two records differ, in 2-norm over
coordinates at most ``levels * distance / r + sqrt(width)``, where distance is that of two clipped
records and the last term the rounding. With m coins per coordinate one batch is zCDP with
rho = (log(4) * bits)^2 / (2 m), at every order; docs/privacy.md has the proof. Flips without coins
would be pure, but need noise that grows with the batch. Coins without flips would have no zCDP
bound, because their counts are bounded. The noise has standard deviation
``(r / levels) sqrt(m / 4 + 0.32 batch levels) / 0.6`` per coordinate.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Self

import numpy as np

from dpb_gym import state, uncompiled
from dpb_gym.errors import BudgetError
from dpb_gym.privacy.events import ShuffledBitsEvent
from dpb_gym.privacy.noise import NoiseSource
from dpb_gym.privacy.releasers.sum_state import SumState
from dpb_gym.validation import FloatArray

# with 1/5 the noise of the flips is small beside that of the coins, and log(4) enters the bound
FLIP = 0.2
EPSILON = uncompiled.log((1.0 - FLIP) / FLIP)


@state.register
@dataclass(frozen=True)
class ShuffledBits:
    """Bits of one batch; a pair of pure functions, `of` and `released`.

    Attributes:
        batch: Customers of the batch.
        levels: Steps from 0 to the largest coordinate.
        coins: Fair coins of the batch per coordinate.
        grid: Distance of two values that a customer's bits can state.
        bits: Sensitivity: number of bits in which two records differ, in 2-norm over coordinates.
    """

    batch: int
    levels: int
    coins: int
    grid: float
    bits: float

    @classmethod
    def calibrated(cls, rho: float, batch: int, levels: int, sums: SumState) -> Self:
        """Return the bits that spend `rho` on records of these sums."""
        assert sums.clip is not None
        grid = sums.clip.longest / levels
        bits = sums.sensitivity / grid + sums.records_per_unit * math.sqrt(sums.shape.width)
        # every device sends the same number of coins, so that all messages have one length
        each = math.ceil((EPSILON * bits) ** 2 / (2.0 * rho * batch))
        # counts of ones are exact in double precision up to there
        if each * batch > 2**53:
            raise BudgetError(
                f"rho = {rho:g} needs too many coins in a batch of {batch:,} records: give a "
                "larger rho, or a smaller horizon if it is unknown or very large"
            )
        return cls(batch, levels, each * batch, grid, bits)

    @staticmethod
    def fine_levels(batch: int, width: int) -> int:
        """Return so many levels that flips and rounding are negligible."""
        return max(2 * batch, math.ceil(16 * math.sqrt(width)))

    @property
    def each(self) -> int:
        """Bits that a device sends per coordinate, coins included."""
        return 2 * self.levels + self.coins // self.batch

    @property
    def sigma(self) -> float:
        """Standard deviation of the noise per coordinate."""
        flips = 2 * self.batch * self.levels * FLIP * (1.0 - FLIP)
        return self.grid * math.sqrt(0.25 * self.coins + flips) / (1.0 - 2.0 * FLIP)

    @property
    def event(self) -> ShuffledBitsEvent:
        """Cost of the batch."""
        return ShuffledBitsEvent(EPSILON, self.coins, self.bits)

    def seen(self, rows: FloatArray, customers: int, noise: NoiseSource) -> FloatArray:
        """Return the numbers of ones ``(B, width)`` in the bits of customers with these rows."""
        sent = 2.0 * customers * self.levels
        coins = np.full_like(rows, self.coins // self.batch * customers)
        ones = np.floor(rows / self.grid + 0.5) + 0.5 * sent
        seen = ones - noise.heads(ones, FLIP) + noise.heads(sent - ones, FLIP)
        return np.asarray(seen + noise.heads(coins, 0.5))

    def unbiased(self, seen: FloatArray) -> FloatArray:
        """Return the unbiased estimate of a batch's sum ``(B, width)`` from its ones."""
        sent = 2.0 * self.batch * self.levels
        unbiased = (seen - 0.5 * self.coins - FLIP * sent) / (1.0 - 2.0 * FLIP)
        return np.asarray(self.grid * (unbiased - 0.5 * sent))

    def of(self, rows: FloatArray, noise: NoiseSource) -> FloatArray:
        """Return the numbers of ones ``(B, width)`` of one customer per replicate."""
        return self.seen(rows, 1, noise)

    def width(self, numbers: int) -> int:
        """Return the length of a message of a row of so many numbers."""
        return numbers

    def bounds(self, longest: float) -> tuple[float, float]:
        """Return the range of the numbers of ones of a customer."""
        return 0, self.each

    def row(self, messages: FloatArray) -> FloatArray:
        """Return what messages add to the sum of a batch."""
        return messages

    def released(self, total: FloatArray, devices: int) -> FloatArray:
        """Return the release of a batch from its ones; see `unbiased`."""
        return self.unbiased(total)
