"""Paired intervals and tests: whole replicates are resampled, the same for all quantities."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from dpb_gym.errors import ResultError
from dpb_gym.evaluation import metrics
from dpb_gym.papers.quantities import Measured


def resample(measured: Sequence[Measured]) -> tuple[list[Any], int]:
    """Resamples whole replicates, the same for all quantities.

    Args:
        measured: Quantities, paired by replicate.

    Returns:
        Per quantity an array: the value first, its bootstrap resamples after it; and the number
        of shared replicates.

    Raises:
        ResultError: If they share no replicate.
    """
    table = _shared(measured)
    if table is None:
        return [np.array([one.constant]) for one in measured], 0
    count = table.shape[1]
    rng = np.random.default_rng(metrics.SEED)
    draws = rng.integers(0, count, (metrics.RESAMPLES, count))
    means = [np.concatenate([[row.mean()], row[draws].mean(axis=1)]) for row in table]
    return _values(measured, means), count


def paired_t(measured: Sequence[Measured], effect: Callable[[list[Any]], Any]) -> float | None:
    """Two-sided p-value of a t-test that an effect is zero.

    The test is that of the jackknife's pseudo-values over replicates, n f - (n - 1) f(-i). For
    a difference of means it is the paired t-test exactly; for ratios it is its linearisation.

    Args:
        measured: Quantities, paired by replicate.
        effect: What is tested, from the quantities' values.

    Returns:
        The p-value; None if nothing is random, or with fewer than three replicates.

    Raises:
        ResultError: If the quantities share no replicate.
    """
    from scipy import stats

    table = _shared(measured)
    if table is None or table.shape[1] < 3:
        return None
    n = table.shape[1]
    total = table.sum(axis=1, keepdims=True)
    means = list(np.concatenate([total / n, (total - table) / (n - 1)], axis=1))
    found = np.asarray(effect(_values(measured, means)), dtype=np.float64)
    pseudo = n * found[0] - (n - 1) * found[1:]
    if not np.isfinite(pseudo).all():
        return None
    spread = float(pseudo.std(ddof=1))
    centre = float(pseudo.mean())
    if spread <= 1e-12 * max(1.0, abs(centre)):
        return 1.0 if centre == 0.0 else 0.0
    return float(2.0 * stats.t.sf(abs(centre) / (spread / np.sqrt(n)), n - 1))


def _shared(measured: Sequence[Measured]) -> Any:
    """All columns at the shared replicates ``(columns, n)``; None without columns."""
    columns = [column for one in measured for column in one.columns]
    if not columns:
        return None
    shared = sorted(set.intersection(*(set(column) for column in columns)))
    if not shared:
        raise ResultError("the curves share no replicate, so nothing can be paired")
    return np.array([[column[i] for i in shared] for column in columns])


def _values(measured: Sequence[Measured], means: Sequence[Any]) -> list[Any]:
    values, at = [], 0
    for one in measured:
        width = len(one.columns)
        values.append(np.broadcast_to(one.of(means[at : at + width]), means[0].shape))
        at += width
    return values
