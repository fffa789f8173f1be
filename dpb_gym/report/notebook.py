"""Tables for notebooks: plain HTML without styles, so that the notebook's theme applies."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from dpb_gym.report.columns import columns
from dpb_gym.report.comparison_groups import COMPARISON_NOTE
from dpb_gym.report.leaderboard_data import LeaderboardData, TaskResult
from dpb_gym.report.tables import board
from dpb_gym.report.templating import TEMPLATES, template
from dpb_gym.report.terminal import MOST


def grid(headings: Sequence[str], rows: Iterable[Sequence[str]], caption: str = "") -> str:
    """Return an HTML table of texts, each escaped unless it is `markupsafe.Markup`.

    Args:
        headings: One per column.
        rows: One text per column, or a single text that spans all columns.
        caption: Text above the table, may be empty.
    """
    shown = template(TEMPLATES, "grid.html.j2")
    return shown.render(headings=headings, rows=list(rows), caption=caption)


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
    return template(TEMPLATES, "notebook.html.j2").render(
        board=board(data),
        columns=list(columns("notebook")),
        most=MOST,
        comparison_note=COMPARISON_NOTE,
    )
