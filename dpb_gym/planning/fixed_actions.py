"""What a log earned, and the best single action for all customers, without any run."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from dpb_gym.problems.base import Array
from dpb_gym.problems.kinds import log_form
from dpb_gym.report.leaderboard_data import Interval

DRAWS = 400
"""Draws of the coefficients from their posterior, for the uncertainty of fixed actions."""
_FEW = 64
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
    form = log_form(problem.kind)
    options = form.options(problem)
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
    label = form.label(problem, action, currency)
    return FixedAction(action, label, _interval(earned), _interval(gain))


def _customers(problem: Any, actions: int) -> Array:
    """Return evenly spaced customers, few enough for every draw and action."""
    each = problem.info.dim * (problem.info.n_items or 1) + 10 * actions
    most = max(500, _NUMBERS // each)
    pool: Array = problem.pool
    return pool[:: -(-len(pool) // most)]


def _interval(draws: Array) -> Interval:
    low, high = np.percentile(draws, (_TAIL, 100.0 - _TAIL))
    return Interval(float(draws.mean()), float(low), float(high))
