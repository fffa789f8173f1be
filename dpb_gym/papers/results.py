"""A reproduced figure, and the views of it: tables beside what the paper prints, data, verdicts."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from dpb_gym.errors import ResultError
from dpb_gym.evaluation import metrics
from dpb_gym.papers.claims import FigureTable, PrintedCell
from dpb_gym.papers.curves import Curve, distinct, word, words
from dpb_gym.papers.figure import Figure
from dpb_gym.papers.pairing import interval, jackknife
from dpb_gym.papers.verdicts import Judgement
from dpb_gym.report.model import Interval
from dpb_gym.report.numerals import number

PICTURE = "figure.png"


@dataclass(frozen=True)
class Grid:
    """A table of text.

    Attributes:
        title: Heading.
        head: Names of the columns.
        rows: The cells.
        note: What stands below the heading.
        folded: Detail, which a page shows on demand and the terminal not at all.
    """

    title: str
    head: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    note: str = ""
    folded: bool = False


@dataclass(frozen=True)
class FigureResult:
    """One reproduced figure.

    Attributes:
        figure: What was run and judged.
        folder: Where everything lies: picture, pages, data, verdicts.
        judgements: Its claims, decided.
        curves: Its curves.
        failures: Messages of the cells that failed.
        facts: What was run: replicates, seeds, command, versions.
        seconds: Wall time of what was computed now.
        rounds: Agent rounds computed now.
        skipped: Why nothing was run: data that are not here; empty if something was.
    """

    figure: Figure
    folder: Path
    judgements: tuple[Judgement, ...] = ()
    curves: tuple[Curve, ...] = ()
    failures: tuple[str, ...] = ()
    facts: Mapping[str, str] = field(default_factory=dict)
    seconds: float = 0.0
    rounds: int = 0
    skipped: str = ""

    @property
    def picture(self) -> Path:
        """The picture's file."""
        return self.folder / PICTURE

    def grids(self) -> Iterator[Grid]:
        """Everything that is shown as tables of text: what decides the claims, the figure's
        tables, guarantees, curves, comparisons."""
        decided = tuple((j.verdict, _claim(j), _details(j)) for j in self.judgements)
        yield Grid("Verdicts", ("verdict", "claim", "decided by"), decided)
        for table in self.figure.tables:
            filled = fill(table, self.curves)
            yield Grid(table.title, filled.head, filled.lines, filled.legend)
        head = ("agent", "asked for", "on", "true guarantee")
        yield Grid("What is really guaranteed", head, self._guarantees())
        every = tuple(
            (c.series.task, c.series.agent, c.series.budget, _interval(c.final), c.guarantee)
            for c in self.curves
        )
        head5 = ("task", "agent", "asked for", "regret at T (95%)", "true guarantee")
        yield Grid("All curves: regret at the horizon", head5, every, folded=True)
        for j in self.judgements:
            compared = tuple(
                (
                    ", ".join(x for x in (words(c.variant), c.left) if x),
                    _interval(c.left_value),
                    c.right,
                    _interval(c.right_value),
                    _interval(c.effect),
                    _p_text(c.p_value),
                    c.outcome,
                )
                for c in j.comparisons
            )
            head7 = ("left", "value", "against", "value", "effect (for the claim if > 0)",
                     "paired t-test, p", "outcome")  # fmt: skip
            title = f"Comparisons behind “{j.claim.id}”"
            yield Grid(title, head7, compared, j.claim.text, folded=True)

    def _guarantees(self) -> tuple[tuple[str, ...], ...]:
        """Agent, budget asked for, tasks (all if equal), and true guarantee; equal ones once."""
        tasks: dict[tuple[str, str, str], list[str]] = {}
        everywhere: dict[tuple[str, str], set[str]] = {}
        for curve in self.curves:
            s = curve.series
            tasks.setdefault((s.agent, s.budget, curve.guarantee), []).append(s.task)
            everywhere.setdefault((s.agent, s.budget), set()).add(s.task)
        return tuple(
            (agent, budget, "all tasks" if set(on) == everywhere[agent, budget] else ", ".join(on),
             guarantee)
            for (agent, budget, guarantee), on in tasks.items()
        )  # fmt: skip

    def to_dict(self) -> dict[str, Any]:
        """Verdicts, comparisons, final values and guarantees as plain JSON values."""
        figure = self.figure
        return {
            "target": figure.target,
            "title": figure.title,
            "constants": list(figure.constants),
            "notes": list(figure.remarks),
            "run": dict(self.facts),
            "claims": [
                {
                    **judgement.claim.model_dump(mode="json"),
                    **_decided(judgement),
                    "variants": judgement.variants,
                    "samples": {str(n): _decided(few) for n, few in judgement.samples.items()},
                }
                for judgement in self.judgements
            ],
            "tables": [fill(table, self.curves).to_dict() for table in figure.tables],
            "curves": [
                {
                    "task": curve.series.task,
                    "agent": curve.series.agent,
                    "budget": curve.series.budget,
                    "axes": dict(curve.axes),
                    "replicates": len(curve.series.replicates),
                    "regret": asdict(curve.final),
                    "recorded": {
                        name: asdict(metrics.interval(list(column.values())))
                        for name, column in curve.recorded.items()
                    },
                    "guarantee": curve.guarantee,
                    "guarantee_data": curve.series.guarantee,
                }
                for curve in self.curves
            ],
        }

    def rows(self) -> list[dict[str, Any]]:
        """One row per curve and checkpoint: mean and interval; all axes as columns."""
        rows: list[dict[str, Any]] = []
        for curve in self.curves:
            s = curve.series
            fixed: dict[str, Any] = {"task": s.task, "agent": s.agent, "budget": s.budget}
            fixed |= {f"axis_{axis}": curve.axes[axis] for axis in self.figure.axes}
            fixed |= {"replicates": len(s.replicates), "guarantee": curve.guarantee}
            rows += [
                {**fixed, "round": t, "regret": mean, "low": low, "high": high}
                for t, mean, low, high in zip(s.rounds.tolist(), *curve.bands.tolist())
            ]
        for column in (f"axis_{axis}" for axis in self.figure.axes):
            kinds = {type(row[column]) for row in rows if row[column] is not None}
            if len(kinds) > 1:  # one type per column: numbers, or else text
                as_one = float if kinds <= {int, float} else str
                for row in rows:
                    row[column] = None if row[column] is None else as_one(row[column])
        return rows


