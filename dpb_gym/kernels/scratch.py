"""Short arrays in the frame of the function that uses them."""

from __future__ import annotations

from typing import Any

import numba
import numpy as np
from llvmlite import ir
from numba.core import cgutils, types
from numba.extending import intrinsic
from numba.np.arrayobj import populate_array

from dpb_gym.kernels._jit import inline

MOST = 64
"""Length of a `frame_vector`."""
_VECTOR = types.Array(types.float64, 1, "C")


def _frame_vector(typing_context: Any) -> Any:
    """Return the signature and the code of `frame_vector`."""

    def generate(context: Any, builder: Any, _: Any, __: Any) -> Any:
        memory = cgutils.alloca_once(builder, ir.ArrayType(ir.DoubleType(), MOST))
        array = context.make_array(_VECTOR)(context, builder)
        populate_array(
            array,
            data=builder.bitcast(memory, array.data.type),
            shape=[context.get_constant(types.intp, MOST)],
            strides=[context.get_constant(types.intp, 8)],
            itemsize=context.get_constant(types.intp, 8),
            meminfo=None,
        )
        return array._getvalue()

    return _VECTOR(), generate


def _new_vector() -> Any:
    return np.empty(MOST)


_DISABLED: bool = numba.config.DISABLE_JIT  # type: ignore[attr-defined]
frame_vector: Any = _new_vector if _DISABLED else intrinsic(_frame_vector)
"""Returns `MOST` numbers that are not initialised, for results between two statements.

To allocate an array takes 30 ns, which is more than the arithmetic of a vector of a few numbers.
The memory is in the frame of the calling function, which must not return it, and a call in a loop
returns the same memory again. So only kernels use it. Agents' functions cannot
(`dpb_gym.play.purity`).
"""


@inline
def vector(size):
    """Return `size` numbers that are not initialised: a `frame_vector`, or an array if it is long.

    It is part of the function that calls it, whose frame has the memory.
    """
    return frame_vector()[:size] if size <= MOST else np.empty(size)
