"""Expected rewards of actions under a model of a log, for summaries and advice.

No run depends on them: they use the machine's exponential function and BLAS.
"""

from __future__ import annotations

import numpy as np

from dpb_gym.problems.base import Array
from dpb_gym.problems.log_likelihood import log_chances

_BLOCK = 512  # customers whose chances are computed together


def sigmoid(utility: Array) -> Array:
    """Return 1 / (1 + exp(-u)), element-wise."""
    # NumPy's exponential is vectorised; that of 710 is infinite, and its inverse 0
    with np.errstate(over="ignore"):
        weights = np.exp(-np.asarray(utility, np.float64))
    weights += 1.0
    probabilities: Array = np.divide(1.0, weights, out=weights)
    return probabilities


def price_effects(rows: Array, coefficients: Array, highest: float) -> Array:
    """Return the effect of one unit of the price on the utility, and the mean elasticity ``(2,)``.

    Args:
        rows: Customers' features and minus the price ``(n, d)``.
        coefficients: ``(d,)``.
        highest: Units of a price of 1.
    """
    own = _elasticities(rows, coefficients)
    return np.array([-coefficients[-1] / highest, np.mean(own)])


def _elasticities(rows: Array, coefficients: Array) -> Array:
    """Return the price elasticity of each customer ``(n,)``; see `price_effects`."""
    rest = 1.0 - sigmoid(rows @ coefficients)
    return np.asarray(coefficients[-1] * rows[:, -1] * rest)


def elasticity_sampling(rows: Array, coefficients: Array, people: Array | None) -> float:
    """Return the standard error of the mean elasticity that other customers and prices would cause.

    Args:
        rows: Customers' features and minus the price ``(n, d)``.
        coefficients: ``(d,)``.
        people: Person of each customer ``(n,)``, or None.
    """
    return mean_of_customers(_elasticities(rows, coefficients), people)[1]


def mean_of_customers(values: Array, people: Array | None) -> tuple[float, float]:
    """Return a mean over customers and its standard error.

    Args:
        values: ``(n,)``.
        people: Person of each customer ``(n,)``, whose values may depend on each other; or None.
    """
    rest = values - values.mean()
    sums = rest if people is None else np.bincount(people, rest)
    sums = sums if people is None else sums[np.bincount(people) > 0]
    count = max(2, len(sums))
    error = np.sqrt(np.sum(sums**2) * count / (count - 1)) / len(values)
    return float(values.mean()), float(error)


def price_values(rows: Array, price: Array, coefficients: Array, shares: Array) -> Array:
    """Return the expected revenue per customer of prices, under each of K models ``(K,)``.

    Args:
        rows: ``(n, d)``.
        price: ``(n,)``.
        coefficients: ``(K, d)``.
        shares: Shares of the customers under each model ``(K, n)``.
    """
    revenues = np.zeros(len(coefficients))
    for first in range(0, len(rows), _BLOCK):
        block = slice(first, first + _BLOCK)
        chance = sigmoid(coefficients @ rows[block].T)
        chance *= shares[:, block]
        revenues += chance @ price[block]
    return revenues


def slate_values(
    contexts: Array, theta: Array, revenues: Array, slates: Array, weights: Array
) -> Array:
    """Return the expected revenue per customer of each slate for all ``(A,)``.

    Args:
        contexts: ``(n, N, d)``.
        theta: ``(d,)``.
        revenues: ``(n, N)``.
        slates: ``(A, K)``, -1 for an empty place.
        weights: Shares of the customers ``(n,)``.
    """
    utility = contexts @ theta
    top = np.maximum(utility.max(axis=1, keepdims=True), 0.0)
    weight = np.exp(utility - top)
    outside = np.exp(-top[:, 0])
    values = []
    for slate in slates:
        listed = slate[slate >= 0]
        earned = (weight[:, listed] * revenues[:, listed]).sum(axis=1)
        values.append((earned / (outside + weight[:, listed].sum(axis=1))) @ weights)
    return np.array(values)


def logged_slate_value(
    rows: Array, starts: Array, theta: Array, revenues: Array, weights: Array
) -> float:
    """Return the expected revenue per set of the logged slates; `revenues` is per row."""
    inside, _ = log_chances(rows, starts, theta)
    return float(np.add.reduceat(np.exp(inside) * revenues, starts[:-1]) @ weights)


def offer_elasticity(rows: Array, starts: Array, theta: Array) -> float:
    """Return the mean own-price elasticity of items with chosen prices.

    Args:
        rows: ``[x, -p x]`` of every row, float32 ``(n_rows, d)``.
        starts: Set s has the rows ``starts[s]:starts[s + 1]``.
        theta: ``(d,)``.
    """
    half = rows.shape[1] // 2
    chance = np.exp(log_chances(rows, starts, theta)[0])
    # p times the slope -<x, b> of the utility in the price
    along = rows[:, half:].astype(np.float64) @ theta[half:]
    return float(np.mean(along * (1.0 - chance)))


def own_elasticities(
    rows: Array, starts: Array, items: Array, paid: Array, theta: Array, slope: float, count: int
) -> Array:
    """Return the mean own-price elasticity of each of `count` items.

    Args:
        rows: ``(n_rows, d)``.
        starts: Set s has the rows ``starts[s]:starts[s + 1]``.
        items: Item of each row.
        paid: Price of each row.
        theta: ``(d,)``.
        slope: Effect of one unit of the price on the utility.
        count: Number of items.
    """
    own = slope * paid * (1.0 - np.exp(log_chances(rows, starts, theta)[0]))
    sums = np.bincount(items, own, minlength=count)
    means: Array = sums / np.maximum(np.bincount(items, minlength=count), 1)
    return means


def item_values(customers: Array, theta: Array, items: Array, weights: Array) -> Array:
    """Return the expected response per customer of each item for all ``(A,)``.

    Args:
        customers: ``(n, w)``.
        theta: Coefficients of the items ``(m, w)``.
        items: ``(A,)``.
        weights: Shares of the customers ``(n,)``.
    """
    return np.asarray(weights @ sigmoid(customers @ theta[items].T))


def shown_value(customers: Array, theta: Array, shown: Array, weights: Array) -> float:
    """Return the expected response per customer to the items that the log showed ``(n,)``."""
    return float(sigmoid((customers * theta[shown]).sum(axis=1)) @ weights)


def customer_weights(
    people: Array, count: int, customers: int, groups: Array | None = None
) -> Array:
    """Return shares of customers of a Bayesian bootstrap ``(count, n)``.

    They contain the uncertainty of the customers' distribution. A person's rows have one weight.

    Args:
        people: Person of each customer ``(n,)``.
        count: Number of draws.
        customers: Customers of the log, of which these are a part.
        groups: Group of each customer ``(n,)``: shares of groups are returned instead.
    """
    n = len(people)
    rng = np.random.default_rng(2)
    # fewer customers than the log has must not widen the distribution
    size = np.sqrt(n / customers)
    drawn = int(people.max()) + 1
    alone = drawn == n and bool((people == np.arange(n)).all())
    weights = np.empty((count, n if groups is None else int(groups.max()) + 1))
    exponential = np.empty(drawn)
    for row in weights:
        rng.standard_exponential(out=exponential)
        shares = exponential if alone else exponential[people]
        # max(1 + (shares - 1) size, 0) in place, as there are many customers
        shares -= 1.0
        shares *= size
        shares += 1.0
        np.maximum(shares, 0.0, out=shares)
        total = shares.sum()
        np.divide(shares if groups is None else np.bincount(groups, shares, len(row)), total, row)
    return weights
