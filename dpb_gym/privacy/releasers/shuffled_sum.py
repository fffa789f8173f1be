"""Sums in the shuffle model: customers' bits are randomised, then shuffled, then counted."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Self

import numpy as np

from dpb_gym import state, uncompiled, validation
from dpb_gym.errors import BudgetError, ParameterError, shown
from dpb_gym.privacy.events import Event, ShuffledBitsEvent
from dpb_gym.privacy.noise import NoiseSource
from dpb_gym.privacy.releasers.batch_sum import BatchSum
from dpb_gym.privacy.releasers.disjoint_sum import DisjointSum
from dpb_gym.privacy.releasers.record_bounds import RecordShape
from dpb_gym.privacy.releasers.release_schedule import Schedule
from dpb_gym.privacy.releasers.releaser import CuratorProtocol
from dpb_gym.privacy.releasers.sums import Sum
from dpb_gym.validation import FloatArray

FLIP = 0.2
EPSILON = uncompiled.log((1.0 - FLIP) / FLIP)
SHUFFLED = (
    "shuffler: it is trusted with every device's bits and permutes each bit on its own, and all "
    "devices of a batch send their coins"
)


@state.register
@dataclass(frozen=True)
class ShuffledBits:
    """Bits of one batch; `ShuffledSum` has the mechanism and its bound.

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
    def calibrated(cls, rho: float, batch: int, levels: int, sums: Sum) -> Self:
        """Return the bits that spend `rho` on records of these sums."""
        assert sums.clip is not None
        grid = sums.clip.longest / levels
        bits = sums.sensitivity / grid + sums.records_per_unit * math.sqrt(sums.shape.width)
        each = math.ceil((EPSILON * bits) ** 2 / (2.0 * rho * batch))
        if each * batch > 2**53:
            raise BudgetError(f"rho = {rho:g} needs too many coins per batch; give at least 1e-10")
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


class ShuffledSum(BatchSum):
    """Sums of batches in the shuffle model; the shuffler is trusted to hide who sent what.

    After the vector sums of Cheu, Joseph, Mao & Peng (2022), which Chowdhury & Zhou (2022) use.
    A customer clips the record to radius r and rounds it to multiples of r / `levels`. For each
    coordinate, k steps above -r, the customer sends 2 `levels` bits, k of them ones, each flipped
    with probability 1/5, and a public number of fair coins. The shuffler mixes the bits of
    `batch` customers per coordinate, so that only the number of ones remains. The release is that
    number without its bias.

    Relation: replace-one, one customer's record exchanged. Every batch has `batch` customers, who
    all follow the protocol. Sensitivity: the number of bits in which two records differ, in 2-norm
    over coordinates at most ``levels * distance / r + sqrt(width)``, where distance is that of two
    clipped records and the last term the rounding. With m coins per coordinate one batch is zCDP
    with rho = (log(4) * bits)^2 / (2 m), at every order; docs/privacy.md has the proof. Flips
    without coins would be pure, but need noise that grows with the batch. Coins without flips
    would have no zCDP bound, because their counts are bounded. The noise has standard deviation
    ``(r / levels) sqrt(m / 4 + 0.32 batch levels) / 0.6`` per coordinate.

    Without a budget the sums are exact.

    Args:
        batch: Customers per batch.
        levels: Steps from 0 to the largest coordinate. The default, the larger of twice the batch
            and 16 times the root of a record's width, makes flips and rounding negligible.
        **options: Further parameters of `BatchSum`. Records need `clip` or `reward`.

    Raises:
        ParameterError: If a parameter is out of range, or the noise is system noise (whole
            batches are simulated).
    """

    def __init__(
        self,
        curator: CuratorProtocol,
        width: int | RecordShape,
        *,
        batch: int,
        levels: int | None = None,
        **options: object,
    ) -> None:
        options.setdefault("what", "shuffled sums of batches")
        self.batch = validation.integer("batch", batch, 1)
        super().__init__(curator, width, **options)  # type: ignore[arg-type]
        least = ShuffledBits.fine_levels(self.batch, self.shape.width)
        self.levels = least if levels is None else validation.integer("levels", levels, 1)
        if self.sampling < 1 or self._printed:
            raise ParameterError("shuffled sums have their own noise: leave sampling and sigma out")
        _check(self)
        if curator.system_noise:
            raise ParameterError("the bits of whole batches are simulated: noise='seeded'")

    def _scales(self, rho: float) -> tuple[float, float, Event]:
        self._bits_sent = ShuffledBits.calibrated(rho, self.batch, self.levels, self)
        return self._bits_sent.sigma, self._bits_sent.grid, self._bits_sent.event

    def _noisy(self) -> FloatArray:
        bits = self._bits_sent
        return bits.unbiased(bits.seen(self._total, self.batch, self._noise))

    def release(self) -> FloatArray:
        """Shuffle the batch and return its noisy sum, ``(B, *shape)``.

        Raises:
            ParameterError: If the batch has not exactly `batch` customers, for which the
                guarantee holds.
        """
        self.ready()
        if self.rounds - self._at != self.batch:
            raise ParameterError(
                f"a batch of {self.batch} customers is shuffled, not of "
                f"{self.rounds - self._at}; nothing was released"
            )
        return super().release()


