"""Figures of papers as data: what to run, how to draw it, what the paper claims."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from dpb_gym.errors import ParameterError, unknown_name
from dpb_gym.evaluation.suite import Slug, Suite, parse_suite

Scalar = str | int | float | bool
Selector = dict[str, Scalar | tuple[Scalar, ...]]
Axis = Annotated[str, Field(pattern=r"^[a-z][a-z0-9_]*$", max_length=30)]
AxisPath = Annotated[str, Field(pattern=r"^(agent|task|budget)\.[A-Za-z_][A-Za-z0-9_]*$")]
Fraction = Annotated[float, Field(ge=0.0, le=1.0)]
REFERRING = ("relative-regret", "regret-drop", "relative-reward")


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, frozen=True)


class Quantity(_Strict):
    """What of a curve is compared.

    Attributes:
        kind: ``"final-regret"``, ``"final-reward"``; ``"average-regret"`` (per round);
            ``"relative-regret"`` and ``"relative-reward"`` (the curve's mean over that of its
            reference), ``"regret-drop"`` (the reference's regret minus the curve's);
            ``"slope-ratio"`` (regret per round in the `late` part over that in the `early`
            part: below 1 is sublinear growth); ``"spent"`` (the true cost over the budget
            that was asked for).
        reference: Picks the reference: a curve that matches this, and agrees with the curve
            on every other axis that both have.
        early: Part of the horizon, as fractions of it.
        late: The same.
    """

    kind: Literal[
        "final-regret",
        "final-reward",
        "average-regret",
        "relative-regret",
        "relative-reward",
        "regret-drop",
        "slope-ratio",
        "spent",
    ]
    reference: Selector | None = None
    early: tuple[Fraction, Fraction] = (0.1, 0.3)
    late: tuple[Fraction, Fraction] = (0.8, 1.0)

    @model_validator(mode="before")
    @classmethod
    def _fill(cls, data: Any) -> Any:
        return _tuples({"kind": data} if isinstance(data, str) else data, "reference")

    @model_validator(mode="after")
    def _check(self) -> Quantity:
        if (self.kind in REFERRING) != (self.reference is not None):
            raise ValueError(f"{' and '.join(REFERRING)} need a reference, the others have none")
        for name, (low, high) in (("early", self.early), ("late", self.late)):
            if low >= high:
                raise ValueError(f"{name} must be two increasing fractions, got {[low, high]}")
        return self


class Claim(_Strict):
    """One claim, and how it is decided.

    The curves that match `where` are compared, each comparison by a paired bootstrap interval
    over replicates, in one of three ways: along an axis (neighbours in its order), with other
    curves (`than`), or with a number (`value`).

    Attributes:
        id: Unique within the figure.
        text: The claim in our own words.
        source: Where the paper makes it.
        by: ``"paper"``, or ``"control"`` for what stands beside a claim of the paper.
        quantity: What is compared.
        where: Which curves.
        along: Axis whose neighbouring values are compared.
        than: Which curves they are compared with; may match several.
        value: Number they are compared with.
        expect: ``"falls"`` or ``"grows"`` with `along`; ``"below"`` or ``"above"`` with
            `than`; those or ``"near"`` with `value`.
        tolerance: Fraction of the right-hand side by which the claim may be missed; with
            ``"near"``, the absolute distance allowed.
        least: An effect surely below this fraction of the right-hand side counts as none and
            contradicts the claim.
    """

    id: Slug
    text: str = Field(min_length=1)
    source: str = ""
    by: Literal["paper", "control"] = "paper"
    quantity: Quantity
    where: Selector = {}
    along: Axis | None = None
    than: Selector | None = None
    value: float | None = Field(default=None, allow_inf_nan=False)
    expect: Literal["falls", "grows", "below", "above", "near"]
    tolerance: float = Field(default=0.0, ge=0.0, allow_inf_nan=False)
    least: float = Field(default=0.01, ge=0.0, allow_inf_nan=False)

    @model_validator(mode="before")
    @classmethod
    def _fill(cls, data: Any) -> Any:
        return _tuples(data, "where", "than")

    @model_validator(mode="after")
    def _check(self) -> Claim:
        given = [n for n in ("along", "than", "value") if getattr(self, n) is not None]
        if len(given) != 1:
            raise ValueError(f"give exactly one of along, than and value, got {given or 'none'}")
        allowed = {
            "along": ("falls", "grows"),
            "than": ("below", "above"),
            "value": ("below", "above", "near"),
        }[given[0]]
        if self.expect not in allowed:
            raise ValueError(f"with {given[0]}, expect must be one of {', '.join(allowed)}")
        return self


class Drawing(_Strict):
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
    where: Selector = {}

    @model_validator(mode="before")
    @classmethod
    def _fill(cls, data: Any) -> Any:
        if isinstance(data, dict) and isinstance(data.get("lines"), str):
            data = {**data, "lines": [data["lines"]]}
        return _tuples(data, "where", top=("lines",))


class Quick(_Strict):
    """What the quick version changes: it shows that everything runs, and proves nothing.

    Attributes:
        horizon: T of every task.
        replicates: Replicates.
        params: Agent parameters that replace those given, for agents that give them.
        env_kwargs: Parameters of the environment that replace those given.
    """

    horizon: int = Field(ge=2)
    replicates: int = Field(ge=1)
    params: dict[str, Any] = {}
    env_kwargs: dict[str, Any] = {}


class Figure(_Strict):
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
        axes: Name of each axis, and where its value stands: ``agent.PARAMETER``,
            ``agent.name``, ``agent.label``, ``task.PARAMETER``, ``task.horizon``,
            ``budget.rho``, ``budget.epsilon``, ``budget.delta`` or ``budget.label``.
        variants: Axes along which every claim is judged anew.
        drawing: The picture.
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
    axes: dict[Axis, AxisPath]
    variants: tuple[Axis, ...]
    drawing: Drawing
    quick: Quick
    claims: tuple[Claim, ...] = Field(min_length=1)

    @model_validator(mode="before")
    @classmethod
    def _fill(cls, data: Any) -> Any:
        if isinstance(data, dict) and isinstance(data.get("suite"), dict):
            import yaml

            suite = parse_suite(yaml.safe_dump(data["suite"], sort_keys=False), "suite")
            data = {**data, "suite": suite}
        return _tuples(data, top=("constants", "notes", "variants", "claims"))

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
        for claim in self.claims:
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

    def quickened(self) -> Figure:
        """The quick version, under a suite name of its own."""
        quick = self.quick
        tasks = tuple(
            task.model_copy(
                update={
                    "horizon": quick.horizon,
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
        return self.model_copy(update={"suite": suite, "notes": notes})

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


def _tuples(data: Any, *selectors: str, top: tuple[str, ...] = ()) -> Any:
    """YAML has lists only; strict models want tuples."""
    if not isinstance(data, dict):
        return data
    data = {
        k: tuple(v) if isinstance(v, list) and k in (*top, "early", "late") else v
        for k, v in data.items()
    }
    for name in selectors:
        if isinstance(data.get(name), dict):
            data[name] = {k: tuple(v) if isinstance(v, list) else v for k, v in data[name].items()}
    return data
