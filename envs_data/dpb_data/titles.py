"""Item titles of the MovieLens releases."""

from __future__ import annotations

import csv

from dpb_data.formats import RatingFormat
from dpb_data.places import Source
from dpb_data.reading import require_newline, shorten
from dpb_gym.errors import DataError


def read_titles(source: Source, fmt: RatingFormat, *, strict: bool) -> dict[int, str]:
    """Reads the title of every item of the catalogue, by item id.

    Lines are split on the newline byte alone, before decoding: in Latin-1 text, `str.splitlines`
    would also split at the byte 0x85.

    Args:
        source: Where the file is.
        fmt: Its layout and encoding.
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
    lines = [line.removesuffix(b"\r") for line in raw.removesuffix(b"\n").split(b"\n")]
    encoding = fmt.encoding
    if encoding == "latin-1" and not raw.isascii() and _decodes(raw):
        encoding = "utf-8"
        if strict:
            first = next(i for i, text in enumerate(lines, 1) if not text.isascii())
            raise DataError(
                f"{where}: line {first}: expected Latin-1 as in the original file, found UTF-8 "
                "(the file was re-encoded; it loads with strict=False)"
            )
    titles: dict[int, str] = {}
    for number, line in enumerate(lines, 1):
        try:
            text = line.decode(encoding)
            if number == 1 and fmt.titles.endswith(".csv"):
                if text.removeprefix("\ufeff") != _HEADER:
                    raise ValueError
                continue
            key, title = _item_and_title(text, fmt.titles)
        except UnicodeDecodeError as error:
            raise DataError(
                f"{where}: line {number}: expected {encoding} text, found the byte "
                f"0x{line[error.start]:02x} at column {error.start + 1}: {shorten(line)}"
            ) from error
        except (ValueError, csv.Error) as error:
            header = number == 1 and fmt.titles.endswith(".csv")
            expected = f"the header {_HEADER!r}" if header else _LAYOUTS[fmt.titles]
            raise DataError(
                f"{where}: line {number}: expected {expected}, found {shorten(line)}"
            ) from error
        if not (key.isascii() and key.isdigit()) or int(key) in titles:
            raise DataError(
                f"{where}: line {number}: expected movieId to be a whole number that comes once, "
                f"found {shorten(key)}"
            )
        titles[int(key)] = title
    return titles


_HEADER = "movieId,title,genres"
_LAYOUTS = {
    "movies.csv": "3 comma-separated fields (movieId,title,genres; commas in double quotes)",
    "movies.dat": "'movieId::title::genres'",
    "u.item": "24 fields separated by '|'",
}


def _item_and_title(line: str, file: str) -> tuple[str, str]:
    """Raises ValueError or csv.Error where the line has another layout."""
    if file.endswith(".csv"):
        item, title, _ = next(csv.reader([line], strict=True))
        return item, title
    if file.endswith(".item"):
        item, title, *rest = line.split("|")
        if len(rest) != 22:
            raise ValueError
        return item, title
    # Only the outer separators count: a title may hold "::" itself.
    item, _, tail = line.partition("::")
    title, separator, _ = tail.rpartition("::")
    if not separator:
        raise ValueError
    return item, title


def _decodes(raw: bytes) -> bool:
    try:
        raw.decode("utf-8")
    except UnicodeDecodeError:
        return False
    return True
