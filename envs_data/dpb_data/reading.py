"""Reading delimited text with Arrow, every value checked, the first bad line named."""

from __future__ import annotations

import csv
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpb_gym.errors import DataError

Array = NDArray[Any]

BLOCK = 1 << 24
POSITIVE = math.nextafter(0.0, 1.0)
"""The least value of a column of positive numbers."""
UNIT = b"\x1f"  # stands for a separator of several characters inside the reader
_INTEGER = r"^[ \t]*-?[0-9]{1,18}[ \t]*$"
_NUMBER = r"^[ \t]*[-+]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][-+]?[0-9]+)?[ \t]*$"


@dataclass(frozen=True)
class Column:
    """A column that a reader takes, and what its values may be.

    Attributes:
        name: Name in the header, or for messages.
        low: Least value.
        high: Largest value; with a limit of infinity, infinity itself is refused.
        step: Values are multiples of it; None for any number.
        kind: ``"integer"`` (int64), ``"number"`` (float64) or ``"text"`` (objects). Only
            `dpb_data.frames` knows ``"id"`` (int64 where all are whole numbers, else text),
            ``"flag"`` (0 or 1, true or false) and ``"any"`` (numbers, else text).
        required: Whether every file must have it.
        nullable: Whether single values may be missing (NaN).
        also: One value outside the range that is allowed.
        zero_is_unknown: Whether 0 means that the value is not known.
        hint: What to add when a value is not allowed.
    """

    name: str
    low: float = -math.inf
    high: float = math.inf
    step: float | None = None
    kind: str = "number"
    required: bool = True
    nullable: bool = False
    also: float | None = None
    zero_is_unknown: bool = False
    hint: str = ""

    @property
    def allowed(self) -> str:
        """What values may be, in words."""
        whole = self.kind == "integer" or self.step == 1.0
        text = "a whole number" if whole else f"a multiple of {self.step:g}" if self.step else ""
        other = {"text": "some text", "id": "some id", "flag": "0 or 1", "any": "some value"}
        text = other.get(self.kind) or text or "a number"
        if self.low > -math.inf:
            text += f" from {self.low:.16g}" if self.low != POSITIVE else " above 0"
        if self.high < math.inf:
            text += f" to {self.high:.16g}"
        if self.also is not None:
            text += f", or exactly {self.also:g}"
        return text + (" or NULL" if self.nullable else "") + self.hint

    def wrong(self, values: Array) -> Array:
        """Which values are not allowed, a mask; missing ones are."""
        if self.kind not in ("integer", "number"):
            return np.zeros(len(values), np.bool_)
        good = (values >= self.low) & (values <= self.high)  # NaN fails both
        if self.kind == "number":
            good &= np.isfinite(values)
            if self.step is not None:
                with np.errstate(invalid="ignore"):
                    steps = values / self.step
                    good &= steps == np.rint(steps)
        if self.also is not None:
            good |= values == self.also
        return ~good


