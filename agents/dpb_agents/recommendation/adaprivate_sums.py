"""Noise as the AdaPrivate paper prints it."""

from __future__ import annotations

from dpb_gym.errors import BudgetError
from dpb_gym.privacy import (
    Budget,
    amplified_sigma_ru,
    equivalent_rho,
    gaussian_sigma,
    textbook_rho,
)


def printed_sigma(budget: Budget, reward: tuple[float, float], sampling: float) -> float:
    """RU's noise of a batch: Eq. 2.8, or with sampling Eq. 3.6.

    Eq. 2.8, ``range / sqrt(2 rho)`` with ``rho = (sqrt(eps + l) - sqrt(l))^2``,
    ``l = log(1/delta)``, is valid and looser than it need be (erratum R1). Eq. 3.6 is no upper
    bound at all (erratum R2).

    Raises:
        BudgetError: If Eq. 3.6 is given a zCDP budget.
        ParameterError: If it reaches the nominal epsilon at no sigma.
    """
    width = reward[1] - reward[0]
    if budget.epsilon is None or budget.delta is None:
        if sampling < 1:
            raise BudgetError(
                "calibration='paper' with sampling takes an (epsilon, delta) budget: Eq. 3.6 "
                "solves for epsilon"
            )
        return gaussian_sigma(equivalent_rho(budget), width)
    if sampling < 1:
        return amplified_sigma_ru(budget.epsilon, budget.delta, sampling).sigma * width
    return gaussian_sigma(textbook_rho(budget.epsilon, budget.delta), width)
