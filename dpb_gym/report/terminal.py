"""Tables in the terminal."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import count, product
from string import ascii_lowercase
from typing import TYPE_CHECKING

from dpb_gym.report.comparison_groups import COMPARISON_NOTE
from dpb_gym.report.leaderboard_data import LeaderboardData, Row, TaskResult
from dpb_gym.report.tables import Line, Table, board

if TYPE_CHECKING:
    from rich.console import Console, RenderableType
    from rich.text import Text

_WIDE, _NARROW = 140, 100
MOST = 40
"""Rows of one guarantee in a table; the rest is counted."""


def table(data: LeaderboardData | TaskResult, *, console: Console | None = None) -> None:
    """Prints one table per task, rows sorted by regret within each (notion, unit) group.

    Of one guarantee's rows it shows the best `MOST`; the page and the records hold all.

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
    for note in shown.notes:
        console.print(note, style="dim", markup=False)


def _render(shown: Table, width: int) -> RenderableType:
    """A heading, the table of a task, and perhaps a list.

    Where guarantees would not fit beside the numbers in `width` columns, the table holds letters
    and the list says what they stand for.
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
    said = [x.row.guarantee for lines in sections for x in lines if isinstance(x.row, Row)]
    letters = {} if width >= _WIDE else _letters(said)
    grid = Grid(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False, padding=(0, 1, 0, 0))
    grid.add_column("Agent", overflow="fold", min_width=8)
    grid.add_column("Key" if letters else "Guarantee", overflow="fold", max_width=44)
    score = "Score [95%]" if width >= _NARROW else "Score"
    for title in ("Regret [95%]", score, "Reward", "Rounds/s"):
        grid.add_column(title, justify="right", overflow="fold", no_wrap=width >= 64)
    for (_, every), lines in zip(shown.sections, sections):
        for line in lines:
            grid.add_row(*_cells(shown, line, letters, width))
        if len(every) > len(lines):
            grid.add_row(Text(f"and {len(every) - len(lines):,} more", style="dim"))
        grid.add_section()
    key = [Text(f"{letter}  {guarantee}", style="dim") for guarantee, letter in letters.items()]
    return Stack(heading, grid, *key)


def _letters(guarantees: Iterable[str]) -> dict[str, str]:
    """A letter for each guarantee, in the order of the table: (a), ..., (z), (aa), (ab), ..."""
    names = ("".join(word) for size in count(1) for word in product(ascii_lowercase, repeat=size))
    return {said: f"({name})" for said, name in zip(dict.fromkeys(guarantees), names)}


def _cells(shown: Table, line: Line, letters: dict[str, str], width: int) -> list[Text]:
    from rich.text import Text

    cells = shown.cells(line)
    bold = "bold" if line.best else ""
    agent = Text(cells["agent"], style=bold)
    if line.row.budget is not None:
        agent.append(f" {cells['budget']}", style="dim")
    parts = {name: Text(cells[name], bold if name == "regret" else "") for name in _NUMBERS}
    for name in ("regret", *(("score",) if width >= _NARROW else ())):
        parts[name].append(f" {cells[f'{name}_ends']}" if f"{name}_ends" in cells else "", "dim")
    guarantee = letters.get(cells["guarantee"], cells["guarantee"])
    return [agent, Text(guarantee, style="dim"), *parts.values()]


_NUMBERS = ("regret", "score", "reward", "speed")
