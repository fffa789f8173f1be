"""Which functions an `Algorithm` may consist of: those that have no memory besides the state.

Numba rejects global lists and objects, frames, files, and writes into read-only arrays. It accepts
other ways in which a function could remember a response: hidden generators, memory that was not
initialised, iterators that write into read-only arrays, calls of Python and of C. So the code of
every function is compared with lists of what is allowed, before it runs. An index beyond the end of
an array raises IndexError (`dpb_gym.kernels.deferred.jit`).

This is no sandbox. `plan` and `start` are Python, which runs before the first response and could
replace code of this package; an isolated run keeps that in another process.
"""

# ruff: noqa: SIM905  # lists of names are read as text

from __future__ import annotations

import builtins
import dis
import math
import sys
import types
from collections import namedtuple
from functools import cache
from typing import Any

import numpy as np

from dpb_gym.errors import AgentError
from dpb_gym.kernels.deferred import Deferred
from dpb_gym.play.algorithm import Candidates, Functions, Offer, Released

_OPERATIONS = """
BINARY_OP BINARY_SUBSCR BINARY_SLICE COMPARE_OP CONTAINS_OP IS_OP TO_BOOL UNARY_NEGATIVE
UNARY_NOT UNARY_INVERT UNARY_POSITIVE BUILD_TUPLE BUILD_SLICE UNPACK_SEQUENCE STORE_SUBSCR
STORE_SLICE LOAD_CONST LOAD_SMALL_INT LOAD_FAST LOAD_FAST_CHECK LOAD_FAST_AND_CLEAR
LOAD_FAST_LOAD_FAST LOAD_FAST_BORROW LOAD_FAST_BORROW_LOAD_FAST_BORROW STORE_FAST
STORE_FAST_LOAD_FAST STORE_FAST_STORE_FAST STORE_FAST_MAYBE_NULL DELETE_FAST POP_TOP COPY SWAP
NOP RESUME CACHE PUSH_NULL EXTENDED_ARG NOT_TAKEN RETURN_VALUE RETURN_CONST LOAD_GLOBAL
LOAD_ATTR LOAD_METHOD PRECALL CALL CALL_KW KW_NAMES GET_ITER FOR_ITER END_FOR POP_ITER
JUMP_FORWARD JUMP_BACKWARD JUMP_BACKWARD_NO_INTERRUPT POP_JUMP_IF_TRUE POP_JUMP_IF_FALSE
POP_JUMP_IF_NONE POP_JUMP_IF_NOT_NONE POP_JUMP_FORWARD_IF_TRUE POP_JUMP_FORWARD_IF_FALSE
POP_JUMP_BACKWARD_IF_TRUE POP_JUMP_BACKWARD_IF_FALSE POP_JUMP_FORWARD_IF_NONE
POP_JUMP_FORWARD_IF_NOT_NONE POP_JUMP_BACKWARD_IF_NONE POP_JUMP_BACKWARD_IF_NOT_NONE
JUMP_IF_TRUE_OR_POP JUMP_IF_FALSE_OR_POP
"""
_BUILTINS = "range min max abs len float int bool enumerate zip round"
_NUMPY = """
abs append arange argmax argmin bool_ ceil clip concatenate copy cumsum diag exp eye float64
floor full inf int64 isfinite isnan log maximum mean minimum nan ones outer pi prod sign sqrt
sum trace where zeros zeros_like
"""
_MATH = "ceil exp floor inf isfinite isnan log nan pi sqrt"
_ARRAYS = "T all any copy max mean min ndim shape size std sum"

