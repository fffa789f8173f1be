"""Feature vectors: norms and oblivious sequences, fixed in advance (errata P10)."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import numpy as np

from dpb_gym import state, validation
from dpb_gym.errors import DataError, ParameterError, shown
from dpb_gym.problems.base import Array, Hidden

CONTEXT_NORMS = ("raw", "clip", "scale")
SCHEDULES = ("drawn", "switched", "drifting")


def rescaled_bound(bound: float, context_norm: str, length: int) -> float:
    """Return the bound on a feature after `context_norm`, for vectors of the given length."""
    if context_norm == "clip":
        return min(1.0, bound)
    if context_norm == "scale":
        # One float32 step up: the scaled numbers are rounded.
        return float(np.nextafter(np.float32(bound / np.sqrt(length)), np.float32(np.inf)))
    return bound


def rescale(features: Array, context_norm: str) -> None:
    """Apply `context_norm` to float32 vectors along the last axis, in place.

    Args:
        features: C-contiguous float32 array.
        context_norm: ``"raw"`` leaves x, ``"clip"`` gives x / max(1, ||x||), ``"scale"``
            x / sqrt(length).
    """
    if context_norm == "raw":
        return
    if not features.flags.c_contiguous:
        raise ParameterError("features must be C-contiguous to be rescaled in place")
    from dpb_gym.kernels.feature_rows import CLIP, SCALE, normalise

    normalise(features.reshape(-1, features.shape[-1]), CLIP if context_norm == "clip" else SCALE)


def read_rank(rank: Any, dim: int, design: str, low: tuple[str, ...]) -> int:
    """Return the dimension of a design's subspaces, max(1, d // 2) by default.

    Raises:
        ParameterError: If `rank` is not in 1..dim, or the design is not in `low`, those with
            subspaces.
    """
    if rank is not None and design not in low:
        raise ParameterError(f"rank applies to design={' and '.join(map(repr, low))} only")
    return validation.integer("rank", max(1, dim // 2) if rank is None else rank, 1, dim)


@state.register
class ContextSchedule:
    """Features of every round of one replicate.

    Args:
        contexts: ``"drawn"``: by the design in every round. ``"switched"``: one set of features
            until round T / 2 and another one afterwards. ``"drifting"``: linear interpolation
            from one to the other. Both sets are drawn by the design, once per replicate. An array
            ``(n, *shape)`` with n >= T, or the path of one saved by `numpy.save`: row by row, the
            same in every replicate.
        horizon: Rounds T.
        shape: Shape of the features of one round.
        context_norm: Applied to the rows of an array.
        bound: Largest magnitude that the design draws, before `context_norm`.

    Attributes:
        drawn: Whether features are drawn by the design.
        rows: The array, float32, or None.
        bound: Largest magnitude of a feature.

    Raises:
        ParameterError: If the name is unknown or the array has a wrong shape.
        DataError: If the file cannot be read.
    """

    def __init__(
        self, contexts: Any, horizon: int, shape: tuple[int, ...], context_norm: str, bound: float
    ) -> None:
        self.rows: Array | None = None
        self.horizon, self.name = horizon, "array"
        self.bound = rescaled_bound(bound, context_norm, shape[-1])
        if isinstance(contexts, str) and contexts in SCHEDULES:
            self.name = contexts
        elif isinstance(contexts, str) and not contexts.endswith(".npy"):
            options = ", ".join(map(repr, SCHEDULES))
            raise ParameterError(
                f"contexts must be one of {options}, an array or the path of a .npy file, "
                f"got {shown(contexts)}"
            )
        else:
            self.rows = fixed_rows("contexts", contexts, horizon, shape)
            rescale(self.rows, context_norm)
            self.bound = float(np.abs(self.rows).max()) or self.bound
        self.drawn = self.name == "drawn"

    def hidden(self, draw: Callable[[Array], None], shape: tuple[int, ...]) -> Hidden:
        """Return the two sets of features of one replicate, ``corners``, ``(2, *shape)``.

        Args:
            draw: Fills an array with the features of consecutive rounds, by the design.
            shape: Shape of one round's features.
        """
        if self.drawn or self.rows is not None:
            return {}
        corners = np.empty((2, *shape), np.float32)
        draw(corners)
        return {"corners": corners}

    def at(self, hidden: Hidden, t: Array) -> Array:
        """Return the features of the rounds t ``(B,)``, float32 ``(B, *shape)``."""
        if self.rows is not None:
            given: Array = self.rows[t - 1]
            return given
        first = hidden["corners"][:, 0]
        second = hidden["corners"][:, 1]
        if self.name == "switched":
            weight = (2 * t > self.horizon).astype(np.float32)
        else:
            weight = ((t - 1) / (self.horizon - 1)).astype(np.float32)
        weight = weight.reshape(-1, *(1,) * (first.ndim - 1))
        return (np.float32(1.0) - weight) * first + weight * second


def fixed_rows(name: str, value: Any, horizon: int, shape: tuple[int, ...]) -> Array:
    """Return an array, or the content of a file saved by `numpy.save`, as float32 ``(n, *shape)``.

    Raises:
        ParameterError: If there are fewer rows than `horizon`, or rows have another shape or
            are not finite.
        DataError: If the file cannot be read.
    """
    if isinstance(value, (str, os.PathLike)):
        try:
            value = np.load(value, allow_pickle=False)
        except (OSError, ValueError, EOFError) as error:
            raise DataError(f"{name}: cannot read {shown(value)}: {error}") from None
    rows = validation.array(name, value, (None, *shape))
    if len(rows) < horizon:
        raise ParameterError(f"{name} must have at least horizon={horizon} rows, got {len(rows)}")
    return np.array(rows, np.float32, order="C")
