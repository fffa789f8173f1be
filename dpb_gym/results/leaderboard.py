"""Leaderboard rows of results, the data of tables, plots and the page."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from dpb_gym.audits.audit_report import READS_RAW
from dpb_gym.envs.registration import LOG_ID
from dpb_gym.errors import DPBError
from dpb_gym.problems.limited_stock import has_exact_optimum
from dpb_gym.problems.rounds import LOG, SOLD_OUT
from dpb_gym.registry import AgentSpec, agent_specs, as_key
from dpb_gym.report.comparison_groups import contests, second, verdict_class
from dpb_gym.report.leaderboard_data import (
    DEFAULTS,
    TUNED,
    Audit,
    Interval,
    LeaderboardData,
    Normalisation,
    Row,
    TaskResult,
    TrackResult,
    TrackRow,
    row_key,
)
from dpb_gym.report.tables import base_label
from dpb_gym.results import metrics
from dpb_gym.results.cell_result import CellResult
from dpb_gym.results.row_audits import (
    AUDIT_NOTE,
    BY_CONSTRUCTION,
    NOT_AUDITED,
    RowAudits,
    worst,
)
from dpb_gym.results.row_result import RowResult, by_row, describe_guarantee, epsilons, join
from dpb_gym.results.rulings import comparisons
from dpb_gym.suites.code_digest import origin
from dpb_gym.suites.recipes import effort
from dpb_gym.suites.spec import Task
from dpb_gym.suites.suite import Suite

SET_ASIDE = "Set aside: "
NOT_AUDITED_NOTE = (
    "Not audited: no audit of the agent's code is known here. The guarantee is that of its "
    "releases; whether its noise and sensitivity are right was not tested (dpb audit)."
)
BY_CONSTRUCTION_NOTE = (
    "By construction: the agent's functions receive releases and the current customer's context "
    "only, which is checked before they run. Whether noise and sensitivity are right was not "
    "tested (dpb audit)."
)
READS_RAW_TEXT = "none: an audit found that the agent reads raw data"
SHARED = ("agent", "name", "budget", "oracle", "notion", "unit", "relation")
"""Attributes of a row that are those of its agent on every task of a track."""


def leaderboard(
    suite: Suite,
    results: Iterable[CellResult],
    audits: Mapping[str, Mapping[str, Any]],
    notes: Sequence[str],
    **facts: Any,
) -> LeaderboardData:
    """Build the leaderboard of a suite's results; `facts` are other fields of `LeaderboardData`.

    Time and memory are linear in the number of rows. A row that cannot be shown is left out and
    named in the notes.
    """
    rows = dict[str, list[Row]]()
    audited = RowAudits(audits)
    remarks = list(notes)
    places, specs = {task.name: task for task in suite.tasks}, agent_specs()
    for key, cells in by_row(results).items():
        try:
            row = _row(places[key[0]], join(cells), audited, specs)
            rows.setdefault(key[0], []).append(row)
        except (DPBError, ArithmeticError, KeyError, TypeError, ValueError) as error:
            remarks.append(f"{SET_ASIDE}{cells[0].cell.agent.title} on {key[0]}: {error!s:.300}")
    tasks = [_task(task, rows[task.name]) for task in suite.tasks if task.name in rows]
    every = [row for task in tasks for row in task.rows]
    remarks += [AUDIT_NOTE] if any(row.audit for row in every) else []
    remarks += [NOT_AUDITED_NOTE] if any(row.verdict == NOT_AUDITED for row in every) else []
    verdicts = {row.verdict for row in every}
    remarks += [BY_CONSTRUCTION_NOTE] if BY_CONSTRUCTION in verdicts else []
    for task in suite.tasks:
        remarks += data_notes(task) if task.name in rows else []
    remarks += [
        f"Incomplete: {row.key} on {table.task} has {row.replicates} of {table.replicates} "
        "replicates."
        for table in tasks
        for row in table.rows
        if row.replicates < table.replicates
    ]
    # Agents that are installed, and whose module other processes can import.
    names = dict.fromkeys(row.name for row in every)
    origins = tuple(origin(specs[name]) for name in names if name in specs)
    return LeaderboardData(
        title=suite.title or suite.name,
        suite=suite.name,
        tasks=tuple(tasks),
        notes=tuple(remarks),
        tracks=tuple(_tracks(suite, tasks)),
        origins=origins,
        comparisons=comparisons(tasks, {one.name: one.standing for one in origins}),
        **facts,
    )


def _task(task: Task, rows: Sequence[Row]) -> TaskResult:
    return TaskResult(
        task=task.name,
        env_id=task.env,
        problem=task.kind,
        description=task.description,
        horizon=task.horizon,
        replicates=max(row.replicates for row in rows),
        normalisation=task.normalisation,
        rows=_ranked(rows),
        track=task.track or "",
    )


def _row(task: Task, result: RowResult, audited: RowAudits, specs: Mapping[str, AgentSpec]) -> Row:
    agent = result.cell.agent
    spec = specs.get(agent.name)
    text, notion, unit = describe_guarantee(result.guarantee, agent.budget)
    if notion is not None and task.parameters.get("stock") is not None:
        text += f"; {SOLD_OUT}"
    # the log itself may be elsewhere, so that its details are not known
    if notion is not None and LOG_ID.fullmatch(task.env):
        text += f"; {LOG}"
    audit, verdict, accounting = None, "", "computed"
    known = epsilons(result.guarantee)
    if notion is not None and unit is not None:
        audit, verdict = audited.of(agent, task.kind, notion, unit)
        accounting = (result.guarantee or {}).get("basis", "computed")
        if verdict.startswith(READS_RAW):
            text, notion, unit, known = READS_RAW_TEXT, None, None, ()
        elif verdict in (NOT_AUDITED, BY_CONSTRUCTION):
            text += f"; {verdict}"
        elif verdict_class(verdict) == "fail":
            text += f"; audit: {verdict}"
    final = result.regret[:, -1]
    regret = metrics.interval(final, floor=0.0)
    curve = metrics.limits(result.regret, floor=0.0)
    return Row(
        agent=result.agent,
        name=agent.name,
        budget=agent.budget,
        oracle=spec is not None and spec.uses_oracle,
        notion=notion,
        unit=unit,
        relation=str((result.guarantee or {}).get("relation", "replace-one")),
        guarantee=text,
        regret=regret,
        iqm_regret=metrics.interval(final, metrics.MIDDLE, floor=0.0),
        score=_score(regret, task.normalisation),
        reward=metrics.interval(result.reward[:, -1]),
        rounds_per_second=result.rounds_per_second,
        curve=zip(result.rounds.tolist(), *curve.tolist()),  # type: ignore[arg-type]
        params=agent.params,
        audit=None if audit is None else Audit(**audit),
        verdict=verdict,
        finals=result.final_regret,
        replicates=len(result.replicates),
        trust=result.trust,
        accounting=accounting,
        tuning=effort(agent.name, agent.params, task.track or "", task.name, result.budget),
        source=agent.code,
        ruling=_ruling(spec, agent.params),
        epsilons=known,
    )


def _ruling(spec: AgentSpec | None, params: Mapping[str, Any]) -> str:
    """Return whether parameters are the registered defaults."""
    usual = {} if spec is None else spec.defaults
    return DEFAULTS if as_key({**usual, **params}) == as_key(usual) else TUNED


def _score(regret: Interval, constants: Normalisation | None) -> Interval | None:
    """Return the score; it is linear in the regret, so its interval is that of the regret."""
    if constants is None:
        return None
    ends = (regret.mean, regret.high, regret.low)
    return Interval(*metrics.normalised_score(ends, constants).tolist())


def _ranked(rows: Sequence[Row]) -> tuple[Row, ...]:
    """Return the rows with ranks and leads among rows of equal notion, unit and budget."""
    twins = {(row.agent, row.name): row for row in rows if row.budget is None}
    by_key = {}
    for row in rows:
        twin = twins.get((row.agent, row.name))
        if twin is not None and row.budget is not None and row.params == twin.params:
            row = replace(row, excess=_lead([metrics.differences(row.finals, twin.finals)]))
        by_key[row.key] = row
    for rivals in contests(by_key.values()).values():
        best, other = rivals[0], second(rivals)
        if other is not None:
            lead = _lead([metrics.differences(other.finals, best.finals)])
            by_key[best.key] = replace(best, lead=lead)
    return tuple(by_key.values())


def _lead(differences: Sequence[Sequence[float]]) -> Interval | None:
    """Return the mean difference over some tasks, None with too few shared replicates."""
    if not differences or min(map(len, differences)) < metrics.MIN_REPLICATES:
        return None
    return metrics.mean_of_tasks(differences)


def _tracks(suite: Suite, tasks: Sequence[TaskResult]) -> Iterator[TrackResult]:
    """Yield one result per track with rows, in the order of the suite."""
    for name, track in suite.tracks.items():
        members = [task for task in tasks if task.track == name]
        if members:
            yield TrackResult(
                track=name,
                title=track.title,
                description=track.description.strip(),
                tasks=tuple(task.task for task in members),
                rows=_track_rows({t.task: t for t in members if t.normalisation is not None}),
            )


def _track_rows(tasks: Mapping[str, TaskResult]) -> tuple[TrackRow, ...]:
    """Return mean scores over the tasks, with equal weights.

    Rows that miss a task name the tasks that they have and are ranked below complete rows.
    """
    members: dict[str, dict[str, Row]] = {}
    for task in tasks.values():
        for row in task.rows:
            members.setdefault(row.key, {})[task.task] = row
    for key, parts in members.items():
        # On tasks without a tuned row the defaults are the best point.
        one = next(iter(parts.values()))
        both = members.get(row_key(base_label(one.agent), one.budget), {}) | parts
        members[key] = {task: both[task] for task in tasks if task in both}
    scores = {
        key: {task: _scores(tasks[task], row) for task, row in mine.items()}
        for key, mine in members.items()
    }
    by_key = {}
    for key, parts in members.items():
        row = next(row for row in parts.values() if row.key == key)
        by_key[key] = TrackRow(
            **{name: getattr(row, name) for name in SHARED},
            score=metrics.mean_of_tasks([list(s.values()) for s in scores[key].values()]),
            tasks=tuple(parts),
            verdict=worst([row.verdict for row in parts.values() if row.verdict]),
            trust=next((r.trust for r in parts.values() if r.stated), row.trust),
        )
    complete = (row for row in by_key.values() if len(row.tasks) == len(tasks))
    for rivals in contests(complete).values():
        other = second(rivals)
        if other is None:
            continue
        for place, mine in enumerate(rivals):
            best = (rivals[0] if place else other).key
            pairs = [(members[mine.key][task], members[best][task]) for task in tasks]
            chances = [metrics.probability_of_improvement(a.finals, b.finals) for a, b in pairs]
            ahead = [
                metrics.differences(scores[mine.key][task], scores[best][task])
                for task in (tasks if place == 0 else ())
            ]
            by_key[mine.key] = replace(mine, ahead=float(np.mean(chances)), lead=_lead(ahead))
    return tuple(by_key.values())


def _scores(task: TaskResult, row: Row) -> dict[int, float]:
    """Return the score by replicate."""
    assert task.normalisation is not None
    scores = metrics.normalised_score(list(row.finals.values()), task.normalisation)
    return dict(zip(row.finals, scores.tolist()))


def data_notes(task: Task) -> list[str]:
    """Return remarks on a task: source of item features, meaning of sales, baseline of a season.

    They follow from the task's parameters alone, so that stored results need no data.
    """
    parameters = task.parameters
    if parameters.get("stock") is not None:
        stock = np.ravel(parameters["stock"]).tolist()
        stock *= parameters.get("n_items", 1) if len(stock) == 1 else 1
        exact = has_exact_optimum(stock, task.horizon)
        against = "the dynamic programme's optimum" if exact else "the fluid bound"
        return [
            f"{task.name}: regret is against {against} of the season; what is sold out is on "
            "display and follows from responses, beside what agents guarantee."
        ]
    if "feature_epsilon" not in parameters:
        return []
    epsilon, delta = parameters["feature_epsilon"], parameters["feature_delta"]
    if epsilon is None:
        return [
            f"{task.name}: the item features are computed from training users, who are not "
            "protected; the agents' guarantees are for the users who arrive."
        ]
    return [
        f"{task.name}: the item features (DP-SVD) protect each training user with central DP "
        f"eps={epsilon:g} at delta={delta:g} (replace-one), apart from the agents' guarantees for "
        "the users who arrive."
    ]
