"""Likelihoods of the choice models that are fitted to logs."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Self

import numpy as np

from dpb_gym import kernels
from dpb_gym.errors import DataError
from dpb_gym.problems.base import Array


def fit_mnl(
    rows: Array, starts: Array, choice: Array, ridge: float | Array, name: str,
    centre: Array | None = None, hessian: Array | None = None, start: Array | None = None,
) -> Array:  # fmt: skip
    """Return theta that maximises sum_s log P(choice_s) - 1/2 sum_j ridge_j (theta - centre)_j^2.

    P is the multinomial logit over the rows of set s and the outside option of utility 0.

    Args:
        rows: float32 ``(n_rows, d)``.
        starts: Set s has the rows ``starts[s]:starts[s + 1]``.
        choice: Position in the set, -1 for the outside option.
        ridge: Weight of the penalty, positive, or one per coefficient ``(d,)``.
        name: Name of the log, for error messages.
        centre: Centre of the penalty ``(d,)``; 0 by default.
        hessian: Output ``(1, d, d)``: lower triangle of the Hessian of the negative
            log-likelihood.
        start: Starting point ``(d,)``; 0 by default.

    Raises:
        DataError: If the fit does not converge.
    """
    theta = np.zeros((1, rows.shape[1])) if start is None else start[None].copy()
    middle = None if centre is None else centre[None]
    losses = Losses.of(rows, starts, choice)
    fitted: Array = _minimise(losses, ridge, theta, name, middle, hessian)[0]
    return fitted


class Losses:
    """Negative log-likelihoods of B data sets, an objective of `kernels.newton.minimise`.

    A fit ends at the point that it evaluated last, where the next fit of the same data with another
    penalty starts. The last evaluation is stored, so that it is computed once.

    Args:
        x: float32 ``(B, n, K, d)``.
        offered: Number of rows of each set, int32 ``(B, n)``.
        chosen: Position in the set or -1, int32 ``(B, n)``.
    """

    def __init__(self, x: Array, offered: Array, chosen: Array) -> None:
        self.x, self.offered, self.chosen = x, offered, chosen
        self._first = np.zeros(len(x), np.int64)
        self._point: Array | None = None
        self._parts: tuple[Array, ...] = ()

    @classmethod
    def of(cls, rows: Array, starts: Array, choice: Array) -> Self:
        """Return the losses of one data set; see `fit_mnl`."""
        offered = np.diff(starts)
        n = len(offered)
        d = rows.shape[1]
        if len(rows) == n and (offered == 1).all():
            x = np.ascontiguousarray(rows, np.float32).reshape(1, n, 1, d)
        else:
            group = np.repeat(np.arange(n), offered)
            x = np.zeros((1, n, int(offered.max()), d), np.float32)
            x[0, group, np.arange(len(rows)) - starts[group]] = rows
        return cls(x, offered.astype(np.int32)[None], choice.astype(np.int32)[None])

    def __call__(
        self, due: Array, theta: Array, loss: Array, gradient: Array, hessian: Array
    ) -> None:
        """Add to `loss`, `gradient` and `hessian`; see `kernels.mnl.add_choices`."""
        sums = loss, gradient, hessian
        fresh = due.all() and not any(part.any() for part in sums)
        if fresh and self._point is not None and np.array_equal(theta, self._point):
            for part, stored in zip(sums, self._parts):
                part += stored
            return
        data = self.x, self.offered, self.chosen, self._first, self.x.shape[1]
        kernels.mnl.add_choices(*data, due, theta, *sums)
        if fresh:
            self._point = theta.copy()
            self._parts = tuple(part.copy() for part in sums)


def _minimise(
    losses: Losses, ridge: float | Array, theta: Array, name: str, centre: Array | None,
    hessian: Array | None,
) -> Array:  # fmt: skip
    """Return minimisers ``(B, d)`` of B penalised likelihoods; see `fit_mnl`."""
    B, n, _, d = losses.x.shape
    norm = np.zeros(B)
    precision = 1e-10 * n
    linear = np.zeros((B, d)) if centre is None else -ridge * centre
    curvature: Array | None = None
    weight = 0.0
    if isinstance(ridge, np.ndarray):
        curvature = np.zeros((B, d, d))
        curvature[:, np.arange(d), np.arange(d)] = ridge
    else:
        weight = float(ridge)
    kernels.newton.minimise(
        losses, np.ones(B, np.bool_), theta, norm,
        np.empty((B, d, d)) if hessian is None else hessian, ridge=weight, linear=linear,
        curvature=curvature, precision=precision,
    )  # fmt: skip
    if not norm.max() <= 1e3 * precision:
        raise DataError(f"{name}: the fit of the choices stopped at gradient {norm.max():.3g}")
    return theta


def log_chances(rows: Array, starts: Array, theta: Array) -> tuple[Array, Array]:
    """Return log-probabilities of rows ``(n_rows,)`` and of the outside option ``(n_sets,)``."""
    utility = np.empty((1, len(rows)))
    kernels.mnl.utilities(rows[None], theta[None], utility)
    u = utility[0]
    group = np.repeat(np.arange(len(starts) - 1), np.diff(starts))
    top = np.maximum(np.maximum.reduceat(u, starts[:-1]), 0.0)
    total = np.add.reduceat(np.exp(u - top[group]), starts[:-1]) + np.exp(-top)
    outside = -top - np.log(total)
    return u + outside[group], outside


@dataclass(frozen=True, eq=False)
class ChoiceSets:
    """Choices among the rows of sets, and an outside option of utility 0.

    Attributes:
        rows: float32 ``(n_rows, d)``.
        starts: Set s has the rows ``starts[s]:starts[s + 1]``.
        choice: Position in the set, -1 for the outside option ``(n,)``.
    """

    rows: Array
    starts: Array
    choice: Array

    def __len__(self) -> int:
        return len(self.choice)

    @property
    def width(self) -> int:
        """Numbers per set that enter one step of a fit."""
        return int(np.diff(self.starts).max()) * int(self.rows.shape[1]) ** 2

    @property
    def sizes(self) -> Array:
        """Root mean squares of the columns ``(d,)``."""
        return _sizes(self.rows)

    def keep(self, kept: Array) -> Self:
        """Return the sets of a mask ``(n,)``."""
        sizes = np.diff(self.starts)
        begin = np.append(0, np.cumsum(sizes[kept])).astype(np.int64)
        return type(self)(self.rows[np.repeat(kept, sizes)], begin, self.choice[kept])

    def fit(
        self, penalty: Array, name: str, centre: Array | None = None, start: Array | None = None
    ) -> tuple[Array, Array]:
        """Return the penalised estimate ``(d,)`` and the lower Hessian of the negative likelihood.

        Args:
            penalty: Weight of each squared coefficient, positive ``(d,)``.
            name: Name of the log, for error messages.
            centre: Centre of the penalty ``(d,)``; 0 by default.
            start: Starting point ``(d,)``; 0 by default.
        """
        d = self.rows.shape[1]
        hessian = np.zeros((1, d, d))
        theta = np.zeros((1, d)) if start is None else start[None].copy()
        middle = None if centre is None else centre[None]
        return _minimise(self._losses, penalty, theta, name, middle, hessian)[0], hessian[0]

    @cached_property
    def _losses(self) -> Losses:
        return Losses.of(self.rows, self.starts, self.choice)

    def log_chances(self, theta: Array) -> tuple[Array, Array]:
        """Return log-probabilities of rows ``(n_rows,)`` and of the outside option ``(n,)``."""
        return log_chances(self.rows, self.starts, theta)

    def likelihoods(self, theta: Array) -> Array:
        """Return the log-likelihood of every choice ``(n,)``."""
        inside, outside = self.log_chances(theta)
        taken = inside[np.maximum(self.starts[:-1] + self.choice, 0)]
        return np.where(self.choice < 0, outside, taken)

    def variation(self, theta: Array, people: Array) -> Array:
        """Return the sum over persons of the outer products of their summed scores ``(d, d)``."""
        rest: Array = -np.exp(self.log_chances(theta)[0])
        bought = self.choice >= 0
        rest[(self.starts[:-1] + self.choice)[bought]] += 1.0
        return _outer_sums(self.rows * rest[:, None], np.repeat(people, np.diff(self.starts)))


@dataclass(frozen=True, eq=False)
class ItemBlocks:
    """Responses to one shown item each; every item has its own coefficients.

    The likelihood of all coefficients is the product of those of the items, which are fitted
    separately.

    Attributes:
        customers: float32 ``(n, w)``.
        items: Shown item of each customer, in 0..m - 1 ``(n,)``.
        choice: 0 for a response, -1 for none ``(n,)``.
        m: Number of items; there are m w coefficients, those of an item together.
    """

    customers: Array
    items: Array
    choice: Array
    m: int

    def __len__(self) -> int:
        return len(self.choice)

    @property
    def width(self) -> int:
        """Numbers per customer that enter one step of a fit."""
        return int(self.customers.shape[1]) ** 2

    @property
    def starts(self) -> Array:
        """Each customer is a set of one row: ``0..n``."""
        return np.arange(len(self) + 1)

    @property
    def sizes(self) -> Array:
        """Root mean squares of the columns, for every item ``(m w,)``."""
        return np.tile(_sizes(self.customers), self.m)

    def keep(self, kept: Array) -> Self:
        """Return the customers of a mask ``(n,)``."""
        return type(self)(self.customers[kept], self.items[kept], self.choice[kept], self.m)

    def fit(
        self, penalty: Array, name: str, centre: Array | None = None, start: Array | None = None
    ) -> tuple[Array, Array]:
        """Return the penalised estimate and the lower Hessian; see `ChoiceSets.fit`."""
        m = self.m
        w = self.customers.shape[1]
        counts = np.bincount(self.items, minlength=m)
        order = np.argsort(self.items, kind="stable")
        place = np.arange(len(self)) - np.repeat(np.cumsum(counts) - counts, counts)
        x = np.zeros((m, int(counts.max()), 1, w), np.float32)
        x[self.items[order], place, 0] = self.customers[order]
        offered = np.zeros(x.shape[:2], np.int32)
        chosen = np.full(x.shape[:2], -1, np.int32)
        offered[self.items[order], place] = 1
        chosen[self.items[order], place] = self.choice[order]
        theta = np.zeros((m, w)) if start is None else start.reshape(m, w).copy()
        parts = np.zeros((m, w, w))
        middle = None if centre is None else centre.reshape(m, w)
        losses = Losses(x, offered, chosen)
        _minimise(losses, penalty.reshape(m, w), theta, name, middle, parts)
        return theta.ravel(), _block_diagonal(parts)

    def log_chances(self, theta: Array) -> tuple[Array, Array]:
        """Return log-probabilities of a response ``(n,)`` and of none ``(n,)``."""
        own = theta.reshape(self.m, -1)[self.items]
        utility = (self.customers * own).sum(axis=1)
        return -np.logaddexp(0.0, -utility), -np.logaddexp(0.0, utility)

    def chances(self, theta: Array) -> Array:
        """Return probabilities of a response ``(n,)``."""
        return np.exp(self.log_chances(theta)[0])

    def likelihoods(self, theta: Array) -> Array:
        """Return the log-likelihood of every response ``(n,)``."""
        inside, outside = self.log_chances(theta)
        return np.where(self.choice < 0, outside, inside)

    def variation(self, theta: Array, people: Array) -> Array:
        """Return sums of outer products as `ChoiceSets.variation`, within items only."""
        rest: Array = (self.choice >= 0) - np.exp(self.log_chances(theta)[0])
        scores = self.customers * rest[:, None]
        w = scores.shape[1]
        parts = np.zeros((self.m, w, w))
        for item in range(self.m):
            own = self.items == item
            if own.any():
                parts[item] = _outer_sums(scores[own], people[own])
        return _block_diagonal(parts)


def _sizes(rows: Array) -> Array:
    # one column at a time, for logs of many millions of rows
    squares = np.array([np.mean(column.astype(np.float64) ** 2) for column in rows.T])
    return np.sqrt(np.where(squares > 0.0, squares, 1.0))


def spreads(rows: Array) -> Array:
    """Return the standard deviations of columns ``(d,)``."""
    return np.array([column.std(dtype=np.float64) for column in rows.T])


def _outer_sums(scores: Array, group: Array) -> Array:
    """Return the sum over groups of the outer products of the groups' summed scores ``(d, d)``."""
    order = np.argsort(group, kind="stable")
    begin = np.flatnonzero(np.diff(group[order], prepend=group[order][0] - 1))
    sums = np.add.reduceat(scores[order].astype(np.float64), begin, axis=0)
    factor = len(sums) / max(1, len(sums) - 1)  # the usual correction for few groups
    return factor * np.stack([(sums * column[:, None]).sum(axis=0) for column in sums.T])


def _block_diagonal(parts: Array) -> Array:
    m, w, _ = parts.shape
    whole = np.zeros((m, w, m, w))
    whole[np.arange(m), :, np.arange(m)] = parts
    return whole.reshape(m * w, m * w)