OPERATIONS = frozenset(_OPERATIONS.split())
"""Instructions of Python 3.11 to 3.14 that functions may have; names and attributes are checked."""
BUILTINS = frozenset(_BUILTINS.split())
NUMPY = frozenset(_NUMPY.split())
MATH = frozenset(_MATH.split())
ARRAYS = frozenset(_ARRAYS.split())
"""Attributes of arrays that functions may read."""
TYPES = frozenset("bool_ float64 int64".split())
"""NumPy's names that functions may use as values, besides numbers."""
ARGUMENTS = {"clip": 3, "cumsum": 1, "outer": 2, "mean": 1, "prod": 1}
"""Most arguments of NumPy functions that take an output, which is then no argument."""
NO_FIELDS = frozenset([*dir(np.ndarray), *dir(np.ufunc), "format", "format_map"]) - ARRAYS
"""Other attributes of arrays, NumPy functions and texts; no named tuple has them as fields."""
NUMPY_NUMBERS = (np.bool_, np.integer, np.floating)
NUMBERS = frozenset(
    [
        bool,
        int,
        float,
        *(kind for kind in np.sctypeDict.values() if issubclass(kind, NUMPY_NUMBERS)),
    ]
)
"""Classes of numbers in code and globals. A subclass has methods of its own."""
USUAL = {
    (module.__name__, name): getattr(module, name)
    for module, names in ((builtins, BUILTINS), (np, NUMPY), (math, MATH))
    for name in names
}
"""What the names mean before an agent's module can replace it."""
SKIPPED = frozenset("PUSH_NULL NOP EXTENDED_ARG CACHE".split())
TRUSTED = "dpb_gym.kernels."
"""Modules with functions that compare the shapes of their arguments themselves."""


class _Check:
    """A walk through the functions of one algorithm."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.seen: set[int] = set()
        self.codes: list[tuple[types.FunctionType, types.CodeType]] = []
        self.fields = {*Released._fields, *Offer._fields, *Candidates._fields}

    def fail(self, function: Any, what: str) -> AgentError:
        where = f"{self.name}: the function {function.__name__!r}"
        return AgentError(
            f"{where} {what}; functions of an Algorithm have no memory besides the state. See "
            "docs/audit.md for what they may use, or write an Agent"
        )

    def function(self, value: Any) -> None:
        """Check a function and all that it calls."""
        if id(value) in self.seen:
            return
        self.seen.add(id(value))
        function = value.py_func if isinstance(value, Deferred) else value
        if isinstance(value, Deferred) and not _untouched(value):
            raise self.fail(value, "is not what dpb_gym.play.jit returned")
        if not isinstance(function, types.FunctionType):
            raise self.fail(value, "is no function")
        if function.__closure__ or function.__kwdefaults__:
            raise self.fail(function, "has a closure or keyword defaults")
        if not all(map(_constant, function.__defaults__ or ())):
            raise self.fail(function, "has a default that is no number")
        for value in function.__code__.co_consts:
            if isinstance(value, types.CodeType):
                raise self.fail(function, "defines a function")
            if not _written(value):
                raise self.fail(function, f"has a constant of the type {type(value).__name__}")
        self.codes.append((function, function.__code__))
        self.code(function)
        self.numpy_calls(function)

    def code(self, function: types.FunctionType) -> None:
        """Check the instructions of a function."""
        last: Any = None
        for step in dis.get_instructions(function.__code__):
            if step.opname not in OPERATIONS:
                raise self.fail(function, f"has the instruction {step.opname}")
            if step.opname in SKIPPED:
                continue
            reads = step.opname in ("LOAD_ATTR", "LOAD_METHOD")
            if isinstance(last, types.ModuleType) and not reads:
                # under another name its attributes could not be told from fields
                raise self.fail(function, f"uses the module {last.__name__} as a value")
            if step.opname == "LOAD_GLOBAL":
                last = self.named(function, step.argval)
            else:
                if reads:
                    self.attribute(function, last, step.argval)
                last = None

    def numpy_calls(self, function: types.FunctionType) -> None:
        """Check the arguments of NumPy functions.

        Compiled ufuncs read beyond arguments that are shorter than an output.
        """
        for name, count, named in _numpy_uses(function):
            if count is None:
                if name not in TYPES and callable(getattr(np, name)):
                    raise self.fail(function, f"uses numpy.{name} without calling it")
                continue
            ufunc = getattr(np, name)
            most = ufunc.nin if isinstance(ufunc, np.ufunc) else ARGUMENTS.get(name)
            if (most is not None and (count > most or named)) or "out" in named:
                raise self.fail(function, f"calls numpy.{name} with an output")

    def named(self, function: types.FunctionType, name: str) -> Any:
        """Check a global name and return its value."""
        if name not in function.__globals__:
            if name not in BUILTINS or not hasattr(builtins, name):
                raise self.fail(function, f"uses {name!r}, which is not among {_listed(BUILTINS)}")
            self.usual(function, builtins, name)
            return None
        value = function.__globals__[name]
        if isinstance(value, Deferred):
            if value.bounds:
                self.function(value)
            elif not _trusted(value):
                raise self.fail(function, f"calls {name!r}, which has no bounds checks")
        elif isinstance(value, type) and issubclass(value, tuple) and hasattr(value, "_fields"):
            self.tuple_fields(function, value)
        elif isinstance(value, types.ModuleType):
            # not by ==, which the class of a module can define
            if value is not np and value is not math:
                raise self.fail(function, f"uses the module {value.__name__}; numpy and math are")
        elif not _constant(value):
            raise self.fail(function, f"uses the global {name!r}, a {type(value).__name__}")
        return value

    def tuple_fields(self, function: Any, kind: type) -> None:
        """Allow the fields of a named tuple as attributes."""
        if not _plain_tuple(kind):
            raise self.fail(
                function,
                f"uses {kind.__name__}, which is no plain named tuple: fields, and no methods",
            )
        own: Any = kind
        bad = NO_FIELDS.intersection(own._fields)
        if bad:
            raise self.fail(function, f"has a field {min(bad)!r}, a name of NumPy")
        self.fields |= set(own._fields)

    def attribute(self, function: Any, owner: Any, name: str) -> None:
        """Check an attribute of a module, or of an unknown value."""
        if isinstance(owner, types.ModuleType):
            allowed = NUMPY if owner is np else MATH
            if name not in allowed:
                raise self.fail(function, f"uses {owner.__name__}.{name}")
            self.usual(function, owner, name)
        elif name not in self.fields and name not in ARRAYS:
            raise self.fail(function, f"uses the attribute {name!r}")

    def usual(self, function: Any, module: types.ModuleType, name: str) -> None:
        """Refuse a function of Python or NumPy that was replaced."""
        if getattr(module, name) is not USUAL[module.__name__, name]:
            raise self.fail(function, f"uses {module.__name__}.{name}, which was replaced")


def _plain_tuple(kind: Any) -> bool:
    """Return whether a class is a named tuple with fields alone.

    Python reads c in every round, and would run methods such as ``__getattribute__``.
    """
    if type(kind) is not type or kind.__bases__ != (tuple,):
        return False
    own: Any = kind
    if own.__new__.__code__.co_argcount != len(own._fields) + 1:
        return False
    usual: Any = namedtuple(own.__name__, own._fields)  # type: ignore[misc]
    # values such as __annotations__ and __slotnames__ run no code
    for name in vars(kind).keys() - vars(usual).keys() - {"__annotate__", "__annotate_func__"}:
        value = vars(kind)[name]
        if callable(value) or hasattr(type(value), "__get__"):
            return False
    return all(type(getattr(own, name)) is type(getattr(usual, name)) for name in own._fields)


def _listed(names: frozenset[str]) -> str:
    return ", ".join(sorted(names))


def _constant(value: Any) -> bool:
    """Whether a global is a number or a tuple of numbers."""
    if isinstance(value, tuple):
        return type(value) is tuple and all(map(_constant, value))
    return type(value) in NUMBERS


def _written(value: Any) -> bool:
    """Whether a constant of a function's code is one that a function without functions has."""
    if isinstance(value, slice):
        return all(map(_written, (value.start, value.stop, value.step)))
    if type(value) is tuple:
        return all(map(_written, value))
    return value is None or value is ... or type(value) is str or type(value) in NUMBERS


