"""The raw choice records of B replicates and the exact maximum-likelihood releaser.

Everything here stands on the curator's side of the privacy boundary: it holds raw records
and hands out estimates. Policies never import the records, only what `release` returns.
"""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from dpb_agents import kernels as zoo
from dpb_gym.errors import HorizonExceeded, ParameterError

Array = NDArray[Any]
FIRST_CAPACITY = 256


class Estimator(Protocol):
    """Raw choice records in, estimates of theta out."""

    def add(self, features: Array, slates: Array, choice: Array) -> None:
        """Ingests one record per replicate: features ``(B, N, d)``, slates ``(B, K)``
        without repeated items, choice ``(B,)`` (position in the slate or -1)."""

    def release(self, due: Array) -> Array:
        """Estimates ``(B, d)``, renewed where `due` ``(B,)`` is True."""


class ChoiceRecords:
    """Growing store of (features of the offered items, bought item), float32.

    Args:
        replicates: Number of replicates B.
        slots: Largest size of a slate, K.
        dim: Dimension d.
        horizon: Largest number of records per replicate.
        clip: Whether to move every feature vector into the unit ball.
    """

    def __init__(
        self, replicates: int, slots: int, dim: int, horizon: int, clip: bool = False
    ) -> None:
        self.horizon = horizon
        self.clip = clip
        self.count = 0
        capacity = min(horizon, FIRST_CAPACITY)
        self.x = np.empty((replicates, capacity, slots, dim), np.float32)
        self.offered = np.empty((replicates, capacity), np.int32)
        self.chosen = np.empty((replicates, capacity), np.int32)

    def add(self, features: Array, slates: Array, choice: Array) -> None:
        """Stores one record per replicate.

        Raises:
            HorizonExceeded: If the horizon is full.
            ParameterError: If a feature vector is not finite.
        """
        if self.count == self.horizon:
            raise HorizonExceeded(f"these records were declared for {self.horizon} rounds")
        if self.count == self.x.shape[1]:
            self._grow()
        finite = zoo.choices.store(
            features, slates, choice, self.clip, self.count, self.x, self.offered, self.chosen
        )
        if not finite:
            raise ParameterError("features must be finite, got NaN or infinity")
        self.count += 1

    def _grow(self) -> None:
        capacity = min(self.horizon, 2 * self.count)
        for name in ("x", "offered", "chosen"):
            old = getattr(self, name)
            new = np.empty((old.shape[0], capacity, *old.shape[2:]), old.dtype)
            new[:, : self.count] = old
            setattr(self, name, new)


class ExactMLE:
    """Ridge-regularised maximum likelihood of the multinomial logit, without noise.

    The non-private twin of objective perturbation: the same loss, the same Newton
    method, no noise. A release costs O(n K d^2); between releases nothing is computed.

    Args:
        replicates: Number of replicates B.
        slots: Largest size of a slate, K.
        dim: Dimension d.
        horizon: Largest number of records per replicate.
        ridge: Weight of ``||theta||^2 / 2``, positive.
        tolerance: Squared Newton decrement (twice the excess loss, about) of the point
            before the last step.
    """

    def __init__(
        self,
        replicates: int,
        slots: int,
        dim: int,
        horizon: int,
        ridge: float = 1.0,
        tolerance: float = 1e-4,
    ) -> None:
        self.records = ChoiceRecords(replicates, slots, dim, horizon)
        self.ridge = ridge
        self.tolerance = tolerance
        self._theta = np.zeros((replicates, dim))
        self._linear = np.zeros((replicates, dim))
        self._hessian = np.zeros((replicates, dim, dim))
        self._seen = np.zeros(replicates, np.int64)
        self._norm = np.zeros(replicates)

    def add(self, features: Array, slates: Array, choice: Array) -> None:
        """Stores one record per replicate; see `Estimator.add`."""
        self.records.add(features, slates, choice)

    def release(self, due: Array) -> Array:
        """Estimates ``(B, d)``, renewed by warm-started Newton steps where `due`."""
        records = self.records
        zoo.choices.newton(
            records.x,
            records.offered,
            records.chosen,
            records.count,
            due,
            self.ridge,
            self._linear,
            self.tolerance,
            0.0,
            self._theta,
            self._hessian,
            self._seen,
            self._norm,
        )
        return self._theta.copy()
