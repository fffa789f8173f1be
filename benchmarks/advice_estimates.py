"""Estimates of a table by an independent optimiser, beside those of `dpb_gym`."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize

Array = NDArray[Any]


def conditional_logit(x: Array, starts: Array, taken: Array) -> tuple[Array, Array]:
    """Return maximum-likelihood coefficients of a conditional logit and their covariance.

    Args:
        x: Attributes of the rows of all sets ``(n_rows, k)``.
        starts: Set s has the rows ``starts[s]:starts[s + 1]``.
        taken: Row of the choice of each set ``(n,)``.
    """
    size = x.std(axis=0)
    x = x / size
    sets = np.repeat(np.arange(len(taken)), np.diff(starts))

    def chances(b: Array) -> Array:
        utility = x @ b
        weight = np.exp(utility - np.maximum.reduceat(utility, starts[:-1])[sets])
        return np.asarray(weight / np.add.reduceat(weight, starts[:-1])[sets])

    def loss(b: Array) -> tuple[float, Array]:
        p = chances(b)
        return -float(np.log(p[taken]).sum()), x.T @ p - x[taken].sum(axis=0)

    start = np.zeros(x.shape[1])
    best = minimize(loss, start, jac=True, method="BFGS", options={"gtol": 1e-6}).x
    p = chances(best)
    means = np.add.reduceat(p[:, None] * x, starts[:-1])
    information = (p[:, None] * x).T @ x - means.T @ means
    return best / size, np.linalg.inv(information) / np.outer(size, size)


def price_effect(
    table: Any, outside: Any = None, revenue: str = "", log_scale: Any = ()
) -> tuple[float, float]:
    """Return the effect of one unit of the price on the utility, and its standard error.

    Args:
        table: A `dpb_data.PriceTable` or `dpb_data.ChoiceTable`.
        outside: Choices: the reference item.
        revenue: Choices: the price.
        log_scale: Prices: features of which log(1 + value) counts.
    """
    if hasattr(table, "bought"):
        n = len(table.price)
        logged = np.array([name in log_scale for name in table.feature_names], bool)
        features = table.features.copy()
        features[:, logged] = np.log1p(features[:, logged])
        own = np.column_stack([table.price, np.ones(n), features])
        x = np.zeros((2 * n, own.shape[1]))
        x[::2] = own  # a set of buying and of not buying, whose attributes are 0
        starts, taken = 2 * np.arange(n + 1), 2 * np.arange(n) + (table.bought == 0)
        best, covariance = conditional_logit(x, starts, taken)
        return float(best[0]), float(np.sqrt(covariance[0, 0]))
    usable = table.chosen >= 0
    names = table.item_ids.astype(str)
    sizes = np.diff(table.starts)
    reference = table.items == int(np.flatnonzero(names == str(outside))[0])
    group = np.repeat(np.arange(len(sizes)), sizes)
    usable &= (np.bincount(group, reference) > 0) & (sizes > 1)
    kept = usable[group]
    items = table.items[kept]
    constants = np.eye(len(names))[items][:, names != str(outside)]
    x = np.column_stack([table.features[kept], constants])
    starts = np.append(0, np.cumsum(sizes[usable]))
    best, covariance = conditional_logit(x, starts, starts[:-1] + table.chosen[usable])
    k = table.feature_names.index(revenue)
    return float(best[k]), float(np.sqrt(covariance[k, k]))
