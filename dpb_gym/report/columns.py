"""The columns of results, each declared once.

Data frames, CSV, JSON and LaTeX files, tables in the terminal and in notebooks, and the page with
its download iterate over `COLUMNS` and use a column's one name. To add a column, add an entry here
or call `register`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from dpb_gym.errors import ParameterError
from dpb_gym.privacy.budget import Budget
from dpb_gym.report.leaderboard_data import Interval, Row, TaskResult, TrackResult, TrackRow

Kind: TypeAlias = Literal[
    "text", "number", "interval", "mean", "score", "agent", "budget", "guarantee", "verdict"
]
Place: TypeAlias = Literal["records", "terminal", "notebook", "latex", "task", "track", "details"]
Value: TypeAlias = str | float | Interval | None
EVERYWHERE: tuple[Place, ...] = ("records", "terminal", "task", "details")


@dataclass(frozen=True)
class ResultColumn:
    """A column of results.

    Attributes:
        name: Key in records, files and the page's data, and class of its cells on the page.
        title: Heading for readers.
        kind: How a cell is shown. ``"interval"``: a mean with both ends of its interval.
            ``"mean"``: the same, with the ends in records and details only. ``"score"``: an
            interval drawn as a bar on the page. Other names are formats of text on the page.
        shown: Where it appears: ``"records"`` (data frame, CSV, JSON), ``"terminal"``,
            ``"notebook"``, ``"latex"``, and on the page in the tables of a ``"task"``, in those of
            a ``"track"``, and among the ``"details"`` of a row.
        value: Its value from a task or track and one of its rows; None reads the row's attribute
            `name`.
        unit: Unit of a number, empty without one.
        help: Explanation on the page, empty without one.
        better: ``"less"`` or ``"more"``: the direction that sorts first; empty for text.
        decimals: Number of decimals. The name of a column means the number of decimals of that
            column; None formats each number by its own magnitude.
        alias: Older spelling that the page's address still accepts.
    """

    name: str
    title: str
    kind: Kind = "text"
    shown: tuple[Place, ...] = EVERYWHERE
    value: Callable[[Any, Any], Value] | None = None
    unit: str = ""
    help: str = ""
    better: Literal["", "less", "more"] = ""
    decimals: int | str | None = None
    alias: str = ""

    @property
    def is_interval(self) -> bool:
        """Whether values are intervals."""
        return self.kind in ("interval", "mean", "score")

    @property
    def is_numeric(self) -> bool:
        """Whether values are numbers or intervals."""
        return self.is_interval or self.kind == "number"

    def of(self, source: TaskResult | TrackResult, row: Row | TrackRow) -> Value:
        """Return the value of a row of a task or track, None if it has none.

        A `value` function gets rows of tracks only if the column is shown there.
        """
        entry: Value = None
        if self.value is None:
            entry = getattr(row, self.name, None)
        elif isinstance(row, Row) or "track" in self.shown:
            entry = self.value(source, row)
        return None if entry == "" else entry

    def entries(self, source: TaskResult | TrackResult, row: Row | TrackRow) -> dict[str, Any]:
        """Return the value by name; an interval also by ``NAME_low`` and ``NAME_high``.

        Ends that are unknown are None.
        """
        value = self.of(source, row)
        if not self.is_interval:
            return {self.name: value}
        if isinstance(value, Interval) and not value.bounded:
            return {self.name: value.mean, f"{self.name}_low": None, f"{self.name}_high": None}
        parts = (("", "mean"), ("_low", "low"), ("_high", "high"))
        return {self.name + suffix: getattr(value, part, None) for suffix, part in parts}


def _of(part: Literal["task", "budget", "audit"], name: str) -> Callable[[TaskResult, Row], Any]:
    """Return a function that reads an attribute of the task, or of the row's budget or audit."""
    return lambda task, row: getattr(task if part == "task" else getattr(row, part), name, None)


