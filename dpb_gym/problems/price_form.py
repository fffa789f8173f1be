"""Check of the form of demand in the price, which a model with a linear utility fixes."""

from __future__ import annotations

import numpy as np

from dpb_gym.problems.base import Array
from dpb_gym.problems.logged_figures import sigmoid

DOUBTED = 3.29
"""Standard errors from which on the form is a doubt: p = 0.001."""
_MOST = 100_000  # customers
_LEAST = 1e-6  # share of its information that the logarithm must have beside the price


def price_form(rows: Array, theta: Array, bought: Array, people: Array | None) -> float:
    """Return by how many standard errors the logarithm of the price belongs to the utility.

    It is the score test of a further coefficient, with the variance of sums over persons. The
    result is 0 where the logarithm cannot be told from the price, as for two prices.

    Args:
        rows: Customers' features and minus the price ``(n, d)``.
        theta: Coefficients by nearly maximum likelihood ``(d,)``.
        bought: 0 or 1 ``(n,)``.
        people: Person of each customer ``(n,)``, or None.
    """
    step = -(-len(rows) // _MOST)
    x = rows[::step].astype(np.float64)
    taken = bought[::step]
    z = np.log(np.maximum(-x[:, -1], 1e-12))
    chance = sigmoid(x @ theta)
    weight = (chance * (1.0 - chance))[:, None]
    information = x.T @ (weight * x)
    gamma = np.linalg.lstsq(information, x.T @ (weight[:, 0] * z), rcond=1e-10)[0]
    rest = z - x @ gamma
    own = float(rest**2 @ weight[:, 0])
    if own <= _LEAST * float((z - z.mean()) ** 2 @ weight[:, 0]):
        return 0.0
    scores = rest * (taken - chance)
    if people is not None:
        scores = np.bincount(people[::step], scores)
    return float(scores.sum() / max(np.sqrt(np.sum(scores**2)), 1e-300))


def form_doubt(errors: float) -> list[str]:
    """Return a doubt if demand is not of the fitted form in the price.

    Args:
        errors: Result of `price_form`.
    """
    if abs(errors) <= DOUBTED:
        return []
    return [
        f"misspecified: the effect of the price is not the same at low and at high prices "
        f"({abs(errors):.1f} standard errors). The intervals of the elasticity and of a fixed "
        "price contain this, those of agents do not: try a price for some customers first"
    ]
