"""Raw demand records of B replicates and the exact maximum-likelihood releaser.

This code is on the curator's side of the privacy boundary: it stores raw records and releases
estimates. Policies only see what `release` returns.
"""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np

from dpb_agents import kernels as agent_kernels
from dpb_agents.common.record_stores import resized
from dpb_gym.errors import HorizonExceeded, ParameterError
from dpb_gym.privacy import RecordShape
from dpb_gym.problems.base import Array, Context, Feedback

# Records of the first arrays, which double when they are full.
FIRST_CAPACITY = 256
# Records that a non-private fit stores before it replaces them by an expansion.
CAPACITY = 16_384
MODELS = ("logistic", "gaussian")


def recorded(context: Context, price: Array, feedback: Feedback) -> tuple[Array, Array, Array]:
    """Return features, prices ``(..., B)`` and demands of a round.

    All are 0 where no response was observed, so that the record adds nothing.
    """
    assert feedback.demand is not None
    seen = feedback.observed
    if seen is None:
        return context.features, price, feedback.demand
    return context.features * seen[:, None], price * seen, feedback.demand * seen


class Estimator(Protocol):
    """Releaser of theta from raw demand records, regularised towards a public `centre` ``(d,)``."""

    centre: Array

    def add(self, features: Array, price: Array, demand: Array) -> None:
        """Add one record per replicate: x ``(B, d - 1)``, price and demand ``(B,)``."""

    def release(self, due: Array) -> Array:
        """Return estimates ``(B, d)``, updated where the mask `due` ``(B,)`` is True."""


class DemandRecords:
    """Growing store of (x, price, demand).

    Args:
        replicates: Number of replicates B.
        dim: Dimension d of theta; x has d - 1 numbers.
        horizon: Largest number of records per replicate.
        bounds: Demand is clipped to these, and phi to the unit ball; None clips nothing.
        compact: Store x and p in single precision, and demand in [0, 1] in steps of 1/255 (0 and
            1 are exact). A record has 4 d + 1 bytes, or 4 d + 4 with any other demand, instead of
            4 d + 12.

    Attributes:
        count: Records per replicate so far.
        unit: Stored value of a demand of 1.
    """

    def __init__(
        self,
        replicates: int,
        dim: int,
        horizon: int,
        bounds: tuple[float, float] | None = None,
        compact: bool = False,
    ) -> None:
        self.horizon = horizon
        self.count = 0
        self._dropped = False
        self._ball = bounds is not None
        self._bounds = (-np.inf, np.inf) if bounds is None else bounds
        steps = compact and self._bounds == (0.0, 1.0)
        self.unit = 255.0 if steps else 1.0
        wide = np.float32 if compact else np.float64
        capacity = min(horizon, FIRST_CAPACITY)
        self.features: Array = np.zeros((replicates, capacity, dim - 1), np.float32)
        self.price: Array = np.zeros((replicates, capacity), wide)
        self.demand: Array = np.zeros((replicates, capacity), np.uint8 if steps else wide)

    def add(self, features: Array, price: Array, demand: Array) -> None:
        """Store one record per replicate.

        Raises:
            HorizonExceeded: If the horizon is full.
            ParameterError: If a number is not finite or a shape is wrong; nothing is stored.
        """
        self.add_rounds(features[None], price[None], demand[None])

    def add_rounds(self, features: Array, price: Array, demand: Array) -> None:
        """Store records of n rounds: x ``(n, B, d - 1)``, price and demand ``(n, B)``; see `add`.

        Rounds before an invalid one are stored.
        """
        n = len(price)
        if self.count + n > self.horizon:
            raise HorizonExceeded(f"these records were declared for {self.horizon} rounds")
        # Counted all the same, because the horizon limits rounds.
        if self._dropped:
            self.count += n
            return
        capacity = self.price.shape[1]
        while capacity < self.count + n:
            capacity = min(self.horizon, 2 * capacity)
        if capacity > self.price.shape[1]:
            self._resize(capacity)
        xs, ps, ys, unit, at = self.stored
        limits = (*self._bounds, self._ball, unit)
        bad, stored = agent_kernels.demand.store_rounds(
            features, price, demand, at, *limits, xs, ps, ys
        )
        self.count += stored
        if bad == agent_kernels.demand.SHAPE:
            B, _, m = self.features.shape
            raise ParameterError(
                f"features, price and demand must have shapes {(B, m)}, {(B,)} and {(B,)}, got "
                f"{features.shape[1:]}, {price.shape[1:]} and {demand.shape[1:]}"
            )
        if bad:
            name = ("features", "price", "demand")[bad - 1]
            raise ParameterError(f"{name} must be finite, got NaN or infinity")

    @property
    def stored(self) -> tuple[Array, Array, Array, float, int]:
        """The arrays x, prices and demands, `unit`, and the number of records in them."""
        count = 0 if self._dropped else self.count
        return self.features, self.price, self.demand, self.unit, count

    def drop(self) -> None:
        """Free all records; later ones are counted and not stored."""
        self._resize(0)
        self._dropped = True

    def memory(self, rounds: int | None = None) -> int:
        """Return the bytes of this store, now or at most; see `Releaser.memory`."""
        arrays = (self.features, self.price, self.demand)
        if rounds is None or self._dropped:
            return sum(array.nbytes for array in arrays)
        rounds = min(rounds, self.horizon)
        capacity = self.price.shape[1]
        peak = min(rounds, capacity)
        while capacity < rounds:
            # The old and the new arrays are in memory while records are copied.
            peak = 2 * capacity
            capacity = min(self.horizon, 2 * capacity)
        return max(peak, rounds) * sum(a[:, :1].nbytes for a in arrays)

    def _resize(self, capacity: int) -> None:
        for name in ("features", "price", "demand"):
            setattr(self, name, resized(getattr(self, name), self.count, capacity))


