"""``noise="secure"``: exact discrete Gaussians from the operating system's entropy (OpenDP).

Floating-point normals leak through their low bits and are seeded for repeatability; that is
fine for simulation, not for somebody's data. Here the clipped records are rounded to a grid,
a power of two about 2^-20 of sigma, and integer noise from OpenDP's exact discrete Gaussian
sampler is added in units of the grid. All sums stay below 2^53 grid units, so double
precision adds them without error.

The guarantee: the discrete Gaussian of scale sigma on vectors of integers is zCDP with
``rho = sensitivity^2 / (2 sigma^2)``, like the continuous one (Canonne, Kamath & Steinke 2020,
Theorem 14); rounding moves a record by at most ``grid / 2`` per coordinate, which adds
``grid * sqrt(width)`` to the distance of two records. It is **not** mu-Gaussian-DP, so the
event is a zCDP one and (epsilon, delta) budgets convert less tightly.

It carries over to sums whose noise is added to integers: `GaussianSum`, and `ContinualSum`
with the binary tree. The Toeplitz mechanisms multiply noise by real coefficients before
adding it; they refuse.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from dpb_gym.errors import MissingExtraError, ParameterError
from dpb_gym.privacy.checks import FloatArray, count, positive
from dpb_gym.privacy.events import ZCDPEvent
from dpb_gym.privacy.noise import NoiseSource

if TYPE_CHECKING:
    from dpb_gym.privacy.releasers.base import Intake

GRID_BITS = 20
EXACT_BITS = 52


class SecureNoise:
    """Discrete Gaussian noise on a grid; not seeded, not repeatable.

    Args:
        replicates: Number of replicates B.

    Raises:
        MissingExtraError: If OpenDP is not installed (extra ``[secure]``).
    """

    def __init__(self, replicates: int = 1) -> None:
        try:
            import opendp.prelude as opendp
        except ImportError as error:
            raise MissingExtraError(
                "noise='secure' needs OpenDP; install it with: pip install 'dpb-gym[secure]'"
            ) from error
        self._opendp = opendp
        opendp.enable_features("contrib")
        self.replicates = count("replicates", replicates)
        self.grid = 0.0
        self._measurement: Any = None
        self._units = 0.0

    def spawn(self) -> SecureNoise:
        """Another source for another releaser."""
        return SecureNoise(self.replicates)

    def set_up(
        self, sigma: float, sensitivity: float, intake: Intake, horizon: int | None
    ) -> float:
        """Fixes the scale, makes the intake round to the grid, and returns the grid.

        The scale is sigma, plus what keeps the cost the same although rounding adds to the
        sensitivity (a millionth or so).

        Raises:
            ParameterError: If the horizon is not declared, the records have no bound, or sums
                could leave the exact range of double precision.
        """
        from dpb_gym.privacy.releasers.bounds import Ball, Segment

        if horizon is None:
            raise ParameterError("secure noise needs a declared horizon")
        clip = intake.clip
        if isinstance(clip, Ball):
            largest = clip.radius
        elif isinstance(clip, Segment):
            largest = max(abs(clip.low), abs(clip.high))
        else:
            raise ParameterError("secure noise needs bounded records: give clip")
        self.grid = 2.0 ** (math.floor(math.log2(positive("sigma", sigma))) - GRID_BITS)
        noise_range = 64.0 * sigma * (1 + math.log2(horizon + 1))
        if horizon * (largest + self.grid) + noise_range > self.grid * 2.0**EXACT_BITS:
            raise ParameterError(
                f"sums of {horizon} records of size {largest:g} with noise {sigma:g} leave the "
                "exact range of double precision; secure noise needs more noise or fewer records"
            )
        space = (
            self._opendp.vector_domain(self._opendp.atom_domain(T="i64")),
            self._opendp.l2_distance(T="f64"),
        )
        rounding = self.grid * math.sqrt(intake.shape.width) / sensitivity
        self._units = float(math.ceil(sigma * (1 + rounding) / self.grid))
        self._measurement = self._opendp.m.make_gaussian(*space, scale=self._units)
        intake.grid = self.grid
        return self.grid

    def event(self, sensitivity: float, width: int, grid: float, nodes: float) -> ZCDPEvent:
        """Cost of `nodes` noisy integer vectors that one record enters."""
        distance = sensitivity + grid * math.sqrt(width)
        return ZCDPEvent(nodes * distance**2 / (2 * (self._units * grid) ** 2))

    def normal(self, shape: int) -> FloatArray:
        """Noise (B, width) of the standard deviation fixed by `set_up`, on the grid."""
        if self._measurement is None:
            raise ParameterError("secure noise draws for one releaser only; call set_up first")
        rows = [self._measurement([0] * shape) for _ in range(self.replicates)]
        return np.array(rows, dtype=np.float64) * self.grid

    def state_dict(self) -> dict[str, Any]:
        """Nothing: the next draw is new entropy."""
        return {}

    def load_state(self, state: dict[str, Any]) -> None:
        """Nothing to restore."""


class SecureStream:
    """Steps of secure noise for a continual sum; the counterpart of `NormalStream`."""

    def __init__(self, source: SecureNoise, width: int) -> None:
        self._source = source
        self.width = width
        self.block: FloatArray = np.empty((source.replicates, 1, width))

    def advance(self) -> int:
        """Index of the next step in `block`: always 0, filled afresh."""
        self.block[:, 0, :] = self._source.normal(self.width)
        return 0

    def state_dict(self) -> dict[str, Any]:
        """Nothing: the next draw is new entropy."""
        return {}

    def load_state(self, state: dict[str, Any]) -> None:
        """Nothing to restore."""


def noise_for(noise: NoiseSource | SecureNoise | str, replicates: int) -> NoiseSource | SecureNoise:
    """Resolves the `noise` argument of a releaser.

    Raises:
        ParameterError: If it is neither a source for `replicates` replicates nor ``"secure"``.
        MissingExtraError: If secure noise is asked for without OpenDP.
    """
    if isinstance(noise, str):
        if noise != "secure":
            raise ParameterError(f"noise must be a NoiseSource or 'secure'; got {noise!r}")
        return SecureNoise(replicates)
    if not isinstance(noise, (NoiseSource, SecureNoise)):
        raise ParameterError(f"noise must be a NoiseSource or 'secure'; got {noise!r}")
    if noise.replicates != replicates:
        raise ParameterError(
            f"the noise source has {noise.replicates} replicates; expected {replicates}"
        )
    return noise
