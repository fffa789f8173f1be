"""Base class of the private sums of clipped records."""

from __future__ import annotations

import math
from typing import ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dpb_gym import kernels, validation
from dpb_gym.errors import HorizonExceeded, ParameterError, shown
from dpb_gym.privacy.calibration import gaussian_sigma
from dpb_gym.privacy.events import Event, GaussianEvent, ZCDPEvent
from dpb_gym.privacy.guarantee import RESPONSES, ROUNDS
from dpb_gym.privacy.noise import NoiseSource, SystemNoise, grid_of
from dpb_gym.privacy.releasers.contributions import ContributionCap
from dpb_gym.privacy.releasers.record_bounds import (
    Ball,
    Bound,
    NonNegativeBall,
    PSDBall,
    RecordShape,
    Segment,
)
from dpb_gym.privacy.releasers.releaser import CuratorProtocol, Releaser
from dpb_gym.validation import FloatArray

# Limits of a number times a direction, and of the direction's norm, without a segment.
NO_ENDS = (-math.inf, math.inf, math.inf)


class Sum(Releaser):
    """Base of the private sums: N(0, sigma^2 I) noise on rows of clipped records.

    A subclass sets `gain`, the sensitivity of all its releases together at unit distance of two
    records. For system noise it sets `least_weight`, the smallest factor of a record in a sum
    before rounding.

    Args:
        curator: See `Releaser`.
        width: Length of a vector record, or the shape of a symmetric matrix record.
        clip: Bound of the records; a number is the radius of a ball.
        reward: Instead of `clip`: records are numbers in this range times vectors. The vectors
            are public if the curator protects responses only (see `Segment`).
        sensitivity: Overrides the bound's sensitivity, for records of a special form. The guarantee
            then says that it is declared. A `Ball` is shortened to this radius.
        limit: Most records of one user that enter. The releaser counts them by the user ids that
            `add` gets and ignores later ones. Multiplies the sensitivity (erratum R10).
        participations: Instead of `limit`, a number that the releaser does not enforce: if users
            are protected, the guarantee is declared.
        horizon: Largest number of records per replicate; by default the curator's.
        sigma: Standard deviation of the noise, instead of a share of the budget; charged at its
            true cost.
        share: See `Releaser`.
        what: See `Releaser`.

    Attributes:
        basis: See `Guarantee`: "declared" if the sensitivity rests on a number that the releaser
            does not enforce.
        sensitivity: Largest 2-norm distance between the records of two neighbours.
        sigma: Standard deviation of the noise per coordinate of the row; 0 if exact.
        rounds: Records per replicate so far.
        clipped_count: Clipped records per replicate. Not private; for debugging only.
        grid: Records are rounded to multiples of it (system noise only), or 0.
        law: ``"gaussian"``, or ``"laplace"`` in a subclass that adds Laplace noise.
        refuses_long: Whether `add` rejects a direction longer than 1. True where directions are
            public and without a budget. A protected one is clipped, as an error would disclose it.

    Raises:
        ParameterError: If a parameter is out of range, or the records have no bound.
    """

    evolves: ClassVar[tuple[str, ...]] = ("rounds", "clipped_count", "_total", "_released", "_rows")
    law = "gaussian"
    gain = 1.0
    least_weight = 1.0
    enforces = False
    """Whether the class itself enforces the `sensitivity` that it passes on."""

    def __init__(
        self,
        curator: CuratorProtocol,
        width: int | RecordShape,
        *,
        clip: Bound | float | None = None,
        reward: tuple[float, float] | None = None,
        sensitivity: float | None = None,
        limit: int | None = None,
        participations: int | None = None,
        horizon: int | None = None,
        sigma: float | None = None,
        share: float | None = None,
        what: str = "sum",
    ) -> None:
        self.shape = width if isinstance(width, RecordShape) else RecordShape(width)
        if reward is not None:
            clip = Segment(*reward)
        elif clip is not None and not isinstance(clip, (Ball, Segment)):
            clip = Ball(validation.real("clip", clip, 0.0, open_low=True))
        if clip is not None and type(clip) not in (Ball, Segment, NonNegativeBall, PSDBall):
            raise ParameterError(
                f"clip must be a Ball, Segment, NonNegativeBall or PSDBall, got {shown(clip)}; a "
                "class of another package could change its bound"
            )
        vectors = (Segment, NonNegativeBall)
        if isinstance(clip, vectors if self.shape.symmetric else PSDBall):
            raise ParameterError(
                "Segment and NonNegativeBall bound vectors, PSDBall symmetric matrices, Ball either"
            )
        horizon = curator.horizon if horizon is None else horizon
        self.horizon = None if horizon is None else validation.integer("horizon", horizon, 1)
        self.clip = clip
        self._side = self.shape.symmetric or self.shape.width
        self._radius = clip.radius if isinstance(clip, Ball) else math.inf
        self.refuses_long = curator.unit in RESPONSES or not curator.private
        self.rounds, self.grid = 0, 0.0
        self.clipped_count: NDArray[np.int64] = np.zeros(curator.replicates, np.int64)
        self._cap = None if limit is None else ContributionCap(limit, curator.replicates)
        self._participations = participations if limit is None else limit
        self.records_per_unit = self._participations or 1
        self.sensitivity = self._distance(curator, sensitivity, what)
        self._printed = validation.optional(validation.real, "sigma", sigma, 0.0, open_low=True)
        self._sigma = 0.0
        self._total = np.zeros((curator.replicates, self.shape.width))
        self._released, self._rows = np.zeros_like(self._total), np.empty_like(self._total)
        super().__init__(curator, share=share, what=what)

    def _distance(self, curator: CuratorProtocol, given: float | None, what: str) -> float:
        """Return the largest distance of two units: `limit` times that of two records."""
        most, clip = self._participations, self.clip
        times = 1 if most is None else validation.integer("participations", most, 1)
        apart = math.inf
        if clip is not None:
            apart = clip.sensitivity(curator.relation, curator.unit in RESPONSES)
        elif curator.private and (given is None or not curator.ledger.disclosed):
            raise ParameterError(
                f"{what}: give clip or reward. A sum has the sensitivity of a bound that its "
                "releaser enforces"
            )
        protected = curator.private and not self.enforces
        users = protected and curator.unit in ("user", "user-rewards")
        if users and most is None and given is None:
            raise ParameterError(
                "users are protected, who may have several records: give limit (the most records "
                "of one user that enter), or an explicit sensitivity"
            )
        if given is None:
            found, typed = apart, f"at most {most} records"
        else:
            found = validation.real("sensitivity", given, 0.0, open_low=True)
            typed = f"sensitivity {found:g}"
        if users and self._cap is None:
            self.basis = f"declared ({what}: {typed} of a user)"
        elif protected and found < apart * (1.0 - kernels.continual.ROUNDING):
            if type(clip) is Ball:
                self._radius = min(self._radius, found)
                self.proviso = f"declared: {typed} of {what}"
            else:
                self.basis = f"declared ({what}: {typed})"
        return found * times

    def _scales(self, rho: float) -> tuple[float, float, Event]:
        """Return sigma, the grid (0: none) and the cost of spending `rho`.

        System noise lies on a grid. Rounding moves each of a unit's records by up to half a cell
        per coordinate, relative to its weight.
        """
        sigma = self._printed or gaussian_sigma(rho, self.sensitivity * self.gain)
        if not self.curator.system_noise:
            return sigma, 0.0, GaussianEvent(sigma, self.sensitivity * self.gain)
        grid = grid_of(sigma)
        rounding = grid * math.sqrt(self.shape.width) / self.least_weight
        distance = self.gain * (self.sensitivity + self.records_per_unit * rounding)
        sigma = self._printed or gaussian_sigma(rho, distance)
        sigma = math.ceil(sigma / grid) * grid
        return sigma, grid, ZCDPEvent(0.5 * (distance / sigma) ** 2)

    @property
    def per_round(self) -> int:
        """Number of records of one round that the sensitivity covers.

        If users are protected, `participations` and `limit` count a user's rounds.
        """
        return self.records_per_unit if self.curator.unit in ROUNDS else 1

    @property
    def value(self) -> FloatArray:
        """Newest release, ``(B, *shape)``; zeros before the first."""
        if not self.shape.symmetric:
            return self._released.copy()
        return self.shape.emit(self._released, self._released, 0.0)

    def cost(self, rho: float) -> Event:
        return self._scales(rho)[2]

    def open(self, rho: float | None, noise: NoiseSource) -> None:
        self._noise = noise
        if rho is not None:
            self._sigma, self.grid, _ = self._scales(rho)
        if self.grid and isinstance(noise, SystemNoise):
            longest = None if self.clip is None else self.clip.longest
            noise.use_grid(self.grid, self.horizon, longest)

    @property
    def sigma(self) -> float:
        self.ready()
        return self._sigma

    def add(
        self, records: ArrayLike, along: ArrayLike | None = None, users: ArrayLike | None = None
    ) -> None:
        """Add one record per replicate.

        Args:
            records: ``(B, *shape)``; with `along`, one number per replicate ``(B,)``.
            along: Public vectors ``(B, width)`` that the numbers multiply. For symmetric
                records: vectors v ``(B, d)`` or ``(B, K, d)``, public or not; the record is
                ``number * sum v v'``.
            users: User ids ``(B,)``, needed with a `limit`; -1 where nobody has a record. Every
                record of a user counts, also one of zeros: that it is zero can be protected.
                Public directions of zeros do not count.

        Raises:
            HorizonExceeded: Beyond the declared horizon; nothing changes.
            ParameterError: On a wrong shape, NaN or infinity, a direction longer than 1 (see
                `refuses_long`), or a matrix that is not symmetric or, for a `PSDBall`, not
                positive semidefinite; nothing changes.
        """
        self.ready()
        if self._cap is not None:
            counted = None
            if along is not None and self.curator.unit in RESPONSES:
                counted = np.asarray(along).reshape(self.replicates, -1).any(axis=1)
            late = ~self._cap.admit(users, counted)
            records = np.where(late.reshape(-1, *[1] * (np.ndim(records) - 1)), 0.0, records)
        self._add(records, along)

    def _add(self, records: ArrayLike, along: ArrayLike | None) -> None:
        """Add one record per replicate that users' limits admit."""
        self._take(records, along, self._total)

    def add_rounds(self, records: FloatArray, along: FloatArray | None = None) -> None:
        """Ingest the records of several rounds, as `add` does one round after another.

        Args:
            records: Numbers ``(n, B)``, or without directions rows ``(n, B, width)``.
            along: Their directions ``(n, B, width)``.
        """
        for t, record in enumerate(records):
            self.add(record, None if along is None else along[t])

    def _take_rounds(self, records: FloatArray, along: FloatArray | None, into: FloatArray) -> None:
        """Add n rounds' clipped vectors, or squares of vectors, to the rows `into`; see `_take`."""
        self._check_room(len(records))
        if self._cap is not None:
            self._cap.admit(None)  # raises: there are no user ids
        clip, codes = self.clip, kernels.continual
        ball = (self._radius, self.grid, into, self.clipped_count)
        if along is None:
            if isinstance(clip, NonNegativeBall):
                records = np.maximum(records, 0.0)
            _raise_for(codes.add_clipped_rounds(records, *ball))
        elif self.shape.symmetric:
            vectors = along.reshape(*along.shape[:2], -1, self._side)
            psd = isinstance(clip, PSDBall)
            _raise_for(codes.add_squares_rounds(records, vectors, psd, *ball))
        else:
            ends = self._ends(along)
            _raise_for(codes.add_scaled_rounds(records, along, *ends, *ball))
        self.rounds += len(records)

    def _ends(self, along: FloatArray) -> tuple[float, float, float]:
        """Return the range of numbers and the norm of directions; see `refuses_long`."""
        clip, most = self.clip, (1.0 + kernels.continual.COUNTED) ** 2
        if not isinstance(clip, Segment):
            return NO_ENDS
        # of one record the sum is faster; of many it is in vain and starts BLAS's threads
        single = along.ndim == 2
        if self.refuses_long and not (single and np.vdot(along, along) <= most):
            squares = np.einsum("...i,...i->...", along, along)
            # the kernels reject NaN and infinity
            if not squares.max() <= most and np.isfinite(along).all():
                *earlier, replicate = np.unravel_index(squares.argmax(), squares.shape)
                raise ParameterError(
                    f"{self.what}: the direction of record {self.rounds + sum(earlier) + 1} of "
                    f"replicate {replicate} has length {math.sqrt(squares.max()):.4g}; at most 1 "
                    "is allowed. Divide directions by a bound L of their lengths, multiply numbers "
                    f"by L, and declare reward=({clip.low:g} * L, {clip.high:g} * L)"
                )
        return clip.low, clip.high, 1.0

    def _check_room(self, rounds: int) -> None:
        """Raise HorizonExceeded if so many more rounds were not declared."""
        if self.horizon is not None and self.rounds + rounds > self.horizon:
            raise HorizonExceeded(
                f"this releaser was declared for {self.horizon} records per replicate; "
                "nothing was released"
            )

    def _take(self, value: ArrayLike, along: ArrayLike | None, into: FloatArray) -> None:
        """Add one round's clipped records to the rows `into` (B, width); see `add`."""
        self._check_room(1)
        B, codes, clip = self.replicates, kernels.continual, self.clip
        psd, segment = isinstance(clip, PSDBall), isinstance(clip, Segment)
        ball = (self._radius, self.grid, into, self.clipped_count)
        if isinstance(clip, NonNegativeBall):
            if along is not None:
                raise ParameterError("records bounded by a NonNegativeBall have no directions")
            value = np.maximum(value, 0.0)
        if along is not None:
            vectors = _array("directions", along, (B, *np.shape(along)[1:-1], self._side))
            numbers = _array("values", value, (B,))
            if self.shape.symmetric and vectors.ndim <= 3:
                status = codes.add_squares(numbers, vectors.reshape(B, -1, self._side), psd, *ball)
            elif vectors.ndim == 2:
                status = codes.add_scaled(numbers, vectors, *self._ends(vectors), *ball)
            else:
                raise ParameterError(
                    f"directions have too many axes: their shape is {vectors.shape}"
                )
        elif segment:
            raise ParameterError("records bounded by a Segment need their directions")
        else:
            rows = _array("records", value, (B, *self.shape.shape))
            if self.shape.symmetric:
                shift = codes.PSD_TOLERANCE * min(self._radius, 1e300)
                _raise_for(codes.pack_symmetric(rows, psd, shift, self._rows))
                rows = self._rows
            status = codes.add_clipped(rows, *ball)
        _raise_for(status)
        self.rounds += 1

    def _rounded(self, rows: FloatArray) -> FloatArray:
        """Return the rows rounded to the grid, if there is one."""
        return np.floor(rows / self.grid + 0.5) * self.grid if self.grid else rows


def _raise_for(status: int) -> None:
    codes = kernels.continual
    if status == codes.NOT_FINITE:
        raise ParameterError("records must be finite; got NaN or infinity")
    if status == codes.NOT_SYMMETRIC:
        raise ParameterError("matrix records must be symmetric (to 1e-9 of the largest entry)")
    if status == codes.NOT_PSD:
        raise ParameterError(
            "a matrix record is not positive semidefinite, as its bound promises; use Ball for "
            "general symmetric matrices"
        )


def _array(name: str, value: ArrayLike, shape: tuple[int, ...]) -> FloatArray:
    array = np.ascontiguousarray(validation.numbers(name, value))
    if array.shape != shape:
        raise ParameterError(
            f"{name} must have shape {shape} (replicates first); got {array.shape}"
        )
    return array
