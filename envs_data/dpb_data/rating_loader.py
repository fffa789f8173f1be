"""Load ratings from a name, a path or a frame, and check them."""

from __future__ import annotations

import io
import os
import re
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from dpb_data.column_reader import Array, Column, Opened, arrays, open_csv, take_columns
from dpb_data.data_files import Source, first_line, shorten
from dpb_data.data_folders import locate
from dpb_data.dataset_registry import Counts, DataSet, find_dataset, generated
from dpb_data.formats import RatingFormat, detect, read_titles
from dpb_data.rating_table import RatingTable, first_duplicate, renumber
from dpb_gym import validation
from dpb_gym.errors import DataError, ParameterError, optional_module

_MISSING = 99.0
_FEWEST_JOKES = 10


class Loaded(NamedTuple):
    """A loaded table, and for `check` its sizes, claimed data set, source and format.

    Source and format are None for generated data.
    """

    table: RatingTable
    counts: Counts
    known: DataSet | None
    source: Source | None = None
    format: RatingFormat | None = None


def load_ratings(
    source: str | os.PathLike[str], *, format: str | None = None, strict: bool = True
) -> RatingTable:
    """Load a rating data set and check every value.

    Args:
        source: Name of a registered data set (`datasets`), or a path to a folder, a zip archive
            or a ratings file. A registered name means the data set at `path`; write
            ``"./ml-1m"`` or a `pathlib.Path` for a folder of that name.
        format: Name of the format (see `dpb_data.FORMATS`); by default detected.
        strict: True requires an unchanged original: a newline at the end of every file (a missing
            one means that the file was cut), timestamps between 1995 and 2100, a title for every
            rated item, original encoding, and ratings of Jester on both sides of zero. For a known
            data set (by its registered name, the name of its folder or archive, or its
            ``u.info``) the numbers of ratings, users and items must be the published ones. False
            accepts a sample or an edited file of the same format. Columns, numbers, rating scale
            and duplicates are always checked.

    Returns:
        The table, rows in file order.

    Raises:
        DataError: Missing, damaged, truncated or not of the format; names file, line, what was
            expected and what was found.
        UnknownNameError: Neither the name of a data set nor a path; or unknown format.
        MissingExtraError: A package for this format is not installed.
        ParameterError: `format` was given for a generated data set.

    Example:
        >>> import dpb_data
        >>> dpb_data.load_ratings("synthetic-movielens")
        RatingTable('synthetic-movielens': 12,000 ratings in [0.5, 5], 300 users, 200 items)
    """
    loaded = load_with_counts(source, format=format, strict=strict)
    if strict and loaded.known is not None:
        place = loaded.source.path if loaded.source else loaded.known.name
        loaded.known.require(loaded.counts, place)
    return loaded.table


def ratings(
    source: Any,
    *,
    user: str | None = None,
    item: str | None = None,
    rating: str | None = None,
    time: str | None = None,
    title: str | None = None,
    rating_range: Sequence[float] | None = None,
    name: str | None = None,
) -> RatingTable:
    """Return a table of ratings: a known data set, or your own by the names of its columns.

    Args:
        source: What `load_ratings` takes, if no column is named. Else a frame (pandas, polars,
            pyarrow), a mapping of arrays, or the path of a CSV or Parquet file, see
            `dpb_data.column_reader.take_columns`. A `RatingTable` is returned unchanged. A mapping
            with the key ``"source"`` gives all arguments at once, as in a suite file.
        user: Column of user ids, integers or text.
        item: Column of item ids, integers or text.
        rating: Column of ratings.
        time: Column of Unix seconds or dates.
        title: Column of the items' titles; the first title of each item is used.
        rating_range: Lowest and highest possible rating. Rewards are the ratings mapped from it to
            [0, 1]. It has no default, because a sample need not contain both ends.
        name: Name of the table; by default the file's.

    Raises:
        DataError: A column or value is missing or not allowed, or a user rates an item twice.
        ParameterError: Some but not all required columns are named.

    Example:
        >>> import dpb_data
        >>> shop = {"who": ["ann", "bob", "ann"], "what": ["tea", "tea", "jam"], "stars": [7, 3, 9]}
        >>> dpb_data.ratings(shop, user="who", item="what", rating="stars", rating_range=(1, 10))
        RatingTable('frame': 3 ratings in [1, 10], 2 users, 2 items)
    """
    if isinstance(source, RatingTable):
        return source
    if isinstance(source, Mapping) and ("source" in source or "digest" in source):
        return _from_mapping(source)
    needed = {"user": user, "item": item, "rating": rating, "rating_range": rating_range}
    missing = [key for key, value in needed.items() if value is None]
    if len(missing) == 4 and isinstance(source, (str, os.PathLike)):
        return load_ratings(source)
    if user is None or item is None or rating is None or rating_range is None:
        raise ParameterError(
            f"ratings of your own need {', '.join(missing)}: dpb_data.ratings(source, "
            'user="...", item="...", rating="...", rating_range=(lowest, highest)) names the '
            "columns and declares the scale"
        )
    low, high = validation.span("rating_range", rating_range)
    columns = [Column(user, kind="id"), Column(item, kind="id"), Column(rating, low, high)]
    columns += [Column(time, kind="time")] if time is not None else []
    columns += [Column(title, kind="text", nullable=True)] if title is not None else []
    opened, read = take_columns(source, columns)
    names = (user, item, rating, *([time] if time is not None else []))
    titles = None if title is None else dict(zip(read[item][::-1], read[title][::-1]))
    return _table(opened, read, name or opened.name, names, (low, high), titles)


