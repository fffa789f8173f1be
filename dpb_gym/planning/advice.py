"""Advice on one's own log: what privacy costs, which agent to run, and what the log cannot say."""

from __future__ import annotations

import datetime
import hashlib
import os
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np

from dpb_gym import report, validation
from dpb_gym.agent import Agent
from dpb_gym.envs.log_environments import LogEnvironment, from_log
from dpb_gym.envs.registration import environment
from dpb_gym.errors import AgentError, ParameterError
from dpb_gym.files import write_text
from dpb_gym.planning import log_checks
from dpb_gym.planning.decision import Candidate, Decision, decide, difference
from dpb_gym.planning.fixed_actions import DECIDED, FixedAction, best_fixed_action
from dpb_gym.planning.learning_curve import (
    LearningCurve,
    learning_curve,
    learning_sentence,
    parts,
)
from dpb_gym.planning.privacy_cost import (
    BUDGETS,
    DRAWS,
    RANDOM,
    coefficients,
    explanations,
    result_notes,
)
from dpb_gym.privacy import Budget
from dpb_gym.privacy.budget import check_protects, report_delta
from dpb_gym.problems.base import Array, Context, Feedback, ProblemInfo
from dpb_gym.problems.fitting import TWO_SIDED
from dpb_gym.problems.folded import Answering
from dpb_gym.problems.kinds import log_form
from dpb_gym.problems.logged import Logged
from dpb_gym.progress_lines import announce, progress_lines, share_played
from dpb_gym.report.leaderboard_data import Interval
from dpb_gym.report.number_format import number
from dpb_gym.results import metrics
from dpb_gym.results.result import Result
from dpb_gym.results.row_result import RowResult, read_guarantee
from dpb_gym.running.api import evaluate

PER = 10_000
"""Customers that earnings are stated for."""
BASE = "without privacy"
SINGLE = "best single action"
TODAY = "today"
_BOUNDS = (BASE, SINGLE, RANDOM, TODAY)
_TRUSTED = {
    "curator": "a curator, who sees all responses",
    "aggregator": "the parties of a secure aggregation, together",
    "shuffler": "a shuffler, who hides the senders of messages",
    "local": "nobody but the customer's own device",
}
_CONDITIONS = {
    "curator": "if a curator may see all responses",
    "aggregator": "if the parties of a secure aggregation do not pool what they see",
    "shuffler": "if a shuffler hides the senders of messages",
    "local": "with noise on each customer's own device",
}
_FIRST_SEEDS = {"held-out": 0, "fitted": 1_000_000}
_WIDE = 100  # coefficients, above which fewer replicates are run
_MOST_SIMULATED = 200_000  # rounds of a check of the customers needed


@dataclass(frozen=True)
class Earning:
    """Expected earnings of a policy per `PER` customers.

    Attributes:
        label: `BASE`, a budget, `SINGLE`, `RANDOM` or `TODAY`.
        agent: Name of the agent.
        earned: Earnings, at the rate of the run. The interval contains the uncertainty of the
            fitted model; that of `TODAY` is of the mean over the log's customers.
        lost: Loss relative to the best non-private agent, in percent of its earnings.
        amount: The same loss in the unit of the earnings.
    """

    label: str
    agent: str
    earned: Interval
    lost: Interval
    amount: Interval


