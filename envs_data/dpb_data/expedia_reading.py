"""Reading the rows of an Expedia search file: fast by Arrow; line by line to name a bad line."""

from __future__ import annotations

import io
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from dpb_data.expedia_columns import COLUMNS, NULLS
from dpb_data.formats import MAX_LINE, shorten, text_line
from dpb_data.sources import Source, member_errors
from dpb_gym.errors import DataError

Array = NDArray[Any]

TRAIN_FILES = ("train.csv", "training_set_VU_DM.csv")
_BLOCK = 1 << 24
_MAX_HEADER = 1 << 16


class MemorySource:
    """Bytes in memory as a source with one member."""

    def __init__(self, name: str, content: bytes) -> None:
        self.path = Path(name)
        self.main: str | None = name
        self._content = content

    def names(self) -> list[str]:
        return [str(self.main)]

    def size(self, name: str) -> int:
        return len(self._content)

    def where(self, name: str) -> str:
        return name

    def open(self, name: str) -> BinaryIO:
        return io.BytesIO(self._content)


def find_member(source: Source) -> str:
    """The file of searches in a source.

    Raises:
        DataError: There is none, or several and none of them is the contest's training file.
    """
    if source.main is not None:
        return source.main
    names: list[str] = source.names()
    tables = [name for name in names if name.lower().endswith(".csv")]
    wanted: list[str] = [*TRAIN_FILES, *(tables if len(tables) == 1 else [])]
    for name in wanted:
        if name in names:
            return name
    raise DataError(
        f"{source.path}: expected {' or '.join(TRAIN_FILES)}, or one single .csv file; found "
        f"{', '.join(names[:8]) or 'nothing'}{' ...' if len(names) > 8 else ''}. Give the path of "
        "the file itself"
    )


def read_rows(
    source: Source, member: str, *, drop_last: bool
) -> tuple[dict[str, Array], tuple[str, ...], tuple[str, ...]]:
    """Reads and checks the rows of a file.

    Args:
        source: Where the member is.
        member: Its name.
        drop_last: Whether a file that was cut in its last line loses that line's search.

    Returns:
        Columns by name, in file order; the optional columns that the file lacks; what was
        repaired.

    Raises:
        DataError: Names the file, the line, what was expected and what was found.
    """
    where = source.where(member)
    with member_errors(where):
        header = _header(source, member)
        try:
            rows = _parse(source, member, header, None)
            notes: tuple[str, ...] = ()
        except _Refused as refusal:
            bad = _first_problem(source, member, header)
            if bad is None:
                raise DataError(f"{where}: not readable as hotel searches ({refusal})") from refusal
            if not (drop_last and bad.cut):
                hint = "" if drop_last or not bad.cut else _HINT
                raise DataError(f"{where}: line {bad.line}: {bad.problem}{hint}") from refusal
            rows, notes = _without_last(source, member, header, bad)
    absent = tuple(c.name for c in COLUMNS if c.name not in rows)
    return rows, absent, notes


class _Refused(Exception):
    """The fast reader met something that the slow one must name."""


@dataclass(frozen=True)
class _Bad:
    """The first bad line of a file.

    Attributes:
        line: Number, from 1.
        offset: Bytes before it.
        fields: Its fields.
        problem: What is wrong.
        cut: Whether it is the end of a file that was cut off.
    """

    line: int
    offset: int
    fields: list[str]
    problem: str
    cut: bool


_HINT = (
    "; the file was cut off. repair='drop-last-search' loads the complete searches before this line"
)


def _header(source: Source, member: str) -> list[str]:
    where = source.where(member)
    with source.open(member) as stream:
        raw = stream.readline(_MAX_HEADER)
    if not raw:
        raise DataError(f"{where}: line 1: expected a header, found an empty file")
    line = text_line(raw, where).removeprefix("\ufeff")
    names = [name.strip().strip('"') for name in line.split(",")]
    missing = [c.name for c in COLUMNS if c.required and c.name not in names]
    if missing:
        hint = ""
        if missing == ["booking_bool"]:
            hint = " (the contest's test file has no responses; use the training file)"
        elif len(missing) > 8:
            hint = " (is this a file of Expedia's hotel searches?)"
        raise DataError(
            f"{where}: line 1: expected the columns {', '.join(missing)}, found "
            f"{shorten(line)}{hint}"
        )
    twice = [c.name for c in COLUMNS if names.count(c.name) > 1]
    if twice:
        raise DataError(f"{where}: line 1: expected each column once, found {twice[0]} twice")
    return names


class _Bytes(io.RawIOBase):
    """A read-only stream that may end early and remembers its last byte."""

    def __init__(self, stream: BinaryIO, limit: int | None) -> None:
        super().__init__()
        self._stream = stream
        self._left = limit
        self.last = b""

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1) -> bytes:
        wanted = size if size and size > 0 else _BLOCK
        chunk = self._stream.read(wanted if self._left is None else min(wanted, self._left))
        if self._left is not None:
            self._left -= len(chunk)
        self.last = chunk[-1:] or self.last
        return chunk


