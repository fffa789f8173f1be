"""Mathematical functions with the same bits on every machine, for code that affects results.

`math` and NumPy use the machine's libm for exp, log and normals, and LAPACK uses the processor's
BLAS. The functions here come from `dpb_gym.kernels.elementary` and `linalg`. Square roots and the
four operations are exact everywhere (IEEE 754).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpb_gym import kernels

CHUNK = 4096  # uniforms per chunk, which fit in cache
NORMAL_BOUND = 12.0
"""Standard normals beyond it have probability below 1e-32."""


def exp(x: float) -> float:
    """Return e^x."""
    return float(kernels.elementary.exp(float(x)))


def expm1(x: float) -> float:
    """Return e^x - 1."""
    return float(kernels.elementary.expm1(float(x)))


def log(x: float) -> float:
    """Return the natural logarithm; -inf at 0, NaN below."""
    return float(kernels.elementary.log(float(x)))


def log1p(x: float) -> float:
    """Return log(1 + x)."""
    return float(kernels.elementary.log1p(float(x)))


def power(x: float, y: float) -> float:
    """Return x^y for x > 0."""
    return float(kernels.elementary.power(float(x), float(y)))


def bisect(below: Callable[[float], bool], low: float, high: float) -> tuple[float, float]:
    """Return the last float in [low, high] (to rounding) where `below` holds, and the next."""
    for _ in range(200):
        middle = 0.5 * (low + high)
        if middle in (low, high):
            break
        low, high = (middle, high) if below(middle) else (low, middle)
    return low, high


def each(function: Callable[[float], float], x: NDArray[Any]) -> NDArray[np.float64]:
    """Apply a scalar function to every entry of a small array."""
    return np.array([function(v) for v in np.ravel(x).tolist()]).reshape(np.shape(x))


def fill_normals(rng: np.random.Generator, out: NDArray[Any]) -> None:
    """Fill a contiguous array with standard normals by inversion, one uniform for each."""
    assert out.flags.c_contiguous
    flat = out.reshape(-1)
    uniforms = np.empty(min(CHUNK, flat.size))
    for start in range(0, flat.size, CHUNK):
        part = flat[start : start + CHUNK]
        rng.random(out=uniforms[: part.size])
        kernels.elementary.normals_of(uniforms, part)


def normals(rng: np.random.Generator, shape: Any, dtype: Any = np.float64) -> NDArray[Any]:
    """Return standard normals of a shape, see `fill_normals`."""
    out = np.empty(shape, dtype)
    fill_normals(rng, out)
    return out
