"""Tables in the terminal, flat records and JSON."""

from __future__ import annotations

import dataclasses
import json
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
        console.print(render(task))
    console.print(f"{COMPARISON_NOTE} Regret and score: mean [95% interval].", style="dim")


def render(task: TaskResult) -> RenderableType:
    """Builds the rich renderable of one task.

    Args:
        task: What to draw.

    Returns:
        A heading and a table, to be printed by a rich console.
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
    grid = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False, padding=(0, 1))
    grid.add_column("Agent", overflow="fold", min_width=8)
    grid.add_column("Guarantee", overflow="fold", min_width=11)
    for title in ("Regret [95%]", "Score [95%]", "Reward", "Rounds/s"):
        grid.add_column(title, justify="right", overflow="fold")
    places = {
        "regret": decimals(row.regret.mean for row in task.rows),
        "reward": decimals(row.reward.mean for row in task.rows),
    }
    best = best_keys(task)
    sections = groups(task.rows)
    for group, rows in sections:
        if len(sections) > 1:
            grid.add_row(Text(group.label, style="italic cyan"))
        for row in rows:
            grid.add_row(*_cells(row, places, row.key in best))
        grid.add_section()
    return Stack(heading, grid)


def _cells(row: Row, places: dict[str, int | None], best: bool) -> list[Text]:
    from rich.text import Text

    agent = Text(row.agent, style="bold" if best else "")
    if row.budget != NO_BUDGET:
        agent.append(f" {row.budget}", style="dim")
    return [
        agent,
        Text(row.guarantee, style="dim"),
        _interval(row.regret, places["regret"], best),
        _interval(row.score, 3, False),
        Text(number(row.reward.mean, places["reward"])),
        Text(number(row.rounds_per_second)),
    ]


def _interval(value: Interval | None, places: int | None, best: bool) -> Text:
    from rich.text import Text

    if value is None:
        return Text("–", style="dim")
    ends = f"[{number(value.low, places)}, {number(value.high, places)}]"
    return Text.assemble(
        (number(value.mean, places), "bold" if best else ""), " ", (ends, "dim")
    )


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
