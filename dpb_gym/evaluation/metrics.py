"""Aggregates over replicates: means, interquartile means, differences, intervals.

All intervals are percentile-bootstrap intervals with a fixed seed, so the same results
give the same table. Replicates share their customers across agents; differences and
probabilities of improvement are therefore paired.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dpb_gym import validation
from dpb_gym.errors import ParameterError
from dpb_gym.report.model import Interval

RESAMPLES = 2000
CONFIDENCE = 0.95
SEED = 20_240_229

Floats: TypeAlias = NDArray[np.float64]
Statistic: TypeAlias = Callable[..., Floats]


def iqm(values: ArrayLike, axis: int = -1) -> Floats:
    """Interquartile mean: the mean of the middle half (25% cut from each end).

    Args:
        values: At least one replicate along `axis`.
        axis: Axis of the replicates.
    """
    from scipy.stats import trim_mean

    return np.asarray(trim_mean(np.asarray(values, dtype=np.float64), 0.25, axis=axis))


def mean(values: ArrayLike, axis: int = -1) -> Floats:
    """Mean over the replicates along `axis`."""
    return np.asarray(np.mean(np.asarray(values, dtype=np.float64), axis=axis))


def bootstrap(
    values: ArrayLike,
    statistic: Statistic = mean,
    *,
    confidence: float = CONFIDENCE,
    resamples: int = RESAMPLES,
    seed: int = SEED,
) -> Interval:
    """A statistic of the replicates with its percentile-bootstrap interval.

    Args:
        values: One number per replicate ``(n,)``, n >= 1. With n = 1 the interval has no
            width.
        statistic: `mean`, `iqm`, or any function of (values, axis).
        confidence: Coverage in (0, 1).
        resamples: Number of resamples.
        seed: Seed of the resampling.

    Raises:
        ParameterError: If there is no replicate or a value is not finite.
    """
    sample = _sample(values)
    return bands(sample[:, None], statistic, confidence, resamples, seed)[0]


def bands(
    values: ArrayLike,
    statistic: Statistic = mean,
    confidence: float = CONFIDENCE,
    resamples: int = RESAMPLES,
    seed: int = SEED,
) -> list[Interval]:
    """Intervals of several columns that are resampled together (whole replicates).

    Args:
        values: ``(n, C)``, replicates by columns, e.g. checkpoints of a curve.
        statistic: See `bootstrap`, with the other arguments.
    """
    sample = np.asarray(values, dtype=np.float64)
    if sample.ndim != 2 or len(sample) == 0 or not np.isfinite(sample).all():
        raise ParameterError("values must be finite numbers, replicates by columns, not empty")
    confidence = validation.real("confidence", confidence, 0.0, 1.0, open_low=True, open_high=True)
    centre = statistic(sample, axis=0)
    if len(sample) == 1:
        return [Interval(float(c), float(c), float(c)) for c in centre]
    from scipy import stats

    found = stats.bootstrap(
        (sample,),
        statistic,
        n_resamples=resamples,
        confidence_level=confidence,
        method="percentile",
        axis=0,
        vectorized=True,
        batch=250,
        rng=np.random.default_rng(seed),
    ).confidence_interval
    return [
        Interval(float(c), float(min(lo, c)), float(max(hi, c)))
        for c, lo, hi in zip(centre, np.atleast_1d(found.low), np.atleast_1d(found.high))
    ]


def stratified_bootstrap(
    strata: Sequence[ArrayLike],
    statistic: Statistic = mean,
    *,
    confidence: float = CONFIDENCE,
    resamples: int = RESAMPLES,
    seed: int = SEED,
) -> Interval:
    """A statistic of several tasks' scores, averaged over the tasks, each weighing the same.

    Replicates are resampled within each task.

    Args:
        strata: One array of scores per task, of any lengths.
        statistic: See `bootstrap`, with the other arguments.

    Raises:
        ParameterError: If there is no task, or one has no finite score.
    """
    if len(strata) == 0:
        raise ParameterError("a stratified bootstrap needs at least one task")
    samples = [_sample(values) for values in strata]
    centre = float(np.mean([statistic(sample, axis=-1) for sample in samples]))
    rng = np.random.default_rng(seed)
    drawn = [
        statistic(sample[rng.integers(0, len(sample), (resamples, len(sample)))], axis=-1)
        for sample in samples
    ]
    values = np.mean(drawn, axis=0)
    tail = 100.0 * (1.0 - confidence) / 2.0
    low, high = np.percentile(values, [tail, 100.0 - tail])
    return Interval(centre, float(min(low, centre)), float(max(high, centre)))


def paired_difference(
    first: Mapping[int, float],
    second: Mapping[int, float],
    statistic: Statistic = mean,
    **options: float,
) -> Interval:
    """The difference first - second over the replicates that both have.

    Args:
        first: One number per replicate, by replicate.
        second: The same of the other agent.
        statistic: See `bootstrap`, with `options`.

    Raises:
        ParameterError: If they share no replicate.
    """
    shared = sorted(set(first) & set(second))
    if not shared:
        raise ParameterError("the two agents share no replicate, so nothing can be paired")
    return bootstrap([first[i] - second[i] for i in shared], statistic, **options)  # type: ignore[arg-type]


def probability_of_improvement(first: Mapping[int, float], second: Mapping[int, float]) -> float:
    """Probability that the first agent's regret is below the second's; ties count half.

    Over the shared replicates if there are any (paired), else over all pairs (the
    Mann-Whitney statistic).

    Args:
        first: Regret by replicate.
        second: The same of the other agent.

    Raises:
        ParameterError: If one has no replicate.
    """
    if not first or not second:
        raise ParameterError("a probability of improvement needs a replicate of each agent")
    shared = sorted(set(first) & set(second))
    if shared:
        a = np.array([first[i] for i in shared])
        b = np.array([second[i] for i in shared])
    else:
        a, b = np.meshgrid(list(first.values()), list(second.values()))
    return float(np.mean((a < b) + 0.5 * (a == b)))


def normalised_score(regret: ArrayLike, constants: Mapping[str, float]) -> Floats:
    """Scores on the scale where the random policy is 0 and the oracle is 1.

    The score is 1 - regret / (oracle - random). Its mean estimates the same number as that of
    (reward - random) / (oracle - random), without the noise of the responses and without that
    of replicates in which everybody earns much or little.

    Args:
        regret: Cumulative pseudo-regret at the horizon.
        constants: ``random`` and ``oracle``: their frozen mean cumulative rewards.

    Raises:
        ParameterError: If the constants do not differ.
    """
    low, high = constants["random"], constants["oracle"]
    if not np.isfinite([low, high]).all() or high <= low:
        raise ParameterError(f"oracle must exceed random, got {high} and {low}")
    return np.asarray(1.0 - np.asarray(regret, dtype=np.float64) / (high - low))


def _sample(values: ArrayLike) -> Floats:
    sample = np.asarray(values, dtype=np.float64)
    if sample.ndim != 1 or len(sample) == 0 or not np.isfinite(sample).all():
        raise ParameterError("values must be finite numbers, one per replicate, at least one")
    return sample
