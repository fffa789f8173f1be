"""Advice on one's own log: what privacy costs, which agent to run, and what the log cannot say."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
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
from dpb_gym.planning.privacy_cost import BUDGETS, RANDOM, explanations, result_notes
from dpb_gym.privacy import Budget
from dpb_gym.privacy.budget import check_protects
from dpb_gym.problems.base import Array, Context, Feedback, ProblemInfo
from dpb_gym.problems.logged import Logged
from dpb_gym.progress_lines import progress_lines, share_played
from dpb_gym.report.leaderboard_data import Interval
from dpb_gym.report.number_format import number
from dpb_gym.results import metrics
from dpb_gym.results.result import Result
from dpb_gym.results.row_result import RowResult, read_guarantee
from dpb_gym.running.api import evaluate
from dpb_gym.streams import Stream, generator

CANDIDATES = {
    "pricing": ("one-pass-pricing", "greedy-pricing", "cils-pricing", "private-pricing"),
    "assortment": ("one-pass-mnl", "greedy-mnl", "ofu-mnl-plus", "dpmnl"),
    "recommendation": ("one-pass-linear", "lin-greedy", "lin-ts", "adaprivate-ucb"),
}
"""Agents that are compared, by problem; those that can run without a budget also do."""
DRAWS, PER = 16, 10_000
"""Draws of the coefficients from their posterior; customers that earnings are stated for."""
BASE, SINGLE = "without privacy", "best single action"
_BOUNDS = (BASE, SINGLE, RANDOM)
_TRUSTED = {
    "curator": "a curator, who sees all responses",
    "aggregator": "the parties of a secure aggregation, together",
    "shuffler": "a shuffler, who hides the senders of messages",
    "local": "nobody but the customer's own device",
}
_FITTING = frozenset(("ridge", "bounds", "outside", "revenue", "capacity"))
_FIRST_SEEDS = {"held-out": 0, "fitted": 1_000_000}
_WIDE = 100  # coefficients, above which fewer replicates are run
_MOST_SIMULATED = 2_000_000  # rounds of a check of the customers needed


@dataclass(frozen=True)
class Earning:
    """Expected earnings of a policy per `PER` customers.

    Attributes:
        label: `BASE`, a budget, `SINGLE` or `RANDOM`.
        agent: Name of the agent.
        earned: Earnings. The interval of the best non-private agent contains the uncertainty of
            the fitted model; those of the others are of the difference to it.
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
        name: Name of the log.
        unit: Unit of earnings, such as ``"EUR"`` or ``"responses"``.
        earnings: One entry per policy, from the best non-private agent to random choices.
        thin: The sentence that says that the log is too thin, or empty.
        person: What is not protected of persons who come several times, or empty.
        warnings: Doubts about the fitted model, each a sentence.
        repairs: What was changed when the table was read.
        notes: What is protected and what is not, and remarks on the fit and the simulation.
        result: The runs on held-out customers.
        log: The environment.
    """

    name: str
    unit: str
    earnings: tuple[Earning, ...]
    thin: str
    person: str
    warnings: tuple[str, ...]
    repairs: tuple[str, ...]
    notes: tuple[str, ...]
    result: Result
    log: LogEnvironment

    @property
    def sentences(self) -> list[str]:
        """Return what privacy costs, at what trust, and what is not protected."""
        private = [e for e in self.earnings if e.label not in _BOUNDS]
        costs = [self.thin] if self.thin else [self._cost(e) for e in private]
        budgets = [Budget.parse(e.label) for e in private]
        trusted = dict.fromkeys(_TRUSTED[b.trust] for b in budgets if b is not None)
        protected = " ".join(sorted(explanations(self.result)))
        return [
            *costs,
            f"Trusted with raw records: {'; '.join(trusted)}. {protected}",
            "Not protected: the customers of this log, which was read without noise; "
            f"{self.person}when customers come; and what the guarantee above calls public.",
        ]

    def _cost(self, e: Earning) -> str:
        at = f"At {e.label} ({e.agent})"
        if e.lost.low <= 0.0 <= e.lost.high:
            return (
                f"{at} no cost of privacy is visible: anything from a loss of "
                f"{max(0.0, e.lost.high):.1f}% to a gain of {max(0.0, -e.lost.low):.1f}% fits."
            )
        what = "lose" if e.lost.mean > 0 else "gain"
        percent, amount = (_size(i) for i in (e.lost, e.amount))
        return (
            f"{at} you {what} {_range(percent, '%')} of what the best non-private agent earns: "
            f"about {_range(amount)} {self.unit} per {PER:,} customers."
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
        axis = f"{self.unit} per {PER:,} customers"
        return report.plot_intervals(self.name, self._bars, axis, path)

    @property
    def _bars(self) -> list[tuple[str, str, Interval]]:
        return [(e.label, e.agent, e.earned) for e in self.earnings]

    def to_html(self, path: str | os.PathLike[str]) -> Path:
        """Write a self-contained page: sentences, picture, table, repairs, notes."""
        axis = f"{self.unit[:1].upper()}{self.unit[1:]} per {PER:,} customers"
        heads = ["policy", "earned", "lost", "lost, %"]
        rows = [[f"{e.label} ({e.agent})", *map(_range, (e.earned, e.amount)), _range(e.lost, "%")]
                for e in self.earnings]  # fmt: skip
        rows[0][2:] = ["-", "-"]
        if self.thin:  # no percentage of what is not shown to be earned
            heads, rows = heads[:-1], [row[:-1] for row in rows]
        lists = {
            "Doubts": self.warnings,
            "Repairs of the table": self.repairs or ("none were needed",),
            "Notes": self.notes,
            "Certificate": self.certificate(),
        }
        table = heads, rows
        page = report.advice_page(self.name, self.sentences, self._bars, axis, table, lists)
        return write_text(path, page)

    def certificate(self) -> list[str]:
        """Return the guarantee of each private agent as a line."""
        return [
            f"{row.agent} ({row.cell.agent.name}): {read_guarantee(row.guarantee)}"
            for row in self.result.rows
            if row.guarantee is not None
        ]

    def __str__(self) -> str:
        lines = [f"{self.name}:", *self.sentences]
        lines += [
            f"  {e.label} ({e.agent}): {_range(e.earned)} {self.unit} per {PER:,} customers"
            for e in self.earnings
        ]
        named = {"warning": self.warnings, "repaired": self.repairs, "note": self.notes}
        return "\n".join(
            [*lines, *(f"{k}: {text}" for k, texts in named.items() for text in texts)]
        )

    def __repr__(self) -> str:
        return f"Advice({self.sentences[0]!r})"


def _size(i: Interval) -> Interval:
    return i if i.mean > 0 else Interval(-i.mean, -i.high, -i.low)


def _range(i: Interval, sign: str = "") -> str:
    places = 1 if sign else 0 if max(abs(i.low), abs(i.high)) >= 100 else 2
    return f"{number(i.mean, places)}{sign} [{number(i.low, places)}, {number(i.high, places)}]"


class _Constant(Agent):
    """One action in every round."""

    def __init__(self, action: Any) -> None:
        self._action = np.asarray(action)

    def begin(self, problem: ProblemInfo, streams: Any, curator: Any) -> None:
        self._batch = np.tile(self._action, (curator.replicates, *[1] * self._action.ndim))

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

    The table is read as by `from_log`; columns that are not named are guessed by their names
    (`dpb_data.guess_roles`). Agents are chosen on customers that the check of the model was fitted
    to, and compared on held-out customers. In each replicate responses follow one draw of the
    coefficients from their posterior, so intervals contain the uncertainty of the fitted model.

    Args:
        source: As for `from_log`; or an environment made by it.
        problem: ``"pricing"``, ``"assortment"`` or ``"recommendation"``; guessed if None.
        budgets: Budgets as `Budget` or text.
        horizon: Customers of a run, at least 100.
        replicates: Runs of each policy, at least 8; 48 by default, 16 for wide models.
        agents: Names of the agents to compare; `CANDIDATES` by default.
        currency: Unit of prices; by default that in the column of prices.
        seed: Seed of the simulation.
        workers: See `evaluate`.
        progress: See `dpb_gym.progress_lines.progress_lines`.
        dry_run: Only return the `dpb_data.Roles` of the columns.
        **columns: Columns by role, ``features``, ``missing``, ``decimal``, and further arguments of
            `from_log`.

    Returns:
        The advice, or the roles of the columns for a dry run.

    Raises:
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
        raise ParameterError("advice contains figures of the raw log: leave out private=")
    fitting = {k: columns.pop(k) for k in _FITTING & {*columns}}
    with progress_lines("advise", progress) as say:
        if isinstance(source, LogEnvironment):
            log, roles = source, None
        else:
            roles = dpb_data.guess_roles(source, problem, **columns)
            if dry_run:
                return roles
            settings = {**fitting, **roles.columns}
            log = from_log(source, roles.problem, horizon=horizon, progress=say, **settings)
        made = environment(log).make_problem(horizon=horizon)
        count = validation.optional(validation.integer, "replicates", replicates, 8)
        count = count or (16 if made.info.dim > _WIDE else 48)
        run = _Runs(log, horizon, count, seed, workers, say, isinstance(made, Logged))
        return _advice(run, made, limits, named or CANDIDATES[made.kind], currency, roles)


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

    def play(self, what: str, agents: Any, part: str, replicates: int, horizon: int = 0,
             budgets: Any = None) -> Result:  # fmt: skip
        """Return the results of agents on the customers of a part of the log."""
        T, first = horizon or self.horizon, self.seed + _FIRST_SEEDS[part]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RuntimeWarning)  # failures are notes
            return evaluate(
                self.log, agents, T, replicates, first, [T], self.settings(part), budgets,
                self.workers, share_played(what, self.say),
            )  # fmt: skip

    def settings(self, part: str) -> dict[str, Any]:
        """Return the environment's parameters that select customers and coefficients."""
        return {"draws": DRAWS, "part": part} if self.fitted else {}

    def thetas(self, replicates: Array, part: str) -> Array:
        """Return the number of the coefficients that hold in each replicate ``(n,)``."""
        if not self.fitted:
            return np.arange(len(replicates))
        settings = {"horizon": self.horizon, **self.settings(part)}
        problem = environment(self.log).make_problem(**settings)
        first = self.seed + _FIRST_SEEDS[part]
        rngs = [generator(first + int(i), Stream.HIDDEN) for i in replicates]
        found = np.array([problem.draw_hidden(rng)["theta"] for rng in rngs])
        groups: Array = np.unique(found, axis=0, return_inverse=True)[1].ravel()
        return groups