def _decided(judgement: Judgement) -> dict[str, Any]:
    return {
        "verdict": judgement.verdict,
        "summary": judgement.summary,
        "comparisons": [asdict(comparison) for comparison in judgement.comparisons],
    }


def _interval(value: Interval) -> str:
    if value.low == value.high:
        return number(value.mean)
    return f"{number(value.mean)} [{number(value.low)}, {number(value.high)}]"


def _p_text(value: float | None) -> str:
    return "" if value is None else "< 0.0001" if value < 1e-4 else f"{value:.4f}"


def _claim(judgement: Judgement) -> str:
    claim = judgement.claim
    text = claim.text if claim.by == "paper" else f"{claim.text} (our control)"
    return f"{text} ({claim.source})" if claim.source else text


def _details(judgement: Judgement) -> str:
    """What decides a claim: counts, variants, fewer replicates."""
    parts = [judgement.summary]
    groups: dict[str, list[str]] = {}
    for variant, verdict in judgement.variants.items():
        groups.setdefault(verdict, []).append(variant or "all")
    if len(groups) == 1:
        parts.append("the same in every variant")
    elif groups:
        parts.append("; ".join(f"{verdict}: {', '.join(on)}" for verdict, on in groups.items()))
    parts += [
        f"with the first {count} replicates: {smaller.verdict}"
        for count, smaller in judgement.samples.items()
    ]
    return ". ".join(part[0].upper() + part[1:] for part in parts)


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
    places: dict[Any, dict[Any, Curve]] = {}
    for curve in shown:
        line, column = places.setdefault(curve.axes[table.rows], {}), axis and curve.axes[axis]
        first = line.setdefault(column, curve)
        if first is not curve:
            raise ResultError(
                f"table {table.id}: {first.label} and {curve.label} fall into one cell"
            )
    rows = (
        (row, tuple(_cell(table, line[c], curves) if c in line else None for c in columns))
        for row, line in places.items()
    )
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