def _from_mapping(arguments: Mapping[str, Any]) -> RatingTable:
    if "digest" in arguments:
        raise DataError(
            f"the ratings {arguments.get('name')!r} (digest {arguments['digest']}) were given in "
            "memory and are not stored: pass them again"
        )
    try:
        return ratings(**arguments)
    except TypeError as error:
        raise ParameterError(f"data: {error}") from None


def _table(
    opened: Opened,
    read: Mapping[str, Array],
    name: str,
    names: Sequence[str],
    rating_range: tuple[float, float],
    titles: Mapping[Any, Any] | None,
) -> RatingTable:
    """Return the table of the columns `names`: user, item, rating and optionally time.

    Raises:
        DataError: A user rates an item twice.
    """
    user, item, rating, *time = names
    users, user_ids = renumber(user, read[user])
    items, item_ids = renumber(item, read[item])
    twice = first_duplicate(users, items, len(item_ids))
    if twice is not None:
        first, again = twice
        raise DataError(
            f"{opened.at(again)}: expected each user to rate an item once, found user "
            f"{read[user][again]} rating item {read[item][again]} already in {opened.unit} "
            f"{first + opened.first} (were two files joined?)"
        )
    listing = None if titles is None else [str(titles.get(i) or "") for i in item_ids.tolist()]
    stamps = read[time[0]] if time else None
    return RatingTable(
        name, users, items, read[rating], stamps, rating_range, user_ids, item_ids, listing
    )


def load_with_counts(
    source: str | os.PathLike[str], *, format: str | None = None, strict: bool = True
) -> Loaded:
    """Load as `load_ratings`, without the comparison with published counts."""
    table = generated(source, "ratings")
    known = find_dataset(source)
    if table is not None:
        if format is not None:
            raise ParameterError(f"{source} is generated and has no format; leave format out")
        return Loaded(table, Counts(len(table), table.n_users, table.n_items), known)
    location = locate(source)
    known = known or claimed_dataset(location)
    opened, fmt, member = detect(Source(location), format)
    place = location.absolute()
    name = known.name if known else place.name if place.is_dir() else place.stem
    read = _read_matrix if fmt.is_jester else _read_lines
    table, catalogue = read(opened, fmt, member, name, strict)
    counts = Counts(len(table), table.n_users, table.n_items, catalogue)
    if strict and member == "u.data" and "u.info" in opened.names():
        _check_u_info(opened, counts)
    return Loaded(table, counts, known, opened, fmt)


def claimed_dataset(location: Path) -> DataSet | None:
    """Return the registered data set named like the folder, archive, or the file's folder."""
    place = location.absolute()  # not resolved: use the name of a link, not of its target
    if place.is_dir():
        return find_dataset(place.name)
    if place.suffix.lower() == ".zip":
        return find_dataset(place.stem)
    own = find_dataset(place.parent.name)
    members = {"u.data", "ratings.dat", "ratings.csv"} | set(own.files if own else ())
    return own if place.name in members else None


def _check_u_info(source: Source, counts: Counts) -> None:
    """Compare with the counts in the ``u.info`` of an ml-100k folder."""
    actual = {"users": counts.users, "items": counts.catalogue, "ratings": counts.ratings}
    for number, line in enumerate(source.read("u.info").splitlines(), 1):
        fits = re.fullmatch(rb"\s*(\d+) (users|items|ratings)\s*", line)
        at = f"{source.where('u.info')}: line {number}"
        if fits is None:
            raise DataError(f"{at}: expected '<number> users|items|ratings', found {shorten(line)}")
        declared = int(fits[1])
        what = fits[2].decode()
        if actual[what] not in (None, declared):
            raise DataError(
                f"{at}: it declares {declared:,} {what}, found {actual[what]:,} (truncated?); a "
                "sample loads with strict=False"
            )