@dataclass(frozen=True, eq=False, repr=False)
class Advice:
    """Result of `advise`.

    Attributes:
        name: Name of the table.
        unit: Unit of earnings, such as ``"EUR"`` or ``"responses"``.
        decision: What to do.
        earnings: One entry per policy, from the best non-private agent to random choices and to
            what the table's customers brought (`TODAY`).
        curves: Earnings of the agents along the run.
        thin: The sentence that says that the table is too thin, or empty.
        person: What is not protected of persons who come several times, or empty.
        warnings: Doubts, each a sentence; those about the fit come first.
        repairs: What was changed when the table was read.
        notes: What is protected and what is not, and remarks on the fit and the simulation.
        facts: The table with its rows and hash, the version and the date.
        result: The runs on held-out customers.
        log: The environment.
    """

    name: str
    unit: str
    decision: Decision
    earnings: tuple[Earning, ...]
    curves: tuple[LearningCurve, ...]
    thin: str
    person: str
    warnings: tuple[str, ...]
    repairs: tuple[str, ...]
    notes: tuple[str, ...]
    facts: str
    result: Result
    log: LogEnvironment

    @property
    def horizon(self) -> int:
        """Customers of the runs."""
        return self.result.suite.tasks[0].horizon

    @property
    def sentences(self) -> list[str]:
        """Return the decision, what privacy costs, at what trust, and what is not protected."""
        private = [e for e in self.earnings if e.label not in _BOUNDS]
        said = [self.decision.text]
        if not self.thin:
            said += [self._cost(e) for e in private]
            shown = {e.label for e in private}
            said.append(learning_sentence([c for c in self.curves if c.label in shown]))
        elif self.thin not in self.decision.text:
            said.append(self.thin)
        budgets = [Budget.parse(e.label) for e in private]
        trusted = dict.fromkeys(_TRUSTED[b.trust] for b in budgets if b is not None)
        protected = " ".join(sorted(explanations(self.result)))
        return [
            *said,
            f"Trusted with raw records: {'; '.join(trusted)}. {protected}",
            "Not protected: the customers of this table, which was read without noise; "
            f"{self.person}when customers come; and what the guarantee above calls public.",
        ]

    def _cost(self, e: Earning) -> str:
        at = f"At {e.label} ({e.agent})"
        within = f"in the first {self.horizon:,} customers"
        if e.lost.low <= 0.0 <= e.lost.high:
            if e.lost.low == e.lost.high:
                return f"{at} privacy costs nothing {within}: the same choices are made."
            gain = Interval(-e.lost.mean, -e.lost.high, -e.lost.low)
            return (
                f"{at} no cost of privacy is visible: {within} it earns {difference(gain)} than "
                "the best non-private agent."
            )
        what = "lose" if e.lost.mean > 0 else "gain"
        share = self.horizon / PER
        amount = Interval(*(share * x for x in (e.amount.mean, e.amount.low, e.amount.high)))
        percent, amount = (_size(i) for i in (e.lost, amount))
        return (
            f"{at} you {what} {_range(percent, '%')} of what the best non-private agent earns "
            f"{within}: about {_range(amount)} {self.unit}."
        )

    def records(self) -> list[dict[str, Any]]:
        """Return one dict per policy, for a data frame."""
        parts = ("earned", "lost", "amount")
        return [
            {"label": e.label, "agent": e.agent}
            | {f"{p}{end}": getattr(getattr(e, p), end or "mean")
               for p in parts for end in ("", "low", "high")}
            for e in self.earnings
        ]  # fmt: skip

    def plot(self, path: str | os.PathLike[str] | None = None) -> Any:
        """Draw the earnings of all policies with their intervals, on one axis.

        Args:
            path: File to write, as for `dpb_gym.report.plot`.
        """
        return report.plot_intervals(self.name, self._bars, self._axis, path)

    @property
    def _axis(self) -> str:
        return f"{self.unit} per {PER:,} customers, at the rate of the first {self.horizon:,}"

    @property
    def _bars(self) -> list[tuple[str, str, Interval]]:
        return [(e.label, e.agent, e.earned) for e in self.earnings]

    def to_html(self, path: str | os.PathLike[str]) -> Path:
        """Write a self-contained page: sentences, picture, table, repairs, notes."""
        axis = f"{self._axis[:1].upper()}{self._axis[1:]}"
        heads = ["policy", "earned", "lost", "lost, %"]
        rows = [[f"{e.label} ({e.agent})", *map(_range, (e.earned, e.amount)), _range(e.lost, "%")]
                for e in self.earnings]  # fmt: skip
        rows[0][2:] = ["-", "-"]
        if self.thin:  # no percentage of what is not shown to be earned
            heads = heads[:-1]
            rows = [row[:-1] for row in rows]
        lists = {
            "Doubts": self.warnings,
            "Repairs of the table": self.repairs or ("none were needed",),
            "Notes": self.notes,
            "Certificate": self.certificate(),
        }
        table = heads, rows
        title = f"Advice on {self.name}"
        page = report.advice_page(
            title, self.sentences, self._bars, axis, table, lists, self.facts, self._drawn
        )
        return write_text(path, page)

    @property
    def _drawn(self) -> list[tuple[str, list[tuple[int, float]]]]:
        """Curves of the picture: the label and (customers, percent lost) of each part's end."""
        return [(c.label, list(zip(c.ends, c.lost))) for c in self.curves]

    def certificate(self) -> list[str]:
        """Return the guarantee of each private agent as a line, at the delta that was asked for."""
        return [
            f"{row.agent} ({row.cell.agent.name}): "
            f"{read_guarantee(row.guarantee).describe(report_delta(row.cell.agent.budget))}"
            for row in self.result.rows
            if row.guarantee is not None
        ]

    def __str__(self) -> str:
        first, *others = self.sentences
        lines = [f"{self.facts}", first, *(f"warning: {doubt}" for doubt in self.warnings)]
        lines += others
        lines += [
            f"  {e.label} ({e.agent}): {_range(e.earned)} {self.unit} per {PER:,} customers"
            for e in self.earnings
        ]
        lines.append(f"  (at the rate of the first {self.horizon:,} customers)")
        named = {"repaired": self.repairs, "note": self.notes}
        return "\n".join(
            [*lines, *(f"{k}: {text}" for k, texts in named.items() for text in texts)]
        )

    def __repr__(self) -> str:
        return f"Advice({self.sentences[0]!r})"


