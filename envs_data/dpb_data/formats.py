"""The file formats that rating data sets come in, and how to tell them apart."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import PurePosixPath

from dpb_data.sources import Source, ZipSource, member_errors
from dpb_gym.errors import DataError, unknown_name

MAX_LINE = 100_000


@dataclass(frozen=True)
class TitleFormat:
    """Where a format keeps its titles.

    Attributes:
        file: Member name.
        layout: ``"csv"`` (movieId,title,genres with quoting), ``"colons"``
            (id::title::genres) or ``"pipes"`` (24 fields).
        encoding: Encoding of the original file.
    """

    file: str
    layout: str
    encoding: str


@dataclass(frozen=True)
class RatingFormat:
    """How one family of rating files is laid out.

    Attributes:
        name: Name for ``format=``.
        description: One line for people.
        file: Name of the ratings member in the official archives.
        delimiter: Field separator; may be longer than one character.
        header: First line, or None.
        step: Ratings are multiples of it.
        rating_range: Lowest and highest rating.
        titles: Where titles are, or None.
    """

    name: str
    description: str
    file: str
    delimiter: str
    header: str | None
    step: float | None
    rating_range: tuple[float, float]
    titles: TitleFormat | None = None

    @property
    def is_jester(self) -> bool:
        """Whether the file is a users-by-jokes matrix instead of one rating per line."""
        return self.name.startswith("jester")

    @property
    def columns(self) -> str:
        """The columns as they stand in a line."""
        return self.delimiter.join(("userId", "movieId", "rating", "timestamp"))

    @property
    def allowed(self) -> str:
        """The allowed ratings in words."""
        low, high = self.rating_range
        if self.step is None:
            return f"a number from {low:g} to {high:g}, or exactly 99 for no rating"
        kind = "whole number" if self.step == 1.0 else f"multiple of {self.step:g}"
        return f"a {kind} from {low:g} to {high:g}"


_CSV_HEADER = "userId,movieId,rating,timestamp"

FORMATS: dict[str, RatingFormat] = {
    fmt.name: fmt
    for fmt in (
        RatingFormat(
            "ml-100k", "MovieLens 100K: u.data, tabs, no header, whole stars", "u.data", "\t",
            None, 1.0, (1.0, 5.0), TitleFormat("u.item", "pipes", "latin-1"),
        ),
        RatingFormat(
            "ml-1m", "MovieLens 1M: ratings.dat, '::', no header, whole stars", "ratings.dat",
            "::", None, 1.0, (1.0, 5.0), TitleFormat("movies.dat", "colons", "latin-1"),
        ),
        RatingFormat(
            "ml-10m", "MovieLens 10M: ratings.dat, '::', no header, half stars", "ratings.dat",
            "::", None, 0.5, (0.5, 5.0), TitleFormat("movies.dat", "colons", "utf-8"),
        ),
        RatingFormat(
            "ml-csv", "MovieLens 20M, 25M, 32M, latest: ratings.csv, header, half stars",
            "ratings.csv", ",", _CSV_HEADER, 0.5, (0.5, 5.0),
            TitleFormat("movies.csv", "csv", "utf-8"),
        ),
        RatingFormat(
            "jester-csv", "Jester as CSV: count, then one column per joke, 99 = missing",
            "jester-data-1.csv", ",", None, None, (-10.0, 10.0),
        ),
        RatingFormat(
            "jester-xls", "Jester as published: the same matrix in an Excel 97 sheet",
            "jester-data-1.xls", "", None, None, (-10.0, 10.0),
        ),
    )
}  # fmt: skip

FORMAT_ALIASES = {
    "ml-latest-small": "ml-csv",
    "ml-latest": "ml-csv",
    "ml-20m": "ml-csv",
    "ml-25m": "ml-csv",
    "ml-32m": "ml-csv",
}


def rating_format(name: str) -> RatingFormat:
    """Looks a format up by its name or by the name of a MovieLens release.

    Raises:
        UnknownNameError: There is no such format.
    """
    key = FORMAT_ALIASES.get(name, name) if isinstance(name, str) else name
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
        if fmt.file in names and not fmt.is_jester:
            found = fmt if fmt is wanted else _sniff(source, fmt.file)
            return source, found, fmt.file
    matrices = [n for n in names if n.lower().endswith((".xls", ".csv", ".dat", ".data"))]
    if len(matrices) == 1:
        return source, wanted or _sniff(source, matrices[0]), matrices[0]
    archives = [n for n in names if n.lower().endswith(".zip")]
    if len(archives) == 1 and not isinstance(source, ZipSource):
        return detect(ZipSource(source.path / archives[0]), format)
    files = wanted.file if wanted else "u.data, ratings.dat, ratings.csv"
    raise DataError(
        f"{source.path}: expected {files}, or one single .csv, .xls or .zip file; "
        f"found {', '.join(names[:8]) or 'nothing'}{' ...' if len(names) > 8 else ''}"
    )


def holds_ratings(source: Source) -> bool:
    """Whether `detect` finds a ratings member here."""
    try:
        detect(source)
    except DataError:
        return False
    return True


def _sniff(source: Source, member: str) -> RatingFormat:
    """Tells the format of a ratings member from its name and first line."""
    where = source.where(member)
    if member.lower().endswith(".xls"):
        return FORMATS["jester-xls"]
    with member_errors(where), source.open(member) as stream:
        first = stream.readline(MAX_LINE)
    if not first:
        raise DataError(f"{where}: line 1: expected ratings, found an empty file")
    if first.startswith(b"\xd0\xcf\x11\xe0"):
        return FORMATS["jester-xls"]
    line = text_line(first, where)
    if line.lstrip("\ufeff").startswith("userId,"):
        return FORMATS["ml-csv"]
    if "::" in line:
        return _whole_or_half_stars(source)
    if line.count("\t") == 3 or member == "u.data":
        return FORMATS["ml-100k"]
    if member == "ratings.dat":
        return _whole_or_half_stars(source)
    if member == "ratings.csv":
        return FORMATS["ml-csv"]
    if _matrix_row(line):
        return FORMATS["jester-csv"]
    raise DataError(
        f"{where}: line 1: expected the first line of one of the formats "
        f"{', '.join(FORMATS)}; found {shorten(line)}. If it is one of them, name it (format=)"
    )


def _matrix_row(line: str) -> bool:
    """Whether a line looks like a Jester row: a count and at least ten numbers."""
    count, *ratings = line.lstrip("\ufeff").split(",")
    try:
        return count.strip().isdigit() and len([float(rating) for rating in ratings]) >= 10
    except ValueError:
        return False


def _whole_or_half_stars(source: Source) -> RatingFormat:
    """1M and 10M share a layout but not a scale: only their neighbours or names tell."""
    names = {PurePosixPath(name).name for name in source.names()}
    folder = source.path if source.main is None else source.path.parent
    hint = folder.name.lower()
    if "users.dat" in names or hint.startswith("ml-1m"):
        return FORMATS["ml-1m"]
    if "tags.dat" in names or hint.startswith("ml-10m"):
        return FORMATS["ml-10m"]
    raise DataError(
        f"{source.path}: '::' separates fields in MovieLens 1M (whole stars, 1 to 5) and 10M "
        "(half stars, 0.5 to 5), and nothing here tells which it is: pass format='ml-1m' or "
        "format='ml-10m'"
    )


def text_line(raw: bytes, where: str) -> str:
    """Decodes the first line of a file that must be plain text.

    Raises:
        DataError: It is UTF-16, binary or otherwise no ASCII-compatible text.
    """
    if raw.startswith((b"\xff\xfe", b"\xfe\xff")):
        raise DataError(f"{where}: line 1: expected ASCII or UTF-8 text, found UTF-16")
    if b"\0" in raw:
        raise DataError(f"{where}: line 1: expected plain text, found NUL bytes (binary or UTF-16)")
    if raw.startswith(b"\x1f\x8b"):
        raise DataError(f"{where}: line 1: expected plain text, found gzip data: unpack it first")
    return raw.decode("utf-8", errors="replace").rstrip("\r\n")


def shorten(text: str | bytes, limit: int = 80) -> str:
    """Quotes a piece of a file for a message."""
    if isinstance(text, bytes):
        text = text.decode("utf-8", errors="backslashreplace")
    return repr(text if len(text) <= limit else text[:limit] + "...")
