"""Checks of the arrays of a log."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from dpb_gym import validation
from dpb_gym.errors import ParameterError
from dpb_gym.problems.base import Array

NO_BOUNDS = (-np.inf, np.inf)
SUM_TOLERANCE = 1e-9


def values(
    name: str,
    value: ArrayLike | None,
    shape: tuple[int | None, ...],
    low: float = -np.inf,
    high: float = np.inf,
    *,
    dtype: type = np.float64,
    positive: bool = False,
    sums: bool = False,
) -> Array:
    """Return a read-only copy of an array after checks of shape, finiteness and bounds.

    Args:
        name: Name in messages.
        value: The array.
        shape: Its shape; None is any length.
        low: Smallest value.
        high: Largest value.
        dtype: Type of the copy; integers must be whole.
        positive: Whether 0 is rejected.
        sums: Whether the last axis must sum to one (to 1e-9).

    Raises:
        ParameterError: If a check fails; names the first bad round.
    """
    array: Array = validation.array(name, value, shape)

    def refuse(bad: Array, wanted: str, numbers: Array, why: str = "") -> None:
        if bad.any():
            at = np.unravel_index(int(bad.argmax()), bad.shape)
            raise ParameterError(
                f"{name} must {wanted}, got {numbers[at]:.12g} in round {at[0]}{why}"
            )

    refuse((array < low) | (array > high), f"lie in [{low:g}, {high:g}]", array)
    if positive:
        why = ": what was logged cannot have been impossible"
        refuse(array == 0.0, "be positive", array, why)
    if dtype is np.int64:
        refuse(array != np.rint(array), "be integers", array)
    if sums:
        total = array.sum(axis=-1)
        refuse(np.abs(total - 1.0) > SUM_TOLERANCE, "sum to 1 in every round", total)
    copied: Array = np.array(array, dtype, order="C")
    copied.flags.writeable = False
    return copied


def distribution(name: str, value: ArrayLike, shape: tuple[int, ...]) -> Array:
    """Return checked probabilities along the last axis; see `values`."""
    return values(name, value, shape, 0.0, 1.0, sums=True)


def features_of(given: ArrayLike, axes: int) -> Array:
    """Return checked features, float32 ``(n, d)`` or ``(n, m, d)`` with n and m at least 2."""
    features = values("features", given, (None,) * axes, dtype=np.float32)
    if not features.size or min(features.shape[:-1]) < 2:
        raise ParameterError(
            f"a log needs at least 2 rounds and 2 candidates, got features of shape "
            f"{features.shape}"
        )
    return features


def optional(name: str, value: ArrayLike | None, *bounds: Any, **wanted: Any) -> Array | None:
    """Return `values`, or None for None."""
    return None if value is None else values(name, value, *bounds, **wanted)
