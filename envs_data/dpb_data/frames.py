"""Named columns out of anything that holds a table: a frame, arrays, a CSV or Parquet file."""

from __future__ import annotations

import csv
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpb_data.places import Source, existing_path
from dpb_data.reading import Column, first_line, read_columns, shorten
from dpb_gym.errors import DataError

Array = NDArray[Any]

MAX_LEVELS = 50
NULLS = ("", "NULL", "NA")
_PLAIN = ("integer", "number", "text")
_FLAGS = {"1": 1, "true": 1, "1.0": 1, "0": 0, "false": 0, "0.0": 0}


@dataclass(frozen=True)
class Opened:
    """A table that was found and not read yet.

    Attributes:
        name: Of the file without its endings, ``"frame"`` for anything else.
        where: How messages name it.
        columns: Names of its columns.
        read: Reads and checks columns that it has.
    """

    name: str
    where: str
    columns: list[str]
    read: Callable[[Sequence[Column]], dict[str, Array]]


def open_table(source: Any, nulls: Sequence[str] = NULLS) -> Opened:
    """Finds a table and the names of its columns; see `take_columns`."""
    if isinstance(source, (str, os.PathLike)):
        place = existing_path(source)
        if place.suffix.lower() == ".parquet":
            return _open_parquet(place)
        found = Source(place)
        if found.main is None:
            raise DataError(f"{place}: expected the path of a CSV or Parquet file")
        return open_csv(found, found.main, nulls)
    frame = source
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
    return Opened("frame", "frame", [str(n) for n in names], partial(_from_frame, frame, "frame"))


def _open_parquet(place: Path) -> Opened:
    import pyarrow as pa
    import pyarrow.parquet as pq

    def read(columns: Sequence[Column]) -> dict[str, Array]:
        try:
            frame = pq.read_table(place, columns=[column.name for column in columns])
        except (pa.ArrowException, OSError) as error:
            raise DataError(f"{place}: expected a Parquet file ({error})") from error
        return _from_frame(frame, str(place), columns)

    try:
        names = pq.read_schema(place).names
    except (pa.ArrowException, OSError) as error:
        raise DataError(f"{place}: expected a Parquet file ({error})") from error
    return Opened(place.name.split(".")[0], str(place), names, read)


def open_csv(source: Source, member: str, nulls: Sequence[str] = NULLS) -> Opened:
    """Finds the columns of a CSV member; see `take_columns`."""
    where = source.where(member)
    raw = source.read(member)
    line = first_line(raw, where)
    delimiter = max(",;\t", key=line.count)
    names = next(csv.reader([line], delimiter=delimiter))
    unique = [name or f"unnamed {i}" for i, name in enumerate(names)]

    def parsed(columns: Sequence[Column]) -> dict[str, Array]:
        return read_columns(
            raw, where, columns, unique, delimiter=delimiter, nulls=nulls, quoted=True
        )

    def read(columns: Sequence[Column]) -> dict[str, Array]:
        try:
            found = parsed(columns)  # Arrow tells numbers from text, by the first block
        except DataError:
            plain = [c if c.kind in _PLAIN else replace(c, kind="text") for c in columns]
            found = parsed(plain)
        return {
            c.name: found[c.name] if c.kind in _PLAIN else _checked(found[c.name], c, where)
            for c in columns
        }

    return Opened(member.split(".")[0], where, names, read)


def take_columns(
    source: Any, columns: Sequence[Column], *, nulls: Sequence[str] = NULLS
) -> tuple[str, dict[str, Array]]:
    """Takes and checks columns by their names.

    Args:
        source: A path to a ``.csv`` (commas, semicolons or tabs, header, quotes, also packed as
            ``.csv.gz``) or ``.parquet`` file, here or below ``$DPB_DATA``; or a frame of pandas,
            polars or pyarrow, anything else with the Arrow stream or data-frame protocol, or a
            mapping of arrays.
        columns: What to take, by the names in the source. Optional ones that it lacks are left
            out of the answer.
        nulls: What stands for a missing value in a CSV file.

    Returns:
        The name of the file without its endings (``"frame"`` for anything else), and values by
        column name: int64, float64 with NaN for missing, or text as objects with None for missing.

    Raises:
        DataError: A column is missing, or a value is not allowed; names the line or row, what was
            expected and what was found.
        UnknownNameError: No file of this name is here.
    """
    opened = source if isinstance(source, Opened) else open_table(source, nulls)
    missing = [c.name for c in columns if c.required and c.name not in opened.columns]
    if missing:
        known = opened.columns
        some = ", ".join(known[:30]) + (" ..." if len(known) > 30 else "")
        raise DataError(f"{opened.where}: expected the columns {', '.join(missing)}, found {some}")
    return opened.name, opened.read([c for c in columns if c.name in opened.columns])


