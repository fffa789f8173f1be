"""Read named columns of a file, frame or mapping, and check every value."""

from __future__ import annotations

import csv
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpb_data import data_files, excel_files, exported_files, json_records, table_repair
from dpb_data.arrow_arrays import from_texts, scalar, to_numpy
from dpb_data.arrow_errors import NO_ROWS, UNIT, explained, with_short_separator
from dpb_data.parquet_files import columns_of
from dpb_data.table_column import POSITIVE, Column
from dpb_gym.errors import DataError, ParameterError

__all__ = ["POSITIVE", "Array", "Column", "Opened", "open_csv", "open_table", "take_columns"]
Array = NDArray[Any]

BLOCK = 1 << 24
NULLS = ("", "NULL", "NA")
_FLAGS = ("0", "false", "0.0", "1", "true", "1.0")


@dataclass(frozen=True)
class Opened:
    """A table whose columns are read on request.

    Attributes:
        name: Name of the file without its endings, ``"frame"`` for other sources.
        where: Its name in messages.
        columns: Names of its columns.
        fetch: Function that reads some columns as Arrow arrays by name.
        unit: Unit of row numbers in messages, ``"line"`` or ``"row"``.
        first: Number of its first row.
        repair: Rules for exported tables, or None to reject what is not as expected.
        removed: Numbers of the file's lines that are no rows, such as comments, ascending.
        notes: What was changed when the table was opened, for the repairs of later readers.
    """

    name: str
    where: str
    columns: list[str]
    fetch: Callable[[Sequence[Column]], Any]
    unit: str = "row"
    first: int = 0
    repair: table_repair.Repair | None = None
    removed: tuple[int, ...] = ()
    notes: tuple[str, ...] = ()
    _texts: dict[str, Any] = field(default_factory=dict, repr=False, compare=False)
    _parsed: table_repair.Parsed = field(default_factory=dict, repr=False, compare=False)

    def at(self, row: int) -> str:
        """Return the name of a row, counted from 0, in messages."""
        if self.repair is not None and self.repair.rows is not None:
            row = int(self.repair.rows[row])
        number = row + self.first
        for line in self.removed:
            number += line <= number
        return f"{self.where}: {self.unit} {number}"

    def take(self, columns: Sequence[Column], hint: str = "") -> dict[str, Array]:
        """Read and check columns; see `take_columns`. Messages on missing ones end with `hint`."""
        if self.repair is not None:
            names = table_repair.match_names([c.name for c in columns], self.columns, self.repair)
            if any(asked != name for asked, name in names.items()):
                read = self.take([replace(c, name=names[c.name]) for c in columns], hint)
                by_name = self.repair.unit
                by_name |= {
                    asked: by_name[name] for asked, name in names.items() if name in by_name
                }
                return {name: read[own] for name, own in names.items() if own in read}
        missing = [c.name for c in columns if c.required and c.name not in self.columns]
        head = f"{self.where}: line 1" if self.unit == "line" else self.where
        if missing:
            some = ", ".join(self.columns[:30]) + (" ..." if len(self.columns) > 30 else "")
            hint = hint or (": the file is not UTF-8" if "\ufffd" in some else "")
            hint = hint or (NO_ROWS if self.unit == "line" and len(self.columns) == 1 else "")
            raise DataError(
                f"{head}: expected the columns {', '.join(map(str, missing))}, found {some}{hint}"
            )
        asked = [c.name for c in columns]
        twice = [name for name in asked if self.columns.count(name) > 1]
        if twice:
            raise DataError(f"{head}: expected each column once, found {twice[0]} twice")
        again = [name for name in asked if asked.count(name) > 1]
        if again:
            raise DataError(f"{head}: column {again[0]} is named for two purposes: name it once")
        wanted = [c for c in columns if c.name in self.columns]
        if self.repair is None:
            fetched = self.fetch(wanted)
        else:
            given = self._fetch_texts(wanted)
            kinds = {c.name: c.kind for c in wanted}
            free = {c.name for c in wanted if c.nullable}
            fetched = self.repair.columns(given, kinds, free, self.where, self._parsed)
            for c in wanted:
                if c.name in self.repair.wrong:
                    written = replace(c, hint=f"{c.hint}, written like 1234.5")
                    raise self._refusal(written, *self.repair.wrong[c.name])
            wanted = [replace(c, kind="text") if c.name in self.repair.codes else c for c in wanted]
        by_name = {c.name: self._checked(c, fetched[c.name]) for c in wanted}
        lengths = {name: len(values) for name, values in by_name.items()}
        if len(set(lengths.values())) > 1:
            raise DataError(f"{self.where}: expected columns of one length, found {lengths}")
        return by_name

    def _fetch_texts(self, columns: Sequence[Column]) -> dict[str, Any]:
        """Return columns as they are written, by name; each is read once."""
        new = [replace(c, kind="text") for c in columns if c.name not in self._texts]
        if new:
            fetched = self.fetch(new)
            self._texts.update({c.name: fetched[c.name] for c in new})
        return {c.name: self._texts[c.name] for c in columns}

    def _checked(self, column: Column, values: Any) -> Array:
        if not len(values):
            raise DataError(f"{self.where}: expected a column {column.name} with rows")
        missing = to_numpy(values.is_null())
        if missing.any() and not column.nullable:
            raise self._refusal(column, int(missing.argmax()), None)
        with _expected(self.where, f"{column.name} to be {column.allowed}"):
            read: Array = to_numpy(_converted(values, column.kind))
        if read.dtype.kind in "iuf":
            wrong = column.wrong(read) & ~missing
            if column.kind == "flag":
                wrong, read = read < 0, read // 3
            if wrong.any():
                row = int(wrong.argmax())
                raise self._refusal(column, row, values[row].as_py())
        return read

    def _refusal(self, column: Column, row: int, value: Any) -> DataError:
        text = f"{value:.16g}" if isinstance(value, (int, float)) else str(value)
        return DataError(
            f"{self.at(row)}: expected {column.name} to be {column.allowed}, found "
            f"{'none' if value is None else data_files.shorten(text)}"
        )


