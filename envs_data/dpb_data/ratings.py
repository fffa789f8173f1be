"""`load_ratings`: from a name or a path to a checked table."""

from __future__ import annotations

import importlib
import io
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dpb_data.formats import RatingFormat, detect
from dpb_data.places import Source, existing_path, of_kind
from dpb_data.places import path as locate
from dpb_data.reading import Column, first_line, header_of, read_columns, shorten
from dpb_data.registry import Counts, DataSet, find_dataset
from dpb_data.table import RatingTable, first_duplicate, renumber
from dpb_data.titles import read_titles
from dpb_gym.errors import DataError, MissingExtraError, ParameterError

MISSING = 99.0
_FEWEST_JOKES = 10
# MovieLens went on line in 1995. A ten-digit timestamp that lost its last digit falls before 1976,
# so this bound also catches a file cut inside its last timestamp.
_STAMPS = (788_918_400, 4_102_444_800)  # 1995 to 2100
_STAMP_HINT = " (Unix seconds between 1995 and 2100; cut off?)"
_LARGEST_ID = 2**31 - 1
_COLUMNS = ("userId", "movieId", "rating", "timestamp")


@dataclass(frozen=True)
class Loaded:
    """A table with what was learned on the way: used by `check`.

    Attributes:
        table: The ratings.
        counts: Sizes found.
        source: Where they came from; None for generated data.
        format: Format of the file; None for generated data.
    """

    table: RatingTable
    counts: Counts
    source: Source | None = None
    format: RatingFormat | None = None


def load_ratings(
    source: str | os.PathLike[str], *, format: str | None = None, strict: bool = True
) -> RatingTable:
    """Loads a rating data set and checks every value of it.

    Args:
        source: Name of a registered data set (`datasets`), or a path to a folder, a zip archive
            or a ratings file. A string that is a registered name means the data set, wherever
            `path` finds it; write ``"./ml-1m"`` or a `pathlib.Path` for a folder of that name.
        format: Name of the format (see `dpb_data.FORMATS`); found out if not given.
        strict: True demands an untouched original: a newline at the end of every file (a missing
            one means that the file was cut), timestamps between 1995 and 2100, a title for every
            rated item, original encoding, Jester's scale used on both sides of zero, and, where
            the data set is known (by its registered name, by the name of its folder or archive,
            or by its ``u.info``), exactly the published number of ratings, users and items. False
            takes a sample or a hand-edited file of the same format. Columns, numbers, rating
            scale and duplicates are always checked.

    Returns:
        The table, rows in file order.

    Raises:
        DataError: Missing, damaged, truncated or not of the format; names file, line, what was
            expected and what was found.
        UnknownNameError: A bare word that is neither a data set nor a path; or unknown format.
        MissingExtraError: A package for this format is not installed.
        ParameterError: `format` was given for a generated data set.

    Example:
        >>> import dpb_data
        >>> dpb_data.load_ratings("synthetic-movielens")
        RatingTable('synthetic-movielens': 12,000 ratings in [0.5, 5], 300 users, 200 items)
    """
    loaded, known = load_with_counts(source, format=format, strict=strict)
    problems = known.counts.differences(loaded.counts) if strict and known is not None else []
    if known is not None and problems:
        place = known.name if loaded.source is None else str(loaded.source.path)
        raise DataError(
            f"{place}: {'; '.join(problems)}: this is not the complete {known.name}. A sample "
            "of your own loads with strict=False, or from a folder of another name"
        )
    return loaded.table


def load_with_counts(
    source: str | os.PathLike[str], *, format: str | None = None, strict: bool = True
) -> tuple[Loaded, DataSet | None]:
    """Loads like `load_ratings`, but leaves the comparison with published counts to the caller.

    Returns:
        What was loaded, and the registered data set that it claims to be (None for any other).
    """
    known = of_kind(source, "ratings")
    if known is not None and known.generate is not None:
        if format is not None:
            raise ParameterError(f"{known.name} is generated and has no format; leave format out")
        table = known.generate()
        return Loaded(table, Counts(len(table), table.n_users, table.n_items)), known
    if known is not None:
        location = locate(known.name)
    else:
        location = existing_path(source)
        known = claimed_dataset(location)
    opened, fmt, member = detect(Source(location), format)
    place = location.absolute()
    name = known.name if known else place.name if place.is_dir() else place.stem
    if fmt.is_jester:
        table, titles = _read_jester(opened, fmt, member, name, strict), None
    else:
        table, titles = _read_movielens(opened, fmt, member, name, strict)
    counts = Counts(len(table), table.n_users, table.n_items, titles)
    if strict and member == "u.data" and "u.info" in opened.names():
        _check_u_info(opened, counts)
    return Loaded(table, counts, opened, fmt), known


