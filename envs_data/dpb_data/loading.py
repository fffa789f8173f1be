"""From a name, a path or a frame to a checked table of ratings."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from dpb_data.formats import RatingFormat, detect
from dpb_data.frames import open_csv, take_columns
from dpb_data.jester import read_jester
from dpb_data.places import Source, existing_path, of_kind
from dpb_data.places import path as locate
from dpb_data.reading import Column, first_line, read_columns, shorten
from dpb_data.registry import Counts, DataSet, find_dataset
from dpb_data.table import IntArray, RatingTable, first_duplicate, renumber
from dpb_data.titles import read_titles
from dpb_gym.errors import DataError, ParameterError

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
    """Makes a table of any ratings: of a known data set, or of yours by the names of its columns.

    Args:
        source: What `load_ratings` takes, if no column is named. Else a frame (pandas, polars,
            pyarrow), a mapping of arrays, or the path of a CSV or Parquet file, see
            `dpb_data.frames.take_columns`. A `RatingTable` comes back as it is; a mapping with the
            key ``"source"`` gives all arguments at once, as in a suite file.
        user: Column of user ids, integers or text.
        item: Column of item ids, integers or text.
        rating: Column of ratings.
        time: Column of Unix seconds or dates.
        title: Column of the items' titles; the first of each item counts.
        rating_range: Lowest and highest possible rating. It cannot be guessed: a sample need not
            hold both ends, and rewards are the ratings mapped from it to [0, 1].
        name: Name of the table, the file's by default.

    Raises:
        DataError: Something is missing or not allowed; or a user rates an item twice.
        ParameterError: Columns are named but not all that are needed.

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
    low, high = (float(bound) for bound in rating_range)
    columns = [
        Column(user, kind="id"),
        Column(item, kind="id"),
        Column(rating, low, high),
        *([Column(time, kind="integer")] if time is not None else []),
        *([Column(title, kind="text", nullable=True)] if title is not None else []),
    ]
    label, read = take_columns(source, columns)
    items, item_ids = renumber(item, read[item])
    users, user_ids = renumber(user, read[user])
    twice = first_duplicate(users, items, len(item_ids))
    if twice is not None:
        raise DataError(
            f"{label}: rows {twice[0]} and {twice[1]}: expected each user to rate an item once, "
            f"found {user} {user_ids[users[twice[0]]]} rating {item} {item_ids[items[twice[0]]]} "
            "twice: keep one of them"
        )
    titles = None
    if title is not None:
        titles = [str(t or "") for t in read[title][np.unique(items, return_index=True)[1]]]
    return RatingTable(
        name or label, users, items, read[rating], read.get(time or ""), (low, high), user_ids,
        item_ids, titles,
    )  # fmt: skip


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
    if fmt.name == "kuairec-csv":
        table, titles = _read_kuairec(opened, fmt, member, name), None
    elif fmt.is_jester:
        table, titles = read_jester(opened, fmt, member, name, strict=strict), None
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


def _read_kuairec(source: Source, fmt: RatingFormat, member: str, name: str) -> RatingTable:
    """Reads KuaiRec's matrix; a rating is the watched share of a video, at most 2."""
    where = source.where(member)
    columns = [
        Column("user_id", 0.0, _LARGEST_ID, kind="integer"),
        Column("video_id", 0.0, _LARGEST_ID, kind="integer"),
        Column("watch_ratio", 0.0),
    ]
    _, read = take_columns(open_csv(source, member), columns)
    users, user_ids = renumber("user_id", read["user_id"])
    items, item_ids = renumber("video_id", read["video_id"])
    _require_once(users, items, read["user_id"], read["video_id"], where, 1)
    ratings = np.minimum(read["watch_ratio"], fmt.rating_range[1])
    return RatingTable(name, users, items, ratings, None, fmt.rating_range, user_ids, item_ids)


def _require_once(
    users: IntArray,
    items: IntArray,
    user_ids: IntArray,
    item_ids: IntArray,
    where: str,
    header: int,
) -> None:
    twice = first_duplicate(users, items, int(items.max()) + 1)
    if twice is not None:
        a, b = (row + 1 + header for row in twice)
        raise DataError(
            f"{where}: line {b}: expected each user to rate an item once, found user "
            f"{user_ids[twice[0]]} rating item {item_ids[twice[0]]} "
            f"already in line {a} (were two files joined?)"
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
    _require_once(users, items, read["userId"], read["movieId"], where, header)
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
