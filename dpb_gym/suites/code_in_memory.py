"""What code reaches in memory, as a text that differs if any of it does."""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Iterable
from types import (
    BuiltinFunctionType,
    CodeType,
    FunctionType,
    GetSetDescriptorType,
    MemberDescriptorType,
    MethodType,
    ModuleType,
    NoneType,
)
from typing import Any

import numpy as np

PLAIN = (bool, int, float, complex, str, bytes, NoneType)
ORDERED = (list, tuple)
SETS = (set, frozenset)
CACHED = type(functools.lru_cache(len))
WRAPPERS: dict[Any, tuple[str, ...]] = {
    staticmethod: ("__func__",),
    classmethod: ("__func__",),
    property: ("fget", "fset", "fdel"),
    functools.partial: ("func", "args", "keywords"),
    functools.partialmethod: ("func", "args", "keywords"),
    functools.cached_property: ("func",),
    CACHED: ("__wrapped__",),
    MethodType: ("__func__", "__self__"),
}
"""Types that hold functions, and the attributes in which they do."""
MOST_OBJECTS = 100_000


class _TooMany(Exception):
    pass


def code_in_memory(code: Any, *, objects: bool) -> bytes:
    """Return a text of the code of a class or function in memory, and of what it uses.

    Used are bases, members, defaults, and by their names in modules of the same top-level package
    functions, classes and constants. Functions and classes of other packages count by their names,
    functions that a decorator of Python or numba holds by their code.

    Args:
        code: A class or a function.
        objects: Whether other objects count, too: containers, arrays and instances by what they
            hold, and what Python cannot take apart by its address. Code in a file needs them not,
            because the file tells how they are made, and they may change while the code runs.
    """
    reached = _Objects(str(getattr(code, "__module__", None)).partition(".")[0], objects)
    try:
        return reached.text(code)
    except (_TooMany, RecursionError):
        # not the same in another process, so that nothing is said of the code there
        return f"{id(code)} {objects}".encode()


class _Objects:
    """Objects in the order in which they are reached; each is described once.

    Args:
        top: Top-level package of the code.
        objects: See `code_in_memory`.
    """

    def __init__(self, top: str, objects: bool) -> None:
        self.top = top
        self.objects = objects
        self._all: list[Any] = []
        self._numbers: dict[int, int] = {}

    def text(self, code: Any) -> bytes:
        """Return the descriptions of a value and of all that it reaches."""
        words = [self._word(code)]
        described = 0
        while described < len(self._all):
            words.append(self._described(self._all[described]))
            described += 1
        return "\n".join(words).encode()

    def _word(self, value: Any) -> str:
        """Return a plain value, or the number of another one, which is described later."""
        # the type, as attributes of an object, such as a proxy, can run code of others
        kind = type(value)
        if kind in PLAIN:
            return f"{kind.__name__} {value!r}"
        if id(value) not in self._numbers:
            if len(self._all) >= MOST_OBJECTS:
                raise _TooMany
            self._numbers[id(value)] = len(self._all)
            self._all.append(value)  # which also keeps its address from another object
        return f"#{self._numbers[id(value)]}"

    def _words(self, name: str, values: Iterable[Any]) -> str:
        return f"{name}({', '.join(map(self._word, values))})"

    def _described(self, value: Any) -> str:
        kind = type(value)
        if kind is FunctionType:
            return self._function(value)
        if issubclass(kind, type):
            return self._class(value)
        for wrapper, parts in WRAPPERS.items():
            if issubclass(kind, wrapper):
                return self._words(kind.__name__, [getattr(value, each, None) for each in parts])
        if any(base.__module__.partition(".")[0] == "numba" for base in kind.__mro__):
            inner = getattr(value, "_dispatcher", value)  # of a ufunc
            return self._words("numba", [getattr(inner, "py_func", None)])
        if kind in (ModuleType, BuiltinFunctionType, GetSetDescriptorType, MemberDescriptorType):
            return f"{kind.__name__} {getattr(value, '__name__', '')}"
        if kind is tuple:
            return self._words("tuple", value)
        return self._object(value, kind) if self.objects else "object"

    def _function(self, value: FunctionType) -> str:
        if self._outside(value):
            return f"{value.__module__}.{value.__qualname__}"
        codes = _codes(value.__code__)
        names = sorted({name for each in codes for name in each.co_names})
        given = value.__defaults__, *(value.__kwdefaults__ or {}).items()
        parts = [*map(_text, codes), *given, *self._reached(value, names)]
        return self._words("function", parts)

    def _class(self, value: type) -> str:
        if self._outside(value):
            return f"{value.__module__}.{value.__qualname__}"
        # texts and numbers of Python itself, such as the first line
        own = {k: v for k, v in vars(value).items() if k[:2] != "__" or callable(v)}
        return self._words(value.__name__, (*value.__bases__, *own, *own.values()))

    def _outside(self, value: Any) -> bool:
        return str(value.__module__).partition(".")[0] != self.top

    def _reached(self, function: FunctionType, names: list[str]) -> list[Any]:
        """Return what a function reaches by names: its globals, its closure, their attributes."""
        scope = function.__globals__
        values = [scope[name] for name in names if name in scope]
        for value in values.copy():
            if type(value) is ModuleType and value.__name__.partition(".")[0] == self.top:
                values += [vars(value)[name] for name in names if name in vars(value)]
        for cell in function.__closure__ or ():
            try:
                values.append(cell.cell_contents)
            except ValueError:  # not set yet
                continue
        return values

    def _object(self, value: Any, kind: Any) -> str:
        name = f"{kind.__module__}.{kind.__qualname__}"
        if kind in ORDERED:
            return self._words(name, value)
        if kind in SETS:
            return self._words(name, sorted(value, key=repr))
        if kind is dict:
            return self._words(name, [part for item in value.items() for part in item])
        if issubclass(kind, np.ndarray | np.generic) and value.dtype.kind != "O":
            digest = hashlib.sha256(np.ascontiguousarray(value).tobytes()).hexdigest()
            return f"{name} {value.dtype} {value.shape} {digest}"
        try:
            parts = value.__reduce_ex__(4)
        except Exception:  # of a lock or a file, or whatever its author raises
            return f"{name} {id(value)}"
        if isinstance(parts, str):
            return f"{name} {parts}"
        # items of lists and dictionaries are iterators
        full = [list(part) if n > 2 and part is not None else part for n, part in enumerate(parts)]
        return self._words(name, [kind, *full])


def _codes(code: CodeType) -> list[CodeType]:
    """Return the code of a function and of those inside of it."""
    inner = [each for each in code.co_consts if isinstance(each, CodeType)]
    return [code, *(each for one in inner for each in _codes(one))]


def _text(code: CodeType) -> str:
    constants = [each for each in code.co_consts if not isinstance(each, CodeType)]
    return repr((code.co_name, code.co_code, code.co_names, constants))
