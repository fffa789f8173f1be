"""Sheets of an Excel file as columns: joined headers, cover sheets and sheets of one layout."""

from __future__ import annotations

import zipfile
from pathlib import Path
from typing import Any

from dpb_data.data_files import safe_members
from dpb_data.header_rows import (
    ROWS_BELOW,
    TOTALS_OUT,
    TWO_ROWS,
    filled,
    joined_header,
    texts,
    total_rows,
)
from dpb_data.table_repair import Repair
from dpb_gym.errors import DataError, optional_module

MOST_CELLS = 10_000_000
CELLS_PER_BYTE = 20
"""Limits: cells that any file may have, empty ones included, and cells per byte of a larger one."""


def excel_rows(path: Any, repair: Repair) -> tuple[dict[str, list[Any]], int]:
    """Return the columns of an .xlsx file and the number of its first row.

    Sheets with the same names of columns are one table. Of several tables the one with most cells
    is read. Rows above the header, which is the first row with two cells, are left out, as are
    empty rows and totals.

    Raises:
        DataError: If the file is damaged or has no rows.
        MissingExtraError: If openpyxl is not installed.
    """
    openpyxl = optional_module("openpyxl", "reading .xlsx files", "data")
    try:
        if zipfile.is_zipfile(path):
            safe_members(path, str(path))
        book = openpyxl.load_workbook(path, read_only=True, data_only=True)
        room = max(MOST_CELLS, CELLS_PER_BYTE * Path(path).stat().st_size)
        sheets: dict[str, list[tuple[Any, ...]]] = {}
        for sheet in book.worksheets:
            rows: list[tuple[Any, ...]] = []
            width = 0
            # a row has all cells up to the last one of the sheet, which may have only a format
            for row in sheet.iter_rows(values_only=True):
                used = next((n for n in range(len(row), 0, -1) if row[n - 1] is not None), 0)
                width = max(width, used)
                rows.append(row[:used])
                if len(rows) * width > room:
                    raise DataError(
                        f"{path}: sheet {sheet.title!r} has more cells than a file of this size "
                        f"should, {len(rows):,} rows up to column {width:,}: delete cells far from "
                        "the table, or save it as .csv"
                    )
            room -= len(rows) * width
            sheets[sheet.title] = [row + (None,) * (width - len(row)) for row in rows]
    except DataError:
        raise
    except Exception as error:  # openpyxl raises whatever its parsers raise
        raise DataError(f"{path}: expected an .xlsx file, found damage ({error})") from error
    full = {title: rows for title, rows in sheets.items() if sum(map(filled, rows)) > 2}
    if not full:
        raise DataError(f"{path}: expected a sheet with a header and rows, found none")
    tables: dict[tuple[str, ...], dict[str, int]] = {}
    for title, rows in full.items():
        top = next((k for k, row in enumerate(rows) if filled(row) > 1), 0)
        tables.setdefault(tuple(texts(rows[top])), {})[title] = top
    cells = {head: sum(sum(map(filled, full[title])) for title in tops)
             for head, tops in tables.items()}  # fmt: skip
    tops = tables[max(cells, key=cells.__getitem__)]
    top = next(iter(tops.values()))
    first, *others = tops
    rows = [*full[first], *(row for title in others for row in full[title][tops[title] + 1 :])]
    if len(full) > 1:
        some = f"only the sheet {first!r}" if not others else f"the sheets {', '.join(tops)}"
        verb = "were" if others else "was"
        repair.note(f"{some} of {', '.join(full)} {verb} read", len(rows) - top - 1)
    repair.note("rows above the header left out", top)
    names = [str(n) if n is not None else f"unnamed {k}" for k, n in enumerate(rows[top])]
    below = [texts(row) for row in rows[top + 1 : top + 1 + ROWS_BELOW]]
    if joined := joined_header(texts(rows[top]), below):
        names = joined
        top += 1
        repair.notes.append(TWO_ROWS)
    kept = [row for row in rows[top + 1 :] if filled(row)]
    totals = total_rows([texts(row) for row in kept])
    repair.note(TOTALS_OUT, len(totals))
    kept = [row for k, row in enumerate(kept) if k not in totals]
    return {name: [row[k] for row in kept] for k, name in enumerate(names)}, top + 2
