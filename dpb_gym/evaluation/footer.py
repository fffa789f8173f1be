"""How much a Parquet file claims to hold, read from its footer before Arrow sees it.

Arrow ends the process, and not with an exception, when it is asked for the columns of a footer that
was altered. A footer is a struct in Thrift's compact protocol.
"""

from __future__ import annotations

from typing import Any

DEEPEST = 16
INTEGERS, DOUBLE, BINARY, LISTS, STRUCT, BYTES = (4, 5, 6), 7, 8, (9, 10), 12, (1, 2, 3)


def claimed(content: bytes) -> tuple[int, int]:
    """Rows of all row groups, and most values of a column of one of them.

    Args:
        content: A whole Parquet file.

    Raises:
        ValueError: If its footer cannot be read.
    """
    size = int.from_bytes(content[-8:-4], "little")
    if content[-4:] != b"PAR1" or not 0 < size <= len(content) - 8:
        raise ValueError("no Parquet footer")
    try:
        file = _Compact(content[-8 - size : -8]).struct(0)
    except IndexError:
        raise ValueError("the footer ends early") from None
    groups = [group for groups in _all(file, 4, list) for group in groups]
    rows = sum(max(0, count) for group in groups for count in _all(group, 3, int))
    columns = [one for group in groups for columns in _all(group, 1, list) for one in columns]
    metas = [meta for column in columns for meta in _all(column, 3, list)]
    return rows, max((count for meta in metas for count in _all(meta, 5, int)), default=0)


def _all(struct: Any, field: int, kind: type) -> list[Any]:
    """Values of a field, which an altered footer may hold more than once."""
    pairs = struct if isinstance(struct, list) else []
    found = [pair[1] for pair in pairs if isinstance(pair, tuple) and pair[0] == field]
    return [value for value in found if isinstance(value, kind)]


class _Compact:
    """Reads numbers, lists and structs; goes past everything else.

    Raises IndexError at the end of the content, and ValueError where it makes no sense.
    """

    def __init__(self, content: bytes) -> None:
        self._content, self._at = content, 0

    def _byte(self) -> int:
        self._at += 1
        return self._content[self._at - 1]

    def _number(self) -> int:
        value = shift = 0
        while (one := self._byte()) >= 0x80:
            value |= (one & 0x7F) << shift
            shift += 7
            if shift > 63:
                raise ValueError("an integer of more than 64 bits in the footer")
        return value | one << shift

    def _signed(self) -> int:
        value = self._number()
        return (value >> 1) ^ -(value & 1)

    def struct(self, depth: int) -> list[tuple[int, Any]]:
        """Pairs of a field's number and its value."""
        found, last = [], 0
        while head := self._byte():
            last = last + (head >> 4) if head >> 4 else self._signed()
            kind = head & 15
            found.append((last, None if kind in (1, 2) else self._value(kind, depth + 1)))
        return found

    def _value(self, kind: int, depth: int) -> Any:
        if depth > DEEPEST:
            raise ValueError("the footer is nested too deeply")
        if kind in INTEGERS:
            return self._signed()
        if kind in LISTS:
            head = self._byte()
            count = head >> 4 if head >> 4 < 15 else self._number()
            return [self._value(head & 15, depth + 1) for _ in range(count)]
        if kind == STRUCT:
            return self.struct(depth)
        if kind not in (BINARY, DOUBLE, *BYTES):
            raise ValueError(f"the footer holds a value of type {kind}")
        length = self._number() if kind == BINARY else 1 if kind in BYTES else 8
        self._at += length
        return None