def claimed_dataset(location: Path) -> DataSet | None:
    """The registered data set whose name a folder, an archive, or a file's folder bears."""
    place = location.absolute()  # not resolved: the name of a link counts, not its target's
    if place.is_dir():
        return find_dataset(place.name)
    if place.suffix.lower() == ".zip":
        return find_dataset(place.stem)
    own = find_dataset(place.parent.name)
    members = {"u.data", "ratings.dat", "ratings.csv"} | set(own.files if own else ())
    return own if place.name in members else None


def _check_u_info(source: Source, found: Counts) -> None:
    """Compares with the counts that an ml-100k folder declares about itself."""
    where = source.where("u.info")
    lines = source.read("u.info").decode("ascii", errors="replace").splitlines()
    actual = {"users": found.users, "items": found.catalogue, "ratings": found.ratings}
    for number, line in enumerate(lines, 1):
        count, _, what = line.strip().partition(" ")
        if not count.isascii() or not count.isdigit() or what not in actual:
            raise DataError(
                f"{where}: line {number}: expected '<number> users|items|ratings', found {line!r}"
            )
        if actual[what] is not None and actual[what] != int(count):
            raise DataError(
                f"{where}: line {number}: it declares {int(count):,} {what}, found "
                f"{actual[what]:,} (truncated?); a sample loads with strict=False"
            )


def _read_movielens(
    source: Source, fmt: RatingFormat, member: str, name: str, strict: bool
) -> tuple[RatingTable, int | None]:
    """Reads a MovieLens ratings member and, where they stand beside it, its titles.

    Returns:
        The table and the number of items in the titles file (None without one).
    """
    where = source.where(member)
    raw = source.read(member)
    if fmt.header is not None:
        found = first_line(raw, where)
        if found != fmt.header:
            raise DataError(
                f"{where}: line 1: expected the header {fmt.header!r}, found {shorten(found)}"
            )
    first, last = _STAMPS if strict else (-(2.0**62), 2.0**62)
    columns = (
        Column("userId", 1, _LARGEST_ID, kind="integer"),
        Column("movieId", 1, _LARGEST_ID, kind="integer"),
        fmt.rating,
        Column("timestamp", first, last, kind="integer", hint=_STAMP_HINT),
    )
    header = 0 if fmt.header is None else 1
    read = read_columns(
        raw, where, columns, _COLUMNS, delimiter=fmt.delimiter, header=header, strict=strict
    )
    del raw
    users, user_ids = renumber("userId", read["userId"])
    items, item_ids = renumber("movieId", read["movieId"])
    twice = first_duplicate(users, items, len(item_ids))
    if twice is not None:
        a, b = (row + 1 + header for row in twice)
        raise DataError(
            f"{where}: line {b}: expected each user to rate an item once, found user "
            f"{read['userId'][twice[0]]} rating item {read['movieId'][twice[0]]} "
            f"already in line {a} (were two files joined?)"
        )
    titles, catalogue = None, None
    if fmt.titles in source.names():
        known = read_titles(source, fmt, strict=strict)
        catalogue = len(known)
        absent = [int(item) for item in item_ids if int(item) not in known]
        if absent and strict:
            raise DataError(
                f"{source.where(fmt.titles)}: expected a title for every rated item, "
                f"found none for item {absent[0]} ({len(absent)} missing)"
            )
        titles = [known.get(int(item), "") for item in item_ids]
    table = RatingTable(
        name, users, items, read["rating"], read["timestamp"], fmt.rating_range, user_ids,
        item_ids, titles,
    )  # fmt: skip
    return table, catalogue


def _read_jester(
    source: Source, fmt: RatingFormat, member: str, name: str, strict: bool
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
