"""Tables for notebooks: plain HTML that follows the notebook's own theme."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from markupsafe import Markup, escape

from dpb_gym.report.comparison_groups import COMPARISON_NOTE
from dpb_gym.report.leaderboard_data import LeaderboardData, TaskResult
from dpb_gym.report.tables import Table, board
from dpb_gym.report.terminal import MOST


def grid(columns: Sequence[str], rows: Iterable[Sequence[str]], caption: str = "") -> str:
    """A table of texts, each escaped unless it is `Markup`.

    Args:
        columns: Headings.
        rows: One text per column each, or a single one that stands across all.
        caption: Stands above, may be empty.
    """
    said = f"<caption {_LEFT}><b>{escape(caption)}</b></caption>" if caption else ""
    head = "".join(f"<th {_LEFT}>{escape(name)}</th>" for name in columns)
    body = ""
    for row in rows:
        across = f" colspan='{len(columns)}'" if len(row) < len(columns) else ""
        cells = (f"<td {_LEFT}{across}>{escape(text)}</td>" for text in row)
        body += f"<tr>{''.join(cells)}</tr>"
    return f"<table>{said}<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


_LEFT = "style='text-align:left'"
_COLUMNS = ("Agent", "Budget", "Guarantee", "Regret [95%]", "Score", "Rounds/s")


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
    tables = []
    for table in shown.tasks:
        task = table.task
        caption = f"{task.task}  {task.env_id}  T={task.horizon:,}, {task.replicates} replicates"
        tables.append(grid(_COLUMNS, _rows(table), caption))
    return "".join(tables) + f"<small>{notes}</small>"


def _rows(table: Table) -> Iterator[list[str]]:
    for group, lines in table.sections:
        yield [Markup("<b>{}</b>").format(group.label)]
        for line in lines[:MOST]:
            cells = table.cells(line)
            if line.best:
                for name in ("agent", "regret"):
                    cells[name] = Markup("<b>{}</b>").format(cells[name])
            if line.row.budget is None:
                cells["budget"] = ""
            cells["regret"] = escape(cells["regret"]) + " " + cells["regret_ends"]
            yield [cells[c] for c in ("agent", "budget", "guarantee", "regret", "score", "speed")]
        if len(lines) > MOST:
            yield [f"and {len(lines) - MOST:,} more"]
