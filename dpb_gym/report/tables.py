"""A leaderboard as tables: which rows are compared, in which order, and the text of each cell.

The terminal, notebooks, pages, figures, records and files are all drawn from a `Board`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from dpb_gym.errors import ParameterError
from dpb_gym.privacy.budget import Budget
from dpb_gym.report.columns import COLUMNS, Place, ResultColumn, columns
from dpb_gym.report.comparison_groups import (
    TUNED_SUFFIX,
    Group,
    budget_order,
    contests,
    group_of,
    short,
)
from dpb_gym.report.leaderboard_data import (
    Interval,
    LeaderboardData,
    Row,
    TaskResult,
    TrackResult,
    TrackRow,
)
from dpb_gym.report.number_format import decimals, number
from dpb_gym.report.palette import shade

EMPHASISED = ("agent", "regret")
"""Columns set in bold where a row is the best of several."""


@dataclass(frozen=True)
class Line:
    """A row of a table.

    Attributes:
        row: The row.
        number: Number of its agent on the whole board, None for references.
        strength: Opacity of its curve in (0, 1]; lower for smaller budgets of an agent.
        rivals: Number of rows compared, if it is the best at its notion, unit and budget; else 0.
        complete: Whether it has results on every task of the table.
    """

    row: Row | TrackRow
    number: int | None
    strength: float
    rivals: int
    complete: bool

    @property
    def best(self) -> bool:
        """Whether it is the best of at least two rows."""
        return self.rivals > 1

    @property
    def group(self) -> Group:
        """Group that the row is compared in."""
        return group_of(self.row)

    @property
    def colour(self) -> tuple[str, str]:
        """Hex colours for the light and the dark theme."""
        return shade(self.number)

    @property
    def label(self) -> str:
        """The agent's label, with the budget unless the label contains it."""
        row = self.row
        named = row.budget is None or str(row.budget) in row.agent or short(row.budget) in row.agent
        return row.agent if named else f"{row.agent} {row.budget}"

    @property
    def stroke(self) -> str:
        """Line style: solid or, tuned, dash-dotted with a guarantee; dashed without."""
        if self.row.private:
            return "dashdot" if self.row.agent != base_label(self.row.agent) else "solid"
        return "dotted" if self.row.name == "oracle" else "dashed"


@dataclass(frozen=True)
class Table:
    """The table of a task or a track.

    Attributes:
        source: The task or track.
        lines: One per row of the source, in its order.
    """

    source: TaskResult | TrackResult
    lines: tuple[Line, ...]

    @property
    def task(self) -> TaskResult:
        """The source, for the table of a task."""
        assert isinstance(self.source, TaskResult)
        return self.source

    @property
    def name(self) -> str:
        """Name of the task or track."""
        return self.source.track if isinstance(self.source, TrackResult) else self.source.task

    @property
    def title(self) -> str:
        """Heading for readers."""
        return self.source.title if isinstance(self.source, TrackResult) else self.source.task

    @cached_property
    def sections(self) -> list[tuple[Group, list[Line]]]:
        """Lines by group, best first within each group; the non-private group is last.

        Rows of one agent at one budget, defaults and tuned, are adjacent.
        """

        def order(line: Line) -> tuple[bool, float, str]:
            return (not line.complete, line.row.loss.mean, line.row.key)

        families: dict[Group, dict[Any, list[Line]]] = {}
        for line in sorted(self.lines, key=order):
            family = (line.complete, line.row.name, line.row.budget)
            families.setdefault(line.group, {}).setdefault(family, []).append(line)
        return [
            (group, [line for family in families[group].values() for line in family])
            for group in sorted(families, key=lambda group: group.rank)
        ]

    @cached_property
    def ordered(self) -> list[Line]:
        """All lines in the order of the sections."""
        return [line for _, lines in self.sections for line in lines]

    @cached_property
    def places(self) -> dict[str, int | None]:
        """Decimals by column that shows numbers; see `ResultColumn.decimals`."""
        by_name = {column.name: column for column in COLUMNS}

        def shared(name: str) -> int | None:
            values = (by_name[name].of(self.source, row) for row in self.source.rows)
            return decimals(v.mean if isinstance(v, Interval) else float(v) for v in values if v)

        return {
            column.name: shared(column.decimals)
            if isinstance(column.decimals, str)
            else column.decimals
            for column in COLUMNS
            if column.is_numeric
        }

    @property
    def rival(self) -> Line | None:
        """The best non-private line: the baseline of private ones."""
        best = (line for line in self.ordered if line.rivals and line.row.budget is None)
        return next((line for line in best if not line.row.private), None)

    def styled(self, line: Line, place: Place) -> Iterator[tuple[ResultColumn, str, str, bool]]:
        """Yield the columns of a place: text, ends of an interval, and whether it is in bold."""
        for column in columns(place):
            value, ends = column.of(self.source, line.row), ""
            if column.is_numeric:
                places = self.places[column.name]
                if isinstance(value, Interval):
                    if value.bounded:
                        ends = f"[{number(value.low, places)}, {number(value.high, places)}]"
                    value = value.mean
                text = number(value, places)  # type: ignore[arg-type]
            else:
                text = "–" if value is None else str(value)
            yield column, text, ends, line.best and column.name in EMPHASISED


