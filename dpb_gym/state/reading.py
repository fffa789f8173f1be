"""Reading of state."""

from __future__ import annotations

import json
import math
import re
from collections import Counter, defaultdict, deque
from collections.abc import Callable
from typing import Any

import numpy as np

from dpb_gym.errors import StateError, shown
from dpb_gym.state.classes import check_fields, codec_named
from dpb_gym.state.plain import (
    BITS,
    DEPTH,
    DTYPES,
    FACTORIES,
    FORMAT,
    MOST_SEED_BITS,
    MOST_SEEDS,
    MOST_TEXT,
    check_size,
    is_key,
)


def loads(data: bytes, *, objects: bool = True) -> Any:
    """Return the value of bytes that `dumps` returned.

    Memory is needed for at most about a hundred times the bytes, whatever they are.

    Args:
        data: The bytes.
        objects: Whether objects of registered classes are read.

    Raises:
        StateError: If they are damaged, of another format, too deep, or name a class that is not
            registered; or have an object, without `objects`.
    """
    end = data.find(b"\n", 0, MOST_TEXT + 1)
    if end < 0:
        raise StateError("this is no state: it has no line of JSON")
    check_size(data, end)
    try:
        document = json.loads(
            data[:end].decode("utf-8"),
            object_pairs_hook=_unique,
            parse_constant=_refuse,
            parse_float=_finite,
            parse_int=_short,
        )
    except RecursionError:
        raise StateError(f"this state has more than {DEPTH} levels") from None
    except StateError:
        raise
    except ValueError as error:
        raise StateError(f"this is no state: {error}") from None
    if not isinstance(document, dict) or set(document) != {"state", "value"}:
        raise StateError("this is no state: its line has no value")
    if type(document["state"]) is not int or document["state"] != FORMAT:
        raise StateError(
            f"this state has format {shown(document['state'])}, this version of dpb-gym reads "
            f"{FORMAT}"
        )
    reader = _Reader(memoryview(data)[end + 1 :], objects)
    try:
        value = reader.tree(document["value"])
    except RecursionError:
        raise StateError(f"this state has more than {DEPTH} levels") from None
    if reader.at != len(reader.data):
        raise StateError(f"{len(reader.data) - reader.at} bytes of this state belong to no array")
    return value


