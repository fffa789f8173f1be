"""Running sums of records, released at any step with correlated noise."""

from __future__ import annotations

import math
from typing import ClassVar

import numpy as np
from numpy.typing import ArrayLike

from dpb_gym import validation
from dpb_gym.errors import ParameterError
from dpb_gym.overrides import overridden
from dpb_gym.privacy.noise import NoiseSource
from dpb_gym.privacy.releasers.correlated_noise import make_mechanism
from dpb_gym.privacy.releasers.record_bounds import RecordShape
from dpb_gym.privacy.releasers.releaser import CuratorProtocol
from dpb_gym.privacy.releasers.sums import Sum
from dpb_gym.validation import FloatArray


class RunningSum(Sum):
    """Running sum of a stream of records, readable at any step.

    Each record enters once. The whole sequence of releases is one Gaussian mechanism of
    sensitivity ``sensitivity * gain``. The guarantee also holds if records depend on earlier
    releases (Denisov, McMahan, Rush, Smith & Thakurta 2022, Theorem 2.1).

    Args:
        mechanism: ``"blt"`` (buffered linear Toeplitz, constant memory), ``"sqrt-toeplitz"``
            (square root; memory grows with the number of steps) or ``"binary-tree"``
            (logarithmic memory; about twelve times the variance at 10^4 steps). None: ``"blt"``,
            or with system noise the tree, whose noise alone stays on a grid.
        every: Release interval in rounds. Noise is drawn and the release changes once per
            interval, so the mechanism runs over ``horizon // every`` steps. Records after the
            last full interval are never released.
        **options: Further parameters of `Sum`. The horizon must be known.

    Attributes:
        gain: Sensitivity of the mechanism at unit distance.
        steps: Number of steps of the mechanism.

    Raises:
        ParameterError: If a parameter is out of range.
    """

    evolves: ClassVar[tuple[str, ...]] = ("_pending",)

    def __init__(
        self,
        curator: CuratorProtocol,
        width: int | RecordShape,
        *,
        mechanism: str | None = None,
        every: int = 1,
        **options: object,
    ) -> None:
        options.setdefault("what", "running sum")
        super().__init__(curator, width, **options)  # type: ignore[arg-type]
        horizon = validation.integer("horizon", self.horizon, 1)
        self.every = validation.integer("every", every, 1)
        if self.every > horizon:
            raise ParameterError(f"every must be at most the horizon {horizon}; got {every}")
        self.steps = horizon // self.every
        self.mechanism = mechanism or ("binary-tree" if curator.system_noise else "blt")
        self._mechanism = make_mechanism(self.mechanism, self.steps)
        self.gain = self._mechanism.gain
        if curator.system_noise and self.mechanism != "binary-tree":
            raise ParameterError(
                f"system noise is not available for {self.mechanism!r}: it weighs noise by real "
                "numbers, and the guarantee of noise on a grid does not carry over; use "
                "'binary-tree'"
            )
        self._pending = np.zeros_like(self._total)
        self._scale = 0.0

    def open(self, rho: float | None, noise: NoiseSource) -> None:
        super().open(rho, noise)
        if self._sigma:
            draws = noise.stream(self.shape.width, self._sigma if self.grid else 0.0)
            self._mechanism.start(draws, (self.replicates, self.shape.width))
            self._scale = 1.0 if self.grid else self._sigma

    def _add(self, records: ArrayLike, along: ArrayLike | None) -> None:
        self._take(records, along, self._total if self.every == 1 else self._pending)
        self._advance_if_due()

    def add_rounds(self, records: FloatArray, along: FloatArray | None = None) -> None:
        self.ready()
        within = len(records) <= self.every - self.rounds % self.every  # the interval
        if self.every == 1 or not within or along is None or overridden(self, "add_rounds", "add"):
            super().add_rounds(records, along)
        else:
            self._take_rounds(records, along, self._pending)
            self._advance_if_due()

    def _advance_if_due(self) -> None:
        """Add the interval's records to the sum and draw its noise, at the interval's end."""
        if self.rounds % self.every:
            return
        if self.every > 1:
            self._total += self._pending
            self._pending[:] = 0.0
        if self._scale:
            self._mechanism.advance()

    @property
    def value(self) -> FloatArray:
        """Noisy sum at the end of the last full interval, ``(B, *shape)``; zeros before the first.

        It changes once per interval only.
        """
        self.ready()
        noise = self._mechanism.noise if self._scale else self._total
        return self.shape.emit(self._total, noise, self._scale)

    @property
    def noise_std(self) -> float:
        """Standard deviation of the current release's noise per coordinate of the row."""
        step = self.rounds // self.every
        if not (step and self.sigma):
            return 0.0
        return self.sigma * math.sqrt(float(self._mechanism.variances(step)[-1]))

    @property
    def variances(self) -> FloatArray:
        """Variance of the noise at every step at sigma = 1, ``(steps,)``."""
        return self._mechanism.variances(self.steps)

    def noise_matrix(self, steps: ArrayLike) -> FloatArray:
        """Return the linear map from independent normals to the noise of some releases.

        Args:
            steps: Numbers of the steps ``(n,)``, from 1; a number n stands for the first n.

        Returns:
            Weights ``(n, normals)`` at sigma = 1.
        """
        return self._mechanism.matrix(steps)

    @property
    def noise_std_max(self) -> float:
        """Largest standard deviation of the noise over all releases."""
        return 0.0 if self.sigma == 0 else self.sigma * math.sqrt(float(self.variances.max()))
