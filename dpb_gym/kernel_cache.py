"""Cache of compiled kernels: on disk, shared by all processes, and shipped with wheels.

A kernel that is found neither in the package nor on disk is compiled by one process at a time.
Processes that need the same kernel meanwhile wait for it.

The classes here extend private ones of `numba.core.caching`, because ``NUMBA_CACHE_DIR`` and
numba's stamp do not suffice:

- The stamp depends on the kernel's own file only. A kernel contains the code of the kernels that it
  calls, so a change in another file must compile it again.
- Wheels contain kernels, compiled for `PORTABLE`, in a folder that need not be writable.
- numba has no locks: every process of a run would compile the same kernels.
- Without a writable folder, numba raises an error when a kernel is defined.
"""

from __future__ import annotations

import atexit
import functools
import gc
import hashlib
import os
import platform
import shutil
import tempfile
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FunctionType
from typing import Any

from llvmlite import binding
from numba.core import caching, config, event
from numba.core.dispatcher import Dispatcher

_config: Any = config

# Environment variable with the temporary cache directory of a run, inherited by its workers.
DIRECTORY = "DPB_GYM_KERNELS"
NO_CACHE = "none"

KERNELS = Path(__file__).parent / "kernels"
SHIPPED = KERNELS / "compiled"
"""Read-only cache directory inside the package; exists in wheels with compiled kernels."""
PORTABLE = {
    "x86_64": ("x86-64-v3", ("avx2", "bmi", "bmi2", "f16c", "fma", "lzcnt", "movbe")),
    "aarch64": ("generic", ()),
}
"""Processor for which shipped kernels are compiled, and the features it needs, by machine."""
WAIT_SECONDS = 120.0
"""Seconds to wait for a kernel that another process compiles, before compiling it as well."""


def cached(dispatcher: Any, function: Any) -> Any:
    """Return a numba dispatcher that loads its compiled code from the cache."""
    if dispatcher is not function:  # with NUMBA_DISABLE_JIT it is
        try:
            files = getattr(dispatcher, "cache_class", KernelCache)
            dispatcher._cache = files(function)
        except (RuntimeError, OSError):
            if os.environ.get(DIRECTORY) != NO_CACHE:
                os.environ[DIRECTORY] = NO_CACHE
                _warn("kernels are recompiled in every process: no cache directory is writable")
    return dispatcher


def _warn(message: str) -> None:
    hint = "set NUMBA_CACHE_DIR to a writable directory"
    warnings.warn(f"{message}; {hint}", RuntimeWarning, stacklevel=4)


@functools.cache
def _sources(folder: Path) -> str:
    """Return a digest of all kernel sources, because compiled kernels inline what they call."""
    texts = sorted({*KERNELS.glob("*.py"), *folder.glob("*.py")})
    return hashlib.sha256(b"\0".join(path.read_bytes() for path in texts)).hexdigest()


def _stamp(function: Any) -> str:
    """Return a digest of the sources of all that a kernel calls, and of its constants.

    Functions of agents call some of other folders, whose code is compiled into theirs.
    """
    folders, constants = _reached(function)
    return _digest([*folders, *sorted(constants)])


@functools.cache
def _reached(function: Any) -> tuple[list[str], set[str]]:
    """Return digests of the folders of all that a function calls, and the numbers it names."""
    folders: set[Path] = set()
    constants: set[str] = set()
    _reach(function, folders, constants, set())
    return sorted(map(_sources, folders)), constants


def _digest(parts: list[str]) -> str:
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()


def _reach(function: Any, folders: set[Path], constants: set[str], seen: set[int]) -> None:
    """Add the folders of a function and of all that it calls, and the numbers that they name."""
    seen.add(id(function))
    folders.add(Path(function.__code__.co_filename).parent)
    for name in function.__code__.co_names:
        value = function.__globals__.get(name)
        called = getattr(value, "py_func", None)
        if isinstance(called, FunctionType):
            if id(called) not in seen:
                _reach(called, folders, constants, seen)
        elif isinstance(value, (bool, int, float, tuple)):
            constants.add(f"{name}={value!r}")


@functools.cache
def portable_processor() -> str:
    """Return the processor of the shipped kernels; empty if they do not run on this one."""
    name, needed = PORTABLE.get(platform.machine(), ("", ()))
    chosen = _config.CPU_NAME is not None or _config.CPU_FEATURES is not None
    features = binding.get_host_cpu_features()
    able = all(features.get(feature) for feature in needed) and _config.ENABLE_AVX
    return name if able and not chosen and SHIPPED.is_dir() else ""


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


def _subpath(function: Any) -> str:
    """Return the folder of a kernel in a cache."""
    folder = Path(function.__code__.co_filename).parent
    return f"{folder.parent.name}-{folder.name}-{_digest(_reached(function)[0])[:16]}"


_locators = vars(caching)
# numba 0.60 has the second name
_Chosen: Any = _locators.get("UserProvidedCacheLocator") or _locators["_UserProvidedCacheLocator"]


class _Shared(_Chosen):  # type: ignore[misc]
    """A folder of `NUMBA_CACHE_DIR` per digest of the sources: copies of the library share it."""

    def __init__(self, function: Any, path: str) -> None:
        super().__init__(function, path)
        self._cache_path = str(Path(_config.CACHE_DIR) / _subpath(function))


class _Temporary(caching._SourceFileBackedLocatorMixin, caching._CacheLocator):
    """Fallback cache location: a temporary directory of this run and its workers."""

    def __init__(self, function: Any, path: str) -> None:
        self._py_file, self._lineno = path, function.__code__.co_firstlineno
        self._path = str(Path(_temporary()) / _subpath(function))

    def get_cache_path(self) -> str:
        return self._path


