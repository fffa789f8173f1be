"""`load_ratings`: from a name or a path to a checked table."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from dpb_data.formats import RatingFormat, detect
from dpb_data.jester import read_jester
from dpb_data.locating import DATA_VARIABLE
from dpb_data.locating import path as locate
from dpb_data.movielens import read_movielens
from dpb_data.registry import Counts, DataSet, datasets, find_dataset
from dpb_data.sources import Source, member_errors, open_source
from dpb_data.table import RatingTable
from dpb_gym.errors import DataError, ParameterError, unknown_name


@dataclass(frozen=True)
class Loaded:
    """A table with what was learned on the way: used by `check`.

    Attributes:
        table: The ratings.
        counts: Sizes found.
        source: Where they came from; None for generated data.
        format: Format of the file; None for generated data.
        member: Name of the ratings member.
    """

    table: RatingTable
    counts: Counts
    source: Source | None = None
    format: RatingFormat | None = None
    member: str = ""


def load_ratings(
    source: str | os.PathLike[str], *, format: str | None = None, strict: bool = True
) -> RatingTable:
    """Loads a rating data set and checks every value of it.

    Args:
        source: Name of a registered data set (`datasets`), or a path to a folder, a zip archive
            or a ratings file. A string that is a registered name means the data set, wherever
            `path` finds it; write ``"./ml-1m"`` or a `pathlib.Path` for a folder of that name.
        format: Name of the format (see `dpb_data.formats.FORMATS`); found out if not given.
        strict: True demands an untouched original: a newline at the end of every file (a missing
            one means that the file was cut), timestamps between 1995 and 2100, a title for every
            rated item, original encoding, and, where the data set is known (by its registered
            name, by the name of its folder or archive, or by its ``u.info``), exactly the
            published number of ratings, users and items. False takes a sample or a hand-edited
            file of the same format. Columns, numbers, rating scale and duplicates are always
            checked.

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
    if strict and known is not None:
        problems = known.counts.differences(loaded.counts)
        if problems:
            place = known.name if loaded.source is None else str(loaded.source.path)
            raise DataError(
                f"{place}: {'; '.join(problems)}: this is not the complete {known.name}. A sample "
                "of your own loads with strict=False, or from a folder of another name"
            )
    return loaded.table


def load_with_counts(
    source: str | os.PathLike[str], *, format: str | None, strict: bool
) -> tuple[Loaded, DataSet | None]:
    """Loads like `load_ratings`, but leaves the comparison with published counts to the caller.

    Returns:
        What was loaded, and the registered data set that it claims to be (None for any other).
    """
    known = find_dataset(source) if isinstance(source, str) else None
    if known is not None and known.kind != "ratings":
        raise DataError(
            f"the data set {known.name!r} holds {known.kind}, expected one of ratings: "
            f"{', '.join(d.name for d in datasets() if d.kind == 'ratings')}"
        )
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
    opened = open_source(location)
    opened, fmt, member = detect(opened, format)
    name = known.name if known else _table_name(location)
    if fmt.is_jester:
        table = read_jester(opened, fmt, member, name, strict=strict)
        titles = None
    else:
        table, titles = read_movielens(opened, fmt, member, name, strict=strict)
    counts = Counts(len(table), table.n_users, table.n_items, titles)
    if strict and fmt.name == "ml-100k" and member == fmt.file:
        _check_u_info(opened, counts)
    return Loaded(table, counts, opened, fmt, member), known


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


def existing_path(source: str | os.PathLike[str]) -> Path:
    """Takes the argument as a path; a relative one may also lie below ``$DPB_DATA``.

    Raises:
        UnknownNameError: Nothing is there, and it looks like a misspelt name.
        DataError: Nothing is there.
    """
    location = Path(source)
    if location.exists():
        return location
    data = os.environ.get(DATA_VARIABLE)
    if data and not location.is_absolute() and len(location.parts) > 1:
        below = Path(data).expanduser() / location
        if below.exists():
            return below
    if isinstance(source, str) and source and os.sep not in source and not location.suffix:
        names = [known.name for known in datasets()]
        raise unknown_name("data set (and no such file or folder):", source, names)
    raise DataError(f"{location}: no such file or folder, here or below ${DATA_VARIABLE}")


def find(source: str | os.PathLike[str]) -> Path | None:
    """Says where a data set lies that may be named or given by path; None if it is generated.

    Args:
        source: As for `load_ratings` and `load_searches`.

    Raises:
        DataError: It is not here; the message says where it was looked for.
        UnknownNameError: A bare word that is neither a data set nor a path.
    """
    known = find_dataset(source) if isinstance(source, str) else None
    if known is None:
        return existing_path(source)
    return None if known.generated else locate(known.name)


def _table_name(location: Path) -> str:
    place = location.absolute()
    return place.name if place.is_dir() else place.stem


def _check_u_info(source: Source, found: Counts) -> None:
    """Compares with the counts that an ml-100k folder declares about itself."""
    if "u.info" not in source.names():
        return
    where = source.where("u.info")
    with member_errors(where), source.open("u.info") as stream:
        lines = stream.read().decode("ascii", errors="replace").splitlines()
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
