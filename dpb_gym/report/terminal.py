"""Tables in the terminal."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import count, product
from string import ascii_lowercase
from typing import TYPE_CHECKING

from dpb_gym.report.columns import ResultColumn, columns
from dpb_gym.report.comparison_groups import COMPARISON_NOTE
from dpb_gym.report.leaderboard_data import LeaderboardData, Row, TaskResult
from dpb_gym.report.tables import Line, Table, base_label, board

if TYPE_CHECKING:
    from rich.console import Console, RenderableType
    from rich.text import Text

_WIDE, _NARROW, _FOLDING = 140, 100, 64
_LEAST = 8
"""Least width of a column of text. Numbers are not folded from `_FOLDING` on."""
MOST = 20
"""Most rows of one guarantee in a table; the others are counted."""


def table(data: LeaderboardData | TaskResult, *, console: Console | None = None) -> None:
    """Print one table per task, rows sorted by regret within each (notion, unit) group.

    At most `MOST` rows of a guarantee are printed; the page and the records contain all. Where the
    console is too narrow, the last columns of numbers are left out, and a line names them.

    Args:
        data: A leaderboard or one of its tasks.
        console: Where to print; the standard output by default.

    Raises:
        ParameterError: `data` is of another type.
    """
    from rich.console import Console

    shown = board(data)
    console = Console() if console is None else console
    if not shown.tasks:
        console.print("No tasks.")
        return
    for task in shown.tasks:
        console.print(_render(task, console.width))
    console.print(f"{COMPARISON_NOTE} Regret and score: mean [95% interval].", style="dim")
    agents = {row.agent for task in shown.tasks for row in task.task.rows}
    if any(base_label(agent) != agent for agent in agents):
        text = (
            "Rows of an agent with defaults and (tuned) stand together, by the better of the two."
        )
        console.print(text, style="dim", markup=False)
    for note in shown.notes:
        console.print(note, style="dim", markup=False)


def _render(shown: Table, width: int) -> RenderableType:
    """Return a heading and the table of a task.

    If `width` is too small for guarantees, the table has letters and a list below explains them.
    """
    from rich import box
    from rich.console import Group as Stack
    from rich.table import Table as Grid
    from rich.text import Text

    task = shown.task
    heading = Text.assemble(
        ("\n" + task.task, "bold"),
        f"  {task.env_id}  T={task.horizon:,}  {task.replicates} replicate",
        "s"[: task.replicates != 1],
    )
    if not task.rows:
        return Stack(heading, Text("No results yet.", style="dim"))
    sections = [lines[:MOST] for _, lines in shown.sections]
    guarantees = [x.row.guarantee for xs in sections for x in xs if isinstance(x.row, Row)]
    letters = {} if width >= _WIDE else _letters(guarantees)
    grid = Grid(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False, padding=(0, 1, 0, 0))
    rows = [[_cells(shown, line, letters, width) for line in lines] for lines in sections]
    kept, left_out = _fitting([cells for row in rows for cells in row], width)
    for column in kept:
        if column.is_numeric:
            title = _title(column, width)
            grid.add_column(title, justify="right", overflow="fold", no_wrap=width >= _FOLDING)
        elif column.kind == "guarantee":
            grid.add_column("Key" if letters else column.title, overflow="fold", max_width=44)
        else:
            grid.add_column(column.title, overflow="fold", min_width=_LEAST)
    for (_, every), lines in zip(shown.sections, rows):
        for cells in lines:
            grid.add_row(*(cells[column.name] for column in kept))
        if len(every) > len(lines):
            more = f"and {len(every) - len(lines):,} more: see the page (--html)"
            grid.add_row(Text(more, style="dim"))
        grid.add_section()
    key = [Text(f"{letter}  {guarantee}", style="dim") for guarantee, letter in letters.items()]
    if left_out:
        names = ", ".join(column.title for column in left_out)
        key.append(Text(f"Columns left out at a width of {width}: {names}", style="dim"))
    return Stack(heading, grid, *key)


def _fitting(
    rows: list[dict[str, Text]], width: int
) -> tuple[list[ResultColumn], list[ResultColumn]]:
    """Return the columns that fit, and those left out: the last columns of numbers."""
    kept, needed, left_out = list(columns("terminal")), {}, list[ResultColumn]()
    for column in kept:
        longest = max(cells[column.name].cell_len for cells in rows)
        wide = max(longest, len(_title(column, width)))
        needed[column.name] = wide if column.is_numeric else min(_LEAST, longest)
    for column in reversed(kept[:]):
        fits = sum(needed[other.name] + 2 for other in kept) - 2 <= width
        if not fits and width >= _FOLDING and column.is_numeric and column.name != "regret":
            kept.remove(column)
            left_out.insert(0, column)
    return kept, left_out


def _title(column: ResultColumn, width: int) -> str:
    return f"{column.title} [95%]" if _has_ends(column, width) else column.title


def _has_ends(column: ResultColumn, width: int) -> bool:
    return column.kind == "interval" or (column.kind == "score" and width >= _NARROW)


def _letters(guarantees: Iterable[str]) -> dict[str, str]:
    """Return a letter for each guarantee, in order: (a), ..., (z), (aa), (ab), ..."""
    names = ("".join(word) for size in count(1) for word in product(ascii_lowercase, repeat=size))
    return {text: f"({name})" for text, name in zip(dict.fromkeys(guarantees), names)}


def _cells(shown: Table, line: Line, letters: dict[str, str], width: int) -> dict[str, Text]:
    """Return the cells of a row by the names of their columns."""
    from rich.text import Text

    cells = {}
    for column, text, ends, bold in shown.styled(line, "terminal"):
        if column.kind == "guarantee":
            cells[column.name] = Text(letters.get(text, text), style="dim")
            continue
        cell = Text(text, style="bold" if bold else "")
        if column.kind == "agent" and line.row.budget is not None:
            cell.append(f" {line.row.budget}", style="dim")
        if _has_ends(column, width) and ends:
            cell.append(f" {ends}", "dim")
        cells[column.name] = cell
    return cells
