"""Estimates as sums of means and ratios of means over rounds, with their intervals."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

import numpy as np

from dpb_gym.errors import DataError
from dpb_gym.problems.base import Array


class Terms(NamedTuple):
    """The estimate ``mean(base) + sum over C of mean(top) / mean(bottom)`` of n rounds.

    Attributes:
        base: ``(n,)``.
        top: ``(n, C)``, numerators.
        bottom: ``(n, C)``, denominators.
    """

    base: Array
    top: Array
    bottom: Array

    @classmethod
    def mean(cls, base: Array) -> Terms:
        """A plain mean."""
        return cls(base, np.empty((len(base), 0)), np.empty((len(base), 0)))

    @classmethod
    def ratio(cls, top: Array, bottom: Array, base: Array | None = None) -> Terms:
        """A ratio of means, or a sum of several if there are columns."""
        n = len(top)
        return cls(np.zeros(n) if base is None else base, top.reshape(n, -1), bottom.reshape(n, -1))

    @property
    def value(self) -> float:
        """The estimate.

        Raises:
            DataError: If every weight is zero.
        """
        bottom = self.bottom.mean(axis=0)
        if (bottom == 0.0).any():
            raise DataError(
                "the target policy never chooses what was logged: every weight is zero, and "
                "the self-normalised estimate does not exist"
            )
        return float(self.base.mean() + (self.top.mean(axis=0) / bottom).sum())

    @property
    def std_error(self) -> float:
        """Its standard error over rounds; ratios are linearised."""
        bottom = self.bottom.mean(axis=0)
        ratios = self.top.mean(axis=0) / bottom
        influence = self.base + ((self.top - ratios * self.bottom) / bottom).sum(axis=1)
        return float(influence.std(ddof=1)) / math.sqrt(len(influence))


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
    """Estimates with both kinds of intervals, all bootstrapped on the same resamples of rounds.

    Args:
        terms: Per-round terms by estimator, all of one length n.
        level: Confidence level in (0, 1).
        resamples: Bootstrap resamples of n rounds; 0 for none.
        seed: Of the resampling.
    """
    from scipy.special import ndtri

    z = float(ndtri(0.5 + 0.5 * level))
    drawn = _bootstrap(list(terms.values()), resamples, seed)
    result = []
    for own, (name, one) in zip(drawn, terms.items()):
        value, error = one.value, one.std_error
        ends = (math.nan, math.nan)
        if resamples:
            low, high = np.nanquantile(own, (0.5 - 0.5 * level, 0.5 + 0.5 * level))
            ends = (float(low), float(high))
        result.append(Estimate(name, value, error, (value - z * error, value + z * error), ends))
    return tuple(result)


def _bootstrap(terms: list[Terms], resamples: int, seed: int) -> list[Array]:
    """Resampled estimates ``(resamples,)`` of each; NaN where a ratio does not exist."""
    n = len(terms[0].base)
    columns = np.ascontiguousarray(
        np.concatenate([np.column_stack([t.base, t.top, t.bottom]) for t in terms], axis=1).T
    )
    generator = np.random.default_rng(seed)
    means = np.empty((resamples, len(columns)))
    for row in means:
        counts = np.bincount(generator.integers(0, n, n), minlength=n).astype(np.float64)
        row[:] = columns @ counts / n
    result, at = [], 0
    for one in terms:
        width = one.top.shape[1]
        top, bottom = (means[:, at + 1 + i * width : at + 1 + (i + 1) * width] for i in (0, 1))
        ratios = np.where(bottom > 0.0, top / np.where(bottom > 0.0, bottom, 1.0), np.nan)
        result.append(means[:, at] + ratios.sum(axis=1))
        at += 1 + 2 * width
    return result
