"""Private sums of records: batches, and running sums with noise that is correlated in time."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dpb_gym import kernels, validation
from dpb_gym.errors import ParameterError
from dpb_gym.privacy.calibration import gaussian_sigma
from dpb_gym.privacy.events import Event, GaussianEvent, PoissonGaussianEvent, ZCDPEvent
from dpb_gym.privacy.guarantee import RESPONSES
from dpb_gym.privacy.noise import NoiseSource, grid_of
from dpb_gym.privacy.releasers.base import Releaser
from dpb_gym.privacy.releasers.mechanisms import Mechanism, make_mechanism
from dpb_gym.privacy.releasers.records import Bound, Intake, RecordShape, Segment
from dpb_gym.validation import FloatArray

if TYPE_CHECKING:
    from dpb_gym.privacy.curator import Curator


class Sum(Releaser):
    """Base of the private sums: N(0, sigma^2 I) noise on rows of clipped records.

    A subclass says by `gain` how far one record moves everything that is released, at unit
    distance of two records and in units of sigma, and by `least_weight` the smallest factor that
    a record has in a sum before it is rounded (system noise only).

    Args:
        curator: See `Releaser`.
        width: Length of a vector record.
        symmetric: Instead: side of symmetric matrix records.
        clip: Bound of the records; a number is the radius of a ball.
        reward: Instead: records are numbers in this range times vectors, which count as public
            where the curator protects responses alone (see `Segment`).
        sensitivity: Overrides the bound's sensitivity; the caller vouches for it.
        participations: Most records that one unit of protection has; needed if users are
            protected (erratum R10). Multiplies the sensitivity.
        horizon: Largest number of records per replicate; the curator's by default.
        sigma: Noise of the caller's own, instead of a share of the budget; charged at its true
            cost.
        share: See `Releaser`.
        what: See `Releaser`.

    Attributes:
        sensitivity: Largest 2-norm distance between the records of two neighbours.
        sigma: Standard deviation of the noise per coordinate of the row; 0 if exact.
        law: ``"gaussian"``; ``"laplace"`` of a subclass that adds such noise instead.

    Raises:
        ParameterError: If a parameter is out of range, or the records have no bound.
    """

    law = "gaussian"
    gain = 1.0
    least_weight = 1.0

    def __init__(
        self,
        curator: Curator,
        width: int | None = None,
        *,
        symmetric: int | None = None,
        clip: Bound | float | None = None,
        reward: tuple[float, float] | None = None,
        sensitivity: float | None = None,
        participations: int | None = None,
        horizon: int | None = None,
        sigma: float | None = None,
        share: float | None = None,
        what: str = "sum",
    ) -> None:
        if reward is not None:
            clip = Segment(*reward)
        self.shape = RecordShape(width or 0, symmetric or 0)
        horizon = curator.horizon if horizon is None else horizon
        self.intake = Intake(self.shape, curator.replicates, clip, horizon)
        self._participations = participations
        self.sensitivity = self._distance(curator, sensitivity)
        self._printed = (
            None if sigma is None else validation.real("sigma", sigma, 0.0, open_low=True)
        )
        self._sigma = 0.0
        self._total = np.zeros((curator.replicates, self.shape.width))
        self._released = np.zeros_like(self._total)
        super().__init__(curator, share=share, what=what)

    def _distance(self, curator: Curator, given: float | None) -> float:
        """Replace-one distance of two units: `participations` records, each at most this far."""
        times = (
            1
            if self._participations is None
            else validation.integer("participations", self._participations, 1)
        )
        if given is not None:
            return validation.real("sensitivity", given, 0.0, open_low=True) * times
        if self.intake.clip is None:
            if not curator.private:
                return math.inf
            raise ParameterError("give clip (a bound of the records) or an explicit sensitivity")
        per_person = curator.private and curator.unit in ("user", "user-rewards")
        if per_person and self._participations is None:
            raise ParameterError(
                "users are protected, who may have several records: give participations (the "
                "most records of one user), or an explicit sensitivity"
            )
        return self.intake.clip.sensitivity(curator.relation, curator.unit in RESPONSES) * times

    def _scales(self, rho: float) -> tuple[float, float, Event]:
        """sigma, grid (0: none) and cost when `rho` is spent.

        System noise lives on a grid: rounding moves each of a unit's records by up to half a
        cell per coordinate, relative to its weight.
        """
        sigma = self._printed or gaussian_sigma(rho, self.sensitivity * self.gain)
        if not self.curator.system_noise:
            return sigma, 0.0, GaussianEvent(sigma, self.sensitivity * self.gain)
        grid = grid_of(sigma)
        rounding = grid * math.sqrt(self.shape.width) / self.least_weight
        distance = self.gain * (self.sensitivity + (self._participations or 1) * rounding)
        sigma = self._printed or gaussian_sigma(rho, distance)
        sigma = math.ceil(sigma / grid) * grid
        return sigma, grid, ZCDPEvent(0.5 * (distance / sigma) ** 2)

    @property
    def value(self) -> FloatArray:
        """The newest release, ``(B, *shape)``; zeros before the first."""
        if not self.shape.symmetric:
            return self._released.copy()
        return self.shape.emit(self._released, self._released, 0.0)

    def cost(self, rho: float) -> Event:
        return self._scales(rho)[2]

    def open(self, rho: float | None, noise: NoiseSource) -> None:
        self._noise = noise
        if rho is not None:
            self._sigma, self.intake.grid, _ = self._scales(rho)
            noise.use_grid(self.intake)

    @property
    def sigma(self) -> float:
        self.ready()
        return self._sigma

    @property
    def rounds(self) -> int:
        """Records per replicate so far."""
        return self.intake.rounds

    @property
    def clipped_count(self) -> NDArray[np.int64]:
        """Clipped records per replicate: a raw statistic, for debugging only."""
        return self.intake.clipped_count

    def add(self, records: ArrayLike, along: ArrayLike | None = None) -> None:
        """Ingests one record per replicate.

        Args:
            records: ``(B, *shape)``; with `along`, one number per replicate ``(B,)``.
            along: Public vectors ``(B, width)`` that the numbers multiply. Of symmetric sums:
                vectors v ``(B, d)`` or ``(B, K, d)`` whose squares the numbers weigh, so the record
                is ``number * sum v v'``, checked faster than a matrix; neither need be public.

        Raises:
            HorizonExceeded: Beyond the declared horizon; nothing changes.
            ParameterError: On a wrong shape (of replicates included), NaN or infinity, or a
                matrix that is not symmetric or positive semidefinite although promised;
                nothing changes.
        """
        self.ready()
        self.intake.take(records, along, self._total)


class BatchSum(Sum):
    """The sum of a batch of records plus N(0, sigma^2 I), batch after batch (RU, Algorithm 1).

    Each `release` closes a batch: the records since the last one. A record is in one batch, so
    the releases are over disjoint records: together they cost what one of them does, whenever
    they come, as long as that does not depend on the records of the open batch.

    Args:
        curator: See `Sum`; also for what is not named here.
        width: See `Sum`.
        cumulative: True: a release is the sum of all noisy batches so far (the noise
            accumulates, erratum R5); False: the batch just closed.
        sampling: q: each record enters with probability q, by a secret bit, and the sums are
            divided by q (RU, section 3.2). An (epsilon, delta) budget is accounted with the exact
            profile of the sampled mechanism, in which a unit has one record; zCDP holds at every
            order, where sampling does not help, so its noise is that without.
        **options: See `Sum`.
    """

    def __init__(
        self,
        curator: Curator,
        width: int | None = None,
        *,
        cumulative: bool = False,
        sampling: float = 1.0,
        **options: object,
    ) -> None:
        options.setdefault("what", "sums of disjoint batches")
        super().__init__(curator, width, **options)  # type: ignore[arg-type]
        self.cumulative = cumulative
        self.sampling = validation.real("sampling", sampling, 0.0, 1.0, open_low=True)
        self.batches = 0
        self._held = self._aged = 0  # batches in a cumulative release, and those of old blocks
        self._at = 0
        self._block = np.zeros_like(self._released)
        single = self._participations in (None, 1) and curator.unit in RESPONSES
        if self.sampling < 1 and not (single and isinstance(self.intake.clip, Segment)):
            raise ParameterError(
                "sampling is for rewards along public directions, one record of each unit"
            )
        if self.sampling < 1 and curator.system_noise:
            raise ParameterError("sampling needs noise='seeded': its accounting is continuous")

    def cost(self, rho: float) -> Event:
        sigma, _, event = self._scales(rho)
        if self.sampling == 1:
            return event
        clip = self.intake.clip
        assert isinstance(clip, Segment)
        longest = max(abs(clip.low), abs(clip.high))
        symmetric = math.isclose(2 * longest, self.sensitivity)
        # a record may also be left out altogether, which moves the sum by its own length
        distance = self.sensitivity if symmetric else max(self.sensitivity, longest)
        pair = "symmetric" if symmetric else "zero-out"
        return PoissonGaussianEvent(self.sampling, sigma, distance, 1, pair)

    def open(self, rho: float | None, noise: NoiseSource) -> None:
        super().open(rho, noise)
        if rho is None:
            self.sampling = 1.0
        self._bits = noise.spawn() if self.sampling < 1 else None

    @property
    def noise_std(self) -> float:
        """Standard deviation of the last release's noise per coordinate of the row."""
        batches = self._held if self.cumulative else min(self.batches, 1)
        return self.sigma * math.sqrt(batches) / self.sampling

    def add(self, records: ArrayLike, along: ArrayLike | None = None) -> None:
        self.ready()
        if self._bits is not None:
            assert along is not None
            included = self._bits.uniform() < self.sampling
            along = np.where(included[:, None], along, 0.0)
        self.intake.take(records, along, self._total)

    def _noisy(self) -> FloatArray:
        """The open batch's rows with noise."""
        return self._total + self._noise.gaussian(self._sigma, self.shape.width)

    def release(self) -> FloatArray:
        """Closes the batch and returns its noisy sum, ``(B, *shape)``.

        Raises:
            ParameterError: If no record came since the last release.
        """
        if self.intake.rounds == self._at:
            raise ParameterError("no record since the last release: the batch is empty")
        rows = self._noisy() if self._sigma else self._total
        if self.sampling < 1:
            rows = rows / self.sampling
        self._released = self._released + rows if self.cumulative else rows.copy()
        self._total[:] = 0.0
        self._at = self.intake.rounds
        self.batches += 1
        self._held += 1
        return self.value

    def forget(self) -> FloatArray:
        """Ends a block of batches: the one before it leaves this and all later cumulative releases.

        What was released already is subtracted, noise and all, so this costs nothing, and the
        noise that is left is that of the batches that are left. Returns the newest release.

        Raises:
            ParameterError: If releases are not cumulative.
        """
        if not self.cumulative:
            raise ParameterError("only cumulative sums have something to forget")
        self._released = self._released - self._block
        self._block = self._released.copy()
        self._held -= self._aged
        self._aged = self._held
        return self.value