class ExactMLE:
    """Ridge-regularised maximum likelihood of the demand model, without noise.

    The non-private version of objective perturbation: the same loss without noise. A release
    starts at the last one. Nothing is computed between releases.

    Memory does not grow with the horizon: `capacity` records at a time are replaced by the
    second-order expansion of their losses at the estimate from all records so far. This is exact
    for Gaussian demand. For logistic demand the error of n folded records in the gradient is
    O(1), where their sampling error is O(sqrt(n)).

    Args:
        replicates: Number of replicates B.
        dim: Dimension d.
        horizon: Largest number of records per replicate.
        demand: ``"logistic"`` or ``"gaussian"``.
        zeta: Link scale of the logistic model, unused otherwise.
        ridge: Weight of ``||theta||^2 / 2``, positive.
        tolerance: Excess of the loss over its minimum before the last Newton step.
        capacity: Largest number of records stored unfolded; `CAPACITY` by default.
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
        capacity: int | None = None,
    ) -> None:
        kept = min(horizon, CAPACITY if capacity is None else capacity)
        self.records = DemandRecords(replicates, dim, kept)
        self._horizon = horizon
        self._folded = 0
        self._model = MODELS.index(demand)
        self._zeta = 1.0 if zeta is None else zeta
        self.ridge = ridge
        self.centre = np.zeros(dim)
        self.tolerance = tolerance
        self._theta = np.zeros((replicates, dim))
        self._curvature = np.zeros((replicates, dim, dim))
        self._linear = np.zeros((replicates, dim))
        self._norm = np.zeros(replicates)

    @property
    def count(self) -> int:
        """Records per replicate so far."""
        return self._folded + self.records.count

    def add(self, features: Array, price: Array, demand: Array) -> None:
        """Store one record per replicate.

        Raises:
            HorizonExceeded: If the horizon is full.
            ParameterError: If a number is not finite; nothing is stored.
        """
        self.add_rounds(features[None], price[None], demand[None])

    def add_rounds(self, features: Array, price: Array, demand: Array) -> None:
        """Store records of n rounds; see `DemandRecords.add_rounds`."""
        records = self.records
        n = len(price)
        if self.count + n > self._horizon:
            raise HorizonExceeded(f"these records were declared for {self._horizon} rounds")
        start = 0
        while start < n:
            if records.count == records.horizon:
                self._fold()
            part = slice(start, min(n, start + records.horizon - records.count))
            records.add_rounds(features[part], price[part], demand[part])
            start = part.stop

    def memory(self, rounds: int | None = None) -> int:
        """Return the bytes of the stored records; see `Releaser.memory`."""
        return self.records.memory(rounds)

    def release(self, due: Array) -> Array:
        """Return estimates ``(B, d)``, updated where `due`."""
        self._fit(due, self._theta)
        return self._theta.copy()

    def _fit(self, due: Array, theta: Array) -> None:
        model = (self._model, self._zeta)
        # ridge / 2 |theta - m|^2 is ridge / 2 |theta|^2 - ridge <m, theta> and a constant.
        linear = self._linear - self.ridge * self.centre
        # The squared Newton decrement is twice the excess of the loss, up to higher order.
        known = (due, *model, self.ridge, self._curvature, linear, 2.0 * self.tolerance, 0.0)
        agent_kernels.demand.newton(*self.records.stored, *known, theta, self._norm)

    def _fold(self) -> None:
        records = self.records
        # A copy, since folding releases nothing: theta stays what was released.
        anchor = self._theta.copy()
        self._fit(np.ones(len(anchor), bool), anchor)
        expanded = (anchor, self._curvature, self._linear)
        agent_kernels.demand.fold(*records.stored, self._model, self._zeta, *expanded)
        self._folded += records.count
        # The arrays are used again.
        records.count = 0


class DemandFit:
    """Releases of theta from rows [x, p, y], for the player of an `Algorithm`.

    Args:
        estimator: Releaser of theta.
        dim: Dimension d of theta; a row has d + 1 numbers.
        most: Rounds whose rows enter, which does not depend on data; None for all.
    """

    sigma = 0.0

    def __init__(self, estimator: Any, dim: int, most: int | None = None) -> None:
        self.estimator = estimator
        self.shape = RecordShape(dim + 1)
        self.most = most
        self.rounds = 0

    @property
    def private(self) -> bool:
        """Whether releases carry noise."""
        return not isinstance(self.estimator, ExactMLE)

    def add(self, rows: Array) -> None:
        """Add one row per replicate, ``(B, d + 1)``."""
        self.add_rounds(rows[None])

    def add_rounds(self, rows: Array) -> None:
        """Add the rows of several rounds, ``(n, B, d + 1)``."""
        wanted = len(rows) if self.most is None else max(0, self.most - self.rounds)
        self.rounds += len(rows)
        rows = rows[:wanted]
        if len(rows):
            parts = (rows[:, :, :-2], rows[:, :, -2], rows[:, :, -1])
            self.estimator.add_rounds(*map(np.ascontiguousarray, parts))

    def release(self, due: Array) -> Array:
        """Return estimates ``(B, d)``, updated where `due`."""
        return np.asarray(self.estimator.release(due))

    def memory(self, rounds: int | None = None) -> int:
        """Return the bytes of the stored records; see `Releaser.memory`."""
        if rounds is not None and self.most is not None:
            rounds = min(rounds, self.most)
        return int(self.estimator.memory(rounds))
