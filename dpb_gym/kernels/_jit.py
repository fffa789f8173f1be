"""The package's numba configuration."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar, cast

import numba
from numba.core import ir, types
from numba.core.compiler import Compiler, CompilerBase, DefaultPassBuilder
from numba.core.compiler_machinery import AnalysisPass, register_pass
from numba.core.errors import TypingError
from numba.core.typed_passes import NopythonTypeInference

from dpb_gym.kernel_cache import cached

F = TypeVar("F", bound=Callable[..., Any])


# No fast-math and no threads: bits are exact. No wrapper for C: nothing calls it.
EXACT: dict[str, Any] = {"fastmath": False, "nogil": True, "no_cfunc_wrapper": True}


@register_pass(mutates_CFG=False, analysis_only=True)
class _RefuseArraysInPlace(AnalysisPass):
    """Refuse operators in place of two arrays, such as ``a += b``.

    numba compiles them as a ufunc with an output. Its loop has the length of `a`, compares no
    shapes and has no bounds checks, so it reads and writes beyond the end of an array.
    """

    _name = "refuse_arrays_in_place"

    def __init__(self) -> None:
        AnalysisPass.__init__(self)

    def run_pass(self, state: Any) -> bool:
        for block in state.func_ir.blocks.values():
            for assign in block.find_insts(ir.Assign):
                value = assign.value
                if not isinstance(value, ir.Expr) or value.op != "inplace_binop":
                    continue
                operands = (state.typemap[part.name] for part in (value.lhs, value.rhs))
                if all(isinstance(operand, types.Array) for operand in operands):
                    raise TypingError(
                        "an operator in place of two arrays does not compare their shapes: write "
                        "a[:] = a + b, or a loop",
                        loc=assign.loc,
                    )
        return False


class _CheckedCompiler(CompilerBase):
    """numba's compiler with `_RefuseArraysInPlace`."""

    def define_pipelines(self) -> list[Any]:
        passes = DefaultPassBuilder.define_nopython_pipeline(self.state)
        passes.add_pass_after(_RefuseArraysInPlace, NopythonTypeInference)
        passes.finalize()
        return [passes]


FOR_AGENTS = {**EXACT, "error_model": "numpy"}
NEWEST = (0, 68)
"""Newest version of numba whose internal classes `dpb_gym.kernels._parts` is tested with."""
VERSION = tuple(int(part) for part in numba.__version__.split(".")[:2])


def _kernel(function: Any, compiler: type, options: dict[str, Any]) -> Any:
    if numba.config.DISABLE_JIT:  # type: ignore[attr-defined]
        return function
    if VERSION > NEWEST:  # the same code, compiled in twice the time
        plain = numba.njit(pipeline_class=compiler, **options)(function)
        return cached(plain, function)
    from dpb_gym.kernels._parts import Kernel

    return cached(Kernel(function, compiler, options), function)


def jit(function: F) -> F:
    """Compile lazily and cache on disk."""
    return cast(F, _kernel(function, Compiler, EXACT))


def inline(function: F) -> F:
    """Like `jit`, inlined into its callers."""
    compiled = numba.njit(**EXACT, inline="always")(function)
    return cast(F, cached(compiled, function))


def vectorised(function: F) -> F:
    """Like `jit`; dividing by zero gives infinity, so that loops divide in vector registers.

    Operators in place of two arrays are refused when the function is compiled.
    """
    return cast(F, _kernel(function, _CheckedCompiler, FOR_AGENTS))


def checked(function: F) -> F:
    """Like `vectorised`; an index beyond the end of an array raises IndexError.

    Code of agents and the kernels that it may call are compiled so: memory outside of their arrays
    cannot be read.
    """
    return cast(F, _kernel(function, _CheckedCompiler, {**FOR_AGENTS, "boundscheck": True}))
