"""Registered classes, whose instances can be written as state and made of it."""

from __future__ import annotations

import inspect
import sys
from abc import ABCMeta
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import MISSING, fields, is_dataclass
from functools import cached_property, lru_cache
from types import ModuleType
from typing import Any, NamedTuple, TypeVar

from dpb_gym.errors import StateError, shown

AnyClass = TypeVar("AnyClass", bound=type)
Attributes = dict[str, Any]


class Codec(NamedTuple):
    """How instances of a class are written and read.

    Attributes:
        kind: The class.
        out: Returns the attributes of an instance.
        into: Sets the attributes of a new instance; None for a named tuple.
    """

    kind: type
    out: Callable[[Any], Any]
    into: Callable[[Any, Attributes], None] | None


_codecs: dict[str, Codec] = {}
_packages: set[str] = set()


def name_of(kind: type) -> str:
    """Return the name of a class in state: its module and its qualified name."""
    return f"{kind.__module__}:{kind.__qualname__}"


def register(
    kind: AnyClass,
    *,
    out: Callable[[Any], Attributes] | None = None,
    into: Callable[[Any, Attributes], None] | None = None,
) -> AnyClass:
    """Register a class, so that its instances can be written and read; a class decorator.

    Args:
        kind: The class. Subclasses are registered separately. A later class of the same name
            replaces it.
        out: Returns the attributes of an instance as plain state. By default those of its
            ``__getstate__``, or its ``__dict__``.
        into: Sets the attributes of a new instance, made by ``object.__new__``. It is called with
            what a file contains, so it must check everything. By default attributes go to the
            ``__dict__``, or to the ``__setstate__`` of the class if it has one.

    Returns:
        The class.

    Raises:
        StateError: If instances of the class cannot be made from attributes.

    Example:
        >>> from dpb_gym import state
        >>> @state.register
        ... class Point:
        ...     def __init__(self, x):
        ...         self.x = x
        >>> state.loads(state.dumps([Point(1.5)]))[0].x
        1.5
    """
    if not isinstance(kind, type) or type(kind) not in (type, ABCMeta):
        raise StateError(f"{shown(kind)} cannot be registered: it is no ordinary class")
    if (out is None) != (into is None):
        raise StateError(f"{name_of(kind)}: out and into belong together")
    if issubclass(kind, tuple) and hasattr(kind, "_fields"):
        codec = Codec(kind, lambda value: value._asdict(), None)
    elif out is not None:
        codec = Codec(kind, out, into)
    elif is_dataclass(kind) and kind.__dataclass_params__.frozen:  # type: ignore[attr-defined]
        codec = Codec(kind, _frozen_out, _frozen_into)
    elif any(vars(base).get("__slots__") for base in inspect.getmro(kind)):
        raise StateError(f"{name_of(kind)} has slots: register it with out and into")
    else:
        written: Any = kind.__getstate__
        codec = Codec(kind, written, set_attributes)
    new: Any = kind.__new__
    if codec.into is not None and new is not object.__new__:
        raise StateError(f"{name_of(kind)} cannot be registered: it has a __new__ of its own")
    _codecs[name_of(kind)] = codec
    return kind


def register_package(name: str) -> None:
    """Register the classes of a package or module, also of modules imported later.

    Those that cannot be registered are left out, and those with a ``__setstate__``, which would run
    with what a file contains. Nothing happens for this package, whose classes are registered one
    by one.

    Args:
        name: The package or module.
    """
    if name.partition(".")[0] != __name__.partition(".")[0]:
        _packages.add(name)


class Registered:
    """Base of classes whose subclasses are registered where they can be."""

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        register_plain(cls)


def register_plain(kind: type) -> None:
    """Register a class if its instances can be made from attributes, without code of its own."""
    if not hasattr(kind, "__setstate__"):
        with suppress(StateError):  # such as an error type or an enumeration
            register(kind)


def class_of(name: Any, base: type) -> type:
    """Return the registered class of a name that is a subclass of `base`.

    Raises:
        StateError: If there is none.
    """
    codec = codec_named(name) if isinstance(name, str) else None
    if codec is None or not issubclass(codec.kind, base):
        raise StateError(f"{shown(name)} is no registered {base.__name__}")
    return codec.kind


def codec_named(name: str) -> Codec | None:
    """Return the codec of a registered class; look in its module if need be."""
    if name not in _codecs:
        _look(name)
    return _codecs.get(name)


def codec_of(kind: type) -> Codec | None:
    """Return the codec of this class, not of another one of its name."""
    codec = codec_named(name_of(kind))
    if codec is not None and codec.kind is not kind:  # as in a cell of a notebook that ran again
        _look(name_of(kind))
        codec = _codecs[name_of(kind)]
    return codec if codec is not None and codec.kind is kind else None


def _look(name: str) -> None:
    """Register the classes of the imported module of a name, if it is of a registered package."""
    module = name.partition(":")[0]
    content = sys.modules.get(module)
    ours = any(module == own or module.startswith(f"{own}.") for own in _packages)
    if not ours or not isinstance(content, ModuleType):
        return
    for value in list(vars(content).values()):
        if not isinstance(value, type) or value.__module__ != module:
            continue
        known = _codecs.get(name_of(value))
        if known is None or known.kind is not value:
            register_plain(value)


def check_names(kind: type, names: Iterable[str]) -> None:
    """Raise StateError unless all names can be attributes in the ``__dict__`` of an instance."""
    for name in names:
        if not name.isidentifier() or (name.startswith("__") and name.endswith("__")):
            raise StateError(f"{name_of(kind)}: {shown(name)} is no attribute of an instance")
        owner = next((base for base in inspect.getmro(kind) if name in vars(base)), None)
        value = None if owner is None else vars(owner)[name]
        if isinstance(value, cached_property):
            continue
        if callable(value) or hasattr(type(value), "__get__"):
            raise StateError(f"{name_of(kind)}: {name!r} is of the class, not of an instance")


def set_attributes(instance: Any, attributes: Attributes) -> None:
    """Set attributes of an instance, in its ``__dict__`` or by its ``__setstate__``.

    Raises:
        StateError: If one would replace a method, a property or another part of the class.
    """
    check_names(type(instance), attributes)
    own = getattr(instance, "__setstate__", vars(instance).update)
    own(attributes)


def _frozen_out(value: Any) -> Attributes:
    return {field.name: getattr(value, field.name) for field in fields(value)}


@lru_cache(1024)
def frozen_fields(kind: type) -> tuple[str, ...] | None:
    """Return the fields that are the whole state of a frozen dataclass; None for other classes."""
    codec = codec_of(kind) if is_dataclass(kind) else None
    if codec is None or codec.out is not _frozen_out:
        return None
    return tuple(field.name for field in fields(kind))


def _frozen_into(made: Any, state: Attributes) -> None:
    # fields that a later version appended have their defaults, as if the state had them
    own = fields(made)
    later = own[len(state) :] if state else ()
    state = {**state, **{each.name: each.default for each in later if each.default is not MISSING}}
    check_fields(type(made), state, [each.name for each in own])
    for name, value in state.items():
        object.__setattr__(made, name, value)
    check = getattr(made, "__post_init__", None)
    if check is not None:
        check()


def check_fields(kind: type, state: Attributes, names: Any) -> None:
    """Raise StateError unless the attributes are exactly these fields, in order."""
    if list(state) != list(names):
        raise StateError(
            f"{name_of(kind)} has the fields {', '.join(names)}; this state has "
            f"{shown(list(state))}"
        )
