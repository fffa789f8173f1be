"""A regression tree by recursive least-squares splits, for imputation."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]


def predict(
    features: Array, response: Array, queries: Array, max_depth: int = 4, min_leaf: int = 10
) -> Array:
    """Predictions of a CART regression tree (Breiman, Friedman, Olshen & Stone 1984), unpruned.

    Each node takes the split with the least sum of squared errors, thresholds half-way between
    neighbouring values, lower column and threshold on ties; a leaf predicts its mean response.

    Args:
        features: Finite, ``(n, p)``.
        response: Finite, ``(n,)``, n at least 1.
        queries: Features ``(m, p)`` to predict for.
        max_depth: Splits on a path at most.
        min_leaf: Observations in a leaf at least.

    Returns:
        Predictions ``(m,)``.
    """
    split = best_split(features, response, min_leaf) if max_depth > 0 else None
    if split is None:
        return np.full(len(queries), float(np.mean(response)))
    feature, threshold = split
    out = np.empty(len(queries))
    for side in (np.less_equal, np.greater):
        kept, asked = side(features[:, feature], threshold), side(queries[:, feature], threshold)
        below = (features[kept], response[kept], queries[asked])
        out[asked] = predict(*below, max_depth - 1, min_leaf)
    return out


def best_split(features: Array, response: Array, min_leaf: int) -> tuple[int, float] | None:
    """Column and threshold of the split of least squared error, or None if none lowers it."""
    n = len(response)
    centred = response - np.mean(response)
    total = float(np.sum(centred * centred))
    # The gain of a split is sum_L^2 / n_L + sum_R^2 / n_R, and sum_R = -sum_L.
    best, found = 1e-12 * total, None
    for feature in range(features.shape[1]):
        order = np.argsort(features[:, feature], kind="stable")
        values = features[order, feature]
        sums = np.cumsum(centred[order])[:-1]
        sizes = np.arange(1, n)
        allowed = (values[1:] > values[:-1]) & (sizes >= min_leaf) & (n - sizes >= min_leaf)
        if not allowed.any():
            continue
        gain = np.where(allowed, sums * sums * (1.0 / sizes + 1.0 / (n - sizes)), -1.0)
        at = int(gain.argmax())
        if gain[at] > best:
            best, found = float(gain[at]), (feature, float(0.5 * (values[at] + values[at + 1])))
    return found


def impute(values: Array, features: Array) -> Array:
    """Fills the NaN entries of `values` ``(n,)`` with a tree grown on the others.

    NaN entries of the predictors `features` ``(n, p)`` count as their column's median (0 for a
    column without values). Values without a finite entry come back as they are.
    """
    known = np.isfinite(values)
    if known.all() or not known.any():
        return values
    filled = np.array(features, dtype=np.float64)
    for column in filled.T:
        present = column[np.isfinite(column)]
        column[~np.isfinite(column)] = np.median(present) if len(present) else 0.0
    return np.where(known, values, predict(filled[known], values[known], filled))
