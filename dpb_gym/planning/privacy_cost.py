"""Cost of privacy on an environment or a log, as sentences, a picture and a page."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from dpb_gym import report, validation
from dpb_gym.envs.log_environments import from_log
from dpb_gym.envs.registration import environment
from dpb_gym.errors import AgentError, ParameterError
from dpb_gym.files import write_text
from dpb_gym.privacy import Budget
from dpb_gym.privacy.budget import check_protects, report_delta
from dpb_gym.problems.base import Array
from dpb_gym.problems.kinds import kind_of
from dpb_gym.problems.logged import Logged
from dpb_gym.progress_lines import progress_lines, share_played
from dpb_gym.report.comparison_groups import Group
from dpb_gym.report.leaderboard_data import Interval
from dpb_gym.report.notebook import grid
from dpb_gym.results import metrics
from dpb_gym.results.leaderboard import data_notes
from dpb_gym.results.result import Result
from dpb_gym.results.row_result import RowResult, read_guarantee
from dpb_gym.running.api import evaluate
from dpb_gym.streams import Stream, generator
from dpb_gym.suites.suite import resolve_checkpoints

if TYPE_CHECKING:
    from matplotlib.figure import Figure

BUDGETS = ("eps=0.5,delta=1e-6", "eps=1,delta=1e-6", "eps=4,delta=1e-6")
RANDOM = "random"
"""The baseline of random choices."""
DRAWS = 16
"""Draws of a fitted log's coefficients from their posterior."""
LARGEST_EPSILON = 10.0
"""Largest epsilon per person that is reported as a guarantee: e^10 is a factor of 22,000."""


@dataclass(frozen=True)
class Shortfall:
    """Loss of an agent relative to the baseline in a part of the horizon.

    Attributes:
        agent: Label.
        budget: Budget as text, ``"none"`` for random choices.
        first: First round of the part, from 1.
        last: Last round.
        percent: Loss in percent of the baseline's expected earnings on the same customers, mean
            over replicates with its 95% interval. For a log the interval contains the uncertainty
            of the fitted model.
    """

    agent: str
    budget: str
    first: int
    last: int
    percent: Interval

    @property
    def kept(self) -> Interval:
        """Earnings in percent of the baseline's."""
        p = self.percent
        return Interval(100.0 - p.mean, 100.0 - p.high, 100.0 - p.low)

    def __str__(self) -> str:
        p = self.percent
        places = 1 if max(abs(p.low), abs(p.high)) >= 1.0 else 2
        return f"{p.mean:.{places}f}% [{p.low:.{places}f}, {p.high:.{places}f}]"


@dataclass(frozen=True, eq=False, repr=False)
class PrivacyCost:
    """Result of `cost_of_privacy`.

    Attributes:
        result: All runs, with curves, tables and guarantees.
        agent: Label of the recommended agent; without a budget it is the baseline.
        losses: One entry per agent, budget and part of the horizon.
        notes: What is protected and what is not, repeated customers, and remarks on the fit and
            on the simulation.
    """

    result: Result
    agent: str
    losses: tuple[Shortfall, ...]
    notes: tuple[str, ...]

    def sentence(self, budget: Budget | str | None = None, agent: str | None = None) -> str:
        """Return the cost of privacy as a sentence.

        Args:
            budget: One of the budgets; the first by default.
            agent: Label; the recommended agent by default.

        Raises:
            ParameterError: If that was not run.
        """
        rows = [x for x in self.losses if x.agent == (agent or self.agent)]
        if budget is not None:
            text = Budget.text(Budget.parse(budget))
            rows = [x for x in rows if x.budget == text]
        if not rows:
            known = ", ".join(dict.fromkeys(f"{x.agent} at {x.budget}" for x in self.losses))
            asked = f"{agent or self.agent} at {budget or 'any budget'}"
            raise ParameterError(f"no {asked}; there are {known}")
        early, late = rows[:2]
        how = f"at {early.budget}" if early.budget != "none" else "without privacy"
        how = "at random" if early.agent == RANDOM else how
        return (
            f"{how} you lose {early} of {self._earned} in the first {early.last:,} customers, "
            f"{late} in the next {late.last - late.first + 1:,}"
        )

    @property
    def name(self) -> str:
        """Name of the log, or the environment's id."""
        (task,) = self.result.suite.tasks
        return str(getattr(task.problem(), "data_name", task.env))

    @property
    def _earned(self) -> str:
        (kind,) = self.result.kinds.values()
        form = kind_of(kind).logs
        return "revenue" if form is None else form.earned

    @property
    def _table(self) -> tuple[list[str], list[list[str]]]:
        rows = [[x.agent, x.budget, f"{x.first:,} to {x.last:,}", str(x)] for x in self.losses]
        return ["agent", "budget", "customers", f"loss of {self._earned} [95%]"], rows

    @property
    def sentences(self) -> list[str]:
        """Sentences for each budget of the recommended agent, and for random choices."""
        budgets = dict.fromkeys(x.budget for x in self.losses if x.agent == self.agent)
        return [*map(self.sentence, budgets), self.sentence(agent=RANDOM)]

    def records(self) -> list[dict[str, Any]]:
        """Return one dict per agent, budget and part, for a data frame."""
        return [
            {**vars(loss), "percent": loss.percent.mean, "low": loss.percent.low,
             "high": loss.percent.high}
            for loss in self.losses
        ]  # fmt: skip

    def plot(self, path: str | os.PathLike[str] | None = None) -> Figure:
        """Draw earnings of each agent, budget and part, in percent of the non-private baseline.

        Args:
            path: File to write, as for `dpb_gym.report.plot`.
        """
        return report.plot_intervals(self.name, *self._bars, path)

    @property
    def _bars(self) -> tuple[list[tuple[str, str, Interval]], str]:
        """Lines of the picture, of which the first is the baseline, and the label of its axis."""
        bars = [(f"{self.agent}, none", "without privacy", Interval(100.0, 100.0, 100.0))]
        bars += [
            (f"{x.agent}, {x.budget}", f"customers {x.first:,} to {x.last:,}", x.kept)
            for x in self.losses
        ]
        return bars, f"{self._earned} in percent of that of {self.agent} without privacy"

    def to_html(self, path: str | os.PathLike[str]) -> Path:
        """Write a self-contained page with sentences, picture, table and notes."""
        facts = f"{self.name}: {self.result.suite.replicates} replicates"
        notes = {"What to know": [facts, *self.notes]}
        title = f"{self.name}: what privacy costs"
        page = report.advice_page(title, self.sentences, *self._bars, self._table, notes)
        return write_text(path, page)

    def _repr_html_(self) -> str:
        lines = "".join(f"<li>{escape(line)}</li>" for line in self.sentences)
        notes = "".join(f"<li>{escape(note)}</li>" for note in self.notes)
        return f"<ul>{lines}</ul>{grid(*self._table)}<h3>What to know</h3><ul>{notes}</ul>"

    def __str__(self) -> str:
        return "\n".join([*self.sentences, *(f"note: {note}" for note in self.notes)])

    def __repr__(self) -> str:
        return f"PrivacyCost({self.sentence()!r})"


