"""Best prices under an exploration bonus: a certified global search on [0, 1].

The objective g(p) = p f(a - slope p) + gamma sqrt(q(p)) is the expected revenue of a price plus
the width ||phi(x, p)||_{V^-1} of its estimate, where q is a quadratic in p. It may have several
local maxima. The search is a branch and bound with an upper bound on every discarded interval
[l, r]:

* the width is a norm of an affine function of p, hence convex, hence below its chord;
* the revenue h has h'' >= -C on the interval, hence is below its chord plus
  C (p - l)(r - p) / 2.
"""

from __future__ import annotations

import numpy as np

from dpb_gym.kernels._jit import inline, jit
from dpb_gym.kernels.demand_models import LOGISTIC, expected_revenue, intercept_slope
from dpb_gym.kernels.elementary import sigmoid

START_INTERVALS = 8
STACK = START_INTERVALS + 64
NARROWEST = 1e-13
# Reached only by parameters that overflow; the search then returns its best price so far.
MAX_INTERVALS = 200_000
GRID = 2001
"""Prices of a grid."""
ZOOMS = 3
"""How often the best price's neighbourhood gets a finer grid."""


@inline
def _demand(a, slope, p, model, zeta):
    z = a - slope * p
    return sigmoid(zeta * z) if model == LOGISTIC else z


@jit
def _bend(slope, left, right, demand_left, demand_right, model, zeta):
    """Return a C >= 0 with h'' >= -C on [left, right].

    Logistic, with k = zeta slope: h'' = -k f (1 - f) (2 - k p (1 - 2 f)), and f is monotone
    in p, so its extremes are at the ends.
    """
    if model != LOGISTIC:
        return max(0.0, 2.0 * slope)
    k = zeta * slope
    low = min(demand_left, demand_right)
    high = max(demand_left, demand_right)
    if low <= 0.5 <= high:
        variance = 0.25
    else:
        f = low if low > 0.5 else high
        variance = f * (1.0 - f)
    least = 1.0 - 2.0 * high  # minimum of 1 - 2 f, then of p (1 - 2 f)
    least *= left if least >= 0.0 else right
    if k >= 0.0:
        return k * variance * max(0.0, 2.0 - k * least)
    return -k * variance * max(0.0, -2.0 + k * least)


@inline
def _upper_bound(width, left, right, bend):
    """Return the maximum over t in [0, 1] of the chord plus bend width^2 t (1 - t) / 2."""
    curvature = bend * width * width
    rise = right - left
    if not curvature > abs(rise) * 2.0:
        return max(left, right)
    t = 0.5 + rise / curvature
    return left + rise * t + 0.5 * curvature * t * (1.0 - t)


@jit
def best_optimistic_price(a, slope, q0, q1, q2, model, zeta, gamma, tolerance, stack):
    """Maximise p f(a - slope p) + gamma sqrt(q0 - 2 q1 p + q2 p^2) over [0, 1].

    Args:
        a: Intercept of the linear predictor a - slope p.
        slope: Slope of the linear predictor, any sign.
        q0: Constant of the quadratic, which must be non-negative on [0, 1].
        q1: Minus half of the linear coefficient of the quadratic.
        q2: Leading coefficient of the quadratic, >= 0.
        model: `pricing.LOGISTIC` or `pricing.GAUSSIAN`.
        zeta: Link scale of the logistic model.
        gamma: Weight of the width, >= 0.
        tolerance: Largest distance of the result from the maximum (or 1e-14 times the
            maximum, if larger), > 0.
        stack: Scratch ``(STACK, 6)``.

    Returns:
        The price and the value of the objective there.
    """
    centre = q1 / q2 if q2 > 0.0 else 0.0
    floor = max(0.0, q0 - q1 * centre)
    best_price = 0.0
    best = -np.inf
    left = 0.0
    demand_left = 0.0
    left_value = 0.0
    for i in range(START_INTERVALS + 1):
        p = i / START_INTERVALS
        f = _demand(a, slope, p, model, zeta)
        value = p * f + gamma * np.sqrt(q2 * (p - centre) ** 2 + floor)
        if value > best:
            best_price = p
            best = value
        if i > 0:
            stack[i - 1, 0], stack[i - 1, 1] = left, p
            stack[i - 1, 2], stack[i - 1, 3] = left_value, value
            stack[i - 1, 4], stack[i - 1, 5] = demand_left, f
        left = p
        left_value = value
        demand_left = f
    n = START_INTERVALS
    for _ in range(MAX_INTERVALS):
        if n == 0:
            break
        n -= 1
        left = stack[n, 0]
        right = stack[n, 1]
        left_value = stack[n, 2]
        right_value = stack[n, 3]
        demand_left = stack[n, 4]
        demand_right = stack[n, 5]
        width = right - left
        bend = _bend(slope, left, right, demand_left, demand_right, model, zeta)
        bound = _upper_bound(width, left_value, right_value, bend)
        slack = max(tolerance, 1e-14 * abs(best))
        if not bound > best + slack or width < NARROWEST:  # NaN is discarded as well
            continue
        p = left + 0.5 * width
        f = _demand(a, slope, p, model, zeta)
        value = p * f + gamma * np.sqrt(q2 * (p - centre) ** 2 + floor)
        if value > best:
            best_price = p
            best = value
        # The half with the better end goes on top: it raises `best` early.
        first = 1 if left_value >= right_value else 0
        for k in range(2):
            lower = k != first
            row = n + k
            stack[row, 0] = left if lower else p
            stack[row, 1] = p if lower else right
            stack[row, 2] = left_value if lower else value
            stack[row, 3] = value if lower else right_value
            stack[row, 4] = demand_left if lower else f
            stack[row, 5] = f if lower else demand_right
        n += 2
    return best_price, best


