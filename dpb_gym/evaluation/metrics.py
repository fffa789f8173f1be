"""Aggregates over replicates: means, interquartile means, differences, intervals.

All intervals are percentile-bootstrap intervals with a fixed seed, so the same results
give the same table. Replicates share their customers across agents; differences and
probabilities of improvement are therefore paired.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dpb_gym import validation
from dpb_gym.errors import ParameterError
from dpb_gym.report.model import Interval

RESAMPLES = 2000
CONFIDENCE = 0.95
SEED = 20_240_229
MIDDLE = 0.25
"""What an interquartile mean cuts from each end."""
MIN_PAIRS = 6
"""Below six pairs no sign test can reject at 5%, so nothing is said of a lead."""

Floats: TypeAlias = NDArray[np.float64]


def trimmed_mean(values: ArrayLike, cut: float = 0.0) -> Floats:
    """Mean over the replicates (first axis) without a share `cut` of them at each end.

    Args:
        values: At least one replicate along the first axis.
        cut: In [0, 1/2); `MIDDLE` gives the interquartile mean.
    """
    sample = np.asarray(values, dtype=np.float64)
    return np.asarray(_kept(np.sort(sample, axis=0) if cut else sample, cut).mean(axis=0))


def _kept(ranked: NDArray[Any], cut: float) -> NDArray[Any]:
    out = int(cut * len(ranked))
    return ranked[out : len(ranked) - out]


@lru_cache(maxsize=16)
def _counts(n: int, cut: float, resamples: int, seed: tuple[int, ...]) -> Floats:
    """How often each ranked value stands in the kept part of each resample ``(resamples, n)``.

    Resampling values or their ranks is the same, so a trimmed mean of every resample is one
    product with this matrix.
    """
    drawn = np.sort(np.random.default_rng([*seed, n]).integers(0, n, (resamples, n)), axis=1)
    kept = _kept(drawn.T, cut).T + n * np.arange(resamples)[:, None]
    return np.bincount(kept.ravel(), minlength=resamples * n).reshape(resamples, n).astype(float)


def _resampled(
    sample: Floats, cut: float, resamples: int, seed: tuple[int, ...]
) -> tuple[Floats, Floats]:
    """The trimmed mean of a sample ``(n, C)`` and of its resamples ``(resamples, C)``."""
    n = len(sample)
    # Columns keep whole replicates together; with a cut they are ranked one by one.
    ranked = np.sort(sample, axis=0) if cut else sample
    means = _counts(n, cut, resamples, seed) @ ranked / len(_kept(ranked, cut))
    return trimmed_mean(sample, cut), means


def limits(
    values: ArrayLike,
    cut: float = 0.0,
    *,
    confidence: float = CONFIDENCE,
    resamples: int = RESAMPLES,
    seed: int = SEED,
) -> tuple[Floats, Floats, Floats]:
    """Means of columns with the ends of their intervals, resampled together.

    Args:
        values: ``(n, C)``, replicates by columns, e.g. checkpoints of a curve. With n = 1 the
            intervals have no width.
        cut: See `trimmed_mean`.
        confidence: Coverage in (0, 1).
        resamples: Number of resamples.
        seed: Seed of the resampling.

    Returns:
        Means, lower and upper ends, each ``(C,)``.

    Raises:
        ParameterError: If there is no replicate or a value is not finite.
    """
    sample = np.asarray(values, dtype=np.float64)
    if sample.ndim != 2 or len(sample) == 0 or not np.isfinite(sample).all():
        raise ParameterError("values must be finite numbers, replicates by columns, not empty")
    centre, low, high = _ends(*_resampled(sample, cut, resamples, (seed,)), confidence)
    return centre, np.maximum(low, sample.min(axis=0)), np.minimum(high, sample.max(axis=0))


def _ends(centre: Floats, means: Floats, confidence: float) -> tuple[Floats, Floats, Floats]:
    confidence = validation.real("confidence", confidence, 0.0, 1.0, open_low=True, open_high=True)
    tail = 50.0 * (1.0 - confidence)
    low, high = np.percentile(means, [tail, 100.0 - tail], axis=0)
    return centre, np.minimum(low, centre), np.maximum(high, centre)


def bootstrap(values: ArrayLike, cut: float = 0.0, **options: float) -> Interval:
    """A (trimmed) mean of the replicates with its percentile-bootstrap interval.

    Args:
        values: One number per replicate ``(n,)``, n >= 1.
        cut: See `trimmed_mean`.
        **options: See `limits`.

    Raises:
        ParameterError: If there is no replicate or a value is not finite.
    """
    (band,) = bands(_sample(values)[:, None], cut, **options)
    return band


def bands(values: ArrayLike, cut: float = 0.0, **options: float) -> list[Interval]:
    """Intervals of several columns; see `limits`."""
    found = limits(values, cut, **options)  # type: ignore[arg-type]
    return [Interval(*column) for column in zip(*(ends.tolist() for ends in found))]


def stratified_bootstrap(
    strata: Sequence[ArrayLike],
    *,
    confidence: float = CONFIDENCE,
    resamples: int = RESAMPLES,
    seed: int = SEED,
) -> Interval:
    """A mean of several tasks' mean scores, each task weighing the same.

    Replicates are resampled within each task.

    Args:
        strata: One array of scores per task, of any lengths.
        confidence: See `limits`, with the other arguments.

    Raises:
        ParameterError: If there is no task, or one has no finite score.
    """
    if len(strata) == 0:
        raise ParameterError("a stratified bootstrap needs at least one task")
    parts = [
        _resampled(_sample(values)[:, None], 0.0, resamples, (seed, place))
        for place, values in enumerate(strata)
    ]
    centre = np.mean([centre for centre, _ in parts], axis=0)
    found = _ends(centre, np.mean([means for _, means in parts], axis=0), confidence)
    return Interval(*(float(end[0]) for end in found))


def differences(first: Mapping[int, float], second: Mapping[int, float]) -> list[float]:
    """First minus second on the replicates that both have, in their order."""
    return [first[i] - second[i] for i in sorted(set(first) & set(second))]


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
