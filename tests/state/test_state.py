"""State: round trips of values, refusals of bytes that are no state, and nothing else changes."""

from __future__ import annotations

import gc
import json
import math
import os
import sys
from abc import ABC, abstractmethod
from collections import Counter, defaultdict, deque
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from dpb_gym import state
from dpb_gym.errors import ParameterError, StateError
from dpb_gym.portable import fill_normals
from dpb_gym.privacy import Account, Budget, Guarantee
from dpb_gym.privacy.releasers.record_bounds import Ball, RecordShape
from dpb_gym.problems.base import Context, Feedback, ProblemInfo
from dpb_gym.state.plain import BITS, DEPTH, DTYPES
from dpb_gym.streams import BlockDraws


@state.register
class Box:
    """A class with every kind of attribute that a file must not reach."""

    shared = 1.0
    slow = cached_property(lambda box: 0)

    def __init__(self, **attributes: Any) -> None:
        vars(self).update(attributes)

    def method(self) -> None: ...

    @property
    def shown(self) -> int:
        return 0

    @staticmethod
    def static() -> None: ...


@state.register
class Pair(NamedTuple):
    left: Any
    right: Any = None


@state.register
@dataclass(frozen=True)
class Checked:
    size: int

    def __post_init__(self) -> None:
        if not isinstance(self.size, int) or self.size < 0:
            raise ParameterError("size must be an integer >= 0")


@state.register
@dataclass(frozen=True)
class Longer:
    """`last` and `newest` may be fields of a later version only."""

    first: int
    last: int | None = None
    newest: str = "new"


class Unknown:
    """A class that is not registered."""


@pytest.fixture(autouse=True)
def no_registered_packages(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave out the packages of agents that other tests register, such as that of the tests."""
    classes = sys.modules["dpb_gym.state.classes"]
    ours = {name for name in classes._packages if name.partition(".")[0] in ("dpb_agents",)}
    monkeypatch.setattr(classes, "_packages", ours)


def everything() -> dict[str, dict[str, Any]]:
    """Return the contents of all modules and classes of the library and of this test."""
    contents: dict[str, dict[str, Any]] = {}
    for name, module in list(sys.modules.items()):
        if name.partition(".")[0] in ("dpb_gym", "dpb_agents", __name__):
            contents[name] = dict(vars(module))
            for value in list(vars(module).values()):
                if isinstance(value, type) and value.__module__.startswith("dpb_"):
                    contents[f"{name}.{value.__name__}"] = dict(vars(value))
    for kind in (Box, Pair, Checked):
        contents[kind.__name__] = dict(vars(kind))
    return contents


@pytest.fixture(autouse=True, scope="module")
def untouched(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Check that all tests together change no class or module and make no file."""
    folder = tmp_path_factory.mktemp("state")
    at = os.getcwd()
    os.chdir(folder)
    before = everything()
    yield
    after = everything()
    os.chdir(at)
    assert os.listdir(folder) == []
    for name, content in before.items():
        changed = [key for key, value in content.items() if after[name].get(key) is not value]
        assert set(changed) <= {"_abc_impl"}, f"{name}: {changed}"


def again(value: Any) -> Any:
    return state.loads(state.dumps(value))


def line(value: Any, data: bytes = b"") -> bytes:
    """Return state whose JSON is written by hand."""
    return json.dumps({"state": 1, "value": value}).encode() + b"\n" + data


def equal(one: Any, other: Any) -> bool:
    """Return whether two values are equal in type, order and every bit."""
    if type(one) is not type(other):
        return False
    if isinstance(one, np.ndarray):
        same = (one.dtype, one.shape, one.flags.writeable) == (
            other.dtype, other.shape, other.flags.writeable,
        )  # fmt: skip
        return same and one.tobytes() == other.tobytes()
    if isinstance(one, np.generic):
        return one.dtype == other.dtype and one.tobytes() == other.tobytes()
    if isinstance(one, float):
        return one.hex() == other.hex()
    if isinstance(one, dict):
        return equal(list(one.items()), list(other.items()))
    if isinstance(one, (list, tuple, deque)):
        return len(one) == len(other) and all(map(equal, one, other))
    if isinstance(one, (set, frozenset)):  # of which NaN is not equal to itself
        return equal(sorted(one, key=ascii), sorted(other, key=ascii))
    if isinstance(one, (Box, Checked)):
        return equal(vars(one), vars(other))
    return bool(one == other)


SCALARS = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.integers(-(2**300), 2**300)
    | st.floats()
    | st.text()
    | st.binary()
)
NUMBERS = st.sampled_from(sorted(DTYPES)).map(np.dtype)
ARRAYS = hnp.arrays(NUMBERS, hnp.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=3))
LEAVES = SCALARS | ARRAYS | hnp.from_dtype(np.dtype("f8")) | st.builds(range, st.integers())
KEYS = st.recursive(SCALARS, lambda inner: st.tuples(inner, inner), max_leaves=3)
NAMES = st.text("abc_", min_size=1).filter(lambda name: not name.startswith("__"))
TREES = st.recursive(
    LEAVES,
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.lists(inner, max_size=4).map(tuple)
        | st.dictionaries(KEYS, inner, max_size=4)
        | st.dictionaries(KEYS, inner, max_size=4).map(lambda made: defaultdict(list, made))
        | st.lists(inner, max_size=4).map(lambda made: deque(made, 5))
        | st.dictionaries(NAMES, inner, max_size=3).map(lambda made: Box(**made))
        | st.builds(Pair, inner, inner)
        | st.sets(KEYS, max_size=3)
        | st.frozensets(KEYS, max_size=3)
    ),
    max_leaves=12,
)


