"""Records: their shape as flat rows, the bounds they are clipped to, and the intake."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dpb_gym import kernels, validation
from dpb_gym.errors import HorizonExceeded, ParameterError
from dpb_gym.validation import FloatArray


@dataclass(frozen=True)
class RecordShape:
    """Shape of one record: a vector of `dim` numbers or a symmetric matrix.

    A symmetric d x d matrix becomes a row of d (d + 1) / 2 numbers, its upper triangle row by
    row with the off-diagonal entries times sqrt(2), so that the 2-norm of the row is the
    Frobenius norm. Equal noise on the row is then GOE noise on the matrix: the off-diagonal
    variance is half of the diagonal's.

    Attributes:
        dim: Length of a vector record, or 0.
        symmetric: Side of a symmetric matrix record, or 0.
    """

    dim: int = 0
    symmetric: int = 0

    def __post_init__(self) -> None:
        if (self.dim == 0) == (self.symmetric == 0):
            raise ParameterError(
                "give either dim (vectors) or symmetric (side of symmetric matrices); got "
                f"dim={self.dim!r}, symmetric={self.symmetric!r}"
            )
        validation.integer("dim" if self.dim else "symmetric", self.dim or self.symmetric, 1)

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of one record as the user sees it."""
        return (self.symmetric, self.symmetric) if self.symmetric else (self.dim,)

    @property
    def width(self) -> int:
        """Numbers per record in a row."""
        return self.symmetric * (self.symmetric + 1) // 2 if self.symmetric else self.dim

    def emit(self, rows: FloatArray, noise: FloatArray, scale: float) -> FloatArray:
        """``rows + scale * noise``, both (B, width), as fresh records ``(B, *shape)``."""
        out = np.empty((rows.shape[0], *self.shape))
        if self.symmetric:
            kernels.continual.emit_symmetric(rows, noise, scale, out)
        else:
            kernels.continual.emit(rows, noise, scale, out)
        return out


@dataclass(frozen=True)
class Ball:
    """Records of 2-norm (Frobenius norm for matrices) at most `radius`.

    Replace-one sensitivity ``2 radius``; add-remove ``radius``.

    Attributes:
        radius: Largest norm; longer records are scaled down to it.
        apart: Replace-one distance of two records at most, in radii.
    """

    radius: float
    apart: ClassVar[float] = 2.0

    def __post_init__(self) -> None:
        validation.real("radius", self.radius, 0.0, open_low=True)

    def sensitivity(self, relation: str = "replace-one", public: bool = True) -> float:
        """Largest distance between two records, or of a record from zero."""
        return self.radius * (self.apart if relation == "replace-one" else 1.0)


@dataclass(frozen=True)
class PSDBall(Ball):
    """Positive semidefinite matrices of Frobenius norm at most `radius`.

    Replace-one sensitivity ``sqrt(2) radius``: the inner product of two positive semidefinite
    matrices is not negative. A Gram matrix of a vector of norm c has Frobenius norm c^2; the
    Gram matrix of K vectors of norm at most 1 may have norm K (erratum A1), hence sensitivity
    ``sqrt(2) K``. The releaser rejects records that are not positive semidefinite.
    """

    apart: ClassVar[float] = math.sqrt(2.0)


@dataclass(frozen=True)
class Segment:
    """Records ``value * direction``: a protected number times a vector, which may be public.

    The value is clipped to [low, high], the direction to the unit ball. Where directions are
    public, neighbours differ in the value only: replace-one sensitivity ``high - low``. Where the
    unit protects contexts they differ in the direction too: twice the larger absolute value.
    Add-remove: the larger absolute value. For RU's rewards ``Segment(0, 1)``, or centred
    ``Segment(-0.5, 0.5)``.
    """

    low: float
    high: float

    def __post_init__(self) -> None:
        if not (math.isfinite(self.low) and math.isfinite(self.high) and self.low < self.high):
            raise ParameterError(
                f"a segment needs finite low < high; got [{self.low!r}, {self.high!r}]"
            )

    def sensitivity(self, relation: str = "replace-one", public: bool = True) -> float:
        """Largest distance between two records; with the same direction, if that is `public`."""
        longest = max(abs(self.low), abs(self.high))
        if relation != "replace-one":
            return longest
        return self.high - self.low if public else 2.0 * longest


Bound = Ball | PSDBall | Segment


