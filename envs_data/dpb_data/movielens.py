"""Reading MovieLens rating files of every release, in one pass, at the speed of Arrow's parser."""

from __future__ import annotations

import io
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from dpb_data.formats import MAX_LINE, RatingFormat, shorten, text_line
from dpb_data.lines import FIRST_TIMESTAMP, LAST_TIMESTAMP, first_problem
from dpb_data.sources import Source, member_errors
from dpb_data.table import RatingTable, first_duplicate, renumber
from dpb_data.titles import read_titles
from dpb_gym.errors import DataError

if TYPE_CHECKING:
    from collections.abc import Iterator

_BLOCK = 1 << 24
_UNIT = b"\x1f"  # stands for "::" inside the reader; checked not to occur in the file


@dataclass
class _Columns:
    """Columns of a ratings file as read: original ids, rating, timestamp."""

    users: NDArray[np.int32]
    items: NDArray[np.int32]
    ratings: NDArray[np.float64]
    timestamps: NDArray[np.int64]


class _Refused(Exception):
    """The fast reader met something that the line checker must name."""


class _Bytes(io.RawIOBase):
    """A read-only stream that turns ``::`` into one byte and remembers how the file ends.

    Arrow's reader takes a single-character separator only; replacing while streaming keeps the
    memory flat for a file of any size.
    """

    def __init__(self, stream: BinaryIO, *, colons: bool) -> None:
        super().__init__()
        self._stream = stream
        self._colons = colons
        self._held = b""
        self._ready = b""
        self.last = b""
        self.stray_returns = 0

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1) -> bytes:
        wanted = size if size and size > 0 else _BLOCK
        while not self._ready:
            chunk = self._stream.read(wanted)
            if chunk:
                # A carriage return counts as stray until the newline after it is seen.
                if b"\r" in chunk:  # counting costs more than looking
                    self.stray_returns += chunk.count(b"\r") - chunk.count(b"\r\n")
                self.stray_returns -= self.last == b"\r" and chunk.startswith(b"\n")
                self.last = chunk[-1:]
            if not self._colons:
                return chunk
            if _UNIT in chunk:
                raise _Refused("a control character (0x1f)")
            at_end, chunk, self._held = not chunk, self._held + chunk, b""
            if not at_end and (len(chunk) - len(chunk.rstrip(b":"))) % 2:
                # The partner of a trailing colon may come with the next chunk.
                chunk, self._held = chunk[:-1], b":"
            self._ready = chunk.replace(b"::", _UNIT)
            if at_end:
                break
        # The byte held back may make it one more than asked for, and Arrow's buffer has that size.
        part, self._ready = self._ready[:wanted], self._ready[wanted:]
        return part


def read_movielens(
    source: Source, fmt: RatingFormat, member: str, name: str, *, strict: bool
) -> tuple[RatingTable, int | None]:
    """Reads a MovieLens ratings member and, where it stands beside it, its titles.

    Args:
        source: Where the member is.
        fmt: Its format.
        member: Name of the ratings member.
        name: Name for the table.
        strict: Whether a missing final newline, implausible timestamps, re-encoded titles and
            rated items without a title are errors.

    Returns:
        The table and the number of items in the titles file (None without one).

    Raises:
        DataError: Names the file, the line, what was expected and what was found.
    """
    where = source.where(member)
    first_line = _check_head(source, fmt, member)
    try:
        with member_errors(where):
            columns = _read_columns(source, fmt, member, skip=first_line, strict=strict)
    except _Refused as refusal:
        raise _explain(source, fmt, member, str(refusal), strict=strict) from refusal
    users, user_ids = renumber("userId", columns.users)
    items, item_ids = renumber("movieId", columns.items)
    twice = first_duplicate(users, items, len(item_ids))
    if twice is not None:
        a, b = (row + 1 + first_line for row in twice)
        raise DataError(
            f"{where}: line {b}: expected each user to rate an item once, found user "
            f"{columns.users[twice[0]]} rating item {columns.items[twice[0]]} "
            f"already in line {a} (were two files joined?)"
        )
    titles, catalogue = None, None
    if fmt.titles is not None and fmt.titles.file in source.names():
        known = read_titles(source, fmt.titles, strict=strict)
        catalogue = len(known)
        absent = [int(item) for item in item_ids if int(item) not in known]
        if absent and strict:
            raise DataError(
                f"{source.where(fmt.titles.file)}: expected a title for every rated item, "
                f"found none for item {absent[0]} ({len(absent)} missing)"
            )
        titles = [known.get(int(item), "") for item in item_ids]
    table = RatingTable(
        name=name,
        users=users,
        items=items,
        ratings=columns.ratings,
        timestamps=columns.timestamps,
        rating_range=fmt.rating_range,
        user_ids=user_ids,
        item_ids=item_ids,
        titles=titles,
    )
    return table, catalogue