class RunningSum(Sum):
    """The running sum of a stream of records, readable at any step.

    Each record enters once. The whole sequence of releases is one Gaussian mechanism of
    sensitivity ``sensitivity * gain`` (`gain`: of the mechanism, at unit distance); it stays
    private when records depend on earlier releases (Denisov, McMahan, Rush, Smith & Thakurta
    2022, Theorem 2.1).

    Args:
        curator: See `Sum`; also for what is not named here.
        width: See `Sum`.
        mechanism: ``"blt"`` (buffered linear Toeplitz, constant memory), ``"sqrt-toeplitz"``
            (square root; memory grows with the number of steps) or ``"binary-tree"``
            (logarithmic memory; about twelve times the variance at 10^4 steps). None: ``"blt"``,
            or with system noise the tree, the only one whose noise adds up on a grid.
        every: Release interval in rounds: noise is drawn, and the release moves, only every so
            many rounds, so that the mechanism runs over ``horizon // every`` steps. Records
            after the last full interval are never released.
        **options: See `Sum`. The horizon must be known.

    Attributes:
        gain: Sensitivity of the mechanism at unit distance.
        steps: Number of steps of the mechanism.

    Raises:
        ParameterError: If a parameter is out of range.
    """

    def __init__(
        self,
        curator: Curator,
        width: int | None = None,
        *,
        mechanism: str | None = None,
        every: int = 1,
        **options: object,
    ) -> None:
        options.setdefault("what", "running sum")
        super().__init__(curator, width, **options)  # type: ignore[arg-type]
        horizon = validation.integer("horizon", self.intake.horizon, 1)
        self.every = validation.integer("every", every, 1)
        if self.every > horizon:
            raise ParameterError(f"every must be at most the horizon {horizon}; got {every}")
        self.steps = horizon // self.every
        self.mechanism = mechanism or ("binary-tree" if curator.system_noise else "blt")
        self._running = False
        if curator.private:
            self._mechanism: Mechanism = make_mechanism(self.mechanism, self.steps)
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
        self._running = rho is not None
        if self._running:
            on_grid = self._sigma if self.curator.system_noise else 0.0
            self._mechanism.start(noise.stream(self.shape.width, on_grid))
            self._scale = 1.0 if on_grid else self._sigma

    def add(self, records: ArrayLike, along: ArrayLike | None = None) -> None:
        self.ready()
        if self.every == 1:
            self.intake.take(records, along, self._total)
        else:
            self.intake.take(records, along, self._pending)
            if self.intake.rounds % self.every:
                return
            kernels.continual.fold(self._pending, self._total)
        if self._running:
            self._mechanism.advance()

    @property
    def value(self) -> FloatArray:
        """The noisy sum as of the last full interval, ``(B, *shape)``; before that, zeros.

        Two reads without a full interval between them are the same numbers.
        """
        self.ready()
        noise = self._mechanism.noise if self._running else self._total
        return self.shape.emit(self._total, noise, self._scale)

    @property
    def noise_std(self) -> float:
        """Standard deviation of the current release's noise per coordinate of the row."""
        step = self.intake.rounds // self.every
        return self.sigma * self._mechanism.std(step) if step and self.sigma else 0.0

    @property
    def variances(self) -> FloatArray:
        """Variance of the noise at every step, at sigma = 1, ``(steps,)``; of a private sum."""
        return self._mechanism.variances()

    def noise_matrix(self, steps: int) -> FloatArray:
        """How independent normals make the noise of the first releases of a private sum, at
        sigma = 1, ``(steps, normals)``."""
        return self._mechanism.matrix(steps)

    @property
    def noise_std_max(self) -> float:
        """Largest standard deviation over all releases."""
        if self.sigma == 0:
            return 0.0
        return self.sigma * math.sqrt(float(self.variances.max()))