def _size(i: Interval) -> Interval:
    return i if i.mean > 0 else Interval(-i.mean, -i.high, -i.low)


def _range(i: Interval, sign: str = "") -> str:
    places = 1 if sign else 0 if max(abs(i.low), abs(i.high)) >= 100 else 2
    if i.low == i.high:  # the same choices, not an estimate
        return f"{number(i.mean, places)}{sign}"
    return f"{number(i.mean, places)}{sign} [{number(i.low, places)}, {number(i.high, places)}]"


class _Constant(Agent):
    """One action in every round."""

    stretches = True

    def __init__(self, action: Any) -> None:
        self._action = np.asarray(action)

    def begin(self, problem: ProblemInfo, streams: Any, curator: Any) -> None:
        self._batch = np.tile(self._action, (curator.replicates, *[1] * self._action.ndim))

    def play(self, rounds: Any) -> Array:
        n, _ = rounds.shape
        actions = np.tile(self._batch, (n, *[1] * self._batch.ndim))
        if isinstance(rounds, Answering):
            rounds.answer(slice(0, n), actions, lambda feedback: feedback.reward)
        return actions

    def act(self, context: Context) -> Array:
        return self._batch

    def observe(self, context: Context, action: Array, feedback: Feedback) -> None:
        pass


def advise(
    source: Any,
    problem: str | None = None,
    *,
    budgets: Sequence[Budget | str] | Budget | str = BUDGETS,
    horizon: int = 10_000,
    replicates: int | None = None,
    agents: Sequence[str] | str | None = None,
    currency: str | None = None,
    seed: int = 0,
    workers: int | None = 1,
    progress: bool | Callable[[str], Any] = True,
    dry_run: bool = False,
    **columns: Any,
) -> Advice | Any:
    """Say what privacy costs on one's own log, with the uncertainty of everything that was fitted.

    The table is read by `dpb_data.read`, which asks where two readings fit. Agents are chosen on
    customers that the check of the model was fitted to, and compared on held-out customers. In each
    replicate responses follow one draw of the coefficients from their posterior, so intervals
    contain the uncertainty of the fitted model.

    Args:
        source: As for `from_log`; or a `dpb_data.Reading`, or an environment of `from_log`.
        problem: Name of a kind with logs, such as ``"pricing"``, ``"assortment"`` or
            ``"recommendation"``; guessed among these three if None.
        budgets: Budgets as `Budget` or text.
        horizon: Customers of a run, at least 100.
        replicates: Runs of each policy, at least 8; 32 by default, 16 for wide models.
        agents: Names of the agents to compare; those of the kind's `LogForm` by default.
        currency: Unit of prices; by default that in the column of prices.
        seed: Seed of the simulation.
        workers: See `evaluate`; None is one process for runs that are too short for several, see
            `dpb_gym.problems.log_form.LogForm`.
        progress: See `dpb_gym.progress_lines.progress_lines`.
        dry_run: Only return the `dpb_data.Reading`, with its open questions.
        **columns: Columns by role, ``features``, ``missing``, ``decimal``, and further arguments of
            `from_log`.

    Returns:
        The advice, or the reading for a dry run.

    Raises:
        QuestionError: If the table can be read in several ways; the message has the arguments.
        DataError: If the table cannot be read, or no model can be fitted; the message says why.
        ParameterError: If an argument is invalid.
        BudgetError: If a budget is invalid or protects nobody.
        AgentError: If no agent runs without a budget.
    """
    import dpb_data

    asked = [budgets] if isinstance(budgets, (str, Budget)) else [*(budgets or ())]
    limits = [check_protects(b) for b in asked or ["none"]]
    named = [agents] if isinstance(agents, str) else agents
    validation.optional(validation.text, "currency", currency)
    horizon = validation.integer("horizon", horizon, 100)
    if columns.get("private") is not None:
        raise ParameterError("advice contains figures of the raw table: leave out private=")
    with progress_lines("advise", progress) as say:
        if isinstance(source, LogEnvironment):
            log = source
            roles = None
        else:
            say("reading")
            if problem is None or isinstance(source, dpb_data.Reading):
                roles = dpb_data.read(source, problem, **columns)
            else:
                roles = log_form(problem).reading(problem, source, columns)
            if dry_run:
                return roles
            table = roles.table()
            settings = roles.settings
            log = from_log(table, roles.problem, horizon=horizon, progress=say, **settings)
        made = environment(log).make_problem(horizon=horizon)
        facts = _facts(
            source if roles is None else roles.source, made, environment(log).defaults["data"]
        )
        count = validation.optional(validation.integer, "replicates", replicates, 8)
        count = count or (16 if made.info.dim > _WIDE else 32)
        alone = log_form(made.kind).rounds_alone
        run = _Runs(log, horizon, count, seed, workers, say, isinstance(made, Logged), alone)
        return _advice(
            run, made, limits, named or log_form(made.kind).agents, currency, roles, facts
        )


