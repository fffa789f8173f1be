"""Raw choice records of B replicates and their maximum likelihood, private or exact.

This code is on the curator's side of the privacy boundary: it stores raw records and releases
estimates. Policies only see what `release` returns.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from dpb_agents import kernels as agent_kernels
from dpb_agents.common.record_stores import resized
from dpb_gym import kernels
from dpb_gym.errors import HorizonExceeded, ParameterError
from dpb_gym.privacy import Curator, Minimiser, RunningSum
from dpb_gym.problems.base import Array, Feedback

# Features that are allocated at first. The system provides memory where it is written.
FIRST_BYTES = 1 << 28
CAPACITY = 16_384  # records per replicate that an exact fit stores before it folds them
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

    Attributes:
        count: Records per replicate so far, those dropped included.
    """

    def __init__(
        self, replicates: int, slots: int, dim: int, horizon: int, clip: bool = False
    ) -> None:
        self.horizon = horizon
        self.clip = clip
        self.count = 0
        self._dropped = False
        capacity = min(horizon, max(1, FIRST_BYTES // (4 * replicates * slots * dim)))
        self.x = np.zeros((replicates, capacity, slots, dim), np.float32)
        self.offered = np.zeros((replicates, capacity), np.int32)
        self.chosen = np.zeros((replicates, capacity), np.int32)

    def add(self, features: Array, slates: Array, choice: Array) -> None:
        """Store one record per replicate.

        Raises:
            HorizonExceeded: If the horizon is full.
            ParameterError: If a feature vector is not finite.
        """
        if self.count == self.horizon:
            raise HorizonExceeded(f"these records were declared for {self.horizon} rounds")
        if self._dropped:
            self.count += 1
            return
        if self.count == self.x.shape[1]:
            vars(self).update(self._resized(self._larger(self.count)))
        *places, n = self.stored
        if not agent_kernels.choices.store(features, slates, choice, self.clip, n, *places):
            raise ParameterError("features must be finite, got NaN or infinity")
        self.count += 1

    @property
    def stored(self) -> tuple[Array, Array, Array, int]:
        """The arrays x, offered and chosen, and the number of records in them."""
        return self.x, self.offered, self.chosen, 0 if self._dropped else self.count

    def drop(self) -> None:
        """Free all records; later ones are counted and not stored."""
        vars(self).update(self._resized(0))
        self._dropped = True

    def memory(self, rounds: int | None = None) -> int:
        """Return the bytes of this store, now or at most; see `Releaser.memory`."""
        if rounds is None or self._dropped:
            return self.x.nbytes + self.offered.nbytes + self.chosen.nbytes
        rounds = min(rounds, self.horizon)
        capacity = self.x.shape[1]
        peak = min(rounds, capacity)
        while capacity < rounds:
            # The old and the new arrays are in memory while records are copied.
            peak = 2 * capacity
            capacity = self._larger(capacity)
        B, _, K, d = self.x.shape
        return max(peak, rounds) * B * (4 * K * d + 8)

    def _larger(self, capacity: int) -> int:
        return min(self.horizon, 2 * capacity + 1)

    def _resized(self, capacity: int) -> dict[str, Array]:
        names = ("x", "offered", "chosen")
        return {name: resized(getattr(self, name), self.count, capacity) for name in names}

    def __getstate__(self) -> dict[str, Any]:
        """Return the state without unused memory, for checkpoints and copies."""
        return {**vars(self), **self._resized(self.stored[-1])}


class ChoiceMLE(Minimiser):
    """Maximum likelihood of the multinomial logit on stored records.

    With a budget: objective perturbation. Features are clipped to the unit ball before they are
    stored, so the bounds that the calibration assumes hold for every record (erratum A8). Every
    release needs the loss of every record at a new theta. Records are dropped after the last
    release.

    Without a budget: a ridge-regularised fit of the unclipped features, whose Newton steps start
    at the last estimate. `CAPACITY` records at a time are replaced by the second-order expansion
    of their losses at the estimate from all records so far. The error of n folded records in the
    gradient is O(1), where their sampling error is O(sqrt(n)).

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
        private = curator.private
        kept = horizon if private else min(horizon, CAPACITY)
        self.records = ChoiceRecords(B, slots, dim, kept, clip=clip and private)
        self._horizon = horizon
        self._folded = 0
        self._theta = np.zeros((B, dim))
        self._hessian = np.zeros((B, dim, dim))
        self._seen = np.zeros(B, np.int64)
        self._norm = np.zeros(B)
        # Quadratic of the folded records: 1/2 theta' curvature theta + <slope, theta>.
        self._curvature = np.zeros((B, dim, dim))
        self._slope = np.zeros((B, dim))
        super().__init__(
            curator,
            dim,
            gradient_bound=GRADIENT_BOUND,
            curvature=CURVATURE,
            records=horizon,
            **options,
        )
        if private and not clip:
            self.basis = "declared (features are not clipped)"

    @property
    def added(self) -> int:
        """Records per replicate so far, folded ones included."""
        return self._folded + self.records.count

    def add(self, features: Array, slates: Array, choice: Array) -> None:
        """Store one record per replicate.

        Args:
            features: ``(B, N, d)``.
            slates: ``(B, K)`` without repeated items.
            choice: ``(B,)``, position in the slate, -1 for no purchase.

        Raises:
            HorizonExceeded: If the horizon is full.
            ParameterError: If a feature vector is not finite.
        """
        if self.added == self._horizon:
            raise HorizonExceeded(f"these records were declared for {self._horizon} rounds")
        if self.records.count == self.records.horizon:
            self._fold()
        self.records.add(features, slates, choice)

    def release(self, due: ArrayLike | None = None) -> Array:
        """Return estimates ``(B, d)``, updated where `due`; see `Minimiser.release`."""
        estimates = super().release(due)
        if self.plan is not None and (self.calls == self.max_calls).all():
            self.records.drop()
        return estimates

    def memory(self, rounds: int | None = None) -> int:
        return self.records.memory(rounds)

    def minimise(
        self, due: Array, linear: Array, ridge: float, tolerance: float
    ) -> tuple[Array, Array]:
        exact = self.plan is None
        stops = (DECREMENT, 0.0) if exact else (0.0, tolerance)
        # The short first step of a warm start knows no folded records.
        seen = self._seen if exact and not self._folded else np.zeros(len(due), np.int64)
        state = self._theta, self._hessian, seen, self._norm
        self._newton(due, ridge, linear, stops, state)
        return self._theta, self._norm

    def derivatives(self, theta: Array) -> tuple[Array, Array]:
        *stored, n = self.records.stored
        B, d = theta.shape
        loss = np.zeros(B)
        gradient = np.zeros((B, d))
        hessian = np.zeros((B, d, d))
        terms = (np.ones(B, bool), theta, loss, gradient, hessian)
        kernels.mnl.add_choices(*stored, np.zeros(B, np.int64), n, *terms)
        lower = np.tril(hessian)
        return gradient, lower + np.tril(hessian, -1).transpose(0, 2, 1)

    def _newton(
        self,
        due: Array,
        ridge: float,
        linear: Array,
        stops: tuple[float, float],
        state: tuple[Array, Array, Array, Array],
    ) -> None:
        curvature = self._curvature if self._folded else None
        linear = linear + self._slope if self._folded else linear
        quadratic = (ridge, linear, curvature)
        agent_kernels.choices.newton(self.records.stored, due, *quadratic, *stops, *state)

    def _fold(self) -> None:
        """Replace all stored records by the expansion of their losses at their estimate."""
        B, d = self._theta.shape
        anchor = self._theta.copy()
        state = (anchor, np.zeros((B, d, d)), np.zeros(B, np.int64), np.zeros(B))
        pull = np.zeros((B, d)) - self._ridge * self.centre
        self._newton(np.ones(B, bool), self._ridge, pull, (DECREMENT, 0.0), state)
        gradient, hessian = self.derivatives(anchor)
        for k in range(d):
            gradient -= hessian[:, :, k] * anchor[:, k, None]
        self._slope += gradient
        self._curvature += hessian
        self._folded += self.records.count
        self.records.count = 0


class EntrywiseGram:
    """Running sum of symmetric matrices with noise N(0, sigma^2) at every i <= j.

    CS, Lemma S7, and CSW, Algorithm 2, print this noise.

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
        self._matrix = np.zeros((curator.replicates, d, d))

    @property
    def sigma(self) -> float:
        """Standard deviation of a node's noise."""
        return self._sum.sigma

    def add(self, values: Array, along: Array) -> None:
        """Add one matrix ``value sum_k v v'`` per replicate, v ``(B, K, d)`` or ``(B, d)``."""
        i, j = self._upper
        record = np.zeros((len(values), len(i)))
        sets = along[:, None] if along.ndim == 2 else along
        for v in sets.transpose(1, 0, 2):
            record += values[:, None] * v[:, i] * v[:, j]
        self._sum.add(record)

    @property
    def value(self) -> Array:
        """Newest released matrices, ``(B, d, d)``."""
        i, j = self._upper
        self._matrix[:, i, j] = self._matrix[:, j, i] = self._sum.value
        return self._matrix
