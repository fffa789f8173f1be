"""Reading the Jester rating matrices: one row per user, a count and then one column per joke."""

from __future__ import annotations

import importlib
import io
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpb_data.formats import RatingFormat
from dpb_data.places import Source
from dpb_data.reading import Column, header_of, read_columns
from dpb_data.table import RatingTable
from dpb_gym.errors import DataError, MissingExtraError

MISSING = 99.0
_FEWEST_JOKES = 10


def read_jester(
    source: Source, fmt: RatingFormat, member: str, name: str, *, strict: bool
) -> RatingTable:
    """Reads a Jester matrix: a count, then one column per joke, one row per user.

    Original user ids are row numbers, item ids joke numbers, from 1. The count is checked against
    the row: it is a check sum that the data set brings along.
    """
    where = source.where(member)
    raw = source.read(member)
    matrix = _sheet(raw, where) if fmt.name == "jester-xls" else _text_matrix(raw, where, strict)
    rated = matrix[:, 1:] != MISSING
    unit = "row" if fmt.name == "jester-xls" else "line"
    wrong = np.array([fmt.rating.wrong(column) for column in matrix[:, 1:].T]).T
    if wrong.any():
        row = int(wrong.any(axis=1).argmax())
        joke = int(wrong[row].argmax())
        raise DataError(
            f"{where}: {unit} {row + 1}: expected every rating to be {fmt.rating.allowed} for "
            f"none, found {matrix[row, joke + 1]:g} for joke {joke + 1}"
        )
    miscounted = matrix[:, 0] != rated.sum(axis=1)
    if miscounted.any():
        row = int(miscounted.argmax())
        raise DataError(
            f"{where}: {unit} {row + 1}: expected the first column to count the row's ratings "
            f"({int(rated[row].sum())}), found {matrix[row, 0]:g}"
        )
    users, jokes = np.nonzero(rated)
    if users.size == 0:
        raise DataError(f"{where}: expected ratings, found only missing ones (99)")
    ratings = matrix[users, jokes + 1]
    if strict and ratings.min() >= 0.0 and users.size > 1:
        raise DataError(
            f"{where}: expected ratings from -10 to 10, found none below 0 (from "
            f"{ratings.min():g} to {ratings.max():g}): rewards would be wrong. "
            "If the scale is Jester's, pass strict=False; a table on a scale of its own loads "
            "with dpb_data.ratings(..., rating_range=(lowest, highest))"
        )
    return RatingTable.from_columns(
        name, users + 1, jokes + 1, ratings, rating_range=fmt.rating_range
    )


def _text_matrix(raw: bytes, where: str, strict: bool) -> NDArray[np.float64]:
    """Parses the whole matrix, shape (users, 1 + jokes), missing ratings as 99."""
    width = len(header_of(raw, where))
    if width <= _FEWEST_JOKES:
        raise DataError(
            f"{where}: line 1: expected a count and at least {_FEWEST_JOKES} ratings separated "
            f"by ',', found {width} fields"
        )
    names = ["the count", *(f"joke {joke}" for joke in range(1, width))]
    columns = [Column(name) for name in names]  # bounds: on the whole matrix, with the counts
    read = read_columns(raw, where, columns, names, header=0, strict=strict)
    return np.column_stack(list(read.values()))


def _sheet(raw: bytes, where: str) -> NDArray[np.float64]:
    """Parses the first sheet of an Excel 97 workbook."""
    try:
        xlrd = importlib.import_module("xlrd")  # by name: it ships no type information
    except ImportError as error:
        raise MissingExtraError(
            f"{where}: the official Jester files are Excel 97 workbooks, and reading them needs "
            "xlrd: pip install 'dpb-gym[data]' (or use a CSV export of the same matrix)"
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
