"""Private release of the logistic model of a log."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dpb_gym.errors import ParameterError, shown
from dpb_gym.privacy import Budget, Curator, Guarantee, Minimiser
from dpb_gym.problems.base import Array


@dataclass(frozen=True)
class ReleasedFit:
    """Coefficients of a log's model, and the guarantee of their release.

    Attributes:
        coefficients: d numbers, of the scaled features.
        guarantee: The guarantee as text, per row of the log.
    """

    coefficients: tuple[float, ...]
    guarantee: str


def release_fit(
    rows: Array, hit: Array, longest: float, private: Budget | str, change: Array | None = None
) -> ReleasedFit:
    """Release the maximum-likelihood estimate of a logistic model by objective perturbation.

    Rows are divided by `longest`, so that a row's loss has a gradient of norm at most 1 and a
    Hessian of trace at most 1/4. The noise comes from the operating system.

    Args:
        rows: Features ``(n, d)``, the intercept included.
        hit: Responses ``(n,)``.
        longest: Public bound of the norm of ``rows @ change``.
        private: Budget for one row, replace-one.
        change: Public matrix ``(d, d)``: the coefficients of ``rows @ change`` are released, from
            which those of the rows follow. The identity by default.

    Raises:
        BudgetError: If the budget is invalid.
        ParameterError: If it is none, or a row is longer than `longest`.
        MissingExtraError: If OpenDP is not installed (extra ``[secure]``).
    """
    budget = Budget.parse(private)
    if budget is None or budget.trust != "curator":
        raise ParameterError(
            f"private must be a budget such as 'eps=1,delta=1e-6', got {shown(private)}"
        )
    matrix = np.eye(rows.shape[1]) if change is None else change
    x = rows.astype(np.float64) @ matrix / longest
    y = hit.astype(np.float64)
    norm = float(np.sqrt((x**2).sum(axis=1).max()))
    if norm > 1.0 + 1e-6:
        raise ParameterError(f"a row has norm {norm * longest:g}, above {longest:g}")
    x /= max(1.0, norm)
    curator = Curator(budget, ("central", "user-round"), noise="system", horizon=len(y))
    fit = _LogisticFit(
        curator,
        x.shape[1],
        gradient_bound=1.0,
        curvature=0.25,
        records=len(y),
        what="model of a log",
    )
    fit.add_rounds(x[:, None], y[:, None])
    theta = matrix @ fit.release()[0] / longest
    guarantee = curator.guarantee
    assert isinstance(guarantee, Guarantee)
    return ReleasedFit(tuple(theta.tolist()), guarantee.describe(budget.delta))


class _LogisticFit(Minimiser):
    enforces = True  # rows are in the unit ball

    @staticmethod
    def loss(theta: Array, x: Array, y: Array) -> tuple[float, Array, Array]:
        """Return the negative log-likelihood of a logistic model and its derivatives."""
        u = x @ theta
        chance = 1.0 / (1.0 + np.exp(-u))
        value = float((np.logaddexp(0.0, u) - y * u).sum())
        return value, x.T @ (chance - y), (x * (chance * (1.0 - chance))[:, None]).T @ x
