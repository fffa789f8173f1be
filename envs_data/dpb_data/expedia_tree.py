"""A regression tree by recursive least-squares splits, for imputation."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]


@dataclass(frozen=True)
class Node:
    """A node of the tree; a leaf has no children.

    Attributes:
        value: Mean response of the node's observations.
        feature: Column that it splits, -1 for a leaf.
        threshold: Observations with a value of at most this go left.
        left: Left child.
        right: Right child.
    """

    value: float
    feature: int = -1
    threshold: float = 0.0
    left: Node | None = None
    right: Node | None = None


def fit_tree(features: Array, response: Array, max_depth: int = 4, min_leaf: int = 10) -> Node:
    """Grows a CART regression tree (Breiman, Friedman, Olshen & Stone 1984), unpruned.

    Each node takes the split with the least sum of squared errors, thresholds half-way between
    neighbouring values, lower column and threshold on ties.

    Args:
        features: Finite, ``(n, p)``.
        response: Finite, ``(n,)``, n at least 1.
        max_depth: Splits on a path at most.
        min_leaf: Observations in a leaf at least.

    Returns:
        The root.
    """
    value = float(np.mean(response))
    split = best_split(features, response, min_leaf) if max_depth > 0 else None
    if split is None:
        return Node(value)
    feature, threshold = split
    left = features[:, feature] <= threshold
    return Node(
        value,
        feature,
        threshold,
        fit_tree(features[left], response[left], max_depth - 1, min_leaf),
        fit_tree(features[~left], response[~left], max_depth - 1, min_leaf),
    )


def best_split(features: Array, response: Array, min_leaf: int) -> tuple[int, float] | None:
    """The split of least squared error, or None if none lowers it.

    Returns:
        Column and threshold.
    """
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


def predict(tree: Node, features: Array) -> Array:
    """Predictions ``(n,)`` for features ``(n, p)``."""
    if tree.left is None or tree.right is None:
        return np.full(len(features), tree.value)
    out = np.empty(len(features))
    left = features[:, tree.feature] <= tree.threshold
    out[left] = predict(tree.left, features[left])
    out[~left] = predict(tree.right, features[~left])
    return out


def impute(values: Array, features: Array, max_depth: int = 4, min_leaf: int = 10) -> Array:
    """Fills the NaN entries of `values` with a tree grown on the others.

    Args:
        values: ``(n,)``; with no finite entry it comes back as it is.
        features: Predictors ``(n, p)``; their NaN entries count as the column's median (0 for a
            column without values).
        max_depth: See `fit_tree`.
        min_leaf: See `fit_tree`.
    """
    known = np.isfinite(values)
    if known.all() or not known.any():
        return values
    filled = np.array(features, dtype=np.float64)
    for column in filled.T:
        present = column[np.isfinite(column)]
        column[~np.isfinite(column)] = np.median(present) if len(present) else 0.0
    tree = fit_tree(filled[known], values[known], max_depth, min_leaf)
    return np.where(known, values, predict(tree, filled))
