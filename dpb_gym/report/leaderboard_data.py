"""The data of a leaderboard: frozen, validated dataclasses.

Tables, plots and pages are drawn from these alone and do not depend on how results are stored.
Each class raises a `ParameterError` that names the field if a field has the wrong type or range,
or if fields contradict each other.
"""

from __future__ import annotations

import functools
import math
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import field, replace
from datetime import datetime
from typing import Annotated, Any, TypeAlias, TypeVar, dataclass_transform

import numpy as np
import pydantic.dataclasses
from pydantic import AfterValidator, BeforeValidator, Field, PlainValidator, ValidationError

from dpb_gym import validation
from dpb_gym.errors import ParameterError, shown, unknown_name
from dpb_gym.privacy.budget import Budget

REFERENCES = frozenset({"oracle", "random"})
"""Registered names of the references that define the scale; they are not ranked."""
DEFAULTS, TUNED = RULINGS = ("default", "tuned")
"""Rulings: every agent with its defaults for all tasks and budgets, or with tuned parameters."""
DELTAS = (1e-4, 1e-5, 1e-6, 1e-8)
"""Deltas at which the page states epsilon."""
CurvePoint: TypeAlias = tuple[int, float, float, float]
_Class = TypeVar("_Class", bound=type)


@dataclass_transform(frozen_default=True, field_specifiers=(field,))
def model(cls: _Class) -> _Class:
    """Make a frozen pydantic dataclass that raises `ParameterError`."""
    made = pydantic.dataclasses.dataclass(frozen=True)(cls)
    init = made.__init__

    @functools.wraps(init)
    def checked(self: Any, *args: Any, **kwargs: Any) -> None:
        try:
            init(self, *args, **kwargs)
        except ValidationError as error:
            first = error.errors()[0]
            place = ".".join(map(str, (cls.__name__, *first["loc"])))
            own = first.get("ctx", {}).get("error")
            reason = own or f"{first['msg']}, got {shown(first['input'])}"
            raise ParameterError(f"{place}: {reason}") from None

    made.__init__ = checked  # type: ignore[method-assign]
    return made  # type: ignore[return-value]


def check(by: Callable[..., Any], *args: Any, **kwargs: Any) -> BeforeValidator:
    """Return a validator that calls `by` with a field's name, its value and these arguments."""
    return BeforeValidator(lambda value, info: by(str(info.field_name), value, *args, **kwargs))


Label: TypeAlias = Annotated[str, check(validation.text)]
MaybeLabel: TypeAlias = Annotated[str, check(validation.text, empty=True)]
Prose: TypeAlias = Annotated[str, check(validation.text, empty=True, lines=True)]
Number: TypeAlias = Annotated[float, check(validation.real)]
UNBOUNDED = -math.inf, math.inf


def _end(value: Any, info: pydantic.ValidationInfo) -> Any:
    infinite = isinstance(value, float) and math.isinf(value)
    return value if infinite else validation.real(str(info.field_name), value)


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None


End: TypeAlias = Annotated[float, BeforeValidator(_end), pydantic.PlainSerializer(_finite)]
"""End of an interval; an infinite one is null in JSON."""
Positive: TypeAlias = Annotated[float, check(validation.real, 0.0, open_low=True)]
NotNegative: TypeAlias = Annotated[float, check(validation.real, 0.0)]
Chance: TypeAlias = Annotated[float, check(validation.real, 0.0, 1.0)]
Count: TypeAlias = Annotated[int, check(validation.integer, 1)]
AnyBudget = Annotated[
    Budget | None,
    BeforeValidator(Budget.parse),
    pydantic.PlainSerializer(Budget.text, return_type=str),
]
"""A budget as `Budget` or as text; ``"none"`` and None are the same."""
Accounting = Annotated[str, Field(pattern=r"^(computed$|declared|as printed .)", max_length=2000)]


