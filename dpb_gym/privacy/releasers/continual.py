"""Running sums, released again and again with noise that is correlated in time."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dpb_gym import kernels
from dpb_gym.errors import ParameterError
from dpb_gym.privacy.calibration import gaussian_sigma
from dpb_gym.privacy.checks import FloatArray, count, positive
from dpb_gym.privacy.events import Event, GaussianEvent
from dpb_gym.privacy.ledger import Ledger
from dpb_gym.privacy.noise import NoiseSource
from dpb_gym.privacy.releasers.base import Intake, sensitivity_of
from dpb_gym.privacy.releasers.bounds import Bound
from dpb_gym.privacy.releasers.mechanisms import Mechanism, make_mechanism
from dpb_gym.privacy.releasers.shapes import RecordShape
from dpb_gym.privacy.secure import SecureNoise, noise_for


class ContinualSum:
    """The running sum of a stream of records, released at any step.

    Each record enters once, and every record is another unit's. The whole sequence of
    releases is one Gaussian mechanism of sensitivity ``sensitivity * sens`` (`sens`: of the
    mechanism, at unit distance), charged when the releaser is made; it stays private when
    records depend on earlier releases (Denisov, McMahan, Rush, Smith & Thakurta 2022,
    Theorem 2.1).

    Args:
        mechanism: ``"blt"`` (buffered linear Toeplitz, constant memory), ``"sqrt-toeplitz"``
            (square root; memory grows with the number of steps) or ``"binary-tree"``
            (logarithmic memory; about twelve times the variance at 10^4 steps).
        horizon: Largest number of records per replicate; more raise `HorizonExceeded`.
        dim: Length of a vector record.
        symmetric: Instead of `dim`: side d of symmetric matrix records.
        replicates: Number of replicates B.
        clip: Bound of the records; a number is the radius of a ball.
        sensitivity: Overrides the bound's sensitivity; the caller vouches for it.
        participations: Most records that one unit of protection has; needed if the ledger
            protects users (its default is one record). Multiplies the sensitivity.
        rho: zCDP to spend on the whole stream: sigma = sensitivity * sens / sqrt(2 rho), or
        sigma: Standard deviation of the underlying independent normals.
        every: Release interval in rounds: noise is drawn, and the release moves, only every so
            many rounds, so that the mechanism runs over ``horizon // every`` steps. Records
            after the last full interval are never released.
        noise: Source of the noise; the releaser spawns its own stream from it. ``"secure"``
            is available for the binary tree.
        ledger: Charged once, here.
        what: What is released, in words.
        parallel: Name of a parallel group in the ledger, if the records of this stream are
            disjoint from those of the group's other releases.

    Attributes:
        sens: Sensitivity of the mechanism at unit distance.
        sigma: Standard deviation of the underlying normals.
        event: What was charged.
        steps: Number of steps of the mechanism.

    Raises:
        BudgetExceeded: If the ledger refuses.
        ParameterError: If a parameter is out of range, or not exactly one of sigma and rho is
            given.
    """

    def __init__(
        self,
        mechanism: str = "blt",
        *,
        horizon: int,
        dim: int | None = None,
        symmetric: int | None = None,
        replicates: int = 1,
        clip: Bound | float | None = None,
        sensitivity: float | None = None,
        participations: int | None = None,
        rho: float | None = None,
        sigma: float | None = None,
        every: int = 1,
        noise: NoiseSource | SecureNoise | str,
        ledger: Ledger,
        what: str = "running sum",
        parallel: str | None = None,
    ) -> None:
        if (sigma is None) == (rho is None):
            raise ParameterError("give either sigma or rho")
        self._shape = RecordShape.of(dim, symmetric)
        self._intake = Intake(self._shape, replicates, clip, count("horizon", horizon))
        self.replicates = self._intake.replicates
        self.horizon = horizon
        self.every = count("every", every)
        if self.every > horizon:
            raise ParameterError(f"every must be at most the horizon {horizon}; got {every}")
        self.steps = horizon // self.every
        self.sensitivity = sensitivity_of(self._intake.clip, sensitivity, ledger, participations)
        source = noise_for(noise, self.replicates)
        self._mechanism: Mechanism = make_mechanism(
            mechanism, self.steps, source, self.replicates, self._shape.width
        )
        self.mechanism = mechanism
        self.sens = self._mechanism.sens
        if sigma is None:
            assert rho is not None
            sigma = gaussian_sigma(rho, self.sensitivity * self.sens)
        self.sigma = positive("sigma", sigma)
        self._scale = self.sigma
        self.event: Event = GaussianEvent(self.sigma, self.sensitivity * self.sens)
        secure = self._mechanism.secure
        if secure is not None:
            grid = secure.set_up(self.sigma, self.sensitivity, self._intake, horizon)
            self.event = secure.event(self.sensitivity, self._shape.width, grid, self.sens**2)
            self._scale = 1.0
        ledger.charge(self.event, what=what, parallel=parallel)
        self._pending = np.zeros((self.replicates, self._shape.width))
        self._total = np.zeros_like(self._pending)

    @property
    def rounds(self) -> int:
        """Records per replicate so far."""
        return self._intake.rounds

    @property
    def clipped_count(self) -> NDArray[np.int64]:
        """Clipped records per replicate."""
        return self._intake.clipped_count

    def add(self, records: ArrayLike, directions: ArrayLike | None = None) -> None:
        """Adds one record per replicate; see `Releaser.add`."""
        if self.every == 1:
            self._intake.take(records, directions, self._total)
            self._mechanism.advance()
            return
        self._intake.take(records, directions, self._pending)
        if self._intake.rounds % self.every == 0:
            self._mechanism.advance()
            kernels.continual.fold(self._pending, self._total)

    def release(self) -> FloatArray:
        """The noisy sum as of the last full interval, ``(B, *shape)``; before that, zeros.

        Two calls without a full interval between them return the same numbers.
        """
        return self._shape.emit(self._total, self._mechanism.noise, self._scale)

    @property
    def noise_std(self) -> float:
        """Standard deviation of the current release's noise per coordinate of the row.

        For matrices that is the one of the diagonal; off the diagonal it is 1/sqrt(2) of it.
        """
        step = self._intake.rounds // self.every
        return self.sigma * self._mechanism.std(step) if step else 0.0

    @property
    def noise_std_max(self) -> float:
        """Largest `noise_std` over the horizon."""
        return self.sigma * float(np.sqrt(self._mechanism.variances().max()))

    def state_dict(self) -> dict[str, Any]:
        """Everything that a checkpoint needs (the ledger has its own)."""
        return {
            "mechanism": self.mechanism,
            "intake": self._intake.state_dict(),
            "noise": self._mechanism.state_dict(),
            "pending": self._pending.copy(),
            "total": self._total.copy(),
        }

    def load_state(self, state: dict[str, Any]) -> None:
        """Restores `state_dict` into a releaser that was made with the same arguments.

        Raises:
            ParameterError: If the state is of another mechanism or shape.
        """
        if state["mechanism"] != self.mechanism:
            raise ParameterError(f"the state is of {state['mechanism']!r}, not {self.mechanism!r}")
        self._intake.load_state(state["intake"])
        self._mechanism.load_state(state["noise"])
        self._pending[:] = state["pending"]
        self._total[:] = state["total"]
