"""The one numba configuration of the package."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar, cast

import numba

F = TypeVar("F", bound=Callable[..., Any])


def jit(function: F) -> F:
    """Compiles lazily and caches on disk; no fast-math, no threads: bits are exact."""
    return cast(F, numba.njit(cache=True, fastmath=False, nogil=True)(function))


def inline(function: F) -> F:
    """Like `jit`, inlined into its callers."""
    return cast(F, numba.njit(cache=True, fastmath=False, nogil=True, inline="always")(function))