def _advice(
    run: _Runs, problem: Any, budgets: Sequence[Budget], agents: Sequence[str],
    currency: str | None, roles: Any,
) -> Advice:  # fmt: skip
    """Choose agents on one part of the customers, compare them on the other."""
    names = _choose(run, budgets, agents)
    chosen: dict[str, Any] = {label: (agent, label) for label, agent in names.items()}
    chosen[BASE] = (names[BASE], None)
    if run.fitted:
        run.say("searching the best single action")
        action, names[SINGLE] = _single_action(problem, currency)
        chosen[SINGLE] = lambda: _Constant(action)
    chosen[RANDOM], names[RANDOM] = RANDOM, "uniformly random"
    result = run.play("comparing agents", chosen, "held-out", run.replicates)
    rows = {row.agent: row for row in result.rows}
    if BASE not in rows:
        raise AgentError("; ".join(str(failure) for failure in result.failures))
    unit, size = _unit(problem, currency, roles)
    earnings = _earnings(run, rows, names, size)
    informed = not run.fitted or problem.fit.informed
    beaten = earnings[-1].lost.low > 0.0
    thin = "" if informed and beaten else _thin(run, problem, names[BASE], beaten)
    repairs = tuple(getattr(problem, "repairs", ()))
    visits = problem.visits if isinstance(problem, Logged) else problem.info.person_uses or 1
    notes = [note for note in result_notes(result, visits) if note not in repairs]
    if roles is not None:
        notes.append("; ".join(line.strip() for line in str(roles).split("\n")))
    notes.append(f"simulated: {run.replicates} replicates of {run.horizon:,} customers")
    contained = "coefficients' posterior and runs" if run.fitted else "runs, not the ratings' model"
    notes.append(
        f"intervals are of 95% and contain the uncertainty of the {contained}; but for the first "
        "line they are of the difference to it"
    )
    return Advice(
        problem.data_name, unit, tuple(earnings), thin, _person(visits, result),
        tuple(_doubts(run, problem, rows, earnings, thin)), repairs, tuple(notes), result, run.log,
    )  # fmt: skip


