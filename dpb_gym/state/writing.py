"""Writing of state."""

from __future__ import annotations

import json
import math
from collections import Counter, defaultdict, deque
from collections.abc import Callable
from typing import Any

import numpy as np

from dpb_gym.errors import StateError, shown
from dpb_gym.state.classes import check_names, codec_of, name_of, set_attributes
from dpb_gym.state.plain import BITS, DEPTH, DTYPES, FACTORIES, FORMAT, check_size, is_key


def dumps(value: Any) -> bytes:
    """Return a value as bytes, from which `loads` makes an equal one.

    Arrays keep dtype, shape, order and whether they are read-only. A view becomes an array of its
    own.

    Raises:
        StateError: If a part of it is neither plain data nor an instance of a registered class;
            the message names the part.
    """
    writer = _Writer()
    try:
        root = writer.tree(value)
    except RecursionError:
        raise StateError(f"the value is more than {DEPTH} levels deep") from None
    text = json.dumps({"state": FORMAT, "value": root}, separators=(",", ":"), allow_nan=False)
    line = text.encode()
    check_size(line, len(line))
    return b"".join([line, b"\n", *writer.data])


class _Writer:
    """Turns values into JSON, and collects the data of arrays."""

    def __init__(self) -> None:
        self.data: list[bytes] = []
        self._numbers: dict[int, int] = {}
        self._alive: list[Any] = []  # so that no number of an object is given twice
        self._path: list[str] = []

    def part(self, name: str, value: Any) -> Any:
        """Return a part as JSON, with its name for messages."""
        self._path.append(name)
        content = self.tree(value)
        self._path.pop()
        return content

    def tree(self, value: Any) -> Any:
        """Return a value as JSON."""
        kind = type(value)
        if kind in (bool, type(None)):
            return value
        if kind is int:
            return value if -(2**63) <= value < 2**63 else {"int": hex(value)}
        if kind is float:
            return value if math.isfinite(value) else {"float": str(value)}
        if kind is str:
            try:
                value.encode()
            except UnicodeEncodeError:
                raise self.error(value, "a text that is not valid Unicode") from None
            return value
        if kind in _SMALL:
            return _SMALL[kind](value)
        if isinstance(value, np.generic):
            return {"number": [self._dtype(value.dtype, value), value.tobytes().hex()]}
        number = self._numbers.get(id(value))
        if number is not None:
            return {"ref": number}
        if len(self._path) >= DEPTH:
            raise self.error(value, f"more than {DEPTH} levels deep")
        self._numbers[id(value)] = len(self._numbers)
        self._alive.append(value)
        if kind in _WRITERS:
            return _WRITERS[kind](self, value)
        return self._object(value)

    def items(self, values: Any) -> list[Any]:
        return [self.part(f"[{number}]", value) for number, value in enumerate(values)]

    def pairs(self, values: Any) -> list[Any]:
        made = []
        for key, value in values.items():
            self._check_key(key)
            made.append([self.tree(key), self.part(f"[{shown(key)}]", value)])
        return made

    def keys(self, values: Any) -> list[Any]:
        # in an order that does not depend on hashes, so that equal sets have equal bytes
        for value in values:
            self._check_key(value)
        return [self.tree(value) for value in sorted(values, key=dumps)]

    def _check_key(self, value: Any) -> None:
        if not is_key(value):
            raise self.error(value, "a key, which must be a number, a text or a tuple of them")

    def array(self, value: Any) -> Any:
        dtype = self._dtype(value.dtype, value)
        order = "F" if value.flags.f_contiguous and not value.flags.c_contiguous else "C"
        self.data.append(value.tobytes(order))
        content = {"dtype": dtype, "shape": list(value.shape), "order": order}
        return {"array": {**content, "writeable": bool(value.flags.writeable)}}

    def _dtype(self, dtype: np.dtype[Any], value: Any) -> str:
        if dtype.str not in DTYPES or dtype.metadata:
            raise self.error(value, f"of dtype {dtype}")
        return dtype.str

    def _object(self, value: Any) -> Any:
        kind = type(value)
        codec = codec_of(kind)
        if codec is None:
            raise self.error(value, f"an object of {name_of(kind)}, which is not registered")
        try:
            state = codec.out(value)
            state = {} if state is None else state  # `object.__getstate__` without attributes
            if type(state) is not dict or not all(type(name) is str for name in state):
                raise StateError(f"its attributes are no dict of names: {shown(state)}")
            if codec.into is set_attributes:
                check_names(kind, state)
        except Exception as error:  # of a class's own `__getstate__`
            raise self.error(value, f"an object that cannot be written ({error})") from None
        self._alive.append(state)
        made = {name: self.part(f".{name}", each) for name, each in state.items()}
        return {"object": [name_of(kind), made]}

    def error(self, value: Any, what: str) -> StateError:
        where = "".join(self._path).lstrip(".") or "the value"
        return StateError(f"{where} is {what}: {shown(value)}")


def _bits_out(writer: _Writer, value: Any) -> Any:
    name = type(value).__name__
    state = value.state
    words = {
        part: np.atleast_1d(np.asarray(state["state"][part], object)) for part in BITS[name][1]
    }
    content: dict[str, Any] = {part: [hex(int(n)) for n in each] for part, each in words.items()}
    content |= {part: int(state[part]) for part in ("has_uint32", "uinteger")}
    return {"bits": {"name": name, **content, "seeds": writer.part(".seed_seq", value.seed_seq)}}


def _seeds_out(writer: _Writer, value: Any) -> Any:
    state = value.state
    entropy = np.ravel(np.asarray(state["entropy"], object)).tolist()
    if not all(isinstance(n, (int, np.integer)) for n in entropy):
        raise writer.error(value, "a SeedSequence of other things than integers")
    whole = {name: [hex(n) for n in map(int, each)] for name, each in
             (("entropy", entropy), ("spawn_key", state["spawn_key"]))}  # fmt: skip
    counts = {name: int(state[name]) for name in ("pool_size", "n_children_spawned")}
    single = np.ndim(state["entropy"]) == 0
    return {"seeds": {**whole, "single": single, **counts}}


def _deque_out(writer: _Writer, value: Any) -> Any:
    return {"deque": [value.maxlen, writer.items(value)]}


def _default_out(writer: _Writer, value: Any) -> Any:
    factory = value.default_factory
    if factory is not None and FACTORIES.get(getattr(factory, "__name__", "")) is not factory:
        raise writer.error(value, f"a defaultdict of {shown(factory)}")
    return {"defaultdict": [None if factory is None else factory.__name__, writer.pairs(value)]}


_SMALL: dict[type, Callable[[Any], Any]] = {
    bytes: lambda value: {"bytes": value.hex()},
    range: lambda value: {"range": [hex(n) for n in (value.start, value.stop, value.step)]},
}
_WRITERS: dict[type, Callable[[_Writer, Any], Any]] = {
    list: lambda writer, value: writer.items(value),
    tuple: lambda writer, value: {"tuple": writer.items(value)},
    dict: lambda writer, value: {"dict": writer.pairs(value)},
    Counter: lambda writer, value: {"Counter": writer.pairs(value)},
    defaultdict: _default_out,
    set: lambda writer, value: {"set": writer.keys(value)},
    frozenset: lambda writer, value: {"frozenset": writer.keys(value)},
    deque: _deque_out,
    np.ndarray: lambda writer, value: writer.array(value),
    np.random.Generator: lambda writer, value: {
        "generator": writer.part(".bit_generator", value.bit_generator)
    },
    np.random.SeedSequence: _seeds_out,
    **{kind: _bits_out for kind, _ in BITS.values()},
}
