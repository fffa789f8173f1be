"""Personalised pricing: demand models, closed-form best prices, outcomes.

phi(x, p) = [x; -p] / sqrt(d); z = <phi, theta> = a - b p with a = <x, theta_x> / sqrt(d)
and b = theta_p / sqrt(d).
"""

from __future__ import annotations

import numpy as np

from dpb_gym.kernels._jit import jit, vectorised
from dpb_gym.kernels.elementary import exp, log, log1p, normal_cdf, normal_of, sigmoid

LOGISTIC = 0
GAUSSIAN = 1
PROBIT = 2
EXPONENTIAL = 3


@jit
def lambert_exp(z):
    """Return Lambert's W(exp(z)), the root w > 0 of w + log(w) = z, for any finite z.

    Halley's method on w exp(w) = exp(z), written as w + log w = z for large z so that
    exp(z) is never formed there.
    """
    if z < -20.0:
        return exp(z)
    if z < 1.0:
        w = exp(z) / (1.0 + exp(z))
    else:
        w = z - log(z) if z > 2.0 else 0.7 + 0.35 * (z - 1.0)
    for _ in range(20):
        f = w + log(w) - z
        step = f / (1.0 + 1.0 / w + f / (2.0 * w * (w + 1.0)))
        new = w - step
        if new <= 0.0:
            new = 0.5 * w
        if abs(new - w) <= 1e-15 * w:
            return new
        w = new
    return w


@jit
def intercept_slope(features, theta, b):
    """Return (a, slope) of replicate b, where z = a - slope * price."""
    m = features.shape[1]
    root = np.sqrt(m + 1.0)
    a = 0.0
    for k in range(m):
        a += features[b, k] * theta[b, k]
    return a / root, theta[b, m] / root


@jit
def mean_demand(z, model, zeta):
    """Return E[demand] at z; a probability except for Gaussian demand."""
    if model == LOGISTIC:
        return sigmoid(zeta * z)
    if model == PROBIT:
        return normal_cdf(zeta * z)
    if model == EXPONENTIAL:
        return exp(min(0.0, zeta * z))
    return z


@jit
def expected_revenue(a, slope, price, model, zeta):
    """Return price * E[demand]."""
    return price * mean_demand(a - slope * price, model, zeta)


@jit
def _best_logistic(a, slope, zeta):
    """Return the revenue-maximising price of logistic demand, at least 0."""
    if zeta * slope <= 0.0:  # a subnormal slope underflows
        return 1.0
    return (1.0 + lambert_exp(zeta * a - 1.0)) / (zeta * slope)


@jit
def best_net_prices(features, theta, zeta, cost, price, value):
    """`best_prices` of logistic demand where a unit costs ``cost[b]`` in [0, 1]; values are net.

    p - cost is the best price of a customer whose a is smaller by slope * cost.
    """
    for i in range(features.shape[0]):
        a, slope = intercept_slope(features, theta, i)
        p = min(1.0, cost[i] + _best_logistic(a - slope * cost[i], slope, zeta))
        price[i] = p
        value[i] = (p - cost[i]) * mean_demand(a - slope * p, LOGISTIC, zeta)


@jit
def net_revenues(features, theta, price, model, zeta, cost, expected):
    """Compute (price - cost) * E[demand] of each replicate."""
    for i in range(features.shape[0]):
        a, slope = intercept_slope(features, theta, i)
        expected[i] = (price[i] - cost[i]) * mean_demand(a - slope * price[i], model, zeta)


@jit
def best_prices(features, theta, model, zeta, price, value):
    """Compute revenue-maximising prices on [0, 1] and their expected revenues.

    Logistic: p = (1 + W(exp(zeta a - 1))) / (zeta b), clipped; p = 1 if b <= 0 (revenue
    then increases in p). Gaussian: p = a / (2 b) clipped if b > 0, else the better
    end of the interval.
    """
    B = features.shape[0]
    for i in range(B):
        a, slope = intercept_slope(features, theta, i)
        if model == LOGISTIC:
            p = _best_logistic(a, slope, zeta)
        elif slope > 0.0:
            p = a / (2.0 * slope)
        else:
            p = 1.0 if a - slope > 0.0 else 0.0
        p = min(1.0, max(0.0, p))
        price[i] = p
        value[i] = expected_revenue(a, slope, p, model, zeta)


