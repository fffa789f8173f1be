"""Private maximum-likelihood releaser of priced demand (CSW, Algorithm 3)."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np

from dpb_agents import kernels as agent_kernels
from dpb_agents.pricing.demand_records import MODELS, DemandRecords
from dpb_agents.pricing.paper_constants import RADIUS, Demand
from dpb_gym.privacy import Curator, Minimiser, ObjectivePerturbation
from dpb_gym.problems.base import Array

MAX_SEARCHES = 60  # steps of the search for the multiplier of the constraint
SLACK = 100.0  # factor of the solver's tolerance and of the output noise that covers it


class PrivateMLE(Minimiser):
    """Objective perturbation over ``||theta|| <= 2``, released replicate by replicate.

    The constraint costs no privacy. It is the limit of growing convex penalties, the same for
    both data sets, which only add to the curvature that the bound divides by, and divergences
    are lower semicontinuous. Where it binds, the minimiser is that of a larger ridge, which a
    secant search finds. The result is certified: a point of the sphere whose gradient, up to a
    multiple of theta, has norm at most `plan.tolerance`. For Gaussian demand the constraint
    bounds the gradient (the loss may be continued linearly where ``|<phi, theta>| > 2``).

    Each record is clipped when it is added, phi to the unit ball and demand to the model's range,
    and rounded to 4 d + 1 bytes (see `DemandRecords`). Both act on single records, which costs no
    privacy. Records cannot be folded into sums as in a non-private fit: every refit needs the
    loss of every record at a new theta. They are dropped after the last release.

    Args:
        curator: Curator whose budget it uses.
        dim: Number of parameters d.
        horizon: Largest number of records per replicate.
        demand: The demand model.
        **options: See `Minimiser`. Tolerance and the output noise that covers it are both 100
            times larger than there, at the same cost.
    """

    def __init__(
        self, curator: Curator, dim: int, horizon: int, demand: Demand, **options: Any
    ) -> None:
        B = curator.replicates
        # its bounds follow from the model, whatever the instance states
        demand = Demand.of(demand.kind, demand.zeta, demand.high)
        self.records = DemandRecords(B, dim, horizon, (demand.low, demand.high), compact=True)
        self._demand = demand
        self._model = MODELS.index(demand.kind)
        self._theta = np.zeros((B, dim))
        self._hessian = np.zeros((B, dim, dim))
        self._norm = np.zeros(B)
        super().__init__(
            curator,
            dim,
            gradient_bound=demand.gradient_bound,
            curvature=demand.curvature,
            records=horizon,
            **options,
        )

    def _calibrated(self, rho: float) -> ObjectivePerturbation:
        plan = super()._calibrated(rho)
        return replace(plan, tolerance=SLACK * plan.tolerance, output_std=SLACK * plan.output_std)

    def add(self, features: Array, price: Array, demand: Array) -> None:
        """Store one record per replicate; see `Estimator.add`."""
        self.records.add(features, price, demand)

    def add_rounds(self, features: Array, price: Array, demand: Array) -> None:
        """Store the records of n rounds; see `DemandRecords.add_rounds`."""
        self.records.add_rounds(features, price, demand)

    def release(self, due: Array) -> Array:
        """Return private estimates ``(B, d)``, updated where `due`; see `Minimiser.release`."""
        estimates = super().release(due)
        if (self.calls == self.max_calls).all():
            self.records.drop()
        shrunk: Array = (
            estimates * np.minimum(1.0, RADIUS / np.maximum(_norms(estimates), RADIUS / 2))[:, None]
        )
        return shrunk

    def memory(self, rounds: int | None = None) -> int:
        return self.records.memory(rounds)

    def minimise(
        self, due: Array, linear: Array, ridge: float, tolerance: float
    ) -> tuple[Array, Array]:
        self._linear, self._precision = linear, 0.5 * tolerance
        self._newton(due, ridge, 0.0, self._theta)
        for b in np.flatnonzero(due & (_norms(self._theta) > RADIUS)):
            self._search_sphere(int(b), ridge)
            if self._norm[b] > tolerance:  # lengths of so inexact minimisers do not differ
                self._precision = 0.0
                self._search_sphere(int(b), ridge)
                self._precision = 0.5 * tolerance
        return self._theta, self._norm

    def derivatives(self, theta: Array) -> tuple[Array, Array]:
        B, d = theta.shape
        loss = np.zeros(B)
        gradient = np.zeros((B, d))
        hessian = np.zeros((B, d, d))
        known = (self._model, self._demand.zeta, np.ones(B, bool))
        agent_kernels.demand.add_demands(
            *self.records.stored, *known, theta, loss, gradient, hessian
        )
        lower = np.tril(hessian)
        return gradient, lower + np.tril(hessian, -1).transpose(0, 2, 1)

    def _newton(self, due: Array, ridge: float, decrement: float, theta: Array) -> None:
        known = (due, self._model, self._demand.zeta, ridge, self._hessian, self._linear)
        stops = (decrement, self._precision)
        agent_kernels.demand.newton(*self.records.stored, *known, *stops, theta, self._norm)

    def _search_sphere(self, b: int, ridge: float) -> None:
        """Replace the minimiser of replicate b, which is outside the ball, by the constrained one.

        1/||theta|| is nearly linear in the ridge, and exactly linear without data.
        """
        due = np.zeros(len(self._norm), bool)
        due[b] = True
        theta = self._theta
        low = ridge
        high = math.inf
        last = ridge
        size = _size(theta[b])
        guess = ridge * size / RADIUS
        for _ in range(MAX_SEARCHES):
            self._newton(due, guess, 0.0, theta)
            norm = _size(theta[b])
            if abs(norm - RADIUS) <= 1e-13 * RADIUS:
                break
            low, high = (guess, high) if norm > RADIUS else (low, guess)
            slope = (1 / norm - 1 / size) / (guess - last) if guess != last else 0.0
            last = guess
            size = norm
            if slope > 0.0:
                guess += (1 / RADIUS - 1 / norm) / slope
            if slope <= 0.0 or not low < guess < high:
                guess = 0.5 * (low + high) if math.isfinite(high) else 2 * low
            if not low < guess < high:
                guess = last  # the bracket is as narrow as rounding allows
                break
        theta[b] *= RADIUS / _size(theta[b])
        self._newton(due, guess, math.inf, theta.copy())


def _size(vector: Array) -> float:
    return math.sqrt(sum(float(value * value) for value in vector))


def _norms(vectors: Array) -> Array:
    squares = np.zeros(len(vectors))
    for k in range(vectors.shape[1]):
        squares += vectors[:, k] ** 2
    norms: Array = np.sqrt(squares)
    return norms