@model
class Interval:
    """An estimate with a confidence interval.

    Attributes:
        mean: The estimate.
        low: Lower end of the interval; -inf if it is unknown, as for a single replicate.
        high: Upper end, at least `low`; inf where `low` is -inf.
    """

    mean: Number
    low: End
    high: End

    def __post_init__(self) -> None:
        if self.low > self.high:
            raise ValueError(f"low {self.low} exceeds high {self.high}")
        if not self.bounded and (self.low, self.high) != UNBOUNDED:
            raise ValueError(f"both ends are finite or none, got {self.low} and {self.high}")

    @property
    def bounded(self) -> bool:
        """Whether the ends are known."""
        return math.isfinite(self.low) and math.isfinite(self.high)


@model
class Audit:
    """Result of a statistical attack on an agent.

    Attributes:
        claimed: The epsilon that the audited agent claims.
        lower_bound: Lower bound on its true epsilon.
        verdict: Text that says whether the bound refutes the claim.
    """

    claimed: NotNegative
    lower_bound: NotNegative
    verdict: Label


def _curve(points: Any) -> tuple[CurvePoint, ...]:
    """Validate a curve as one array; a large leaderboard has a hundred thousand points."""
    points = list(points) if isinstance(points, Iterable) else points
    table = validation.numbers("curve", points if points != [] else np.empty((0, 4)))
    known = np.isfinite(table)
    if table.shape[1:] == (4,):  # ends that are unknown, see `Interval`
        known[:, 2:] |= table[:, 2:] == UNBOUNDED
    validation.array("curve", np.where(known, 0.0, table), (None, 4))
    if (np.isinf(table[:, 2]) != np.isinf(table[:, 3])).any():
        raise ValueError("both ends of an interval of curve are finite or none")
    rounds = table[:, 0]
    if (rounds < 0).any() or (rounds != np.floor(rounds)).any():
        raise ValueError("a round of curve must be an integer >= 0")
    if (np.diff(rounds) <= 0).any():
        raise ValueError("rounds of curve must increase")
    if (table[:, 2] > table[:, 3]).any():
        raise ValueError("a low of curve exceeds its high")
    return tuple((int(t), *values) for t, *values in table.tolist())


def _curve_json(curve: tuple[CurvePoint, ...]) -> list[list[float | None]]:
    return [[t, mean, _finite(low), _finite(high)] for t, mean, low, high in curve]


def _finals(values: Any) -> dict[int, float]:
    """Validate the final regrets of all replicates as one array."""
    if not isinstance(values, Mapping) or not all(isinstance(k, int) and k >= 0 for k in values):
        raise ValueError("finals must map numbers of replicates to regrets")
    return dict(zip(values, validation.array("finals", list(values.values()), (None,)).tolist()))


def distinct(names: Any, what: str = "tasks holds a task") -> Any:
    """Return distinct names, or raise `ValueError` with those that occur twice."""
    if twice := sorted(name for name, count in Counter(names).items() if count > 1):
        raise ValueError(f"{what} twice: {', '.join(twice)}")
    return names


Names: TypeAlias = Annotated[
    tuple[Label, ...], Field(min_length=1), AfterValidator(lambda names: distinct(names))
]


def row_key(agent: str, budget: Budget | None) -> str:
    """Return the unique name within a table of a label and a budget, if there is one."""
    return agent if budget is None else f"{agent} ({budget})"