def _from_frame(frame: Any, where: str, columns: Sequence[Column]) -> dict[str, Array]:
    found = {c.name: _checked(np.asarray(frame[c.name]), c, where) for c in columns}
    lengths = {name: len(values) for name, values in found.items()}
    if len(set(lengths.values())) > 1:
        raise DataError(f"{where}: expected columns of one length, found {lengths}")
    return found


def _checked(values: Array, column: Column, where: str) -> Array:
    """The values as the column's type, every one checked."""
    if values.ndim != 1 or not len(values):
        raise DataError(f"{where}: expected a column {column.name} with rows")
    if column.kind in ("id", "any") and values.dtype.kind == "M":
        values = values.astype(str)
    if column.kind in ("id", "any", "flag") and values.dtype.kind in "iubf":
        whole = values.dtype.kind != "f" or np.array_equal(values, np.rint(values))
        if column.kind == "flag":
            column = replace(column, kind="integer", low=0.0, high=1.0)
        elif column.kind == "any" or whole:
            column = replace(column, kind="number" if column.kind == "any" else "integer")
    if column.kind not in ("integer", "number"):
        objects = values.astype(object)
        missing = np.array([value is None or value != value for value in objects])
        if missing.any() and not column.nullable:
            raise _refusal(column, where, values, missing)
        text = [None if gone else str(v) for v, gone in zip(objects, missing)]
        return _converted(np.array(text, dtype=object), column, where)
    if values.dtype.kind == "M":
        values = values.astype("datetime64[s]").astype(np.int64)
    try:
        read: Array = values.astype(np.float64)
    except (TypeError, ValueError) as error:
        raise DataError(
            f"{where}: expected {column.name} to be {column.allowed} ({error})"
        ) from error
    wrong = column.wrong(read)
    if column.nullable:
        wrong &= ~np.isnan(read)
    if column.kind == "integer":
        wrong |= read != np.rint(read)
    if wrong.any():
        raise _refusal(column, where, values, wrong)
    if column.kind == "integer":  # not by way of floats: ids may need all their digits
        return values.astype(np.int64)
    return read


def _converted(values: Array, column: Column, where: str) -> Array:
    """Text as what the column's kind makes of it."""
    if column.kind == "id":
        whole = all(v.isascii() and v.isdigit() and len(v) < 19 for v in values)
        return values.astype(np.int64) if whole else values
    if column.kind == "flag":
        found = np.array([_FLAGS.get(str(value).strip().lower(), -1) for value in values])
        if (found < 0).any():
            raise _refusal(column, where, values, found < 0)
        return found
    if column.kind == "any":
        try:
            return values.astype(np.float64)
        except (TypeError, ValueError):
            return values
    return values


def _refusal(column: Column, where: str, values: Array, wrong: Array) -> DataError:
    row = int(wrong.argmax())
    return DataError(
        f"{where}: row {row}: expected {column.name} to be {column.allowed}, found "
        f"{shorten(str(values[row]))}"
    )


def encode_features(columns: Mapping[str, Array], label: str) -> tuple[Array, tuple[str, ...]]:
    """Numbers as they are, text as one 0/1 feature per level but the first.

    Args:
        columns: Numbers or text ``(n,)`` by name, at least one.
        label: How messages name the table.

    Returns:
        Features ``(n, d)`` and their names, ``"fuel=gasoline"`` for a level.

    Raises:
        DataError: A value is missing or infinite, or text has more than 50 levels.
    """
    features: list[Array] = []
    names: list[str] = []
    for name, values in columns.items():
        if values.dtype.kind in "iuf":
            if not np.isfinite(values).all():
                row = int((~np.isfinite(values)).argmax())
                raise DataError(f"{label}: row {row}: expected {name} to be finite, found none")
            features.append(values.astype(np.float64))
            names.append(name)
            continue
        levels = sorted({str(value) for value in values})
        if len(levels) == 1:
            raise DataError(f"{label}: {name} is {levels[0]!r} in every row: leave it out")
        if len(levels) > MAX_LEVELS:
            raise DataError(
                f"{label}: {name} is text with {len(levels)} values, more than {MAX_LEVELS}: leave "
                "it out, or group them"
            )
        for level in levels[1:]:
            features.append((values == level).astype(np.float64))
            names.append(f"{name}={level}")
    return np.ascontiguousarray(np.column_stack(features)), tuple(names)
