"""Suites: immutable, versioned descriptions of a comparison, read from YAML."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable
from importlib import resources
from itertools import pairwise
from pathlib import Path
from typing import Annotated, Any, TypeAlias

import numpy as np
from pydantic import AfterValidator, Field, model_validator

from dpb_gym import validation
from dpb_gym.errors import DPBError, ParameterError, SuiteError, shown, unknown_name
from dpb_gym.files import read_regular
from dpb_gym.privacy import Budget
from dpb_gym.report.leaderboard_data import AnyBudget
from dpb_gym.suites.schema import MOST_TEXT, Label, Many, Slug, Spec, canonical, read_spec
from dpb_gym.suites.spec import Task

SEED_SPAN = 1_000_000
"""Seeds reserved for each purpose; the three ranges of a suite must not overlap."""

DEFAULT_GRID = "default"
TRACK_GRID = "track"
"""Name that stands for the grid of the task's track, else the default grid."""

Checkpoints: TypeAlias = "str | int | Iterable[int]"

LOG_POINTS = 64
_ALLOWED = "'log', 'log:N', 'all', a number of checkpoints, or rounds in 1..horizon"

Reason = Annotated[str, Field(min_length=1, max_length=300, pattern=r"^\S(.*\S)?$")]
Grid = Many[AnyBudget]
BudgetText = Annotated[str, AfterValidator(lambda text: Budget.text(Budget.parse(text)))]


def resolve_checkpoints(checkpoints: Checkpoints, horizon: int) -> tuple[int, ...]:
    """Return the increasing rounds to record; the last one is always the horizon.

    Args:
        checkpoints: ``"log"``: at most 64 log-spaced rounds from 1 on, ``"log:N"``: at most
            N of them, N at least 2; ``"all"``: every round; an integer n: at most n evenly
            spaced rounds; or explicit rounds.
        horizon: T, at least 1.

    Raises:
        ParameterError: If `checkpoints` is none of these or a round is outside 1..T.

    Example:
        >>> resolve_checkpoints(4, 1000)
        (250, 500, 750, 1000)
        >>> resolve_checkpoints([10, 100], 1000)
        (10, 100, 1000)
        >>> resolve_checkpoints("log:4", 1000)
        (1, 10, 100, 1000)
    """
    horizon = validation.integer("horizon", horizon, 1)
    several = not isinstance(checkpoints, np.ndarray) or checkpoints.ndim > 0
    if isinstance(checkpoints, (int, np.integer)):
        count = validation.integer("checkpoints", checkpoints, 1)
        spaced = np.linspace(0, horizon, min(count, horizon) + 1)[1:].astype(np.int64)
    elif isinstance(checkpoints, Iterable) and not isinstance(checkpoints, str) and several:
        rounds = [validation.integer("a checkpoint", t, 1, horizon) for t in checkpoints]
        spaced = np.array(rounds, dtype=np.int64)
    elif checkpoints == "all":
        spaced = np.arange(1, horizon + 1)
    else:
        text = checkpoints if isinstance(checkpoints, str) else ""
        match = re.fullmatch(r"log(?::([1-9][0-9]{0,5}))?", text)
        if match is None or match[1] == "1":
            raise ParameterError(f"checkpoints must be {_ALLOWED}, got {shown(checkpoints)}")
        points = LOG_POINTS if match[1] is None else int(match[1])
        spaced = np.rint(np.geomspace(1, horizon, points)).astype(np.int64)
    return tuple(int(t) for t in np.unique(np.append(spaced, horizon)))


class Track(Spec):
    """Group of tasks whose scores the leaderboard averages.

    Attributes:
        title: Heading.
        description: What its tasks have in common.
        budgets: Grid of the agents that need a budget and name none, instead of ``default``.
    """

    title: Label
    description: str = ""
    budgets: str | Grid | None = None


