"""Tables for notebooks: plain HTML without styles, so that the notebook's theme applies."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from markupsafe import Markup, escape

from dpb_gym.report.columns import columns
from dpb_gym.report.comparison_groups import COMPARISON_NOTE
from dpb_gym.report.leaderboard_data import LeaderboardData, TaskResult
from dpb_gym.report.tables import Table, board
from dpb_gym.report.terminal import MOST


def grid(headings: Sequence[str], rows: Iterable[Sequence[str]], caption: str = "") -> str:
    """Return an HTML table of texts, each escaped unless it is `Markup`.

    Args:
        headings: One per column.
        rows: One text per column, or a single text that spans all columns.
        caption: Text above the table, may be empty.
    """
    above = f"<caption {_LEFT}><b>{escape(caption)}</b></caption>" if caption else ""
    head = "".join(f"<th {_LEFT}>{escape(name)}</th>" for name in headings)
    body = ""
    for row in rows:
        across = f" colspan='{len(headings)}'" if len(row) < len(headings) else ""
        cells = (f"<td {_LEFT}{across}>{escape(text)}</td>" for text in row)
        body += f"<tr>{''.join(cells)}</tr>"
    return f"<table>{above}<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


_LEFT = "style='text-align:left'"


def aligned(rows: Sequence[Sequence[str]]) -> list[str]:
    """Return rows of texts as lines whose columns are aligned."""
    widths = [max(map(len, column)) for column in zip(*rows)]
    return ["  ".join(map(str.ljust, row, widths)).rstrip() for row in rows]


class Listing(list[dict[str, Any]]):
    """List of records with equal keys that notebooks and `print` show as a table."""

    def _texts(self) -> list[list[str]]:
        return [
            [", ".join(v) if isinstance(v, (list, tuple)) else str(v) for v in record.values()]
            for record in self
        ]

    def _repr_html_(self) -> str:
        return grid(list(self[0]) if self else [], self._texts())

    def __str__(self) -> str:
        return "\n".join(aligned([list(self[0]) if self else [], *self._texts()]))


def html_table(data: LeaderboardData | TaskResult) -> str:
    """Return a leaderboard as one small HTML table per task, ordered as in the terminal.

    Raises:
        ParameterError: `data` is of another type.
    """
    shown = board(data)
    notes = "".join(f"<p>{escape(note)}</p>" for note in (COMPARISON_NOTE, *shown.notes))
    tables = []
    for table in shown.tasks:
        task = table.task
        caption = f"{task.task}  {task.env_id}  T={task.horizon:,}, {task.replicates} replicates"
        titles = [c.title + (" [95%]" if c.kind == "interval" else "") for c in columns("notebook")]
        tables.append(grid(titles, _rows(table), caption))
    return "".join(tables) + f"<small>{notes}</small>"


def _rows(table: Table) -> Iterator[list[str]]:
    for group, lines in table.sections:
        yield [Markup("<b>{}</b>").format(group.label)]
        for line in lines[:MOST]:
            texts: list[str] = []
            for column, text, ends, bold in table.styled(line, "notebook"):
                own = "" if column.name == "budget" and line.row.budget is None else text
                shown = Markup("<b>{}</b>" if bold else "{}").format(own)
                texts.append(shown + f" {ends}" if column.kind == "interval" and ends else shown)
            yield texts
        if len(lines) > MOST:
            yield [f"and {len(lines) - MOST:,} more"]
