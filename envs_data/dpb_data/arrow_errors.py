"""Errors of Arrow's reader of text files, in our form."""

from __future__ import annotations

import re
from collections.abc import Mapping

from dpb_data import data_files
from dpb_data.table_column import Column
from dpb_gym.errors import DataError

UNIT = "\x1f"
"""Replaces a separator of several characters for Arrow, which takes one."""
NO_ROWS = ". Delete lines above the header and below the last row"
_ARROW = re.compile(
    r"(?:In CSV column #(?P<column>\d+): )?(?:CSV parse error: )?(?:Row #(?P<line>\d+): )?"
    r"(?P<what>.*)", re.DOTALL,
)  # fmt: skip


def explained(error: str, columns: Mapping[int, Column], delimiter: str) -> str:
    """Return Arrow's error in our form: the line, what was expected and what was found."""
    parts = _ARROW.fullmatch(error)
    assert parts is not None  # every part but the last is optional
    line = f"line {parts['line']}: " if parts["line"] else ""
    value = re.search("invalid value '(.*)'", parts["what"], re.DOTALL)
    if parts["column"] is None:
        fields = rf"expected \1 fields separated by {delimiter!r}, found \2{NO_ROWS}"
        what = re.sub(r"Expected (\d+) columns, got (\d+)", fields, parts["what"])
        return line + what[:200].replace(UNIT, delimiter)
    column = columns[int(parts["column"])]
    actual = data_files.shorten(value[1]) if value else parts["what"]
    return f"{line}expected {column.name} to be {column.allowed}, found {actual}"


def with_short_separator(raw: bytes, delimiter: str, where: str) -> bytes:
    """Return a file whose separator of several characters is replaced by `UNIT`."""
    if UNIT.encode() in raw:
        line = raw.count(b"\n", 0, raw.index(UNIT.encode())) + 1
        raise DataError(f"{where}: line {line}: found a control character (0x1f)")
    return raw.replace(delimiter.encode(), UNIT.encode())
