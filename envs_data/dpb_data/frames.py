"""Named columns out of anything that holds a table: a frame, arrays, a CSV or Parquet file."""

from __future__ import annotations

import csv
import os
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpb_data.places import Source, existing_path
from dpb_data.reading import Column, first_line, read_columns, shorten
from dpb_gym.errors import DataError

Array = NDArray[Any]


def take_columns(
    source: Any, columns: Sequence[Column], *, nulls: Sequence[str] = ("", "NULL", "NA")
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
    if isinstance(source, (str, os.PathLike)):
        place = existing_path(source)
        name = place.name.split(".")[0]
        if place.suffix.lower() != ".parquet":
            return name, _from_csv(Source(place), columns, nulls)
        import pyarrow as pa
        import pyarrow.parquet as pq

        try:
            known = pq.read_schema(place).names
            wanted = [column.name for column in columns if column.name in known]
            frame = pq.read_table(place, columns=wanted)
        except (pa.ArrowException, OSError) as error:
            raise DataError(f"{place}: expected a Parquet file ({error})") from error
        return name, _from_frame(frame, str(place), known, columns)
    frame = source
    if not hasattr(frame, "__getitem__"):
        import pyarrow as pa
        import pyarrow.interchange

        if hasattr(frame, "__arrow_c_stream__"):
            frame = pa.table(frame)
        elif hasattr(frame, "__dataframe__"):
            frame = pyarrow.interchange.from_dataframe(frame)
        else:
            raise DataError(
                "expected a frame (pandas, polars, pyarrow), a mapping of arrays or the path of a "
                f"CSV or Parquet file, got a {type(frame).__name__}"
            )
    names = getattr(frame, "column_names", None) or getattr(frame, "columns", None)
    known = [str(n) for n in (frame if names is None and isinstance(frame, Mapping) else names)]
    return "frame", _from_frame(frame, "frame", known, columns)


def _require(columns: Sequence[Column], known: Sequence[str], where: str) -> list[Column]:
    missing = [c.name for c in columns if c.required and c.name not in known]
    if missing:
        some = ", ".join(known[:30]) + (" ..." if len(known) > 30 else "")
        raise DataError(f"{where}: expected the columns {', '.join(missing)}, found {some}")
    return [column for column in columns if column.name in known]


def _from_csv(source: Source, columns: Sequence[Column], nulls: Sequence[str]) -> dict[str, Array]:
    if source.main is None:
        raise DataError(f"{source.path}: expected the path of a CSV or Parquet file")
    where = source.where(source.main)
    raw = source.read(source.main)
    line = first_line(raw, where)
    delimiter = max(",;\t", key=line.count)
    names = next(csv.reader([line], delimiter=delimiter))
    taken = _require(columns, names, where)
    return read_columns(
        raw, where, taken, [name or f"unnamed {i}" for i, name in enumerate(names)],
        delimiter=delimiter, nulls=nulls, quoted=True,
    )  # fmt: skip


def _from_frame(
    frame: Any, where: str, known: Sequence[str], columns: Sequence[Column]
) -> dict[str, Array]:
    return {
        column.name: _checked(np.asarray(frame[column.name]), column, where)
        for column in _require(columns, known, where)
    }


def _checked(values: Array, column: Column, where: str) -> Array:
    """The values as the column's type, every one checked."""
    if values.ndim != 1 or not len(values):
        raise DataError(f"{where}: expected a column {column.name} with rows")
    if column.kind == "text":
        if values.dtype.kind in "iub":
            return values.astype(np.int64)
        if values.dtype.kind == "f" and np.array_equal(values, np.rint(values)):
            return values.astype(np.int64)  # whole, and nothing missing
        objects = values.astype(object)
        missing = np.array([value is None or value != value for value in objects])
        wrong = missing if not column.nullable else np.zeros(len(missing), np.bool_)
        read: Array = np.array(
            [None if gone else str(value) for value, gone in zip(objects, missing)], dtype=object
        )
    else:
        if values.dtype.kind == "M":
            values = values.astype("datetime64[s]").astype(np.int64)
        try:
            read = values.astype(np.float64)
        except (TypeError, ValueError) as error:
            raise DataError(
                f"{where}: expected {column.name} to be {column.allowed} ({error})"
            ) from error
        wrong = column.wrong(read)
        if column.kind == "integer":
            wrong |= read != np.rint(read)
            exact = values.dtype.kind in "iub"
            with np.errstate(invalid="ignore"):
                read = values.astype(np.int64) if exact else read.astype(np.int64)
        elif column.nullable:
            wrong &= ~np.isnan(read)
    if wrong.any():
        row = int(wrong.argmax())
        raise DataError(
            f"{where}: row {row}: expected {column.name} to be {column.allowed}, found "
            f"{shorten(str(values[row]))}"
        )
    return read
