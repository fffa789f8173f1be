"""What a cell leaves: its result, or why it failed."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

import numpy as np

from dpb_gym.agent import Agent
from dpb_gym.problems.base import Array
from dpb_gym.suites.schema import canonical
from dpb_gym.suites.spec import Cell

NOTHING = np.empty((0, 0))
COMPUTED = "computed here"
RECOMPUTED = "recomputed here"


def stated_by(name: str) -> str:
    """Provenance of a number that somebody else sent."""
    return f"stated by {name}"


@dataclass(frozen=True)
class Timing:
    """Where one cell's processor time went, the first round (compilation, caches) left out.

    Attributes:
        rounds: Agent rounds that were timed: replicates times rounds.
        agent_seconds: In the agent's `act` and `observe`.
        response_seconds: In the responses to its actions.
        environment_seconds: In the contexts and best actions, shared by all companions.
        companions: Cells that shared them, itself included.
    """

    rounds: int
    agent_seconds: float
    response_seconds: float
    environment_seconds: float
    companions: int

    @property
    def seconds(self) -> float:
        """Own time plus an equal share of what the companions shared."""
        shared = self.environment_seconds / self.companions
        return self.agent_seconds + self.response_seconds + shared


@dataclass(frozen=True)
class CellResult:
    """The numbers of one cell.

    Attributes:
        cell: What was run.
        regret: Cumulative pseudo-regret ``(B, C)``, replicates by checkpoints.
        reward: Cumulative realised reward ``(B, C)``.
        guarantee: `Guarantee.to_dict` of the run, None if non-private.
        timing: Where the time went, None if not known; no part of the result.
        provenance: `COMPUTED`, `RECOMPUTED`, or ``"stated by NAME"``.
        stated: The digest of what a manifest knows of, regret and reward being empty.
        recorded: What its study measured: by name a number per replicate.
    """

    cell: Cell
    regret: Array = field(default_factory=lambda: NOTHING)
    reward: Array = field(default_factory=lambda: NOTHING)
    guarantee: dict[str, Any] | None = None
    timing: Timing | None = None
    provenance: str = COMPUTED
    stated: str = ""
    recorded: Mapping[str, list[float]] = field(default_factory=dict)

    @property
    def entry(self) -> CellResult:
        """The result without its numbers, as a manifest knows it."""
        return replace(self, regret=NOTHING, reward=NOTHING, stated=self.digest)

    @property
    def digest(self) -> str:
        """SHA-256 of cell, guarantee and numbers, as hexadecimal text."""
        if self.stated:
            return self.stated
        digest = hashlib.sha256(self.cell.text.encode())
        digest.update(canonical(self.guarantee).encode())
        for values in (self.regret, self.reward):
            digest.update(np.ascontiguousarray(values, dtype="<f8").tobytes())
        if self.recorded:
            digest.update(canonical(self.recorded).encode())
        return digest.hexdigest()


class Study(Protocol):
    """Measures an agent that has played; it travels to other processes."""

    @property
    def identity(self) -> dict[str, Any]:
        """All that decides its numbers, as plain JSON values: part of the cells' keys."""

    def __call__(self, agent: Agent, result: CellResult) -> dict[str, list[float]]:
        """By name a number per replicate."""


@dataclass(frozen=True)
class Failure:
    """A cell whose agent broke down; its companions were not harmed.

    Attributes:
        cell: What was run.
        stage: ``"begin"``, ``"act"``, ``"action"`` (refused by the problem),
            ``"observe"`` or ``"end"``.
        round: Round of the failure, 0 before the first.
        seed: Seed of the replicate that failed, None if it is not known which one.
        message: What happened, in one line.
        details: Python traceback.
    """

    cell: Cell
    stage: str
    round: int
    seed: int | None
    message: str
    details: str

    def __str__(self) -> str:
        return f"{self.cell.task.name}: {self.message}"