@given(TREES)
def test_trees_return_equal(value: Any) -> None:
    data = state.dumps(value)
    assert equal(state.loads(data), value)
    assert state.dumps(state.loads(data)) == data


@pytest.mark.parametrize(
    "value",
    [
        -0.0, math.inf, -math.inf, math.nan, 5e-324, 2**63, -(2**63), -(2**63) - 1, 10**5000,
        "é\x00\U0001f600", b"\x00\xff", range(5, -7, -2), Counter("aab"), frozenset({1, (2, "a")}),
        deque([1, 2], maxlen=2), np.float32(0.1), np.bool_(True), np.uint64(2**64 - 1),
        {1: 2, (1, "a"): 3},
        {None: 1, True: 2, 2.5: 3, b"x": 4, math.nan: 5}, Budget.zcdp(0.5), Ball(2.0),
        RecordShape(0, 3),
    ],
    ids=lambda value: type(value).__name__,
)  # fmt: skip
def test_values_return_equal(value: Any) -> None:
    returned = again([value])[0]
    assert equal(returned, value) or (returned == value and type(returned) is type(value))


@pytest.mark.parametrize("dtype", sorted(DTYPES))
def test_arrays_return_with_dtype_order_and_flags(dtype: str) -> None:
    made = np.arange(6).reshape(2, 3).astype(dtype)
    frozen = made.copy("F")
    frozen.flags.writeable = False
    for value in (made, frozen, made[::-1], made[:, 1], made[0, 0], made[:0]):
        returned = again(value)
        assert equal(returned, value)
        assert returned.base is None or isinstance(value, np.generic)
        if isinstance(value, np.ndarray):
            fortran = value.flags.f_contiguous and not value.flags.c_contiguous
            assert returned.flags.f_contiguous or not fortran
            assert returned.flags.aligned


def test_a_nan_keeps_its_bits() -> None:
    value = np.array([0x7FF8000000000123], np.uint64).view(np.float64)
    assert again(value).tobytes() == value.tobytes()
    assert again(value[0]).tobytes() == value[0].tobytes()


def test_shared_values_and_cycles_keep_their_identity() -> None:
    shared, box = np.zeros(2), Box()
    box.me, box.parts = box, [shared, (shared, box), {"again": shared}]
    returned = again([box, box, shared])
    assert returned[0] is returned[1] is returned[0].me is returned[0].parts[1][1]
    assert (
        returned[2]
        is returned[0].parts[0]
        is returned[0].parts[1][0]
        is returned[0].parts[2]["again"]
    )
    itself: list[Any] = []
    itself.append(itself)
    assert again(itself)[0] is not itself
    looped = again(itself)
    assert looped[0] is looped


def test_a_tuple_that_contains_itself_is_refused() -> None:
    inner: list[Any] = []
    value = (inner,)
    inner.append(value)
    with pytest.raises(StateError, match="made of itself"):
        again(value)


