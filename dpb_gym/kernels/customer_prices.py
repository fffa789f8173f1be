"""What a price does to one customer, for agents' functions."""

from __future__ import annotations

import numpy as np

from dpb_gym import kernels
from dpb_gym.kernels.deferred import shape_checked


@shape_checked
def intercept(x, theta):
    """(a, slope) of the linear predictor a - slope p, with phi = [x; -p] / sqrt(d)."""
    m = x.shape[0]
    if theta.shape[0] != m + 1:
        raise IndexError("shapes differ")
    root = np.sqrt(m + 1.0)
    a = 0.0
    for k in range(m):
        a += x[k] * theta[k]
    return a / root, theta[m] / root


@shape_checked
def best_price_of(a, slope, logistic, zeta):
    """Price on [0, 1] of the largest expected revenue, see `intercept`."""
    if logistic:
        p = kernels.demand_models._best_logistic(a, slope, zeta)
    elif slope > 0.0:
        p = a / (2.0 * slope)
    else:
        p = 1.0 if a - slope > 0.0 else 0.0
    return min(1.0, max(0.0, p))


@shape_checked
def best_price(x, theta, logistic, zeta):
    """Price on [0, 1] of the largest expected revenue."""
    a, slope = intercept(x, theta)
    return best_price_of(a, slope, logistic, zeta)


@shape_checked
def best_net_price_of(a, slope, zeta, cost):
    """Best price under logistic demand where a unit costs `cost` in [0, 1], see `intercept`.

    p - cost is the best price of a customer whose a is smaller by slope * cost.
    """
    return min(1.0, cost + kernels.demand_models._best_logistic(a - slope * cost, slope, zeta))


@shape_checked
def revenue_of(a, slope, p, zeta):
    """Expected revenue of a price under logistic demand, see `intercept`."""
    return p * kernels.elementary.sigmoid(zeta * (a - slope * p))


@shape_checked
def optimistic_price(x, theta, metric, logistic, zeta, gamma, tolerance):
    """Price on [0, 1] of the largest revenue + gamma ||phi||_metric, phi = [x; -p] / sqrt(d)."""
    d = theta.shape[0]
    if x.shape[0] != d - 1 or metric.shape[0] != d or metric.shape[1] != d:
        raise IndexError("shapes differ")
    price = np.empty(1)
    kernels.price_search.optimistic_prices(
        x.reshape((1, d - 1)),
        theta.reshape((1, d)),
        metric.reshape((1, d, d)),
        0 if logistic else 1,
        zeta,
        gamma,
        tolerance,
        price,
        np.empty(1),
    )
    return price[0]
