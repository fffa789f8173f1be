"""Fisher's linear discriminant: many numbers of a run become one score."""

from __future__ import annotations

import numpy as np

from dpb_gym.errors import ParameterError
from dpb_gym.validation import FloatArray


def fit_discriminant(first: FloatArray, second: FloatArray) -> FloatArray:
    """A direction in the space of outputs, larger scores ``outputs @ weights`` in the second world.

    Numbers that never vary within a world but differ between worlds get, as they should, a
    huge weight. With many numbers and few runs the pooled correlation is shrunk towards the
    identity by the share of numbers in runs.

    Args:
        first: Outputs ``(n0, p)`` of the first world.
        second: Outputs ``(n1, p)`` of the second world.

    Returns:
        Weights ``(p,)``.

    Raises:
        ParameterError: If the shapes do not fit or an output is not finite.
    """
    if first.ndim != 2 or second.ndim != 2 or first.shape[1] != second.shape[1]:
        raise ParameterError(
            f"outputs must be (runs, numbers) with equally many numbers; got {first.shape} and "
            f"{second.shape}"
        )
    if not (np.isfinite(first).all() and np.isfinite(second).all()):
        raise ParameterError("outputs must be finite; got NaN or infinity")
    gap = second.mean(axis=0) - first.mean(axis=0)
    inner = np.concatenate([first - first.mean(axis=0), second - second.mean(axis=0)])
    runs, width = inner.shape
    variance = (inner**2).mean(axis=0)
    size = np.abs(np.concatenate([first, second])).max(axis=0, initial=0.0)
    # rounding is no difference, and what never varied in the fit may still vary later
    gap[np.abs(gap) <= 1e-9 * size] = 0.0
    constant = variance <= (1e-9 * size) ** 2
    scale = np.sqrt(np.where(constant, np.maximum((1e-6 * size) ** 2, 1e-300), variance))
    inner = inner / scale
    correlation = inner.T @ inner / runs
    shrink = 1e-9 if 8 * width <= runs else width / (width + runs)
    correlation[np.diag_indices(width)] += 1e-12
    target = (1 - shrink) * correlation + shrink * np.eye(width)
    weights = np.linalg.lstsq(target, gap / scale, rcond=1e-13)[0] / scale
    weights[constant & (gap == 0)] = 0.0
    longest = np.abs(weights).max(initial=0.0)
    direction: FloatArray = weights / longest if longest > 0 else weights
    return direction