class _Reader:
    """Makes values of JSON, and arrays of the data behind it.

    Args:
        data: The data of the arrays.
        objects: Whether objects of registered classes are made.
    """

    def __init__(self, data: memoryview, objects: bool = True) -> None:
        self.data = data
        self.objects = objects
        self.at = 0
        self._made: list[Any] = []
        self._depth = 0

    def tree(self, content: Any) -> Any:
        """Return the value of JSON."""
        kind = type(content)
        if kind is str:
            try:
                content.encode()
            except UnicodeEncodeError:
                raise StateError(f"{shown(content)} is no valid Unicode") from None
            return content
        if kind not in (list, dict):
            return content
        if self._depth >= DEPTH:
            raise StateError(f"this state has more than {DEPTH} levels")
        self._depth += 1
        if kind is list:
            value = self._filled([], content)
        else:
            if len(content) != 1:
                raise StateError(f"a value has one kind; got {shown(list(content))}")
            ((name, part),) = content.items()
            if name not in _READERS:
                raise StateError(f"there is no kind of value {shown(name)}")
            value = _READERS[name](self, part)
        self._depth -= 1
        return value

    def _filled(self, made: Any, content: list[Any]) -> Any:
        """Return a list or deque with its parts."""
        self._new(made)
        for each in content:
            made.append(self.tree(each))
        return made

    def _new(self, value: Any) -> int:
        """Number a value; one that is made of its parts gets its place before it exists."""
        self._made.append(value)
        return len(self._made) - 1

    def ref(self, number: Any) -> Any:
        if type(number) is not int or not 0 <= number < len(self._made):
            raise StateError(f"nothing has the number {shown(number)}")
        if self._made[number] is _MISSING:
            raise StateError(f"the value with the number {number} is made of itself")
        return self._made[number]

    def tuple(self, content: Any) -> Any:
        number = self._new(_MISSING)
        self._made[number] = tuple([self.tree(each) for each in _list(content)])
        return self._made[number]

    def keys(self, content: Any) -> list[Any]:
        keys = [self._key(each) for each in _list(content)]
        if len(set(keys)) != len(keys):
            raise StateError("a key occurs twice")
        return keys

    def mapping(self, made: Any, content: Any) -> Any:
        self._new(made)
        for pair in _list(content):
            key, value = _list(pair, 2)
            decoded = self._key(key)
            if decoded in made:
                raise StateError(f"the key {shown(decoded)} occurs twice")
            dict.__setitem__(made, decoded, self.tree(value))
        return made

    def _key(self, content: Any) -> Any:
        key = self.tree(content)
        if not is_key(key):
            raise StateError(f"{shown(key)} is no key")
        return key

    def deque(self, content: Any) -> Any:
        maxlen, parts = _list(content, 2)
        if maxlen is not None:
            maxlen = _whole(maxlen, 62)
        if len(_list(parts)) > (len(parts) if maxlen is None else maxlen):
            raise StateError("a deque has more parts than it can have")
        return self._filled(deque(maxlen=maxlen), parts)

    def default(self, content: Any) -> Any:
        factory, pairs = _list(content, 2)
        if factory is not None and (type(factory) is not str or factory not in FACTORIES):
            raise StateError(f"a defaultdict has no factory {shown(factory)}")
        return self.mapping(defaultdict(None if factory is None else FACTORIES[factory]), pairs)

    def array(self, content: Any) -> Any:
        parts = _dict(content, "dtype", "shape", "order", "writeable")
        dtype = _dtype(parts["dtype"])
        shape = tuple(_whole(n, 62) for n in _list(parts["shape"]))
        if parts["order"] not in ("C", "F") or type(parts["writeable"]) is not bool:
            raise StateError("an array has order 'C' or 'F' and is writeable or not")
        size = math.prod(shape) * dtype.itemsize
        if size > len(self.data) - self.at:
            raise StateError(
                f"an array of {size} bytes, but {len(self.data) - self.at} bytes are left"
            )
        start, self.at = self.at, self.at + size
        try:
            seen: Any = np.ndarray(
                shape, dtype, buffer=self.data[start : self.at], order=parts["order"]
            )
        except (ValueError, TypeError) as error:
            raise StateError(f"an array of shape {shown(shape)}: {error}") from None
        made = seen.copy("K")
        _check_bools(made)
        made.flags.writeable = parts["writeable"]
        self._new(made)
        return made

    def bits(self, content: Any) -> Any:
        name = content.get("name") if isinstance(content, dict) else None
        if type(name) is not str or name not in BITS:
            raise StateError(f"there is no bit generator {shown(name)}")
        kind, sizes = BITS[name]
        parts = _dict(content, "name", *sizes, "has_uint32", "uinteger", "seeds")
        words = {part: [_hex(n, sizes[part]) for n in _list(parts[part])] for part in sizes}
        number = self._new(_MISSING)
        seeds = self.tree(parts["seeds"])
        if not isinstance(seeds, np.random.SeedSequence):
            raise StateError(f"a bit generator is seeded by a SeedSequence; got {shown(seeds)}")
        state: dict[str, Any] = {"bit_generator": name}
        if name == "SFC64":
            if len(words["state"]) != 4:
                raise StateError("SFC64 has a state of 4 words")
            state["state"] = {"state": np.array(words["state"], np.uint64)}
        else:
            if any(len(each) != 1 for each in words.values()) or words["inc"][0] % 2 == 0:
                raise StateError(f"{name} has one state and one odd increment")
            state["state"] = {part: each[0] for part, each in words.items()}
        state["has_uint32"] = _whole(parts["has_uint32"], 1)
        state["uinteger"] = _whole(parts["uinteger"], 32)
        made = kind(seeds)
        made.state = state
        self._made[number] = made
        return made

    def seeds(self, content: Any) -> Any:
        names = ("entropy", "spawn_key", "single", "pool_size", "n_children_spawned")
        parts = _dict(content, *names)
        entropy, key = (
            [_hex(n, MOST_SEED_BITS) for n in _list(parts[name])]
            for name in ("entropy", "spawn_key")
        )
        if max(len(entropy), len(key)) > MOST_SEEDS or type(parts["single"]) is not bool:
            raise StateError(f"a SeedSequence has at most {MOST_SEEDS} seeds, or a single one")
        if parts["single"] and len(entropy) != 1:
            raise StateError(f"a SeedSequence has a single seed or not; got {len(entropy)}")
        try:
            made = np.random.SeedSequence(
                entropy[0] if parts["single"] else entropy,
                spawn_key=key,
                pool_size=_whole(parts["pool_size"], 6),
                n_children_spawned=_whole(parts["n_children_spawned"], 32),
            )
        except (ValueError, TypeError, OverflowError) as error:
            raise StateError(f"a SeedSequence: {error}") from None
        self._new(made)
        return made

    def generator(self, content: Any) -> Any:
        number = self._new(_MISSING)
        bits = self.tree(content)
        if type(bits) not in [kind for kind, _ in BITS.values()]:
            raise StateError(f"a generator has a bit generator; got {shown(bits)}")
        self._made[number] = np.random.Generator(bits)
        return self._made[number]

    def object(self, content: Any) -> Any:
        if not self.objects:
            raise StateError("an object, where plain values and arrays are read")
        name, attributes = _list(content, 2)
        codec = codec_named(name) if type(name) is str else None
        if codec is None and type(name) is str and name.startswith(f"{OURS}."):
            raise StateError(
                f"{shown(name)} is no registered class of this version: the state was written by "
                "another one. Load it with that version, or start again"
            )
        if codec is None:
            raise StateError(
                f"{shown(name)} is no registered class. If it is one of a package with agents or "
                "of a module that defines an agent, import that first"
            )
        if type(attributes) is not dict:
            raise StateError(f"{name} has attributes, not {shown(attributes)}")
        if codec.into is None:
            number = self._new(_MISSING)
            state = {key: self.tree(each) for key, each in attributes.items()}
            check_fields(codec.kind, state, codec.kind._fields)  # type: ignore[attr-defined]
            self._made[number] = tuple.__new__(codec.kind, state.values())
            return self._made[number]
        try:
            made: Any = object.__new__(codec.kind)
        except TypeError as error:  # of an abstract class
            raise StateError(f"{name}: {error}") from None
        self._new(made)
        state = {key: self.tree(each) for key, each in attributes.items()}
        try:
            codec.into(made, state)
        except StateError:
            raise
        except Exception as error:  # of a check of the class
            raise StateError(f"{name}: {type(error).__name__}: {error}") from error
        return made


