"""Comparisons of agents at equal privacy under two rulings: by their defaults, or tuned."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import ArrayLike

from dpb_gym.report.comparison_groups import questions, second, under
from dpb_gym.report.leaderboard_data import RULINGS, RulingComparison, TaskResult
from dpb_gym.results import metrics

LEVEL = 1.0 - metrics.CONFIDENCE


def comparisons(
    tasks: Sequence[TaskResult], standings: Mapping[str, str]
) -> tuple[RulingComparison, ...]:
    """Compare two rows at each task, trust model, guarantee and budget under each ruling.

    Every row whose guarantee implies the asked one takes part, see `questions`. The first is the
    best row of this project, and without one the best row. The second is the best row of the other
    agents. A question that only this project or only others can answer is not compared, but
    returned. The same is true with fewer than `metrics.MIN_REPLICATES` shared replicates. `under`
    states which parameters take part. Holm's procedure adjusts for all comparisons of this
    project's agents under one ruling, and for all others under one ruling.

    Args:
        tasks: Tasks with their rows.
        standings: Standing of agents by registered name; see `STANDINGS`.
    """
    ours = {name for name, standing in standings.items() if standing == "ours"}
    compared: list[RulingComparison] = []
    p_values: dict[tuple[str, bool], dict[int, float]] = {}
    for ruling in RULINGS:
        for comparison, p in _compare(tasks, ruling, ours):
            if p is not None:
                p_values.setdefault((ruling, comparison.ours), {})[len(compared)] = p
            compared.append(comparison)
    for family in p_values.values():
        for place, survives in zip(family, holm(list(family.values()))):
            compared[place] = replace(compared[place], survives=survives)
    return tuple(compared)


def _compare(
    tasks: Sequence[TaskResult], ruling: str, ours: set[str]
) -> Iterator[tuple[RulingComparison, float | None]]:
    for task in tasks:
        for trust, (group, budget), answers in questions(under(ruling, task.rows, ours)):
            mine = [row for row in answers if row.name in ours]
            first = mine[0] if mine else answers[0]
            others = (row for row in answers if row.name not in ours)
            other = next(others, None) if mine else second(answers)
            gain, p = None, None
            if other is not None:
                gains = metrics.differences(other.finals, first.finals)
                if len(gains) >= metrics.MIN_REPLICATES:
                    gain, p = metrics.interval(gains), paired_p(gains)
            comparison = RulingComparison(
                task=task.task,
                ruling=ruling,
                trust=trust,
                notion=str(group.notion),
                unit=str(group.unit),
                budget=budget,
                first=first.key,
                second=None if other is None else other.key,
                gain=gain,
                ours=bool(mine),
            )
            yield comparison, p


def paired_p(differences: ArrayLike) -> float:
    """Return the two-sided p-value of Student's t test that the mean difference is zero."""
    from scipy.special import stdtr

    values = np.asarray(differences, dtype=np.float64)
    n, centre = len(values), float(values.mean())
    deviation = float(values.std(ddof=1))
    if deviation <= 1e-12 * max(1.0, abs(centre)):  # rounding
        return float(centre == 0.0)
    return float(2.0 * stdtr(n - 1, -abs(centre) / (deviation / np.sqrt(n))))


def holm(p_values: Sequence[float]) -> list[bool]:
    """Return which hypotheses Holm's step-down procedure rejects at `LEVEL` (Holm 1979)."""
    order = sorted(range(len(p_values)), key=p_values.__getitem__)
    rejected = [False] * len(p_values)
    for place, i in enumerate(order):
        if p_values[i] > LEVEL / (len(order) - place):
            break
        rejected[i] = True
    return rejected
