"""Growing arrays of raw records, on the curator's side of the privacy boundary."""

from __future__ import annotations

import numpy as np

from dpb_gym.problems.base import Array


def resized(store: Array, count: int, capacity: int) -> Array:
    """Return a copy of a store, ``(B, capacity, ...)``, with as many of `count` records as fit."""
    new = np.zeros((store.shape[0], capacity, *store.shape[2:]), store.dtype)
    kept = min(count, capacity)
    new[:, :kept] = store[:, :kept]
    return new
