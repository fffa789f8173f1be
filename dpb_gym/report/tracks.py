"""Tracks: tasks that are read together, and what agents score on them."""

from __future__ import annotations

from dataclasses import dataclass

from dpb_gym.errors import ParameterError
from dpb_gym.report.fields import (
    Interval,
    check_interval,
    instances,
    probabilities,
    row_key,
    text,
)


@dataclass(frozen=True)
class TrackRow:
    """One agent at one budget over the tasks of a track.

    Attributes:
        agent: Display label.
        name: Registered agent name.
        budget: What was asked for, or ``"none"``.
        notion: Protected output, None for non-private agents; see `Row`.
        unit: Protected unit, None exactly when `notion` is.
        score: Mean normalised score over the tasks, each weighing the same.
        tasks: Tasks that the row has results on, distinct.
        ahead: Mean probability of improvement over the best other row of the same notion, unit
            and budget, None without one.
        verdict: Worst audit verdict on its tasks, empty if it was not audited.

    Raises:
        ParameterError: A field is of another type or outside its range.
    """

    agent: str
    name: str
    budget: str
    notion: str | None
    unit: str | None
    score: Interval
    tasks: tuple[str, ...]
    ahead: float | None = None
    verdict: str = ""

    def __post_init__(self) -> None:
        for name in ("agent", "name", "budget"):
            text(getattr(self, name), f"TrackRow.{name}")
        if (self.notion is None) != (self.unit is None):
            raise ParameterError("TrackRow.notion and TrackRow.unit are both text or both None")
        if self.notion is not None:
            text(self.notion, "TrackRow.notion")
            text(self.unit, "TrackRow.unit")
        check_interval(self.score, "TrackRow.score", optional=False)
        tasks = instances(self.tasks, str, "TrackRow.tasks")
        if not tasks or len(set(tasks)) < len(tasks):
            raise ParameterError(f"TrackRow.tasks must be distinct tasks, got {tasks!r}")
        object.__setattr__(self, "tasks", tasks)
        if self.ahead is not None:
            object.__setattr__(self, "ahead", probabilities({"ahead": self.ahead})["ahead"])
        text(self.verdict, "TrackRow.verdict", empty=True)

    @property
    def key(self) -> str:
        """Names the row within its track."""
        return row_key(self.agent, self.budget)


@dataclass(frozen=True)
class TrackResult:
    """A group of tasks read together.

    Attributes:
        track: Name within the suite.
        title: Heading.
        description: One or two sentences, may be empty.
        tasks: Names of its tasks, distinct, at least one.
        rows: Rows with distinct keys.

    Raises:
        ParameterError: A field is of another type, or two rows share a key.
    """

    track: str
    title: str
    description: str
    tasks: tuple[str, ...]
    rows: tuple[TrackRow, ...]

    def __post_init__(self) -> None:
        text(self.track, "TrackResult.track")
        text(self.title, "TrackResult.title")
        text(self.description, "TrackResult.description", empty=True, lines=True)
        object.__setattr__(self, "tasks", instances(self.tasks, str, "TrackResult.tasks"))
        if not self.tasks or len(set(self.tasks)) < len(self.tasks):
            raise ParameterError(f"TrackResult.tasks must be distinct tasks, got {self.tasks!r}")
        object.__setattr__(self, "rows", instances(self.rows, TrackRow, "TrackResult.rows"))
        keys = [row.key for row in self.rows]
        twice = sorted({key for key in keys if keys.count(key) > 1})
        if twice:
            raise ParameterError(f"track {self.track!r} holds a row twice: {', '.join(twice)}")
        for row in self.rows:
            if not set(row.tasks) <= set(self.tasks):
                raise ParameterError(f"{row.key!r} names tasks outside track {self.track!r}")
