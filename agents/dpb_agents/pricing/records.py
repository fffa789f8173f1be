"""The raw demand records of B replicates and the exact maximum-likelihood releaser.

Everything here stands on the curator's side of the privacy boundary: it holds raw records
and hands out estimates. Policies see only what `release` returns.
"""

from __future__ import annotations

from typing import Protocol

import numpy as np

from dpb_gym import kernels
from dpb_gym.errors import HorizonExceeded, ParameterError
from dpb_gym.problems.base import Array

FIRST_CAPACITY = 256
MODELS = ("logistic", "gaussian")


class Estimator(Protocol):
    """Raw demand records in, estimates of theta out."""

    def add(self, features: Array, price: Array, demand: Array) -> None:
        """Ingests one record per replicate: x ``(B, d - 1)``, price and demand ``(B,)``."""

    def release(self, due: Array) -> Array:
        """Estimates ``(B, d)``, renewed where `due` ``(B,)`` is True."""


class DemandRecords:
    """Growing store of (x, price, demand).

    Args:
        replicates: Number of replicates B.
        dim: Dimension d of theta; x has d - 1 numbers.
        horizon: Largest number of records per replicate.
    """

    def __init__(self, replicates: int, dim: int, horizon: int) -> None:
        self.horizon = horizon
        self.count = 0
        capacity = min(horizon, FIRST_CAPACITY)
        self.features = np.empty((replicates, capacity, dim - 1), np.float32)
        self.price = np.empty((replicates, capacity))
        self.demand = np.empty((replicates, capacity))

    def add(self, features: Array, price: Array, demand: Array) -> None:
        """Stores one record per replicate.

        Raises:
            HorizonExceeded: If the horizon is full.
            ParameterError: If a number is not finite; nothing is stored.
        """
        if self.count == self.horizon:
            raise HorizonExceeded(f"these records were declared for {self.horizon} rounds")
        for name, value in (("features", features), ("price", price), ("demand", demand)):
            if not np.isfinite(value).all():
                raise ParameterError(f"{name} must be finite, got NaN or infinity")
        if self.count == self.price.shape[1]:
            self._grow()
        self.features[:, self.count] = features
        self.price[:, self.count] = price
        self.demand[:, self.count] = demand
        self.count += 1

    def _grow(self) -> None:
        capacity = min(self.horizon, 2 * self.count)
        for name in ("features", "price", "demand"):
            old = getattr(self, name)
            new = np.empty((old.shape[0], capacity, *old.shape[2:]), old.dtype)
            new[:, : self.count] = old
            setattr(self, name, new)


class ExactMLE:
    """Ridge-regularised maximum likelihood of the demand model, without noise.

    The non-private twin of objective perturbation: the same loss, no noise. A release
    costs O(n d^2), warm-started at the last one; between releases nothing is computed.

    Args:
        replicates: Number of replicates B.
        dim: Dimension d.
        horizon: Largest number of records per replicate.
        demand: ``"logistic"`` or ``"gaussian"``.
        zeta: Link scale of the logistic model, unused otherwise.
        ridge: Weight of ``||theta||^2 / 2``, positive.
        tolerance: Excess of the loss over its minimum before the last Newton step.
    """

    def __init__(
        self,
        replicates: int,
        dim: int,
        horizon: int,
        demand: str,
        zeta: float | None,
        ridge: float,
        tolerance: float = 1e-5,
    ) -> None:
        self.records = DemandRecords(replicates, dim, horizon)
        self._model = MODELS.index(demand)
        self._zeta = 1.0 if zeta is None else zeta
        self.ridge = ridge
        self.tolerance = tolerance
        self._theta = np.zeros((replicates, dim))
        self._linear = np.zeros((replicates, dim))
        self._norm = np.zeros(replicates)

    def add(self, features: Array, price: Array, demand: Array) -> None:
        """Stores one record per replicate; see `DemandRecords.add`."""
        self.records.add(features, price, demand)

    def release(self, due: Array) -> Array:
        """Estimates ``(B, d)``, renewed where `due`; the others as they were."""
        records = self.records
        kernels.glm_fit.newton(
            records.features,
            records.price,
            records.demand,
            records.count,
            due,
            self._model,
            self._zeta,
            self.ridge,
            self._linear,
            self.tolerance,
            self._theta,
            self._norm,
        )
        return self._theta.copy()