@contextmanager
def _expected(where: object, what: str) -> Iterator[None]:
    """Convert Arrow's errors to a DataError that says what was expected."""
    import pyarrow as pa

    try:
        yield
    except (pa.ArrowException, NotImplementedError, OSError) as error:
        reason = data_files.shorten(str(error), 300)
        raise DataError(f"{where}: expected {what} ({reason})") from error


def _converted(values: Any, kind: str) -> Any:
    """Return Arrow values converted to the column's kind; flags become indices in `_FLAGS`."""
    import pyarrow as pa
    import pyarrow.compute as pc

    whole, number, text = pa.int64(), pa.float64(), pa.string()
    if kind == "flag":
        plain = pc.utf8_lower(pc.utf8_trim_whitespace(values.cast(text)))
        places = pc.index_in(plain, value_set=from_texts(_FLAGS))
        return places.fill_null(scalar(-1, "int32")).cast(whole)
    if kind == "integer":
        return values.cast(whole)
    if kind == "number":
        return values.cast(number, safe=False)
    date, local = pa.timestamp("us", "UTC"), pa.timestamp("us")
    ways = {"id": ((whole,), (number, whole)), "any": ((number,),), "text": (), "code": ()}
    if pa.types.is_temporal(values.type):
        ways = dict.fromkeys(ways, ())
    for way in ways.get(kind, ((whole,), (date,), (local,))):
        converted = values
        try:
            safe = kind not in ("time", "any")
            for target in way:
                converted[:1].cast(target, safe=safe)  # fail early: a column fails only at its end
                converted = converted.cast(target, safe=safe)
        except (pa.ArrowException, NotImplementedError):
            continue
        if kind == "time" and pa.types.is_temporal(converted.type):
            converted = converted.cast(pa.timestamp("s"), safe=False).cast(whole)
        return converted
    return values.cast(date if kind == "time" else text)