def _read_lines(
    source: Source, fmt: RatingFormat, member: str, name: str, strict: bool
) -> tuple[RatingTable, int | None]:
    """Read a member with one rating per line and, if present, its titles.

    Returns:
        The table and the number of items in the titles file (None without one).
    """
    where = source.where(member)
    raw = source.read(member)
    if fmt.header and (header := first_line(raw, where)) != fmt.header:
        raise DataError(
            f"{where}: line 1: expected the header {fmt.header!r}, found {shorten(header)}"
        )
    opened = open_csv(
        raw, where, names=() if fmt.header is not None else fmt.names, delimiter=fmt.delimiter,
        nulls=(), quoted=False, strict=strict,
    )  # fmt: skip
    read = opened.take(fmt.columns(strict))
    if fmt.cut:
        read[fmt.names[2]] = np.minimum(read[fmt.names[2]], fmt.rating_range[1])
    titles = read_titles(source, fmt, strict=strict) if fmt.titles in source.names() else None
    table = _table(opened, read, name, fmt.names, fmt.rating_range, titles)
    if titles is None:
        return table, None
    absent = [item for item in table.item_ids.tolist() if item not in titles]
    if absent and strict:
        raise DataError(
            f"{source.where(fmt.titles)}: expected a title for every rated item, "
            f"found none for item {absent[0]} ({len(absent)} missing)"
        )
    return table, len(titles)


def _read_matrix(
    source: Source, fmt: RatingFormat, member: str, name: str, strict: bool
) -> tuple[RatingTable, None]:
    """Reads a Jester matrix: a count, then one column per joke, one row per user.

    Original user ids are row numbers, item ids joke numbers, from 1. The count is checked against
    the row: it is a check sum that the data set brings along.
    """
    where = source.where(member)
    raw = source.read(member)
    rows = _sheet(raw, where) if fmt.name == "jester-xls" else [first_line(raw, where).split(",")]
    width = len(rows[0]) if rows else 0
    if width <= _FEWEST_JOKES:
        raise DataError(
            f"{where}: line 1: expected a count and at least {_FEWEST_JOKES} ratings in each row, "
            f"found {width} fields"
        )
    names = ["the count", *(f"joke {joke}" for joke in range(1, width))]
    low, high = fmt.rating_range
    columns = [Column(names[0])]
    columns += [Column(joke, low, high, also=_MISSING, hint=" for none") for joke in names[1:]]
    if fmt.name == "jester-xls":
        cells = dict(zip(names, map(list, zip(*rows))))
        opened = Opened(name, where, names, partial(arrays, cells), "row", 1)
    else:
        opened = open_csv(
            raw, where, names=names, delimiter=",", nulls=(), quoted=False, strict=strict
        )
    matrix = np.column_stack(list(opened.take(columns).values()))
    rated = matrix[:, 1:] != _MISSING
    miscounted = matrix[:, 0] != rated.sum(axis=1)
    if miscounted.any():
        row = int(miscounted.argmax())
        raise DataError(
            f"{opened.at(row)}: expected the first column to count the row's ratings "
            f"({int(rated[row].sum())}), found {matrix[row, 0]:g}"
        )
    users, jokes = np.nonzero(rated)
    if users.size == 0:
        raise DataError(f"{where}: expected ratings, found only missing ones (99)")
    scores = matrix[users, jokes + 1]
    if strict and scores.min() >= 0.0 and users.size > 1:
        raise DataError(
            f"{where}: expected ratings from -10 to 10, found none below 0 (from "
            f"{scores.min():g} to {scores.max():g}): rewards would be wrong. "
            "If the scale is Jester's, pass strict=False; a table on a scale of its own loads "
            "with dpb_data.ratings(..., rating_range=(lowest, highest))"
        )
    table = RatingTable.from_columns(
        name, users + 1, jokes + 1, scores, rating_range=fmt.rating_range
    )
    return table, None


def _sheet(raw: bytes, where: str) -> list[list[Any]]:
    """Return the rows of the first sheet of an Excel 97 workbook."""
    what = f"{where}: the official Jester files are Excel 97 workbooks, and reading them"
    hint = " (or use a CSV export of the same matrix)"
    xlrd = optional_module("xlrd", what, "data", hint)
    try:
        book = xlrd.open_workbook(file_contents=raw, logfile=io.StringIO())
        sheet = book.sheet_by_index(0)
        return [sheet.row_values(index) for index in range(sheet.nrows)]
    except Exception as error:  # bad files raise struct, index and assertion errors in xlrd
        raise DataError(
            f"{where}: expected a complete Excel 97 (.xls) workbook, found a damaged one ({error})"
        ) from error