def _choose(run: _Runs, budgets: Sequence[Budget], agents: Sequence[str]) -> dict[str, str]:
    """Return the agent that earns most on the fitted customers, without privacy and by budget."""
    options, fewer = {name: name for name in agents}, max(8, run.replicates // 3)
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
        doubts = log_checks.model_warnings(problem, environment(run.log).defaults["data"])
    for e in () if thin else earnings:
        if e.label == SINGLE and e.lost.low <= 0.0:
            doubts.append(f"no agent is shown to earn more than {e.agent} for all customers")
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
    run: _Runs, rows: Mapping[str, RowResult], names: Mapping[str, str], size: float
) -> list[Earning]:
    """Return each policy's earnings, paired with the best non-private agent on its customers."""
    base = rows[BASE]
    which, per = run.thetas(base.replicates, "held-out"), PER * size / run.horizon
    level = metrics.grouped(per * base.reward[:, -1], which)
    earnings = []
    for label, agent in names.items():
        if label not in rows:
            continue
        lost = per * (rows[label].regret - base.regret)[:, -1]
        earnings.append(
            Earning(
                label,
                agent,
                level if label == base.agent else metrics.grouped(level.mean - lost, which),
                metrics.grouped(100.0 * lost / max(level.mean, 1e-300), which),
                metrics.grouped(lost, which),
            )
        )
    return earnings