@jit
def optimistic_prices(features, theta, inverse, model, zeta, gamma, tolerance, price, value):
    """Compute the prices that maximise p f(phi' theta) + gamma ||phi(x, p)||_{V^-1} over [0, 1].

    A maximiser of this also maximises its minimum with 1 (CSW, Algorithm 1, line 10), which may
    have several maximisers.

    Args:
        features: x, ``(B, d - 1)``.
        theta: ``(B, d)``.
        inverse: V^-1, ``(B, d, d)``, symmetric and positive definite.
        model: `pricing.LOGISTIC` or `pricing.GAUSSIAN`.
        zeta: Link scale of the logistic model.
        gamma: Weight of the width, >= 0.
        tolerance: Largest loss of the search in the objective.
        price: Output ``(B,)`` in [0, 1].
        value: Output ``(B,)``: the objective there.
    """
    B, m = features.shape
    stack = np.empty((STACK, 6))
    for b in range(B):
        a, slope = intercept_slope(features, theta, b)
        q0 = 0.0
        q1 = 0.0
        for j in range(m):
            s = 0.0
            for k in range(m):
                s += inverse[b, j, k] * features[b, k]
            q0 += features[b, j] * s
            q1 += features[b, j] * inverse[b, j, m]
        price[b], value[b] = best_optimistic_price(
            a,
            slope,
            q0 / (m + 1),
            q1 / (m + 1),
            inverse[b, m, m] / (m + 1),
            model,
            zeta,
            gamma,
            tolerance,
            stack,
        )


@jit
def lemma_6_prices(features, theta, inverse, model, zeta, gamma, revenue, price, value):
    """Compute the prices that maximise p min{1, g(p) + gamma ||phi(x, p)||_{V^-1}} over [0, 1].

    g(p) is p f(phi' theta) as CSW, Lemma 6 prints it (`revenue`), or f(phi' theta). The search is
    on grids, each around the best price of the one before.

    Args:
        features: As in `optimistic_prices`, like the next five arguments.
        revenue: Whether g is the revenue.
        price: Output ``(B,)`` in [0, 1].
        value: Output ``(B,)``: the objective there.
    """
    B, m = features.shape
    for b in range(B):
        a, slope = intercept_slope(features, theta, b)
        low = 0.0
        high = 1.0
        best, value[b] = 0.0, -np.inf
        for _ in range(1 + ZOOMS):
            step = (high - low) / (GRID - 1)
            for i in range(GRID):
                p = low + i * step
                square = 0.0
                for j in range(m + 1):
                    own = features[b, j] if j < m else -p
                    for k in range(m + 1):
                        other = features[b, k] if k < m else -p
                        square += own * inverse[b, j, k] * other
                f = _demand(a, slope, p, model, zeta)
                bonus = gamma * np.sqrt(max(0.0, square / (m + 1)))
                objective = p * min(1.0, (p * f if revenue else f) + bonus)
                if objective > value[b]:
                    best, value[b] = p, objective
            low = max(0.0, best - step)
            high = min(1.0, best + step)
        price[b] = best


@jit
def total_revenues(intercepts, slope, prices, model, zeta, out):
    """Write sum_j p f(a_j - slope p) for p = prices[i] and intercepts a_j to out[i]."""
    for i in range(prices.shape[0]):
        s = 0.0
        for j in range(intercepts.shape[0]):
            s += expected_revenue(intercepts[j], slope, prices[i], model, zeta)
        out[i] = s
