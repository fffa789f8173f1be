"""Performance profiles and probabilities of improvement over several tasks.

Rows are compared within a track at one notion, unit and budget, on their common replicates, with
equal weights of tasks. A row that misses a task is left out.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import permutations
from typing import Any

import numpy as np

from dpb_gym.errors import ParameterError
from dpb_gym.privacy.budget import Budget
from dpb_gym.problems.base import Array
from dpb_gym.report.comparison_groups import contests
from dpb_gym.report.leaderboard_data import LeaderboardData
from dpb_gym.results import metrics

FACTORS = (1.0, 1.1, 1.25, 1.5, 2.0, 3.0, 5.0, 10.0, 30.0, 100.0)


def compared(data: LeaderboardData) -> Iterator[tuple[dict[str, Any], list[str], list[Array]]]:
    """Yield every group of at least two comparable rows with common replicates.

    Yields:
        Track, guarantee and budget as the first keys of a record; the labels, the best on the
        first task first; and regret per task on the common replicates ``(rivals, n)``.
    """
    for track in dict.fromkeys(task.track for task in data.tasks):
        tasks = [task for task in data.tasks if task.track == track]
        known = [{row.key: row for row in task.rows} for task in tasks]
        complete = [row for row in tasks[0].rows if all(row.key in rows for rows in known)]
        for (group, budget), rivals in contests(complete).items():
            said = {"track": track, "guarantee": group.label, "budget": Budget.text(budget)}
            regrets = []
            for rows in known:
                finals = [rows[row.key].finals for row in rivals]
                shared = sorted(set.intersection(*map(set, finals)))
                regrets.append(np.array([[values[i] for i in shared] for values in finals]))
            if len(rivals) > 1 and all(table.size for table in regrets):
                yield said, [row.agent for row in rivals], regrets


def performance_profile(regrets: Sequence[Array], factors: Sequence[float]) -> Array:
    """Return performance profiles (Dolan & More 2002) over the replicates of several tasks.

    Args:
        regrets: Per task ``(rivals, n)``, on the same n replicates.
        factors: Multiples of the least regret, at least 1.

    Returns:
        Share of replicates on which a rival's regret is within a factor of the least regret,
        averaged over tasks: ``(rivals, factors)``. Where the least is 0, only 0 is within.

    Raises:
        ParameterError: If a factor is below 1.
    """
    values = np.asarray(factors, dtype=np.float64)
    if values.ndim != 1 or not (values >= 1.0).all():
        raise ParameterError(f"factors must be numbers >= 1, got {factors!r}")
    shares = []
    for table in regrets:
        least = np.maximum(table.min(axis=0), 0.0)
        within = table[:, :, None] <= least[:, None] * values
        shares.append(within.mean(axis=1))
    return np.asarray(np.mean(shares, axis=0))


def profiles(data: LeaderboardData, factors: Sequence[float] = FACTORS) -> list[dict[str, Any]]:
    """Return performance profiles as records; see `Result.profiles`."""
    records = []
    for said, agents, regrets in compared(data):
        shares = performance_profile(regrets, factors)
        for agent, row in zip(agents, shares.tolist()):
            for factor, share in zip(factors, row):
                records.append(said | {"agent": agent, "factor": factor, "share": share})
    return records


def improvements(data: LeaderboardData) -> list[dict[str, Any]]:
    """Return probabilities of improvement as records; see `Result.improvements`."""
    records = []
    for said, agents, regrets in compared(data):
        for (i, agent), (j, other) in permutations(enumerate(agents), 2):
            wins = [(table[i] < table[j]) + 0.5 * (table[i] == table[j]) for table in regrets]
            mean = metrics.mean_of_tasks(wins)
            record = said | {"agent": agent, "over": other, "probability": mean.mean}
            if min(map(len, wins)) < metrics.MIN_REPLICATES:
                records.append(record | {"low": None, "high": None})
            else:
                records.append(record | {"low": max(0.0, mean.low), "high": min(1.0, mean.high)})
    return records
