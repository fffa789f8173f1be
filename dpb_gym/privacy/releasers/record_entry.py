"""How raw records enter a sum: checked, clipped to their bound, rounded and added, by kernels."""

from __future__ import annotations

import math
from typing import Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dpb_gym import kernels, validation
from dpb_gym.errors import ParameterError
from dpb_gym.privacy.releasers.record_bounds import (
    Bound,
    NonNegativeBall,
    PSDBall,
    RecordShape,
    Segment,
)
from dpb_gym.validation import FloatArray

# Limits of a number times a direction, and of the direction's norm, without a segment.
NO_ENDS = (-math.inf, math.inf, math.inf)


class RecordState(Protocol):
    """What the entry of records uses of a `Sum`, which documents the attributes.

    Attributes:
        radius: Norm to which records are clipped.
    """

    what: str
    shape: RecordShape
    clip: Bound | None
    radius: float
    grid: float
    refuses_long: bool
    rounds: int
    replicates: int
    clipped_count: NDArray[np.int64]
    _rows: FloatArray


def add_record(
    sums: RecordState, value: ArrayLike, along: ArrayLike | None, into: FloatArray
) -> None:
    """Add one round's clipped records to the rows `into` ``(B, width)``; see `Sum.add`."""
    batch = sums.replicates
    codes = kernels.continual
    clip = sums.clip
    ball = (sums.radius, sums.grid, into, sums.clipped_count)
    if isinstance(clip, NonNegativeBall):
        if along is not None:
            raise ParameterError("records bounded by a NonNegativeBall have no directions")
        value = np.maximum(value, 0.0)

    if along is not None:
        side = sums.shape.symmetric or sums.shape.width
        vectors = _array("directions", along, (batch, *np.shape(along)[1:-1], side))
        numbers = _array("values", value, (batch,))
        if sums.shape.symmetric and vectors.ndim <= 3:
            squares = vectors.reshape(batch, -1, side)
            status = codes.add_squares(numbers, squares, isinstance(clip, PSDBall), *ball)
        elif vectors.ndim == 2:
            status = codes.add_scaled(numbers, vectors, *ends_of(sums, vectors), *ball)
        else:
            raise ParameterError(f"directions have too many axes: their shape is {vectors.shape}")
    elif isinstance(clip, Segment):
        raise ParameterError("records bounded by a Segment need their directions")
    else:
        rows = _array("records", value, (batch, *sums.shape.shape))
        if sums.shape.symmetric:
            # a finite shift, also for a radius without a limit
            shift = codes.PSD_TOLERANCE * min(sums.radius, 1e300)
            raise_for(codes.pack_symmetric(rows, isinstance(clip, PSDBall), shift, sums._rows))
            rows = sums._rows
        status = codes.add_clipped(rows, *ball)
    raise_for(status)


def check_rounds(sums: RecordState, records: FloatArray, along: FloatArray | None) -> None:
    """Raise ParameterError unless these are the numbers of n rounds of `Sum.add_rounds`.

    Kernels do not check shapes, and would read beyond the end of a shorter array.
    """
    n, batch = len(records), sums.replicates
    if along is None:
        _checked("records", records, (n, batch, *sums.shape.shape))
        return
    _checked("values", records, (n, batch))
    side = sums.shape.symmetric or sums.shape.width
    several = np.shape(along)[2:-1] if sums.shape.symmetric else ()
    _checked("directions", along, (n, batch, *several[:1], side))


def add_records(
    sums: RecordState, records: FloatArray, along: FloatArray | None, into: FloatArray
) -> None:
    """Add n rounds' clipped vectors, or squares of vectors, to the rows `into`."""
    codes = kernels.continual
    clip = sums.clip
    ball = (sums.radius, sums.grid, into, sums.clipped_count)
    if along is None:
        if isinstance(clip, NonNegativeBall):
            records = np.maximum(records, 0.0)
        raise_for(codes.add_clipped_rounds(records, *ball))
    elif sums.shape.symmetric:
        vectors = along.reshape(*along.shape[:2], -1, sums.shape.symmetric)
        raise_for(codes.add_squares_rounds(records, vectors, isinstance(clip, PSDBall), *ball))
    else:
        raise_for(codes.add_scaled_rounds(records, along, *ends_of(sums, along), *ball))


def ends_of(sums: RecordState, along: FloatArray) -> tuple[float, float, float]:
    """Return the range of numbers and the norm of directions; see `Sum.refuses_long`.

    Raises:
        ParameterError: If a public direction is longer than 1.
    """
    clip = sums.clip
    most = (1.0 + kernels.continual.COUNTED) ** 2
    if not isinstance(clip, Segment):
        return NO_ENDS
    # of one record the sum is faster; of many it is in vain and starts BLAS's threads
    single = along.ndim == 2
    if sums.refuses_long and not (single and np.vdot(along, along) <= most):
        squares = np.einsum("...i,...i->...", along, along)
        # the kernels reject NaN and infinity
        if not squares.max() <= most and np.isfinite(along).all():
            *earlier, replicate = np.unravel_index(squares.argmax(), squares.shape)
            raise ParameterError(
                f"{sums.what}: the direction of record {sums.rounds + sum(earlier) + 1} of "
                f"replicate {replicate} has length {math.sqrt(squares.max()):.4g}; at most 1 "
                "is allowed. Divide directions by a bound L of their lengths, multiply numbers "
                f"by L, and declare reward=({clip.low:g} * L, {clip.high:g} * L)"
            )
    return clip.low, clip.high, 1.0


def raise_for(status: int) -> None:
    """Raise ParameterError for a status of a kernel that is not 0."""
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
    return np.ascontiguousarray(_checked(name, value, shape))


def _checked(name: str, value: ArrayLike, shape: tuple[int, ...]) -> FloatArray:
    array = validation.numbers(name, value)
    if array.shape != shape:
        raise ParameterError(
            f"{name} must have shape {shape} (replicates first); got {array.shape}"
        )
    return array