@model
class Entry:
    """One agent at one budget.

    Attributes:
        agent: Display label.
        name: Registered agent name.
        budget: Requested budget, None without one; its text is accepted too.
        notion: Protected output (``"joint"``, ``"anticipating"``, ``"central"``,
            ``"shuffle"``, ``"local"``), or None.
        unit: Protected unit (``"user-round"``, ``"reward"``, ``"user"``), None exactly when
            `notion` is.
        oracle: Whether it reads hidden state of the environment; such rows are not ranked.
        trust: Provenance: ``"computed here"``, ``"recomputed here"`` or ``"stated by NAME"``.
        relation: Neighbouring relation of the guarantee.
    """

    agent: Label
    name: Label
    budget: AnyBudget
    notion: Label | None
    unit: Label | None
    oracle: bool = field(default=False, kw_only=True)
    trust: Label = field(default="computed here", kw_only=True)
    relation: Label = field(default="replace-one", kw_only=True)

    def __post_init__(self) -> None:
        if (self.notion is None) != (self.unit is None):
            raise ValueError(
                f"notion and unit are both text or both None, not {self.notion!r}, {self.unit!r}"
            )

    @property
    def key(self) -> str:
        """Unique name within a table: the label, and the budget if there is one."""
        return row_key(self.agent, self.budget)

    @property
    def private(self) -> bool:
        """Whether the row has a guarantee."""
        return self.notion is not None

    @property
    def trust_model(self) -> str:
        """Who sees raw data: ``"curator"``, ``"aggregator"``, ``"shuffler"``, ``"local"``, or "".

        A budget may name it after an ``@``; otherwise the notion of privacy implies it.
        """
        implied = {None: "", "local": "local", "shuffle": "shuffler"}
        return Budget.text(self.budget).partition("@")[2] or implied.get(self.notion, "curator")

    @property
    def stated(self) -> bool:
        """Whether it was neither computed nor recomputed here; such rows are not ranked."""
        return self.trust.startswith("stated")

    @property
    def reference(self) -> bool:
        """Whether it is a reference, such as random play or the oracle, and not ranked."""
        return self.oracle or self.name in REFERENCES


@model
class Row(Entry):
    """One agent at one budget on one task.

    Attributes:
        guarantee: The guarantee in one line; ``"non-private"`` without one.
        regret: Cumulative pseudo-regret at the horizon.
        iqm_regret: Interquartile mean of the regret over replicates.
        score: Normalised score, random = 0 and oracle = 1.
        reward: Cumulative reward at the horizon.
        rounds_per_second: Agent rounds per second, positive.
        curve: Points (round, mean, low, high) of the cumulative pseudo-regret, rounds increasing;
            the ends are infinite where they are unknown.
        params: Agent parameters.
        audit: Result of an audit of this agent with these parameters, None without one.
        verdict: Verdict of an audit of the agent's code, or ``"not audited"``; empty without a
            guarantee.
        finals: Regret at the horizon by replicate number; may be empty.
        replicates: Number of replicates, at least 1.
        lead: For the best row of its notion, unit and budget: regret of the best other agent minus
            its own on the same customers. None without rivals or with too few replicates.
        excess: Cost of privacy: its regret minus that of its non-private version on the same
            customers. None without such a row or with too few replicates.
        accounting: ``"computed"`` by a ledger, ``"declared"`` by the agent, or
            ``"as printed (...)"`` for the true cost of a paper's noise.
        tuning: How the parameters were chosen and at what cost, empty if unknown.
        source: Hash of the agent's code, empty if unknown.
        ruling: ``"default"`` for the agent's registered defaults, ``"tuned"`` otherwise.
        epsilons: Epsilon of the guarantee at each of `DELTAS`; empty if unknown.
    """

    guarantee: Label
    regret: Interval
    iqm_regret: Interval | None
    score: Interval | None
    reward: Interval
    rounds_per_second: Positive | None
    curve: Annotated[
        tuple[CurvePoint, ...], PlainValidator(_curve), pydantic.PlainSerializer(_curve_json)
    ]
    params: Mapping[Label, Any] = field(default_factory=dict)
    audit: Audit | None = None
    verdict: MaybeLabel = ""
    finals: Annotated[Mapping[int, float], PlainValidator(_finals)] = field(default_factory=dict)
    replicates: Count = 1
    lead: Interval | None = None
    excess: Interval | None = None
    accounting: Accounting = "computed"
    tuning: MaybeLabel = ""
    source: MaybeLabel = ""
    ruling: Annotated[str, Field(pattern="^(default|tuned)$")] = DEFAULTS
    epsilons: tuple[NotNegative, ...] = ()

    @property
    def loss(self) -> Interval:
        """Quantity to minimise: the regret."""
        return self.regret


