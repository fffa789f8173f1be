"""Functions that are compiled on first use, so that importing them does not import numba."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any


class Deferred:
    """A function that is compiled when it is called first.

    Compiled code can call it as if it were compiled already. With ``NUMBA_DISABLE_JIT=1`` it is the
    Python function.

    Args:
        function: Function in numba's subset of Python.
        bounds: Whether an index beyond the end of an array raises IndexError. False for functions
            of this package that compare the shapes of their arguments first.

    Attributes:
        py_func: The function.
    """

    def __init__(self, function: Callable[..., Any], bounds: bool) -> None:
        self.py_func = function
        self.bounds = bounds
        functools.update_wrapper(self, function)

    @functools.cached_property
    def compiled(self) -> Any:
        """The numba dispatcher."""
        from dpb_gym.kernels import _jit

        _introduce()
        compile_ = _jit.checked if self.bounds else _jit.vectorised
        return compile_(self.py_func)

    def __call__(self, *args: Any) -> Any:
        return self.compiled(*args)


@functools.cache
def _introduce() -> None:
    """Let compiled functions have deferred ones as globals, with the type of their dispatchers."""
    from numba.extending import typeof_impl

    # numba knows the intrinsic functions that exist when it begins to compile a function
    from dpb_gym.kernels import scratch as scratch

    @typeof_impl.register(Deferred)
    def _(value: Any, _: Any) -> Any:
        return value.compiled._numba_type_


def jit(function: Callable[..., Any]) -> Any:
    """Return a function that is compiled with bounds checks on first use, see `Deferred`."""
    return Deferred(function, bounds=True)


def shape_checked(function: Callable[..., Any]) -> Any:
    """Like `jit` without bounds checks, for functions that check shapes themselves."""
    return Deferred(function, bounds=False)