@dataclass
class _Runs:
    """Runs of agents on the environment of a log."""

    log: LogEnvironment
    horizon: int
    replicates: int
    seed: int
    workers: int | None
    say: Callable[[str], Any]
    fitted: bool = True
    rounds_alone: int = 0

    def play(self, what: str, agents: Any, part: str, replicates: int, horizon: int = 0,
             budgets: Any = None, checkpoints: Any = None) -> Result:  # fmt: skip
        """Return the results of agents on the customers of a part of the log."""
        T = horizon or self.horizon
        first = self.seed + _FIRST_SEEDS[part]
        workers = self.workers
        if workers is None and self._rounds(agents, budgets, replicates, T) <= self.rounds_alone:
            workers = 1
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RuntimeWarning)  # failures are notes
            return evaluate(
                self.log, agents, T, replicates, first, checkpoints or [T], self.settings(part),
                budgets,
                workers, share_played(what, self.say),
            )  # fmt: skip

    @staticmethod
    def _rounds(agents: Any, budgets: Any, replicates: int, horizon: int) -> int:
        """Return the number of agent rounds, at most."""
        return len(agents) * len(budgets or [None]) * replicates * horizon

    def settings(self, part: str) -> dict[str, Any]:
        """Return the environment's parameters that select customers and coefficients."""
        return {"draws": DRAWS, "part": part} if self.fitted else {}

    def thetas(self, replicates: Array, part: str) -> tuple[Array, Array]:
        """Return the different coefficients ``(K, d)``, and their number in each replicate."""
        if not self.fitted:
            return np.empty((0, 0)), np.arange(len(replicates))
        settings = {"horizon": self.horizon, **self.settings(part)}
        problem = environment(self.log).make_problem(**settings)
        return coefficients(problem, replicates, self.seed + _FIRST_SEEDS[part])


