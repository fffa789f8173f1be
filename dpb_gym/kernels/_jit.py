"""The package's numba configuration, and the cache of compiled kernels."""

from __future__ import annotations

import atexit
import functools
import gc
import hashlib
import os
import shutil
import tempfile
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar, cast

import numba
from numba.core import caching, event

F = TypeVar("F", bound=Callable[..., Any])

# Environment variable with the temporary cache directory of a run, inherited by its workers.
DIRECTORY = "DPB_GYM_KERNELS"
NO_CACHE = "none"


# No fast-math and no threads: bits are exact. No wrapper for C: nothing calls it.
EXACT = {"fastmath": False, "nogil": True, "no_cfunc_wrapper": True}


def jit(function: F) -> F:
    """Compile lazily and cache on disk."""
    return _cached(numba.njit(**EXACT)(function), function)


def inline(function: F) -> F:
    """Like `jit`, inlined into its callers."""
    return _cached(numba.njit(**EXACT, inline="always")(function), function)


def vectorised(function: F) -> F:
    """Like `jit`; dividing by zero gives infinity, so that loops divide in vector registers."""
    return _cached(numba.njit(**EXACT, error_model="numpy")(function), function)


class _PauseCollection(event.Listener):  # type: ignore[misc]
    """Pause garbage collection while kernels are compiled, of which it takes a seventh."""

    def __init__(self) -> None:
        self.depth, self.enabled = 0, False

    def on_start(self, event: Any) -> None:
        if not self.depth:
            self.enabled = gc.isenabled()
            gc.disable()
        self.depth += 1

    def on_end(self, event: Any) -> None:
        self.depth -= 1
        if not self.depth and self.enabled:
            gc.enable()


event.register("numba:compile", _PauseCollection())


def _cached(dispatcher: Any, function: F) -> F:
    if dispatcher is not function:  # with NUMBA_DISABLE_JIT it is
        try:
            dispatcher._cache = _Cache(function)
        except (RuntimeError, OSError):
            if os.environ.get(DIRECTORY) != NO_CACHE:
                os.environ[DIRECTORY] = NO_CACHE
                _warn("kernels are recompiled in every process: no cache directory is writable")
    return cast(F, dispatcher)


def _warn(message: str) -> None:
    hint = "set NUMBA_CACHE_DIR to a writable directory"
    warnings.warn(f"{message}; {hint}", RuntimeWarning, stacklevel=4)


@functools.cache
def _sources(folder: Path) -> str:
    """Return a digest of all kernel sources, because compiled kernels inline what they call."""
    texts = sorted({*Path(__file__).parent.glob("*.py"), *folder.glob("*.py")})
    return hashlib.sha256(b"\0".join(path.read_bytes() for path in texts)).hexdigest()


def _temporary() -> str:
    directory = os.environ.get(DIRECTORY)
    if not directory:
        directory = os.environ[DIRECTORY] = tempfile.mkdtemp(prefix="dpb-gym-kernels-")
        atexit.register(_remove, directory, os.getpid())
        _warn("kernels are recompiled for this run: no permanent cache directory is writable")
    return directory


def _remove(directory: str, owner: int) -> None:
    if os.getpid() == owner:
        shutil.rmtree(directory, ignore_errors=True)


class _Shared(caching.UserProvidedCacheLocator):
    """A folder of `NUMBA_CACHE_DIR` per digest of the sources: copies of the library share it."""

    @classmethod
    def get_suitable_cache_subpath(cls, py_file: str) -> str:
        folder = Path(py_file).parent
        return f"{folder.parent.name}-{folder.name}-{_sources(folder)[:16]}"


class _Temporary(caching._SourceFileBackedLocatorMixin, caching._CacheLocator):
    """Fallback cache location: a temporary directory of this run and its workers."""

    def __init__(self, function: Any, path: str) -> None:
        self._py_file, self._lineno = path, function.__code__.co_firstlineno
        self._path = str(Path(_temporary()) / self.get_suitable_cache_subpath(path))

    def get_cache_path(self) -> str:
        return self._path


class _Files(caching.CompileResultCacheImpl):
    _locator_classes = [  # noqa: RUF012
        _Shared,
        *caching.CacheImpl._locator_classes,
        _Temporary,
    ]


class _Cache(caching.FunctionCache):
    """numba's cache, with warnings instead of exceptions for damaged files and full disks."""

    _impl_class = _Files

    def __init__(self, function: Any) -> None:
        super().__init__(function)
        self._cache_file._source_stamp = _sources(Path(function.__code__.co_filename).parent)

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        try:
            return super().load_overload(sig, target_context)
        except Exception as error:  # a damaged pickle may raise anything
            self._warn_once("read", error)
            return None

    def save_overload(self, sig: Any, data: Any) -> None:
        try:
            try:
                super().save_overload(sig, data)
            except Exception:
                self.flush()  # a damaged index
                super().save_overload(sig, data)
        except Exception as error:
            self._warn_once("write", error)

    def _warn_once(self, what: str, error: Exception) -> None:
        _once(f"cannot {what} compiled kernels in {self.cache_path} ({type(error).__name__})")


@functools.cache
def _once(message: str) -> None:
    _warn(f"{message}; they are recompiled")
