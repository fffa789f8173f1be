"""Tasks, cells and their results: the units in which results are stored.

A cell is one agent at one budget on one block of replicates of one task. Its
configuration is canonical JSON, and the hash of that is its key: the same key means the
same numbers, bit for bit.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from dpb_gym.envs.catalogue import environment, make_problem
from dpb_gym.errors import DataError, ParameterError
from dpb_gym.evaluation.entries import NO_BUDGET, Entry
from dpb_gym.evaluation.runner import Timing
from dpb_gym.problems.base import Array, Problem

ALGORITHM_VERSION = 2
"""Raised whenever a change of the package changes any stored number."""

SCHEMA_VERSION = 1
"""Version of the shard format."""


@dataclass(frozen=True)
class Task:
    """One environment with fixed parameters and horizon.

    Attributes:
        name: Short name, unique within a suite.
        env_id: Environment id.
        env_kwargs: Parameters of the problem, without the horizon.
        horizon: T.
        description: One or two sentences.
        normalisation: ``random`` and ``oracle``: mean cumulative rewards that score 0
            and 1; None if not measured.
        requires: Data without which the task cannot run: a registered name, or a path below
            ``$DPB_DATA``; None if it needs none.
    """

    name: str
    env_id: str
    env_kwargs: Mapping[str, Any] = field(default_factory=dict)
    horizon: int = 10_000
    description: str = ""
    normalisation: Mapping[str, float] | None = None
    requires: str | None = None

    @property
    def kind(self) -> str:
        """Problem kind."""
        return environment(self.env_id).kind

    @property
    def partial_feedback(self) -> bool:
        """Whether some rounds return nothing, known without loading any data."""
        return self.problem_parameters().get("protocol") == "replay"

    def problem_parameters(self) -> dict[str, Any]:
        """Parameters of the problem, defaults included, without the horizon's override."""
        return {**environment(self.env_id).parameters(), **self.env_kwargs}

    def problem(self) -> Problem:
        """Makes the problem; see `dpb_gym.make_problem`."""
        return make_problem(self.env_id, **{**self.env_kwargs, "horizon": self.horizon})

    def missing_data(self) -> str | None:
        """How to get the data that the task requires, None if they are here."""
        if self.requires is None:
            return None
        import dpb_data

        try:
            dpb_data.find(self.requires)
        except DataError as error:
            return str(error)
        return None

    def data_digest(self) -> str | None:
        """Identifies the data that a task stands on; None for synthetic tasks."""
        parameters = self.problem_parameters()
        source = parameters.get("data")
        if source is None:
            return None
        import dpb_data

        if environment(self.env_id).kind == "assortment":
            searches = dpb_data.load_searches(str(source), repair=parameters.get("repair"))
            return str(searches.digest())
        table = dpb_data.load_ratings(str(source))
        digest = hashlib.sha256()
        for values, dtype in ((table.users, "<i8"), (table.items, "<i8"), (table.ratings, "<f8")):
            digest.update(np.ascontiguousarray(values, dtype=dtype).tobytes())
        return digest.hexdigest()[:32]

    def to_dict(self) -> dict[str, Any]:
        """What determines the numbers, as plain JSON values."""
        return {
            "name": self.name,
            "env_id": self.env_id,
            "env_kwargs": plain(dict(self.env_kwargs), f"env_kwargs of {self.name!r}"),
            "horizon": self.horizon,
        }


def plain(value: Any, what: str) -> Any:
    """Reduces parameters to JSON values.

    Raises:
        ParameterError: If a value has no JSON form, so that a result could not say how
            it was computed.
    """
    if isinstance(value, np.generic):
        value = value.item()
    if value is None or isinstance(value, (bool, int, str)):
        return value
    if isinstance(value, float):
        if math.isfinite(value):
            return value
        raise ParameterError(f"{what}: {value} cannot be stored; use None or a finite number")
    if isinstance(value, np.ndarray):
        return plain(value.tolist(), what)
    if isinstance(value, (list, tuple)):
        return [plain(item, what) for item in value]
    if isinstance(value, Mapping):
        if not all(isinstance(key, str) for key in value):
            raise ParameterError(f"{what}: keys must be text to be stored, got {list(value)!r}")
        return {key: plain(item, f"{what}[{key!r}]") for key, item in value.items()}
    raise ParameterError(
        f"{what}: {value!r} cannot be stored; allowed are None, booleans, numbers, text, arrays, "
        "lists and mappings"
    )


