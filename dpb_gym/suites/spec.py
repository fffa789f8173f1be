"""Specifications of what is run: tasks, agents with budgets, and cells.

A cell is one agent at one budget on one block of replicates of one task. Its canonical JSON
contains everything that determines its numbers, and its key is the hash of that text. Cells with
equal keys have equal numbers, bit for bit.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, cast

from pydantic import AfterValidator, Field, InstanceOf, field_serializer, model_validator

from dpb_gym.envs.registration import environment
from dpb_gym.errors import AgentError, DataError
from dpb_gym.privacy import Budget
from dpb_gym.problems.base import Problem
from dpb_gym.problems.kinds import log_form
from dpb_gym.registry import FACTORY, AgentSpec, agent_spec
from dpb_gym.report.leaderboard_data import AnyBudget, Normalisation
from dpb_gym.suites.code_digest import code_hash
from dpb_gym.suites.schema import Label, Many, Slug, Spec, canonical, in_memory, plain

ALGORITHM_VERSION = 3
"""Increased whenever a change of the package changes a stored number."""


class Task(Spec):
    """One environment with fixed parameters and horizon.

    Attributes:
        name: Name within the suite.
        env: Environment id.
        env_kwargs: Parameters of the problem, without the horizon.
        horizon: T.
        description: One or two sentences.
        normalisation: Frozen constants of the score; None if not measured.
        track: Name of a track of the suite.
        requires: Data without which the task cannot run: a registered data set, or a path
            below ``$DPB_DATA``; None if it needs none.
        replicates: Instead of the suite's.
        block: Instead of the suite's.
    """

    name: Slug
    env: Annotated[
        str, AfterValidator(environment), AfterValidator(lambda registered: registered.id)
    ]
    env_kwargs: dict[str, Any] = Field(default_factory=dict)
    horizon: int = Field(ge=2)
    description: str = ""
    normalisation: Normalisation | None = None
    track: Slug | None = None
    requires: str | None = Field(default=None, min_length=1)
    replicates: int | None = Field(default=None, ge=1)
    block: int | None = Field(default=None, ge=1, le=4096)

    @field_serializer("env_kwargs")
    def _stored(self, value: dict[str, Any]) -> dict[str, Any]:
        return dict(plain(value, "env_kwargs"))

    @property
    def kind(self) -> str:
        """Kind of the problem."""
        return environment(self.env).kind

    @property
    def parameters(self) -> dict[str, Any]:
        """Parameters of the problem, defaults included, without the horizon's override."""
        return {**environment(self.env).parameters, **self.env_kwargs}

    def problem(self) -> Problem:
        """Make the problem; see `Environment.make_problem`."""
        return environment(self.env).make_problem(**self.env_kwargs, horizon=self.horizon)

    def missing_data(self) -> str:
        """Return how to get the data that the task requires, empty if they are available."""
        if self.requires is None:
            return ""
        import dpb_data

        try:
            dpb_data.find(self.requires)
        except DataError as error:
            return str(error)
        return ""

    def data_digest(self) -> str | None:
        """Return a digest of the task's data; None for synthetic tasks."""
        parameters = self.parameters
        source = parameters.get("data")
        if source is not None and in_memory(source):
            return str(source.digest())
        if source is not None:
            return log_form(self.kind).data_digest(source, parameters)
        files = [v for v in parameters.values() if isinstance(v, str) and v.endswith(".npy")]
        try:
            contents = [Path(file).read_bytes() for file in files]
        except OSError as error:
            raise DataError(f"{self.name}: {error}") from None
        return hashlib.sha256(b"".join(contents)).hexdigest()[:32] if files else None

    @property
    def identity(self) -> dict[str, Any]:
        """Return everything that determines the numbers, as plain JSON values."""
        env_kwargs = plain(self.env_kwargs, f"env_kwargs of {self.name!r}")
        return {
            "name": self.name, "env": self.env, "env_kwargs": env_kwargs, "horizon": self.horizon
        }  # fmt: skip


