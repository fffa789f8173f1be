"""The one numba configuration of the package, and where compiled kernels are kept."""

from __future__ import annotations

import atexit
import functools
import hashlib
import os
import shutil
import tempfile
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar, cast

import numba
from numba.core import caching

F = TypeVar("F", bound=Callable[..., Any])

# Names the directory of a run that found no other place; its worker processes inherit it.
PLACE = "DPB_GYM_KERNELS"
NOWHERE = "none"


def jit(function: F) -> F:
    """Compiles lazily and caches on disk; no fast-math, no threads: bits are exact."""
    return _cached(numba.njit(fastmath=False, nogil=True)(function), function)


def inline(function: F) -> F:
    """Like `jit`, inlined into its callers."""
    return _cached(numba.njit(fastmath=False, nogil=True, inline="always")(function), function)


def vectorised(function: F) -> F:
    """Like `jit`; dividing by zero gives infinity, so that loops divide in vector registers."""
    compiled = numba.njit(fastmath=False, nogil=True, error_model="numpy")(function)
    return _cached(compiled, function)


def _cached(dispatcher: Any, function: F) -> F:
    if dispatcher is not function:  # with NUMBA_DISABLE_JIT it is
        try:
            dispatcher._cache = _Cache(function)
        except (RuntimeError, OSError):
            if os.environ.get(PLACE) != NOWHERE:
                os.environ[PLACE] = NOWHERE
                _warn("kernels are compiled anew in every process: no place is writable")
    return cast(F, dispatcher)


def _warn(message: str) -> None:
    hint = "NUMBA_CACHE_DIR names another directory for them"
    warnings.warn(f"{message}; {hint}", RuntimeWarning, stacklevel=4)


@functools.cache
def _sources(folder: Path) -> str:
    """Digest of all kernels' texts: a compiled kernel holds what it calls as well."""
    texts = sorted({*Path(__file__).parent.glob("*.py"), *folder.glob("*.py")})
    return hashlib.sha256(b"\0".join(path.read_bytes() for path in texts)).hexdigest()


def _temporary() -> str:
    place = os.environ.get(PLACE)
    if not place:
        place = os.environ[PLACE] = tempfile.mkdtemp(prefix="dpb-gym-kernels-")
        atexit.register(_clean, place, os.getpid())
        _warn("kernels are compiled anew for this run: no lasting place is writable")
    return place


def _clean(place: str, owner: int) -> None:
    if os.getpid() == owner:
        shutil.rmtree(place, ignore_errors=True)


class _Temporary(caching._SourceFileBackedLocatorMixin, caching._CacheLocator):
    """The last resort: a directory of this run and its workers."""

    def __init__(self, function: Any, path: str) -> None:
        self._py_file, self._lineno = path, function.__code__.co_firstlineno
        self._path = str(Path(_temporary()) / self.get_suitable_cache_subpath(path))

    def get_cache_path(self) -> str:
        return self._path


class _Files(caching.CompileResultCacheImpl):
    _locator_classes = [*caching.CacheImpl._locator_classes, _Temporary]  # noqa: RUF012


class _Cache(caching.FunctionCache):
    """numba's cache, which no damaged file and no full disk brings down."""

    _impl_class = _Files

    def __init__(self, function: Any) -> None:
        super().__init__(function)
        stamp = self._cache_file._source_stamp
        folder = Path(function.__code__.co_filename).parent
        self._cache_file._source_stamp = (stamp, _sources(folder))

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        try:
            return super().load_overload(sig, target_context)
        except Exception as error:  # whatever bytes a damaged pickle may call
            self._give_up("read", error)
            return None

    def save_overload(self, sig: Any, data: Any) -> None:
        try:
            try:
                super().save_overload(sig, data)
            except Exception:
                self.flush()  # a damaged index
                super().save_overload(sig, data)
        except Exception as error:
            self._give_up("write", error)

    def _give_up(self, what: str, error: Exception) -> None:
        _once(f"cannot {what} compiled kernels in {self.cache_path} ({type(error).__name__})")


@functools.cache
def _once(message: str) -> None:
    _warn(f"{message}; they are compiled anew")
