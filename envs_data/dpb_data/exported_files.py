"""Exported files: sheets of a workbook, encodings, and lines above the header."""

from __future__ import annotations

import csv
from collections import Counter
from collections.abc import Sequence
from typing import Any

from dpb_data.table_repair import Repair
from dpb_gym.errors import DataError, optional_module

SEPARATORS = ",;\t|"
_SAMPLE = 1 << 16  # bytes of a file that show its header


def excel_rows(path: Any, repair: Repair) -> tuple[dict[str, list[Any]], int]:
    """Return the columns of the first sheet with rows of an .xlsx file, and the header's number.

    Rows above the header, which is the first row with two cells, are left out, as are empty rows.

    Raises:
        DataError: If the file is damaged or has no rows.
        MissingExtraError: If openpyxl is not installed.
    """
    openpyxl = optional_module("openpyxl", "reading .xlsx files", "data")
    try:
        book = openpyxl.load_workbook(path, read_only=True, data_only=True)
        sheets = {sheet.title: list(sheet.iter_rows(values_only=True)) for sheet in book.worksheets}
    except Exception as error:  # openpyxl raises whatever its parsers raise
        raise DataError(f"{path}: expected an .xlsx file, found damage ({error})") from error
    full = {title: rows for title, rows in sheets.items() if sum(map(_filled, rows)) > 2}
    if not full:
        raise DataError(f"{path}: expected a sheet with a header and rows, found none")
    title, rows = next(iter(full.items()))
    if len(full) > 1:
        repair.note(f"only the sheet {title!r} of {', '.join(full)} was read", len(rows))
    top = next(k for k, row in enumerate(rows) if _filled(row) > 1)
    repair.note("rows above the header left out", top)
    kept = [row for row in rows[top + 1 :] if _filled(row)]
    names = [str(n) if n is not None else f"unnamed {k}" for k, n in enumerate(rows[top])]
    return {name: [row[k] for row in kept] for k, name in enumerate(names)}, top + 2


def _filled(row: Sequence[Any]) -> int:
    return sum(cell not in (None, "") for cell in row)


def plain_text(raw: bytes, repair: Repair) -> bytes:
    """Return a text file as UTF-8 with line feeds and complete lines, ready for a CSV reader."""
    wide = raw[:2] in (b"\xff\xfe", b"\xfe\xff")
    for encoding in ("utf-16",) if wide else ("utf-8-sig", "cp1252"):
        try:
            text = raw.decode(encoding)
            break
        except UnicodeDecodeError:
            continue
    else:
        return raw  # the reader says what is wrong
    text = text.replace("\r\n", "\n").replace("\r", "\n")
    lines = text.count("\n")
    if encoding != "utf-8-sig":
        repair.note(f"the file's encoding is {encoding}, not UTF-8", lines)
    if not text.endswith("\n") and lines > 1:
        text = text[: text.rfind("\n") + 1]
        repair.note("the last line does not end, was perhaps cut off, and is left out", 1)
    return (text.rstrip("\n") + "\n").encode()


def header_line(raw: bytes, repair: Repair) -> tuple[int, str]:
    """Return how many lines are above the header, and the separator if there are any.

    The header is the first line with values in most fields, if all lines below have as many
    fields; else the first line.
    """
    lines = raw[:_SAMPLE].decode("utf-8", errors="replace").split("\n")[:-1]
    found = []
    for mark in SEPARATORS:
        rows = [*csv.reader(lines, delimiter=mark)]
        width = Counter(map(len, rows)).most_common(1)[0][0] if rows else 0
        top = next((k for k, row in enumerate(rows) if _filled(row) > max(1, width // 2)), 0)
        if width > 1 and len(rows) == len(lines) and {*map(len, rows[top:])} == {width}:
            found.append((top, -width, mark))
    top, _, mark = min(found, default=(0, 0, ""))
    repair.note("rows above the header left out", top)
    return top, mark if top else ""
