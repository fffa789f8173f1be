"""Objective perturbation: ridge and noise that make a regularised MLE private.

The released parameter is ``argmin sum_i loss_i(theta) + ridge/2 |theta|^2 + b.theta`` with
``b ~ N(0, sigma^2 I)``. Every loss is convex and twice differentiable, its gradient's norm at
most `gradient_bound` L, its Hessian's trace at most `curvature` beta, at every theta and for
every record. Neighbours exchange one record, so gradients move by at most ``2 L``.

`docs/privacy.md` proves the two bounds that a `PerturbedObjectiveEvent` combines.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import ClassVar

import numpy as np

from dpb_gym import state, validation
from dpb_gym.portable import bisect
from dpb_gym.privacy.events import Event
from dpb_gym.validation import FloatArray

TRUNCATED_CONSTANT = 1.16
OUTPUT_SHARE = 1e-4


@dataclass(frozen=True)
class PerturbedObjectiveEvent(Event):
    """`count` releases by objective perturbation.

    With ``t = curvature / ridge``, ``D = sensitivity`` and d = `dim`, the Renyi divergence at
    order a is at most the smaller of

    * verified, for ``a < 1 + 1/t`` and ``a <= 1/t^2``:
      ``a D^2/(2 sigma^2) + [log(1+t) - log(1+a t) - log(1-(a-1) t)] / (a-1)``,
    * at every order (erratum A4): ``t + D sqrt(d)/sigma + a D^2/(2 sigma^2)``,

    plus the cost of covering the inexact minimiser. `zcdp` is the supremum of the sum over the
    order, over all orders > 1.

    Attributes:
        ratio: t, trace bound of a record's Hessian over the ridge.
        sigma: Standard deviation of the linear term per coordinate.
        sensitivity: Largest change of the summed gradient, 2 L for replace-one.
        dim: Number of parameters.
        output_mu: Distance of two inexact minimisers over the output noise.
        count: Number of releases that one record can affect.
    """

    kind: ClassVar[str] = "perturbed-objective"
    ratio: float
    sigma: float
    sensitivity: float
    dim: int
    output_mu: float = 0.0
    count: int = 1

    @property
    def _slope(self) -> float:
        return 0.5 * (self.sensitivity / self.sigma) ** 2

    @property
    def _offset(self) -> float:
        return self.ratio + self.sensitivity * math.sqrt(self.dim) / self.sigma

    def verified(self, orders: FloatArray) -> FloatArray:
        """Return the verified bound of one release; infinite outside its orders."""
        limit = min(1 + 1 / self.ratio, 1 / (self.ratio * self.ratio))
        inside = (orders < 1 + 1 / self.ratio) & (orders <= limit)
        a = np.where(inside, orders, 1.0 + 0.25 / (1 + self.ratio))
        return np.where(inside, self._slope * a + _curvature_term(self.ratio, a), math.inf)

    def all_orders(self, orders: FloatArray) -> FloatArray:
        """Return the bound of one release that holds at every order."""
        return self._offset + self._slope * orders

    def rdp(self, orders: FloatArray) -> FloatArray:
        best = np.minimum(self.verified(orders), self.all_orders(orders))
        return self.count * (best + 0.5 * self.output_mu**2 * orders)

    @property
    def zcdp(self) -> float:
        return self.count * (self._slope + _extra(self) + 0.5 * self.output_mu * self.output_mu)


def _curvature_term(t: float, a: FloatArray) -> FloatArray:
    """Return [log(1+t) - log(1+a t) - log(1-(a-1) t)] / (a-1), without cancellation."""
    u = a - 1
    return -(np.log1p(u * t / (1 + t)) + np.log1p(-u * t)) / u


@lru_cache(maxsize=4096)  # every block of replicates has the same plan
def _extra(event: PerturbedObjectiveEvent) -> float:
    """Return the supremum over orders a of (smaller bound - slope a) / a, rounded up.

    The verified bound's share increases in a, the other's decreases, so the supremum is at their
    intersection. The result is the decreasing one at the lower end of a bracket of two floats.
    """
    t = event.ratio
    offset = event._offset
    limit = min(1 / t, 1 / (t * t) - 1)
    if limit <= 0:
        return offset
    high = limit * (1 - 1e-12)

    def growing(u: float) -> float:
        return float(_curvature_term(t, np.array([1 + u]))[0])

    # the curves do not meet before the last order of the verified bound
    if growing(high) <= offset:
        return offset / (1 + high)
    return offset / (1 + bisect(lambda u: growing(u) <= offset, 0.0, high)[0])


@state.register
@dataclass(frozen=True)
class ObjectivePerturbation:
    """Calibration of one private MLE: ridge, noise, solver tolerance and cost. All is public.

    Attributes:
        dim: Number of parameters d.
        ridge: Lambda.
        sigma: Standard deviation of the linear term b per coordinate.
        tolerance: Gradient norm that a minimiser must reach.
        output_std: Standard deviation of the noise added to the minimiser, which covers its
            inexactness: the distance of two minimisers of gradient norm at most `tolerance`
            exceeds that of the exact ones by at most ``2 tolerance / ridge``.
        event: Cost of one release.
    """

    dim: int
    ridge: float
    sigma: float
    tolerance: float
    output_std: float
    event: PerturbedObjectiveEvent

    def __post_init__(self) -> None:
        validation.settle(self, "dim", validation.integer, 1)
        for name in ("ridge", "sigma", "tolerance", "output_std"):
            validation.settle(self, name, validation.real, 0.0)


@state.register
@dataclass(frozen=True)
class LossBounds:
    """True bounds of a summed loss, from which a plan's cost follows.

    Attributes:
        dim: Number of parameters d.
        gradient_bound: L, bound of a record's gradient norm (MNL with outside option and
            contexts in the unit ball: 2; logistic with link scale zeta: zeta).
        curvature: beta, bound of the **trace** of a record's Hessian (MNL: 1; logistic with
            link scale zeta: zeta^2/4).
        records: Largest number of records, for the solver's tolerance.

    Raises:
        ParameterError: If one is out of range.
    """

    dim: int
    gradient_bound: float
    curvature: float
    records: int = 0

    def __post_init__(self) -> None:
        validation.settle(self, "dim", validation.integer, 1)
        validation.settle(self, "records", validation.integer, 0)
        for name in ("gradient_bound", "curvature"):
            validation.settle(self, name, validation.real, 0.0, open_low=True)

    def plan(self, ridge: float, sigma: float, rho_output: float) -> ObjectivePerturbation:
        """Return the plan of a (ridge, sigma) pair, with solver tolerance and output noise.

        Args:
            ridge: Lambda.
            sigma: Standard deviation of the linear term.
            rho_output: zCDP to spend on covering the inexact minimiser.
        """
        # the second term is the rounding error of gradients of that size in double precision
        size = 4 * sigma * math.sqrt(self.dim) + 4 * self.gradient_bound * self.records
        tolerance = 1e-10 + 1e-14 * size
        mu = math.sqrt(2 * rho_output)
        event = PerturbedObjectiveEvent(
            self.curvature / ridge, sigma, 2 * self.gradient_bound, self.dim, mu
        )
        # two inexact minimisers are at most 2 tolerance / ridge farther apart than the exact ones
        output_std = 2 * tolerance / (ridge * mu)
        return ObjectivePerturbation(self.dim, ridge, sigma, tolerance, output_std, event)

    def sigma_all_orders(self, rho: float) -> float:
        """Return sigma with ``2 L sqrt(d)/sigma + 2 L^2/sigma^2 = rho`` (CS, Theorem 1)."""
        # solves the quadratic in 1 / sigma without cancellation
        root = math.sqrt(self.dim + 2 * rho) + math.sqrt(self.dim)
        return self.gradient_bound * root / rho


def objective_plan(
    rho: float,
    *,
    dim: int,
    gradient_bound: float,
    curvature: float,
    calls: int = 1,
    records: int = 0,
    method: str = "verified",
    every_order: bool = True,
) -> ObjectivePerturbation:
    """Return ridge and noise of a private MLE that spends `rho` over `calls` releases.

    Args:
        rho: zCDP of all releases together.
        dim: See `LossBounds`; `gradient_bound`, `curvature` and `records` too.
        gradient_bound: L.
        curvature: beta.
        calls: Largest number of releases.
        records: Largest number of records.
        method: ``"verified"`` or ``"zcdp"`` (CS, Theorem 1, with errata A3 and A4). The latter
            needs far more noise, and its event, the smaller bound, costs less than `rho`.
        every_order: For ``"verified"``. True: `rho` holds at every Renyi order, and half of it is
            for the curvature. False: `rho` holds up to order ``1 + ridge/(2 beta)``, a tenth is
            for the curvature, and there is less noise. Use False for (epsilon, delta) budgets,
            which account for the whole curve.

    Returns:
        The calibration of one release.

    Raises:
        ParameterError: If a parameter is out of range.

    Example:
        >>> plan = objective_plan(1.0, dim=5, gradient_bound=2.0, curvature=1.0)
        >>> round(plan.ridge, 2), round(plan.sigma, 2), round(plan.event.zcdp, 6)
        (3.98, 4.0, 1.0)
    """
    loss = LossBounds(dim, gradient_bound, curvature, records)
    validation.choice("method", method, ("verified", "zcdp"))
    each = validation.real("rho", rho, 0.0, open_low=True) / validation.integer("calls", calls, 1)
    # a little less than rho, so that rounding cannot exceed it
    usable = each * (1 - OUTPUT_SHARE) * (1 - 1e-12)
    if method == "zcdp":
        ratio = 0.5 * usable
        sigma = loss.sigma_all_orders(0.5 * usable)
    else:
        share = 0.5 if every_order else 0.1
        distance = 2 * loss.gradient_bound
        sigma = distance / math.sqrt(2 * (1 - share) * usable)
        # the proof holds for ratios up to 0.7
        ratio = min(math.sqrt(share * usable / TRUNCATED_CONSTANT), 0.7)
        if every_order:
            event = PerturbedObjectiveEvent(ratio, sigma, distance, loss.dim)
            ratio, _ = bisect(lambda t: _extra(replace(event, ratio=t)) <= share * usable, 0.0, 0.7)
    return loss.plan(loss.curvature / ratio, sigma, each * OUTPUT_SHARE)
