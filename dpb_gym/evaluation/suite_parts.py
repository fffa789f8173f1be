"""The parts of a suite: budgets, tracks, tasks and agents, as its YAML file writes them."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from dpb_gym.envs.catalogue import ENVIRONMENTS
from dpb_gym.errors import DPBError, unknown_name
from dpb_gym.evaluation.cells import Task, plain
from dpb_gym.privacy import Budget

Slug = Annotated[str, Field(pattern=r"^[a-z0-9]+(-[a-z0-9.]+)*$", max_length=60)]
Label = Annotated[str, Field(min_length=1, max_length=80, pattern=r"^\S(.*\S)?$")]
Reason = Annotated[str, Field(min_length=1, max_length=300, pattern=r"^\S(.*\S)?$")]


def tuples(data: Any, *keys: str) -> Any:
    """YAML has lists only; strict models want tuples."""
    if not isinstance(data, dict):
        return data
    return {k: tuple(v) if k in keys and isinstance(v, list) else v for k, v in data.items()}


class Strict(BaseModel):
    """Unknown keys and wrong types are refused."""

    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


class SuiteBudget(Strict):
    """``rho``, or ``epsilon`` and ``delta``."""

    rho: float | None = None
    epsilon: float | None = None
    delta: float | None = None

    @model_validator(mode="after")
    def _check(self) -> SuiteBudget:
        if (self.rho is None) == (self.epsilon is None) or (
            (self.epsilon is None) != (self.delta is None)
        ):
            raise ValueError("a budget is either rho or epsilon and delta")
        try:
            self.budget()
        except DPBError as error:
            raise ValueError(str(error)) from None
        return self

    def budget(self) -> Budget:
        """The budget it stands for."""
        if self.rho is not None:
            return Budget.zcdp(self.rho)
        assert self.epsilon is not None and self.delta is not None
        return Budget.approx(self.epsilon, self.delta)


class SuiteNormalisation(Strict):
    """Mean cumulative rewards at the horizon that score 0 and 1."""

    random: float = Field(allow_inf_nan=False)
    oracle: float = Field(allow_inf_nan=False)

    @model_validator(mode="after")
    def _check(self) -> SuiteNormalisation:
        if self.oracle <= self.random:
            raise ValueError(f"oracle must exceed random, got {self.oracle} and {self.random}")
        return self


class SuiteTrack(Strict):
    """Tasks that are read together; the leaderboard adds up their scores.

    Attributes:
        title: Heading.
        description: What its tasks have in common.
        budgets: Grid of the agents that need a budget and name none, instead of ``default``.
    """

    title: Label
    description: str = ""
    budgets: str | tuple[SuiteBudget, ...] | None = None

    @model_validator(mode="before")
    @classmethod
    def _fill(cls, data: Any) -> Any:
        return tuples(data, "budgets")


class SuiteTask(Strict):
    """One environment; see `dpb_gym.evaluation.cells.Task`.

    Attributes:
        name: Name within the suite.
        env: Environment id.
        env_kwargs: Its parameters, without the horizon.
        horizon: T.
        description: One or two sentences.
        normalisation: Frozen constants of the score.
        track: Name of a track of the suite.
        requires: Data without which the task is left out: a registered data set, or a path
            below ``$DPB_DATA``.
        replicates: Instead of the suite's.
        block: Instead of the suite's.
    """

    name: Slug
    env: str
    env_kwargs: dict[str, Any] = {}
    horizon: int = Field(ge=2)
    description: str = ""
    normalisation: SuiteNormalisation | None = None
    track: Slug | None = None
    requires: str | None = Field(default=None, min_length=1)
    replicates: int | None = Field(default=None, ge=1)
    block: int | None = Field(default=None, ge=1, le=4096)

    @field_validator("env")
    @classmethod
    def _known(cls, value: str) -> str:
        if value not in ENVIRONMENTS:
            raise ValueError(str(unknown_name("environment", value, ENVIRONMENTS)))
        return value

    @field_validator("env_kwargs")
    @classmethod
    def _storable(cls, value: dict[str, Any]) -> dict[str, Any]:
        if "horizon" in value:
            raise ValueError("the horizon is given beside env_kwargs, not in it")
        return dict(plain(value, "env_kwargs"))

    def task(self) -> Task:
        """The task it stands for."""
        constants = None if self.normalisation is None else self.normalisation.model_dump()
        return Task(
            self.name,
            self.env,
            self.env_kwargs,
            self.horizon,
            self.description.strip(),
            constants,
            self.requires,
        )


class SuiteAgent(Strict):
    """An agent, run once per budget on every task that it supports.

    Attributes:
        name: Registered name.
        label: Display label, the name by default.
        params: Parameters over the registered ones.
        budgets: Name of a grid of the suite, or budgets; ``track`` is the grid of the
            task's track, else the one called ``default``. Agents that need a budget and name
            none take ``track``; the others run without.
        tasks: Names of tasks or tracks; all by default.
        exclude: Why the agent is left out of a task or track, by its name.
        needs: Module that must be importable, e.g. ``"stable_baselines3"``; the agent is
            left out where it is not.
    """

    name: str = Field(min_length=1)
    label: Label = ""
    params: dict[str, Any] = {}
    budgets: str | tuple[SuiteBudget, ...] | None = None
    tasks: tuple[str, ...] | None = None
    exclude: dict[str, Reason] = {}
    needs: str | None = Field(default=None, pattern=r"^[A-Za-z_]\w*(\.\w+)*$")

    @model_validator(mode="before")
    @classmethod
    def _fill(cls, data: Any) -> Any:
        if isinstance(data, str):
            data = {"name": data}
        if isinstance(data, dict) and isinstance(data.get("name"), str):
            data = {"label": data["name"], **data}
        return tuples(data, "budgets", "tasks")

    def left_out(self, task: str, track: str | None) -> str | None:
        """Why the agent does not run on a task, None if it does."""
        if self.tasks is not None and task not in self.tasks and track not in self.tasks:
            return "not listed for this task"
        for name in (task, track):
            if name is not None and name in self.exclude:
                return self.exclude[name]
        return None
