"""Multinomial-logit choice among items with chosen prices: outcomes and best offers.

Arrays lead with the replicate axis. An offer is a row of N prices, negative for items that are left
out. Item i at price p has the utility v_i - p s_i with the value v_i = <x_i, a> and the price
sensitivity s_i = <x_i, b>, theta = (a, b); buying nothing has the utility 0.
"""

from __future__ import annotations

import numpy as np

from dpb_gym.kernels._jit import jit
from dpb_gym.kernels.elementary import exp
from dpb_gym.kernels.mnl import top_indices

LARGEST_UTILITY = 600.0
"""Utilities are cut here: a larger one is bought with certainty in floating point."""
MOST_STEPS = 100


@jit
def _value_and_sensitivity(x, theta):
    """Return v = <x, a> and s = <x, b> for theta = (a, b)."""
    m = x.shape[0]
    v = 0.0
    s = 0.0
    for j in range(m):
        v += x[j] * theta[j]
        s += x[j] * theta[m + j]
    return v, s


@jit
def _weight(v, s, price):
    return exp(min(v - price * s, LARGEST_UTILITY))


@jit
def _revenue(weights, prices):
    """Return the expected revenue of an offer, summed in the order of the items."""
    numerator = 0.0
    denominator = 1.0
    for i in range(prices.shape[0]):
        if prices[i] >= 0.0:
            numerator += prices[i] * weights[i]
            denominator += weights[i]
    return numerator / denominator


@jit
def outcome(features, theta, prices, capacity, uniform, choice, reward, expected):
    """Write the bought item (-1 for none), its price and the expected revenue of every offer.

    Items are in ascending order on [0, 1), buying nothing is last.

    Args:
        features: ``(B, N, m)``.
        theta: ``(B, 2 m)``.
        prices: Offers ``(B, N)``: -1, or a price in [0, 1].
        capacity: Largest number of items of an offer.
        uniform: ``(B,)``.
        choice: Output ``(B,)``.
        reward: Output ``(B,)``.
        expected: Output ``(B,)``.

    Returns:
        1 + the number of the first replicate whose offer is impossible, or 0.
    """
    B, N = prices.shape
    weights = np.empty(N)
    for b in range(B):
        total = 1.0
        count = 0
        for i in range(N):
            p = prices[b, i]
            weights[i] = 0.0
            if p == -1.0:
                continue
            if not 0.0 <= p <= 1.0:
                return b + 1
            v, s = _value_and_sensitivity(features[b, i], theta[b])
            weights[i] = _weight(v, s, p)
            total += weights[i]
            count += 1
        if count > capacity:
            return b + 1
        choice[b], reward[b] = -1, 0.0
        reached = 0.0
        for i in range(N):
            reached += weights[i]
            if prices[b, i] >= 0.0 and uniform[b] * total < reached:
                choice[b], reward[b] = i, prices[b, i]
                break
        expected[b] = _revenue(weights, prices[b])
    return 0


@jit
def best_offers(features, theta, available, capacity, low, high, prices, values):
    """Write offers of the largest expected revenue, and that revenue.

    Dinkelbach's iteration (1967): for a value z, the best offer has the at most K items of largest
    positive max_p (p - z) exp(v_i - p s_i), whose price is z + 1 / s_i within the limits (the
    upper one where s_i <= 0). z <- the revenue of that offer grows until it is optimal.

    Args:
        features: ``(B, N, m)``.
        theta: ``(B, 2 m)``.
        available: Mask of the items that can be offered ``(B, N)``.
        capacity: K.
        low: Lowest price, >= 0.
        high: Highest price, <= 1.
        prices: Output ``(B, N)``.
        values: Output ``(B,)``.
    """
    B, N = prices.shape
    v = np.empty(N)
    s = np.empty(N)
    p = np.empty(N)
    weights = np.empty(N)
    gains = np.empty(N)
    picked = np.empty(capacity, np.int64)
    keys = np.empty(N, np.int64)
    trial = np.empty(N)
    for b in range(B):
        for i in range(N):
            v[i], s[i] = _value_and_sensitivity(features[b, i], theta[b])
        z = -1.0
        revenue = 0.0
        prices[b] = -1.0
        for _ in range(MOST_STEPS):
            if revenue <= z:
                break
            z = revenue
            for i in range(N):
                p[i] = high
                if s[i] > 0.0:
                    p[i] = min(max(z + 1.0 / s[i], low), high)
                weights[i] = _weight(v[i], s[i], p[i])
                gains[i] = (p[i] - z) * weights[i] if available[b, i] else -np.inf
            count = top_indices(gains, capacity, 0.0, picked, keys)
            trial[:] = -1.0
            for k in range(count):
                trial[picked[k]] = p[picked[k]]
            revenue = _revenue(weights, trial)
            if revenue > z or count == 0:
                prices[b] = trial
        values[b] = z if revenue <= z else revenue
