"""What code reaches in memory, as a text that differs if any of it does."""

from __future__ import annotations

import copyreg
import dis
import functools
import hashlib
import secrets
from abc import ABCMeta
from collections.abc import Iterable
from itertools import islice
from types import (
    BuiltinFunctionType,
    CodeType,
    FunctionType,
    GetSetDescriptorType,
    MappingProxyType,
    MemberDescriptorType,
    MethodType,
    ModuleType,
    NoneType,
)
from typing import Any

import numpy as np

PLAIN = (bool, float, complex, str, bytes, NoneType)
WRAPPERS: dict[Any, tuple[str, ...]] = {
    staticmethod: ("__func__",),
    classmethod: ("__func__",),
    property: ("fget", "fset", "fdel"),
    functools.partial: ("func", "args", "keywords"),
    functools.partialmethod: ("func", "args", "keywords"),
    functools.cached_property: ("func",),
    type(functools.lru_cache(len)): ("__wrapped__",),
    MethodType: ("__func__", "__self__"),
}
"""Types that hold functions, and the attributes in which they do."""
MADE = {
    "__dict__", "__weakref__", "__doc__", "__module__", "__qualname__", "__firstlineno__",
    "__static_attributes__", "__annotations__", "__annotate__", "__annotations_cache__",
    "__annotate_func__", "__abstractmethods__", "__parameters__", "__orig_bases__",
    "__type_params__", "__dataclass_fields__", "__dataclass_params__", "__protocol_attrs__",
    "__non_callable_proto_members__", "__slotnames__", "_abc_impl",
}  # fmt: skip
"""Members that Python and its modules make, of what the class has anyway."""
MOST_OBJECTS = 100_000
GLOBAL = {"LOAD_GLOBAL", "LOAD_NAME", "LOAD_FROM_DICT_OR_GLOBALS"}


class _Unknown(Exception):
    """What an object holds cannot be told."""


