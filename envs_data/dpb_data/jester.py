"""Reading the Jester rating matrices: one row per user, a count and then one column per joke."""

from __future__ import annotations

import importlib
import io
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from dpb_data.formats import MAX_LINE, RatingFormat, shorten, text_line
from dpb_data.sources import Source, member_errors
from dpb_data.table import RatingTable
from dpb_gym.errors import DataError, MissingExtraError

MISSING = 99.0
_FEWEST_JOKES = 10


def read_jester(
    source: Source, fmt: RatingFormat, member: str, name: str, *, strict: bool
) -> RatingTable:
    """Reads a Jester matrix; original user ids are row numbers, item ids joke numbers, from 1.

    The first column says how many jokes the user rated. It is checked against the row: it is a
    check sum that the data set brings along.

    Args:
        source: Where the member is.
        fmt: ``jester-csv`` or ``jester-xls``.
        member: Name of the member.
        name: Name for the table.
        strict: Whether a missing final newline is an error.

    Raises:
        DataError: Names the file, the line, what was expected and what was found.
        MissingExtraError: The matrix is an Excel sheet and xlrd is not installed.
    """
    where = source.where(member)
    with member_errors(where), source.open(member) as stream:
        raw = stream.read()
    if not raw:
        raise DataError(f"{where}: line 1: expected a Jester matrix, found an empty file")
    if fmt.name == "jester-xls":
        matrix, unit = _from_xls(raw, where), "row"
    else:
        matrix, unit = _from_csv(raw, where, strict=strict), "line"
    problem = _matrix_problem(matrix, fmt, unit)
    if problem is not None:
        raise DataError(f"{where}: {problem}")
    rows, jokes = np.nonzero(matrix[:, 1:] != MISSING)
    if rows.size == 0:
        raise DataError(f"{where}: expected ratings, found only missing ones (99)")
    return RatingTable.from_columns(
        name,
        rows + 1,
        jokes + 1,
        matrix[rows, jokes + 1],
        rating_range=fmt.rating_range,
    )


def _matrix_problem(matrix: NDArray[np.float64], fmt: RatingFormat, unit: str) -> str | None:
    """Names the first row whose values or count are wrong."""
    low, high = fmt.rating_range
    ratings = matrix[:, 1:]
    rated = ratings != MISSING
    bad_value = rated & ~((ratings >= low) & (ratings <= high))  # NaN is bad too
    bad_count = matrix[:, 0] != rated.sum(axis=1)
    bad = np.flatnonzero(bad_value.any(axis=1) | bad_count)
    if bad.size == 0:
        return None
    row = int(bad[0])
    if bad_value[row].any():
        joke = int(np.flatnonzero(bad_value[row])[0])
        return (
            f"{unit} {row + 1}: expected every rating to be {fmt.allowed}, found "
            f"{ratings[row, joke]:g} for joke {joke + 1}"
        )
    return (
        f"{unit} {row + 1}: expected the first column to count the row's ratings "
        f"({int(rated[row].sum())}), found {matrix[row, 0]:g}"
    )


def _from_csv(raw: bytes, where: str, *, strict: bool) -> NDArray[np.float64]:
    """Parses the whole matrix, shape (users, 1 + jokes), missing ratings as 99."""
    import pyarrow as pa
    import pyarrow.csv as pa_csv

    width = text_line(raw[:MAX_LINE].split(b"\n", 1)[0], where).count(",") + 1
    if width <= _FEWEST_JOKES:
        raise DataError(
            f"{where}: line 1: expected a count and at least {_FEWEST_JOKES} ratings separated "
            f"by ',', found {width} fields"
        )
    names = [f"c{index}" for index in range(width)]
    try:
        parsed = pa_csv.read_csv(
            io.BytesIO(raw),
            read_options=pa_csv.ReadOptions(column_names=names),
            parse_options=pa_csv.ParseOptions(quote_char=False, ignore_empty_lines=False),
            convert_options=pa_csv.ConvertOptions(
                column_types=dict.fromkeys(names, pa.float64()), null_values=[]
            ),
        )
    except pa.ArrowInvalid as error:
        problem = _first_problem(io.BytesIO(raw), width, strict=strict)
        raise DataError(f"{where}: {problem or error}") from error
    if strict and not raw.endswith(b"\n"):
        raise DataError(f"{where}: {_first_problem(io.BytesIO(raw), width, strict=True)}")
    matrix: NDArray[np.float64] = np.column_stack([column.to_numpy() for column in parsed.columns])
    return matrix


def _first_problem(stream: BinaryIO, width: int, *, strict: bool) -> str | None:
    """Finds the first row that has the wrong number of fields or a field that is no number."""
    number, raw = 0, b"\n"
    for number, raw in enumerate(stream, 1):
        line = raw.removesuffix(b"\n").removesuffix(b"\r")
        if b"\r" in line:
            return f"line {number}: found a carriage return inside the line: {shorten(line)}"
        fields = line.split(b",")
        if len(fields) != width:
            return (
                f"line {number}: expected {width} fields as in line 1 (a count and "
                f"{width - 1} ratings), found {len(fields)}: {shorten(raw)}"
            )
        for joke, field in enumerate(fields):
            try:
                float(field)
            except ValueError:
                column = "the count" if joke == 0 else f"joke {joke}"
                return f"line {number}: expected a number for {column}, found {shorten(field)}"
    if strict and not raw.endswith(b"\n"):
        return (
            f"line {number}: expected a newline at the end of the file, found the end after "
            f"{shorten(raw[-20:])}: the file was probably cut off (an intact file without a final "
            "newline loads with strict=False)"
        )
    return None


def _from_xls(raw: bytes, where: str) -> NDArray[np.float64]:
    """Parses the first sheet of an Excel 97 workbook."""
    try:
        xlrd = importlib.import_module("xlrd")  # by name: it ships no type information
    except ImportError as error:
        raise MissingExtraError(
            f"{where}: the official Jester files are Excel 97 workbooks, and reading them needs "
            "xlrd: pip install 'dpb-gym[jester]' (or use a CSV export of the same matrix)"
        ) from error
    try:
        book = xlrd.open_workbook(file_contents=raw, logfile=io.StringIO())
        sheet: Any = book.sheet_by_index(0)
        rows = [sheet.row_values(index) for index in range(sheet.nrows)]
    except Exception as error:  # xlrd lets struct, index and assertion errors of bad files through
        raise DataError(
            f"{where}: expected a complete Excel 97 (.xls) workbook, found a damaged one ({error})"
        ) from error
    width = len(rows[0]) if rows else 0
    if width <= _FEWEST_JOKES:
        raise DataError(
            f"{where}: expected a sheet with a count and at least {_FEWEST_JOKES} ratings in each "
            f"row, found {len(rows)} rows of {width} cells"
        )
    for number, row in enumerate(rows, 1):
        for joke, value in enumerate(row):
            if not isinstance(value, float):
                column = "the count" if joke == 0 else f"joke {joke}"
                raise DataError(
                    f"{where}: row {number}: expected a number for {column}, found {value!r}"
                )
    return np.array(rows, dtype=np.float64)
