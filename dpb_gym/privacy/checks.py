"""Validation of what users hand to `dpb_gym.privacy`."""

from __future__ import annotations

import math
import numbers

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dpb_gym.errors import DPBError, ParameterError, shown

FloatArray = NDArray[np.float64]


def positive(
    name: str, value: object, *, error: type[DPBError] = ParameterError, zero: bool = False
) -> float:
    """Returns `value` as a float if it is finite and positive (or zero, if allowed)."""
    allowed = "finite and >= 0" if zero else "finite and > 0"
    if isinstance(value, bool) or not isinstance(value, numbers.Real):
        raise error(f"{name} must be a real number, {allowed}; got {shown(value)}")
    number = float(value)
    if not math.isfinite(number) or number < 0 or (number == 0 and not zero):
        raise error(f"{name} must be {allowed}; got {shown(value)}")
    return number


def probability(
    name: str, value: object, *, error: type[DPBError] = ParameterError, one: bool = False
) -> float:
    """Returns `value` as a float if it lies in (0, 1), or in (0, 1] with `one`."""
    number = positive(name, value, error=error)
    if number > 1 or (number == 1 and not one):
        raise error(f"{name} must lie in (0, 1{']' if one else ')'}; got {shown(value)}")
    return number


def count(name: str, value: object, *, minimum: int = 1) -> int:
    """Returns `value` as an int if it is an integer >= `minimum`."""
    if isinstance(value, bool) or not isinstance(value, numbers.Integral) or value < minimum:
        raise ParameterError(f"{name} must be an integer >= {minimum}; got {shown(value)}")
    return int(value)


def records(name: str, value: ArrayLike, shape: tuple[int, ...]) -> FloatArray:
    """Returns raw records as a contiguous float64 array of exactly `shape`, all finite.

    Raises:
        ParameterError: On another shape (a wrong number of replicates included), a dtype
            that is no real number, or a NaN or infinite entry.
    """
    try:
        array = np.asarray(value, dtype=np.float64, order="C")
    except (TypeError, ValueError) as error:
        raise ParameterError(f"{name} must be an array of real numbers: {error}") from error
    if array.shape != shape:
        raise ParameterError(
            f"{name} must have shape {shape} (replicates first); got {array.shape}"
        )
    if not np.isfinite(array).all():
        raise ParameterError(f"{name} must be finite; got NaN or infinity")
    return array
