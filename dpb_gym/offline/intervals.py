"""Confidence intervals of estimates: by the bootstrap and by the normal approximation."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from dpb_gym.offline.estimators import Terms
from dpb_gym.problems.base import Array


@dataclass(frozen=True)
class Estimate:
    """One estimate of a policy's value.

    Attributes:
        name: The estimator.
        value: The estimate.
        std_error: Standard error over rounds (linearised for ratios). For ``"dm"`` and the
            model part of ``"dr"`` it takes the model as given.
        normal: Ends of the normal interval, value -+ z std_error.
        percentile: Ends of the percentile-bootstrap interval; NaN without resamples.
    """

    name: str
    value: float
    std_error: float
    normal: tuple[float, float]
    percentile: tuple[float, float]

    def to_dict(self) -> dict[str, Any]:
        """The estimate as plain JSON values."""
        return asdict(self)


def with_intervals(
    terms: Mapping[str, Terms], level: float, resamples: int, seed: int
) -> tuple[Estimate, ...]:
    """Estimates with both kinds of intervals.

    All estimators are bootstrapped on the same resamples of rounds.

    Args:
        terms: Per-round terms by estimator, all of one length n.
        level: Confidence level in (0, 1).
        resamples: Bootstrap resamples of n rounds; 0 for none.
        seed: Of the resampling.
    """
    from scipy.special import ndtri

    z = float(ndtri(0.5 + 0.5 * level))
    drawn = _bootstrap(list(terms.values()), resamples, seed)
    tails = (0.5 - 0.5 * level, 0.5 + 0.5 * level)
    result = []
    for i, (name, own) in enumerate(terms.items()):
        value = own.value
        error = std_error(own)
        ends = (math.nan, math.nan)
        if resamples:
            low, high = np.nanquantile(drawn[:, i], tails)
            ends = (float(low), float(high))
        normal = (value - z * error, value + z * error)
        result.append(Estimate(name, value, error, normal, ends))
    return tuple(result)


def std_error(terms: Terms) -> float:
    """Standard error of ``mean(numerator) / mean(denominator)``, linearised."""
    residual = terms.numerator - terms.value * terms.denominator
    n = len(residual)
    return float(residual.std(ddof=1)) / (math.sqrt(n) * float(terms.denominator.mean()))


def _bootstrap(terms: list[Terms], resamples: int, seed: int) -> Array:
    """Resampled estimates ``(resamples, len(terms))``; NaN where a ratio does not exist."""
    n, k = len(terms[0].numerator), len(terms)
    columns = np.empty((2 * k, n))
    for i, (numerator, denominator) in enumerate(terms):
        columns[i], columns[k + i] = numerator, denominator
    generator = np.random.default_rng(seed)
    result = np.empty((resamples, k))
    for row in result:
        counts = np.bincount(generator.integers(0, n, n), minlength=n).astype(np.float64)
        sums = columns @ counts
        top, bottom = sums[:k], sums[k:]
        row[:] = np.where(bottom > 0.0, top / np.where(bottom > 0.0, bottom, 1.0), np.nan)
    return result