@jit
def move_into(price, low, high, moved):
    """Write prices moved into [low, high]; return whether all of them are within [0, 1]."""
    for i in range(price.shape[0]):
        p = price[i]
        if not (p >= 0.0 and p <= 1.0):
            return False
        p = p if p >= low else low
        moved[i] = p if p <= high else high
    return True


@jit
def demand_outcome(features, theta, b, price, model, zeta, uniform):
    """Return demand, revenue and expected revenue of the price of replicate b.

    Gaussian demand is its mean plus the standard normal quantile of the uniform; any other demand
    is 1 if the uniform is below its mean.
    """
    a, slope = intercept_slope(features, theta, b)
    z = a - slope * price
    mean = mean_demand(z, model, zeta)
    if model == GAUSSIAN:
        demand = z + normal_of(uniform)
    else:
        demand = 1.0 if uniform < mean else 0.0
    return demand, price * demand, price * mean


@jit
def outcome(features, theta, price, model, zeta, uniform, demand, reward, expected):
    """Compute `demand_outcome` of each replicate's price.

    Returns 0, or 1 + the first replicate whose price is outside [0, 1] or NaN.
    """
    for i in range(features.shape[0]):
        p = price[i]
        if not (p >= 0.0 and p <= 1.0):
            return i + 1
        demand[i], reward[i], expected[i] = demand_outcome(
            features, theta, i, p, model, zeta, uniform[i]
        )
    return 0


@vectorised
def add_demands_one(features, price, demand, unit, n, model, zeta, theta, gradient, hessian):
    """Add gradient and lower Hessian of the demands' negative log-likelihoods at theta.

    Logistic: log(1 + exp(zeta z)) - y zeta z, gradient zeta (f - y) phi, Hessian
    zeta^2 f (1 - f) phi phi'; with ||phi|| <= 1 one demand's gradient has norm at most zeta, its
    Hessian trace at most zeta^2 / 4. Gaussian: (y - z)^2 / 2 with unit variance.

    Args:
        features: x of the records, ``(records, d - 1)``.
        price: ``(records,)``.
        demand: ``(records,)``, times `unit`.
        unit: 1, or the integer that stands for a demand of 1.
        n: Number of records to include.
        model: `LOGISTIC` or `GAUSSIAN`.
        zeta: Link scale of the logistic model.
        theta: ``(d,)``.
        gradient: ``(d,)``, in place.
        hessian: ``(d, d)``, in place.

    Returns:
        The negative log-likelihood.
    """
    m = features.shape[1]
    d = theta.shape[0]
    root = np.sqrt(m + 1.0)
    loss = 0.0
    # Four records at a time, added in order to every entry, which is loaded and stored once.
    phis = np.zeros((4, d))
    bends = np.zeros(4)
    p0 = phis[0]
    p1 = phis[1]
    p2 = phis[2]
    p3 = phis[3]
    for first in range(0, n, 4):
        for r in range(4):
            if first + r < n:
                for k in range(m):
                    phis[r, k] = features[first + r, k] / root
                phis[r, m] = -price[first + r] / root
            else:
                phis[r], bends[r] = 0.0, 0.0
        z0 = 0.0
        z1 = 0.0
        z2 = 0.0
        z3 = 0.0
        for k in range(d):
            z0 += p0[k] * theta[k]
            z1 += p1[k] * theta[k]
            z2 += p2[k] * theta[k]
            z3 += p3[k] * theta[k]
        for r, z in enumerate((z0, z1, z2, z3)):
            if first + r >= n:
                break
            y = demand[first + r] / unit
            if model == LOGISTIC:
                s = zeta * z
                e = exp(-abs(s))
                f = 1.0 / (1.0 + e) if s >= 0.0 else e / (1.0 + e)
                loss += max(s, 0.0) + log1p(e) - y * s
                g = zeta * (f - y)
                bends[r] = zeta * zeta * f * (1.0 - f)
            else:
                g = z - y
                loss += 0.5 * g * g
                bends[r] = 1.0
            for j in range(d):
                gradient[j] += g * phis[r, j]
        for j in range(d):
            w0 = bends[0] * p0[j]
            w1 = bends[1] * p1[j]
            w2 = bends[2] * p2[j]
            w3 = bends[3] * p3[j]
            row = hessian[j]
            for k in range(j + 1):
                row[k] = row[k] + w0 * p0[k] + w1 * p1[k] + w2 * p2[k] + w3 * p3[k]
    return loss
