"""The package's numba configuration."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar, cast

import numba

from dpb_gym.kernel_cache import cached

F = TypeVar("F", bound=Callable[..., Any])


def jit(function: F) -> F:
    """Compile lazily and cache on disk; no fast-math, no threads: bits are exact."""
    return cast(F, cached(numba.njit(fastmath=False, nogil=True)(function), function))


def inline(function: F) -> F:
    """Like `jit`, inlined into its callers."""
    compiled = numba.njit(fastmath=False, nogil=True, inline="always")(function)
    return cast(F, cached(compiled, function))


def vectorised(function: F) -> F:
    """Like `jit`; dividing by zero gives infinity, so that loops divide in vector registers."""
    compiled = numba.njit(fastmath=False, nogil=True, error_model="numpy")(function)
    return cast(F, cached(compiled, function))