def read_columns(
    raw: bytes,
    where: str,
    columns: Sequence[Column],
    names: Sequence[str],
    *,
    delimiter: str = ",",
    header: int = 1,
    nulls: Sequence[str] = (),
    strict: bool = True,
    quoted: bool = False,
) -> dict[str, Array]:
    """Reads and checks columns of a delimited file that is wholly in memory.

    Args:
        raw: The file.
        where: How messages name it.
        columns: The columns to take.
        names: Names of all columns of the file, in order.
        delimiter: Separator; may be longer than one character.
        header: Number of header lines.
        nulls: What stands for a missing value.
        strict: Whether a missing final newline, the mark of a file that was cut, is an error.
        quoted: Whether fields may stand in double quotes.

    Returns:
        Values by column name, in file order.

    Raises:
        DataError: Names the file, the line, what was expected and what was found.
    """
    import pyarrow as pa

    _check_bytes(raw, where)
    if raw.startswith(b"\xef\xbb\xbf"):
        raw = raw[3:]
    if not raw or (header and raw.find(b"\n") in (-1, len(raw) - 1)):
        found = "nothing after the header" if raw else "an empty file"
        raise DataError(
            f"{where}: line {header + 1 if raw else 1}: expected {delimiter.join(names)!r}, "
            f"found {found}"
        )
    if len(delimiter) > 1:
        if UNIT in raw:
            raise DataError(f"{where}: line {line_of(raw, UNIT)}: found a control character (0x1f)")
        raw = raw.replace(delimiter.encode(), UNIT)
    reader = _Reader(raw, tuple(names), delimiter, header, tuple(nulls), quoted)
    types = {"integer": pa.int64(), "number": pa.float64(), "text": pa.string()}
    try:
        table = reader.read({c.name: types.get(c.kind) for c in columns}, threads=True)
    except pa.ArrowInvalid as error:
        problem = reader.problem(columns) or f"not readable ({shorten(str(error), 300)})"
        raise DataError(f"{where}: {problem}") from error
    read: dict[str, Array] = {}
    for column in columns:
        chunked = table.column(column.name)
        if pa.types.is_binary(chunked.type):
            raise DataError(f"{where}: {reader.problem(columns)}")
        missing = chunked.is_null().to_numpy() if chunked.null_count else None
        values = chunked.to_numpy()
        if missing is not None and column.kind == "integer":
            values = np.where(missing, 0, values).astype(np.int64)
        wrong = column.wrong(values)
        if missing is not None:
            wrong = wrong & ~missing if column.nullable else wrong | missing
        if wrong.any():
            raise DataError(f"{where}: {reader.bad_value(column, int(wrong.argmax()))}")
        read[column.name] = values
    if strict:
        require_newline(raw, where)
    return read


def _check_bytes(raw: bytes, where: str) -> None:
    if raw.startswith((b"\xff\xfe", b"\xfe\xff")):
        raise DataError(f"{where}: line 1: expected ASCII or UTF-8 text, found UTF-16")
    if raw.startswith(b"\x1f\x8b"):
        raise DataError(f"{where}: line 1: expected plain text, found gzip data: unpack it first")
    if b"\0" in raw:
        line = line_of(raw, b"\0")
        raise DataError(f"{where}: line {line}: expected plain text, found NUL bytes")
    stray = re.search(rb"\r(?!\n)", raw) if b"\r" in raw else None
    if stray is not None:
        line = raw.count(b"\n", 0, stray.start()) + 1
        raise DataError(
            f"{where}: line {line}: expected a carriage return only before a newline, found one "
            f"inside: {shorten(raw[max(0, stray.start() - 20) : stray.start() + 20])}"
        )


def require_newline(raw: bytes, where: str) -> None:
    """Refuses a file whose last line has no end: it was probably cut."""
    if raw and not raw.endswith(b"\n"):
        raise DataError(
            f"{where}: line {raw.count(bytes([10])) + 1}: expected a newline at the end of the "
            f"file, found the end after {shorten(raw[-200:].rsplit(bytes([10]), 1)[-1])}: the file "
            "was probably cut off (an intact file without a final newline loads with strict=False)"
        )


