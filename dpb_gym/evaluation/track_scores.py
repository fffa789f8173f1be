"""Scores over the tasks of a track."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from dpb_gym.evaluation import metrics
from dpb_gym.evaluation.suite import Suite
from dpb_gym.report.grouping import REFERENCES, group_of
from dpb_gym.report.model import Row, TaskResult, TrackResult, TrackRow

if TYPE_CHECKING:
    from dpb_gym.evaluation.leaderboard import Series

_WORST = ("fail", "violat", "refut")


def track_results(
    suite: Suite, series: Sequence[Series], tasks: Sequence[TaskResult]
) -> tuple[TrackResult, ...]:
    """One result per track with rows, in the order of the suite.

    A row's score is the mean of its scores on the track's tasks, each task weighing the same,
    with a bootstrap interval over the replicates within each task. Rows that miss a task say
    on which they have results and are no match for complete ones.

    Args:
        suite: The suite.
        series: All rows' replicates.
        tasks: The tasks that have results.
    """
    found = []
    for name, track in suite.tracks.items():
        members = [task for task in tasks if task.track == name]
        if not members:
            continue
        found.append(
            TrackResult(
                track=name,
                title=track.title,
                description=track.description.strip(),
                tasks=tuple(task.task for task in members),
                rows=_rows(members, series),
            )
        )
    return tuple(found)


def _rows(tasks: Sequence[TaskResult], series: Sequence[Series]) -> tuple[TrackRow, ...]:
    scored = {task.task: task for task in tasks if task.normalisation is not None}
    samples: dict[str, dict[str, np.ndarray]] = {}
    rows: dict[str, list[Row]] = {}
    by_place = {(s.task, s.agent, s.budget): s for s in series}
    for task in scored.values():
        for row in task.rows:
            assert task.normalisation is not None
            own = by_place[task.task, row.agent, row.budget]
            score = metrics.normalised_score(own.regret[:, -1], task.normalisation)
            samples.setdefault(row.key, {})[task.task] = score
            rows.setdefault(row.key, []).append(row)
    ahead = _ahead(scored, rows)
    return tuple(
        TrackRow(
            agent=mine[0].agent,
            name=mine[0].name,
            budget=mine[0].budget,
            notion=mine[0].notion,
            unit=mine[0].unit,
            score=metrics.stratified_bootstrap(list(samples[key].values())),
            tasks=tuple(samples[key]),
            ahead=ahead.get(key),
            verdict=_verdict(mine),
        )
        for key, mine in rows.items()
    )


def _ahead(tasks: Mapping[str, TaskResult], rows: Mapping[str, Sequence[Row]]) -> dict[str, float]:
    """How likely each row beats the best other one of its notion, unit and budget.

    The best is that of the highest mean score among the rows with results on every task.
    """
    complete = {
        key: float(np.mean([row.score.mean for row in mine if row.score is not None]))
        for key, mine in rows.items()
        if len(mine) == len(tasks) and mine[0].name not in REFERENCES
    }
    found = {}
    for key in complete:
        mine = rows[key][0]
        rivals = [
            other
            for other in complete
            if other != key
            and group_of(rows[other][0]) == group_of(mine)
            and rows[other][0].budget == mine.budget
        ]
        if rivals:
            best = max(rivals, key=lambda other: (complete[other], other))
            found[key] = float(np.mean([(row.improvement or {})[best] for row in rows[key]]))
    return found


def _verdict(rows: Sequence[Row]) -> str:
    """The worst verdict of some rows, empty if none was audited."""
    verdicts = [str(row.audit["verdict"]) for row in rows if row.audit is not None]
    failed = [verdict for verdict in verdicts if verdict.lower().startswith(_WORST)]
    return next(iter([*failed, *verdicts]), "")