def _check_head(source: Source, fmt: RatingFormat, member: str) -> int:
    """Checks the first line; returns the number of header lines to skip."""
    where = source.where(member)
    with member_errors(where), source.open(member) as stream:
        raw = stream.readline(MAX_LINE)
    if not raw:
        raise DataError(f"{where}: line 1: expected {fmt.columns!r}, found an empty file")
    line = text_line(raw, where).removeprefix("\ufeff")
    if fmt.header is not None and line != fmt.header:
        raise DataError(
            f"{where}: line 1: expected the header {fmt.header!r}, found {shorten(line)}"
        )
    return 0 if fmt.header is None else 1


def _read_columns(
    source: Source, fmt: RatingFormat, member: str, *, skip: int, strict: bool
) -> _Columns:
    """Streams the member through Arrow and checks every value, block by block."""
    users: list[NDArray[np.int32]] = []
    items: list[NDArray[np.int32]] = []
    ratings: list[NDArray[np.float32]] = []
    stamps: list[NDArray[np.int64]] = []
    low, high = fmt.rating_range
    with source.open(member) as stream:
        raw = _Bytes(stream, colons=fmt.delimiter == "::")
        for user, item, rating, stamp in _batches(raw, fmt, skip):
            if user.min() < 1 or item.min() < 1:
                raise _Refused("an id below 1")
            # min and max are NaN when any value is, and NaN fails both comparisons.
            if not (low <= rating.min() and rating.max() <= high):
                raise _Refused("a rating out of range")
            if fmt.step is not None and fmt.step != 1.0:
                steps = rating / fmt.step
                if not np.array_equal(steps, np.rint(steps)):
                    raise _Refused("a rating off the grid")
            if strict and (stamp.min() < FIRST_TIMESTAMP or stamp.max() > LAST_TIMESTAMP):
                raise _Refused("a timestamp out of range")
            for store, column in ((users, user), (items, item), (stamps, stamp)):
                store.append(column)
            ratings.append(rating.astype(np.float32))  # exact on the grid of half stars
        if raw.stray_returns:
            raise _Refused("a carriage return inside a line")
        if strict and raw.last != b"\n":
            raise _Refused("no newline at the end")
    if not users:
        raise _Refused("no ratings")
    # One column at a time, each freed before the next: the peak stays near the result's size.
    joined_ratings = np.concatenate(ratings, dtype=np.float64)
    ratings.clear()
    joined_stamps = np.concatenate(stamps)
    stamps.clear()
    return _Columns(np.concatenate(users), np.concatenate(items), joined_ratings, joined_stamps)


def _batches(raw: _Bytes, fmt: RatingFormat, skip: int) -> Iterator[tuple[Any, Any, Any, Any]]:
    """Yields user, item, rating, timestamp arrays of non-empty record batches."""
    import pyarrow as pa
    import pyarrow.csv as pa_csv

    names = ["user", "item", "rating", "timestamp"]
    rating_type = pa.int16() if fmt.step == 1.0 else pa.float64()
    try:
        reader = pa_csv.open_csv(
            pa.PythonFile(raw, mode="r"),
            read_options=pa_csv.ReadOptions(
                column_names=names, skip_rows=skip, block_size=_BLOCK, use_threads=True
            ),
            parse_options=pa_csv.ParseOptions(
                delimiter="\x1f" if fmt.delimiter == "::" else fmt.delimiter,
                quote_char=False,
                newlines_in_values=False,
                ignore_empty_lines=False,
            ),
            convert_options=pa_csv.ConvertOptions(
                column_types={
                    "user": pa.int32(),
                    "item": pa.int32(),
                    "rating": rating_type,
                    "timestamp": pa.int64(),
                },
                null_values=[],
            ),
        )
        for batch in reader:
            if batch.num_rows:
                user, item, rating, stamp = (c.to_numpy(zero_copy_only=False) for c in batch)
                yield user, item, rating, stamp
    except pa.ArrowInvalid as error:
        raise _Refused(str(error)) from error


def _explain(
    source: Source, fmt: RatingFormat, member: str, reason: str, *, strict: bool
) -> DataError:
    """Finds the bad line that made the fast reader refuse."""
    where = source.where(member)
    with member_errors(where), source.open(member) as stream:
        problem = first_problem(stream, fmt, strict=strict)
    return DataError(f"{where}: {problem or f'expected {fmt.description}; the parser: {reason}'}")