def _single_action(problem: Any, currency: str | None) -> tuple[Array, str]:
    """Return the best action of the fitted model for all customers, and its description."""
    rounds = problem.rounds_under(problem.theta)
    options = np.unique(rounds.best[0], axis=0)
    if problem.kind == "recommendation":
        options = np.arange(problem.info.n_candidates)
    options = options[:: max(1, len(options) // 200)]
    n = len(rounds.best[0])
    values = [rounds.respond(np.tile(a, (n, *[1] * np.ndim(a))).reshape(n, *np.shape(a)))[1].mean()
              for a in options]  # fmt: skip
    action = options[int(np.argmax(values))]
    if problem.kind == "pricing":
        price = float(action) * problem.highest_price
        return action, f"always {price:.4g} {currency or problem.currency}".strip()
    items = [str(problem.item_ids[i]) for i in np.atleast_1d(action) if i >= 0]
    return action, f"always {', '.join(items)}"


def _unit(problem: Any, currency: str | None, roles: Any) -> tuple[str, float]:
    """Return the unit of earnings and the earnings of a reward of 1."""
    if problem.kind == "pricing":
        column = "price" if roles is None else roles.columns["price"].strip()
        return currency or problem.currency or f"units of {column}", problem.highest_price
    if problem.kind == "assortment" and not problem.info.equal_revenues:
        return currency or "units of revenue", problem.revenue_unit
    if problem.kind == "assortment":
        return "choices", 1.0
    return "responses" if isinstance(problem, Logged) else "units of reward", 1.0


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
    said = f"This log is too thin: {why}"
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