def canonical(value: Any) -> str:
    """JSON with sorted keys and no spaces: equal values give equal text."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False)


@dataclass(frozen=True)
class Cell:
    """The configuration of one cell.

    Attributes:
        config: Canonical JSON values: ``schema``, ``algorithm``, ``suite``, ``protocol``,
            ``task``, ``data``, ``agent`` (label, name, entry_point, params, version),
            ``budget``, ``checkpoints``, ``seed`` and ``replicates`` (start, stop).
    """

    config: Mapping[str, Any]

    @cached_property
    def text(self) -> str:
        """The configuration as canonical JSON."""
        return canonical(self.config)

    @cached_property
    def key(self) -> str:
        """SHA-256 of the canonical configuration, as hexadecimal text."""
        return hashlib.sha256(self.text.encode()).hexdigest()

    @property
    def task(self) -> str:
        """Name of the task."""
        return str(self.config["task"]["name"])

    @property
    def agent(self) -> str:
        """Label of the agent."""
        return str(self.config["agent"]["label"])

    @property
    def budget(self) -> str:
        """Budget in short, ``"none"`` without one."""
        if self.config["budget"] is None:
            return NO_BUDGET
        from dpb_gym.privacy import Budget

        return Budget.from_dict(self.config["budget"]).label

    @property
    def replicates(self) -> range:
        """Numbers of the replicates."""
        start, stop = self.config["replicates"]
        return range(start, stop)

    @property
    def seeds(self) -> list[int]:
        """Seeds of the replicates."""
        return [self.config["seed"] + i for i in self.replicates]

    @property
    def checkpoints(self) -> tuple[int, ...]:
        """Recorded rounds."""
        return tuple(self.config["checkpoints"])

    @property
    def identity(self) -> dict[str, Any]:
        """What all blocks of one row share: the configuration without the replicates."""
        return {k: v for k, v in self.config.items() if k != "replicates"}

    def __str__(self) -> str:
        budget = "" if self.config["budget"] is None else f" ({self.budget})"
        first, last = self.replicates[0], self.replicates[-1]
        return f"{self.task} / {self.agent}{budget} / replicates {first}-{last}"


def make_cell(
    suite: str,
    protocol: str,
    task: Task,
    data: str | None,
    entry: Entry,
    checkpoints: tuple[int, ...],
    seed: int,
    replicates: range,
) -> Cell:
    """Builds the configuration of a cell.

    Raises:
        ParameterError: If a parameter of the agent or the environment cannot be stored.
    """
    return Cell(
        {
            "schema": SCHEMA_VERSION,
            "algorithm": ALGORITHM_VERSION,
            "suite": suite,
            "protocol": protocol,
            "task": task.to_dict(),
            "data": data,
            "agent": {
                "label": entry.label,
                "name": entry.spec.name,
                "entry_point": entry.spec.entry_point,
                "params": plain(dict(entry.spec.params), f"parameters of agent {entry.label!r}"),
                "version": entry.version,
            },
            "budget": None if entry.budget is None else entry.budget.to_dict(),
            "checkpoints": list(checkpoints),
            "seed": seed,
            "replicates": [replicates.start, replicates.stop],
        }
    )


@dataclass(frozen=True)
class CellResult:
    """The numbers of one cell.

    Attributes:
        cell: Its configuration.
        regret: Cumulative pseudo-regret ``(B, C)``, replicates by checkpoints.
        reward: Cumulative realised reward ``(B, C)``.
        guarantee: `Guarantee.to_dict` of the agent, None if non-private.
        clipped: Records clipped per replicate, None if not counted.
        timing: Where the time went, None if not known; no part of the result.
    """

    cell: Cell
    regret: Array
    reward: Array
    guarantee: dict[str, Any] | None = None
    clipped: tuple[int, ...] | None = None
    timing: Timing | None = None

    @property
    def digest(self) -> str:
        """SHA-256 of everything but the timing, as hexadecimal text."""
        digest = hashlib.sha256(self.cell.text.encode())
        digest.update(canonical([self.guarantee, self.clipped]).encode())
        for values in (self.regret, self.reward):
            digest.update(np.ascontiguousarray(values, dtype="<f8").tobytes())
        return digest.hexdigest()
