"""Figures of papers as data: what to run, how to draw it, what the paper claims."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Field, field_validator, model_validator

from dpb_gym.errors import ParameterError, unknown_name
from dpb_gym.evaluation.suite import Slug, Suite, parse_suite
from dpb_gym.evaluation.suite_parts import Strict
from dpb_gym.papers.claims import Axis, Claim, Selector, tuples
from dpb_gym.papers.layout import AxisMap, AxisPath, Study, Table


class Drawing(Strict):
    """How the curves are laid out: a row of panels per variant.

    Attributes:
        columns: Axis with a column of panels per value.
        lines: Axis, or axes, that tell the lines of a panel apart.
        caption: What a line of the legend says, with axis names in braces, e.g. ``"d={dim}"``.
        where: Which curves are drawn.
    """

    columns: Axis
    lines: tuple[Axis, ...]
    caption: str = ""
    where: Selector = Field(default_factory=dict)

    @model_validator(mode="before")
    @classmethod
    def _fill(cls, data: Any) -> Any:
        if isinstance(data, dict) and isinstance(data.get("lines"), str):
            data = {**data, "lines": [data["lines"]]}
        return tuples(data, "where", top=("lines",))


class Quick(Strict):
    """What the quick version changes: it shows that everything runs, and proves nothing.

    Attributes:
        horizon: T of every task.
        horizons: Instead, T of the tasks named here, so that claims along T can be judged.
        replicates: Replicates.
        params: Agent parameters that replace those given, for agents that give them.
        env_kwargs: Parameters of the environment that replace those given.
    """

    horizon: int = Field(ge=2)
    horizons: dict[Slug, Annotated[int, Field(ge=2)]] = Field(default_factory=dict)
    replicates: int = Field(ge=1)
    params: dict[str, Any] = Field(default_factory=dict)
    env_kwargs: dict[str, Any] = Field(default_factory=dict)


class Figure(Strict):
    """One figure of a paper; every key of its YAML file.

    Attributes:
        paper: Short name of the paper.
        figure: Short name of the figure.
        title: Heading.
        description: What it shows, in our own words.
        constants: What the paper states, what it leaves open, and what stands here instead.
        notes: Remarks printed beside the results.
        synthetic: What the data are, if they are generated; marks every claim, unless the
            environments are given other `data`.
        suite: What is run; see `dpb_gym.evaluation.suite.Suite`.
        study: What is measured of the trained agents beside regret and reward.
        results: Name of results that figures of a paper share: one folder, so that what two
            of them need is computed once. Their suites agree in name, tasks and seed.
        samples: Numbers of replicates, e.g. the paper's, at which every claim is judged
            as well, with the first of them.
        axes: Name of each axis, and where its value stands: ``agent.PARAMETER``,
            ``agent.name``, ``agent.label``, ``task.PARAMETER``, ``task.horizon``, ``task.name``,
            ``budget.rho``, ``budget.epsilon``, ``budget.delta`` or ``budget.label``; or a
            map from such values to others, see `AxisMap`.
        variants: Axes along which every claim is judged anew.
        drawing: The picture.
        tables: Tables of quantities, beside the paper's numbers.
        quick: The quick version.
        claims: What is judged.
    """

    paper: Slug
    figure: Slug
    title: str = Field(min_length=1)
    description: str = ""
    constants: tuple[str, ...] = ()
    notes: tuple[str, ...] = ()
    synthetic: str = ""
    suite: Suite
    study: Study | None = None
    results: Slug | None = None
    samples: tuple[int, ...] = ()
    axes: dict[Axis, AxisPath | AxisMap]
    variants: tuple[Axis, ...]
    drawing: Drawing
    tables: tuple[Table, ...] = ()
    quick: Quick
    claims: tuple[Claim, ...] = Field(min_length=1)

    @model_validator(mode="before")
    @classmethod
    def _fill(cls, data: Any) -> Any:
        if isinstance(data, dict) and isinstance(data.get("suite"), dict):
            import yaml

            suite = parse_suite(yaml.safe_dump(data["suite"], sort_keys=False), "suite")
            data = {**data, "suite": suite}
        return tuples(data, top=("constants", "notes", "samples", "variants", "tables", "claims"))

    @field_validator("claims")
    @classmethod
    def _distinct(cls, claims: tuple[Claim, ...]) -> tuple[Claim, ...]:
        ids = [claim.id for claim in claims]
        twice = sorted({name for name in ids if ids.count(name) > 1})
        if twice:
            raise ValueError(f"claim given twice: {', '.join(twice)}")
        return claims

    @model_validator(mode="after")
    def _check(self) -> Figure:
        used: dict[str, tuple[str, ...]] = {
            "variants": self.variants,
            "drawing.columns": (self.drawing.columns,),
        }
        used |= {"drawing.lines": self.drawing.lines, "drawing.where": tuple(self.drawing.where)}
        for table in self.tables:
            used[f"table {table.id}"] = table.axes
        tasks = [task.name for task in self.suite.tasks]
        for name in self.quick.horizons:
            if name not in tasks:
                raise ValueError(f"quick.horizons: {unknown_name('task', name, tasks)}")
        ids = [table.id for table in self.tables]
        if len(set(ids)) < len(ids):
            raise ValueError(f"tables must have distinct ids, got {', '.join(ids)}")
        for claim in self.claims:
            if claim.printed is not None and claim.printed not in ids:
                raise ValueError(f"claim {claim.id}: {unknown_name('table', claim.printed, ids)}")
            selectors = (claim.where, claim.than or {}, claim.quantity.reference or {})
            names = [axis for selector in selectors for axis in selector]
            used[f"claim {claim.id}"] = (*names, *([claim.along] if claim.along else ()))
        for where, wanted in used.items():
            for name in wanted:
                if name not in self.axes:
                    raise ValueError(f"{where}: {unknown_name('axis', name, self.axes)}")
        return self

    @property
    def target(self) -> str:
        """Paper and figure, e.g. ``"private-assortment/fig4"``."""
        return f"{self.paper}/{self.figure}"

    @property
    def judged(self) -> tuple[Claim, ...]:
        """The claims, marked where they are about generated data only."""
        if not self.synthetic:
            return self.claims
        mark = " [On synthetic data.]"
        return tuple(c.model_copy(update={"text": c.text + mark}) for c in self.claims)

    @property
    def remarks(self) -> tuple[str, ...]:
        """Notes, and what the data are if they are generated."""
        return (*self.notes, self.synthetic) if self.synthetic else self.notes

    def table(self, id: str) -> Table:
        """A table by its id."""
        return next(table for table in self.tables if table.id == id)

    def quickened(self) -> Figure:
        """The quick version, under a suite name of its own."""
        quick = self.quick
        tasks = tuple(
            task.model_copy(
                update={
                    "horizon": quick.horizons.get(task.name, quick.horizon),
                    "env_kwargs": {**task.env_kwargs, **quick.env_kwargs},
                }
            )
            for task in self.suite.tasks
        )
        agents = tuple(
            agent.model_copy(
                update={
                    "params": {
                        **agent.params,
                        **{k: v for k, v in quick.params.items() if k in agent.params},
                    }
                }
            )
            for agent in self.suite.agents
        )
        update = {
            "name": f"{self.suite.name}-quick",
            "replicates": quick.replicates,
            "tasks": tasks,
            "agents": agents,
        }
        notes = ("Quick version: small, and its verdicts prove nothing.", *self.notes)
        suite = Suite.model_validate(self.suite.model_copy(update=update).model_dump())
        study = self.study and self.study.model_copy(update={"rounds": min(quick.horizon, 200)})
        return self.model_copy(update={"suite": suite, "notes": notes, "study": study})

    def with_environment(self, env_kwargs: dict[str, Any]) -> Figure:
        """The figure with other parameters of its environments, under a name of its own."""
        if "horizon" in env_kwargs:
            raise ParameterError("the horizon belongs to the suite and cannot be set here")
        tasks = tuple(
            task.model_copy(update={"env_kwargs": {**task.env_kwargs, **env_kwargs}})
            for task in self.suite.tasks
        )
        suite = self.suite.model_copy(update={"name": f"{self.suite.name}-own", "tasks": tasks})
        given = ", ".join(f"{key}={value!r}" for key, value in env_kwargs.items())
        notes = (f"The environment was changed: {given}.", *self.notes)
        update = {"suite": Suite.model_validate(suite.model_dump()), "notes": notes}
        if "data" in env_kwargs:
            update["synthetic"] = ""
        return self.model_copy(update=update)
