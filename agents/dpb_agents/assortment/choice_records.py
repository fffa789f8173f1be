"""Raw choice records of B replicates and their maximum likelihood, private or exact.

This code is on the curator's side of the privacy boundary: it stores raw records and releases
estimates. Policies only see what `release` returns.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from dpb_agents import kernels as agent_kernels
from dpb_agents.common.record_stores import resized
from dpb_gym import kernels
from dpb_gym.errors import HorizonExceeded, ParameterError
from dpb_gym.privacy import Curator, Minimiser, RunningSum
from dpb_gym.problems.base import Array, Feedback

# Features that are allocated at first. The system provides memory where it is written.
FIRST_BYTES = 1 << 28
GRADIENT_BOUND = 2.0  # ||x|| <= 1, outside option (CS, section S.1.3)
CURVATURE = 1.0  # trace of a record's Hessian, the covariance of vectors in the ball (A3)
DECREMENT = 1e-4  # squared Newton decrement of the exact fit before its last step


def offered(action: Array, feedback: Feedback) -> Array:
    """Return the slates of a round; slates without an observed response become empty.

    An empty slate adds nothing to a sum or a likelihood.
    """
    if feedback.observed is None:
        return action
    return np.where(feedback.observed[:, None], action, -1)


class ChoiceRecords:
    """Growing store of float32 features of the offered items, and of the bought item.

    Args:
        replicates: Number of replicates B.
        slots: Largest size of a slate, K.
        dim: Dimension d.
        horizon: Largest number of records per replicate.
        clip: Whether feature vectors are clipped to the unit ball.
    """

    def __init__(
        self, replicates: int, slots: int, dim: int, horizon: int, clip: bool = False
    ) -> None:
        self.horizon = horizon
        self.clip = clip
        self.count = 0
        capacity = min(horizon, max(1, FIRST_BYTES // (4 * replicates * slots * dim)))
        self.x = np.empty((replicates, capacity, slots, dim), np.float32)
        self.offered = np.empty((replicates, capacity), np.int32)
        self.chosen = np.empty((replicates, capacity), np.int32)

    def add(self, features: Array, slates: Array, choice: Array) -> None:
        """Store one record per replicate.

        Raises:
            HorizonExceeded: If the horizon is full.
            ParameterError: If a feature vector is not finite.
        """
        if self.count == self.horizon:
            raise HorizonExceeded(f"these records were declared for {self.horizon} rounds")
        if self.count == self.x.shape[1]:
            self._grow()
        *places, n = self.stored
        if not agent_kernels.choices.store(features, slates, choice, self.clip, n, *places):
            raise ParameterError("features must be finite, got NaN or infinity")
        self.count += 1

    @property
    def stored(self) -> tuple[Array, Array, Array, int]:
        """The arrays x, offered and chosen, and the number of records."""
        return self.x, self.offered, self.chosen, self.count

    def _grow(self) -> None:
        vars(self).update(self._resized(min(self.horizon, 2 * self.count + 1)))

    def _resized(self, capacity: int) -> dict[str, Array]:
        names = ("x", "offered", "chosen")
        return {name: resized(getattr(self, name), self.count, capacity) for name in names}

    def __getstate__(self) -> dict[str, Any]:
        """Return the state without unused memory, for checkpoints and copies."""
        return {**vars(self), **self._resized(self.count)}


class ChoiceMLE(Minimiser):
    """Maximum likelihood of the multinomial logit on stored records.

    With a budget: objective perturbation. Features are clipped to the unit ball before they are
    stored, so the bounds that the calibration assumes hold for every record (erratum A8).
    Without a budget: a ridge-regularised fit of the unclipped features, whose Newton steps start
    at the last estimate.

    Args:
        curator: Curator whose budget it uses.
        slots: Largest size of a slate, K.
        dim: Dimension d.
        horizon: Largest number of records per replicate.
        clip: Whether features are clipped under a budget; False invalidates the guarantee.
        **options: See `Minimiser`.
    """

    def __init__(
        self,
        curator: Curator,
        slots: int,
        dim: int,
        horizon: int,
        clip: bool = True,
        **options: Any,
    ) -> None:
        B = curator.replicates
        self.records = ChoiceRecords(B, slots, dim, horizon, clip=clip and curator.private)
        self._theta = np.zeros((B, dim))
        self._hessian = np.zeros((B, dim, dim))
        self._seen = np.zeros(B, np.int64)
        self._norm = np.zeros(B)
        super().__init__(
            curator,
            dim,
            gradient_bound=GRADIENT_BOUND,
            curvature=CURVATURE,
            records=horizon,
            **options,
        )

    def add(self, features: Array, slates: Array, choice: Array) -> None:
        """Store one record per replicate.

        Args:
            features: ``(B, N, d)``.
            slates: ``(B, K)`` without repeated items.
            choice: ``(B,)``, position in the slate, -1 for no purchase.
        """
        self.records.add(features, slates, choice)

    def minimise(
        self, due: Array, linear: Array, ridge: float, tolerance: float
    ) -> tuple[Array, Array]:
        exact = self.plan is None
        stops = (DECREMENT, 0.0) if exact else (0.0, tolerance)
        seen = self._seen if exact else np.zeros(len(due), np.int64)
        state = self._theta, self._hessian, seen, self._norm
        agent_kernels.choices.newton(self.records.stored, due, ridge, linear, *stops, *state)
        return self._theta, self._norm

    def derivatives(self, theta: Array) -> tuple[Array, Array]:
        *stored, n = self.records.stored
        B, d = theta.shape
        loss, gradient, hessian = np.zeros(B), np.zeros((B, d)), np.zeros((B, d, d))
        terms = (np.ones(B, bool), theta, loss, gradient, hessian)
        kernels.mnl.add_choices(*stored, np.zeros(B, np.int64), n, *terms)
        lower = np.tril(hessian)
        return gradient, lower + np.tril(hessian, -1).transpose(0, 2, 1)


class EntrywiseGram:
    """Running sum of symmetric matrices with noise N(0, sigma^2) at every i <= j (CS, Lemma S7).

    Off the diagonal this is twice the variance of isometric noise. The distance between entries
    i <= j of two Gram matrices is at most that of the matrices, sqrt(2) K.

    Args:
        curator: Curator whose budget it uses.
        d: Side of the matrices.
        K: Largest number of offered items, the bound of a matrix's norm.
        **options: See `RunningSum`.
    """

    def __init__(self, curator: Curator, d: int, K: int, **options: Any) -> None:
        self._upper = np.triu_indices(d)
        width = len(self._upper[0])
        self._sum = RunningSum(curator, width, sensitivity=math.sqrt(2.0) * K, **options)
        self.steps = self._sum.steps
        self._matrix = np.empty((curator.replicates, d, d))

    @property
    def sigma(self) -> float:
        """Standard deviation of a node's noise."""
        return self._sum.sigma

    def add(self, values: Array, along: Array) -> None:
        """Add one matrix ``value sum_k v v'`` per replicate, v ``(B, K, d)``."""
        i, j = self._upper
        record = np.zeros((len(values), len(i)))
        for v in along.transpose(1, 0, 2):
            record += values[:, None] * v[:, i] * v[:, j]
        self._sum.add(record)

    @property
    def value(self) -> Array:
        """Newest released matrices, ``(B, d, d)``."""
        i, j = self._upper
        self._matrix[:, i, j] = self._matrix[:, j, i] = self._sum.value
        return self._matrix
