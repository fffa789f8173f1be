"""Item titles of the MovieLens releases."""

from __future__ import annotations

import csv

from dpb_data.formats import TitleFormat, shorten
from dpb_data.sources import Source, member_errors
from dpb_gym.errors import DataError

_CSV_HEADER = ["movieId", "title", "genres"]
_PIPE_FIELDS = 24


def read_titles(source: Source, fmt: TitleFormat, *, strict: bool) -> dict[int, str]:
    """Reads the title of every item of the catalogue.

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
    where = source.where(fmt.file)
    with member_errors(where), source.open(fmt.file) as stream:
        raw = stream.read()
    if not raw:
        raise DataError(f"{where}: line 1: expected item titles, found an empty file")
    if strict and not raw.endswith(b"\n"):
        line, last = raw.count(b"\n") + 1, raw.rsplit(b"\n", 1)[-1]
        raise DataError(
            f"{where}: line {line}: expected a newline at the end of the file, found the end "
            f"after {shorten(last)}: the file was probably cut off (an intact "
            "file without a final newline loads with strict=False)"
        )
    encoding = fmt.encoding
    if encoding == "latin-1" and _is_utf8_beyond_ascii(raw):
        if strict:
            line = next(i for i, text in enumerate(raw.split(b"\n"), 1) if not text.isascii())
            raise DataError(
                f"{where}: line {line}: expected Latin-1 as in the original file, found UTF-8 "
                "(the file was re-encoded; it loads with strict=False)"
            )
        encoding = "utf-8"
    lines = []
    for number, text in enumerate(raw.removesuffix(b"\n").split(b"\n"), 1):
        try:
            lines.append(text.removesuffix(b"\r").decode(encoding))
        except UnicodeDecodeError as error:
            raise DataError(
                f"{where}: line {number}: expected {fmt.encoding} text, found the byte "
                f"0x{text[error.start]:02x} at column {error.start + 1}: {shorten(text)}"
            ) from error
    if fmt.layout == "csv":
        return _from_csv(lines, where)
    return _from_fields(lines, where, fmt.layout)


def _from_csv(lines: list[str], where: str) -> dict[int, str]:
    reader = csv.reader(lines, strict=True)
    titles: dict[int, str] = {}
    try:
        header = next(reader, None)
        if header is None or [header[0].removeprefix("\ufeff"), *header[1:]] != _CSV_HEADER:
            raise DataError(
                f"{where}: line 1: expected the header {','.join(_CSV_HEADER)!r}, found "
                f"{shorten(lines[0])}"
            )
        for row in reader:
            if len(row) != len(_CSV_HEADER):
                raise DataError(
                    f"{where}: line {reader.line_num}: expected 3 comma-separated fields "
                    f"(movieId,title,genres; a title with commas in double quotes), "
                    f"found {len(row)}: {shorten(','.join(row))}"
                )
            _add(titles, row[0], row[1], where, reader.line_num)
    except csv.Error as error:
        raise DataError(f"{where}: line {reader.line_num}: expected valid CSV, {error}") from error
    return titles


def _from_fields(lines: list[str], where: str, layout: str) -> dict[int, str]:
    titles: dict[int, str] = {}
    for number, line in enumerate(lines, 1):
        if layout == "pipes":
            fields = line.split("|")
            good, expected = len(fields) == _PIPE_FIELDS, "24 fields separated by '|'"
            title = fields[1] if good else ""
        else:
            # Only the outer separators count: a title may hold "::" itself.
            head, _, rest = line.partition("::")
            title, separator, _ = rest.rpartition("::")
            fields, good, expected = [head], bool(separator), "'movieId::title::genres'"
        if not good:
            raise DataError(f"{where}: line {number}: expected {expected}, found {shorten(line)}")
        _add(titles, fields[0], title, where, number)
    return titles


def _add(titles: dict[int, str], key: str, title: str, where: str, line: int) -> None:
    if not (key.isascii() and key.isdigit()):
        raise DataError(
            f"{where}: line {line}: expected movieId to be a whole number, found {shorten(key)}"
        )
    if int(key) in titles:
        raise DataError(f"{where}: line {line}: expected each movieId once, found {key} again")
    titles[int(key)] = title


def _is_utf8_beyond_ascii(raw: bytes) -> bool:
    if raw.isascii():
        return False
    try:
        raw.decode("utf-8")
    except UnicodeDecodeError:
        return False
    return True
