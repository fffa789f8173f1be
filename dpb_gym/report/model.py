"""What a leaderboard is made of: plain, frozen, validated data.

The report room draws these and nothing else. Whoever stores results builds them, so the tables,
plots and pages do not know how results are kept.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, TypeAlias

from dpb_gym.errors import ParameterError
from dpb_gym.report.fields import (
    NO_BUDGET,
    Interval,
    check_interval,
    count,
    instances,
    mapping,
    number,
    probabilities,
    row_key,
    text,
)
from dpb_gym.report.tracks import TrackResult, TrackRow

__all__ = [
    "NO_BUDGET",
    "PROBLEMS",
    "CurvePoint",
    "Interval",
    "LeaderboardData",
    "Row",
    "TaskResult",
    "TrackResult",
    "TrackRow",
]

PROBLEMS: tuple[str, ...] = ("assortment", "pricing", "recommendation")
CurvePoint: TypeAlias = tuple[int, float, float, float]


@dataclass(frozen=True)
class Row:
    """One agent at one budget on one task.

    Attributes:
        agent: Display label.
        name: Registered agent name.
        budget: What was asked for, e.g. ``"rho=1"``, or ``"none"``.
        guarantee: What was spent, in one line; ``"non-private"`` when nothing is promised.
        notion: Protected output (``"joint"``, ``"anticipating"``, ``"central"``, ``"local"``),
            or None.
        unit: Protected unit (``"user-round"``, ``"reward"``, ``"user"``), None exactly when
            `notion` is.
        regret: Cumulative pseudo-regret at the horizon.
        iqm_regret: Its interquartile mean over replicates.
        score: Normalised score, random = 0 and oracle = 1.
        reward: Cumulative reward at the horizon.
        rounds_per_second: Speed, positive.
        curve: Points (round, mean, low, high) of the cumulative pseudo-regret, rounds increasing.
        params: Agent parameters.
        clipped: Number of records that a releaser clipped.
        audit: ``claimed`` and ``lower_bound`` (epsilon, at least 0) and ``verdict`` (text).
        replicates: Number of replicates, at least 1.
        improvement: Probability that this row beats another one, by the other row's `key`.

    Raises:
        ParameterError: A field is of another type or outside its range.
    """

    agent: str
    name: str
    budget: str
    guarantee: str
    notion: str | None
    unit: str | None
    regret: Interval
    iqm_regret: Interval | None
    score: Interval | None
    reward: Interval
    rounds_per_second: float | None
    curve: tuple[CurvePoint, ...]
    params: Mapping[str, Any] = field(default_factory=dict)
    clipped: int | None = None
    audit: Mapping[str, Any] | None = None
    replicates: int = 1
    improvement: Mapping[str, float] | None = None

    def __post_init__(self) -> None:
        for name in ("agent", "name", "budget", "guarantee"):
            text(getattr(self, name), f"Row.{name}")
        if (self.notion is None) != (self.unit is None):
            raise ParameterError(
                f"Row.notion and Row.unit are both text or both None, "
                f"got {self.notion!r} and {self.unit!r}"
            )
        if self.notion is not None:
            text(self.notion, "Row.notion")
            text(self.unit, "Row.unit")
        check_interval(self.regret, "Row.regret", optional=False)
        check_interval(self.reward, "Row.reward", optional=False)
        check_interval(self.iqm_regret, "Row.iqm_regret", optional=True)
        check_interval(self.score, "Row.score", optional=True)
        if self.rounds_per_second is not None:
            speed = number(self.rounds_per_second, "Row.rounds_per_second")
            if speed <= 0:
                raise ParameterError(f"Row.rounds_per_second must be positive, got {speed}")
            object.__setattr__(self, "rounds_per_second", speed)
        object.__setattr__(self, "curve", _curve(self.curve))
        object.__setattr__(self, "params", mapping(self.params, "Row.params"))
        if self.clipped is not None:
            object.__setattr__(self, "clipped", count(self.clipped, "Row.clipped", least=0))
        if self.audit is not None:
            object.__setattr__(self, "audit", _audit(self.audit))
        object.__setattr__(self, "replicates", count(self.replicates, "Row.replicates", least=1))
        if self.improvement is not None:
            object.__setattr__(self, "improvement", probabilities(self.improvement))

    @property
    def key(self) -> str:
        """Names the row within its task: the label, and the budget where there is one."""
        return row_key(self.agent, self.budget)

    @property
    def private(self) -> bool:
        """Whether the row promises anything."""
        return self.notion is not None


def _curve(points: object) -> tuple[CurvePoint, ...]:
    if isinstance(points, str) or not isinstance(points, Iterable):
        raise ParameterError(f"Row.curve must hold (round, mean, low, high), got {points!r}")
    curve: list[CurvePoint] = []
    for point in points:
        try:
            t, mean, low, high = point
        except (TypeError, ValueError) as error:
            raise ParameterError(
                f"Row.curve must hold (round, mean, low, high), got {point!r}"
            ) from error
        t = count(t, "a round of Row.curve", least=0)
        if curve and t <= curve[-1][0]:
            raise ParameterError(f"rounds of Row.curve must increase, got {curve[-1][0]} then {t}")
        band = Interval(mean, low, high)
        curve.append((t, band.mean, band.low, band.high))
    return tuple(curve)


def _audit(value: object) -> dict[str, Any]:
    audit = mapping(value, "Row.audit")
    if set(audit) != {"claimed", "lower_bound", "verdict"}:
        raise ParameterError(
            f"Row.audit must hold claimed, lower_bound and verdict, got {sorted(audit)}"
        )
    for key in ("claimed", "lower_bound"):
        audit[key] = number(audit[key], f"Row.audit[{key!r}]")
        if audit[key] < 0:
            raise ParameterError(f"Row.audit[{key!r}] must be at least 0, got {audit[key]}")
    text(audit["verdict"], "Row.audit['verdict']")
    return audit


@dataclass(frozen=True)
class TaskResult:
    """All rows of one task.

    Attributes:
        task: Name within the suite, e.g. ``"assortment-clip"``.
        env_id: Gymnasium id.
        problem: One of `PROBLEMS`.
        description: One or two sentences, may be empty.
        horizon: T, at least 1.
        replicates: Replicates asked for, at least 1.
        normalisation: ``random`` and ``oracle``: mean cumulative reward that scores 0 and 1.
        rows: Rows with distinct keys.
        track: Name of its track, empty if it has none.

    Raises:
        ParameterError: A field is of another type or outside its range, two rows share a key,
            or a row's `improvement` names no other row.
    """

    task: str
    env_id: str
    problem: str
    description: str
    horizon: int
    replicates: int
    normalisation: Mapping[str, float] | None
    rows: tuple[Row, ...]
    track: str = ""

    def __post_init__(self) -> None:
        text(self.task, "TaskResult.task")
        text(self.track, "TaskResult.track", empty=True)
        text(self.env_id, "TaskResult.env_id")
        if self.problem not in PROBLEMS:
            raise ParameterError(
                f"TaskResult.problem must be one of {', '.join(PROBLEMS)}, got {self.problem!r}"
            )
        text(self.description, "TaskResult.description", empty=True, lines=True)
        for name in ("horizon", "replicates"):
            value = count(getattr(self, name), f"TaskResult.{name}", least=1)
            object.__setattr__(self, name, value)
        if self.normalisation is not None:
            constants = mapping(self.normalisation, "TaskResult.normalisation")
            if set(constants) != {"random", "oracle"}:
                raise ParameterError(
                    f"TaskResult.normalisation must hold random and oracle, got {sorted(constants)}"
                )
            constants = {k: number(v, f"normalisation[{k!r}]") for k, v in constants.items()}
            object.__setattr__(self, "normalisation", constants)
        object.__setattr__(self, "rows", instances(self.rows, Row, "TaskResult.rows"))
        keys = [row.key for row in self.rows]
        twice = sorted({key for key in keys if keys.count(key) > 1})
        if twice:
            raise ParameterError(f"task {self.task!r} holds a row twice: {', '.join(twice)}")
        for row in self.rows:
            unknown = sorted(set(row.improvement or ()) - (set(keys) - {row.key}))
            if unknown:
                raise ParameterError(
                    f"Row.improvement of {row.key!r} names no other row of task {self.task!r}: "
                    f"{', '.join(unknown)}"
                )


@dataclass(frozen=True)
class LeaderboardData:
    """A whole leaderboard.

    Attributes:
        title: Heading.
        suite: Suite name.
        created: ISO 8601 date or date and time.
        version: Version of the package that computed the results.
        revision: Source revision, if known.
        command: Exact command that computes them again, may be empty.
        tasks: Tasks with distinct names.
        notes: Remarks to print beside the results.
        tracks: Groups of the tasks; each task's ``track`` is empty or names one.

    Raises:
        ParameterError: A field is of another type, `created` is no ISO date, two tasks share a
            name, or tracks and tasks do not fit.
    """

    title: str
    suite: str
    created: str
    version: str
    revision: str | None
    command: str
    tasks: tuple[TaskResult, ...]
    notes: tuple[str, ...] = ()
    tracks: tuple[TrackResult, ...] = ()

    def __post_init__(self) -> None:
        for name in ("title", "suite", "created", "version"):
            text(getattr(self, name), f"LeaderboardData.{name}")
        if self.revision is not None:
            text(self.revision, "LeaderboardData.revision")
        text(self.command, "LeaderboardData.command", empty=True, lines=True)
        try:
            datetime.fromisoformat(self.created)
        except ValueError as error:
            raise ParameterError(
                f"LeaderboardData.created must be an ISO 8601 date, got {self.created!r}"
            ) from error
        object.__setattr__(self, "tasks", instances(self.tasks, TaskResult, "tasks"))
        object.__setattr__(self, "notes", instances(self.notes, str, "LeaderboardData.notes"))
        for note in self.notes:
            text(note, "a note of LeaderboardData.notes", lines=True)
        names = [task.task for task in self.tasks]
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice:
            raise ParameterError(f"a leaderboard holds each task once, got twice: {twice}")
        object.__setattr__(self, "tracks", instances(self.tracks, TrackResult, "tracks"))
        tracks = [track.track for track in self.tracks]
        members = {track.track: set(track.tasks) for track in self.tracks}
        if len(members) < len(tracks):
            raise ParameterError(f"a leaderboard holds each track once, got {tracks}")
        for task in self.tasks:
            if task.track and task.task not in members.get(task.track, ()):
                raise ParameterError(f"track {task.track!r} does not list task {task.task!r}")
        for track, listed in members.items():
            if listed - {task.task for task in self.tasks if task.track == track}:
                raise ParameterError(f"track {track!r} lists tasks that are not its own")
