"""The rows as flat records, data frames, CSV, LaTeX and JSON.

Every function takes a leaderboard or one of its tasks, and raises a `ParameterError` for anything
else; one that writes a file raises an `OSError` where it cannot, and replaces it whole."""

from __future__ import annotations

import csv
import io
import json
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dpb_gym.errors import MissingExtraError
from dpb_gym.files import target, write_whole
from dpb_gym.privacy.budget import Budget
from dpb_gym.report.leaderboard_data import Interval, LeaderboardData, TaskResult
from dpb_gym.report.tables import Table, board

if TYPE_CHECKING:
    import pandas  # type: ignore[import-untyped]


def records(data: LeaderboardData | TaskResult) -> list[dict[str, Any]]:
    """Flattens the rows, best first within each task and guarantee.

    Returns:
        One flat dict per row with the same keys each; missing values are None. Intervals become
        three entries, e.g. ``regret``, ``regret_low``, ``regret_high``; the budget stands as
        text and as the numbers ``rho``, ``epsilon`` and ``delta``. Curves, parameters and
        single replicates are left to `to_json`.
    """
    return [_record(table.task, line.row) for table in board(data).tasks for line in table.ordered]


def _record(task: TaskResult, row: Any) -> dict[str, Any]:
    found: dict[str, Any] = {
        **of(task, "task", "env_id", "problem", "horizon"),
        **of(row, "agent", "name"),
        "budget": Budget.text(row.budget),
        **budget_numbers(row.budget),
        **of(row, "guarantee", "accounting", "notion", "unit", "trust", "tuning", "replicates"),
    }
    found |= {"tuning": row.tuning or None} | ({} if row.private else {"accounting": None})
    for name in ("regret", "iqm_regret", "score", "reward", "lead", "excess"):
        value: Interval | None = getattr(row, name)
        for suffix, part in (("", "mean"), ("_low", "low"), ("_high", "high")):
            found[name + suffix] = None if value is None else getattr(value, part)
    found["rounds_per_second"] = row.rounds_per_second
    for name in ("claimed", "lower_bound", "verdict"):
        found[f"audit_{name}"] = None if row.audit is None else getattr(row.audit, name)
    return found


def of(thing: object, *names: str) -> dict[str, Any]:
    """Some attributes by name."""
    return {name: getattr(thing, name) for name in names}


def budget_numbers(budget: Budget | None) -> dict[str, float | None]:
    """``rho``, ``epsilon`` and ``delta`` of a budget, None where it has none."""
    return {name: getattr(budget, name, None) for name in ("rho", "epsilon", "delta")}


def to_frame(data: LeaderboardData | TaskResult) -> pandas.DataFrame:
    """The records as a pandas data frame.

    Raises:
        MissingExtraError: pandas is not installed.
    """
    rows = records(data)
    try:
        import pandas
    except ImportError:
        raise MissingExtraError("to_frame needs pandas: pip install pandas") from None
    return pandas.DataFrame.from_records(rows)


def to_csv(
    data: LeaderboardData | TaskResult, path: str | os.PathLike[str] | None = None
) -> str | Path:
    """Writes the records as CSV; returns the path, or the text without one."""

    def cell(value: Any) -> Any:
        # A spreadsheet would run a label that begins like a formula.
        return f"'{value}" if isinstance(value, str) and value[:1] in "=+-@" else value

    rows = records(data)
    stream = io.StringIO()
    writer = csv.writer(stream, lineterminator="\n")
    writer.writerows([list(rows[0]), *(map(cell, row.values()) for row in rows)] if rows else [])
    return _written(stream.getvalue(), path)


def to_latex(
    data: LeaderboardData | TaskResult, path: str | os.PathLike[str] | None = None
) -> str | Path:
    """Writes one booktabs table per task: agent, budget, regret, score; the best in bold.

    Returns the path, or the text without one, which needs ``\\usepackage{booktabs}``.
    """
    text = "\n\n".join(_tabular(table) for table in board(data).tasks) + "\n"
    return _written(text, path)


def _tabular(table: Table) -> str:
    lines = [
        r"\begin{tabular}{llrr}",
        r"\toprule",
        rf"\multicolumn{{4}}{{l}}{{{latex(table.name)}}} \\",
        r"Agent & Budget & Regret [95\%] & Score \\",
    ]
    for group, members in table.sections:
        lines += [r"\midrule", rf"\multicolumn{{4}}{{l}}{{\emph{{{latex(group.label)}}}}} \\"]
        for line in members:
            cells = {key: latex(text) for key, text in table.cells(line).items()}
            agent = rf"\textbf{{{cells['agent']}}}" if line.best else cells["agent"]
            regret = rf"\textbf{{{cells['regret']}}}" if line.best else cells["regret"]
            lines.append(
                rf"{agent} & {cells['budget']} & {regret} {cells['regret_ends']} & "
                rf"{cells['score']} \\"
            )
    return "\n".join([*lines, r"\bottomrule", r"\end{tabular}"])


_LATEX = {c: "\\" + c for c in "&%$#_{}"} | {
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "–": "--",
    "\N{MINUS SIGN}": "$-$",
}


def latex(text: str) -> str:
    """Escapes text for LaTeX."""
    return "".join(_LATEX.get(c, c) for c in text)


def to_json(data: LeaderboardData | TaskResult) -> str:
    """Writes everything, curves and parameters included, as strict JSON."""
    board(data)
    return json.dumps(plain(data), indent=2, allow_nan=False)


def plain(value: object) -> Any:
    """Reduces a value to what strict JSON can hold; what it cannot becomes its text.

    Parameters come from anywhere: NumPy scalars and arrays become numbers and lists, infinities
    and NaN become text.
    """
    from pydantic_core import to_jsonable_python

    def other(item: Any) -> Any:
        return item.tolist() if hasattr(item, "tolist") else str(item)

    return to_jsonable_python(value, fallback=other, inf_nan_mode="strings", bytes_mode="hex")


def _written(text: str, path: str | os.PathLike[str] | None) -> str | Path:
    if path is None:
        return text
    destination = target(path)
    write_whole(destination, text.encode("utf-8", errors="replace"))
    return destination
