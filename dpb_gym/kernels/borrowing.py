"""Arrays without reference counts, for loops that call many small functions."""

from __future__ import annotations

from typing import Any

import numba
from numba.core import cgutils, types
from numba.extending import intrinsic


def _without_counts(context: Any, builder: Any, kind: Any, value: Any) -> Any:
    """Return the code of a value whose arrays have no owner that would count."""
    if isinstance(kind, types.Array):
        array = cgutils.create_struct_proxy(kind)(context, builder, value=value)
        array.meminfo = cgutils.get_null_value(array.meminfo.type)
        array.parent = cgutils.get_null_value(array.parent.type)
        return array._getvalue()
    is_tuple = isinstance(kind, types.BaseTuple)  # apart, as numba does not annotate its tuples
    if is_tuple:
        for i, part in enumerate(kind.types):
            inside = builder.extract_value(value, i)
            own = _without_counts(context, builder, part, inside)
            value = builder.insert_value(value, own, i)
        return value
    # what a function of the compiler returns counts as a new reference
    context.nrt.incref(builder, kind, value)
    return value


def _borrowed(typing_context: Any, value: Any) -> Any:
    """Return the signature and the code of `borrowed`."""

    def generate(context: Any, builder: Any, _: Any, args: Any) -> Any:
        return _without_counts(context, builder, value, args[0])

    return value(value), generate


def _itself(value: Any) -> Any:
    return value


_DISABLED: bool = numba.config.DISABLE_JIT  # type: ignore[attr-defined]
borrowed = _itself if _DISABLED else intrinsic(_borrowed)
"""Returns a value whose arrays do not count references, also those in (named) tuples.

A compiled function that is called with arrays adds 1 to the number of their users and subtracts it
again: atomic operations, which together cost more than the arithmetic of a round. The caller of
compiled code owns its arguments until it returns, so loops over arguments may do without.
"""
