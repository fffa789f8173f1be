"""File formats of rating data sets, and their detection."""

from __future__ import annotations

import math
import os
import re
from dataclasses import dataclass
from pathlib import PurePosixPath

from dpb_data.column_reader import Column
from dpb_data.data_files import Source, first_line, require_newline, shorten
from dpb_data.dataset_registry import read_layouts
from dpb_gym.errors import DataError, unknown_name

# MovieLens started in 1995. A ten-digit timestamp without its last digit is before 1976, so this
# bound also detects a file cut inside its last timestamp.
_STAMPS = (788_918_400, 4_102_444_800)  # 1995 to 2100
_LARGEST_ID = 2**31 - 1
# Layout of a line of titles by the ending of the file: pattern and description. A title in .dat may
# contain "::".
_TITLES = {
    "csv": (
        r'([0-9]+),("(?:[^"]|"")*"|[^",]*),("(?:[^"]|"")*"|[^",]*)',
        "3 comma-separated fields (movieId,title,genres; commas in double quotes)",
    ),
    "dat": (r"([0-9]+)::(.*)::(.*?)", "'movieId::title::genres'"),
    "item": (r"([0-9]+)\|([^|]*)((?:\|[^|]*){22})", "24 fields separated by '|'"),
}


@dataclass(frozen=True)
class RatingFormat:
    """Layout of a family of rating files.

    Attributes:
        name: Name for ``format=``.
        description: One line.
        file: Name of the ratings member in the official archives.
        delimiter: Field separator; may be longer than one character.
        rating_range: Lowest and highest rating.
        header: First line; empty for any line with the names of the columns; None for no header.
        step: Ratings are multiples of it; None for any number.
        titles: Member with the titles: ``.csv`` (movieId,title,genres with quoting), ``.dat``
            (id::title::genres) or ``.item`` (24 fields between bars); empty for none.
        encoding: Encoding of the titles.
        first: Pattern at the beginning of the first line.
        beside: Member that distinguishes it from a format with the same pattern.
        names: Columns of user, item, rating and optionally timestamp.
        cut: Whether ratings above the highest are set to it.
    """

    name: str
    description: str
    file: str
    delimiter: str
    rating_range: tuple[float, float]
    header: str | None = None
    step: float | None = None
    titles: str = ""
    encoding: str = "utf-8"
    first: str = "(?!)"
    beside: str = ""
    names: tuple[str, ...] = ("userId", "movieId", "rating", "timestamp")
    cut: bool = False

    @property
    def is_jester(self) -> bool:
        """Whether the file is a users-by-jokes matrix instead of one rating per line."""
        return self.name.startswith("jester")

    @property
    def rating(self) -> Column:
        """Column of the ratings, with their allowed values."""
        low, high = self.rating_range
        name = self.names[2]
        high = math.inf if self.cut else high
        return Column(name, low, high, self.step, also=99.0 if self.is_jester else None)

    def columns(self, strict: bool) -> tuple[Column, ...]:
        """Return the columns `names` with their allowed values; `strict` bounds the timestamps."""
        first, last = _STAMPS if strict else (-(2.0**62), 2.0**62)
        hint = " (Unix seconds between 1995 and 2100; cut off?)"
        least = 0 if self.cut else 1
        return (
            Column(self.names[0], least, _LARGEST_ID, kind="integer"),
            Column(self.names[1], least, _LARGEST_ID, kind="integer"),
            self.rating,
            *(Column(name, first, last, kind="integer", hint=hint) for name in self.names[3:]),
        )


FORMATS: dict[str, RatingFormat] = read_layouts("ratings", RatingFormat)
FORMAT_ALIASES = dict.fromkeys(
    ("ml-latest-small", "ml-latest", "ml-20m", "ml-25m", "ml-32m"), "ml-csv"
)


def rating_format(name: str) -> RatingFormat:
    """Return a format by its name or by the name of a MovieLens release.

    Raises:
        UnknownNameError: There is no such format.
    """
    key = FORMAT_ALIASES.get(name, name)
    if key not in FORMATS:
        raise unknown_name("rating format", name, [*FORMATS, *FORMAT_ALIASES])
    return FORMATS[key]


def detect(source: Source, format: str | None = None) -> tuple[Source, RatingFormat, str]:
    """Find the ratings member of a source and its format.

    Args:
        source: Folder, archive or file.
        format: Name of the format; by default detected.

    Returns:
        The source of the ratings (the archive, if a folder contains a single archive), the format
        and the member.

    Raises:
        DataError: There are no ratings, or several formats fit.
        UnknownNameError: There is no such format.
    """
    wanted = None if format is None else rating_format(format)
    names = source.names()
    member = source.main
    for fmt in FORMATS.values() if wanted is None else (wanted,):
        if member is None and not fmt.is_jester:
            # tables of KuaiRec's archive are one folder deeper
            member = next((n for n in names if n in (fmt.file, f"data/{fmt.file}")), None)
    matrices = [n for n in names if n.lower().endswith((".xls", ".csv", ".dat", ".data"))]
    if member is None and len(matrices) == 1:
        member = matrices[0]
    if member is not None:
        return source, wanted or _sniff(source, member), member
    archives = [n for n in names if n.lower().endswith(".zip")]
    if len(archives) == 1 and not source.is_archive:
        return detect(Source(source.path / archives[0]), format)
    files = wanted.file if wanted else "u.data, ratings.dat, ratings.csv"
    raise DataError(
        f"{source.path}: expected {files}, or one single .csv, .xls or .zip file; found "
        f"{source.listing()}"
    )