def _advice(
    run: _Runs, problem: Any, budgets: Sequence[Budget], agents: Sequence[str],
    currency: str | None, roles: Any, facts: str,
) -> Advice:  # fmt: skip
    """Choose agents on one part of the customers, compare them on the other."""
    unit, size = log_form(problem.kind).unit(problem, currency, roles)
    fixed: FixedAction | None = None
    if run.fitted:
        run.say("searching the best single action")
        fixed = best_fixed_action(problem, currency)
    announce(_first_answer(problem, fixed, unit, size))
    names = _choose(run, budgets, agents)
    chosen: dict[str, Any] = {label: (agent, label) for label, agent in names.items()}
    chosen[BASE] = (names[BASE], None)
    if fixed is not None:
        action, names[SINGLE] = fixed.action, fixed.label
        chosen[SINGLE] = lambda: _Constant(action)
    chosen[RANDOM], names[RANDOM] = RANDOM, "uniformly random"
    ends = parts(run.horizon)
    result = run.play("comparing agents", chosen, "held-out", run.replicates, checkpoints=ends)
    rows = {row.agent: row for row in result.rows}
    if BASE not in rows:
        raise AgentError("; ".join(str(failure) for failure in result.failures))
    earnings, candidates = _earnings(run, rows, names, size, problem)
    informed = not run.fitted or problem.fit.informed
    beaten = next(e for e in earnings if e.label == RANDOM).lost.low > 0.0
    thin = "" if informed and beaten else _thin(run, problem, names[BASE], beaten)
    repairs = tuple(getattr(problem, "repairs", ()))
    visits = problem.visits if isinstance(problem, Logged) else problem.info.person_uses or 1
    notes = [note for note in result_notes(result, visits) if note not in repairs]
    if roles is not None:
        notes.append("; ".join(line.strip() for line in str(roles).split("\n")))
    notes.append(f"simulated: {run.replicates} replicates of {run.horizon:,} customers")
    contained = "coefficients' posterior and runs" if run.fitted else "runs, not the ratings' model"
    notes.append(
        f"intervals are of 95% and contain the uncertainty of the {contained}; that of what was "
        "earned today is of the table's customers"
    )
    notes.append(f"the gains that the decision states have intervals of {100 * DECIDED:g}%")
    gain = None if fixed is None or not informed else fixed.decided
    person = _person(visits, result)
    decision = decide(
        problem.kind, candidates, "" if fixed is None else fixed.label, gain, run.horizon, thin,
        visits if person else 1,
    )  # fmt: skip
    curves = [learning_curve(row) for row in result.rows if row.agent not in (SINGLE, RANDOM)]
    return Advice(
        problem.data_name, unit, decision, tuple(earnings), tuple(curves), thin,
        person, tuple(_doubts(run, problem, rows, earnings, thin)), repairs,
        tuple(notes), facts, result, run.log,
    )  # fmt: skip


def _facts(source: Any, problem: Any, data: Any) -> str:
    """Return the table with its rows and its hash, the version and the date, as one line."""
    path = Path(source) if isinstance(source, (str, os.PathLike)) else None
    if path is not None and path.is_file():
        name = path.name
        digest = hashlib.sha256(path.read_bytes()).hexdigest()
        what = f"SHA-256 {digest[:16]}"
    else:
        name = problem.data_name
        what = f"digest {data.digest()[:16]}"
    version = metadata.version("dpb-gym")
    today = datetime.date.today()
    return f"{name}: {len(data):,} rows, {what}; dpb-gym {version}, {today.isoformat()}"


def _first_answer(problem: Any, fixed: FixedAction | None, unit: str, size: float) -> str:
    """Return what the table earned and what the best single action would, before any run.

    Ratings have no model of a single action for all.
    """
    mean, error = problem.today
    per = PER * size
    half = TWO_SIDED * error
    today = Interval(*(per * x for x in (mean, mean - half, mean + half)))
    doubts = "".join(f" Doubt: {doubt}." for doubt in getattr(problem, "doubts", ()))
    other = "" if fixed is None else f"; {fixed.label} earns {difference(fixed.gain)} than that"
    return (
        f"First answer: this table earned {_range(today)} {unit} per {PER:,} customers{other}."
        f"{doubts} Agents are compared next."
    )


