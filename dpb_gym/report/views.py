"""The one view of a leaderboard: which rows are compared, in which order, and how they read.

Tables in the terminal, pages, figures, records and files are all drawn from a `Board`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from dpb_gym.errors import ParameterError
from dpb_gym.privacy.budget import Budget
from dpb_gym.report.groups import (
    Group,
    budget_order,
    contests,
    group_of,
    scale_of,
    short,
)
from dpb_gym.report.model import (
    Entry,
    Interval,
    LeaderboardData,
    Row,
    TaskResult,
    TrackResult,
    TrackRow,
)
from dpb_gym.report.numerals import decimals, number
from dpb_gym.report.palette import shade


@dataclass(frozen=True)
class Line:
    """A row as it is shown.

    Attributes:
        row: The row.
        number: Number of its agent on the whole board, None for references.
        strength: In (0, 1]: the weaker the budget of an agent, the fainter its curve.
        won: Whether it is the first at its notion, unit and budget.
        best: Whether it won against at least one other.
        complete: Whether it has results wherever its rivals have.
    """

    row: Row | TrackRow
    number: int | None
    strength: float
    won: bool
    best: bool
    complete: bool

    @property
    def group(self) -> Group:
        """What the row is compared in."""
        return group_of(self.row)

    @property
    def colour(self) -> tuple[str, str]:
        """Shades for the light and the dark theme."""
        return shade(self.number)

    @property
    def label(self) -> str:
        """Its label, and its budget unless the label says it already."""
        row = self.row
        said = row.budget is None or str(row.budget) in row.agent or short(row.budget) in row.agent
        return row.agent if said else f"{row.agent} {row.budget}"

    @property
    def stroke(self) -> str:
        """Line style: solid with a guarantee, dashed without, dotted for the oracle."""
        if self.row.private:
            return "solid"
        return "dotted" if self.row.name == "oracle" else "dashed"

    @property
    def said(self) -> str:
        """What it reached, in words: its regret or its score."""
        if isinstance(self.row, Row):
            return f"regret {number(self.row.regret.mean)}"
        return f"score {number(self.row.score.mean, 3)}"


@dataclass(frozen=True)
class Table:
    """A task or a track as it is shown.

    Attributes:
        source: The task or track.
        lines: One per row, in the given order.
    """

    source: TaskResult | TrackResult
    lines: tuple[Line, ...]

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
        """Lines by guarantee, best first within each; non-private last."""
        found: dict[Group, list[Line]] = {}
        for line in self.lines:
            found.setdefault(line.group, []).append(line)
        for lines in found.values():
            lines.sort(key=lambda line: (not line.complete, line.row.loss.mean, line.row.key))
        ranked = sorted(found, key=lambda group: group.rank)
        return [(group, _families(found[group])) for group in ranked]

    @cached_property
    def ordered(self) -> list[Line]:
        """All lines in the order of the sections."""
        return [line for _, lines in self.sections for line in lines]

    @cached_property
    def places(self) -> dict[str, int | None]:
        """Decimals of the columns."""
        rows = [line.row for line in self.lines if isinstance(line.row, Row)]
        return {
            "regret": decimals(row.regret.mean for row in rows),
            "reward": decimals(row.reward.mean for row in rows),
            "score": 3,
        }

    @cached_property
    def winners(self) -> dict[tuple[Group, Budget | None], Line]:
        """The best complete line of each notion, unit and budget."""
        return {(line.group, line.row.budget): line for line in self.ordered if line.won}

    @property
    def scales(self) -> set[str]:
        """The scales of the budgets of its winners."""
        return {scale_of(budget) for _, budget in self.winners if budget is not None}

    @property
    def rival(self) -> Line | None:
        """The best non-private line, which is what privacy is measured against."""
        return self.winners.get((Group(None, None), None))

    def cells(self, line: Line) -> dict[str, str]:
        """The text of each column of a task's line."""
        row = line.row
        assert isinstance(row, Row)
        result = {
            "agent": row.agent,
            "budget": Budget.text(row.budget),
            "guarantee": row.guarantee,
            "speed": number(row.rounds_per_second),
            "audit": "" if row.audit is None else row.audit.verdict,
        }
        for name in ("regret", "score", "reward"):
            value: Interval | None = getattr(row, name)
            places = self.places[name]
            result[name] = number(None if value is None else value.mean, places)
            if value is not None:
                result[f"{name}_ends"] = ends(value, places)
        return result


def _families(lines: Sequence[Line]) -> list[Line]:
    """The same order, but rows of one agent at one budget stand together: defaults and tuned."""
    found: dict[Any, list[Line]] = {}
    for line in lines:
        found.setdefault((line.complete, line.row.name, line.row.budget), []).append(line)
    return [line for family in found.values() for line in family]


def ends(value: Interval, places: int | None = None) -> str:
    """The ends of an interval as text."""
    return f"[{number(value.low, places)}, {number(value.high, places)}]"


@dataclass(frozen=True)
class Win:
    """Who won at one guarantee and budget.

    Attributes:
        line: The winner.
        ratio: Its regret in units of that of the best non-private agent, None without one.
        verdict: ``"clear lead"`` if the interval of the lead is above 0, ``"close"`` if not,
            ``"alone"`` without a rival, empty with too few replicates to say.
    """

    line: Line
    ratio: float | None
    verdict: str

    @property
    def mark(self) -> str:
        """The verdict in one word."""
        return self.verdict.split()[0] if self.verdict else "unsaid"


