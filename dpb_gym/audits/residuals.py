"""Test of all residuals of an audit: releases minus exact values, in units of the charged noise.

Under the claim they are independent standard normal numbers, over runs, releases, coordinates and
releasers. Laplace noise becomes normal by `normal_scores`. The bounds of all tests of an audit hold
together at `ERROR`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from dpb_gym.validation import FloatArray

ERROR = 1e-6
TESTS = 2
"""Tests of an audit: of the paired runs, and of the deployment's horizon."""
NONE = 1e-12
MOST_CORRELATED = 256
"""Residuals whose pairs are compared; of more, these are spread evenly."""


def stacked(parts: Sequence[FloatArray]) -> FloatArray:
    """Return residuals ``(runs, numbers)`` of several parts of the runs, padded with NaN."""
    out = np.full((sum(map(len, parts)), max(part.shape[1] for part in parts)), np.nan)
    start = 0
    for part in parts:
        out[start : start + len(part), : part.shape[1]] = part
        start += len(part)
    return out


def normal_scores(values: FloatArray) -> FloatArray:
    """Return standard normal numbers for Laplace numbers of mean 0 and variance 1.

    The order and the probability below each number are the same. Squares of Laplace numbers have
    heavier tails than Bernstein's inequality allows.
    """
    from scipy.special import ndtri_exp

    # by the logarithm of the smaller tail, so that no number is infinite
    return np.copysign(ndtri_exp(-math.sqrt(2.0) * np.abs(values) - math.log(2.0)), values)


def check_residuals(values: FloatArray, names: Sequence[str]) -> tuple[str, bool]:
    """Return what was measured, and whether it refutes the charged noise.

    Sums of squares, of numbers and of blocks, have the exact lower bound or that of Laurent &
    Massart (2000), whichever is larger, and Bernstein's upper bound. Products have Bernstein's
    bounds, the distribution has Massart's.

    Args:
        values: Residuals ``(runs, numbers)``, NaN where nothing was released.
        names: Name of each number.
    """
    from scipy.special import gammaincinv

    seen = ~np.isnan(values)
    z = np.where(seen, values, 0.0)
    n = seen.sum(axis=0)
    k = np.linspace(0, z.shape[1] - 1, min(z.shape[1], MOST_CORRELATED)).round().astype(int)
    width = z.shape[1]
    lengths = [2**j for j in range(width.bit_length())]
    blocks = [(i, length) for length in lengths for i in range(0, width, length)]
    # and the last numbers, for noise that changes late
    blocks += [(width - length, length) for length in lengths if length < width]
    log = math.log((2.0 * len(blocks) + 2.0 * len(k) ** 2 + 2.0) * TESTS / ERROR)

    # squares of each number, and of blocks of numbers that follow each other
    start, size = np.array(blocks).T
    ends = start, np.minimum(start + size, z.shape[1])
    sums = [np.append(0.0, np.cumsum(part)) for part in (n, (z * z).sum(axis=0))]
    count, total = (part[ends[1]] - part[ends[0]] for part in sums)
    low = 2.0 * np.sqrt(count * log)
    high = 2.0 * np.sqrt(count * log) + 3.0 * log
    # the quantile of chi-squared matters for few numbers; scipy.stats takes longer to import
    least = 2.0 * gammaincinv(0.5 * np.maximum(count, 1), math.exp(-log))
    low = np.minimum(low, count - least)
    wrong = (total < count - low) | (total > count + high) | (total < NONE) & (count > 1)
    wrong &= count > 0  # without numbers the bounds say nothing
    variance = total / np.maximum(count, 1)
    pairs = seen[:, k].astype(np.float64)
    products = z[:, k].T @ z[:, k]
    both = pairs.T @ pairs
    bound = np.sqrt(2.0 * both * log) + 1.5 * log
    np.fill_diagonal(products, 0.0)
    excess = np.abs(products) - bound
    said = f"{int(n.sum())} numbers of {z.shape[1]} coordinates of releases, "
    said += f"variance {sums[1][-1] / n.sum():.3f}"
    if wrong.any():
        first = int(np.argmax(np.where(wrong, size, 0)))
        where = names[start[first]] + (f" and {size[first] - 1} more" if size[first] > 1 else "")
        return f"{where}: variance {variance[first]:.3g} of the charged one; {said}", True
    if excess.size and excess.max() > 0:
        i, j = np.unravel_index(int(np.argmax(excess)), excess.shape)
        correlation = products[i, j] / max(1.0, both[i, j])
        return f"{names[k[i]]} and {names[k[j]]}: correlation {correlation:.3g}; {said}", True
    distance = _distance(values[seen])
    if distance > math.sqrt(0.5 * log / n.sum()):
        return f"another law than the charged one, at distance {distance:.3g}; {said}", True
    return said, False


def _distance(values: FloatArray) -> float:
    """Return the Kolmogorov distance of the numbers from the normal distribution."""
    from scipy.special import ndtr

    below = ndtr(np.sort(values))
    steps = np.arange(len(below) + 1) / len(below)
    return float(max((steps[1:] - below).max(), (below - steps[:-1]).max()))