def _parse(source: Source, member: str, header: list[str], limit: int | None) -> dict[str, Array]:
    """Reads the columns with Arrow and checks every value."""
    import pyarrow as pa
    import pyarrow.csv as pa_csv

    taken = [column for column in COLUMNS if column.name in header]
    names = [name if name else f"unnamed {i}" for i, name in enumerate(header)]
    types = {c.name: pa.int64() if c.is_id else pa.float64() for c in taken}
    with source.open(member) as stream:
        raw = _Bytes(stream, limit)
        try:
            table = pa_csv.read_csv(
                pa.PythonFile(raw, mode="r"),
                read_options=pa_csv.ReadOptions(
                    column_names=names, skip_rows=1, block_size=_BLOCK, use_threads=True
                ),
                parse_options=pa_csv.ParseOptions(
                    quote_char=False, newlines_in_values=False, ignore_empty_lines=False
                ),
                convert_options=pa_csv.ConvertOptions(
                    column_types=types,
                    include_columns=[c.name for c in taken],
                    null_values=list(NULLS),
                ),
            )
        except pa.ArrowInvalid as error:
            raise _Refused(str(error)) from error
    if raw.last != b"\n":
        raise _Refused("no newline at the end")
    if table.num_rows == 0:
        raise _Refused("no rows")
    rows: dict[str, Array] = {}
    for column in taken:
        chunked = table.column(column.name)
        if chunked.null_count and not column.nullable:
            raise _Refused(f"{column.name} is missing")
        values = np.array(chunked.to_numpy())
        present = values[~np.isnan(values)] if chunked.null_count else values
        if len(present) + chunked.null_count < len(values):
            raise _Refused(f"{column.name} is no number")
        if len(present):
            low, high = present.min(), present.max()  # NaN fails the comparisons
            if not (column.low <= low and high <= column.high and high < math.inf):
                raise _Refused(f"{column.name} is out of range")
            if column.whole and not np.array_equal(present, np.rint(present)):
                raise _Refused(f"{column.name} is not whole")
        rows[column.name] = values
    return rows


def _first_problem(source: Source, member: str, header: list[str]) -> _Bad | None:
    """Reads the file line by line up to the first bad one."""
    taken = [(header.index(c.name), c) for c in COLUMNS if c.name in header]
    with source.open(member) as stream:
        offset = len(stream.readline(_MAX_HEADER))
        number, raw, fields = 1, b"\n", header
        while following := stream.readline(MAX_LINE):
            number, raw = number + 1, following
            text = raw.rstrip(b"\r\n").decode("utf-8", errors="replace")
            fields = text.split(",")
            problem = None
            if len(fields) != len(header):
                problem = f"expected {len(header)} fields, found {len(fields)}: {shorten(text)}"
            elif fields == header:
                problem = "expected a row, found the header again (were two files joined?)"
            else:
                problems = (column.problem(fields[at]) for at, column in taken)
                problem = next((p for p in problems if p is not None), None)
            if problem is None and raw.endswith(b"\n"):
                offset += len(raw)
                continue
            if problem is None:
                problem = f"expected a newline at the end of the file, found {shorten(raw[-80:])}"
            # Whoever cuts a file leaves no newline, and at most as many fields as there were.
            cut = not raw.endswith(b"\n") and len(fields) <= len(header) and not stream.read(1)
            return _Bad(number, offset, fields, problem, cut)
    if number == 1:
        return _Bad(2, offset, [], "expected a row, found nothing after the header", False)
    return None


def _without_last(
    source: Source, member: str, header: list[str], bad: _Bad
) -> tuple[dict[str, Array], tuple[str, ...]]:
    """Reads what precedes a cut last line, without the rows of that line's search."""
    where = source.where(member)
    try:
        rows = _parse(source, member, header, bad.offset)
    except _Refused as refusal:  # nothing precedes it
        raise DataError(f"{where}: line {bad.line}: {bad.problem}; no row precedes it") from refusal
    at = header.index("srch_id")
    last = int(rows["srch_id"][-1])
    text = bad.fields[at].strip() if at < len(bad.fields) else ""
    if len(bad.fields) > at + 1 and text.isdigit():
        search = int(text)
    else:  # no comma follows the id: what is left of it may begin that of the row above
        search = last if str(last).startswith(text) else -1
    dropped = rows["srch_id"] == search
    if dropped.all():
        raise DataError(f"{where}: line {bad.line}: {bad.problem}; no complete search precedes it")
    kept = {name: values[~dropped] for name, values in rows.items()}
    before = f"the {int(dropped.sum())} rows of its search {search} before it"
    what = f"it and {before}" if dropped.any() else "it"
    note = (
        f"{where}: line {bad.line} is cut off; dropped {what}, kept {len(kept['srch_id']):,} rows"
    )
    return kept, (note,)
