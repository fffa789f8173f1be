"""Sums in the shuffle model: customers' bits are randomised, then shuffled, then counted."""

from __future__ import annotations

import math

import numpy as np

from dpb_gym import portable, validation
from dpb_gym.errors import ParameterError
from dpb_gym.privacy.events import Event, ShuffledBitsEvent
from dpb_gym.privacy.releasers.batch_sum import BatchSum
from dpb_gym.privacy.releasers.record_bounds import RecordShape
from dpb_gym.privacy.releasers.releaser import CuratorProtocol
from dpb_gym.validation import FloatArray

FLIP = 0.2


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
        ParameterError: If a parameter is out of range, or the noise is system noise (customers
            are simulated).
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
        least = max(2 * self.batch, math.ceil(16 * math.sqrt(self.shape.width)))
        self.levels = least if levels is None else validation.integer("levels", levels, 1)
        if self.sampling < 1 or self._printed:
            raise ParameterError("shuffled sums have their own noise: leave sampling and sigma out")
        if curator.system_noise:
            raise ParameterError("customers' bits are simulated: noise='seeded'")
        if curator.private and (curator.relation != "replace-one" or self.clip is None):
            raise ParameterError("shuffled records need a bound (clip, reward) and replace-one")

    def _scales(self, rho: float) -> tuple[float, float, Event]:
        assert self.clip is not None
        grid = self.clip.longest / self.levels
        bits = self.sensitivity / grid + (self._participations or 1) * math.sqrt(self.shape.width)
        epsilon = portable.log((1.0 - FLIP) / FLIP)
        each = math.ceil((epsilon * bits) ** 2 / (2.0 * rho * self.batch))
        flips = 2 * self.batch * self.levels * FLIP * (1.0 - FLIP)
        self._coins = each * self.batch
        sigma = grid * math.sqrt(0.25 * self._coins + flips) / (1.0 - 2.0 * FLIP)
        return sigma, grid, ShuffledBitsEvent(epsilon, self._coins, bits)

    def _noisy(self) -> FloatArray:
        """Return the unbiased estimate of the batch's sum from the shuffled bits."""
        grid, sent = self.grid, 2.0 * self.batch * self.levels
        ones = np.floor(self._total / grid + 0.5) + 0.5 * sent
        seen = ones - self._noise.heads(ones, FLIP) + self._noise.heads(sent - ones, FLIP)
        seen += self._noise.heads(np.full_like(ones, self._coins), 0.5)
        unbiased = (seen - 0.5 * self._coins - FLIP * sent) / (1.0 - 2.0 * FLIP)
        return np.asarray(grid * (unbiased - 0.5 * sent))

    def release(self) -> FloatArray:
        """Shuffle the batch and return its noisy sum, ``(B, *shape)``.

        Raises:
            ParameterError: If the batch has not exactly `batch` customers, for which the
                guarantee holds.
        """
        if self.rounds - self._at != self.batch:
            raise ParameterError(
                f"a batch of {self.batch} customers is shuffled, not of "
                f"{self.rounds - self._at}; nothing was released"
            )
        return super().release()