def take_columns(
    source: Any, columns: Sequence[Column], repair: table_repair.Repair | None = None
) -> tuple[Opened, dict[str, Array]]:
    """Read and check columns by their names.

    Args:
        source: A path to a ``.csv`` (commas, semicolons or tabs, header, quotes, also packed as
            ``.csv.gz``) or ``.parquet`` file, here or below ``$DPB_DATA``; or a frame of pandas,
            polars or pyarrow, anything else with the Arrow stream or data-frame protocol, or a
            mapping of arrays.
        columns: Columns to read, by the names in the source. Missing optional ones are omitted
            from the result.
        repair: Rules for exported tables, which add .xlsx files, lists of mappings, other
            encodings and decimal marks; None to reject what is not as expected.

    Returns:
        The opened table, and values by column name: int64, float64 with NaN for missing,
        or text as objects with None for missing.

    Raises:
        DataError: A column is missing, or a value is not allowed; names the line or row, what was
            expected and what was found.
        UnknownNameError: There is no file of this name.
    """
    opened = open_table(source, repair)
    return opened, opened.take(columns)


def open_table(source: Any, repair: table_repair.Repair | None = None) -> Opened:
    """Open a table and read the names of its columns; see `take_columns`."""
    if repair is None:
        return source if isinstance(source, Opened) else _open(source, repair)
    if isinstance(source, Opened):
        repair.notes += [note for note in source.notes if note not in repair.notes]
        return replace(source, repair=repair)
    before = len(repair.notes)
    opened = _open(source, repair)
    return replace(opened, repair=repair, notes=tuple(repair.notes[before:]))


def _open(source: Any, repair: table_repair.Repair | None) -> Opened:
    path = Path(source) if isinstance(source, (str, os.PathLike)) else Path("frame.parquet")
    other = path.suffix.lower() in (".parquet", ".xlsx", ".xlsm")
    if repair is not None and repair.header is not None and other:
        raise ParameterError("header= is for text files; other tables have names of columns")
    if isinstance(source, (str, os.PathLike)):
        place = data_files.existing_path(source)
        if place.suffix.lower() == ".parquet":
            return _open_parquet(place)
        if place.suffix.lower() in (".xlsx", ".xlsm"):
            cells, first = excel_files.excel_rows(place, repair or table_repair.Repair())
            return Opened(place.stem, str(place), [*cells], partial(arrays, cells), "row", first)
        files = data_files.Source(place)
        if files.main is None:
            raise DataError(f"{place}: expected the path of a CSV, .xlsx or Parquet file")
        raw = files.read(files.main)
        if repair is None:
            return open_csv(raw, files.where(files.main))
        return _open_text(raw, place, files.where(files.main), repair)
    frame = json_records.as_columns(source)
    if not hasattr(frame, "__getitem__"):
        import pyarrow as pa
        import pyarrow.interchange

        if hasattr(frame, "__arrow_c_stream__"):
            frame = pa.table(frame)
        elif hasattr(frame, "__dataframe__"):
            frame = pyarrow.interchange.from_dataframe(frame)
    names = getattr(frame, "column_names", None) or getattr(frame, "columns", None)
    names = frame if names is None and isinstance(frame, Mapping) else names
    if names is None or callable(names):
        raise DataError(
            "expected a frame (pandas, polars, pyarrow), a mapping of arrays or the path of a "
            f"CSV or Parquet file, got a {type(frame).__name__}"
        )
    return Opened("frame", "frame", [str(n) for n in names], partial(arrays, frame))


def _open_text(
    raw: bytes, place: Path, where: str, repair: table_repair.Repair
) -> Opened:  # fmt: skip
    """Open an exported text file: JSON lines, or a table with separators."""
    raw = exported_files.plain_text(raw, repair)
    if (records := json_records.json_columns(raw, where)) is not None:
        cells, empty = records
        name = place.name.split(".")[0]
        return Opened(name, where, [*cells], partial(arrays, cells), "line", 1, removed=empty)
    text = exported_files.text_table(raw, where, repair)
    opened = open_csv(text.raw, where, names=text.names, delimiter=text.delimiter, above=text.above)
    return replace(opened, removed=text.removed)


def arrays(frame: Any, columns: Sequence[Column]) -> dict[str, Any]:
    """Return columns of a frame or a mapping as Arrow arrays by name."""
    import pyarrow as pa

    by_name = {}
    for column in columns:
        values = frame[column.name]
        if not isinstance(values, pa.ChunkedArray):
            with _expected("frame", f"{column.name} to be {column.allowed}"):
                values = pa.chunked_array([_array(values)])
        by_name[column.name] = values
    return by_name


