"""Tables of quantities, filled: what was measured, beside what the paper prints."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from dpb_gym.errors import ResultError
from dpb_gym.papers.claims import FigureTable, PrintedCell
from dpb_gym.papers.curves import Curve, distinct, same, word
from dpb_gym.papers.pairing import interval, jackknife

NOTHING = "–"


@dataclass(frozen=True)
class Number:
    """One number of a table.

    Attributes:
        mean: The quantity.
        sd: Standard deviation over replicates, where the quantity is one number per replicate.
        low: End of the 95% interval, where it is not.
        high: The other end.
        printed: The paper's number.
        replicates: Replicates.
    """

    mean: float
    sd: float | None
    low: float | None
    high: float | None
    printed: PrintedCell | None
    replicates: int

    def text(self, digits: int) -> str:
        """The number with its spread, the paper's in brackets."""
        said = _plain(self.mean, self.sd, digits)
        if self.low is not None and self.high is not None:
            said += f" ({_plain(self.low, None, digits)} to {_plain(self.high, None, digits)})"
        if self.printed is not None:
            said += f" [{_plain(self.printed.value, self.printed.spread, digits)}]"
        return said


@dataclass(frozen=True)
class Filled:
    """A table with its numbers.

    Attributes:
        table: The table.
        columns: Values on the column axis; None for what has no value there.
        rows: Value on the row axis, and a cell, or nothing, per column.
    """

    table: FigureTable
    columns: tuple[Any, ...]
    rows: tuple[tuple[Any, tuple[Number | None, ...]], ...]

    @property
    def legend(self) -> str:
        """How to read the cells; empty if they are plain numbers."""
        cells = [cell for _, line in self.rows for cell in line if cell is not None]
        said = [
            ("mean ± standard deviation over replicates", any(c.sd is not None for c in cells)),
            ("95% intervals in parentheses", any(c.low is not None for c in cells)),
            ("the paper's numbers in brackets", any(c.printed is not None for c in cells)),
        ]
        return "; ".join(text for text, there in said if there)

    @property
    def head(self) -> tuple[str, ...]:
        """Names of the columns."""
        axis = self.table.columns
        if axis is None:
            return ("", "measured")
        return ("", *(NOTHING if c is None else f"{axis}={word(c)}" for c in self.columns))

    @property
    def lines(self) -> tuple[tuple[str, ...], ...]:
        """The rows as text."""
        digits = self.table.digits
        return tuple(
            (word(row), *(NOTHING if c is None else c.text(digits) for c in cells))
            for row, cells in self.rows
        )

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON values."""
        table = self.table
        cells = []
        for row, line in self.rows:
            for column, cell in zip(self.columns, line):
                if cell is None:
                    continue
                place = {table.rows: row} | ({table.columns: column} if table.columns else {})
                numbers = dict(vars(cell))
                numbers["mean"] = cell.mean if math.isfinite(cell.mean) else None
                numbers["printed"] = cell.printed and cell.printed.value
                numbers["printed_spread"] = cell.printed and cell.printed.spread
                cells.append(place | numbers)
        quantity = table.quantity.model_dump(mode="json", exclude_defaults=True)
        return {"id": table.id, "title": table.title, "quantity": quantity, "cells": cells}


def fill(table: FigureTable, curves: Sequence[Curve]) -> Filled:
    """Fills a table from the curves of its figure; rows and columns in order of appearance.

    Cells whose quantity is not defined (no reference) stay empty.

    Raises:
        ResultError: If two curves belong into one cell.
    """
    shown = [c for c in curves if c.matches(table.where) and c.axes[table.rows] is not None]
    axis = table.columns
    columns = [None] if axis is None else distinct([c.axes[axis] for c in shown], ordered=True)
    rows = []
    for row in distinct([curve.axes[table.rows] for curve in shown]):
        line: list[Number | None] = []
        for column in columns:
            found = [
                curve
                for curve in shown
                if same(curve.axes[table.rows], row)
                and (axis is None or same(curve.axes[axis], column))
            ]
            if len(found) > 1:
                raise ResultError(
                    f"table {table.id}: {found[0].label} and {found[1].label} fall into one cell"
                )
            line.append(_cell(table, found[0], curves) if found else None)
        rows.append((row, tuple(line)))
    return Filled(table, tuple(columns), tuple(rows))


def _cell(table: FigureTable, curve: Curve, curves: Sequence[Curve]) -> Number | None:
    printed = table.printed_for(curve)
    try:
        measured = table.quantity.of(curve, curves)
        (values,), count = jackknife(measured)
        mean = float(values[0])
        if not measured.columns:
            return Number(mean, None, None, None, printed, len(curve.series.replicates))
        if len(measured.columns) > 1:
            found = interval(values)
            return Number(mean, None, found.low, found.high, printed, count)
    except ResultError:
        return None
    sample = list(measured.columns[0].values())
    sd = float(np.std(sample, ddof=1)) if count > 1 else None
    return Number(mean, sd, None, None, printed, count)


def _plain(value: float, spread: float | None, digits: int) -> str:
    if math.isinf(value):
        return "unbounded" if value > 0 else "-unbounded"
    text = f"{value:,.{digits}f}"
    return text if spread is None else f"{text} ± {spread:,.{digits}f}"
