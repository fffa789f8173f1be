"""Outcomes of a cell: its numbers or its failure."""

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


@dataclass(frozen=True)
class Timing:
    """Processor time of one cell, without the first round (compilation, caches).

    Attributes:
        rounds: Agent rounds that were timed: replicates times rounds.
        agent_seconds: In the agent's `act` and `observe`, or in `play`.
        response_seconds: In the responses to its actions. Those of rounds played in compiled code
            are tabulated once for all agents, as part of `environment_seconds`.
        environment_seconds: In the contexts and best actions, shared by the cells of a block.
        companions: Number of cells that shared them, this one included.
    """

    rounds: int
    agent_seconds: float
    response_seconds: float
    environment_seconds: float
    companions: int

    @property
    def seconds(self) -> float:
        """Own time plus an equal share of the shared time."""
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
        timing: Processor times, None if unknown; no part of the digest.
        provenance: `COMPUTED`, `RECOMPUTED`, or ``"stated by NAME"``.
        stated: Digest from the manifest, if regret and reward are not loaded.
        recorded: Measurements of its study: one number per replicate, by name.
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
        """The result without its numbers, as in a manifest."""
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
    """Measurement of an agent after its run; it must be picklable."""

    @property
    def identity(self) -> dict[str, Any]:
        """Return all that determines its numbers, as plain JSON values: part of the cells' keys."""

    def __call__(self, agent: Agent, result: CellResult) -> dict[str, list[float]]:
        """Return one number per replicate, by name."""


@dataclass(frozen=True)
class Failure:
    """A cell whose agent failed; the other cells of its block are not affected.

    Attributes:
        cell: What was run.
        stage: ``"check"`` (before the run), ``"begin"``, ``"act"``, ``"action"`` (refused by the
            problem), ``"observe"``, ``"play"`` or ``"end"``.
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