@model
class TrackRow(Entry):
    """One agent at one budget over the tasks of a track.

    Attributes:
        score: Mean normalised score over the tasks, equally weighted.
        tasks: Tasks that the row has results on, distinct.
        ahead: Mean probability of improvement over the best other row of the same notion, unit
            and budget, None without one.
        lead: Its score minus that of the best other agent of its notion, unit and budget; see
            `Row.lead`.
        verdict: Worst audit verdict on its tasks, see `Row.verdict`.
    """

    score: Interval
    tasks: Names
    ahead: Chance | None = None
    lead: Interval | None = None
    verdict: MaybeLabel = ""

    @property
    def loss(self) -> Interval:
        """Quantity to minimise: one minus the score."""
        return Interval(1 - self.score.mean, 1 - self.score.high, 1 - self.score.low)


@model
class Normalisation:
    """Mean cumulative rewards at the horizon that score 0 and 1.

    Attributes:
        random: Of uniformly random play.
        oracle: Of the best action in every round.
    """

    random: Number
    oracle: Number

    def __post_init__(self) -> None:
        if self.oracle <= self.random:
            raise ValueError(f"oracle must exceed random, got {self.oracle} and {self.random}")


@model
class TaskResult:
    """All rows of one task.

    Attributes:
        task: Name within the suite, e.g. ``"assortment-clip"``.
        env_id: Gymnasium id.
        problem: Problem kind.
        description: One or two sentences, may be empty.
        horizon: T, at least 1.
        replicates: Requested replicates, at least 1.
        normalisation: Mean cumulative rewards that score 0 and 1, None if there are none.
        rows: Rows with distinct keys.
        track: Name of its track, empty if it has none.
    """

    task: Label
    env_id: Label
    problem: Label
    description: Prose
    horizon: Count
    replicates: Count
    normalisation: Normalisation | None
    rows: tuple[Row, ...]
    track: MaybeLabel = ""

    def __post_init__(self) -> None:
        distinct([row.key for row in self.rows], f"task {self.task!r} holds a row")


@model
class TrackResult:
    """Scores over a group of tasks.

    Attributes:
        track: Name within the suite.
        title: Heading.
        description: One or two sentences, may be empty.
        tasks: Names of its tasks, distinct, at least one.
        rows: Rows with distinct keys.
    """

    track: Label
    title: Label
    description: Prose
    tasks: Names
    rows: tuple[TrackRow, ...]

    def __post_init__(self) -> None:
        distinct([row.key for row in self.rows], f"track {self.track!r} holds a row")
        for row in self.rows:
            if not set(row.tasks) <= set(self.tasks):
                raise ValueError(f"{row.key!r} names tasks outside track {self.track!r}")


OUTCOMES = ("ahead", "undecided", "behind", "not compared")
"""Outcomes of a comparison for this project's agents."""


@model
class RulingComparison:
    """What is known about a question: who loses least on a task at a guarantee, under one ruling.

    Rows of a stronger guarantee or a smaller budget take part, see `comparison_groups.questions`.

    Attributes:
        task: Name of the task.
        ruling: One of `RULINGS`.
        trust: Trust model asked for: ``"curator"``, ``"aggregator"``, ``"shuffler"``, ``"local"``.
        notion: Notion asked for.
        unit: Protected unit.
        budget: Largest budget, without a trust model.
        first: Key of the best row of this project, or, without one, of the best row.
        second: Key of the best other agent's row, None without one.
        gain: Regret of the second minus that of the first, on the same customers. None without a
            second row or with too few replicates.
        ours: Whether the first is an agent of this project.
        survives: Whether the gain differs from zero after Holm's correction.
    """

    task: Label
    ruling: Label
    trust: Label
    notion: Label
    unit: Label
    budget: AnyBudget
    first: Label
    second: Label | None
    gain: Interval | None
    ours: bool
    survives: bool = False

    @property
    def outcome(self) -> str:
        """One of `OUTCOMES`, by the interval of the gain.

        It is ``"not compared"`` if only this project or only others have a row, or with too few
        replicates.
        """
        if not self.ours or self.gain is None:
            return "not compared"
        behind = "behind" if self.gain.high < 0 else "undecided"
        return "ahead" if self.gain.low > 0 else behind