class Participant(Spec):
    """An agent of a suite, run once per budget on every task that it supports.

    Attributes:
        name: Registered name.
        label: Display label, the name by default.
        params: Parameters over the registered ones.
        points: Instead of `budgets` and `tasks`, parameters over `params` by task and budget; the
            agent runs there only.
        budgets: Name of a grid of the suite, or budgets; ``track`` is the grid of the
            task's track, else the one called ``default``. Agents that need a budget and name
            none take ``track``; the others run without.
        tasks: Names of tasks or tracks; all by default.
        exclude: Why the agent is left out of a task or track, by its name.
        needs: Top-level module that must be installed, e.g. ``"stable_baselines3"``; without it
            the agent is left out. The check imports nothing.
    """

    name: str = Field(min_length=1)
    label: Label = ""
    params: dict[str, Any] = Field(default_factory=dict)
    points: dict[Slug, dict[BudgetText, dict[str, Any]]] | None = None
    budgets: str | Grid | None = None
    tasks: Many[str] | None = None
    exclude: dict[str, Reason] = Field(default_factory=dict)
    needs: str | None = Field(default=None, pattern=r"^[A-Za-z_]\w*$")

    @model_validator(mode="before")
    @classmethod
    def _fill(cls, data: Any) -> Any:
        if isinstance(data, str):
            data = {"name": data}
        if isinstance(data, dict) and isinstance(data.get("name"), str):
            data = {"label": data["name"], **data}
        return data

    def left_out(self, task: Task) -> str | None:
        """Return why the agent is excluded from a task, None if it is not."""
        places = [place for place in (task.name, task.track) if place is not None]
        listed = self.tasks if self.points is None else self.points
        if listed is not None and not set(places) & set(listed):
            return "not listed for this task"
        return next((self.exclude[place] for place in places if place in self.exclude), None)


