"""Comparisons of agents at equal privacy under two rulings: by their defaults, or tuned."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import stdtr

from dpb_gym.report.comparison_groups import contests, second
from dpb_gym.report.leaderboard_data import DEFAULTS, RULINGS, RulingComparison, TaskResult
from dpb_gym.results import metrics

LEVEL = 1.0 - metrics.CONFIDENCE


def comparisons(
    tasks: Sequence[TaskResult], standings: Mapping[str, str]
) -> tuple[RulingComparison, ...]:
    """Compare two rows at each task, guarantee and budget under each ruling.

    The first is this project's agent if it took part, and otherwise the row of least regret. The
    second has the least regret of all other agents. Self-tuning compares defaults only. Under the
    ruling "tuned" the project's agent has its tuned parameters, and the others have the better of
    tuned and default ones at each budget. Fewer than `metrics.MIN_REPLICATES` shared replicates are
    not compared. Holm's procedure adjusts for all comparisons of this project's agents under one
    ruling, and for all others under one ruling.

    Args:
        tasks: Tasks with their rows.
        standings: Standing of agents by registered name; see `STANDINGS`.
    """
    ours = {name for name, standing in standings.items() if standing == "ours"}
    found: dict[tuple[str, bool], list[tuple[RulingComparison, float]]] = {}
    for ruling in RULINGS:
        for comparison, p in _compare(tasks, ruling, ours):
            found.setdefault((ruling, comparison.ours), []).append((comparison, p))
    return tuple(
        replace(comparison, survives=survives)
        for family in found.values()
        for (comparison, _), survives in zip(family, holm([p for _, p in family]))
    )


def _compare(
    tasks: Sequence[TaskResult], ruling: str, ours: set[str]
) -> Iterator[tuple[RulingComparison, float]]:
    for task in tasks:
        for (_, budget), ranked in contests(task.rows).items():
            rows = [row for row in ranked if ruling != DEFAULTS or row.ruling == DEFAULTS]
            mine = sorted((r for r in rows if r.name in ours), key=lambda r: r.ruling != ruling)
            field = [*mine[:1], *(row for row in rows if row.name not in ours)] if mine else rows
            other = second(field) if field else None
            if budget is None or other is None:
                continue
            gains = metrics.differences(other.finals, field[0].finals)
            if len(gains) >= metrics.MIN_REPLICATES:
                keys, gain = (field[0].key, other.key), metrics.interval(gains)
                yield RulingComparison(task.task, ruling, *keys, gain, bool(mine)), paired_p(gains)


def paired_p(differences: ArrayLike) -> float:
    """Return the two-sided p-value of Student's t test that the mean difference is zero."""
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
