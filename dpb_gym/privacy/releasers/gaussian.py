"""Sums over disjoint batches of records, noise drawn once per batch."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dpb_gym.errors import ParameterError
from dpb_gym.privacy.calibration import gaussian_sigma
from dpb_gym.privacy.checks import FloatArray, positive
from dpb_gym.privacy.events import Event, GaussianEvent
from dpb_gym.privacy.ledger import Ledger
from dpb_gym.privacy.noise import NoiseSource
from dpb_gym.privacy.releasers.base import Intake, sensitivity_of
from dpb_gym.privacy.releasers.bounds import Bound
from dpb_gym.privacy.releasers.shapes import RecordShape
from dpb_gym.privacy.secure import SecureNoise, noise_for


class GaussianSum:
    """The sum of a batch of records plus N(0, sigma^2 I), batch after batch (RU, Algorithm 1).

    Each `release` closes a batch: the records since the last one. A record is in one batch, so
    the releases are over disjoint records and compose in parallel: together they cost what one
    of them does.

    Args:
        dim: Length of a vector record.
        replicates: Number of replicates B.
        symmetric: Instead of `dim`: side of symmetric matrix records.
        clip: Bound of the records; a number is the radius of a ball.
        sigma: Noise standard deviation per coordinate (of the isometric row), or
        rho: zCDP to spend: sigma = sensitivity / sqrt(2 rho).
        sensitivity: Overrides the bound's sensitivity; the caller vouches for it.
        participations: Most records that one unit of protection has; needed if the ledger
            protects users (its default is one record). Multiplies the sensitivity.
        noise: Source of the noise; the releaser spawns its own stream from it. ``"secure"``
            draws discrete Gaussians from the operating system's entropy (see `SecureNoise`).
        ledger: Charged once per batch.
        horizon: Largest number of records per replicate, or `None`.
        cumulative: `True`: `release` returns the sum of all noisy batches so far (the noise
            accumulates, erratum R5); `False`: the batch just closed.
        event: Overrides the accounting event, e.g. a `PoissonGaussianEvent` whose caller
            samples the records.
        what: What is released, in words.
        parallel: Name of the parallel group in the ledger. Two releasers may share a name only
            if no record enters both.

    Raises:
        ParameterError: If a parameter is out of range, or not exactly one of sigma and rho is
            given.
    """

    def __init__(
        self,
        dim: int | None = None,
        replicates: int = 1,
        *,
        symmetric: int | None = None,
        clip: Bound | float | None = None,
        sigma: float | None = None,
        rho: float | None = None,
        sensitivity: float | None = None,
        participations: int | None = None,
        noise: NoiseSource | SecureNoise | str,
        ledger: Ledger,
        horizon: int | None = None,
        cumulative: bool = False,
        event: Event | None = None,
        what: str = "batch sum",
        parallel: str | None = None,
    ) -> None:
        if (sigma is None) == (rho is None):
            raise ParameterError("give either sigma or rho")
        self._shape = RecordShape.of(dim, symmetric)
        self._intake = Intake(self._shape, replicates, clip, horizon)
        self.replicates = self._intake.replicates
        self.sensitivity = sensitivity_of(self._intake.clip, sensitivity, ledger, participations)
        if sigma is None:
            assert rho is not None
            sigma = gaussian_sigma(rho, self.sensitivity)
        self.sigma = positive("sigma", sigma)
        self._noise = noise_for(noise, self.replicates).spawn()
        self._scale = self.sigma
        self.event: Event = GaussianEvent(self.sigma, self.sensitivity)
        if isinstance(self._noise, SecureNoise):
            if event is not None:
                raise ParameterError("secure noise has its own accounting event; drop `event`")
            grid = self._noise.set_up(self.sigma, self.sensitivity, self._intake, horizon)
            self.event = self._noise.event(self.sensitivity, self._shape.width, grid, 1.0)
            self._scale = 1.0
        self.event = self.event if event is None else event
        self.cumulative = cumulative
        self.batches = 0
        self._ledger, self._what = ledger, what
        self._group = what if parallel is None else parallel
        self._batch = np.zeros((self.replicates, self._shape.width))
        self._total = np.zeros_like(self._batch)
        self._pending = 0

    @property
    def rounds(self) -> int:
        """Records per replicate so far."""
        return self._intake.rounds

    @property
    def clipped_count(self) -> NDArray[np.int64]:
        """Clipped records per replicate."""
        return self._intake.clipped_count

    @property
    def noise_std(self) -> float:
        """Standard deviation of the last release's noise per coordinate of the row."""
        if self.cumulative:
            return self.sigma * math.sqrt(self.batches)
        return self.sigma if self.batches else 0.0

    def add(self, records: ArrayLike, directions: ArrayLike | None = None) -> None:
        """Adds one record per replicate to the open batch; see `Releaser.add`."""
        self._intake.take(records, directions, self._batch)
        self._pending += 1

    def release(self) -> FloatArray:
        """Closes the batch and returns its noisy sum, ``(B, *shape)``.

        Raises:
            BudgetExceeded: If the ledger refuses; the batch stays open.
            ParameterError: If no record came since the last release.
        """
        if self._pending == 0:
            raise ParameterError("no record since the last release: the batch is empty")
        self._ledger.charge(self.event, what=self._what, parallel=self._group)
        noise = self._noise.normal(self._shape.width)
        if self.cumulative:
            self._total += self._batch + self._scale * noise
            out = self._shape.emit(self._total, noise, 0.0)
        else:
            out = self._shape.emit(self._batch, noise, self._scale)
        self._batch[:] = 0.0
        self._pending = 0
        self.batches += 1
        return out

    def state_dict(self) -> dict[str, Any]:
        """Everything that a checkpoint needs (the ledger has its own)."""
        return {
            "intake": self._intake.state_dict(),
            "noise": self._noise.state_dict(),
            "batch": self._batch.copy(),
            "total": self._total.copy(),
            "pending": self._pending,
            "batches": self.batches,
        }

    def load_state(self, state: dict[str, Any]) -> None:
        """Restores `state_dict`."""
        self._intake.load_state(state["intake"])
        self._noise.load_state(state["noise"])
        self._batch[:] = state["batch"]
        self._total[:] = state["total"]
        self._pending, self.batches = int(state["pending"]), int(state["batches"])