class AgentRun(Spec):
    """An agent with its parameters at one budget, under a label.

    The spec is pickled with it, so that agents of scripts and notebooks run in other
    processes. ``AgentRun(spec=...)`` takes name, entry point and parameters from there.

    Attributes:
        label: Display label, unique within a task; the name by default.
        name: Registered name, or a generated one for a class or function.
        entry_point: See `AgentSpec`.
        params: Keyword arguments of the class.
        budget: Privacy budget, None for a non-private run.
        source: Hash of the code that computed it, empty for the installed code; see `code`.
        spec: The installed agent; None if the run was read from a file.
    """

    label: Label = Field(default="", validate_default=True)
    name: str = Field(default="", min_length=1, validate_default=True)
    entry_point: str = Field(default="", min_length=1, validate_default=True)
    params: dict[str, Any] = Field(default_factory=dict)
    budget: AnyBudget = None
    source: str = ""
    spec: InstanceOf[AgentSpec] = Field(default=cast(Any, None), exclude=True, repr=False)

    @model_validator(mode="before")
    @classmethod
    def _of(cls, given: Any) -> Any:
        spec = given.get("spec") if isinstance(given, dict) else None
        if not isinstance(spec, AgentSpec):
            return given
        fields = {k: getattr(spec, k) for k in ("name", "entry_point", "params")}
        return {"label": spec.name, **fields, **given}

    @property
    def title(self) -> str:
        """Label and budget, for messages."""
        return self.label if self.budget is None else f"{self.label} ({self.budget})"

    @property
    def code(self) -> str:
        """Hash of the agent's code; see `code_hash`."""
        return self.source or ("" if self.spec is None else code_hash(self.spec.maker))

    def sealed(self) -> AgentRun:
        """Return the run with the hash of its code filled in, as it is stored."""
        return self.model_copy(update={"source": self.code})

    @property
    def identity(self) -> dict[str, Any]:
        """Return label and everything that determines the numbers, as plain JSON values."""
        fields = {k: getattr(self, k) for k in ("label", "name", "entry_point")}
        params = plain(self.params, f"parameters of agent {self.label!r}")
        budget = Budget.text(self.budget)
        return {**fields, "source": self.code, "params": params, "budget": budget}

    def here(self) -> AgentRun:
        """Return the run with the installed agent, for a run that was read from a file.

        Raises:
            UnknownNameError: If the agent is not registered.
            AgentError: If a function made the agent, or the name belongs to another class.
        """
        if self.spec is not None:
            return self
        if self.entry_point.startswith(FACTORY):
            raise AgentError("its agent was made by a function, which is not stored")
        spec = agent_spec(self.name)
        if spec.entry_point != self.entry_point:
            raise AgentError(
                f"agent {self.name!r} is {spec.entry_point} here; it was {self.entry_point}"
            )
        return self.model_copy(update={"spec": replace(spec, params=self.params)})


class Cell(Spec):
    """One agent at one budget on one block of replicates of one task.

    Attributes:
        algorithm: `ALGORITHM_VERSION` of the code.
        suite: Name of the suite.
        protocol: Its `Suite.protocol`; empty until the cell is to be stored.
        task: The task.
        data: Digest of its data, None for synthetic tasks and until the cell is to be stored.
        agent: The agent at its budget.
        checkpoints: Recorded rounds, increasing, the last one the horizon.
        seed: Replicate i has seed ``seed + i``.
        start: First replicate.
        stop: Last replicate plus one.
        study: Identity of the study that measures the agent after its run; see `Job.study`.
    """

    algorithm: int = Field(default_factory=lambda: ALGORITHM_VERSION)
    suite: str = Field(max_length=200)
    protocol: str = Field(default="", max_length=200)
    task: Task
    data: str | None = None
    agent: AgentRun
    checkpoints: Many[int] = Field(min_length=1)
    seed: int = Field(ge=0)
    start: int = Field(ge=0)
    stop: int = Field(ge=1)
    study: dict[str, Any] | None = None

    @classmethod
    def read(cls, text: str | bytes) -> Cell:
        """Read a cell from its `text`.

        Raises:
            ValueError: If the text is not a cell.
        """
        cell = cls.model_validate_json(text)
        return cell.block(cell.start, cell.stop)

    def block(self, start: int, stop: int) -> Cell:
        """Return the cell of other replicates.

        Raises:
            ValueError: If there are none.
        """
        if not (type(start) is type(stop) is int and 0 <= start < stop):
            raise ValueError(f"replicates {start!r:.20}..{stop!r:.20} are none")
        return self.model_copy(update={"start": start, "stop": stop})

    @cached_property
    def identity(self) -> dict[str, Any]:
        """What all blocks of one row have in common, as plain JSON values."""
        shared = {k: getattr(self, k) for k in ("algorithm", "suite", "protocol", "data", "seed")}
        own = {"task": self.task.identity, "agent": self.agent.identity}
        own |= {} if self.study is None else {"study": self.study}
        return {**shared, **own, "checkpoints": list(self.checkpoints)}

    @cached_property
    def text(self) -> str:
        """The cell as canonical JSON."""
        return canonical({**self.identity, "start": self.start, "stop": self.stop})

    @cached_property
    def key(self) -> str:
        """SHA-256 of `text`, as hexadecimal text."""
        return hashlib.sha256(self.text.encode()).hexdigest()

    def model_copy(self, *, update: Mapping[str, Any] | None = None, deep: bool = False) -> Cell:
        """Return a copy with updated fields and its own key."""
        copied = super().model_copy(update=update, deep=deep)
        same = {"identity"} if set(update or ()) <= {"start", "stop"} else set()
        for name in {"text", "key", "identity"} - same:
            copied.__dict__.pop(name, None)
        return copied

    @property
    def row(self) -> tuple[str, str, str]:
        """Task, label and budget: the row of the leaderboard that it belongs to."""
        return self.task.name, self.agent.label, Budget.text(self.agent.budget)

    @property
    def replicates(self) -> range:
        """Numbers of the replicates."""
        return range(self.start, self.stop)

    @property
    def seeds(self) -> range:
        """Seeds of the replicates."""
        return range(self.seed + self.start, self.seed + self.stop)

    def __str__(self) -> str:
        return f"{self.task.name} / {self.agent.title} / replicates {self.start}-{self.stop - 1}"
