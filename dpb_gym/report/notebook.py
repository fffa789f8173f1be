"""Tables for notebooks: plain HTML that follows the notebook's own theme."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape
from typing import Any

from dpb_gym.report.groups import COMPARISON_NOTE
from dpb_gym.report.model import LeaderboardData, TaskResult
from dpb_gym.report.terminal import MOST
from dpb_gym.report.views import Line, Table, board

_COLUMNS = ("Agent", "Budget", "Guarantee", "Regret [95%]", "Score", "Rounds/s")


def grid(columns: Sequence[str], rows: Iterable[Sequence[str]], caption: str = "") -> str:
    """A table of plain texts, each escaped.

    Args:
        columns: Headings.
        rows: One text per column each.
        caption: Stands above, may be empty.
    """
    head = "".join(f"<th style='text-align:left'>{escape(name)}</th>" for name in columns)
    return _table(caption, head, "".join(_row([escape(text) for text in row]) for row in rows))


class Listing(list[dict[str, Any]]):
    """Records with the same keys each, shown as a table by a notebook and by `print`."""

    def _texts(self) -> list[list[str]]:
        return [
            [", ".join(v) if isinstance(v, (list, tuple)) else str(v) for v in record.values()]
            for record in self
        ]

    def _repr_html_(self) -> str:
        return grid(list(self[0]) if self else [], self._texts())

    def __str__(self) -> str:
        rows = [list(self[0]) if self else [], *self._texts()]
        widths = [max(map(len, column)) for column in zip(*rows)]
        return "\n".join(
            "  ".join(text.ljust(width) for text, width in zip(row, widths)).rstrip()
            for row in rows
        )


def html_table(data: LeaderboardData | TaskResult) -> str:
    """A leaderboard as small tables, one per task, in the order of the terminal's.

    Raises:
        ParameterError: `data` is of another type.
    """
    shown = board(data)
    notes = "".join(f"<p>{escape(note)}</p>" for note in (COMPARISON_NOTE, *shown.notes))
    return "".join(map(_task, shown.tasks)) + f"<small>{notes}</small>"


def _task(table: Table) -> str:
    task = table.task
    caption = f"{task.task}  {task.env_id}  T={task.horizon:,}, {task.replicates} replicates"
    head = "".join(f"<th style='text-align:left'>{name}</th>" for name in _COLUMNS)
    body = ""
    for group, lines in table.sections:
        body += f"<tr><th colspan='6' style='text-align:left'>{escape(group.label)}</th></tr>"
        body += "".join(_row(_cells(table, line)) for line in lines[:MOST])
        if len(lines) > MOST:
            body += _row([f"and {len(lines) - MOST:,} more", *[""] * 5])
    return _table(caption, head, body)


def _cells(table: Table, line: Line) -> list[str]:
    cells = {name: escape(text) for name, text in table.cells(line).items()}
    for name in ("agent", "regret"):
        if line.best:
            cells[name] = f"<b>{cells[name]}</b>"
    budget = "" if line.row.budget is None else cells["budget"]
    regret = f"{cells['regret']} {cells['regret_ends']}"
    return [cells["agent"], budget, cells["guarantee"], regret, cells["score"], cells["speed"]]


def _row(cells: Iterable[str]) -> str:
    return "<tr>" + "".join(f"<td style='text-align:left'>{cell}</td>" for cell in cells) + "</tr>"


def _table(caption: str, head: str, body: str) -> str:
    if caption:
        caption = f"<caption style='text-align:left'><b>{escape(caption)}</b></caption>"
    return f"<table>{caption}<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