def cost_of_privacy(
    source: Any,
    budgets: Sequence[Budget | str | None] | Budget | str = BUDGETS,
    problem: str | None = None,
    *,
    agents: Sequence[str] | None = None,
    horizon: int | None = None,
    first: int | None = None,
    replicates: int = 20,
    seed: int = 0,
    workers: int | None = 1,
    progress: bool | Callable[[int, int], Any] | None = None,
    **log: Any,
) -> PrivacyCost:
    """Estimate the cost of privacy on an environment or a log by running agents with and without.

    The baseline is the recommended agent without a budget: the same code with exact releases.
    Losses are differences of expected earnings on the same customers (`dpb_gym.evaluate`).

    Args:
        source: An environment id; or a log, as `dpb_gym.from_log` takes it.
        budgets: Budgets as `Budget` or text.
        problem: Of a log: name of its kind, such as ``"pricing"``.
        agents: Registered names, the recommended one first: it must run without a budget too.
            Those of the kind's `LogForm` by default.
        horizon: Customers; the environment's default if None.
        first: Customers of the first part; a tenth by default.
        replicates: Independent replicates, at least 2.
        seed: Replicate i has seed ``seed + i``.
        workers: See `dpb_gym.evaluate`.
        progress: See `dpb_gym.progress_lines.progress_lines`; or a function of (rounds done,
            rounds in all).
        **log: Further arguments of `dpb_gym.from_log`, or parameters of the environment.

    Raises:
        DataError: If the log cannot be read or contains too little.
        ParameterError: If an argument is invalid.
        AgentError: If the recommended agent fails or does not run without a budget.

    Example:
        >>> import dpb_gym
        >>> estimate = dpb_gym.cost_of_privacy("DPB/Pricing-v0", ["rho=1"], horizon=400,
        ...     replicates=3)
        >>> estimate.sentence("rho=1").split(" of ")[1]
        'revenue in the first 40 customers, -0.3% [-4.1, 2.6] in the next 360'
    """
    replicates = validation.integer("replicates", replicates, 2)
    budgets = [budgets] if isinstance(budgets, (str, Budget)) else budgets
    limits = [check_protects(b) for b in budgets if b]
    if problem is None and (not isinstance(source, str) or Path(source).suffix):
        raise ParameterError("name the problem of the log: problem='pricing', columns by name")
    shown = callable(progress) or progress is False
    with progress_lines("cost_of_privacy", not shown) as say:
        if problem is not None:
            source = from_log(source, problem, **log)
            log = {}
        env = environment(source)
        form = kind_of(env.kind).logs
        named = agents or (() if form is None else form.recommended)
        if not named:
            raise ParameterError(f"no agents are recommended for {env.kind}: name some (agents=)")
        ours, *others = named
        T = validation.integer("horizon", horizon or env.parameters["horizon"], 2)
        made = env.make_problem(**{**log, "horizon": T})
        if isinstance(made, Logged) and made.released is None:
            log = {"draws": DRAWS, **log}
        split = validation.integer("first", max(1, T // 10) if first is None else first, 1, T - 1)
        result = evaluate(
            source, {name: name for name in (ours, *others, RANDOM)}, T, replicates, seed,
            (*resolve_checkpoints("log", T), split), log, [*limits, "none"], workers,
            progress if shown else share_played("comparing agents", say),
        )  # fmt: skip
    base = [s for s in result.rows if (s.agent, s.budget) == (ours, "none")]
    if not base:
        failed = [str(f) for f in result.failures if f.cell.agent.label == ours]
        raise AgentError(f"{ours} does not run without a budget: {'; '.join(failed) or 'required'}")
    which = coefficients(env.make_problem(**{**log, "horizon": T}), base[0].replicates, seed)[1]
    losses = [
        Shortfall(s.agent, s.budget, start + 1, end, _lost(s, base[0], start, end, which))
        for s in sorted(result.rows, key=lambda s: s.agent == RANDOM)
        if s is not base[0]
        for start, end in ((0, split), (split, T))
    ]
    protected = [f"{', '.join(who)}: {text}" for text, who in explanations(result).items()]
    zero = "an interval that contains 0 means that these replicates show no difference"
    return PrivacyCost(result, ours, tuple(losses), (*protected, *result_notes(result), zero))


def coefficients(problem: Any, replicates: Array, seed: int) -> tuple[Array, Array]:
    """Return the different coefficients of a fitted log's runs, and their number per replicate.

    Args:
        problem: Any problem; without draws of the coefficients all replicates have number 0.
        replicates: Numbers of the replicates ``(n,)``.
        seed: Seed of replicate 0.
    """
    if getattr(problem, "thetas", None) is None:
        return np.empty((0, 0)), np.zeros(len(replicates), np.int64)
    rngs = [generator(seed + int(i), Stream.HIDDEN) for i in replicates]
    drawn = np.array([problem.draw_hidden(rng)["theta"] for rng in rngs])
    thetas, which = np.unique(drawn, axis=0, return_inverse=True)
    return thetas, which.ravel()


def _lost(row: RowResult, base: RowResult, start: int, end: int, which: Array) -> Interval:
    """Return the loss in rounds start + 1 to end, in percent of the baseline's earnings.

    `which` is the number of the coefficients in each replicate; see `coefficients`.
    """

    def within(curve: Any) -> Any:
        at = [0.0 if t == 0 else curve[:, row.rounds.tolist().index(t)] for t in (start, end)]
        return at[1] - at[0]

    earned = float(within(base.reward).mean())
    if earned <= 0.0:
        raise ParameterError(
            f"{base.agent} earns nothing in rounds {start + 1} to {end}: there is no percentage; "
            "use more replicates, or another `first`"
        )
    return metrics.grouped(100.0 * (within(row.regret) - within(base.regret)) / earned, which)


def _per_person(rows: Sequence[RowResult], uses: int) -> list[str]:
    """Return the guarantee per person of each row whose unit is one round.

    A person who comes in `uses` rounds is a group of that size; see `Composition.group`.
    """
    notes = []
    for row in rows:
        if row.guarantee is None or row.guarantee["unit"] in ("user", "user-rewards"):
            continue
        guarantee = read_guarantee(row.guarantee)
        budget = row.cell.agent.budget
        delta = report_delta(budget)
        epsilon = replace(guarantee, uses=(1, uses)).data_level(delta)["person"]
        promise = f"eps={epsilon:.4g} at delta={delta:g} for one person"
        if epsilon > LARGEST_EPSILON:
            promise += ", too large to be a guarantee per person"
        notes.append(f"{row.cell.agent.name} at {row.budget}: {promise}")
    return notes


def explanations(result: Result) -> dict[str, list[str]]:
    """Return the labels of the agents by the explanation of what they protect."""
    groups = dict[str, list[str]]()
    for row in result.rows:
        if row.guarantee is not None:
            group = Group(row.guarantee["notion"], row.guarantee["unit"])
            groups.setdefault(group.explanation, []).append(row.agent)
    return {text: [*dict.fromkeys(labels)] for text, labels in groups.items()}


def result_notes(result: Result, visits: int | None = None) -> list[str]:
    """Return how often persons come, and remarks on the fit and the simulation.

    Args:
        result: The runs.
        visits: Rounds of one person; by default those of the simulation.
    """
    (task,) = result.suite.tasks
    notes = list[str]()
    problem = task.problem()
    uses = visits or problem.info.person_uses or problem.info.max_interactions or 1
    if uses > 1:
        notes.append(f"one person comes in up to {uses:,} rounds")
        notes += _per_person(result.rows, uses)
    notes += data_notes(task)
    if fitted := problem.summary():
        notes += fitted.get("notes", [])
        notes.append("the table was read without noise: its customers are not protected")
    notes.append(
        "simulated customers and noise: the seed is enough to remove the noise. For real "
        "customers use dpb_gym.serve"
    )
    return [*notes, *(f"failed: {failure}" for failure in result.failures)]
