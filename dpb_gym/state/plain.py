"""Plain values of state: their limits, dtypes, default factories and bit generators."""

from __future__ import annotations

from typing import Any

import numpy as np

from dpb_gym.errors import StateError

FORMAT = 1
DEPTH = 64
"""Most levels of nesting."""
MOST_TEXT = 1 << 27
"""Most bytes of the line of JSON."""
MOST_BRACKETS = 1 << 24
"""Most opening brackets in the line of JSON."""
DTYPES = frozenset(
    f"{order}{kind}"
    for order, kinds in {
        "|": ("b1", "i1", "u1"),
        "<": ("i2", "i4", "i8", "u2", "u4", "u8", "f2", "f4", "f8", "c8", "c16"),
        ">": ("i2", "i4", "i8", "u2", "u4", "u8", "f2", "f4", "f8", "c8", "c16"),
    }.items()
    for kind in kinds
)
"""Booleans, integers, floats and complex numbers of at most 64 bits per part."""
FACTORIES: dict[str, type] = {each.__name__: each for each in (int, float, list, dict, set)}
"""Default factories that a `defaultdict` can have."""
BITS: dict[str, tuple[type[np.random.BitGenerator], dict[str, int]]] = {
    "PCG64": (np.random.PCG64, {"state": 128, "inc": 128}),
    "PCG64DXSM": (np.random.PCG64DXSM, {"state": 128, "inc": 128}),
    "SFC64": (np.random.SFC64, {"state": 64}),
}
"""Bit generators, with the names and bits of the integers of their state."""
KEY_LEVELS = 8
"""Most levels of a tuple that is a key."""
MOST_SEEDS = 1024
"""Most integers of a `SeedSequence`."""
MOST_SEED_BITS = 4096
"""Most bits of each of them."""


def check_size(data: bytes, end: int) -> None:
    """Raise StateError if the line of JSON, the first `end` bytes, needs too much memory."""
    brackets = data.count(b"[", 0, end) + data.count(b"{", 0, end)
    if end > MOST_TEXT or brackets > MOST_BRACKETS:
        raise StateError(
            f"{end} bytes of JSON with {brackets} brackets; a state has at most {MOST_TEXT} bytes "
            f"with {MOST_BRACKETS}"
        )


def is_key(value: Any, levels: int = KEY_LEVELS) -> bool:
    """Return whether a value can be a key: its hash needs little time and no deep recursion."""
    if type(value) is tuple:
        return levels > 0 and all(is_key(each, levels - 1) for each in value)
    plain = value is None or type(value) in (bool, int, float, str, bytes)
    return plain or isinstance(value, np.generic)