def _array(values: Any) -> Any:
    """Return values as an Arrow array; objects of several types become text."""
    import pyarrow as pa

    # not an array of texts, in which each has the length of the longest
    texts = isinstance(values, list) and any(isinstance(value, str) for value in values)
    try:
        return pa.array(np.asarray(values, object if texts else None), from_pandas=True)
    except (pa.ArrowInvalid, pa.ArrowTypeError):
        return pa.array([None if v is None or v != v else str(v) for v in values], pa.string())


def _open_parquet(place: Path) -> Opened:
    import pyarrow.parquet as pq

    def read(columns: Sequence[Column]) -> Any:
        with _expected(place, "a Parquet file"):
            return columns_of(place, [column.name for column in columns])

    with _expected(place, "a Parquet file"):
        names = pq.read_schema(place).names
    return Opened(place.name.split(".")[0], str(place), names, read)


def open_csv(
    raw: bytes,
    where: str,
    *,
    names: Sequence[str] = (),
    delimiter: str = "",
    nulls: Sequence[str] = NULLS,
    quoted: bool = True,
    strict: bool = True,
    above: int = 0,
) -> Opened:
    """Open a delimited file in memory and read the names of its columns.

    Args:
        raw: The file.
        where: Its name in messages.
        names: Names of all its columns, in order; by default those in its first line.
        delimiter: Separator of one or more characters; by default detected.
        nulls: Texts of missing values.
        quoted: Whether fields may be in double quotes.
        strict: Whether a missing final newline, the sign of a file that was cut, is an error.
        above: Number of lines above the header.

    Raises:
        DataError: It is not text, empty, or was cut.
    """
    data_files.refuse_foreign(raw, where)
    raw = raw.removeprefix(b"\xef\xbb\xbf")
    first = data_files.first_line(raw.split(b"\n", above)[above], where)
    if not (names or first.strip()):
        raise DataError(f"{where}: line 1: expected the columns' names, found an empty line")
    delimiter = delimiter or max(exported_files.SEPARATORS, key=first.count)
    header = above if names else 1 + above
    header_names = list(names) or next(csv.reader([first], delimiter=delimiter))
    if len(delimiter) > 1:
        raw = with_short_separator(raw, delimiter, where)
    unique = [name or f"unnamed {i}" for i, name in enumerate(header_names)]

    def read(columns: Sequence[Column]) -> Any:
        import pyarrow as pa
        import pyarrow.csv as pa_csv

        if header and raw.find(b"\n") in (-1, len(raw) - 1):
            raise DataError(f"{where}: line 2: expected rows, found nothing after the header")
        types = {"integer": pa.int64(), "number": pa.float64()}
        for threads in (True, False):  # Arrow names the row of an error in one thread only
            try:
                table = pa_csv.read_csv(
                    pa.BufferReader(raw),
                    pa_csv.ReadOptions(
                        column_names=unique, skip_rows=header, block_size=BLOCK,
                        use_threads=threads,
                    ),
                    pa_csv.ParseOptions(
                        delimiter=UNIT if len(delimiter) > 1 else delimiter,
                        quote_char='"' if quoted else False, ignore_empty_lines=False,
                    ),
                    pa_csv.ConvertOptions(
                        column_types={c.name: types.get(c.kind, pa.string()) for c in columns},
                        include_columns=[c.name for c in columns], null_values=list(nulls),
                        strings_can_be_null=True,
                    ),
                )  # fmt: skip
                break
            except pa.ArrowInvalid as error:
                if not threads:
                    known = {unique.index(c.name): c for c in columns}
                    text = explained(str(error), known, delimiter)
                    raise DataError(f"{where}: {text}") from error
        if strict:
            data_files.require_newline(raw, where)
        return table

    name = where.replace("!", "/").replace(os.sep, "/").rsplit("/", 1)[-1].split(".")[0]
    return Opened(name, where, header_names, read, "line", 1 + header)
