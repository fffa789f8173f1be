"""Calibrations as printed in the papers, with their true cost.

For reproduction only. The formulas use the constants as printed. The event uses the true gradient
and curvature bounds, so a ledger reports the true cost, not the paper's claim. Errata
A2-A4, A9, P2, P3, R2.

Parameters of all functions for objective perturbation: `dim` is the number of parameters d,
`records` the largest number of records. `gradient_bound` and `curvature` are the true bounds of a
record's gradient norm and of its Hessian's trace
(`dpb_gym.privacy.objective_perturbation.LossBounds`). `q` splits the budget between noise and
ridge. All raise `ParameterError` if a parameter is out of range.
"""

from __future__ import annotations

import math

from dpb_gym import portable, validation
from dpb_gym.errors import ParameterError
from dpb_gym.privacy.events import PoissonGaussianEvent
from dpb_gym.privacy.objective_perturbation import OUTPUT_SHARE, LossBounds, ObjectivePerturbation


def _checked(epsilon: float, delta: float = 0.5, q: float = 0.5) -> tuple[float, float, float]:
    return (
        validation.real("epsilon", epsilon, 0.0, open_low=True),
        validation.real("delta", delta, 0.0, 1.0, open_low=True, open_high=True),
        validation.real("q", q, 0.0, 1.0, open_low=True, open_high=True),
    )


def objective_cs(
    rho: float,
    *,
    dim: int,
    rank: int,
    gradient_bound: float = 2.0,
    eigenvalue: float = 4.0,
    curvature: float = 1.0,
    q: float = 0.5,
    records: int = 0,
) -> ObjectivePerturbation:
    """Return the plan of CS, Theorem 1, nominal rho-zCDP of one release.

    The defaults are those of Algorithm 2, for the multinomial logit. The part q of rho is for the
    noise.

    Args:
        rank: R of the theorem; the paper takes min(d, K-1), correct is min(d, K) (A2). 0, which
            is K = 1, raises: the printed formula divides by zero.
        gradient_bound: L of the theorem.
        eigenvalue: eta of the theorem; the paper takes 4, correct is 1 (A3).
    """
    rho = validation.real("rho", rho, 0.0, open_low=True)
    q = validation.real("q", q, 0.0, 1.0, open_low=True, open_high=True)
    eigenvalue = validation.real("eigenvalue", eigenvalue, 0.0, open_low=True)
    if rank == 0:
        raise ParameterError(
            "the printed rank min(d, K-1) is 0 at K=1 and its formula divides by zero (erratum "
            "A2); the rank with an outside option is min(d, K)"
        )
    loss = LossBounds(dim, gradient_bound, curvature, records)
    ridge = eigenvalue / portable.expm1((1 - q) * rho / validation.integer("rank", rank, 1))
    return loss.plan(ridge, loss.sigma_all_orders(q * rho), rho * OUTPUT_SHARE)


def objective_cs_approx(
    epsilon: float,
    delta: float,
    *,
    dim: int,
    rank: int,
    gradient_bound: float = 2.0,
    eigenvalue: float = 4.0,
    curvature: float = 1.0,
    q: float = 0.5,
    records: int = 0,
    corrected: bool = False,
) -> ObjectivePerturbation:
    """Return the plan of CS, Theorem 5: nominal (epsilon, delta) of one release, for a benchmark.

    Args:
        rank: R of the theorem.
        eigenvalue: eta of the theorem.
        corrected: Use ``eigenvalue rank / ((1-q) epsilon)`` for the ridge, which the proof
            needs, instead of the printed ``(1-q) eigenvalue rank / epsilon`` (erratum A9).
    """
    epsilon, delta, q = _checked(epsilon, delta, q)
    loss = LossBounds(dim, gradient_bound, curvature, records)
    log = portable.log(2 / delta)
    # tail bound of a chi-squared variable with d degrees of freedom
    radius = loss.dim + 2 * math.sqrt(loss.dim * log) + 2 * log
    spread = math.sqrt(radius) + math.sqrt(radius + 2 * q * epsilon)
    ridge = eigenvalue * validation.integer("rank", rank, 1) / epsilon
    ridge = ridge / (1 - q) if corrected else ridge * (1 - q)
    return loss.plan(ridge, loss.gradient_bound * spread / (q * epsilon), 1e-6 * epsilon**2)


