"""The package's numba configuration."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar, cast

import numba

from dpb_gym.kernel_cache import cached

F = TypeVar("F", bound=Callable[..., Any])


# No fast-math and no threads: bits are exact. No wrapper for C: nothing calls it.
EXACT: dict[str, Any] = {"fastmath": False, "nogil": True, "no_cfunc_wrapper": True}


def jit(function: F) -> F:
    """Compile lazily and cache on disk."""
    return cast(F, cached(numba.njit(**EXACT)(function), function))


def inline(function: F) -> F:
    """Like `jit`, inlined into its callers."""
    compiled = numba.njit(**EXACT, inline="always")(function)
    return cast(F, cached(compiled, function))


def vectorised(function: F) -> F:
    """Like `jit`; dividing by zero gives infinity, so that loops divide in vector registers."""
    compiled = numba.njit(**EXACT, error_model="numpy")(function)
    return cast(F, cached(compiled, function))


def checked(function: F) -> F:
    """Like `vectorised`; an index beyond the end of an array raises IndexError.

    Code of agents and the kernels that it may call are compiled so: memory outside of their arrays
    cannot be read.
    """
    compiled = numba.njit(**EXACT, error_model="numpy", boundscheck=True)(function)
    return cast(F, cached(compiled, function))