class KernelFiles(caching.CompileResultCacheImpl):
    """Files of the compiled code of a kernel."""

    _locator_classes = [  # noqa: RUF012
        _Shared,
        *caching.CacheImpl._locator_classes,
        _Temporary,
    ]

    def reduce(self, data: Any) -> Any:
        # Without the annotated source, which nothing reads: generated functions have none, and from
        # Python 3.12 on other text in its place cannot always be split into tokens.
        return super().reduce(data._replace(type_annotation=""))


class KernelCache(caching.FunctionCache):
    """numba's cache with shipped kernels and locks, and warnings instead of exceptions."""

    _impl_class = KernelFiles

    def __init__(self, function: Any) -> None:
        super().__init__(function)
        file = self._cache_file
        file._source_stamp = _stamp(function)
        shipped = SHIPPED / _subpath(function)
        self._shipped = caching.IndexDataCacheFile(
            str(shipped), self._impl.filename_base, file._source_stamp
        )
        self._lock: Any = None

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        overload = self._load_shipped(sig, target_context) or self._load(sig, target_context)
        if overload is None:
            self._claim()
            overload = self._load(sig, target_context)
            if overload is not None:
                self.release()
        return overload

    def _load(self, sig: Any, target_context: Any) -> Any:
        try:
            return super().load_overload(sig, target_context)
        except Exception as error:  # a damaged pickle may raise anything
            self._warn_once("read", error)
            return None

    def _load_shipped(self, sig: Any, target_context: Any) -> Any:
        if not portable_processor():
            return None
        target_context.refresh()
        try:
            sig, (triple, *_), code = self._index_key(sig, target_context.codegen())
            data = self._shipped.load((sig, (triple, portable_processor(), ""), code))
            return None if data is None else self._impl.rebuild(target_context, data)
        except Exception:  # compiled here instead
            return None

    def _claim(self) -> None:
        """Wait until no other process compiles this kernel; crashed processes do not count."""
        import filelock

        if self._lock is None:
            self._lock = filelock.FileLock(f"{self._cache_file._index_path}.lock")
        try:
            self._lock.acquire(timeout=WAIT_SECONDS)
            _claimed.append(self)
        except (filelock.Timeout, OSError, NotImplementedError, RuntimeError):
            pass  # compiled by both, which is harmless; RuntimeError after a fork

    def release(self) -> None:
        """Let other processes compile or load this kernel."""
        if self in _claimed:
            _claimed.remove(self)
            self._lock.release()

    def save_overload(self, sig: Any, data: Any) -> None:
        try:
            try:
                super().save_overload(sig, data)
            except Exception:
                self.flush()  # a damaged index
                super().save_overload(sig, data)
        except Exception as error:
            self._warn_once("write", error)
        finally:
            self.release()

    def _warn_once(self, what: str, error: Exception) -> None:
        _once(f"cannot {what} compiled kernels in {self.cache_path} ({type(error).__name__})")


_claimed: list[KernelCache] = []
"""Caches whose locks this process holds, one entry per acquisition."""


@functools.cache
def _once(message: str) -> None:
    _warn(f"{message}; they are recompiled")


class _Spent(event.Listener, threading.local):
    """Seconds that a thread has spent compiling, loading and waiting for kernels.

    Garbage collection, which takes a seventh of a compilation, is paused meanwhile.
    """

    depth = 0
    wall = 0.0
    processor = 0.0

    def on_start(self, _: Any) -> None:
        if self.depth == 0:
            self.began = time.perf_counter(), time.thread_time()
            self.collects = gc.isenabled()
            gc.disable()
        self.depth += 1

    def on_end(self, _: Any) -> None:
        self.depth -= 1
        if self.depth == 0:
            for cache in list(_claimed):  # of kernels that failed to compile
                cache.release()
            if self.collects:
                gc.enable()
            self.wall += time.perf_counter() - self.began[0]
            self.processor += time.thread_time() - self.began[1]


spent = _Spent()
"""`wall` and `processor` seconds that this thread has spent on compilation."""
event.register("numba:compiler_lock", spent)


def _called(kernel: Any, kernels: set[Any]) -> set[Any]:
    """Add a kernel and all kernels that it calls, directly or not, to a set."""
    kernels.add(kernel)
    function = kernel.py_func
    for name in function.__code__.co_names:
        value = function.__globals__.get(name)
        if isinstance(value, Dispatcher) and value not in kernels:
            _called(value, kernels)
    return kernels


def _has_code(kernel: Any) -> bool:
    """Return whether a kernel is compiled for some types, for Python or for other kernels."""
    return bool(kernel.overloads or getattr(kernel, "part_overloads", None))


@event.Listener.register
class _Compilations:
    def __init__(self, report: Callable[[int, int, str], None] | None) -> None:
        self.report, self.running, self.count = report, [""], 0
        self.needed: set[Any] = set()

    def notify(self, event: Any) -> None:
        kernel = event.data["dispatcher"]
        if kernel.py_func.__module__.startswith("numba."):
            return
        if event.is_start:
            if not self.running[-1]:
                self.needed = _called(kernel, set())
            self.running.append(kernel.__name__)
        else:
            self.running.pop()
            self.count += 1
        if self.report is not None:
            left = sum(not _has_code(each) for each in self.needed) if self.running[-1] else 0
            self.report(self.count, self.count + left, self.running[-1])


@contextmanager
def compilations(report: Callable[[int, int, str], None] | None) -> Iterator[_Compilations]:
    """Report compilation in this process while the context is active.

    Args:
        report: Called with the number of kernels compiled so far, that number with the kernels left
            of those that the current one calls, and the name of the kernel that is being compiled,
            empty if there is none. None to count only, in `count`.
    """
    with event.install_listener("numba:compile", _Compilations(report)) as listener:
        yield listener