RECORDS: tuple[Place, ...] = ("records",)
DETAILS: tuple[Place, ...] = ("records", "details")
COLUMNS: list[ResultColumn] = [
    ResultColumn("task", "Task", shown=RECORDS, value=_of("task", "task")),
    ResultColumn("env_id", "Environment", shown=RECORDS, value=_of("task", "env_id")),
    ResultColumn("problem", "Problem", shown=RECORDS, value=_of("task", "problem")),
    ResultColumn("horizon", "T", "number", RECORDS, _of("task", "horizon"), "rounds"),
    ResultColumn(
        "agent", "Agent", "agent",
        ("records", "terminal", "notebook", "latex", "task", "track", "details"),
    ),
    ResultColumn("name", "Registered name", shown=RECORDS),
    ResultColumn(
        "budget", "Budget", "budget",
        ("records", "notebook", "latex", "task", "track", "details"),
        lambda source, row: Budget.text(row.budget),
    ),
    ResultColumn("rho", "rho", "number", RECORDS, _of("budget", "rho")),
    ResultColumn("epsilon", "epsilon", "number", RECORDS, _of("budget", "epsilon")),
    ResultColumn("delta", "delta", "number", RECORDS, _of("budget", "delta")),
    ResultColumn(
        "guarantee", "Guarantee", "guarantee",
        ("records", "terminal", "notebook", "task", "details"),
        help="Computed by the ledger that every release is charged to, or declared by an agent "
        "that accounts for itself. Bold marks the lowest mean regret at each notion, unit and "
        "budget; grey rows are references.",
    ),
    ResultColumn(
        "accounting", "Accounting", shown=RECORDS,
        value=lambda task, row: row.accounting if row.private else None,
    ),
    ResultColumn("notion", "Notion", shown=RECORDS),
    ResultColumn("unit", "Unit", shown=RECORDS),
    ResultColumn(
        "tuning", "Tuning", shown=DETAILS,
        help="A row marked tuned has the best of the points that were tried on other "
        "customers; its details state the cost. It is next to the row of the "
        "defaults, and either may be the best.",
    ),
    ResultColumn(
        "ruling", "Parameter choice", shown=DETAILS,
        help="Default: the agent's defaults, the same for every task and budget. Tuned: "
        "parameters chosen on other customers.",
    ),
    ResultColumn(
        "trust", "Trust", shown=DETAILS,
        help="Rows are computed here, recomputed here from a submission, or stated by a sender. "
        "Rows that are only stated are not ranked.",
    ),
    ResultColumn("replicates", "Replicates", "number", DETAILS),
    ResultColumn(
        "regret", "Regret", "interval",
        ("records", "terminal", "notebook", "latex", "task", "details"),
        unit="reward", better="less", decimals="regret",
        help="Cumulative pseudo-regret at the horizon T: expected reward of the best action minus "
        "that of the action taken, summed over rounds. Mean over replicates, with its 95% interval "
        "(Student's t). Smaller is better.",
    ),
    ResultColumn(
        "iqm_regret", "Interquartile mean", "interval", DETAILS,
        unit="reward", better="less", decimals="regret",
    ),
    ResultColumn(
        "excess", "Privacy costs", "interval", ("records", "task", "details"),
        unit="reward", better="less", decimals="excess",
        help="The row's regret minus that of the same agent with the same parameters and without a "
        "budget, on the same customers, where both ran; the interval is that of the paired "
        "difference.",
    ),
    ResultColumn(
        "score", "Score", "score",
        ("records", "terminal", "notebook", "latex", "task", "track", "details"),
        better="more", decimals=3,
        help="1 - regret / (oracle - random): random choice is 0, the oracle is 1. The rewards of "
        "both are constants of the suite. A track's "
        "score is the mean over its tasks. Rows in italics lack a task; they are last and "
        "not compared with the others.",
    ),
    ResultColumn(
        "lead", "Lead over the best other agent", "interval", DETAILS,
        unit="reward", better="more",
    ),
    ResultColumn(
        "reward", "Reward", "mean", ("records", "terminal", "task", "details"),
        unit="reward", better="more", decimals="reward",
    ),
    ResultColumn(
        "rounds_per_second", "Rounds/s", "number",
        ("records", "terminal", "notebook", "task", "details"),
        unit="rounds/s", better="more", alias="speed",
    ),
    ResultColumn(
        "ahead", "Beats best other", "number", ("track",), better="more", decimals=2,
    ),
    ResultColumn(
        "audit_verdict", "Audit", "verdict", ("records", "latex", "task", "track", "details"),
        lambda source, row: row.verdict or getattr(getattr(row, "audit", None), "verdict", None),
        help="A statistical attack on the agent gives a lower bound on its true epsilon. A bound "
        "above the claim refutes the claim; one below it proves nothing, and an audit that could "
        "not have refuted it says so (no power). Without an audit of the row's code it says not "
        "audited.",
        alias="audit",
    ),
    ResultColumn(
        "audit_lower_bound", "Epsilon at least", "number", RECORDS, _of("audit", "lower_bound")
    ),
    ResultColumn("audit_claimed", "Epsilon claimed", "number", RECORDS, _of("audit", "claimed")),
    ResultColumn("source", "Code", shown=RECORDS),
]  # fmt: skip


def register(column: ResultColumn) -> None:
    """Add a column to every table, file and page.

    Raises:
        ParameterError: If there is a column of this name.
    """
    if any(column.name in (known.name, known.alias) for known in COLUMNS):
        raise ParameterError(f"there is a column {column.name!r} already; choose another name")
    COLUMNS.append(column)


def columns(place: Place) -> Iterator[ResultColumn]:
    """Yield the columns that are shown in a place, in order."""
    return (column for column in COLUMNS if place in column.shown)
