"""From cells to rows: what the tables, plots and the page are drawn from."""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from dpb_gym.errors import DPBError, ResultError
from dpb_gym.evaluation import metrics
from dpb_gym.evaluation.data_notes import data_notes
from dpb_gym.evaluation.outcome import COMPUTED, CellResult
from dpb_gym.evaluation.recipes import effort
from dpb_gym.evaluation.spec import Cell, Task
from dpb_gym.evaluation.suite import Suite
from dpb_gym.privacy import Budget
from dpb_gym.problems.base import Array
from dpb_gym.registry import agent_specs
from dpb_gym.report.groups import contests, verdict_class
from dpb_gym.report.model import (
    Interval,
    LeaderboardData,
    Normalisation,
    Row,
    TaskResult,
    TrackResult,
    TrackRow,
)

if TYPE_CHECKING:
    from dpb_gym.privacy import Guarantee

NON_PRIVATE = "non-private"
REPORT_DELTA = 1e-5
SET_ASIDE = "Set aside: "


@dataclass(frozen=True)
class Series:
    """All replicates of one agent at one budget on one task.

    Attributes:
        task: Name of the task.
        agent: Label.
        budget: Budget in short, ``"none"`` without one.
        cell: Its first cell; all share the rest of the specification.
        replicates: Their numbers ``(n,)``, increasing.
        rounds: Recorded rounds ``(C,)``.
        regret: Cumulative pseudo-regret ``(n, C)``.
        reward: Cumulative reward ``(n, C)``.
        guarantee: The weakest guarantee of its cells, None if one of them has none.
        rounds_per_second: Agent rounds per second over all timed cells, None if unknown.
        trust: Provenance of its least trustworthy cell, see `CellResult.provenance`.
    """

    task: str
    agent: str
    budget: str
    cell: Cell
    replicates: Array
    rounds: Array
    regret: Array
    reward: Array
    guarantee: dict[str, Any] | None
    rounds_per_second: float | None
    trust: str

    @property
    def place(self) -> tuple[str, str, str]:
        """Task, label and budget."""
        return self.task, self.agent, self.budget

    @property
    def final_regret(self) -> dict[int, float]:
        """Regret at the horizon by replicate."""
        return dict(zip(self.replicates.tolist(), self.regret[:, -1].tolist()))


def collect(results: Iterable[CellResult]) -> list[Series]:
    """Joins the blocks of each row; a replicate that occurs twice counts once.

    Raises:
        ResultError: If cells of one row were computed with different parameters.
    """
    return [_join(*row) for row in _by_row(results).items()]


def _by_row(results: Iterable[CellResult]) -> dict[tuple[str, str, str], list[CellResult]]:
    rows: dict[tuple[str, str, str], list[CellResult]] = {}
    for result in results:
        rows.setdefault(result.cell.row, []).append(result)
    return rows


def _join(key: tuple[str, str, str], cells: list[CellResult]) -> Series:
    identity = cells[0].cell.identity
    for result in cells:
        if result.cell.identity != identity:
            raise ResultError(
                f"{result.cell} and {cells[0].cell} were computed with different parameters or "
                "versions and cannot be joined"
            )
    taken: dict[int, tuple[CellResult, int]] = {}
    for result in cells:
        for row, replicate in enumerate(result.cell.replicates):
            taken.setdefault(replicate, (result, row))
    order = sorted(taken)
    timings = [result.timing for result in cells if result.timing is not None]
    seconds = sum(timing.seconds for timing in timings)
    rounds = sum(timing.rounds for timing in timings)
    return Series(
        *key,
        cells[0].cell,
        np.asarray(order),
        np.asarray(cells[0].cell.checkpoints),
        np.stack([taken[i][0].regret[taken[i][1]] for i in order]),
        np.stack([taken[i][0].reward[taken[i][1]] for i in order]),
        _weakest([result.guarantee for result in cells]),
        rounds / seconds if seconds > 0 and rounds > 0 else None,
        _least([result.provenance for result in cells]),
    )


def _least(provenances: Sequence[str]) -> str:
    """A statement outweighs a computation here, which is nobody's word but ours."""
    stated = sorted(p for p in provenances if p.startswith("stated"))
    return next(iter([*stated, *(p for p in provenances if p != COMPUTED)]), COMPUTED)


def _weakest(guarantees: Sequence[dict[str, Any] | None]) -> dict[str, Any] | None:
    """Blocks may spend differently if releases depend on public data: report the most spent."""
    distinct: list[dict[str, Any]] = []
    for guarantee in guarantees:
        if guarantee is None:
            return None
        if guarantee not in distinct:
            distinct.append(guarantee)
    if len(distinct) == 1:
        return distinct[0]
    return max(distinct, key=lambda g: read_guarantee(g).epsilon(REPORT_DELTA))


