"""The file formats that rating data sets come in, and how to tell them apart."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import PurePosixPath

from dpb_data.places import Source
from dpb_data.reading import Column, header_of, shorten
from dpb_gym.errors import DataError, unknown_name

_FIRST_LINE = 100_000


@dataclass(frozen=True)
class RatingFormat:
    """How one family of rating files is laid out.

    Attributes:
        name: Name for ``format=``.
        description: One line for people.
        file: Name of the ratings member in the official archives.
        delimiter: Field separator; may be longer than one character.
        header: First line, or None.
        step: Ratings are multiples of it; None for any number.
        rating_range: Lowest and highest rating.
        titles: Member with the titles: ``.csv`` (movieId,title,genres with quoting), ``.dat``
            (id::title::genres) or ``.item`` (24 fields between bars); empty for none.
        encoding: Encoding of the titles.
    """

    name: str
    description: str
    file: str
    delimiter: str
    header: str | None
    step: float | None
    rating_range: tuple[float, float]
    titles: str = ""
    encoding: str = "utf-8"

    @property
    def is_jester(self) -> bool:
        """Whether the file is a users-by-jokes matrix instead of one rating per line."""
        return self.name.startswith("jester")

    @property
    def rating(self) -> Column:
        """What a rating may be."""
        low, high = self.rating_range
        return Column("rating", low, high, self.step, also=99.0 if self.is_jester else None)


FORMATS: dict[str, RatingFormat] = {
    fmt.name: fmt
    for fmt in (
        RatingFormat(
            "ml-100k", "MovieLens 100K: u.data, tabs, no header, whole stars", "u.data", "\t",
            None, 1.0, (1.0, 5.0), "u.item", "latin-1",
        ),
        RatingFormat(
            "ml-1m", "MovieLens 1M: ratings.dat, '::', no header, whole stars", "ratings.dat",
            "::", None, 1.0, (1.0, 5.0), "movies.dat", "latin-1",
        ),
        RatingFormat(
            "ml-10m", "MovieLens 10M: ratings.dat, '::', no header, half stars", "ratings.dat",
            "::", None, 0.5, (0.5, 5.0), "movies.dat",
        ),
        RatingFormat(
            "ml-csv", "MovieLens 20M, 25M, 32M, latest: ratings.csv, header, half stars",
            "ratings.csv", ",", "userId,movieId,rating,timestamp", 0.5, (0.5, 5.0), "movies.csv",
        ),
        RatingFormat(
            "jester-csv", "Jester as CSV: count, then one column per joke, 99 = missing",
            "jester-data-1.csv", ",", None, None, (-10.0, 10.0),
        ),
        RatingFormat(
            "jester-xls", "Jester as published: the same matrix in an Excel 97 sheet",
            "jester-data-1.xls", "", None, None, (-10.0, 10.0),
        ),
        RatingFormat(
            "kuairec-csv", "KuaiRec: small_matrix.csv, header, watch ratios cut at 2",
            "small_matrix.csv", ",", "user_id,video_id,play_duration", None, (0.0, 2.0),
        ),
    )
}  # fmt: skip
FORMAT_ALIASES = dict.fromkeys(
    ("ml-latest-small", "ml-latest", "ml-20m", "ml-25m", "ml-32m"), "ml-csv"
)


def rating_format(name: str) -> RatingFormat:
    """Looks a format up by its name or by the name of a MovieLens release.

    Raises:
        UnknownNameError: There is no such format.
    """
    key = FORMAT_ALIASES.get(name, name)
    if key not in FORMATS:
        raise unknown_name("rating format", name, [*FORMATS, *FORMAT_ALIASES])
    return FORMATS[key]


def detect(source: Source, format: str | None = None) -> tuple[Source, RatingFormat, str]:
    """Finds the ratings member of a source and its format.

    Args:
        source: Where to look.
        format: Format to insist on, or None to find out.

    Returns:
        The source that holds the ratings (a lone archive inside a folder is entered), the format
        and the member.

    Raises:
        DataError: No ratings were found, or what was found fits several formats.
        UnknownNameError: There is no such format.
    """
    wanted = None if format is None else rating_format(format)
    if source.main is not None:
        return source, wanted or _sniff(source, source.main), source.main
    names = source.names()
    for fmt in FORMATS.values() if wanted is None else (wanted,):
        # KuaiRec's archive keeps its tables one folder deeper.
        member = next((n for n in names if n in (fmt.file, f"data/{fmt.file}")), None)
        if member is not None and not fmt.is_jester:
            return source, fmt if fmt is wanted else _sniff(source, member), member
    matrices = [n for n in names if n.lower().endswith((".xls", ".csv", ".dat", ".data"))]
    if len(matrices) == 1:
        return source, wanted or _sniff(source, matrices[0]), matrices[0]
    archives = [n for n in names if n.lower().endswith(".zip")]
    if len(archives) == 1 and not source.is_archive:
        return detect(Source(source.path / archives[0]), format)
    files = wanted.file if wanted else "u.data, ratings.dat, ratings.csv"
    raise DataError(
        f"{source.path}: expected {files}, or one single .csv, .xls or .zip file; "
        f"found {', '.join(names[:8]) or 'nothing'}{' ...' if len(names) > 8 else ''}"
    )


def holds_ratings(place: str | os.PathLike[str]) -> bool:
    """Whether `detect` finds a ratings member here."""
    try:
        detect(Source(place))
    except DataError:
        return False
    return True


def _sniff(source: Source, member: str) -> RatingFormat:
    """Tells the format of a ratings member from its name and first line."""
    where = source.where(member)
    first = source.read(member, _FIRST_LINE)
    if member.lower().endswith(".xls") or first.startswith(b"\xd0\xcf\x11\xe0"):
        return FORMATS["jester-xls"]
    fields = header_of(first, where)
    line = ",".join(fields)
    if fields[0] == "userId":
        return FORMATS["ml-csv"]
    if fields[:2] == ["user_id", "video_id"]:
        return FORMATS["kuairec-csv"]
    if "::" in line:
        return _whole_or_half_stars(source)
    if line.count("\t") == 3 or member == "u.data":
        return FORMATS["ml-100k"]
    if member == "ratings.dat":
        return _whole_or_half_stars(source)
    if member == "ratings.csv":
        return FORMATS["ml-csv"]
    if _matrix_row(fields):
        return FORMATS["jester-csv"]
    raise DataError(
        f"{where}: line 1: expected the first line of one of the formats {', '.join(FORMATS)}; "
        f"found {shorten(line)}. If it is one of them, name it (format=); a table of your own "
        "loads with dpb_data.ratings(file, user=, item=, rating=, rating_range=)"
    )


def _matrix_row(fields: list[str]) -> bool:
    """Whether a line looks like a Jester row: a count and at least ten numbers."""
    try:
        return fields[0].isdigit() and len([float(rating) for rating in fields[1:]]) >= 10
    except ValueError:
        return False


def _whole_or_half_stars(source: Source) -> RatingFormat:
    """1M and 10M share a layout but not a scale: only their neighbours or names tell."""
    names = {PurePosixPath(name).name for name in source.names()}
    hint = source.folder.name.lower()
    if "users.dat" in names or hint.startswith("ml-1m"):
        return FORMATS["ml-1m"]
    if "tags.dat" in names or hint.startswith("ml-10m"):
        return FORMATS["ml-10m"]
    raise DataError(
        f"{source.path}: '::' separates fields in MovieLens 1M (whole stars, 1 to 5) and 10M "
        "(half stars, 0.5 to 5), and nothing here tells which it is: pass format='ml-1m' or "
        "format='ml-10m'"
    )