class Suite(Spec):
    """A suite; every key of its YAML file.

    Attributes:
        name: Name with version, e.g. ``"core-v0"``. A published suite never changes.
        title: Heading of its leaderboard.
        description: What it is for.
        seed: Replicate i has seed ``seed + i``.
        tuning_seed: First seed for tuning agents.
        normalisation_seed: First seed for measuring the normalisation constants.
        replicates: Replicates per task.
        block: Replicates that run together; changes speed, never values.
        checkpoints: Recorded rounds: ``log``, ``all``, a number of them, or a list; the last is
            always recorded.
        budgets: Named grids of budgets.
        tracks: Named groups of tasks, in the order of the leaderboard.
        tasks: The tasks, distinct names.
        agents: The agents.
    """

    name: Slug
    title: str = ""
    description: str = ""
    seed: int = Field(default=0, ge=0, lt=10**17)  # manifests keep 18 digits
    tuning_seed: int = Field(default=SEED_SPAN, ge=0)
    normalisation_seed: int = Field(default=2 * SEED_SPAN, ge=0)
    replicates: int = Field(ge=1, le=SEED_SPAN)
    block: int = Field(default=10, ge=1, le=4096)
    checkpoints: str | int | Many[int] = "log"
    budgets: dict[Slug, Grid] = Field(default_factory=dict)
    tracks: dict[Slug, Track] = Field(default_factory=dict)
    tasks: Many[Task] = Field(min_length=1)
    agents: Many[Participant] = ()

    @model_validator(mode="after")
    def _check(self) -> Suite:
        starts = [(getattr(self, n), n) for n in ("seed", "tuning_seed", "normalisation_seed")]
        for (low, a), (high, b) in pairwise(sorted(starts)):
            if high - low < SEED_SPAN:
                raise ValueError(
                    f"{a}={low} and {b}={high} must be at least {SEED_SPAN:,} apart, so that the "
                    "seeds of evaluation, tuning and normalisation never meet"
                )
        names = [task.name for task in self.tasks]
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice:
            raise ValueError(f"task given twice: {', '.join(twice)}")
        for i, task in enumerate(self.tasks):
            if "horizon" in task.env_kwargs:
                raise ValueError(f"tasks.{i}.env_kwargs: the horizon is given beside env_kwargs")
            try:
                resolve_checkpoints(self.checkpoints, task.horizon)
            except DPBError as error:
                raise ValueError(f"checkpoints: {error}") from None
            if task.track is not None and task.track not in self.tracks:
                wrong = unknown_name("track", task.track, self.tracks)
                raise ValueError(f"tasks.{task.name}.track: {wrong}")
        if TRACK_GRID in self.budgets:
            raise ValueError(f"budgets.{TRACK_GRID}: this name stands for the grids of the tracks")
        for name, track in self.tracks.items():
            if name in names:
                raise ValueError(f"tracks.{name}: a task has this name too")
            self._check_grid(track.budgets, f"tracks.{name}")
        places = [*names, *self.tracks]
        for i, agent in enumerate(self.agents):
            if agent.points is not None and (agent.tasks, agent.budgets) != (None, None):
                raise ValueError(f"agents.{i}.points: stand for tasks and budgets; give no others")
            for key, named, known in (
                ("tasks", agent.tasks, places),
                ("exclude", agent.exclude, places),
                ("points", agent.points, names),
            ):
                for name in named or ():
                    if name not in known:
                        wrong = unknown_name("task", name, known)
                        raise ValueError(f"agents.{i}.{key}: {wrong}")
            if agent.budgets != TRACK_GRID:
                self._check_grid(agent.budgets, f"agents.{i}")
            elif DEFAULT_GRID not in self.budgets and not self.all_tracks_have_grids:
                raise ValueError(
                    f"agents.{i}.budgets: needs a grid called {DEFAULT_GRID!r}, or tracks with "
                    "budgets for all tasks"
                )
        return self

    def _check_grid(self, budgets: object, where: str) -> None:
        if isinstance(budgets, str) and budgets not in self.budgets:
            wrong = unknown_name("budget grid", budgets, self.budgets)
            raise ValueError(f"{where}.budgets: {wrong}")

    @property
    def all_tracks_have_grids(self) -> bool:
        """Return whether every task is in a track with its own budgets."""
        tracks = [self.tracks[task.track] if task.track else None for task in self.tasks]
        return all(track is not None and track.budgets is not None for track in tracks)

    def grid(self, budgets: str | Grid) -> Grid:
        """Return the budgets of a grid, given by name or explicitly."""
        return self.budgets[budgets] if isinstance(budgets, str) else budgets

    def task(self, name: str) -> Task:
        """Return the task of this name.

        Raises:
            UnknownNameError: If there is no such task.
        """
        for task in self.tasks:
            if task.name == name:
                return task
        raise unknown_name("task", name, [task.name for task in self.tasks])

    @property
    def protocol(self) -> str:
        """Hash of what makes results comparable: name, tasks, seed and checkpoints.

        Agents and the number of replicates are excluded, because both may be added to a result
        directory later.
        """
        parts = [
            self.name,
            [task.identity for task in self.tasks],
            self.seed,
            list(self.checkpoints) if isinstance(self.checkpoints, tuple) else self.checkpoints,
        ]
        return hashlib.sha256(canonical(parts).encode()).hexdigest()

    def to_yaml(self) -> str:
        """Return the suite as YAML text; inverse of `parse_suite`."""
        import yaml

        data = self.model_dump(mode="json", exclude_defaults=True)
        return str(yaml.safe_dump(data, sort_keys=False, allow_unicode=True, width=96))


def parse_suite(text: str, source: str) -> Suite:
    """Read a suite from YAML; see `read_spec`."""
    return read_spec(Suite, text, source)


def suite_names() -> list[str]:
    """Return the names of the package's suites."""
    names = [file.name for file in resources.files("dpb_gym.suites").iterdir()]
    return sorted(name.removesuffix(".yaml") for name in names if name.endswith(".yaml"))


def load_suite(name_or_path: str) -> Suite:
    """Load a suite of the package by name, or any suite from a ``.yaml`` file.

    Raises:
        UnknownNameError: If no suite has this name; the message offers close matches.
        SuiteError: If the file cannot be read or is not valid.
    """
    path = Path(name_or_path)
    if path.suffix in (".yaml", ".yml"):
        try:
            text = read_regular(path.resolve(strict=True), MOST_TEXT).decode()
        except (OSError, UnicodeDecodeError) as error:
            reason = getattr(error, "strerror", None) or str(error)
            raise SuiteError(f"{path}: cannot read the suite: {reason}") from None
        return parse_suite(text, str(path))
    names = suite_names()
    if name_or_path not in names:
        raise unknown_name("suite", name_or_path, names)
    file = resources.files("dpb_gym.suites") / f"{name_or_path}.yaml"
    return parse_suite(file.read_text(encoding="utf-8"), f"suite {name_or_path!r}")
