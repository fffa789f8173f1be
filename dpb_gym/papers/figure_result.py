"""A reproduced figure: its verdicts, its data, and its tables with the paper's numbers."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from dpb_gym.errors import ResultError
from dpb_gym.papers.claims import FigureTable, Printed
from dpb_gym.papers.curves import Curve, distinct, word, words
from dpb_gym.papers.figure_spec import Figure
from dpb_gym.papers.pairing import interval, jackknife
from dpb_gym.papers.verdicts import Judgement
from dpb_gym.report.exports import plain as json_of
from dpb_gym.report.leaderboard_data import Interval
from dpb_gym.report.number_format import number
from dpb_gym.results import metrics

PICTURE = "figure.png"


@dataclass(frozen=True)
class Grid:
    """A table of text.

    Attributes:
        title: Heading.
        head: Names of the columns.
        rows: The cells.
        note: Text below the heading.
        folded: Whether a page shows it on demand only and the terminal leaves it out.
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
        figure: Figure that was run.
        folder: Folder of its picture, pages, data and verdicts.
        judgements: Its claims with their verdicts.
        curves: Its curves.
        failures: Messages of the cells that failed.
        facts: Replicates, seeds, command and versions of the run.
        seconds: Wall time of the cells computed in this call.
        rounds: Agent rounds computed in this call.
        skipped: Reason why nothing was run, such as missing data; empty if something was.
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
        """File of the picture."""
        return self.folder / PICTURE

    def grids(self) -> Iterator[Grid]:
        """Yield all tables of text: verdicts, the figure's tables, guarantees, curves and
        comparisons.
        """
        decided = tuple((j.verdict, _claim(j), _details(j)) for j in self.judgements)
        yield Grid("Verdicts", ("verdict", "claim", "decided by"), decided)
        for table in self.figure.tables:
            yield grid(table, fill(table, self.curves))
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
        """Return distinct rows of agent, requested budget, tasks, and guarantee."""
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
        """Return verdicts, comparisons, final values and guarantees as plain JSON values."""
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
            "tables": [plain_table(table, fill(table, self.curves)) for table in figure.tables],
            "curves": [
                {
                    "task": curve.series.task,
                    "agent": curve.series.agent,
                    "budget": curve.series.budget,
                    "axes": dict(curve.axes),
                    "replicates": len(curve.series.replicates),
                    "regret": json_of(curve.final),
                    "recorded": {
                        name: json_of(metrics.interval(list(column.values())))
                        for name, column in curve.recorded.items()
                    },
                    "guarantee": curve.guarantee,
                    "guarantee_data": curve.series.guarantee,
                }
                for curve in self.curves
            ],
        }

    def rows(self) -> list[dict[str, Any]]:
        """Return mean and interval per curve and checkpoint, with all axes as columns."""
        rows: list[dict[str, Any]] = []
        for curve in self.curves:
            s = curve.series
            fixed: dict[str, Any] = {"task": s.task, "agent": s.agent, "budget": s.budget}
            fixed |= {f"axis_{axis}": curve.axes[axis] for axis in self.figure.axes}
            fixed |= {"replicates": len(s.replicates), "guarantee": curve.guarantee}
            rows += [
                {**fixed, "round": t, "regret": mean, "low": _finite(low), "high": _finite(high)}
                for t, mean, low, high in zip(s.rounds.tolist(), *curve.bands.tolist())
            ]
        for column in (f"axis_{axis}" for axis in self.figure.axes):
            kinds = {type(row[column]) for row in rows if row[column] is not None}
            if len(kinds) > 1:  # one type per column: numbers, or else text
                as_one = float if kinds <= {int, float} else str
                for row in rows:
                    row[column] = None if row[column] is None else as_one(row[column])
        return rows


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None


def _decided(judgement: Judgement) -> dict[str, Any]:
    return {
        "verdict": judgement.verdict,
        "summary": judgement.summary,
        "comparisons": [json_of(comparison) for comparison in judgement.comparisons],
    }


def _interval(value: Interval) -> str:
    if value.low == value.high or not value.bounded:
        return number(value.mean)
    return f"{number(value.mean)} [{number(value.low)}, {number(value.high)}]"


def _p_text(value: float | None) -> str:
    return "" if value is None else "< 0.0001" if value < 1e-4 else f"{value:.4f}"


def _claim(judgement: Judgement) -> str:
    claim = judgement.claim
    text = claim.text if claim.by == "paper" else f"{claim.text} (our control)"
    return f"{text} ({claim.source})" if claim.source else text


