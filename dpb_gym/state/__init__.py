"""State as data: plain values, arrays and objects of registered classes, written to bytes.

`dumps` writes a tree of values and `loads` reads it. It is the format of checkpoints and sessions
and of messages between processes. Bytes from anyone can be read: no code is in them, and they name
no function, module or constructor.

The bytes are one line of JSON and the data of the arrays, in the order of the line. A list, a
number, a text, True, False and None are themselves in JSON. Everything else is an object of one
key:

- ``tuple``, ``set``, ``frozenset``, ``deque``, ``range``, ``bytes``: their parts;
- ``dict``, ``Counter``, ``defaultdict``: pairs of key and value;
- ``int``: an integer beyond 64 bits in base 16; ``float``: an infinity or NaN;
- ``number``, ``array``: NumPy's, of Booleans, integers, floats and complex numbers;
- ``generator``, ``bits``, ``seeds``: a `numpy.random.Generator`, its bit generator and its
  `SeedSequence`, by the state that NumPy documents;
- ``object``: name and attributes of an instance of a registered class;
- ``ref``: the n-th list, array or object of one key before it, counted from 0. So shared values
  remain shared, and cycles remain cycles.

An object is made by ``object.__new__`` of its class, and its attributes go to its ``__dict__``.
An attribute cannot replace a method, a property or a name with two underscores on both sides.
Frozen dataclasses and named tuples have exactly their fields, and ``__post_init__`` checks them.
A class with other needs is registered with functions for both directions.

Classes are registered by `register`, as subclasses of a base that registers them, or with all
classes of a package that has agents (`register_package`). Which classes exist depends on the
program alone, not on the bytes.
"""

from __future__ import annotations

from dpb_gym.state.classes import (
    Registered,
    class_of,
    frozen_fields,
    name_of,
    register,
    register_package,
    register_plain,
    set_attributes,
)
from dpb_gym.state.reading import loads
from dpb_gym.state.writing import dumps

__all__ = [
    "Registered",
    "class_of",
    "dumps",
    "frozen_fields",
    "loads",
    "name_of",
    "register",
    "register_package",
    "register_plain",
    "set_attributes",
]