def to_leaderboard(
    suite: Suite,
    results: Iterable[CellResult],
    *,
    created: str,
    version: str,
    revision: str | None = None,
    command: str = "",
    notes: Sequence[str] = (),
    audit: Callable[[Series], Mapping[str, Any] | None] = lambda series: None,
) -> LeaderboardData:
    """Builds the leaderboard of a suite's results.

    Time and memory are linear in the rows, which are joined one after the other: chances of
    improvement are computed against the neighbours of the same notion, unit and budget only. A
    row that cannot be shown is left out and named in the notes.

    Args:
        suite: The suite.
        results: Its cells.
        created: ISO 8601 time of the results.
        version: Version of the package.
        revision: Source revision, if known.
        command: Command that computes them again.
        notes: Remarks.
        audit: What `Row.audit` says of a row.
    """
    remarks, rows = list(notes), dict[str, list[Row]]()
    places = {task.name: task for task in suite.tasks}
    for key, cells in _by_row(results).items():
        try:
            series = _join(key, cells)
            row = _row(places[key[0]], series, audit(series))
            rows.setdefault(key[0], []).append(row)
        except (DPBError, ArithmeticError, KeyError, TypeError, ValueError) as error:
            remarks.append(f"{SET_ASIDE}{cells[0].cell.agent.title} on {key[0]}: {error!s:.300}")
    tasks = [_task(task, rows[task.name]) for task in suite.tasks if task.name in rows]
    for task in suite.tasks:
        remarks += data_notes(task) if task.name in rows else []
    for found in tasks:
        remarks += [
            f"Incomplete: {row.key} on {found.task} has {row.replicates} of {found.replicates} "
            "replicates."
            for row in found.rows
            if row.replicates < found.replicates
        ]
    return LeaderboardData(
        title=suite.title or suite.name,
        suite=suite.name,
        created=created,
        version=version,
        revision=revision,
        command=command,
        tasks=tuple(tasks),
        notes=tuple(remarks),
        tracks=tuple(_tracks(suite, tasks)),
    )


def _task(task: Task, rows: Sequence[Row]) -> TaskResult:
    return TaskResult(
        task=task.name,
        env_id=task.env,
        problem=task.kind,
        description=task.description,
        horizon=task.horizon,
        replicates=max(row.replicates for row in rows),
        normalisation=_constants(task),
        rows=_ranked(rows),
        track=task.track or "",
    )


def _row(task: Task, series: Series, audit: Mapping[str, Any] | None) -> Row:
    text, notion, unit = describe_guarantee(series.guarantee)
    final = series.regret[:, -1]
    regret = metrics.interval(final, floor=0.0)
    curve = metrics.limits(series.regret, floor=0.0)
    return Row(
        agent=series.agent,
        name=series.cell.agent.name,
        budget=Budget.parse(series.budget),
        oracle=_knows_all(series.cell.agent.name),
        notion=notion,
        unit=unit,
        guarantee=text,
        regret=regret,
        iqm_regret=metrics.interval(final, metrics.MIDDLE, floor=0.0),
        score=_score(regret, _constants(task)),
        reward=metrics.interval(series.reward[:, -1]),
        rounds_per_second=series.rounds_per_second,
        curve=zip(series.rounds.tolist(), *curve.tolist()),  # type: ignore[arg-type]
        params=series.cell.agent.params,
        audit=audit,  # type: ignore[arg-type]
        finals=series.final_regret,
        replicates=len(series.replicates),
        trust=series.trust,
        accounting=(series.guarantee or {}).get("basis", "computed"),
        tuning=effort(series.cell.agent.name, series.cell.agent.params),
    )


def _knows_all(name: str) -> bool:
    spec = agent_specs().get(name)
    return spec is not None and spec.uses_oracle


def _constants(task: Task) -> Normalisation | None:
    return None if task.normalisation is None else Normalisation(**task.normalisation.model_dump())


def _score(regret: Interval, constants: Normalisation | None) -> Interval | None:
    """The score is linear in the regret, so its interval is that of the regret."""
    if constants is None:
        return None
    ends = (regret.mean, regret.high, regret.low)
    return Interval(*metrics.normalised_score(ends, vars(constants)).tolist())


