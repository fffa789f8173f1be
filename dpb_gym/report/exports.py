"""Rows as flat records, data frames, CSV, LaTeX and JSON; the columns are those of `columns`.

Every function takes a leaderboard or one of its tasks and raises a `ParameterError` for anything
else. Files are replaced whole; a file that cannot be written raises an `OSError`.
"""

from __future__ import annotations

import csv
import io
import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dpb_gym.errors import MissingExtraError
from dpb_gym.files import write_text
from dpb_gym.report.columns import columns
from dpb_gym.report.leaderboard_data import LeaderboardData, TaskResult
from dpb_gym.report.tables import board
from dpb_gym.report.templating import TEMPLATES, template

if TYPE_CHECKING:
    import pandas  # type: ignore[import-untyped]


def records(data: LeaderboardData | TaskResult) -> list[dict[str, Any]]:
    """Return one flat dict per row, best first within each task and guarantee.

    All dicts have the same keys; missing values are None. Intervals become three entries, e.g.
    ``regret``, ``regret_low``, ``regret_high``. The budget appears as text and as the numbers
    ``rho``, ``epsilon`` and ``delta``. Curves, parameters and single replicates are in `to_json`.
    """
    rows = [(table.task, line.row) for table in board(data).tasks for line in table.ordered]
    return [
        {k: v for column in columns("records") for k, v in column.entries(task, row).items()}
        for task, row in rows
    ]


def attributes(thing: object, *names: str) -> dict[str, Any]:
    """Return some attributes of an object by name."""
    return {name: getattr(thing, name) for name in names}


def to_frame(data: LeaderboardData | TaskResult) -> pandas.DataFrame:
    """Return the records as a pandas data frame; ``attrs["units"]`` maps columns to units.

    Raises:
        MissingExtraError: pandas is not installed.
    """
    rows = records(data)
    try:
        import pandas
    except ImportError:
        raise MissingExtraError("to_frame needs pandas: pip install pandas") from None
    frame = pandas.DataFrame.from_records(rows)
    frame.attrs["units"] = {
        column.name: column.unit for column in columns("records") if column.unit
    }
    return frame


def to_csv(
    data: LeaderboardData | TaskResult, path: str | os.PathLike[str] | None = None
) -> str | Path:
    """Write the records as CSV. Return the path, or the text if `path` is None."""

    def cell(value: Any) -> Any:
        # A spreadsheet would evaluate a label that begins like a formula.
        return f"'{value}" if isinstance(value, str) and value[:1] in "=+-@" else value

    rows = records(data)
    stream = io.StringIO()
    writer = csv.writer(stream, lineterminator="\n")
    writer.writerows([list(rows[0]), *(map(cell, row.values()) for row in rows)] if rows else [])
    return _written(stream.getvalue(), path)


def to_latex(
    data: LeaderboardData | TaskResult, path: str | os.PathLike[str] | None = None
) -> str | Path:
    """Write one booktabs table per task, the best rows in bold.

    Return the path, or the text if `path` is None. The text needs ``\\usepackage{booktabs}``.
    """
    shown = template(TEMPLATES, "table.tex.j2")
    text = shown.render(board=board(data), columns=list(columns("latex")))
    return _written(text.rstrip("\n") + "\n", path)


def to_json(data: LeaderboardData | TaskResult) -> str:
    """Return the whole leaderboard, curves and parameters included, as strict JSON.

    Each row also contains the columns of `records` that it has no field for.
    """
    tasks = [table.task for table in board(data).tasks]
    document = plain(data)
    for task, written in zip(tasks, document.get("tasks", [document])):
        for row, fields in zip(task.rows, written["rows"]):
            for column in columns("records"):
                if column.name not in fields:
                    fields |= plain(column.entries(task, row))
    return json.dumps(document, indent=2, allow_nan=False)


def plain(value: object) -> Any:
    """Convert a value to strict JSON types; unsupported values become strings.

    NumPy scalars and arrays become numbers and lists. Infinities and NaN become strings.
    """
    from pydantic_core import to_jsonable_python

    def other(item: Any) -> Any:
        return item.tolist() if hasattr(item, "tolist") else str(item)

    return to_jsonable_python(value, fallback=other, inf_nan_mode="strings", bytes_mode="hex")


def _written(text: str, path: str | os.PathLike[str] | None) -> str | Path:
    return text if path is None else write_text(path, text)
