"""Write rating tables in the formats that `load_ratings` reads.

The files have the layout, encoding, line ends and file names of the originals. Columns that a table
does not have (age, genre, tags) contain one placeholder.
"""

from __future__ import annotations

import csv
import io
import os
import struct
import zipfile
from collections.abc import Iterable
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from dpb_data import RatingTable
from dpb_data.formats import RatingFormat, rating_format

_NO_TIMESTAMP = 978_307_200
_PIPE_TAIL = "|".join(["01-Jan-2001", "", "http://example.org/"] + ["1"] + ["0"] * 18)


def write_fixture(
    table: RatingTable, folder: str | os.PathLike[str], format: str, *, zipped: bool = False
) -> Path:
    """Write a table as a data set of the given format.

    Args:
        table: The table; its original ids are written, in its row order.
        folder: Folder to create (with parents); files of the same name are overwritten. Loading
            takes a folder with the name of a registered data set for that data set, so use
            another name or load it with ``strict=False``.
        format: A format's name or that of a MovieLens release (``"ml-latest-small"`` writes CRLF
            line ends as the original does, the other CSV releases LF).
        zipped: Whether to write ``<folder>.zip`` with one top folder instead.

    Returns:
        The folder, or the archive.
    """
    fmt = rating_format(format)
    files = (_jester_files if fmt.is_jester else _line_files)(table, fmt)
    if format == "ml-latest-small":
        files = {name: content.replace(b"\n", b"\r\n") for name, content in files.items()}
    place = Path(folder)
    archive = place.with_name(place.name + ".zip")
    (place.parent if zipped else place).mkdir(parents=True, exist_ok=True)
    if not zipped:
        for name, content in files.items():
            (place / name).write_bytes(content)
        return place
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as packed:
        for name, content in files.items():
            packed.writestr(f"{place.name}/{name}", content)
    return archive


def _line_files(table: RatingTable, fmt: RatingFormat) -> dict[str, bytes]:
    """Return a file with one rating per line, and the other files of the MovieLens release."""
    stamps = table.timestamps
    if stamps is None:
        stamps = np.full(len(table), _NO_TIMESTAMP, dtype=np.int64)
    users, items = table.user_ids[table.users].tolist(), table.item_ids[table.items].tolist()
    if fmt.name == "kuairec-csv":
        header = "user_id,video_id,play_duration,video_duration,time,date,timestamp,watch_ratio"
        lines = [
            f"{user},{item},{round(ratio * 10_000)},10000,,,,{ratio!r}"
            for user, item, ratio in zip(users, items, table.ratings.tolist())
        ]
        return {fmt.file: _text([header, *lines])}
    stars = (_stars(rating, fmt) for rating in table.ratings.tolist())
    rows = zip(map(str, users), map(str, items), stars, map(str, stamps.tolist()))
    header_line = [fmt.header] if fmt.header is not None else []
    files = {fmt.file: _text([*header_line, *map(fmt.delimiter.join, rows)])}
    if table.titles is not None:
        titles = zip(table.item_ids.tolist(), table.titles)
        files[fmt.titles] = _text(_title_lines(titles, fmt.titles), fmt.encoding)
    people = table.user_ids.tolist()
    if fmt.name == "ml-100k":
        info = [f"{table.n_users} users", f"{table.n_items} items", f"{len(table)} ratings"]
        files["u.info"] = _text(info)
        files["u.user"] = _text(f"{user}|30|F|other|00000" for user in people)
    elif fmt.name == "ml-1m":
        files["users.dat"] = _text(f"{user}::F::25::0::00000" for user in people)
    elif fmt.name == "ml-10m":
        files["tags.dat"] = _text([f"{people[0]}::{table.item_ids[0]}::tag::{_NO_TIMESTAMP}"])
    return files


def _stars(rating: float, fmt: RatingFormat) -> str:
    """Return a rating as in the originals: 4, or 4.0 in the CSV releases, or 4 and 3.5 in 10M."""
    whole = fmt.step == 1.0 or (fmt.name == "ml-10m" and rating.is_integer())
    return str(int(rating)) if whole else f"{rating:.1f}"


def _title_lines(titles: Iterable[tuple[int, str]], file: str) -> Iterable[str]:
    if file.endswith(".item"):
        return (f"{item}|{title}|{_PIPE_TAIL}" for item, title in titles)
    if file.endswith(".dat"):
        return (f"{item}::{title}::Drama" for item, title in titles)
    buffer = io.StringIO()
    writer = csv.writer(buffer, lineterminator="\n")
    writer.writerow(["movieId", "title", "genres"])
    writer.writerows([item, title, "Drama"] for item, title in titles)
    return buffer.getvalue().splitlines()


def _jester_files(table: RatingTable, fmt: RatingFormat) -> dict[str, bytes]:
    """Return the matrix of users by jokes, a count first, with 99 for missing ratings."""
    matrix = np.full((table.n_users, table.n_items), 99.0)
    matrix[table.users, table.items] = table.ratings
    full = np.column_stack([(matrix != 99.0).sum(axis=1), matrix])
    if fmt.name == "jester-xls":
        return {fmt.file: _biff_sheet(full)}
    return {fmt.file: _text(",".join(f"{value:.15g}" for value in row) for row in full.tolist())}


def _text(lines: Iterable[str], encoding: str = "ascii") -> bytes:
    return "".join(f"{line}\n" for line in lines).encode(encoding)


def _biff_sheet(matrix: NDArray[np.float64]) -> bytes:
    """Return a matrix as a BIFF 2 worksheet, an .xls format that Excel and xlrd read."""

    def record(kind: int, body: bytes) -> bytes:
        return struct.pack("<HH", kind, len(body)) + body

    begin = record(0x0009, struct.pack("<HH", 2, 0x0010))
    size = record(0x0000, struct.pack("<HHHH", 0, matrix.shape[0], 0, matrix.shape[1]))
    cells = (
        record(0x0003, struct.pack("<HH3xd", row, column, value))
        for (row, column), value in np.ndenumerate(matrix)
    )
    return b"".join([begin, size, *cells, record(0x000A, b"")])