def holds_ratings(place: str | os.PathLike[str]) -> bool:
    """Return whether `detect` finds a ratings member here that has all columns of its format."""
    try:
        source, fmt, member = detect(Source(place))
        if fmt.name == "jester-xls":
            return True
        line = first_line(source.read(member, 1 << 16), source.where(member))
    except DataError:
        return False
    if fmt.header:
        return line == fmt.header
    if fmt.header == "":
        return {*fmt.names} <= {name.strip(' "') for name in line.split(fmt.delimiter)}
    fields = [field.strip(' "') for field in line.split(fmt.delimiter)]
    if fmt.is_jester:
        return bool(re.match(fmt.first, line))
    if len(fields) != len(fmt.names) or not all(field.isdigit() for field in fields[:2]):
        return False
    return fields[3].isdigit() and _STAMPS[0] <= int(fields[3]) <= _STAMPS[1]


def _sniff(source: Source, member: str) -> RatingFormat:
    """Return the format of a ratings member by its first line, or else its name."""
    first = source.read(member, 1 << 16)
    if member.lower().endswith(".xls") or first.startswith(b"\xd0\xcf\x11\xe0"):
        return FORMATS["jester-xls"]
    line = first_line(first, source.where(member))
    known = FORMATS.values()
    fits = [f for f in known if re.match(f.first, line)] or [f for f in known if f.file == member]
    if not fits:
        raise DataError(
            f"{source.where(member)}: line 1: expected the first line of one of the formats "
            f"{', '.join(FORMATS)}; found {shorten(line)}. If it is one of them, name it "
            "(format=); a table of your own loads with dpb_data.ratings(file, user=, item=, "
            "rating=, rating_range=)"
        )
    if len(fits) == 1:
        return fits[0]
    # 1M and 10M differ in scale, not layout: decide by other members or names
    names = {PurePosixPath(name).name for name in source.names()}
    hint = source.folder.name.lower()
    for fmt in fits:
        if fmt.beside in names or hint.startswith(fmt.name):
            return fmt
    raise DataError(
        f"{source.path}: '::' separates fields in MovieLens 1M (whole stars, 1 to 5) and 10M "
        "(half stars, 0.5 to 5), and nothing here tells which it is: pass format='ml-1m' or "
        "format='ml-10m'"
    )


def read_titles(source: Source, fmt: RatingFormat, *, strict: bool) -> dict[int, str]:
    """Return the title of every item of the catalogue, by item id.

    Lines are split at newline bytes before decoding, because in Latin-1 text `str.splitlines` also
    splits at the byte 0x85.

    Args:
        source: Source of the file.
        fmt: Layout and encoding.
        strict: Whether a Latin-1 file that was re-encoded as UTF-8 is an error; otherwise it is
            read as UTF-8.

    Raises:
        DataError: Names the file, the line, what was expected and what was found.
    """
    where = source.where(fmt.titles)
    raw = source.read(fmt.titles)
    if not raw:
        raise DataError(f"{where}: line 1: expected item titles, found an empty file")
    if strict:
        require_newline(raw, where)
    odd = re.search(rb"[\x80-\xff]", raw) if fmt.encoding == "latin-1" else None
    reencoded = odd is not None and "\ufffd" not in raw.decode("utf-8", errors="replace")
    if odd is not None and reencoded and strict:
        raise DataError(
            f"{where}: line {raw.count(bytes([10]), 0, odd.start()) + 1}: expected Latin-1 as in "
            "the original file, found UTF-8 (the file was re-encoded; it loads with strict=False)"
        )
    encoding = "utf-8" if reencoded else fmt.encoding
    ending = fmt.titles.rpartition(".")[2]
    pattern, layout = _TITLES[ending]
    titles: dict[int, str] = {}
    for number, line in enumerate(raw.removesuffix(b"\n").split(b"\n"), 1):
        at = f"{where}: line {number}"
        try:
            text = line.removesuffix(b"\r").decode(encoding)
        except UnicodeDecodeError as error:
            raise DataError(f"{at}: expected {encoding} text ({error})") from error
        if number == 1 and ending == "csv":
            if text.removeprefix("\ufeff") != "movieId,title,genres":
                raise DataError(f"{at}: expected the header 'movieId,title,genres'")
            continue
        fits = re.fullmatch(pattern, text)
        if fits is None or int(fits[1]) in titles:
            raise DataError(
                f"{at}: expected {layout}, movieId a whole number that comes once, found "
                f"{shorten(text)}"
            )
        quoted = ending == "csv" and fits[2].startswith('"')
        titles[int(fits[1])] = fits[2][1:-1].replace('""', '"') if quoted else fits[2]
    return titles