@dataclass(frozen=True)
class Board:
    """The tables of a whole leaderboard.

    Attributes:
        title: Heading, empty for a single task.
        tasks: One table per task.
        tracks: One table per track.
        notes: Distinct remarks, printed below the tables.
    """

    title: str
    tasks: tuple[Table, ...]
    tracks: tuple[Table, ...]
    notes: tuple[str, ...]

    @property
    def parts(self) -> list[Table]:
        """Tables of each track followed by those of its tasks; tasks without a track last."""
        members: dict[str, list[Table]] = {track.name: [track] for track in self.tracks}
        for task in self.tasks:
            members.setdefault(task.source.track, []).append(task)
        return [table for tables in members.values() for table in tables]


def board(data: LeaderboardData | TaskResult) -> Board:
    """Return the tables of a leaderboard or of one task.

    Raises:
        ParameterError: `data` is of another type.
    """
    if isinstance(data, LeaderboardData):
        title, notes, tasks, tracks = data.title, data.notes, data.tasks, data.tracks
    elif isinstance(data, TaskResult):
        title, notes, tasks, tracks = "", (), (data,), ()
    else:
        raise ParameterError(
            f"data must be a LeaderboardData or a TaskResult, got {type(data).__name__}"
        )
    standings = {one.name: one.standing for one in getattr(data, "origins", ())}
    numbers = _numbers(tasks, standings)
    shown = tuple(_table(task, numbers) for task in tasks)
    grouped = tuple(_table(track, numbers) for track in tracks)
    return Board(title, shown, grouped, tuple(dict.fromkeys(notes)))


def base_label(agent: str) -> str:
    """Return a label without " (tuned)", so that an agent has one colour under both rulings."""
    return agent.removesuffix(TUNED_SUFFIX)


def _numbers(tasks: Sequence[TaskResult], standings: Mapping[str, str]) -> dict[str, int]:
    """Return the number of each agent's colour: the least that no agent of its tasks has.

    This project's agents come first, then those of the reproduced papers.
    """
    played: dict[str, list[str]] = {}
    names: dict[str, str] = {}
    for task in tasks:
        for row in (row for row in task.rows if not row.reference):
            played.setdefault(base_label(row.agent), []).append(task.task)
            names.setdefault(base_label(row.agent), row.name)
    rank = {"ours": 0, "paper": 1}
    order = sorted(played, key=lambda agent: rank.get(standings.get(names[agent], ""), 2))
    numbers: dict[str, int] = {}
    taken: dict[str, set[int]] = {task.task: set() for task in tasks}
    for agent in order:
        used = set().union(*(taken[name] for name in played[agent]))
        numbers[agent] = next(n for n in range(len(used) + 1) if n not in used)
        for name in played[agent]:
            taken[name].add(numbers[agent])
    return numbers


def _table(source: TaskResult | TrackResult, numbers: Mapping[str, int]) -> Table:
    rows: Sequence[Row | TrackRow] = source.rows
    needed = set(source.tasks) if isinstance(source, TrackResult) else set()
    families: dict[str, list[Budget | None]] = {}
    for row in sorted(rows, key=lambda row: budget_order(row.budget)):
        families.setdefault(row.agent, []).append(row.budget)
    complete = {row.key for row in rows if needed <= set(getattr(row, "tasks", ()))}
    ranked = contests([row for row in rows if row.key in complete])
    rivals = {contest[0].key: len(contest) for contest in ranked.values()}

    def line(row: Row | TrackRow) -> Line:
        family = families[row.agent]
        below = len(family) - 1 - family.index(row.budget)
        strength = 1.0 - 0.6 * below / max(2, len(family) - 1)
        behind = rivals.get(row.key, 0)
        return Line(row, numbers.get(base_label(row.agent)), strength, behind, row.key in complete)

    return Table(source, tuple(map(line, rows)))