def _numpy_uses(function: types.FunctionType) -> list[tuple[str, int | None, tuple[str, ...]]]:
    """Return the uses of NumPy's names: the number of arguments of a call, and their names.

    The number is None where a name is no called function. It is that of numba's own reading of the
    code, which does not depend on the version of Python.
    """
    from numba.core import compiler, ir

    run_frontend: Any = compiler.run_frontend
    values: dict[str, list[Any]] = {}
    for block in run_frontend(function).blocks.values():
        for each in block.find_insts(ir.Assign):
            values.setdefault(each.target.name, []).append(each.value)

    def sources(var: Any, seen: tuple[str, ...] = ()) -> list[Any]:
        """Return what a variable can be; a branch in an argument copies what waits for it."""
        if var.name in seen:
            return []
        origins = []
        for value in values.get(var.name, ()):
            copied = isinstance(value, ir.Var)
            origins += sources(value, (*seen, var.name)) if copied else [value]
        return origins

    def is_numpy(value: Any) -> bool:
        if not isinstance(value, ir.Expr) or value.op != "getattr":
            return False
        owners = sources(value.value)
        return any(isinstance(x, (ir.Global, ir.FreeVar)) and x.value is np for x in owners)

    every = [value for each in values.values() for value in each]
    uses: list[tuple[str, int | None, tuple[str, ...]]] = []
    called: list[Any] = []
    for call in every:
        if not isinstance(call, ir.Expr) or call.op != "call":
            continue
        # an argument that is unpacked has any length
        count = len(call.args) + (1 << 30 if call.vararg is not None else 0)
        for own in filter(is_numpy, sources(call.func)):
            called.append(own)
            uses.append((own.attr, count, tuple(name for name, _ in call.kws)))
    others = (each for each in every if is_numpy(each) and not any(each is x for x in called))
    return uses + [(each.attr, None, ()) for each in others]


