"""What the arrays of a log may be: the one place where they are checked."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, get_type_hints

import numpy as np
from numpy.typing import ArrayLike

from dpb_gym import validation
from dpb_gym.errors import ParameterError
from dpb_gym.problems.base import Array

Bounds = Mapping[str, tuple[float, float]]
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
    """Numbers of a shape, finite and within bounds.

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
    return found.astype(dtype, copy=False)


def distribution(name: str, value: ArrayLike, shape: tuple[int, ...]) -> Array:
    """Probabilities along the last axis; see `values`."""
    return values(name, value, shape, 0.0, 1.0, sums=True)


@dataclass(frozen=True)
class Part:
    """Declares an array of a log, in the annotation of its field.

    Attributes:
        axes: A letter per axis: n rounds, m candidates or items, d features, K positions.
        bounds: Name of its bounds: ``"item"``, ``"share"``, or one that the log gives.
        dtype: See `values`, as the others.
    """

    axes: str
    bounds: str = ""
    dtype: type = np.float64
    positive: bool = False
    sums: bool = False


def checked(
    kind: type, given: Mapping[str, Any], sizes: dict[str, int], bounds: Bounds, prefix: str = ""
) -> dict[str, Array]:
    """Read-only copies of the arrays that a class declares, in the order of their declaration.

    Args:
        kind: The class.
        given: Some of its arrays by name; None for one that it may lack.
        sizes: Length of each axis, as far as known; completed.
        bounds: By name.
        prefix: Put before names in messages.

    Raises:
        ParameterError: If an array has a wrong shape or a value out of range; the message names
            the first bad round.
    """
    kept = {}
    for name, hint in get_type_hints(kind, include_extras=True).items():
        part = next((p for p in getattr(hint, "__metadata__", ()) if isinstance(p, Part)), None)
        value = given.get(name)
        if part is None or name not in given or (value is None and getattr(kind, name, "") is None):
            continue
        known = {"": NO_BOUNDS, "share": (0.0, 1.0), "item": (0, sizes.get("m", 0) - 1), **bounds}
        shape = tuple(sizes.get(axis) for axis in part.axes)
        found = values(
            prefix + name, value, shape, *known[part.bounds], dtype=part.dtype,
            positive=part.positive, sums=part.sums,
        )  # fmt: skip
        sizes.update(zip(part.axes, found.shape))
        if not found.size or any(sizes.get(axis, 2) < 2 for axis in "nm"):
            raise ParameterError(
                f"a log needs at least 2 rounds and 2 candidates, got {name} of shape {found.shape}"
            )
        kept[name] = frozen(found)
    return kept


def frozen(value: Array) -> Array:
    """A read-only copy."""
    result = np.array(value, order="C")
    result.flags.writeable = False
    return result
