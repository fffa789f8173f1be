"""The papers' calibrations, literally, with the guarantee that they really give.

For reproduction only. The formulas take the constants as printed; the event is built from the
true gradient and curvature bounds, so a ledger reports what is delivered, never what the paper
prints. Errata A2-A4, A9, P2, P3, P6, R2.
"""

from __future__ import annotations

import math

from dpb_gym import portable, validation
from dpb_gym.errors import ParameterError
from dpb_gym.privacy.events import PoissonGaussianEvent
from dpb_gym.privacy.objective import (
    OUTPUT_SHARE,
    ObjectivePerturbation,
    _sigma_all_orders,
    finish,
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
    """CS, Theorem 1 and Algorithm 2: nominal rho-zCDP.

    Args:
        rho: Nominal zCDP of one release.
        dim: Number of parameters d.
        rank: R of the theorem; the paper takes min(d, K-1), correct is min(d, K) (A2).
        gradient_bound: L.
        eigenvalue: eta of the theorem; the paper takes 4, correct is 1 (A3).
        curvature: True bound of the trace of a record's Hessian, for the reported guarantee.
        q: Split between noise and ridge.
        records: Largest number of records.

    Raises:
        ParameterError: If the rank is 0 (K = 1, where the printed formula divides by zero), or
            a parameter is out of range.
    """
    validation.real("rho", rho, 0.0, open_low=True)
    if rank == 0:
        raise ParameterError(
            "the printed rank min(d, K-1) is 0 at K=1 and its formula divides by zero (erratum "
            "A2); the rank with an outside option is min(d, K)"
        )
    validation.integer("rank", rank, 1)
    validation.real("q", q, 0.0, 1.0, open_low=True, open_high=True)
    return finish(
        ridge=eigenvalue / portable.expm1((1 - q) * rho / rank),
        curvature=curvature,
        sigma=_sigma_all_orders(q * rho, validation.integer("dim", dim, 1), gradient_bound),
        dim=dim,
        bound=gradient_bound,
        records=records,
        rho_output=rho * OUTPUT_SHARE,
    )


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
    """CS, Theorem 5: nominal (epsilon, delta), for their benchmark.

    Args:
        epsilon: Nominal epsilon of one release.
        delta: Nominal delta of one release.
        dim: Number of parameters d.
        rank: R of the theorem.
        gradient_bound: L.
        eigenvalue: eta of the theorem.
        curvature: True bound of the trace of a record's Hessian, for the reported guarantee.
        q: Split between noise and ridge.
        records: Largest number of records.
        corrected: Use ``eigenvalue rank / ((1-q) epsilon)`` for the ridge, which the proof
            needs, instead of the printed ``(1-q) eigenvalue rank / epsilon`` (erratum A9).
    """
    validation.real("epsilon", epsilon, 0.0, open_low=True)
    validation.real("delta", delta, 0.0, 1.0, open_low=True, open_high=True)
    validation.real("q", q, 0.0, 1.0, open_low=True, open_high=True)
    log = portable.log(2 / delta)
    radius = dim + 2 * math.sqrt(dim * log) + 2 * log
    spread = math.sqrt(radius) + math.sqrt(radius + 2 * q * epsilon)
    ridge = eigenvalue * validation.integer("rank", rank, 1) / epsilon
    return finish(
        ridge=ridge / (1 - q) if corrected else ridge * (1 - q),
        curvature=curvature,
        sigma=gradient_bound * spread / (q * epsilon),
        dim=validation.integer("dim", dim, 1),
        bound=gradient_bound,
        records=records,
        rho_output=1e-6 * epsilon**2,
    )


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
    """CSW, Algorithm 3: nominal (epsilon, delta), after Kifer, Smith & Thakurta (2012).

    The paper solves under ``|theta| <= 2``; here the minimiser is unconstrained and a policy
    projects it, which is post-processing.

    Args:
        epsilon: Nominal epsilon of one release.
        delta: Nominal delta of one release.
        dim: Number of parameters d.
        gradient_constant: B1 of the algorithm.
        curvature_constant: B2 of the algorithm (two readings, erratum P5).
        gradient_bound: True bound of a record's gradient norm (zeta, erratum P6).
        curvature: True bound of the trace of a record's Hessian (zeta^2/4).
        ridge: The algorithm's rho, a floor of the ridge.
        records: Largest number of records.
    """
    validation.real("epsilon", epsilon, 0.0, open_low=True)
    validation.real("delta", delta, 0.0, 1.0, open_low=True, open_high=True)
    variance = 8 * portable.log(2 / delta) + 4 * epsilon
    variance *= gradient_constant * gradient_constant / (epsilon * epsilon)
    return finish(
        ridge=max(ridge, 2 * curvature_constant / epsilon),
        curvature=curvature,
        sigma=math.sqrt(variance),
        dim=validation.integer("dim", dim, 1),
        bound=gradient_bound,
        records=records,
        rho_output=1e-6 * epsilon**2,
    )


RU_ORDERS = (2, 3, 4, 5, 6, 8, 16, 32, 64)


def amplified_sigma_ru(epsilon: float, delta: float, q: float) -> PoissonGaussianEvent:
    """RU, Eq. 3.6: the noise that the paper adds to a Poisson-sampled batch of rewards.

    The equation is no upper bound (erratum R2): at delta = 1e-5 and q = 0.3 a nominal epsilon
    of 1 really costs 14.0. The event returned is the true one.

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
    epsilon = validation.real("epsilon", epsilon, 0.0, open_low=True)
    delta, q = (
        validation.real("delta", delta, 0.0, 1.0, open_low=True, open_high=True),
        validation.real("q", q, 0.0, 1.0, open_low=True),
    )
    log = portable.log(1 / delta)
    if epsilon <= log / (RU_ORDERS[-1] - 1):
        raise ParameterError(
            f"log(1/delta)/(order - 1) alone is {log / (RU_ORDERS[-1] - 1):.3g} at the largest of "
            f"the paper's orders: Eq. 3.6 never reaches epsilon={epsilon:g}"
        )
    low, high = 1e-6, 1e6
    for _ in range(200):
        middle = math.sqrt(low * high)
        nominal = min(_equation_3_6(q, middle, a) + log / (a - 1) for a in RU_ORDERS)
        low, high = (low, middle) if nominal <= epsilon else (middle, high)
    return PoissonGaussianEvent(q, high)


def _equation_3_6(q: float, sigma: float, order: int) -> float:
    log_ratio = 0.5 * portable.log(2 * q * q) - portable.log(sigma)
    logs = [0.0] + [portable.log(math.comb(order, j)) + j * log_ratio for j in range(2, order + 1)]
    largest = max(logs)
    return (largest + portable.log(sum(portable.exp(v - largest) for v in logs))) / (order - 1)
