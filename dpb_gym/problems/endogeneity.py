"""Endogenous prices: those that move with something that moves demand, too."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dpb_gym.problems.base import Array
from dpb_gym.problems.fitting import FREE
from dpb_gym.problems.log_likelihood import ChoiceSets, log_chances

PERIODS = 30
"""Parts of a log in the order of its rows."""
DOUBTED = 3.66
"""Standard errors from which on endogenous prices are a doubt: p = 0.001 by t with 29 degrees."""
REFUSED = 5.0
"""Standard errors from which on a log is refused: p = 0.00003."""
_FEWEST = 10  # customers or rows per period
_MOST = 100_000  # customers


@dataclass(frozen=True)
class PeriodEffects:
    """Effects of the price on the utility within periods of a log, and between them.

    Attributes:
        within: Effect of one unit of the price on the utility, by prices of the same period.
        between: The same, by the periods' mean prices.
        errors: Their difference in standard errors; 0 where it cannot be estimated.
    """

    within: float
    between: float
    errors: float

    @property
    def text(self) -> str:
        """What differs, as part of a sentence."""
        return (
            f"one unit of the price has an effect of {self.within:.3g} on the utility within a "
            f"short period and of {self.between:.3g} between periods, {abs(self.errors):.1f} "
            "standard errors apart, so prices moved with something else that moves demand"
        )


def period_effects(
    data: ChoiceSets, theta: Array, column: int, unit: float, items: Array, rows: Array
) -> PeriodEffects:
    """Return effects of the price within and between periods of a log.

    They are equal if prices do not move with demand that the model does not know (Hausman 1978).
    The score test of their difference has the variance of sums over periods, so demand may drift.
    A second fit is made only where it exceeds `DOUBTED`; otherwise both effects are that of the
    model. The log must be in the order of time; otherwise nothing is found.

    Args:
        data: The choices.
        theta: Coefficients ``(d,)``.
        column: Number of the price's column.
        unit: Effect of one unit of the price per unit of its coefficient.
        items: Item of each row of `data`, of which prices are compared with each other.
        rows: Number of each customer's row in the table, ascending ``(n,)``; customers who were
            counted in one row are in one period.
    """
    nothing = PeriodEffects(0.0, 0.0, 0.0)
    if len(data) > _MOST:
        kept = np.arange(len(data)) >= len(data) - _MOST
        items = items[np.repeat(kept, np.diff(data.starts))]
        data = data.keep(kept)
        rows = rows[kept]
    numbers = np.unique(rows, return_inverse=True)[1].ravel()
    count = int(numbers.max()) + 1
    periods = min(PERIODS, count // _FEWEST)
    if periods < _FEWEST:
        return nothing
    period = numbers * periods // count
    of_set = np.repeat(np.arange(len(data)), np.diff(data.starts))
    cell = np.unique(items, return_inverse=True)[1].ravel() * periods + period[of_set]
    x = data.rows.astype(np.float64)
    sums = np.bincount(cell, x[:, column])
    z = x[:, column] - (sums / np.maximum(np.bincount(cell), 1))[cell]
    chance = np.exp(log_chances(data.rows, data.starts, theta)[0])
    both = np.column_stack([x, z])
    weighted = chance[:, None] * both
    means = np.add.reduceat(weighted, data.starts[:-1])
    information = both.T @ weighted - means.T @ means
    gamma = np.linalg.lstsq(information[:-1, :-1], information[:-1, -1], rcond=1e-10)[0]
    own = information[-1, -1] - information[-1, :-1] @ gamma
    if own <= 1e-6 * max(information[column, column], 1e-300):
        return nothing  # prices differ only within, or only between periods
    surprise = -chance
    bought = data.choice >= 0
    surprise[(data.starts[:-1] + data.choice)[bought]] += 1.0
    scores = np.bincount(period[of_set], (z - x @ gamma) * surprise, minlength=periods)
    error = np.sqrt(((scores - scores.mean()) ** 2).sum() * periods / (periods - 1))
    errors = float(scores.sum() / max(error, 1e-300))
    if abs(errors) <= DOUBTED:
        return PeriodEffects(unit * theta[column], unit * theta[column], errors)
    wide = ChoiceSets(np.column_stack([data.rows, z.astype(np.float32)]), data.starts, data.choice)
    fitted, _ = wide.fit(FREE * wide.sizes**2, "endogeneity", None, np.append(theta, 0.0))
    between = float(fitted[column])
    return PeriodEffects(unit * (between + float(fitted[-1])), unit * between, errors)
