"""Rows of exported tables that are no records: headers of two rows, subtotals and totals."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

_NUMBER = re.compile(r"[+-]?([0-9]+([.,][0-9]*)?|[.,][0-9]+)([eE][+-]?[0-9]+)?")
_DATE = re.compile(r"[0-9]{1,4}[-/.][0-9]{1,2}[-/.][0-9]{1,4}([T ].*)?")
ROWS_BELOW = 20  # rows that show that a header has two
TWO_ROWS = "names of the columns read from two rows"
TOTALS_OUT = "rows of totals left out"
_MOST_TOTALS = 0.25  # share of rows, as of subtotals
_TOTAL = re.compile(
    r"((sub|sub-|grand )?totals?|(zwischen|gesamt)?summe|(ins)?gesamt|sums?|somme|suma|totale|"
    r"totaal):?"
)


def texts(row: Sequence[Any]) -> list[str]:
    """Return the cells of a row as text, empty for none, fractions with two decimals."""
    return [
        "" if cell is None else f"{cell:.2f}" if isinstance(cell, float) else str(cell).strip()
        for cell in row
    ]


def joined_header(first: Sequence[str], below: Sequence[Sequence[str]]) -> list[str]:
    """Return the names of columns of a header of two rows, or an empty list.

    Such a header has empty cells, each below or right of a name, and its second row has texts
    where the rows below have numbers.

    Args:
        first: Cells of the first row.
        below: Cells of the next rows.
    """
    if len(below) < 2 or "" not in first or len(below[0]) != len(first):
        return []
    second = below[0]
    named = [k for k, cell in enumerate(second) if cell]
    gaps = [k for k, cell in enumerate(first) if not cell]
    if any(is_value(cell) for cell in (*first, *second)) or not {*gaps} & {*named}:
        return []
    rows = [row for row in below[1:] if len(row) == len(first)]
    numbers = [k for k in named if rows and all(has_digit(row[k]) for row in rows if row[k])]
    if not numbers:
        return []
    names = []
    group = ""
    for k, cell in enumerate(first):
        group = cell or group
        over = group if cell or (k in named and k) else ""
        names.append(" ".join(part for part in (over, second[k]) if part) or f"unnamed {k}")
    return names if len({*names}) == len(names) else []


def filled(row: Sequence[Any]) -> int:
    """Return the number of cells of a row that are not empty."""
    return sum(cell not in (None, "") for cell in row)


def has_digit(text: str) -> bool:
    """Return whether a cell has a digit, as numbers and dates have."""
    return any(letter.isdigit() for letter in text)


def total_rows(rows: Sequence[Sequence[str]]) -> set[int]:
    """Return the numbers of rows that are totals of the others.

    They are if the last row begins with a word for it. A total is larger than all other values in
    some column, so that a brand of this name is none.
    """
    if len(rows) < 3 or not is_total(rows[-1]):
        return set()
    marked = [k for k, row in enumerate(rows) if is_total(row)]
    if len(marked) > _MOST_TOTALS * len(rows):
        return set()
    drop = {*marked}
    others = [row for k, row in enumerate(rows) if k not in drop]
    last = rows[-1]
    larger = any(
        _number(last[k]) > max(_number(row[k]) for row in others if len(row) > k)
        for k in range(len(last))
        if _number(last[k]) > 0.0
    )
    return drop if larger else set()


def is_total(row: Sequence[str]) -> bool:
    """Return whether the first cell of a row that is not empty is a word for a total."""
    words = next((cell for cell in row if cell.strip()), "").strip().casefold()
    return bool(_TOTAL.fullmatch(words))


def _number(text: str) -> float:
    """Return the whole part of a number in any notation; 0 for a text without digits."""
    digits = re.sub(r"[^0-9.,]", "", text)
    whole = re.sub(r"[.,]([0-9]{1,2}|[0-9]{4,})$", "", digits)
    return float(re.sub(r"[.,]", "", whole) or 0)


def is_value(text: str) -> bool:
    """Return whether a cell is a number or a date, and so no name of a column."""
    return bool(_NUMBER.fullmatch(text) or _DATE.fullmatch(text))
