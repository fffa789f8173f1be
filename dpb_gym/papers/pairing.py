"""Paired intervals and tests over replicates, by the jackknife.

A quantity is a smooth function of means over replicates. Its jackknife pseudo-values,
n f - (n - 1) f(-i), are treated as a sample. For means and differences of means the interval and
the test are exactly those of Student's t, for ratios their linearisation (Tukey 1958; Miller
1974). All quantities leave out the same replicate, so that comparisons are paired.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from dpb_gym.errors import ResultError
from dpb_gym.problems.base import Array
from dpb_gym.report.leaderboard_data import UNBOUNDED, Interval
from dpb_gym.results.metrics import CONFIDENCE
from dpb_gym.results.rulings import paired_p


@dataclass(frozen=True)
class Measured:
    """A quantity of a curve: a function of the means of columns of numbers per replicate.

    Attributes:
        columns: Numbers by replicate; no columns if nothing is random.
        of: The quantity as a function of the columns' means, which may be arrays.
    """

    columns: tuple[Mapping[int, float], ...]
    of: Callable[..., Any] = lambda mean: mean


def leave_one_out(sample: Any) -> Array:
    """Return the mean of a sample and the means without each number, ``(1 + n,)``.

    For fewer than two numbers only the mean is returned, ``(1,)``.
    """
    values = np.asarray(sample, dtype=np.float64)
    n = len(values)
    if n < 2:
        return np.array([values.mean()])
    return np.concatenate([[values.mean()], (values.sum() - values) / (n - 1)])


def jackknife(*measured: Measured) -> tuple[list[Array], int]:
    """Return quantities and their values without each of the replicates that all share.

    Returns:
        Per quantity ``(1 + n,)`` as of `leave_one_out`, and the number n of replicates, which is
        0 if nothing is random.

    Raises:
        ResultError: If the columns share no replicate.
    """
    columns = [column for one in measured for column in one.columns]
    shared = sorted(set.intersection(*(set(column) for column in columns))) if columns else []
    if columns and not shared:
        raise ResultError("the curves share no replicate, so nothing can be paired")
    values = []
    size = len(leave_one_out(shared)) if shared else 1
    for one in measured:
        quantity = one.of(*(leave_one_out([column[i] for i in shared]) for column in one.columns))
        values.append(np.broadcast_to(np.asarray(quantity, dtype=np.float64), (size,)))
    return values, len(shared)


def interval(values: Array, replicates: int) -> Interval:
    """Return a quantity with its 95% interval.

    The interval of a constant has no width, that of a single replicate has no ends.

    Args:
        values: The quantity as `jackknife` returns it.
        replicates: Their number, as `jackknife` returns it.

    Raises:
        ResultError: If a value is not finite.
    """
    if not np.isfinite(values).all():
        raise ResultError("a quantity is infinite or undefined: nothing to compare")
    from scipy.special import stdtrit

    centre = float(values[0])
    n = len(values) - 1
    if n < 2:
        return Interval(centre, *((centre, centre) if replicates == 0 else UNBOUNDED))
    error = float(_pseudo(values).std(ddof=1) / np.sqrt(n))
    half = float(stdtrit(n - 1, 0.5 + 0.5 * CONFIDENCE)) * error
    return Interval(centre, centre - half, centre + half)


def p_value(values: Array) -> float | None:
    """Return the two-sided p-value of the t-test that a quantity of `jackknife` is zero.

    It is None for fewer than three replicates.
    """
    return None if len(values) < 4 or not np.isfinite(values).all() else paired_p(_pseudo(values))


def _pseudo(values: Array) -> Array:
    n = len(values) - 1
    pseudo: Array = n * values[0] - (n - 1) * values[1:]
    return pseudo