@pytest.mark.parametrize("name", sorted(BITS))
def test_generators_continue_bit_for_bit(name: str) -> None:
    for entropy in (7, [1, 2**100], 0):
        sequence = np.random.SeedSequence(entropy, spawn_key=(3, 2**40))
        one = np.random.Generator(BITS[name][0](sequence))
        one.integers(0, 2**32, dtype=np.uint32)  # so that half a word is left over
        other = np.random.Generator(one.bit_generator)
        one.spawn(2)
        copied, shared = again([one, other])
        assert copied.bit_generator is shared.bit_generator
        children = [each.spawn(1)[0] for each in (copied, one)]
        for left, right in ((copied, one), (shared, other), tuple(children)):
            np.testing.assert_array_equal(left.standard_normal(9), right.standard_normal(9))
            left_word = left.integers(0, 2**32, dtype=np.uint32)
            assert left_word == right.integers(0, 2**32, dtype=np.uint32)


def test_blocks_of_random_numbers_continue() -> None:
    rng = np.random.Generator(np.random.SFC64(3))
    draws = BlockDraws([rng], (2,), fill_normals)
    draws.next()
    returned = again(draws)
    for _ in range(2000):
        np.testing.assert_array_equal(returned.next(), draws.next())
    with pytest.raises(StateError, match="filled by"):
        state.dumps(BlockDraws([rng], (2,), lambda generator, out: None))


def test_messages_of_the_library_return_equal() -> None:
    info = ProblemInfo("pricing", 100, 3, (0.0, 1.0))
    context = Context(3, np.zeros((1, 2), np.float32), users=np.array([4]))
    feedback = Feedback(np.ones(1), observed=np.array([True]))
    returned = again([info, context, feedback, Budget.parse("eps=1,delta=1e-6@local")])
    assert returned[0] == info and returned[3] == Budget.parse("eps=1,delta=1e-6@local")
    assert type(returned[1]) is Context and returned[1].t == 3 and type(returned[2]) is Feedback
    np.testing.assert_array_equal(returned[1].users, context.users)


# ------------------------------------------------------------------ what is not written


class Slotted:
    __slots__ = ("x",)


class Made:
    def __new__(cls) -> Made:
        return super().__new__(cls)


class Error(Exception):
    pass


@pytest.mark.parametrize(
    "value",
    [
        Unknown(), Slotted(), Error(), Box, len, os.getcwd, Box().method, math, object(), iter([]),
        np.array([None]), np.array(["a"]), np.zeros(1, "f8,i4"), np.datetime64("2020"), "\ud800",
        np.random.RandomState(1), np.random.Generator(np.random.Philox(1)), memoryview(b""),
        defaultdict(lambda: 1), {Box(): 1}, {frozenset(): 1}, Box(method=1),
        Box(shown=1), Box(static=1), Box(__class__=1), bytearray(b""), 1j, slice(1), print,
        Guarantee.private,
    ],
    ids=lambda value: type(value).__name__,
)  # fmt: skip
def test_what_is_no_state_is_named(value: Any) -> None:
    with pytest.raises(StateError, match=r"^parts\[1\]"):
        state.dumps(Box(parts=[0, value]))


class OfSlots(Slotted):
    """A class whose slots are those of its base."""


@pytest.mark.parametrize("kind", [Slotted, OfSlots, Made, Error, int, list, type, 3])
def test_classes_that_cannot_be_made_from_attributes_are_not_registered(kind: Any) -> None:
    with pytest.raises(StateError):
        state.register(kind)


def test_attributes_do_not_replace_what_a_base_has() -> None:
    @state.register
    class Larger(Box):
        pass

    for name in ("method", "shown", "static"):
        with pytest.raises(StateError, match=f"'{name}' is of the class"):
            state.loads(line({"object": [state.name_of(Larger), {name: 1}]}))