def _untouched(value: Deferred) -> bool:
    """Whether a deferred function compiles, or has compiled, its own Python function."""
    compiled = vars(value).get("compiled", value.py_func)
    if getattr(compiled, "py_func", compiled) is not value.py_func:
        return False
    options = getattr(compiled, "targetoptions", None)
    return type(value) is Deferred and (
        options is None or not value.bounds or options.get("boundscheck") is True
    )


def _trusted(value: Deferred) -> bool:
    """Whether a function without bounds checks is a public one of this package's."""
    function: Any = value.py_func
    if function.__name__.startswith("_") or not _untouched(value):
        return False  # those that others call after the shapes are checked
    module = sys.modules.get(function.__module__)
    known = getattr(module, function.__name__, None) if module is not None else None
    return str(function.__module__).startswith(TRUSTED) and known is value


def _nested(kind: Any, values: Any) -> list[type]:
    """Return the classes of named tuples in a value."""
    classes = [kind]
    for value in values:
        if isinstance(value, tuple) and hasattr(value, "_fields"):
            classes += _nested(type(value), value)
    return classes


def check_functions(name: str, functions: Functions, kinds: tuple[type, ...]) -> None:
    """Raise `AgentError` unless functions have no memory besides the state.

    Args:
        name: Name of the algorithm.
        functions: Its functions.
        kinds: Classes of c and s, and of named tuples in them.
    """
    # `start` can give a function that was checked for an earlier agent other code
    if any(function.__code__ is not code for function, code in checked(name, functions, kinds)):
        checked.cache_clear()
        checked(name, functions, kinds)


@cache
def checked(
    name: str, functions: Functions, kinds: tuple[type, ...]
) -> tuple[tuple[types.FunctionType, types.CodeType], ...]:
    """Return all functions that were checked, with their code; see `check_functions`."""
    check = _Check(name)
    if type(functions) is not Functions:
        raise AgentError(f"{name}: its functions must be a dpb_gym.play.Functions")
    for kind in kinds:
        check.tuple_fields(functions.act, kind)
    for role, function in functions._asdict().items():
        if function is None:
            continue
        if not isinstance(function, Deferred) or not function.bounds:
            raise AgentError(f"{name}: {role} must be decorated with dpb_gym.play.jit")
        check.function(function)
    return tuple(check.codes)


PLAIN_KINDS = "biuf"
"""Kinds of numbers in arrays of c and s: Booleans, integers and floats."""
ARRAY_CLASSES = frozenset([np.ndarray, *np.sctypeDict.values()])
"""Classes of arrays and numbers in c and s. A subclass has methods of its own."""


def check_values(name: str, known: Any, state: Any) -> None:
    """Raise `AgentError` unless c and s are numbers, arrays of numbers and tuples of them.

    A typed list, an object or a function in c would be memory that a function can write.
    """
    rest = [("c", known), ("the state", state)]
    while rest:
        where, value = rest.pop()
        if isinstance(value, tuple) and (type(value) is tuple or hasattr(value, "_fields")):
            names = getattr(value, "_fields", range(len(value)))
            rest += [(f"{where}.{each}", part) for each, part in zip(names, value)]
        elif type(value) in (bool, int, float):
            continue
        elif type(value) not in ARRAY_CLASSES or value.dtype.kind not in PLAIN_KINDS:
            raise AgentError(
                f"{name}: {where} is a {type(value).__name__}; start returns named tuples of "
                "numbers, arrays of numbers, and tuples of them"
            )


def tuples_in(known: Any, state: Any) -> tuple[type, ...]:
    """Return the classes of named tuples in c and s, for `check_functions`."""
    kinds = _nested(type(known), known) + _nested(type(state), state)
    return tuple(kind for kind in dict.fromkeys(kinds) if kind is not tuple)