class ShuffledBatches(DisjointSum):
    """Sums of planned batches in the shuffle model; see `ShuffledSum` for mechanism and bound.

    Simulated customers send their numbers of ones, and the shuffler's output is the sum. A device
    sends single bits (`Shuffler`), and `receive_batch` takes the shuffler's output. Every batch
    spends the same rho, which is therefore that of all batches.
    """

    whole = True

    def __init__(
        self, curator: CuratorProtocol, width: int | RecordShape, **options: object
    ) -> None:
        super().__init__(curator, width, **options)
        _check(self)
        self.proviso = "; ".join(filter(None, [self.proviso, SHUFFLED]))

    def _calibrated(self, rho: float) -> list[ShuffledBits]:
        assert isinstance(self._plan, Schedule)
        levels = partial(ShuffledBits.fine_levels, width=self.shape.width)
        sizes = self._plan.sizes.tolist()
        return [ShuffledBits.calibrated(rho, size, levels(size), self) for size in sizes]

    def _scales(self, rho: float) -> tuple[float, float, Event]:
        batches = self._calibrated(rho)
        worst = max(batches, key=lambda bits: bits.event.zcdp)
        return min(bits.sigma for bits in batches), 0.0, worst.event

    def open(self, rho: float | None, noise: NoiseSource) -> None:
        super().open(rho, noise)
        assert rho is not None  # a curator without a budget makes other sums
        self.batches = self._calibrated(rho)
        stds = np.array([bits.sigma for bits in self.batches])
        self._schedule = replace(self._schedule, scales=self._sigma / stds)

    def message(self, rows: FloatArray) -> FloatArray:
        return self.batches[self.releases].seen(rows, 1, self._noise)

    @property
    def message_range(self) -> tuple[float, float]:
        return 0, self.batches[self.releases].each

    @property
    def header(self) -> dict[str, int]:
        """Public numbers of the open batch, as in a device's message; see `Shuffler`.

        Raises:
            ParameterError: If all batches were released.
        """
        self.ready()
        if self.releases == len(self.batches):
            raise ParameterError("all batches were released: no more bits are needed")
        bits = self.batches[self.releases]
        return {
            "batch": self.releases,
            "customers": bits.batch,
            "coordinates": self.shape.width,
            "bits_each": bits.each,
        }

    def receive(self, messages: FloatArray) -> None:
        self._total += messages

    def receive_batch(self, shuffled: Mapping[str, Any]) -> int:
        """Take the output of a `Shuffler` for the open batch; return its number of customers.

        Raises:
            ParameterError: If it is no such output, or belongs to another batch or plan.
        """
        header = self.header
        known = dict.fromkeys((*header, "ones"))
        given = validation.settings("a shuffled batch", shuffled, known)
        if any(type(given[name]) is not int or given[name] != header[name] for name in header):
            raise ParameterError(f"the open batch is {header}; got {shown(given)}")
        most = header["customers"] * header["bits_each"]
        ones = validation.array("ones", given["ones"], (header["coordinates"],), 0, most)
        if (ones % 1 != 0).any() or any(isinstance(one, bool) for one in given["ones"]):
            raise ParameterError("ones must be whole numbers")
        self._total[:] = ones
        return header["customers"]

    def _close(self, batch: int) -> tuple[FloatArray, int]:
        bits = self.batches[batch]
        return bits.unbiased(self._total), bits.batch


def _check(sums: Sum) -> None:
    """Raise ParameterError unless the bound of a shuffled sum holds for its records."""
    curator = sums.curator
    if curator.private and (curator.relation != "replace-one" or sums.clip is None):
        raise ParameterError("shuffled records need a bound (clip, reward) and replace-one")
