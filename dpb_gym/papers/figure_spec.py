"""Figures of papers as data: what to run, how to draw it, and what the paper claims."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from importlib import resources
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field, model_validator

from dpb_gym.errors import ParameterError, SuiteError, unknown_name
from dpb_gym.lazy import load_plugins
from dpb_gym.papers.claims import Axis, AxisMap, Claim, FigureTable, OneOrMany, Selector
from dpb_gym.papers.curves import Curve, Scalar, coordinate
from dpb_gym.papers.offpolicy_study import OffPolicyStudy
from dpb_gym.report.leaderboard_data import distinct
from dpb_gym.results.row_result import RowResult
from dpb_gym.suites.schema import Many, Slug, Spec, read_spec
from dpb_gym.suites.suite import Suite, parse_suite

ENTRY_POINT_GROUP = "dpb_gym.papers"


class Drawing(Spec):
    """Layout of the curves: a row of panels per variant.

    Attributes:
        columns: Axis with a column of panels per value.
        lines: Axis or axes with a line per value in each panel.
        caption: Format of a legend entry with axis names in braces, e.g. ``"d={dim}"``.
        where: Selector of the curves drawn.
    """

    columns: Axis
    lines: OneOrMany[Axis]
    caption: str = ""
    where: Selector = Field(default_factory=dict)


class Quick(Spec):
    """Changes of the quick version, which shows that everything runs and proves nothing.

    Attributes:
        horizon: T of every task.
        horizons: T of single tasks instead, so that claims along T can be judged.
        replicates: Replicates.
        params: Agent parameters that replace those given, for agents that give them.
        env_kwargs: Parameters of the environment that replace those given.
    """

    horizon: int = Field(ge=2)
    horizons: dict[Slug, Annotated[int, Field(ge=2)]] = Field(default_factory=dict)
    replicates: int = Field(ge=1)
    params: dict[str, Any] = Field(default_factory=dict)
    env_kwargs: dict[str, Any] = Field(default_factory=dict)


class Figure(Spec):
    """One figure of a paper; every key of its YAML file.

    Attributes:
        paper: Short name of the paper.
        figure: Short name of the figure.
        title: Heading.
        description: What it shows, in our own words.
        constants: Constants that the paper states or leaves open, and those used here.
        chosen: What the paper leaves open and the run had to choose, for every claim of the paper
            that does not say it itself; see `Claim.chosen`.
        notes: Remarks printed with the results.
        synthetic: Description of the data, if they are generated. It marks every claim, unless
            the environments get other `data`.
        suite: Tasks and agents; see `dpb_gym.suites.suite.Suite`.
        study: Further measurements of the trained agents.
        results: Name of results that several figures of a paper share in one folder. Their suites
            agree in name, tasks and seed.
        samples: Smaller numbers of replicates, e.g. the paper's, at which every claim is judged
            as well.
        axes: Path of each axis's value by its name: ``agent.PARAMETER``,
            ``agent.name``, ``agent.label``, ``task.PARAMETER``, ``task.horizon``, ``task.name``,
            ``budget.rho``, ``budget.epsilon`` or ``budget.delta``; or a
            map from such values to others, see `AxisMap`.
        variants: Axes for each of whose values every claim is judged separately.
        drawing: Layout of the picture.
        tables: Tables of quantities with the paper's numbers.
        quick: The quick version.
        claims: The claims.
    """

    paper: Slug
    figure: Slug
    title: str = Field(min_length=1)
    description: str = ""
    constants: Many[str] = ()
    chosen: str = ""
    notes: Many[str] = ()
    synthetic: str = ""
    suite: Suite
    study: OffPolicyStudy | None = None
    results: Slug | None = None
    samples: Many[int] = ()
    axes: dict[Axis, AxisMap]
    variants: Many[Axis]
    drawing: Drawing
    tables: Many[FigureTable] = ()
    quick: Quick
    claims: Many[Claim] = Field(min_length=1)

    @model_validator(mode="before")
    @classmethod
    def _fill(cls, data: Any) -> Any:
        if isinstance(data, dict) and isinstance(data.get("suite"), dict):
            import yaml

            suite = parse_suite(yaml.safe_dump(data["suite"], sort_keys=False), "suite")
            return {**data, "suite": suite}
        return data

    @model_validator(mode="after")
    def _check(self) -> Figure:
        ids = distinct([table.id for table in self.tables], "table given")
        distinct([claim.id for claim in self.claims], "claim given")
        drawing = self.drawing
        claims = [(f"claim {claim.id}", claim) for claim in self.claims]
        used: list[tuple[str, str, Iterable[str], Collection[str]]] = [
            ("quick.horizons", "task", self.quick.horizons, [t.name for t in self.suite.tasks]),
            *((place, "table", [claim.printed], ids) for place, claim in claims if claim.printed),
            ("variants", "axis", self.variants, self.axes),
            ("drawing", "axis", (drawing.columns, *drawing.lines, *drawing.where), self.axes),
            *((f"table {table.id}", "axis", table.axes, self.axes) for table in self.tables),
            *((place, "axis", claim.axes, self.axes) for place, claim in claims),
        ]
        for place, what, asked, known in used:
            for name in asked:
                if name not in known:
                    raise ValueError(f"{place}: {unknown_name(what, name, known)}")
        return self

    @property
    def target(self) -> str:
        """Paper and figure, e.g. ``"private-assortment/fig4"``."""
        return f"{self.paper}/{self.figure}"

    @property
    def judged(self) -> tuple[Claim, ...]:
        """The claims of the run, with what was chosen.

        They are marked if the data are generated; those of the paper are then untested.
        """
        claims = tuple(
            c.model_copy(update={"chosen": c.chosen or self.chosen * (c.by == "paper")})
            for c in self.claims
        )
        if not self.synthetic:
            return claims
        mark = " [On synthetic data.]"
        reason = "The data are generated."
        return tuple(
            c.model_copy(update={"text": c.text + mark,
                                 "untested": c.untested or reason * (c.by == "paper")})
            for c in claims
        )  # fmt: skip

    @property
    def remarks(self) -> tuple[str, ...]:
        """Notes, and the description of generated data."""
        return (*self.notes, self.synthetic) if self.synthetic else self.notes

    def curves_of(self, series: Sequence[RowResult]) -> list[Curve]:
        """Return rows with their coordinates, in the order of the suite."""
        agents = [agent.label for agent in self.suite.agents]
        tasks = [task.name for task in self.suite.tasks]

        def order(s: RowResult) -> tuple[int, int, float]:
            budget = s.cell.agent.budget
            strength = 0.0 if budget is None else budget.limit
            return agents.index(s.agent), tasks.index(s.task), strength

        placed = sorted(series, key=order)
        return [Curve(s, {a: _coordinate(s, at) for a, at in self.axes.items()}) for s in placed]

    def quick_version(self) -> Figure:
        """Return the quick version, whose suite has another name."""
        quick = self.quick
        suite = self.suite
        tasks = [
            _changed(task, env_kwargs={**task.env_kwargs, **quick.env_kwargs},
                     horizon=quick.horizons.get(task.name, quick.horizon))
            for task in suite.tasks
        ]  # fmt: skip
        agents = [
            _changed(agent, params={**agent.params,
                                    **{k: v for k, v in quick.params.items() if k in agent.params}})
            for agent in suite.agents
        ]  # fmt: skip
        small = _changed(suite, name=f"{suite.name}-quick", replicates=quick.replicates,
                         tasks=tuple(tasks), agents=tuple(agents))  # fmt: skip
        study = self.study and _changed(self.study, rounds=min(quick.horizon, 200))
        notes = ("Quick version: small, and its verdicts prove nothing.", *self.notes)
        return self.model_copy(update={"suite": small, "notes": notes, "study": study})

    def with_environment(self, changes: Mapping[str, Any]) -> Figure:
        """Return the figure with changed environments; its suite has another name.

        Args:
            changes: Values by parameter for all tasks, or by ``TASK.parameter`` for one. A task
                with `data` does not require the data set that it names. If all tasks have
                `data`, `synthetic` is cleared.

        Raises:
            UnknownNameError: If there is no such task.
            ParameterError: If the horizon is changed, which belongs to the suite.
        """
        names = [task.name for task in self.suite.tasks]
        own: dict[str, dict[str, Any]] = {name: {} for name in names}
        for key, value in sorted(changes.items(), key=lambda item: "." in item[0]):
            task, _, parameter = key.rpartition(".")
            if task and task not in own:
                raise unknown_name("task", task, names)
            if parameter == "horizon":
                raise ParameterError("the horizon belongs to the suite and cannot be set here")
            for name in [task] if task else names:
                own[name][parameter] = value
        tasks = tuple(
            _changed(task, env_kwargs={**task.env_kwargs, **own[task.name]},
                     **({"requires": None} if "data" in own[task.name] else {}))
            for task in self.suite.tasks
        )  # fmt: skip
        suite = _changed(self.suite, name=f"{self.suite.name}-own", tasks=tasks)
        given = ", ".join(f"{key}={value!r}" for key, value in changes.items())
        update: dict[str, Any] = {"suite": suite}
        update["notes"] = (f"The environment was changed: {given}.", *self.notes)
        if all("data" in mine for mine in own.values()):
            update["synthetic"] = ""
        return self.model_copy(update=update)


def _changed(model: Any, **update: Any) -> Any:
    """Return a validated copy with other fields."""
    return type(model).model_validate(model.model_copy(update=update).model_dump())


def _coordinate(series: RowResult, axis: AxisMap) -> Scalar | None:
    values = (_read(series, path) for path in axis.path)
    scalar: Scalar | None = coordinate(next((v for v in values if v is not None), None))
    known: dict[Any, Scalar] = dict(axis.values)
    return known.get(scalar) if known else scalar


def _read(series: RowResult, path: str) -> Scalar | None:
    holder, _, name = path.partition(".")
    run = series.cell.agent
    task = series.cell.task
    if holder == "budget":
        value = series.budget if name == "label" else getattr(run.budget, name, None)
    elif holder == "agent":
        value = getattr(run, name) if name in ("name", "label") else run.params.get(name)
    else:
        value = getattr(task, name) if name in ("horizon", "name") else task.env_kwargs.get(name)
    return value if value is None or isinstance(value, (str, int, float, bool)) else str(value)


def figure_files() -> dict[str, Traversable]:
    """Return the file of every installed ``paper/figure``.

    A package adds papers by an entry point of the group ``dpb_gym.papers`` that names one of its
    modules. The figures are the files ``PAPER/FIGURE.yaml`` in the module's folder, and importing
    it registers their quantities. A package that fails to import is skipped with a warning.
    """
    folders = [resources.files("dpb_gym.papers") / "figures"]
    folders += map(resources.files, load_plugins(ENTRY_POINT_GROUP))
    files: dict[str, Traversable] = {}
    for folder in folders:
        for paper in (one for one in folder.iterdir() if one.is_dir()):
            for file in (one for one in paper.iterdir() if one.name.endswith(".yaml")):
                files.setdefault(f"{paper.name}/{file.name.removesuffix('.yaml')}", file)
    return dict(sorted(files.items()))


def load_figures(target: str) -> list[Figure]:
    """Return the figures of a target: all of a paper, one ``paper/figure``, or those of a file.

    Args:
        target: A name (see `figure_files`), or the path of a ``.yaml`` file.

    Raises:
        UnknownNameError: If there is no such paper or figure.
        SuiteError: If a file is not valid or cannot be read.
    """
    if target.endswith((".yaml", ".yml")):
        try:
            return [read_spec(Figure, Path(target).read_text(encoding="utf-8"), target)]
        except (OSError, UnicodeDecodeError) as error:
            raise SuiteError(f"{target}: cannot be read: {error}") from None
    known = figure_files()
    chosen = [name for name in known if name == target or name.split("/")[0] == target]
    if not chosen:
        raise unknown_name("paper or figure", target, {n.split("/")[0] for n in known} | set(known))
    figures = [read_spec(Figure, known[name].read_text(encoding="utf-8"), name) for name in chosen]
    for name, figure in zip(chosen, figures):
        if figure.target != name:
            raise SuiteError(f"{name}: says that it is {figure.target}")
    return figures