def _ranked(rows: Sequence[Row]) -> tuple[Row, ...]:
    """The same rows, with what each knows of its rivals at equal notion, unit and budget."""
    twins = {(row.agent, row.name): row for row in rows if row.budget is None}
    found = {row.key: _with_excess(row, twins.get((row.agent, row.name))) for row in rows}
    for rivals in contests(found.values()).values():
        for place, row in enumerate(rivals):
            near = [*rivals[max(0, place - 1) : place], *rivals[place + 1 : place + 2]]
            found[row.key] = replace(
                row,
                improvement={
                    other.key: metrics.probability_of_improvement(row.finals, other.finals)
                    for other in near
                },
                lead=_lead([metrics.differences(near[0].finals, row.finals)])
                if place == 0 and near
                else None,
            )
    return tuple(found.values())


def _with_excess(row: Row, twin: Row | None) -> Row:
    if twin is None or row.budget is None or row.params != twin.params:
        return row
    return replace(row, excess=_lead([metrics.differences(row.finals, twin.finals)]))


def _lead(differences: Sequence[Sequence[float]]) -> Interval | None:
    """The mean difference over some tasks, None where too few customers were the same."""
    if not differences or min(map(len, differences)) < metrics.MIN_REPLICATES:
        return None
    return metrics.mean_of_tasks(differences)


def _tracks(suite: Suite, tasks: Sequence[TaskResult]) -> Iterator[TrackResult]:
    """One result per track with rows, in the order of the suite."""
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
    """Mean scores over the tasks, each weighing the same.

    Rows that miss a task say on which they
    have results and are no match for complete ones.
    """
    members: dict[str, dict[str, Row]] = {}
    for task in tasks.values():
        for row in task.rows:
            members.setdefault(row.key, {})[task.task] = row
    scores = {
        key: {task: _scores(tasks[task], row) for task, row in mine.items()}
        for key, mine in members.items()
    }
    found = {}
    for key, parts in members.items():
        row = next(iter(parts.values()))
        found[key] = TrackRow(
            agent=row.agent,
            name=row.name,
            budget=row.budget,
            oracle=row.oracle,
            notion=row.notion,
            unit=row.unit,
            score=metrics.mean_of_tasks([list(s.values()) for s in scores[key].values()]),
            tasks=tuple(parts),
            verdict=_verdict(list(parts.values())),
            trust=next((r.trust for r in parts.values() if r.stated), row.trust),
        )
    complete = (row for row in found.values() if len(row.tasks) == len(tasks))
    for rivals in contests(complete).values():
        if len(rivals) == 1:
            continue
        for place, mine in enumerate(rivals):
            best = rivals[place == 0].key
            pairs = [(members[mine.key][task], members[best][task]) for task in tasks]
            chances = [metrics.probability_of_improvement(a.finals, b.finals) for a, b in pairs]
            ahead = [
                metrics.differences(scores[mine.key][task], scores[best][task])
                for task in (tasks if place == 0 else ())
            ]
            found[mine.key] = replace(mine, ahead=float(np.mean(chances)), lead=_lead(ahead))
    return tuple(found.values())


def _scores(task: TaskResult, row: Row) -> dict[int, float]:
    """Score by replicate."""
    assert task.normalisation is not None
    found = metrics.normalised_score(list(row.finals.values()), vars(task.normalisation))
    return dict(zip(row.finals, found.tolist()))


def _verdict(rows: Sequence[Row]) -> str:
    """The worst verdict of some rows, empty if none was audited."""
    verdicts = [row.audit.verdict for row in rows if row.audit is not None]
    failed = [verdict for verdict in verdicts if verdict_class(verdict) == "fail"]
    return next(iter([*failed, *verdicts]), "")


def read_guarantee(guarantee: Mapping[str, Any]) -> Guarantee:
    """Rebuilds a stored guarantee, whatever accounting events it is made of."""
    from dpb_gym import privacy

    # Agents may bring accounting events of their own.
    agent_specs()
    return privacy.Guarantee.from_dict(guarantee)


def describe_guarantee(guarantee: Mapping[str, Any] | None) -> tuple[str, str | None, str | None]:
    """A stored guarantee in one line, with its notion and unit (None if non-private)."""
    if guarantee is None or guarantee.get("curve") is None:
        return NON_PRIVATE, None, None
    return _described(json.dumps(guarantee, sort_keys=True))


@functools.lru_cache(maxsize=4096)
def _described(guarantee: str) -> tuple[str, str, str]:
    # Rows share guarantees, and epsilon at a delta is a search over orders.
    read = read_guarantee(json.loads(guarantee))
    return read.describe(REPORT_DELTA), read.notion, read.unit