def _choose(run: _Runs, budgets: Sequence[Budget], agents: Sequence[str]) -> dict[str, str]:
    """Return the agent that earns most on the fitted customers, without privacy and by budget."""
    options = {name: name for name in agents}
    fewer = max(8, run.replicates // 4)
    tried = run.play("choosing agents", options, "fitted", fewer, budgets=[*budgets, "none"])
    chosen = {}
    for budget in (None, *budgets):
        rows = [row for row in tried.rows if row.budget == Budget.text(budget)]
        if not rows:
            failed = "; ".join(str(f) for f in tried.failures)
            raise AgentError(f"none of {', '.join(agents)} runs at {Budget.text(budget)}: {failed}")
        best = min(rows, key=lambda row: row.regret[:, -1].mean())
        chosen[str(budget or BASE)] = best.agent
    return chosen


def _doubts(
    run: _Runs, problem: Any, rows: Mapping[str, RowResult], earnings: Sequence[Earning], thin: str
) -> list[str]:
    """Return doubts about the model, and the policies that are not shown to be of use."""
    doubts: list[str] = []
    if run.fitted:
        run.say("checking the fitted model")
        doubts = [*problem.doubts]
        doubts += log_checks.model_warnings(problem, environment(run.log).defaults["data"])
    for e in () if thin else earnings:
        if e.label not in rows:
            continue
        won = rows[RANDOM].regret[:, -1] - rows[e.label].regret[:, -1]
        if e.label not in _BOUNDS and metrics.interval(won).low <= 0.0:
            doubts.append(f"at {e.label} {e.agent} is not shown to earn more than random choices")
    return doubts


def _person(visits: int, result: Result) -> str:
    """Return what is not protected of a person who comes several times, or an empty text."""
    units = {row.guarantee["unit"] for row in result.rows if row.guarantee}
    if visits < 2 or units <= {"user", "user-rewards"}:
        return ""
    return f"what one person does in up to {visits:,} rounds together (see the notes); "


def _earnings(
    run: _Runs, rows: Mapping[str, RowResult], names: Mapping[str, str], size: float, problem: Any
) -> tuple[list[Earning], list[Candidate]]:
    """Return each policy's earnings, paired with the best non-private agent on its customers."""
    base = rows[BASE]
    thetas, which = run.thetas(base.replicates, "held-out")
    per = PER * size / run.horizon
    level = per * base.reward[:, -1]
    mean = max(float(level.mean()), 1e-300)
    lost = {
        label: per * (rows[label].regret - base.regret)[:, -1] for label in names if label in rows
    }
    earnings = [
        Earning(
            label,
            names[label],
            metrics.grouped(level - gap, which),
            metrics.grouped(100.0 * gap / mean, which),
            metrics.grouped(gap, which),
        )
        for label, gap in lost.items()
    ]
    brought, error = (PER * size * x for x in problem.today)
    half = TWO_SIDED * error
    today = np.full(len(level), brought)
    if run.fitted:  # the log's own actions under the coefficients of each replicate
        held: Any = environment(run.log).make_problem(**run.settings("held-out"))
        equal = np.full((len(thetas), len(held.pool)), 1.0 / len(held.pool))
        today = PER * size * held.log_values(thetas, held.pool, equal)[which]
    gap = level - today
    earnings.append(
        Earning(
            TODAY,
            "as in the table",
            Interval(brought, brought - half, brought + half),
            metrics.grouped(100.0 * gap / mean, which),
            metrics.grouped(gap, which),
        )
    )
    candidates = []
    for label, gap in lost.items():
        budget = Budget.parse(label) if label not in _BOUNDS else None
        if budget is None:
            continue
        earned = level - gap
        over = relative_gain(earned, level - lost[SINGLE], which) if SINGLE in lost else None
        condition = _CONDITIONS[budget.trust]
        gain = relative_gain(earned, today, which)
        candidates.append(Candidate(label, names[label], condition, over, gain))
    return earnings, candidates


def relative_gain(earned: Array, before: Array, which: Array) -> Interval:
    """Return the gain of one policy over another in percent, with an interval of `DECIDED`.

    It is the ratio of two means less 1. Its error contains that of the denominator, by the delta
    method.

    Args:
        earned: Earnings of the policy in every replicate ``(n,)``.
        before: Those of the other policy on the same customers ``(n,)``.
        which: Number of the coefficients in each replicate ``(n,)``.
    """
    level = max(float(before.mean()), 1e-300)
    ratio = float(earned.mean()) / level
    return metrics.grouped(
        100.0 * (ratio - 1.0 + (earned - ratio * before) / level), which, DECIDED
    )


def _thin(run: _Runs, problem: Any, agent: str, beaten: bool) -> str:
    """Return the sentence on a log that is too thin, with the number of customers needed.

    Args:
        run: Runs on the log's environment.
        problem: The environment.
        agent: The best non-private agent.
        beaten: Whether it beats random choices if the model is right.
    """
    why = (
        "its model predicts held-out customers no better than a constant"
        if beaten
        else f"no agent is shown to beat random choices in {run.horizon:,} customers"
    )
    said = f"This table is too thin: {why}"
    if not run.fitted:
        return f"{said}."
    run.say("computing how many customers are needed")
    needed = log_checks.customers_needed(problem)
    if needed is None:
        return f"{said}. With this variation no number of customers up to 10^9 would do."
    while 2 * needed * 8 <= _MOST_SIMULATED:
        agents = {"agent": agent, RANDOM: RANDOM}
        played = run.play(f"checking {needed:,}", agents, "fitted", 8, horizon=needed)
        last = {row.agent: row.regret[:, -1] for row in played.rows}
        if metrics.interval(last[RANDOM] - last["agent"]).low > 0.0:
            played_here = needed <= run.horizon
            enough = "do if the fitted model were exact" if played_here else "be needed"
            return f"{said}. About {_about(needed)} such customers would {enough}, as simulated."
        needed *= 2
    return f"{said}. By the model's information, about {_about(needed)} such customers are needed."


def _about(count: int) -> str:
    return f"{float(f'{count:.2g}'):,.0f}"
