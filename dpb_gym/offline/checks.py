"""Checks of logged arrays; messages name the first bad round."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from dpb_gym import validation
from dpb_gym.errors import ParameterError
from dpb_gym.problems.base import Array

DISTRIBUTION_TOLERANCE = 1e-9


def check_range(name: str, value: Any) -> tuple[float, float]:
    """Validates declared bounds.

    Raises:
        ParameterError: If they are not two finite increasing numbers.
    """
    try:
        low, high = (float(v) for v in value)
    except (TypeError, ValueError):
        raise ParameterError(f"{name} must be (lowest, highest), got {value!r}") from None
    if not (np.isfinite(low) and np.isfinite(high) and low < high):
        raise ParameterError(f"{name} must be finite and increasing, got {value!r}")
    return low, high


def integers(
    name: str, value: ArrayLike, shape: tuple[int, ...], low: float = -np.inf, high: float = np.inf
) -> Array:
    """Integers of a shape and range; see `inside`."""
    found = inside(name, value, shape, low, high)
    whole = found.astype(np.int64)
    if (whole != found).any():
        raise ParameterError(f"{name} must be integers, got {found[whole != found][0]}")
    return whole


def inside(name: str, value: ArrayLike, shape: tuple[int, ...], low: float, high: float) -> Array:
    """Numbers of a shape, finite and within bounds.

    Raises:
        ParameterError: If they are not; names the first bad round.
    """
    found = validation.array(name, value, shape)
    outside = ((found < low) | (found > high)).reshape(len(found), -1).any(axis=1)
    if outside.any():
        bad = int(outside.argmax())
        said = f"{found[bad]:g}" if found.ndim == 1 else str(found[bad])
        raise ParameterError(f"{name} must lie in [{low:g}, {high:g}], got {said} in round {bad}")
    return found


def frozen(value: Array) -> Array:
    """A read-only copy."""
    result = np.array(value, order="C")
    result.flags.writeable = False
    return result


def check_distribution(name: str, value: ArrayLike, shape: tuple[int, ...]) -> Array:
    """Validates probabilities along the last axis.

    Raises:
        ParameterError: If the shape is wrong, a number is outside [0, 1] or a row does not
            sum to one (to 1e-9).
    """
    found: Array = validation.array(name, value, shape, 0.0, 1.0)
    total: Any = found.sum(axis=-1)
    wrong = np.abs(total - 1.0) > DISTRIBUTION_TOLERANCE
    if wrong.any():
        row = int(wrong.argmax())
        raise ParameterError(
            f"{name} must sum to 1 in every round, got {total.flat[row]:.12g} in round {row}"
        )
    return found
