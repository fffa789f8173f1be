"""Tables of quantities, filled: what was measured, beside what the paper prints."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from dpb_gym.errors import ResultError
from dpb_gym.evaluation import metrics
from dpb_gym.papers.curves import Curve, same
from dpb_gym.papers.layout import PrintedCell, Table
from dpb_gym.papers.pairing import resample
from dpb_gym.papers.quantities import Measured, measure, printed_in

NOTHING = "–"


@dataclass(frozen=True)
class Cell:
    """One number of a table.

    Attributes:
        mean: The quantity.
        spread: Standard deviation over replicates, where the quantity is one number per
            replicate.
        low: End of the 95% interval, where it is not.
        high: The other end.
        printed: The paper's number.
        replicates: Replicates.
    """

    mean: float
    spread: float | None
    low: float | None
    high: float | None
    printed: PrintedCell | None
    replicates: int

    def text(self, digits: int) -> str:
        """The number with its spread, the paper's in brackets."""
        said = plain(self.mean, digits)
        if self.spread is not None:
            said += f" ± {plain(self.spread, digits)}"
        elif self.low is not None and self.high is not None:
            said += f" ({plain(self.low, digits)} to {plain(self.high, digits)})"
        if self.printed is not None:
            given = plain(self.printed.value, digits)
            if self.printed.spread is not None:
                given += f" ± {plain(self.printed.spread, digits)}"
            said += f" [{given}]"
        return said


@dataclass(frozen=True)
class Filled:
    """A table with its numbers.

    Attributes:
        table: The table.
        columns: Values on the column axis; None for what has no value there.
        rows: Value on the row axis, and a cell, or nothing, per column.
    """

    table: Table
    columns: tuple[Any, ...]
    rows: tuple[tuple[Any, tuple[Cell | None, ...]], ...]

    @property
    def legend(self) -> str:
        """How to read the cells; empty if they are plain numbers."""
        said = []
        cells = [cell for _, line in self.rows for cell in line if cell is not None]
        if any(cell.spread is not None for cell in cells):
            said.append("mean ± standard deviation over replicates")
        if any(cell.low is not None for cell in cells):
            said.append("95% intervals in parentheses")
        if any(cell.printed is not None for cell in cells):
            said.append("the paper's numbers in brackets")
        return "; ".join(said)

    @property
    def heading(self) -> str:
        """Title and legend in one line."""
        return f"{self.table.title} ({self.legend})" if self.legend else self.table.title

    @property
    def head(self) -> tuple[str, ...]:
        """Names of the columns."""
        axis = self.table.columns
        if axis is None:
            return ("", "measured")
        return ("", *(NOTHING if c is None else f"{axis}={_said(c)}" for c in self.columns))

    @property
    def lines(self) -> list[tuple[str, ...]]:
        """The rows as text."""
        digits = self.table.digits
        return [
            (_said(row), *(NOTHING if c is None else c.text(digits) for c in cells))
            for row, cells in self.rows
        ]

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON values."""
        return {
            "id": self.table.id,
            "title": self.table.title,
            "quantity": self.table.quantity.model_dump(mode="json", exclude_defaults=True),
            "cells": [
                {
                    self.table.rows: row,
                    **({} if self.table.columns is None else {self.table.columns: column}),
                    "mean": _finite(cell.mean),
                    "sd": cell.spread,
                    "low": cell.low,
                    "high": cell.high,
                    "printed": None if cell.printed is None else cell.printed.value,
                    "printed_spread": None if cell.printed is None else cell.printed.spread,
                    "replicates": cell.replicates,
                }
                for row, cells in self.rows
                for column, cell in zip(self.columns, cells)
                if cell is not None
            ],
        }


def fill(table: Table, curves: Sequence[Curve]) -> Filled:
    """Fills a table from the curves of its figure; rows and columns in order of appearance.

    Cells whose quantity is not defined (no reference) stay empty.

    Raises:
        ResultError: If two curves belong into one cell.
    """
    shown = [c for c in curves if c.matches(table.where) and c.axes[table.rows] is not None]
    columns: list[Any] = [None]
    if table.columns is not None:
        columns = _distinct([curve.axes[table.columns] for curve in shown])
        if all(c is None or isinstance(c, (int, float)) for c in columns):
            columns.sort(key=lambda c: -math.inf if c is None else c)
    rows = []
    for row in _distinct([curve.axes[table.rows] for curve in shown]):
        line = []
        for column in columns:
            found = [
                curve
                for curve in shown
                if same(curve.axes[table.rows], row)
                and (table.columns is None or same(curve.axes[table.columns], column))
            ]
            if len(found) > 1:
                raise ResultError(
                    f"table {table.id}: {found[0].label} and {found[1].label} fall into one cell"
                )
            line.append(_cell(table, found[0], curves) if found else None)
        rows.append((row, tuple(line)))
    return Filled(table, tuple(columns), tuple(rows))


def _cell(table: Table, curve: Curve, curves: Sequence[Curve]) -> Cell | None:
    try:
        measured = measure(curve, table.quantity, curves)
    except ResultError:
        return None
    return _number(measured, printed_in(table, curve), len(curve.series.replicates))


def _number(measured: Measured, printed: PrintedCell | None, replicates: int) -> Cell:
    if not measured.columns:
        return Cell(measured.constant, None, None, None, printed, replicates)
    (values,), count = resample([measured])
    mean = float(values[0])
    if len(measured.columns) == 1:
        sample = np.array(list(measured.columns[0].values()))
        spread = float(sample.std(ddof=1)) if len(sample) > 1 else None
        return Cell(mean, spread, None, None, printed, count)
    tail = 50.0 * (1.0 - metrics.CONFIDENCE)
    low, high = np.percentile(values[1:], [tail, 100.0 - tail])
    return Cell(mean, None, float(low), float(high), printed, count)


def plain(value: float, digits: int) -> str:
    """A number with that many digits, in words where there is none."""
    if math.isinf(value):
        return "unbounded" if value > 0 else "-unbounded"
    return f"{value:,.{digits}f}"


def _said(value: Any) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None


def _distinct(values: Sequence[Any]) -> list[Any]:
    found: list[Any] = []
    for value in values:
        if not any(same(value, other) for other in found):
            found.append(value)
    return found