class Intake:
    """Validates, clips and counts the records of a releaser.

    Args:
        shape: Shape of one record.
        replicates: Number of replicates B.
        clip: Bound of the records; a number is the radius of a ball, `None` clips nothing.
        horizon: Largest number of records per replicate, or `None`.
        grid: Round clipped records to multiples of it; 0 leaves them as they are.
    """

    def __init__(
        self,
        shape: RecordShape,
        replicates: int,
        clip: Bound | float | None,
        horizon: int | None,
        grid: float = 0.0,
    ) -> None:
        if clip is not None and not isinstance(clip, (Ball, Segment)):
            clip = Ball(validation.real("clip", clip, 0.0, open_low=True))
        if isinstance(clip, PSDBall) and not shape.symmetric:
            raise ParameterError("PSDBall bounds symmetric matrices; use Ball for vectors")
        if isinstance(clip, Segment) and shape.symmetric:
            raise ParameterError("Segment bounds vectors; use Ball or PSDBall for matrices")
        self.shape = shape
        self.replicates = validation.integer("replicates", replicates, 1)
        self.clip = clip
        self.horizon = None if horizon is None else validation.integer("horizon", horizon, 1)
        self.grid = grid
        self.rounds = 0
        self.clipped_count: NDArray[np.int64] = np.zeros(self.replicates, dtype=np.int64)
        self._rows = np.empty((self.replicates, shape.width))
        self._radius = clip.radius if isinstance(clip, Ball) else math.inf
        self._psd = isinstance(clip, PSDBall)

    def take(self, value: ArrayLike, directions: ArrayLike | None, into: FloatArray) -> None:
        """Adds one round's clipped records to the rows `into` (B, width).

        Raises:
            HorizonExceeded: If the horizon is already full; nothing changes.
            ParameterError: See `Releaser.add`; nothing changes.
        """
        if self.horizon is not None and self.rounds >= self.horizon:
            raise HorizonExceeded(
                f"this releaser was declared for {self.horizon} records per replicate; "
                "nothing was released"
            )
        if directions is not None:
            add = self._add_squares if self.shape.symmetric else self._add_scaled
            add(value, directions, into)
            self.rounds += 1
            return
        if isinstance(self.clip, Segment):
            raise ParameterError("records bounded by a Segment need their public directions")
        elif self.shape.symmetric:
            rows = self._rows
            matrices = _array("records", value, (self.replicates, *self.shape.shape))
            shift = kernels.continual.PSD_TOLERANCE * min(self._radius, 1e300)
            _raise_for(kernels.continual.pack_symmetric(matrices, self._psd, shift, rows))
        else:
            rows = _array("records", value, (self.replicates, self.shape.width))
        _raise_for(
            kernels.continual.add_clipped(rows, self._radius, self.grid, into, self.clipped_count)
        )
        self.rounds += 1

    def rounded(self, rows: FloatArray) -> FloatArray:
        """Rows on the grid, if there is one."""
        return np.floor(rows / self.grid + 0.5) * self.grid if self.grid else rows

    def _add_squares(self, value: ArrayLike, directions: ArrayLike, into: FloatArray) -> None:
        several = np.ndim(directions) == 3
        shape = (self.replicates, *np.shape(directions)[1:2] * several, self.shape.symmetric)
        vectors = _array("directions", directions, shape)
        values = _array("values", value, (self.replicates,))
        _raise_for(
            kernels.continual.add_squares(
                values,
                vectors.reshape(self.replicates, -1, self.shape.symmetric),
                self._radius,
                self._psd,
                self.grid,
                into,
                self.clipped_count,
            )
        )

    def _add_scaled(self, value: ArrayLike, directions: ArrayLike, into: FloatArray) -> None:
        vectors = _array("directions", directions, (self.replicates, self.shape.dim))
        values = _array("values", value, (self.replicates,))
        low, high, longest = -math.inf, math.inf, math.inf
        if isinstance(self.clip, Segment):
            low, high, longest = self.clip.low, self.clip.high, 1.0
        _raise_for(
            kernels.continual.add_scaled(
                values,
                vectors,
                low,
                high,
                longest,
                self._radius,
                self.grid,
                into,
                self.clipped_count,
            )
        )


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
    try:
        array = np.ascontiguousarray(value, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise ParameterError(f"{name} must be an array of real numbers: {error}") from error
    if array.shape != shape:
        raise ParameterError(
            f"{name} must have shape {shape} (replicates first); got {array.shape}"
        )
    return array
