"""Infos of vector environments: arrays with masks, and Gymnasium's autoreset in between."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from dpb_gym.problems.base import Array

Infos = dict[str, Any]


def has(infos: Infos, key: str) -> bool:
    """Whether any lane has the key."""
    return key in infos or key in infos.get("final_info", {})


def gather(infos: Infos, key: str, lanes: int) -> Array:
    """Values of the round just played, wherever autoreset put them."""
    final = infos.get("final_info", {})
    kept = infos.get(key)
    out = np.zeros(lanes) if kept is None else np.array(kept)
    if key in final:
        out = np.where(final[f"_{key}"], final[key], out)
    return out


def without(infos: Infos, keys: Sequence[str]) -> Infos:
    """A copy without some keys, final_info included."""
    dropped = {name for key in keys for name in (key, f"_{key}")}
    kept = {k: v for k, v in infos.items() if k not in dropped}
    if "final_info" in kept:
        kept["final_info"] = {k: v for k, v in kept["final_info"].items() if k not in dropped}
    return kept


def put(infos: Infos, key: str, values: Array, played: Array) -> None:
    """Stores the values of the lanes that played, in final_info for lanes restarted at once."""
    final = infos.get("final_info")
    ended = np.zeros(len(played), bool) if final is None else np.asarray(infos["_final_info"])
    if final is not None and (played & ended).any():
        mask = played & ended
        final[key], final[f"_{key}"] = _masked(values, mask), mask
    if (played & ~ended).any():
        mask = played & ~ended
        infos[key], infos[f"_{key}"] = _masked(values, mask), mask


def _masked(values: Array, mask: Array) -> Array:
    shape = (len(mask),) + (1,) * (values.ndim - 1)
    kept: Array = np.where(mask.reshape(shape), values, np.zeros((), values.dtype))
    return kept