def test_classes_of_a_package_are_registered_without_those_that_would_run() -> None:
    class Opens:
        def __setstate__(self, attributes: Any) -> None:
            raise AssertionError("it ran")

    module = sys.modules[__name__]
    Opens.__qualname__ = "Opens"
    vars(module)["Opens"] = Opens
    with pytest.raises(StateError, match="no registered class"):
        state.loads(line({"object": [f"{__name__}:Unknown", {}]}))
    classes = sys.modules["dpb_gym.state.classes"]
    try:
        state.register_package(__name__)
        assert isinstance(again(Unknown()), Unknown)
        for name in ("Opens", "Error", "Slotted", "Made", "Path", "np"):
            with pytest.raises(StateError, match="no registered class"):
                state.loads(line({"object": [f"{__name__}:{name}", {}]}))
        with pytest.raises(StateError, match="not registered"):
            state.dumps(Opens())
    finally:
        classes._packages.discard(__name__)
        classes._codecs.pop(f"{__name__}:Unknown")


def test_the_classes_of_this_package_are_registered_one_by_one() -> None:
    state.register_package("dpb_gym")
    state.register_package("dpb_gym.privacy")
    for kind in (Account, Path, Unknown):
        with pytest.raises(StateError, match="no registered class"):
            state.loads(line({"object": [state.name_of(kind), {}]}))


def test_an_abstract_class_is_refused() -> None:
    @state.register
    class Abstract(ABC):
        @abstractmethod
        def act(self) -> None: ...

    with pytest.raises(StateError, match="abstract"):
        state.loads(line({"object": [state.name_of(Abstract), {}]}))


# ------------------------------------------------------------------ bytes that are no state


def box(**attributes: Any) -> Any:
    return {"object": [state.name_of(Box), attributes]}


