"""From cells to rows: what the tables, plots and the page are drawn from."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from dpb_gym.agent import agent_specs
from dpb_gym.errors import ResultError
from dpb_gym.evaluation import metrics
from dpb_gym.evaluation.data_notes import data_notes
from dpb_gym.evaluation.outcome import CellResult
from dpb_gym.evaluation.spec import Cell, Task
from dpb_gym.evaluation.suite import Suite
from dpb_gym.evaluation.track_scores import track_results
from dpb_gym.problems.base import Array
from dpb_gym.report.model import Interval, LeaderboardData, Row, TaskResult

if TYPE_CHECKING:
    from dpb_gym.privacy import Guarantee

NON_PRIVATE = "non-private"
REPORT_DELTA = 1e-5


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

    @property
    def final_regret(self) -> dict[int, float]:
        """Regret at the horizon by replicate."""
        return dict(zip(self.replicates.tolist(), self.regret[:, -1].tolist()))


def collect(results: Iterable[CellResult]) -> list[Series]:
    """Joins the blocks of each row; a replicate that occurs twice counts once.

    Raises:
        ResultError: If cells of one row were computed with different parameters.
    """
    rows: dict[tuple[str, str, str], list[CellResult]] = {}
    for result in results:
        rows.setdefault(result.cell.row, []).append(result)
    return [_join(key, cells) for key, cells in rows.items()]


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
    )


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
    series: Sequence[Series],
    *,
    created: str,
    version: str,
    revision: str | None = None,
    command: str = "",
    notes: Sequence[str] = (),
    audits: Mapping[tuple[str, str, str], Mapping[str, Any]] | None = None,
) -> LeaderboardData:
    """Builds the leaderboard of a suite's results.

    Args:
        suite: The suite.
        series: Its rows, see `collect`.
        created: ISO 8601 time of the results.
        version: Version of the package.
        revision: Source revision, if known.
        command: Command that computes them again.
        notes: Remarks.
        audits: What `Row.audit` says, by task, agent label and budget.
    """
    tasks = []
    remarks = list(notes)
    for task in suite.tasks:
        rows = [s for s in series if s.task == task.name]
        if not rows:
            continue
        remarks += data_notes(task)
        most = max(len(s.replicates) for s in rows)
        for s in rows:
            if len(s.replicates) < most:
                title = s.agent if s.budget == "none" else f"{s.agent} ({s.budget})"
                remarks.append(
                    f"Incomplete: {title} on {task.name} has {len(s.replicates)} of {most} "
                    "replicates."
                )
        tasks.append(_task(task, rows, most, audits or {}))
    return LeaderboardData(
        title=suite.title or suite.name,
        suite=suite.name,
        created=created,
        version=version,
        revision=revision,
        command=command,
        tasks=tuple(tasks),
        notes=tuple(remarks),
        tracks=track_results(suite, series, tasks),
    )


def _task(
    task: Task,
    series: Sequence[Series],
    replicates: int,
    audits: Mapping[tuple[str, str, str], Mapping[str, Any]],
) -> TaskResult:
    finals = [s.final_regret for s in series]
    rows = [_row(task, s, audits.get((s.task, s.agent, s.budget))) for s in series]
    improved = []
    for i, row in enumerate(rows):
        others = {
            rows[j].key: metrics.probability_of_improvement(finals[i], finals[j])
            for j in range(len(rows))
            if j != i
        }
        improved.append(_with_improvement(row, others))
    return TaskResult(
        task=task.name,
        env_id=task.env,
        problem=task.kind,
        description=task.description,
        horizon=task.horizon,
        replicates=replicates,
        normalisation=None if task.normalisation is None else task.normalisation.model_dump(),
        rows=tuple(improved),
        track=task.track or "",
    )


def _with_improvement(row: Row, others: dict[str, float]) -> Row:
    return replace(row, improvement=others or None)


def _row(task: Task, series: Series, audit: Mapping[str, Any] | None) -> Row:
    text, notion, unit = describe_guarantee(series.guarantee)
    curve = metrics.bands(series.regret)
    reward = series.reward[:, -1]
    score: Interval | None = None
    if task.normalisation is not None:
        score = metrics.bootstrap(
            metrics.normalised_score(series.regret[:, -1], task.normalisation.model_dump())
        )
    return Row(
        agent=series.agent,
        name=series.cell.agent.name,
        budget=series.budget,
        guarantee=text,
        notion=notion,
        unit=unit,
        regret=metrics.bootstrap(series.regret[:, -1]),
        iqm_regret=metrics.bootstrap(series.regret[:, -1], metrics.iqm),
        score=score,
        reward=metrics.bootstrap(reward),
        rounds_per_second=series.rounds_per_second,
        curve=tuple(
            (int(t), band.mean, band.low, band.high) for t, band in zip(series.rounds, curve)
        ),
        params=series.cell.agent.identity["params"],
        audit=audit,
        replicates=len(series.replicates),
    )


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
    read = read_guarantee(guarantee)
    return read.describe(REPORT_DELTA), read.notion, read.unit
