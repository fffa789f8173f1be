"""Kernels whose callees are optimised and emitted once, with the code that Python calls.

numba optimises a function together with all that it calls, and emits machine code for it. It does
so at every level of calls, from the smallest helper to the loop over rounds, because Python may
call each of them. That takes more than half of the time of compilation.

A `Kernel` is two dispatchers. Python calls the first one. Compiled code calls the second one, a
part, which ends as LLVM code. Its callers link, optimise and emit that code, as functions of their
own (`_KernelLibrary`).
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any
from weakref import WeakKeyDictionary

from llvmlite import binding
from numba.core import types
from numba.core.codegen import JITCodeLibrary
from numba.core.compiler import CompilerBase, compile_result
from numba.core.registry import CPUDispatcher

from dpb_gym.kernel_cache import KernelCache, KernelFiles, cached


class _PartLibrary(JITCodeLibrary):
    """LLVM code that is linked into that of its callers, which optimise and emit it."""

    def _optimize_final_module(self) -> None:
        pass  # single functions are optimised where they are added

    def _finalize_final_module(self) -> None:
        self._finalize_dynamic_globals()
        self._verify_declare_only_symbols()
        self._finalized = True

    def serialize_using_object_code(self) -> Any:
        return self.serialize_using_bitcode()


class _KernelLibrary(JITCodeLibrary):
    """Machine code of a kernel and of the parts that it calls.

    No other code calls these copies of the parts. LLVM is told so, and therefore inlines what is
    called once, and leaves out arguments that are not used and the counting of references to
    arrays that have none (`dpb_gym.kernels.borrowing`): 40% of the time of a round of LinUCB.
    """

    def _optimize_final_module(self) -> None:
        for function in self._final_module.functions:
            # the linkage of what was linked; that of the kernel itself is another one
            if function.linkage == binding.Linkage.linkonce_odr and not function.is_declaration:
                function.linkage = binding.Linkage.internal
        super()._optimize_final_module()


class _KernelPipeline(CompilerBase):
    """Mixin of a compiler whose code Python calls."""

    def define_pipelines(self) -> Any:
        state = self.state
        state.library = _KernelLibrary(state.targetctx.codegen(), state.func_id.func_qualname)
        # as numba does where it makes the library
        state.library.enable_object_caching()
        return super().define_pipelines()


class _PartPipeline(CompilerBase):
    """Mixin of a compiler that stops before machine code."""

    def define_pipelines(self) -> Any:
        state = self.state
        state.flags.no_cpython_wrapper = True
        state.flags.no_compile = True
        state.library = _PartLibrary(state.targetctx.codegen(), state.func_id.func_qualname)
        return super().define_pipelines()


@functools.cache
def _with(mixin: type, compiler: type) -> type:
    """Return a compiler with one of the mixins of this module."""
    return type(f"{mixin.__name__}{compiler.__name__}", (mixin, compiler), {})


class _PartFiles(KernelFiles):
    """Files of a part: its LLVM code, next to the files of the kernel."""

    @property
    def filename_base(self) -> str:
        return f"{super().filename_base}.part"

    def check_cachable(self, result: Any) -> bool:
        # addresses of this process; the optimiser may remove them, and callers check theirs
        return not result.library.has_dynamic_globals

    def rebuild(self, target_context: Any, payload: Any) -> Any:
        (name, _, code), description, environment, signature, *_, again, others = payload
        for each in again:
            each()
        library = _PartLibrary(target_context.codegen(), name)
        library._final_module = binding.parse_bitcode(code)
        library._finalized = True
        return compile_result(
            target_context=target_context,
            typing_context=target_context.typing_context,
            library=library,
            environment=environment,
            entry_point=object(),
            fndesc=description,
            signature=signature,
            objectmode=False,
            lifted=(),
            reload_init=again,
            referenced_envs=others,
        )


class _PartCache(KernelCache):
    _impl_class = _PartFiles


class _Part(CPUDispatcher):
    """Dispatcher of the part of a kernel."""

    cache_class = _PartCache

    def add_overload(self, result: Any) -> None:
        if result.entry_point is None:
            # callers look functions up by their entry points
            result = result._replace(entry_point=object())
            self.targetctx.insert_user_function(result.entry_point, result.fndesc, [result.library])
        self.overloads[tuple(result.signature.args)] = result

    def _compile_for_args(self, *_: Any, **__: Any) -> Any:
        raise TypeError("a part of a kernel is called by compiled code only")


# Not an attribute, so that code of an agent cannot set another one.
_parts: WeakKeyDictionary[Kernel, _Part] = WeakKeyDictionary()


class Kernel(CPUDispatcher):
    """Dispatcher of a function that Python calls; compiled code calls its part.

    Args:
        function: Function in numba's subset of Python.
        compiler: Class of numba's compiler.
        options: Options of `numba.njit`.
    """

    def __init__(self, function: Callable[..., Any], compiler: type, options: Any) -> None:
        options = {"nopython": True, **options}
        own = _with(_KernelPipeline, compiler)
        super().__init__(function, targetoptions=options, pipeline_class=own)
        part = _Part(function, targetoptions=options, pipeline_class=_with(_PartPipeline, compiler))
        _parts[self] = cached(part, function)

    @property
    def _numba_type_(self) -> Any:
        return types.Dispatcher(_parts[self])

    def compile(self, sig: Any) -> Any:
        """Compile for the types of arguments; a function that calls itself calls this kernel."""
        # numba takes a global function for a recursive call while it is being compiled
        with _parts[self]._compiling_counter:
            return super().compile(sig)

    @property
    def part_overloads(self) -> Any:
        """Compiled code of the part, by the types of its arguments."""
        return _parts[self].overloads
