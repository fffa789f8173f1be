"""What a log earned, and the best single action for all customers, without any run."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from dpb_gym.problems.base import Array
from dpb_gym.problems.kinds import log_form
from dpb_gym.report.leaderboard_data import Interval
from dpb_gym.results.metrics import CONFIDENCE

DRAWS = 400
"""Draws of the coefficients from their posterior, for the uncertainty of fixed actions."""
DECIDED = 0.999
"""Confidence of the gain that a decision states: in 200 decisions none brings less than the lower
end of its interval with a probability of 90%, as 0.9995 ** 200 = 0.905."""
_FEW = 64
_NUMBERS = 1_000_000  # numbers that one draw may read


@dataclass(frozen=True, eq=False)
class FixedAction:
    """The best single action for all customers, by its mean over draws of the coefficients.

    Attributes:
        action: The action.
        label: Such as ``"always 5.29 EUR"``.
        earned: Expected reward per customer, with its 95% interval.
        gain: The same relative to the log's own actions, in percent of what those earn.
        decided: The gain with an interval of confidence `DECIDED`.
    """

    action: Array
    label: str
    earned: Interval
    gain: Interval
    decided: Interval


def best_fixed_action(problem: Any, currency: str | None = None) -> FixedAction:
    """Return the best single action for the customers of a log.

    Both the action and the log's own actions are evaluated under the same draws of the
    coefficients and of the customers' distribution. For prices, demand may be of other forms.
    Intervals hold for all items at once (Bonferroni), since the best of many estimates is more
    often too high than too low. Prices have one demand curve, whose estimates are not chosen from.

    Args:
        problem: The problem of the log (`dpb_gym.problems.logged.Logged`).
        currency: Unit of prices; by default that of the table.
    """
    form = log_form(problem.kind)
    options = form.options(problem)
    thetas = problem.wide_posterior(DRAWS)
    who = _customers(problem, len(options))
    few = problem.action_values(options, thetas[:_FEW], *problem.population(who, _FEW))
    values = few.mean(axis=0)
    action = options[int(np.argmax(values))]
    who, shares = problem.population(_customers(problem, 1), DRAWS)
    earned = problem.action_values(action[None], thetas, who, shares)[:, 0]
    today = problem.log_values(thetas, who, shares)
    label = form.label(problem, action, currency)
    freedom = problem.persons - 1.0
    ratio = earned / np.maximum(today, 1e-300)
    compared = form.compared(problem)
    plain, strict = (1.0 - (1.0 - level) / compared for level in (CONFIDENCE, DECIDED))
    gain, decided = (
        Interval(*(100.0 * (x - 1.0) for x in (one.mean, one.low, one.high)))
        for one in (ratio_interval(ratio, freedom, level) for level in (plain, strict))
    )
    return FixedAction(action, label, ratio_interval(earned, freedom, plain), gain, decided)


def _customers(problem: Any, actions: int) -> Array:
    """Return evenly spaced customers, few enough for every draw and action."""
    each = problem.info.dim * (problem.info.n_items or 1) + 10 * actions
    most = max(500, _NUMBERS // each)
    pool: Array = problem.pool
    return pool[:: -(-len(pool) // most)]


def ratio_interval(draws: Array, freedom: float, confidence: float = CONFIDENCE) -> Interval:
    """Return the median of positive draws with an interval.

    Logarithms of the draws have a two-piece normal distribution: its scales are the root mean
    squares of the deviations below and above the median. Ends of confidence 0.999 are beyond what
    single draws can show. Student's t stands for the normal, since the scales are estimated from
    the customers of `freedom` + 1 persons.

    Args:
        draws: Positive numbers ``(K,)``.
        freedom: Degrees of freedom.
        confidence: In (0, 1).
    """
    from scipy.special import stdtrit

    logs = np.log(np.maximum(draws, 1e-300))
    middle = float(np.median(logs))
    rest = logs - middle
    below, above = (np.sqrt(np.mean(rest[sign * rest >= 0.0] ** 2)) for sign in (-1, 1))
    times = float(stdtrit(freedom, 0.5 + 0.5 * confidence))
    ends = np.exp([middle, middle - times * below, middle + times * above])
    return Interval(*map(float, ends))