@dataclass(frozen=True)
class MatrixRow:
    """The winners of one task or track at one guarantee, one per budget."""

    table: Table
    group: Group
    wins: tuple[Win | None, ...]


@dataclass(frozen=True)
class Matrix:
    """Winners by task and budget, on one scale of budgets.

    Attributes:
        scale: See `scale_of`; empty if no row has a budget.
        budgets: The columns, increasing.
        rows: Each track before its tasks.
    """

    scale: str
    budgets: tuple[Budget, ...]
    rows: tuple[MatrixRow, ...]


@dataclass(frozen=True)
class Board:
    """A whole leaderboard as it is shown.

    Attributes:
        data: What was given.
        tasks: One table per task.
        tracks: One table per track.
    """

    data: LeaderboardData | TaskResult
    tasks: tuple[Table, ...]
    tracks: tuple[Table, ...]

    @property
    def title(self) -> str:
        """Heading, empty for a lone task."""
        return self.data.title if isinstance(self.data, LeaderboardData) else ""

    @property
    def parts(self) -> list[tuple[Table | None, list[Table]]]:
        """Each track with its tasks, then the tasks without one."""
        found: list[tuple[Table | None, list[Table]]] = [
            (track, [task for task in self.tasks if task.source.track == track.name])
            for track in self.tracks
        ]
        loose = [task for task in self.tasks if not task.source.track]
        return [*found, *([(None, loose)] if loose else [])]

    @cached_property
    def matrices(self) -> list[Matrix]:
        """The winners, one matrix per scale of budgets."""
        tables = [
            table for track, tasks in self.parts for table in ([track] if track else []) + tasks
        ]
        scales = list(dict.fromkeys(s for table in tables for s in sorted(table.scales)))
        found = []
        for scale in scales or [""]:
            held = [table for table in tables if scale in table.scales or not scale]
            budgets = {
                b for t in held for _, b in t.winners if b is not None and scale_of(b) == scale
            }
            columns = tuple(sorted(budgets, key=budget_order))
            rows = [
                MatrixRow(table, group, tuple(_win(table, group, b) for b in columns))
                for table in held
                for group in dict.fromkeys(group for group, _ in table.winners)
                if group.notion is not None or not scale
            ]
            found.append(
                Matrix(scale, columns, tuple(row for row in rows if any(row.wins) or not scale))
            )
        return found

    @property
    def notes(self) -> list[str]:
        """What is said below the numbers, each remark once."""
        remarks = self.data.notes if isinstance(self.data, LeaderboardData) else ()
        return list(dict.fromkeys(remarks))


def tasks_of(data: LeaderboardData | TaskResult) -> Sequence[TaskResult]:
    """The tasks of a leaderboard, or the one task that was given.

    Raises:
        ParameterError: `data` is of another type.
    """
    if isinstance(data, LeaderboardData):
        return data.tasks
    if isinstance(data, TaskResult):
        return (data,)
    raise ParameterError(
        f"data must be a LeaderboardData or a TaskResult, got {type(data).__name__}"
    )


def _win(table: Table, group: Group, budget: Budget) -> Win | None:
    line, rival = table.winners.get((group, budget)), table.rival
    if line is None:
        return None
    lead, base = line.row.lead, 0.0 if rival is None else rival.row.loss.mean
    verdict = "alone"
    if line.best:
        verdict = "" if lead is None else "clear lead" if lead.low > 0 else "close"
    return Win(line, line.row.loss.mean / base if base > 0 else None, verdict)


def board(data: LeaderboardData | TaskResult) -> Board:
    """Builds the view of a leaderboard or of one task.

    Raises:
        ParameterError: `data` is of another type.
    """
    tasks = tasks_of(data)
    tracks = data.tracks if isinstance(data, LeaderboardData) else ()
    numbers: dict[str, int] = {}
    for row in (row for task in tasks for row in task.rows):
        if not row.reference:
            numbers.setdefault(row.agent, len(numbers))
    return Board(
        data,
        tuple(_table(task, task.rows, numbers, ()) for task in tasks),
        tuple(_table(track, track.rows, numbers, track.tasks) for track in tracks),
    )


def _table(
    source: TaskResult | TrackResult,
    rows: Sequence[Row | TrackRow],
    numbers: dict[str, int],
    needed: Sequence[str],
) -> Table:
    families: dict[str, list[Budget | None]] = {}
    for row in sorted(rows, key=lambda row: budget_order(row.budget)):
        families.setdefault(row.agent, []).append(row.budget)
    complete = [isinstance(row, Row) or len(row.tasks) == len(needed) for row in rows]
    ranked = contests(row for row, whole in zip(rows, complete) if whole)  # type: ignore[type-var]
    rivals = {found[0].key: len(found) for found in ranked.values()}

    def strength(row: Entry) -> float:
        family = families[row.agent]
        below = len(family) - 1 - family.index(row.budget)
        return 1.0 - 0.6 * below / max(2, len(family) - 1)

    return Table(
        source,
        tuple(
            Line(
                row,
                numbers.get(row.agent),
                strength(row),
                row.key in rivals,
                rivals.get(row.key, 0) > 1,
                whole,
            )
            for row, whole in zip(rows, complete)
        ),
    )
