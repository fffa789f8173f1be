"""What the arrays of a log may be: the one place where they are checked."""

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
    """A read-only copy of numbers of a shape, finite and within bounds.

    Args:
        name: For messages.
        value: What was given.
        shape: None is any length.
        low: Least value.
        high: Largest value.
        dtype: What they become; integers must be whole.
        positive: Whether 0 is refused.
        sums: Whether they are probabilities that sum to one (to 1e-9) along the last axis.

    Raises:
        ParameterError: If they are not; names the first bad round.
    """
    found: Array = validation.array(name, value, shape)

    def refuse(bad: Array, wanted: str, numbers: Array, why: str = "") -> None:
        if bad.any():
            at = np.unravel_index(int(bad.argmax()), bad.shape)
            raise ParameterError(
                f"{name} must {wanted}, got {numbers[at]:.12g} in round {at[0]}{why}"
            )

    refuse((found < low) | (found > high), f"lie in [{low:g}, {high:g}]", found)
    if positive:
        why = ": what was logged cannot have been impossible"
        refuse(found == 0.0, "be positive", found, why)
    if dtype is np.int64:
        refuse(found != np.rint(found), "be integers", found)
    if sums:
        total = found.sum(axis=-1)
        refuse(np.abs(total - 1.0) > SUM_TOLERANCE, "sum to 1 in every round", total)
    kept: Array = np.array(found, dtype, order="C")
    kept.flags.writeable = False
    return kept


def distribution(name: str, value: ArrayLike, shape: tuple[int, ...]) -> Array:
    """Probabilities along the last axis; see `values`."""
    return values(name, value, shape, 0.0, 1.0, sums=True)


def features_of(given: ArrayLike, axes: int) -> Array:
    """What a policy saw, float32 ``(n, d)`` or ``(n, m, d)``: at least 2 rounds and candidates."""
    found = values("features", given, (None,) * axes, dtype=np.float32)
    if not found.size or min(found.shape[:-1]) < 2:
        raise ParameterError(
            f"a log needs at least 2 rounds and 2 candidates, got features of shape {found.shape}"
        )
    return found


def optional(name: str, value: ArrayLike | None, *bounds: Any, **wanted: Any) -> Array | None:
    """See `values`; None stays None."""
    return None if value is None else values(name, value, *bounds, **wanted)