def _details(judgement: Judgement) -> str:
    """Return the reasons of a verdict: counts, variants, and smaller samples."""
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


Cell = dict[str, float | None]
"""A cell of a table: ``mean``; ``sd``, the standard deviation if there is one number per replicate,
else ``low`` and ``high``, the 95% interval; ``printed`` and ``printed_spread``, the paper's number,
or ``printed_low`` and ``printed_high``, its range or upper bound; and ``replicates``."""
Cells = dict[tuple[Any, Any], Cell | None]


def fill(table: FigureTable, curves: Sequence[Curve]) -> Cells:
    """Return the cells of a table from the curves of its figure.

    Returns:
        Cells by values on the axes of rows and columns (None without), in order of appearance. A
        cell is None if the quantity is undefined, for lack of a reference.

    Raises:
        ResultError: If two curves belong to one cell.
    """
    places: dict[tuple[Any, Any], Curve] = {}
    for curve in curves:
        row = curve.axes[table.rows]
        if row is None or not curve.matches(table.where):
            continue
        first = places.setdefault((row, table.columns and curve.axes[table.columns]), curve)
        if first is not curve:
            raise ResultError(
                f"table {table.id}: {first.label} and {curve.label} fall into one cell"
            )
    return {place: _cell(table, curve, curves) for place, curve in places.items()}


def grid(table: FigureTable, cells: Cells) -> Grid:
    """Return a filled table as text, with a note on how to read its cells."""
    columns = distinct([column for _, column in cells], ordered=True)
    notes = {
        "sd": "mean ± standard deviation over replicates",
        "low": "95% intervals in parentheses",
        "printed": "the paper's numbers in brackets",
        "printed_high": "the paper's range or bound in brackets",
    }
    there = {part for cell in cells.values() for part, v in (cell or {}).items() if v is not None}
    axis = table.columns
    names = [NOTHING if c is None else f"{axis}={word(c)}" for c in columns]
    head = ("", "measured") if axis is None else ("", *names)
    lines = tuple(
        (word(row), *(_text(cells.get((row, column)), table.digits) for column in columns))
        for row in distinct([row for row, _ in cells])
    )
    return Grid(table.title, head, lines, "; ".join(notes[part] for part in notes if part in there))


def plain_table(table: FigureTable, cells: Cells) -> dict[str, Any]:
    """Return a filled table as plain JSON values."""
    quantity = table.quantity.model_dump(mode="json", exclude_defaults=True)
    axes = tuple(filter(None, (table.rows, table.columns)))
    records = [dict(zip(axes, place)) | cell for place, cell in cells.items() if cell is not None]
    for cell in records:
        cell["mean"] = cell["mean"] if math.isfinite(cell["mean"]) else None
    return {"id": table.id, "title": table.title, "quantity": quantity, "cells": records}


def _cell(table: FigureTable, curve: Curve, curves: Sequence[Curve]) -> Cell | None:
    printed = table.printed_for(curve) or Printed()
    try:
        measured = table.quantity.of(curve, curves)
        (values,), count = jackknife(measured)
        ends = interval(values, count) if len(measured.columns) > 1 else None
        ends = ends if ends is not None and ends.bounded else None
    except ResultError:
        return None
    single = len(measured.columns) == 1 and count > 1
    return {
        "mean": float(values[0]),
        "sd": float(np.std([*measured.columns[0].values()], ddof=1)) if single else None,
        "low": None if ends is None else ends.low,
        "high": None if ends is None else ends.high,
        "printed": printed.value,
        "printed_spread": printed.spread,
        "printed_low": printed.low,
        "printed_high": printed.high,
        "replicates": count if measured.columns else len(curve.series.replicates),
    }


def _text(cell: Cell | None, digits: int) -> str:
    """Return a number with its spread or interval, and the paper's in brackets."""
    if cell is None:
        return NOTHING

    def plain(of: str, spread: str = "") -> str:
        value = cell[of]
        around = cell.get(spread)
        assert value is not None
        if math.isinf(value):
            return "unbounded" if value > 0 else "-unbounded"
        return f"{value:,.{digits}f}" + ("" if around is None else f" ± {around:,.{digits}f}")

    text = plain("mean", "sd")
    if cell["low"] is not None:
        text += f" ({plain('low')} to {plain('high')})"
    if cell["printed"] is not None:
        return f"{text} [{plain('printed', 'printed_spread')}]"
    if cell["printed_high"] is None:
        return text
    if cell["printed_low"] is None:
        return f"{text} [< {cell['printed_high']:g}]"
    return f"{text} [{plain('printed_low')} to {plain('printed_high')}]"