def code_in_memory(code: Any, *, objects: bool) -> bytes:
    """Return a text of the code of a class or function in memory, and of what it uses.

    Used are bases, members, defaults, and by their names in modules of the same top-level package
    functions, classes and constants. Functions and classes of other packages count by their names,
    functions that a decorator of Python or numba holds by their code.

    Args:
        code: A class or a function.
        objects: Whether other objects count, too: containers, arrays and instances by what they
            hold. If Python cannot take one of them apart, such as a lock, or there are more than
            `MOST_OBJECTS`, the text differs at each call: nothing is known of this code. Code in
            a file needs no objects, because the file tells how they are made, and they may change
            while the code runs.
    """
    top = str(getattr(code, "__module__", None)).partition(".")[0]
    try:
        return _Objects(top, objects).text(code)
    except Exception:  # `_Unknown`, or whatever the author of an object raises
        return secrets.token_bytes(16) if objects else b""


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
        return "\n".join(words).encode("utf-8", "surrogatepass")

    def _word(self, value: Any) -> str:
        """Return a plain value, or the number of another one, which is described later."""
        # the type, as attributes of an object, such as a proxy, can run code of others
        kind = type(value)
        if kind is int:
            return f"{value:x}"
        if kind in PLAIN:
            return f"{kind.__name__} {value!r}"
        if id(value) not in self._numbers:
            if len(self._all) >= MOST_OBJECTS:
                raise _Unknown
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
        if kind in WRAPPERS:
            return self._words(kind.__name__, [getattr(value, one, None) for one in WRAPPERS[kind]])
        if any(base.__module__.partition(".")[0] == "numba" for base in kind.__mro__):
            return self._compiled(value)
        if issubclass(kind, ModuleType):
            return f"module {ModuleType.__getattribute__(value, '__dict__').get('__name__')}"
        if kind in (GetSetDescriptorType, MemberDescriptorType):
            return f"{kind.__name__} {getattr(value, '__name__', '')}"
        if kind is BuiltinFunctionType:
            owner = getattr(value, "__self__", None)
            bound = () if owner is None or type(owner) is ModuleType else (owner,)
            return self._words(f"{value}" if not bound else str(value.__qualname__), bound)
        if issubclass(kind, tuple):
            return self._words(kind.__name__, tuple.__iter__(value))
        return self._object(value, kind) if self.objects else "object"

    def _compiled(self, value: Any) -> str:
        """Describe what numba compiles from a function."""
        inner = getattr(value, "_dispatcher", value)  # of a ufunc
        function = getattr(inner, "py_func", None)
        if function is None and self.objects:
            raise _Unknown
        options = getattr(inner, "targetoptions", {}).items()
        return self._words("numba", [function, *(part for option in options for part in option)])

    def _function(self, value: FunctionType) -> str:
        if self._outside(value):
            return f"{value.__module__}.{value.__qualname__}"
        codes = _codes(value.__code__)
        parts = [*map(_text, codes), value.__defaults__, *(value.__kwdefaults__ or {}).items()]
        parts += [*vars(value).items()] if self.objects else []
        for name, reached in self._reached(value, codes):
            parts += [name, reached]
        return self._words("function", parts)

    def _class(self, value: type) -> str:
        if self._outside(value):
            return f"{value.__module__}.{value.__qualname__}"
        own = {name: member for name, member in vars(value).items() if name not in MADE}
        kinds = [kind for kind in (type(value),) if kind not in (type, ABCMeta)]
        return self._words(value.__name__, (*kinds, *value.__bases__, *own, *own.values()))

    def _outside(self, value: Any) -> bool:
        return str(value.__module__).partition(".")[0] != self.top

    def _reached(self, function: FunctionType, codes: list[CodeType]) -> list[tuple[str, Any]]:
        """Return what a function reaches by names: its globals, its closure, their attributes."""
        scope = function.__globals__
        names = sorted({name for each in codes for name in _globals(each)})
        values = [(name, scope[name]) for name in names if name in scope]
        attributes = sorted({name for each in codes for name in each.co_names})
        for _, value in values.copy():
            if type(value) is ModuleType and value.__name__.partition(".")[0] == self.top:
                own = vars(value)
                values += [(name, own[name]) for name in attributes if name in own]
        for cell in function.__closure__ or ():
            try:
                values.append(("", cell.cell_contents))
            except ValueError:  # not set yet
                continue
        return values

    def _object(self, value: Any, kind: Any) -> str:
        name = f"{kind.__module__}.{kind.__qualname__}"
        if kind is list:
            return self._words(name, value)
        if kind in (set, frozenset):
            # others have no order that is the same in another process
            if any(type(each) not in (*PLAIN, int) for each in value):
                raise _Unknown
            return self._words(name, sorted(value, key=lambda each: (str(type(each)), repr(each))))
        if kind in (dict, MappingProxyType):
            return self._words(name, [part for item in value.items() for part in item])
        if issubclass(kind, (np.ndarray, np.generic)) and kind is not np.ma.MaskedArray:
            return self._array(value, name)
        if kind is np.ufunc:
            if getattr(np, str(getattr(value, "__name__", "")), None) is not value:
                raise _Unknown
            return f"{name} {value}"
        reducer = copyreg.dispatch_table.get(kind)
        # raises where an object cannot be stored, such as a lock or a file
        parts = value.__reduce_ex__(4) if reducer is None else reducer(value)
        if isinstance(parts, str):
            return f"{name} {parts}"
        # function, arguments, state, items of a list and of a dictionary, function for the state
        full = (*parts, *[None] * 6)[:6]
        items = [None if part is None else [*islice(part, MOST_OBJECTS)] for part in full[3:5]]
        return self._words(name, [kind, *full[:3], *items, full[5]])

    def _array(self, value: Any, name: str) -> str:
        if isinstance(value, np.ndarray) and type(value) is not np.ndarray:
            raise _Unknown  # it may have attributes of its own
        if value.dtype.hasobject or value.dtype.kind == "T":
            return self._words(f"{name} {value.dtype} {value.shape}", [value.tolist()])
        digest = hashlib.sha256(np.ascontiguousarray(value).tobytes()).hexdigest()
        return f"{name} {value.dtype} {value.shape} {digest}"


def _codes(code: CodeType) -> list[CodeType]:
    """Return the code of a function and of those inside of it."""
    inner = [each for each in code.co_consts if isinstance(each, CodeType)]
    return [code, *(each for one in inner for each in _codes(one))]


@functools.lru_cache(4096)
def _globals(code: CodeType) -> frozenset[str]:
    """Return the names of the globals that code reads; attributes can have the same names."""
    return frozenset(each.argval for each in dis.get_instructions(code) if each.opname in GLOBAL)


def _text(code: CodeType) -> str:
    constants = [_constant(each) for each in code.co_consts if not isinstance(each, CodeType)]
    count = code.co_argcount + code.co_kwonlyargcount
    arguments = code.co_varnames[: count + bool(code.co_flags & 4) + bool(code.co_flags & 8)]
    counts = code.co_argcount, code.co_posonlyargcount, code.co_kwonlyargcount, code.co_flags
    return repr((code.co_name, code.co_code, code.co_names, arguments, counts, constants))


def _constant(value: Any) -> str:
    """Return a constant of code; the order of a set is another one in each process."""
    if isinstance(value, frozenset):
        return f"{{{', '.join(sorted(map(_constant, value)))}}}"
    if isinstance(value, tuple):
        return f"({', '.join(map(_constant, value))})"
    return f"{value:x}" if type(value) is int else repr(value)
