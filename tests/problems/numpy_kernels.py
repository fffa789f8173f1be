"""Plain NumPy versions of the problem kernels, written for readability.

The tests compare every kernel with its twin.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]


def normalise(rows: Array, mode: str) -> Array:
    """Return what `contexts.normalise` computes, for modes raw, clip, scale and sphere."""
    x = rows.astype(np.float64)
    norms = np.linalg.norm(x, axis=1, keepdims=True)
    if mode == "clip":
        x = x / np.maximum(1.0, norms)
    elif mode == "scale":
        x = x / np.sqrt(rows.shape[1])
    elif mode == "sphere":
        x = np.divide(x, norms, out=x.copy(), where=norms > 0)
    return x.astype(np.float32)


def mnl_probabilities(utility: Array) -> Array:
    """Return choice probabilities of the offered items, with an outside option of utility 0."""
    top = max(0.0, float(utility.max(initial=0.0)))
    weight = np.exp(utility - top)
    result: Array = weight / (np.exp(-top) + weight.sum())
    return result


def mnl_revenue(utility: Array, revenues: Array, items: Array) -> float:
    """Expected revenue of a set of items."""
    items = np.unique(items[items >= 0])
    return float(mnl_probabilities(utility[items]) @ revenues[items].astype(np.float64))


def mnl_best_value(utility: Array, revenues: Array, capacity: int) -> float:
    """Value of the best assortment by Dinkelbach's iteration."""
    weight = np.exp(utility - utility.max())
    value = 0.0
    while True:
        scores = weight * (revenues - value)
        items = np.argsort(-scores, kind="stable")[:capacity]
        items = items[scores[items] > 0]
        new = mnl_revenue(utility, revenues, items)
        if not new > value:
            return value
        value = new


def mnl_choice(utility: Array, slate: Array, uniform: float) -> int:
    """Position in the slate of the item bought at `uniform`, -1 for none."""
    items, first = np.unique(slate, return_index=True)
    first = first[items >= 0]
    items = items[items >= 0]
    bought = np.searchsorted(np.cumsum(mnl_probabilities(utility[items])), uniform, side="right")
    return int(first[bought]) if bought < len(items) else -1


def sigmoid(z: Array) -> Array:
    """1 / (1 + exp(-z)) without overflow."""
    return np.where(z >= 0, 1.0, np.exp(np.minimum(z, 0))) / (1.0 + np.exp(-np.abs(z)))


def pricing_parts(features: Array, theta: Array) -> tuple[Array, Array]:
    """(a, b) with <phi(x, p), theta> = a - b p, per replicate."""
    root = np.sqrt(theta.shape[1])
    return (features * theta[:, :-1]).sum(axis=1) / root, theta[:, -1] / root


def pricing_revenue(features: Array, theta: Array, price: Array, demand: str, zeta: float) -> Array:
    """Expected revenue per replicate."""
    a, b = pricing_parts(features, theta)
    z = a - b * price
    result: Array = price * (sigmoid(zeta * z) if demand == "logistic" else z)
    return result


def best_price(features: Array, theta: Array, demand: str, zeta: float) -> Array:
    """Closed-form best price per replicate, with SciPy's Lambert W."""
    from scipy.special import lambertw

    a, b = pricing_parts(features, theta)
    with np.errstate(divide="ignore", invalid="ignore"):
        if demand == "logistic":
            inside = (1.0 + lambertw(np.exp(zeta * a - 1.0), 0).real) / (zeta * b)
            edge = np.ones_like(a)
        else:
            inside = a / (2.0 * b)
            edge = np.where(a - b > 0, 1.0, 0.0)
    return np.where(b > 0, np.clip(inside, 0.0, 1.0), edge)


def mean_reward(score: Array, reward: str, noise_std: float) -> Array:
    """Expected reward of an arm of score <x, theta>."""
    if reward == "logistic":
        return sigmoid(score)
    mean: Array = 0.5 + 0.25 * score
    if reward == "linear":
        return np.clip(mean, 0.0, 1.0)
    from scipy.stats import norm

    low, high = -mean / noise_std, (1.0 - mean) / noise_std
    inner = mean * (norm.cdf(high) - norm.cdf(low))
    result: Array = inner + noise_std * (norm.pdf(low) - norm.pdf(high)) + norm.sf(high)
    return result