def objective_csw(
    epsilon: float,
    delta: float,
    *,
    dim: int,
    gradient_constant: float,
    curvature_constant: float,
    gradient_bound: float,
    curvature: float,
    ridge: float = 0.0,
    records: int = 0,
) -> ObjectivePerturbation:
    """Return the plan of CSW, Algorithm 3: nominal (epsilon, delta) of one release.

    After Kifer et al. (2012). The paper solves under ``|theta| <= 2``. Here the minimiser is
    unconstrained and a policy projects it, which is post-processing.

    Args:
        gradient_constant: B1 of the algorithm.
        curvature_constant: B2 of the algorithm (two readings, erratum P5).
        ridge: The algorithm's rho, a lower bound of the ridge.
    """
    epsilon, delta, _ = _checked(epsilon, delta)
    loss = LossBounds(dim, gradient_bound, curvature, records)
    # Kifer et al.: the noise of a normal linear term
    variance = 8 * portable.log(2 / delta) + 4 * epsilon
    variance *= gradient_constant * gradient_constant / (epsilon * epsilon)
    floor = max(ridge, 2 * curvature_constant / epsilon)
    return loss.plan(floor, math.sqrt(variance), 1e-6 * epsilon**2)


RU_ORDERS = (2, 3, 4, 5, 6, 8, 16, 32, 64)


def amplified_sigma_ru(epsilon: float, delta: float, q: float) -> PoissonGaussianEvent:
    """Return the event of RU, Eq. 3.6, the noise of a Poisson-sampled batch of rewards.

    The equation is not an upper bound (erratum R2): at delta = 1e-5 and q = 0.3 a nominal epsilon
    of 1 costs 14.0. The event states the true cost.

    Args:
        epsilon: Nominal epsilon.
        delta: delta.
        q: Probability with which each reward is included.

    Returns:
        The true accounting event; its `sigma` is the paper's noise, before rescaling by 1/q.

    Raises:
        ParameterError: If Eq. 3.6 reaches the nominal epsilon at no sigma.

    Example:
        >>> from dpb_gym.privacy import Composition, Guarantee
        >>> event = amplified_sigma_ru(1.0, 1e-5, q=0.3)
        >>> curve = Composition.of(event)
        >>> round(Guarantee("central", "reward", curve=curve).epsilon(1e-5), 1)
        14.0
    """
    epsilon, delta, _ = _checked(epsilon, delta)
    q = validation.real("q", q, 0.0, 1.0, open_low=True)
    log = portable.log(1 / delta)
    if epsilon <= log / (RU_ORDERS[-1] - 1):
        raise ParameterError(
            f"log(1/delta)/(order - 1) alone is {log / (RU_ORDERS[-1] - 1):.3g} at the largest of "
            f"the paper's orders: Eq. 3.6 never reaches epsilon={epsilon:g}"
        )
    # the nominal epsilon falls in sigma, over any scale that a paper can mean
    low, high = 1e-6, 1e6
    for _ in range(200):
        middle = math.sqrt(low * high)
        nominal = min(_equation_3_6(q, middle, a) + log / (a - 1) for a in RU_ORDERS)
        low, high = (low, middle) if nominal <= epsilon else (middle, high)
    return PoissonGaussianEvent(q, high)


def _equation_3_6(q: float, sigma: float, order: int) -> float:
    log_ratio = 0.5 * portable.log(2 * q * q) - portable.log(sigma)
    logs = [0.0] + [portable.log(math.comb(order, j)) + j * log_ratio for j in range(2, order + 1)]
    # factored out, because binomial coefficients of order 64 overflow in sums of exponentials
    largest = max(logs)
    return (largest + portable.log(sum(portable.exp(v - largest) for v in logs))) / (order - 1)