@model
class Origin:
    """Origin of an agent.

    Attributes:
        name: Registered name.
        code: Path of its module in its repository or package, empty if unknown.
        papers: https addresses of its papers.
        page: Path of its page from the root of the documentation; may be empty.
        standing: How it relates to its source, a key of `STANDINGS`; may be empty.
    """

    name: Label
    code: MaybeLabel = ""
    papers: tuple[Label, ...] = ()
    page: MaybeLabel = ""
    standing: MaybeLabel = ""

    def __post_init__(self) -> None:
        if wrong := [paper for paper in self.papers if not paper.startswith("https://")]:
            raise ValueError(f"papers have https addresses, unlike {wrong[0]!r}")


@model
class LeaderboardData:
    """A whole leaderboard.

    Attributes:
        title: Heading.
        suite: Suite name.
        created: Date or time in ISO 8601.
        version: Version of the package that computed the results.
        revision: Source revision, if known.
        command: Command that computes the results, may be empty.
        tasks: Tasks with distinct names.
        notes: Remarks to print beside the results.
        tracks: Groups of the tasks; each task's ``track`` is empty or names one.
        origins: Origins of the agents, where known.
        comparisons: One per task, trust model, guarantee and budget, under each ruling.
    """

    title: Label
    suite: Label
    created: Label
    version: Label
    revision: Label | None
    command: Prose
    tasks: tuple[TaskResult, ...]
    notes: tuple[Prose, ...] = ()
    tracks: tuple[TrackResult, ...] = ()
    origins: tuple[Origin, ...] = ()
    comparisons: tuple[RulingComparison, ...] = ()

    def __post_init__(self) -> None:
        try:
            datetime.fromisoformat(self.created)
        except ValueError:
            raise ValueError("created must be an ISO 8601 date") from None
        distinct([task.task for task in self.tasks], "a leaderboard holds a task")
        distinct([track.track for track in self.tracks], "a leaderboard holds a track")
        held = {(task.track, task.task) for task in self.tasks if task.track}
        listed = {(track.track, task) for track in self.tracks for task in track.tasks}
        for track, name in sorted(held ^ listed):
            raise ValueError(f"track {track!r} and task {name!r} do not name each other")

    def of_tasks(self, names: Collection[str]) -> LeaderboardData:
        """Return the leaderboard of some tasks, without the scores of tracks.

        Comparisons keep Holm's correction over all tasks.

        Raises:
            ParameterError: If no task is named.
            UnknownNameError: If there is no such task.
        """
        if not names:
            raise ParameterError("name at least one task")
        known = [task.task for task in self.tasks]
        for name in names:
            if name not in known:
                raise unknown_name("task", name, known)
        return replace(
            self,
            tasks=tuple(replace(task, track="") for task in self.tasks if task.task in names),
            tracks=(),
            comparisons=tuple(c for c in self.comparisons if c.task in names),
        )

    @property
    def ours(self) -> set[str]:
        """Registered names of this project's agents."""
        return {one.name for one in self.origins if one.standing == "ours"}

    def tally(self, ruling: str, trust: str = "") -> dict[str, int]:
        """Count the questions under a ruling by the outcome for this project's agents.

        Args:
            ruling: One of `RULINGS`.
            trust: Trust model asked for; all by default.

        Returns:
            Numbers by outcome, of ``"all"``, and of those ``"ahead"`` that survive Holm's
            correction (``"holm"``).
        """
        asked = [c for c in self.comparisons if c.ruling == ruling and trust in ("", c.trust)]
        counts = Counter(c.outcome for c in asked)
        holm = sum(c.survives and c.outcome == "ahead" for c in asked)
        return {"all": len(asked), **{name: counts[name] for name in OUTCOMES}, "holm": holm}