@dataclass(frozen=True)
class _Reader:
    raw: bytes
    names: tuple[str, ...]
    delimiter: str
    header: int
    nulls: tuple[str, ...]
    quoted: bool

    def read(self, types: dict[str, Any], *, threads: bool, odd: Any = None) -> Any:
        import pyarrow as pa
        import pyarrow.csv as pa_csv

        return pa_csv.read_csv(
            pa.BufferReader(self.raw),
            read_options=pa_csv.ReadOptions(
                column_names=list(self.names), skip_rows=self.header, block_size=BLOCK,
                use_threads=threads,
            ),
            parse_options=pa_csv.ParseOptions(
                delimiter=UNIT.decode() if len(self.delimiter) > 1 else self.delimiter,
                quote_char='"' if self.quoted else False, newlines_in_values=False,
                ignore_empty_lines=False, invalid_row_handler=odd,
            ),
            convert_options=pa_csv.ConvertOptions(
                column_types={name: kind for name, kind in types.items() if kind is not None},
                include_columns=list(types), null_values=list(self.nulls),
                strings_can_be_null=True,
            ),
        )  # fmt: skip

    def problem(self, columns: Sequence[Column]) -> str | None:
        """Says what is wrong with the first line that Arrow refuses."""
        import pyarrow as pa
        import pyarrow.compute as pc

        odd: list[Any] = []

        def note(row: Any) -> str:
            odd.append(row)
            return "skip"

        # Arrow hands odd rows over as UTF-8; what is shown comes from the file itself.
        plain = self.raw if self.raw.isascii() else self.raw.decode("latin-1").encode()
        reader = replace(self, raw=plain)
        try:
            self.raw.decode("utf-8")
        except UnicodeDecodeError as error:
            line = self.raw.count(b"\n", 0, error.start) + 1
            if any(column.kind not in ("integer", "number") for column in columns):
                return f"line {line}: expected UTF-8 text, found {shorten(self._line(line))}"
        try:
            table = reader.read({c.name: pa.binary() for c in columns}, threads=False, odd=note)
        except pa.ArrowInvalid:
            return None
        found: list[tuple[int, str]] = []
        for column in columns:
            pattern = _INTEGER if column.kind == "integer" else _NUMBER
            if column.kind not in ("integer", "number"):
                continue
            fits = pc.match_substring_regex(table.column(column.name), pattern)
            good = pc.fill_null(fits, column.nullable).to_numpy()
            if not good.all():
                row = int(good.argmin())
                found.append((row + 1 + self.header, self.bad_value(column, row)))
        if odd and (not found or odd[0].number <= min(found)[0]):
            line = odd[0].number
            shown = self._line(line).replace(UNIT, self.delimiter.encode()).rstrip()
            problem = self._odd_line(line) or (
                f"line {line}: expected {len(self.names)} fields separated by {self.delimiter!r}, "
                f"found {odd[0].actual_columns}: {shorten(shown)}"
            )
            found.append((line, problem))
        return min(found)[1] if found else None

    def bad_value(self, column: Column, row: int) -> str:
        """Says what is wrong with one column's value in a row of the file (from 0)."""
        line = row + 1 + self.header
        text = self._line(line).decode("utf-8", errors="backslashreplace")
        mark = UNIT.decode() if len(self.delimiter) > 1 else self.delimiter
        fields = next(csv.reader([text], delimiter=mark)) if self.quoted else text.split(mark)
        at = self.names.index(column.name)
        value = shorten(fields[at].strip()) if at < len(fields) else "a short line"
        if value.strip("'") in self.nulls:
            value = "none"
        return self._odd_line(line) or (
            f"line {line}: expected {column.name} to be {column.allowed}, found {value}"
        )

    def _odd_line(self, line: int) -> str | None:
        text = self._line(line)
        if not text.strip():
            return f"line {line}: expected {len(self.names)} fields, found an empty line"
        if self.header and text.strip() == self._line(1).strip():
            return (
                f"line {line}: expected a row of values, found the header again (were two files "
                "joined?)"
            )
        return None

    def _line(self, line: int) -> bytes:
        return self.raw.split(b"\n", line)[line - 1]


def first_line(raw: bytes, where: str) -> str:
    """The first line of a file, which must be plain text, without byte order mark and line end.

    Raises:
        DataError: The file is empty or no text.
    """
    if not raw:
        raise DataError(f"{where}: line 1: expected text, found an empty file")
    first = raw[: 1 << 16].split(b"\n", 1)[0].removesuffix(b"\r")
    _check_bytes(first, where)
    return first.decode("utf-8", errors="replace").removeprefix("\ufeff")


def header_of(raw: bytes, where: str) -> list[str]:
    """The names in the first line of a comma-separated file; raises as `first_line`."""
    return [name.strip().strip('"') for name in first_line(raw, where).split(",")]


def line_of(raw: bytes, mark: bytes) -> int:
    """The line (from 1) in which some bytes first stand."""
    return raw.count(b"\n", 0, raw.index(mark)) + 1


def shorten(text: str | bytes, limit: int = 80) -> str:
    """Quotes a piece of a file for a message."""
    if isinstance(text, bytes):
        text = text.decode("utf-8", errors="backslashreplace")
    return repr(text if len(text) <= limit else text[:limit] + "...")
