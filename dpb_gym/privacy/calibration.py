"""Calibrate noise scales to a budget.

The calibrated releases spend at least (1 - 1e-6) of the budget and never more than it, because the
search uses the same accountant as the guarantee.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

from dpb_gym import portable, validation
from dpb_gym.errors import BudgetError, ParameterError
from dpb_gym.privacy.budget import Budget
from dpb_gym.privacy.composition import Composition
from dpb_gym.privacy.events import Event, ZCDPEvent

_SAFETY = 1e-12


def gaussian_sigma(rho: float, sensitivity: float, times: int = 1) -> float:
    """Return sigma with ``times * sensitivity^2 / (2 sigma^2) = rho``, rounded up."""
    rho = validation.real("rho", rho, 0.0, open_low=True)
    return sensitivity * math.sqrt(times / (2 * rho)) * (1 + _SAFETY)


def cost_of(composition: Composition, delta: float | None) -> float:
    """Return epsilon at `delta`, or rho if `delta` is None; raise `BudgetError` without a rho."""
    # the accountant is imported where it is needed: it takes long to import
    if delta is not None:
        from dpb_gym.privacy import accounting

        return accounting.epsilon(composition, delta)
    if composition.zcdp is None:
        raise BudgetError(
            "a zCDP budget can only be charged with releases that have a zCDP bound; "
            "use an (epsilon, delta) budget for this mechanism"
        )
    return composition.zcdp


def equivalent_rho(budget: Budget, *, gaussian: bool = True) -> float:
    """Return the total rho that Gaussian releases may spend under `budget`.

    Args:
        budget: A zCDP budget, whose rho is returned, or an (epsilon, delta) one.
        gaussian: Whether every release is Gaussian, so that the exact conversion applies
            (0.03593 at epsilon 1, delta 1e-5). Otherwise the conversion for any zCDP mechanism is
            used (0.03056).

    Raises:
        BudgetError: If `budget` is no `Budget`.
    """
    if gaussian and isinstance(budget, Budget) and budget.epsilon and budget.delta:
        from dpb_gym.privacy import accounting

        # exact for Gaussian releases, where Renyi orders would lose some of the budget
        mu = accounting.gaussian_mu(budget.epsilon, budget.delta)
        return 0.5 * mu * mu
    return fit_rho(budget, lambda rho: [ZCDPEvent(rho)])


def textbook_rho(epsilon: float, delta: float) -> float:
    """Return rho with ``epsilon = rho + 2 sqrt(rho log(1/delta))`` (Bun & Steinke 2016)."""
    log = portable.log(1 / delta)
    root = math.sqrt(epsilon + log) - math.sqrt(log)
    return root * root


def textbook_epsilon(rho: float, delta: float) -> float:
    """Return ``rho + 2 sqrt(rho log(1/delta))``, the loose conversion that the papers use."""
    return rho + 2 * math.sqrt(rho * portable.log(1 / delta))


def calibrate_scale(
    budget: Budget,
    events: Callable[[float], Sequence[Event]],
    *,
    start: float = 1.0,
    tolerance: float = 1e-7,
) -> float:
    """Return the smallest noise scale whose events fit in the budget, for any mechanism.

    Args:
        budget: Privacy budget.
        events: Maps a noise scale to the events of one record. The cost must decrease in the
            scale.
        start: Initial guess.
        tolerance: Relative precision of the scale.

    Returns:
        The scale, rounded up, so the cost never exceeds the budget.

    Raises:
        ParameterError: If no scale between 1e-9 and 1e9 times the guess fits.
        BudgetError: If the budget is zCDP and an event has no zCDP bound.

    Example:
        >>> from dpb_gym.privacy import PoissonGaussianEvent
        >>> budget = Budget.approx(1.0, 1e-5)
        >>> round(calibrate_scale(budget, lambda s: [PoissonGaussianEvent(0.3, s)]), 2)
        1.94
    """

    def fits(scale: float) -> bool:
        return cost_of(Composition.of(*events(scale)), budget.delta) <= budget.limit

    # a bracket from the guess, because costs of mechanisms differ by orders of magnitude
    low = high = validation.real("start", start, 0.0, open_low=True)
    while not fits(high):
        high *= 2
        if high > 1e9 * start:
            raise ParameterError(f"no noise scale up to {high:.3g} fits in the budget {budget}")
    while fits(low):
        low /= 2
        if low < 1e-9 * start:
            raise ParameterError(f"every noise scale down to {low:.3g} fits in {budget}")
    while high - low > tolerance * high:
        # geometric, as scales are relative
        middle = math.sqrt(low * high)
        low, high = (low, middle) if fits(middle) else (middle, high)
    # the end that fits, so that rounding never exceeds the budget
    return high


def fit_rho(budget: Budget, events: Callable[[float], Sequence[Event]]) -> float:
    """Return the largest rho whose releases fit in the budget, for plans stated in zCDP.

    Args:
        budget: Privacy budget. The rho of a zCDP budget is returned unchanged.
        events: Maps rho to the events of one record when the plan spends rho.

    Returns:
        rho to nine digits, rounded down, so the cost never exceeds the budget.

    Raises:
        BudgetError: If `budget` is no `Budget`, or too small for double precision.
    """
    if not isinstance(budget, Budget):
        raise BudgetError(f"a Budget is needed, e.g. Budget.zcdp(1.0); got {budget!r}")
    if budget.rho is not None:
        return budget.rho
    assert budget.epsilon is not None and budget.delta is not None
    # of the loose conversion, which is close
    rho = textbook_rho(budget.epsilon, budget.delta)
    if not 0.0 < rho < math.inf:
        raise BudgetError(f"no rho that double precision can compute fits in the budget {budget}")
    guess = 1.0 / math.sqrt(rho)
    scale = calibrate_scale(budget, lambda s: events(1.0 / (s * s)), start=guess, tolerance=1e-9)
    return 1.0 / (scale * scale)