OURS = __name__.partition(".")[0]
_MISSING = object()


def _frozenset_in(reader: _Reader, content: Any) -> Any:
    number = reader._new(_MISSING)
    reader._made[number] = frozenset(reader.keys(content))
    return reader._made[number]


def _set_in(reader: _Reader, content: Any) -> Any:
    made: set[Any] = set()
    reader._new(made)
    made.update(reader.keys(content))
    return made


def _number_in(reader: _Reader, content: Any) -> Any:
    name, data = _list(content, 2)
    dtype = _dtype(name)
    raw = _bytes(data)
    if len(raw) != dtype.itemsize:
        raise StateError(f"a number of dtype {dtype} has {dtype.itemsize} bytes, not {len(raw)}")
    made: Any = np.frombuffer(raw, dtype)
    _check_bools(made)
    return made[0]


def _range_in(reader: _Reader, content: Any) -> range:
    start, stop, step = (_hex(each) for each in _list(content, 3))
    if step == 0:
        raise StateError("a range has a step that is not 0")
    return range(start, stop, step)


_READERS: dict[str, Callable[[_Reader, Any], Any]] = {
    "ref": _Reader.ref,
    "int": lambda reader, content: _hex(content),
    "float": lambda reader, content: _special(content),
    "bytes": lambda reader, content: _bytes(content),
    "range": _range_in,
    "number": _number_in,
    "tuple": _Reader.tuple,
    "dict": lambda reader, content: reader.mapping({}, content),
    "Counter": lambda reader, content: reader.mapping(Counter(), content),
    "defaultdict": _Reader.default,
    "set": _set_in,
    "frozenset": _frozenset_in,
    "deque": _Reader.deque,
    "array": _Reader.array,
    "generator": _Reader.generator,
    "bits": _Reader.bits,
    "seeds": _Reader.seeds,
    "object": _Reader.object,
}


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    made = dict(pairs)
    if len(made) != len(pairs):
        raise StateError(f"a name occurs twice: {shown([name for name, _ in pairs])}")
    return made


def _refuse(text: str) -> float:
    raise StateError(f"{text} is no number of JSON")


def _finite(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise StateError(f"{shown(text)} is beyond the range of numbers")
    return value


def _short(text: str) -> int:
    if len(text) > 20:
        raise StateError("an integer beyond 64 bits is written in base 16")
    return int(text)


def _list(content: Any, length: int | None = None) -> list[Any]:
    if type(content) is not list or length not in (None, len(content)):
        raise StateError(f"expected a list{f' of {length}' if length else ''}: {shown(content)}")
    return content


def _dict(content: Any, *names: str) -> dict[str, Any]:
    if type(content) is not dict or set(content) != set(names):
        raise StateError(f"expected {', '.join(names)}; got {shown(content)}")
    return content


def _whole(value: Any, bits: int) -> int:
    if type(value) is not int or not 0 <= value < 1 << bits:
        raise StateError(f"expected an integer of at most {bits} bits, got {shown(value)}")
    return value


def _hex(text: Any, bits: int | None = None) -> int:
    if type(text) is not str or not re.fullmatch("-?0x[0-9a-f]+", text):
        raise StateError(f"expected an integer in base 16, got {shown(text)}")
    value = int(text, 16)
    return value if bits is None else _whole(value, bits)


def _special(text: Any) -> float:
    if text not in ("inf", "-inf", "nan"):
        raise StateError(f"expected inf, -inf or nan, got {shown(text)}")
    return float(text)


def _bytes(text: Any) -> bytes:
    try:
        return bytes.fromhex(text)
    except (TypeError, ValueError):
        raise StateError(f"expected bytes in base 16, got {shown(text)}") from None


def _dtype(name: Any) -> np.dtype[Any]:
    if type(name) is not str or name not in DTYPES:
        raise StateError(f"arrays of dtype {shown(name)} are no state")
    return np.dtype(name)


def _check_bools(array: np.ndarray[Any, Any]) -> None:
    """Raise StateError if a boolean is neither 0 nor 1, which compiled code relies on."""
    if array.dtype.kind == "b" and (array.view(np.uint8) > 1).any():
        raise StateError("a boolean is 0 or 1")
