"""What a log earned, and the best single action for all customers, without any run."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from dpb_gym.problems.base import Array
from dpb_gym.problems.kinds import Kind, kind_of
from dpb_gym.report.leaderboard_data import Interval

DRAWS = 400
"""Draws of the coefficients from their posterior, for the uncertainty of fixed actions."""
_FEW, _PRICES, _OPTIONS = 64, 101, 200
_NUMBERS = 1_000_000  # numbers that one draw may read
# Percent of the draws beyond each end of a 95% interval: less than 2.5, since the action was chosen
# by the same data, and ends of few draws are uncertain.
_TAIL = 1.5


@dataclass(frozen=True, eq=False)
class FixedAction:
    """The best single action for all customers, by its mean over draws of the coefficients.

    Attributes:
        action: The action.
        label: Such as ``"always 5.29 EUR"``.
        earned: Expected reward per customer, with the 95% interval over draws.
        gain: The same relative to the log's own actions, in percent of what those earn.
    """

    action: Array
    label: str
    earned: Interval
    gain: Interval


def best_fixed_action(problem: Any, currency: str | None = None) -> FixedAction:
    """Return the best single action for the customers of a log.

    Both the action and the log's own actions are evaluated under the same draws of the
    coefficients and of the customers' distribution.

    Args:
        problem: The problem of the log (`dpb_gym.problems.logged.Logged`).
        currency: Unit of prices; by default that of the table.
    """
    options = _options(problem)
    thetas = problem.posterior(DRAWS)
    who = _customers(problem, len(options))
    few = problem.action_values(options, thetas[:_FEW], who, problem.shares(who, _FEW))
    values = few.mean(axis=0)
    action = options[int(np.argmax(values))]
    who = _customers(problem, 1)
    shares = problem.shares(who, DRAWS)
    earned = problem.action_values(action[None], thetas, who, shares)[:, 0]
    today = problem.log_values(thetas, who, shares)
    # of what the log earned, not of a draw's value, which may be near 0
    gain = 100.0 * (earned - today) / max(float(today.mean()), 1e-300)
    label = action_label(problem, action, currency)
    return FixedAction(action, label, _interval(earned), _interval(gain))


def action_label(problem: Any, action: Array, currency: str | None) -> str:
    """Return an action in words, such as ``"always 5.29 EUR"``."""
    if problem.kind == "pricing":
        price = float(action) * problem.highest_price
        return f"always {price:.4g} {currency or problem.currency}".strip()
    items = [str(problem.item_ids[i]) for i in np.atleast_1d(action) if i >= 0]
    return f"always {', '.join(items)}"


def _options(problem: Any) -> Array:
    """Return the single actions to compare ``(A, ...)``."""
    if problem.kind == "pricing":
        low, high = problem.info.price_range or (0.0, 1.0)
        return np.linspace(low, high, _PRICES)
    if problem.kind == "recommendation":
        return np.arange(problem.info.n_candidates)
    # slates that are best for some customer, under the estimate or a draw
    thetas = [problem.theta, *problem.posterior(4)]
    slates = np.concatenate([problem.rounds_under(theta).best[0] for theta in thetas])
    found, counts = np.unique(slates, axis=0, return_counts=True)
    order = np.argsort(-counts, kind="stable")[:_OPTIONS]
    kind: Kind = kind_of(problem.kind)
    return np.asarray(found[order]).reshape(-1, *kind.action_shape(problem.info))


def _customers(problem: Any, actions: int) -> Array:
    """Return evenly spaced customers, few enough for every draw and action."""
    each = problem.info.dim * (problem.info.n_items or 1) + 10 * actions
    most = max(500, _NUMBERS // each)
    pool: Array = problem.pool
    return pool[:: -(-len(pool) // most)]


def _interval(draws: Array) -> Interval:
    low, high = np.percentile(draws, (_TAIL, 100.0 - _TAIL))
    return Interval(float(draws.mean()), float(low), float(high))