ARRAY = {"dtype": "<f8", "shape": [2], "order": "C", "writeable": True}
BAD = {
    "another format": b'{"state":2,"value":1}\n',
    "a format that is True": b'{"state":true,"value":1}\n',
    "no value": b'{"state":1}\n',
    "more than a value": b'{"state":1,"value":1,"more":2}\n',
    "a list": b"[1]\n",
    "no line": b'{"state":1,"value":1}',
    "empty": b"",
    "not JSON": b"{\n",
    "not UTF-8": b'{"state":1,"value":"\xff"}\n',
    "a name twice": b'{"state":1,"value":{"tuple":[],"tuple":[1]}}\n',
    "NaN": b'{"state":1,"value":NaN}\n',
    "infinity": b'{"state":1,"value":1e999}\n',
    "many digits": b'{"state":1,"value":' + b"9" * 5000 + b"}\n",
    "half of a pair": b'{"state":1,"value":"\\ud800"}\n',
    "bytes after the arrays": line(1, b"x"),
    "an unknown kind": line({"module": "os"}),
    "two kinds": line({"tuple": [], "list": []}),
    "no kind": line({}),
    "nothing before": line({"ref": 0}),
    "a negative reference": line([{"ref": -1}]),
    "a reference to True": line([{"ref": True}]),
    "a tuple of itself": line({"tuple": [{"ref": 0}]}),
    "an integer": line({"int": "12"}),
    "an integer of a list": line({"int": [1]}),
    "a float": line({"float": "1.0"}),
    "odd bytes": line({"bytes": "abc"}),
    "bytes of text": line({"bytes": "zz"}),
    "a range of texts": line({"range": ["0x1", "0x2", 3]}),
    "a range without steps": line({"range": ["0x1", "0x2", "0x0"]}),
    "a dict of keys": line({"dict": [1]}),
    "a key twice": line({"dict": [[1, 2], [1, 3]]}),
    "a key of an equal number": line({"dict": [[1, 2], [True, 3]]}),
    "an object as key": line({"dict": [[box(), 3]]}),
    "a list as key": line({"dict": [[[], 3]]}),
    "an element twice": line({"set": [1, 1]}),
    "a list in a set": line({"set": [[]]}),
    "a factory": line({"defaultdict": ["open", []]}),
    "a longer deque": line({"deque": [1, [1, 2]]}),
    "a number of objects": line({"number": ["|O", "00" * 8]}),
    "a short number": line({"number": ["<f8", "00"]}),
    "a boolean of 2": line({"number": ["|b1", "02"]}),
    "an array of objects": line({"array": {**ARRAY, "dtype": "|O"}}, bytes(16)),
    "an array of texts": line({"array": {**ARRAY, "dtype": "<U4"}}, bytes(32)),
    "booleans of 2": line({"array": {**ARRAY, "dtype": "|b1"}}, b"\x02\x01"),
    "an array without data": line({"array": ARRAY}, bytes(15)),
    "a huge array": line({"array": {**ARRAY, "shape": [2**60]}}),
    "an overflow": line({"array": {**ARRAY, "shape": [2**33, 2**33]}}),
    "an empty overflow": line({"array": {**ARRAY, "shape": [0, 2**61, 2**61]}}),
    "many axes": line({"array": {**ARRAY, "shape": [1] * 80}}, bytes(8)),
    "a negative shape": line({"array": {**ARRAY, "shape": [-2]}}),
    "a shape of floats": line({"array": {**ARRAY, "shape": [2.0]}}, bytes(16)),
    "an order": line({"array": {**ARRAY, "order": "A"}}, bytes(16)),
    "an unknown field": line({"array": {**ARRAY, "base": 1}}, bytes(16)),
    "a class of builtins": line({"object": ["builtins:object", {}]}),
    "a function": line({"object": ["os:system", {}]}),
    "a part of a class": line({"object": [f"{__name__}:Box.method", {}]}),
    "a class by its parts": line({"object": [["os", "system"], {}]}),
    "no attributes": line({"object": [state.name_of(Box), []]}),
    "a method": line(box(method=1)),
    "a property": line(box(shown=1)),
    "a static method": line(box(static=1)),
    "the class": line(box(__class__=1)),
    "the dict": line(box(__dict__={"dict": []})),
    "the module": line(box(__module__="os")),
    "the constructor": line(box(__init__=1)),
    "a name with a dot": line(box(**{"a.b": 1})),
    "an invalid field": line({"object": [state.name_of(Checked), {"size": -1}]}),
    "a field of another type": line({"object": [state.name_of(Checked), {"size": "1"}]}),
    "no field": line({"object": [state.name_of(Checked), {}]}),
    "a field more": line({"object": [state.name_of(Checked), {"size": 1, "more": 2}]}),
    "a named tuple too short": line({"object": [state.name_of(Pair), {"left": 1}]}),
    "a named tuple of others": line({"object": [state.name_of(Pair), {"left": 1, "up": 2}]}),
    "a budget of two": line({"object": [state.name_of(Budget), {
        "rho": 1.0, "epsilon": 1.0, "delta": None, "trust": "curator"}]}),
    "a slot": line({"object": [state.name_of(Budget), {"__class__": 1}]}),
    "a generator of a text": line({"generator": "PCG64"}),
    "unknown bits": line({"bits": {"name": "MT19937"}}),
    "deep lists": b'{"state":1,"value":' + b"[" * 100_000 + b"]" * 100_000 + b"}\n",
    "deep values": line([]).replace(b"[]", b'{"tuple":[' * (DEPTH + 1) + b"]}" * (DEPTH + 1)),
}  # fmt: skip


@pytest.mark.parametrize("what", BAD)
def test_bytes_that_are_no_state_are_refused(what: str) -> None:
    with pytest.raises(StateError):
        state.loads(BAD[what])


def test_fields_that_a_later_version_appended_have_their_defaults() -> None:
    whole = json.loads(state.dumps(Longer(1, 2, "x")).splitlines()[0])
    name, values = whole["value"]["object"]
    assert values == {"first": 1, "last": 2, "newest": "x"}

    def read(*kept: str) -> Any:
        return state.loads(line({"object": [name, {key: values[key] for key in kept}]}))

    assert read("first") == Longer(1)
    assert read("first", "last") == Longer(1, 2)
    for kept in ((), ("last",), ("first", "newest"), ("last", "first"), ("newest",)):
        with pytest.raises(StateError, match="has the fields first, last, newest"):
            read(*kept)


