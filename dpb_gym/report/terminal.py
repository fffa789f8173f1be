"""Tables in the terminal, flat records and JSON."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from dpb_gym.errors import ParameterError
from dpb_gym.report.grouping import COMPARISON_NOTE, best_keys, groups
from dpb_gym.report.model import NO_BUDGET, Interval, LeaderboardData, Row, TaskResult
from dpb_gym.report.numerals import decimals, number

if TYPE_CHECKING:
    from rich.console import Console, RenderableType
    from rich.text import Text


def _tasks(data: LeaderboardData | TaskResult) -> tuple[TaskResult, ...]:
    if isinstance(data, LeaderboardData):
        return data.tasks
    if isinstance(data, TaskResult):
        return (data,)
    raise ParameterError(
        f"data must be a LeaderboardData or a TaskResult, got {type(data).__name__}"
    )


def table(data: LeaderboardData | TaskResult, *, console: Console | None = None) -> None:
    """Prints one table per task, rows sorted by regret within each (notion, unit) group.

    Args:
        data: A leaderboard or one of its tasks.
        console: Where to print; the standard output by default.

    Raises:
        ParameterError: `data` is of another type.
    """
    from rich.console import Console

    tasks = _tasks(data)
    console = Console() if console is None else console
    if not tasks:
        console.print("No tasks.")
        return
    for task in tasks:
        console.print(render(task, width=console.width))
    console.print(f"{COMPARISON_NOTE} Regret and score: mean [95% interval].", style="dim")
    for note in getattr(data, "notes", ()):
        console.print(note, style="dim", markup=False)


def render(task: TaskResult, *, width: int = 160) -> RenderableType:
    """Builds the rich renderable of one task.

    Where guarantees would not fit beside the numbers, the table holds letters and a list below
    says what they stand for.

    Args:
        task: What to draw.
        width: Columns of the terminal.

    Returns:
        A heading, a table and perhaps a list, to be printed by a rich console.
    """
    from rich import box
    from rich.console import Group as Stack
    from rich.table import Table
    from rich.text import Text

    heading = Text.assemble(
        ("\n" + task.task, "bold"),
        f"  {task.env_id}  T={task.horizon:,}  {task.replicates} "
        + ("replicate" if task.replicates == 1 else "replicates"),
    )
    if not task.rows:
        return Stack(heading, Text("No results yet.", style="dim"))
    sections = groups(task.rows)
    letters = {} if width >= _WIDE else _letters(row for _, rows in sections for row in rows)
    grid = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False, padding=(0, 1, 0, 0))
    grid.add_column("Agent", overflow="fold", min_width=8)
    grid.add_column("Key" if letters else "Guarantee", overflow="fold", max_width=44)
    score = "Score [95%]" if width >= _NARROW else "Score"
    for title in ("Regret [95%]", score, "Reward", "Rounds/s"):
        grid.add_column(title, justify="right", overflow="fold", no_wrap=width >= 64)
    places = {
        "regret": decimals(row.regret.mean for row in task.rows),
        "reward": decimals(row.reward.mean for row in task.rows),
    }
    best = best_keys(task)
    for _, rows in sections:
        for row in rows:
            guarantee = letters.get(row.guarantee, row.guarantee)
            grid.add_row(*_cells(row, guarantee, places, row.key in best, width))
        grid.add_section()
    lines = [Text(f"{letter}  {said}", style="dim") for said, letter in letters.items()]
    return Stack(heading, grid, *lines)


_WIDE, _NARROW = 140, 100


def _letters(rows: Iterable[Row]) -> dict[str, str]:
    """A letter for each guarantee, in the order of the table: (a), ..., (z), (aa), (ab), ..."""
    result: dict[str, str] = {}
    for row in rows:
        if row.guarantee not in result:
            count, letter = len(result) + 1, ""
            while count:
                count, place = divmod(count - 1, 26)
                letter = chr(ord("a") + place) + letter
            result[row.guarantee] = f"({letter})"
    return result


def _cells(
    row: Row, guarantee: str, places: dict[str, int | None], best: bool, width: int
) -> list[Text]:
    from rich.text import Text

    agent = Text(row.agent, style="bold" if best else "")
    if row.budget != NO_BUDGET:
        agent.append(f" {row.budget}", style="dim")
    return [
        agent,
        Text(guarantee, style="dim"),
        _interval(row.regret, places["regret"], best),
        _interval(row.score, 3, False, short=width < _NARROW),
        Text(number(row.reward.mean, places["reward"])),
        Text(number(row.rounds_per_second)),
    ]


def _interval(
    value: Interval | None, places: int | None, best: bool, *, short: bool = False
) -> Text:
    from rich.text import Text

    if value is None:
        return Text("–", style="dim")
    if short:
        return Text(number(value.mean, places))
    ends = f"[{number(value.low, places)}, {number(value.high, places)}]"
    return Text.assemble((number(value.mean, places), "bold" if best else ""), " ", (ends, "dim"))


def records(data: LeaderboardData | TaskResult) -> list[dict[str, Any]]:
    """Flattens the rows, best first within each task and guarantee.

    Args:
        data: A leaderboard or one of its tasks.

    Returns:
        One flat dict per row with the same keys each; missing values are None. Intervals become
        three entries, e.g. ``regret``, ``regret_low``, ``regret_high``. Curves, parameters and
        probabilities of improvement are left to `to_json`.

    Raises:
        ParameterError: `data` is of another type.
    """
    result = []
    for task in _tasks(data):
        for _, rows in groups(task.rows):
            for row in rows:
                record: dict[str, Any] = {
                    "task": task.task,
                    "env_id": task.env_id,
                    "problem": task.problem,
                    "horizon": task.horizon,
                    "agent": row.agent,
                    "name": row.name,
                    "budget": row.budget,
                    "guarantee": row.guarantee,
                    "notion": row.notion,
                    "unit": row.unit,
                    "replicates": row.replicates,
                }
                for name in ("regret", "iqm_regret", "score", "reward"):
                    value: Interval | None = getattr(row, name)
                    for suffix, part in (("", "mean"), ("_low", "low"), ("_high", "high")):
                        record[name + suffix] = None if value is None else getattr(value, part)
                record["rounds_per_second"] = row.rounds_per_second
                record["clipped"] = row.clipped
                for name in ("claimed", "lower_bound", "verdict"):
                    record[f"audit_{name}"] = None if row.audit is None else row.audit[name]
                result.append(record)
    return result


def to_json(data: LeaderboardData | TaskResult, *, indent: int | None = 2) -> str:
    """Writes everything, curves and parameters included, as strict JSON.

    Args:
        data: A leaderboard or one of its tasks.
        indent: Spaces per level, None for one line.

    Raises:
        ParameterError: `data` is of another type.
    """
    _tasks(data)
    return json.dumps(plain(data), indent=indent, allow_nan=False)


def plain(value: object) -> Any:
    """Reduces a value to what strict JSON can hold; what it cannot becomes its text.

    Parameters come from anywhere: NumPy scalars and arrays become numbers and lists, infinities
    and NaN become text.
    """
    if dataclasses.is_dataclass(value):
        return {f.name: plain(getattr(value, f.name)) for f in dataclasses.fields(value)}
    if value is None or isinstance(value, (bool, str, int)):
        return value
    if isinstance(value, float):
        return value if abs(value) < float("inf") else str(value)
    if isinstance(value, dict):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    if hasattr(value, "tolist"):
        return plain(value.tolist())
    return str(value)
