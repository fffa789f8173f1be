"""Aggregates over replicates: means, interquartile means, differences, 95% intervals.

Intervals are Student's t: of a mean, of a trimmed mean (Tukey & McLaughlin 1963) and of the mean of
several tasks' means (Satterthwaite 1946), which keep their coverage with few replicates. Agents
share the customers of a replicate, so differences and probabilities of improvement are paired.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dpb_gym.errors import ParameterError
from dpb_gym.report.leaderboard_data import UNBOUNDED, Interval, Normalisation

CONFIDENCE = 0.95
MIDDLE = 0.25
"""Share that an interquartile mean cuts from each end."""
MIN_REPLICATES = 8
"""Fewest replicates for a verdict; the spread of fewer is too uncertain."""
LARGEST = 1e15
"""Largest value of a reward or regret; sums of squares stay finite below it."""

Floats: TypeAlias = NDArray[np.float64]


def _spread(sample: Floats, cut: float) -> tuple[Floats, Floats, int]:
    """Return (trimmed) means of columns ``(n, C)``, squared standard errors, degrees of freedom."""
    n, out = len(sample), int(cut * len(sample))
    freedom = n - 2 * out - 1
    ranked = np.sort(sample, axis=0) if out else sample
    centre = ranked[out : n - out].mean(axis=0)
    if freedom < 1:
        return centre, np.zeros_like(centre), 0
    winsorised = np.clip(ranked, ranked[out], ranked[n - out - 1]) if out else ranked
    squares = winsorised.var(axis=0, ddof=1) * (n - 1)
    return centre, squares / ((freedom + 1) * freedom), freedom


def _half(
    variance: Floats | float, freedom: float, confidence: float = CONFIDENCE
) -> Floats:  # fmt: skip
    from scipy.special import stdtrit

    return np.asarray(stdtrit(freedom, 0.5 + 0.5 * confidence) * np.sqrt(variance))


def grouped(
    values: ArrayLike, groups: ArrayLike, confidence: float = CONFIDENCE
) -> Interval:  # fmt: skip
    """Return a mean with an interval, of 95% by default, that contains variation between groups.

    Values of a group share a truth, such as coefficients drawn from a posterior. The interval is
    that of one truth's mean: the variance between groups does not shrink with their number. It is
    the estimate of the one-way random-effects model plus the error of the mean (Searle, Casella &
    McCulloch 1992, section 3.6).

    Args:
        values: ``(n,)``.
        groups: Number of each value's group ``(n,)``.
        confidence: In (0, 1).
    """
    x, which = np.asarray(values, np.float64), np.asarray(groups)
    _, codes, sizes = np.unique(which, return_inverse=True, return_counts=True)
    n, J = len(x), len(sizes)
    if J < 2:
        return interval(x)
    means = np.bincount(codes, x) / sizes
    within = float(((x - means[codes]) ** 2).sum() / max(n - J, 1))
    among = float((sizes * (means - x.mean()) ** 2).sum() / (J - 1))
    between = max(0.0, (among - within) / ((n - (sizes**2).sum() / n) / (J - 1))) if n > J else 0.0
    variance = between * (1.0 + float((sizes**2).sum()) / n**2) + max(within, among * (n == J)) / n
    half = float(_half(variance, J - 1, confidence))
    return Interval(float(x.mean()), float(x.mean() - half), float(x.mean() + half))


def _sample(values: ArrayLike) -> Floats:
    """Return replicates by columns; see `limits`."""
    sample = np.asarray(values, dtype=np.float64)
    if sample.ndim != 2 or len(sample) == 0 or not (np.abs(sample) <= LARGEST).all():
        raise ParameterError(
            f"values must be numbers within +-{LARGEST:g}, replicates by columns, not empty"
        )
    return sample


def limits(values: ArrayLike, cut: float = 0.0, *, floor: float = -np.inf) -> Floats:
    """Return means of columns with the ends of their 95% intervals.

    Args:
        values: ``(n, C)``, replicates by columns, e.g. checkpoints of a curve. A single replicate
            does not show how replicates differ: its ends are -inf and inf.
        cut: In [0, 1/2): the share of replicates left out at each end; `MIDDLE` gives the
            interquartile mean.
        floor: Lower bound of all values and finite ends.

    Returns:
        Means, lower and upper ends: ``(3, C)``.

    Raises:
        ParameterError: If there is no replicate or a value is not finite, or beyond `LARGEST`.
    """
    centre, variance, freedom = _spread(_sample(values), cut)
    if freedom < 1:
        infinite = np.full_like(centre, np.inf)
        return np.stack([centre, -infinite, infinite])
    half = _half(variance, freedom)
    return np.stack([centre, np.minimum(centre, np.maximum(centre - half, floor)), centre + half])


def interval(values: ArrayLike, cut: float = 0.0, *, floor: float = -np.inf) -> Interval:
    """Return the (trimmed) mean of one number per replicate ``(n,)``; see `limits`."""
    return Interval(*limits(np.asarray(values)[..., None], cut, floor=floor)[:, 0].tolist())


def mean_of_tasks(tasks: Sequence[ArrayLike]) -> Interval:
    """Return the mean of several tasks' means, with equal weights, and its 95% interval.

    Args:
        tasks: One array of numbers per task, of any lengths. With a task of a single number the
            ends are -inf and inf, see `limits`.

    Raises:
        ParameterError: If there is no task, or one has no finite number.
    """
    if len(tasks) == 0:
        raise ParameterError("a mean of tasks needs at least one")
    parts = [_spread(_sample(np.asarray(values)[..., None]), 0.0) for values in tasks]
    centre = float(np.mean([centre for centre, _, _ in parts]))
    if any(freedom < 1 for _, _, freedom in parts):
        return Interval(centre, *UNBOUNDED)
    variances = np.array([float(v[0]) for _, v, _ in parts]) / len(parts) ** 2
    total = variances.sum()
    if total == 0.0:
        return Interval(centre, centre, centre)
    shares = variances / total
    freedom = 1.0 / sum(share**2 / f for share, (_, _, f) in zip(shares, parts))
    half = float(_half(total, freedom))
    return Interval(centre, centre - half, centre + half)


def differences(first: Mapping[int, float], second: Mapping[int, float]) -> list[float]:
    """Return first minus second on the common replicates, in their order."""
    return [first[i] - second[i] for i in sorted(set(first) & set(second))]


def probability_of_improvement(first: Mapping[int, float], second: Mapping[int, float]) -> float:
    """Return the probability that the first agent's regret is below the second's; ties count half.

    Paired over the common replicates if there are any, else over all pairs (the
    Mann-Whitney statistic).

    Args:
        first: Regret by replicate.
        second: The same of the other agent.

    Raises:
        ParameterError: If one has no replicate.
    """
    if not first or not second:
        raise ParameterError("a probability of improvement needs a replicate of each agent")
    paired = differences(first, second)
    gaps = paired or np.subtract.outer(list(first.values()), list(second.values()))
    return float(np.mean(np.less(gaps, 0.0) + 0.5 * np.equal(gaps, 0.0)))


def normalised_score(regret: ArrayLike, constants: Normalisation) -> Floats:
    """Return the score on the scale where the random policy is 0 and the oracle is 1.

    The score is 1 - regret / (oracle - random). Its mean equals that of
    (reward - random) / (oracle - random), with less variance: it has no noise of the responses
    and none of replicates in which all agents earn much or little.

    Args:
        regret: Cumulative pseudo-regret at the horizon.
        constants: Their frozen mean cumulative rewards.
    """
    span = constants.oracle - constants.random
    return np.asarray(1.0 - np.asarray(regret, dtype=np.float64) / span)