@pytest.mark.parametrize("name", sorted(BITS))
def test_states_of_generators_are_checked(name: str) -> None:
    good = json.loads(state.dumps(np.random.Generator(BITS[name][0](5))).splitlines()[0])
    bits = good["value"]["generator"]["bits"]
    wrong: dict[str, list[Any]] = {
        "state": [[], ["0x1"] * 9, [hex(2**200)] * len(bits["state"]), ["-0x1"], [1], "0x1"],
        "inc": [["0x2"], [hex(2**128 + 1)], ["0x1", "0x1"]],
        "has_uint32": [2, -1, True, 0.0, None],
        "uinteger": [2**32, -1, "0x1"],
        "name": ["MT19937", None, ["PCG64"]],
        "seeds": [None, 3, {"tuple": []}],
        "more": [1],
    }
    seeds = {
        "entropy": [["-0x1"], [], ["0x0"] * 2000, [hex(2**5000)]],
        "spawn_key": [["-0x1"], [3]],
        "pool_size": [0, 3, 2**40],
        "n_children_spawned": [-1, 2**32],
        "single": [None, 1],
    }
    fields = [key for key in wrong if key in bits or key == "more"]
    changed = [{**bits, key: value} for key in fields for value in wrong[key]]
    changed += [
        {**bits, "seeds": {"seeds": {**bits["seeds"]["seeds"], key: value}}}
        for key, values in seeds.items()
        for value in values
    ]
    for content in changed:
        with pytest.raises(StateError):
            state.loads(line({"generator": {"bits": content}}))


@pytest.mark.slow
def test_every_class_of_the_process_that_is_not_registered_is_refused() -> None:
    classes = sys.modules["dpb_gym.state.classes"]
    everything = [each for each in gc.get_objects() if issubclass(type(each), type)]
    names = {f"{each.__module__}:{each.__qualname__}" for each in everything}
    for name in names:
        # other tests register packages, whose classes are registered when a file names them
        if any(name.startswith((f"{own}.", f"{own}:")) for own in classes._packages):
            classes.codec_named(name)
    names -= set(classes._codecs)
    assert len(names) > 1000
    for name in sorted(names):
        with pytest.raises(StateError):
            state.loads(line({"object": [name, {}]}))


@given(st.binary(max_size=200))
def test_random_bytes_are_refused(data: bytes) -> None:
    for each in (data, b'{"state":1,"value":' + data):
        with pytest.raises(StateError):
            state.loads(each)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["tuple", "dict", "set", "object", "array", "ref", "bits", "int", "x"])
            | st.text(),
            inner,
            max_size=2,
        )
    ),
    max_leaves=15,
)


@pytest.mark.slow
@given(JSON, st.binary(max_size=30))
def test_random_json_is_refused_or_returns_equal(value: Any, data: bytes) -> None:
    try:
        loaded = state.loads(line(value, data))
    except StateError:
        return
    assert equal(again(loaded), loaded)


@pytest.mark.slow
@settings(suppress_health_check=[HealthCheck.too_slow])
@given(TREES, st.data())
def test_changed_and_cut_bytes_are_refused_or_return_equal(value: Any, data: st.DataObject) -> None:
    good = state.dumps(value)
    at = data.draw(st.integers(0, len(good) - 1))
    how = data.draw(st.sampled_from(["cut", "flip", "insert", "drop"]))
    byte = bytes([data.draw(st.integers(0, 255))])
    changed = {
        "cut": good[:at],
        "flip": good[:at] + byte + good[at + 1 :],
        "insert": good[:at] + byte + good[at:],
        "drop": good[:at] + good[at + 1 :],
    }[how]
    try:
        loaded = state.loads(changed)
    except StateError:
        return
    assert equal(again(loaded), loaded)


def test_sizes_are_checked_before_memory_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(StateError, match="but 8 bytes are left"):
        state.loads(line({"array": {**ARRAY, "shape": [2**60]}}, bytes(8)))
    with pytest.raises(StateError, match="brackets"):
        state.loads(b'{"state":1,"value":[' + b"[]," * 2**24 + b"[]]}\n")
    monkeypatch.setattr("dpb_gym.state.plain.MOST_TEXT", 10)
    with pytest.raises(StateError, match="at most 10 bytes"):
        state.dumps("a text that is longer")
    with pytest.raises(StateError, match="at most 10 bytes"):
        state.loads(line("a text"))


def test_deep_values_are_refused_by_both_sides() -> None:
    value: Any = []
    for _ in range(DEPTH - 1):
        value = [value]
    assert again(value) == value
    with pytest.raises(StateError, match="levels"):
        state.dumps([value])
    for _ in range(10**5):
        value = [value]
    with pytest.raises(StateError, match="levels"):
        state.dumps(value)
