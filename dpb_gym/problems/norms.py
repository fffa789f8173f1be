"""How long feature vectors may be: left as drawn, clipped to the unit ball, or scaled."""

from __future__ import annotations

import numpy as np

from dpb_gym import kernels
from dpb_gym.errors import ParameterError
from dpb_gym.problems.rounds import Array

CONTEXT_NORMS = ("raw", "clip", "scale")
# Standard normals beyond it have probability below 1e-32.
GAUSSIAN_BOUND = 12.0


def rescaled_bound(bound: float, context_norm: str, length: int) -> float:
    """Bound on a feature after `context_norm`, for vectors of the given length."""
    if context_norm == "clip":
        return min(1.0, bound)
    if context_norm == "scale":
        # One float32 step up: the scaled numbers are rounded.
        return float(np.nextafter(np.float32(bound / np.sqrt(length)), np.float32(np.inf)))
    return bound


def rescale(features: Array, context_norm: str) -> None:
    """Applies `context_norm` to float32 vectors along the last axis, in place.

    Args:
        features: C-contiguous float32 array.
        context_norm: ``"raw"`` leaves x, ``"clip"`` gives x / max(1, ||x||), ``"scale"``
            x / sqrt(length).
    """
    if context_norm == "raw":
        return
    if not features.flags.c_contiguous:
        raise ParameterError("features must be C-contiguous to be rescaled in place")
    contexts = kernels.contexts
    mode = contexts.CLIP if context_norm == "clip" else contexts.SCALE
    contexts.normalise(features.reshape(-1, features.shape[-1]), mode)
