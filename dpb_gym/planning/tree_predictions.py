"""Boosted trees as a flexible model of responses, to which the fitted model is compared."""

from __future__ import annotations

import numpy as np

from dpb_gym import kernels
from dpb_gym.problems.base import Array


def boosted_chances(rows: Array, hit: Array, others: Array) -> Array:
    """Return the probabilities of a response of other rows ``(m,)``, by boosted trees.

    See `dpb_gym.kernels.boosted_trees`. Where all responses are the same, their share is returned.

    Args:
        rows: Features of the rows that the trees are fitted to ``(n, k)``.
        hit: Their responses ``(n,)``.
        others: Features of the other rows ``(m, k)``.
    """
    share = float(hit.mean())
    if share in (0.0, 1.0):
        return np.full(len(others), share)
    fitted = np.empty(rows.T.shape, np.uint8)
    asked = np.empty(others.T.shape, np.uint8)
    bins = np.empty(len(fitted), np.int64)
    for j, column in enumerate(rows.T.astype(np.float64)):
        limits = _limits(column)
        fitted[j] = np.searchsorted(limits, column)
        asked[j] = np.searchsorted(limits, others[:, j].astype(np.float64))
        bins[j] = len(limits) + 1
    scores = np.full(len(others), np.log(share / (1.0 - share)))
    kernels.boosted_trees.boosted_scores(fitted, hit, asked, bins, scores)
    chances: Array = 1.0 / (1.0 + np.exp(-scores))
    return chances


def _limits(column: Array) -> Array:
    """Return the limits between the bins of a feature, increasing."""
    most = kernels.boosted_trees.BINS
    values = np.unique(column)
    if len(values) <= most:
        return np.asarray((values[1:] + values[:-1]) / 2.0)
    shares = np.linspace(0.0, 100.0, most + 1)[1:-1]
    return np.unique(np.percentile(column, shares, method="averaged_inverted_cdf"))
