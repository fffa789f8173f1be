"""Demand whose price effect varies with the price and the customer, for intervals of figures.

A logistic model with a linear utility has intervals of its own coefficients. They are too narrow
for the elasticity and the gain of a price where demand has another form. Here the utility has
further columns, and the weights of their penalties have a posterior. Where demand is linear in the
price, columns with nearly no effect are the most likely ones.

No run depends on these figures: they use the machine's exponential function and BLAS.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dpb_gym.problems.base import Array
from dpb_gym.problems.logged_figures import sigmoid

BENDS = (0.1, 0.3, 0.9, 2.7)
"""Standard deviations of the utility around a line in the price; no demand has exactly a line."""
SHIFTS = (0.0, 0.1, 0.3, 0.9)
"""Standard deviations of the utility's change by a product of price and feature, standardised."""
_KNOTS = 24  # prices, at quantiles
_WAVES = 8  # columns of the spline
_FLAT = 1e-9  # share of the largest eigenvalue, below which a column of the spline is left out
_MOST = 20_000  # different customers, by whom penalties are weighed
_POSSIBLE = 0.02  # relative evidence of the least likely penalties that are considered
_MOST_SHIFTED = 40  # features, above which the price's effect is the same for all customers
_STEPS = 50  # of Newton's method
_HALVINGS = 30
_CLOSE = 1e-6  # twice the gain of the log-likelihood by another step
_MEASURED = 4_000  # customers from whom elasticities are computed
_STEP = 1e-4  # of the logarithm of the price
_GOLDEN = 0.6180339887498949


@dataclass(frozen=True, eq=False)
class _Member:
    """The posterior under some penalties: their relative evidence, a mean and a covariance."""

    weight: float
    mean: Array
    root: Array  # lower triangular; its product with its transpose is the covariance


@dataclass(frozen=True, eq=False)
class _Counts:
    """Different customers ``(n, D)``, how many there are of each, and how many of them bought."""

    rows: Array
    seen: Array
    bought: Array


class PriceCurve:
    """Posterior of a logistic demand curve with a spline in the price.

    The spline has the prior of a cubic smoothing spline (Wahba 1978). Further columns are products
    of the price with each feature. The posterior is a mixture over penalties, weighted by their
    evidence (Laplace's approximation); each of its parts is normal, with the sandwich estimate of
    the covariance where persons have several rows.

    Args:
        rows: Customers' features, of which the first is 1, and minus the price ``(n, d)``.
        bought: 0 or 1 ``(n,)``.
        start: Coefficients of the linear model ``(d,)``.
        penalty: Weight of each squared coefficient of it, positive ``(d,)``.
        people: Person of each customer ``(n,)``, or None.
    """

    def __init__(
        self, rows: Array, bought: Array, start: Array, penalty: Array, people: Array | None
    ) -> None:
        price = -rows[:, -1].astype(np.float64)
        features = rows[:, 1:-1].astype(np.float64)
        self._low = float(price.min())
        self._range = float(price.max()) - self._low
        self._knots, self._along, self._line = _basis(self._unit(price))
        self._products = features.shape[1] if features.shape[1] <= _MOST_SHIFTED else 0
        self._middle = features.mean(axis=0)
        self._spread = np.maximum(features.std(axis=0), 1e-12)
        self._price = float(price.mean()), float(price.std())
        data = _counts(rows, bought)
        step = -(-len(data.rows) // _MOST)
        some = _Counts(self.columns(data.rows[::step]), data.seen[::step], data.bought[::step])
        evidence = {}
        modes = {}
        for penalties in self._penalties():
            weights, used = self._weights(penalty, *penalties)
            first = np.append(start, np.zeros(len(weights) - len(start)))
            modes[penalties], precision, value = _fit(some, used, weights, first)
            spread = np.linalg.slogdet(precision)[1] - np.log(weights[used]).sum()
            evidence[penalties] = value - 0.5 * float(spread)
        best = max(evidence.values())
        self.evidence = {key: float(np.exp(value - best)) for key, value in evidence.items()}
        whole = some if step == 1 else _Counts(self.columns(data.rows), data.seen, data.bought)
        if people is not None and np.bincount(people).max() < 2:
            people = None
        self._members = []
        for penalties, share in self.evidence.items():
            if share < _POSSIBLE:
                continue
            weights, used = self._weights(penalty, *penalties)
            mean, precision, _ = _fit(whole, used, weights, modes[penalties])
            covariance = np.linalg.inv(precision)
            if people is not None:
                scores = self._scores(rows, bought, mean, used, people)
                covariance = covariance @ (scores.T @ scores + np.diag(weights[used])) @ covariance
            size = 1e-12 * float(np.trace(covariance)) * np.eye(len(covariance))
            root = np.zeros((len(used), len(used)))
            root[np.ix_(used, used)] = np.linalg.cholesky(covariance + size)
            self._members.append(_Member(share, mean, root))

    def _penalties(self) -> list[tuple[float, float]]:
        """Return pairs of `BENDS` and `SHIFTS` that this log has columns for."""
        bends = BENDS if self._along.shape[1] else (0.0,)
        shifts = SHIFTS if self._products else (0.0,)
        return [(bend, shift) for bend in bends for shift in shifts]

    def _weights(self, penalty: Array, bend: float, shift: float) -> tuple[Array, Array]:
        """Return the weight of each squared coefficient, and a mask of those that are not 0."""
        sizes = np.repeat([bend, shift], [self._along.shape[1], self._products])
        used = np.append(np.full(len(penalty), True), sizes > 0.0)
        return np.append(penalty, np.maximum(sizes, 1e-6) ** -2.0), used

    def _unit(self, price: Array) -> Array:
        return np.asarray((price - self._low) / self._range)

    def columns(self, rows: Array) -> Array:
        """Return the rows followed by the further columns ``(n, D)``.

        Args:
            rows: As for the constructor ``(n, d)``.
        """
        x = rows.astype(np.float64)
        price, place = np.unique(-x[:, -1], return_inverse=True)
        u = self._unit(price)
        bent = _brownian(u, self._knots) @ self._along - _lines(u) @ self._line
        parts = [x, bent[place.ravel()]]
        if self._products:
            mean, spread = self._price
            relative = (-x[:, -1:] - mean) / spread
            parts.append((x[:, 1:-1] - self._middle) / self._spread * relative)
        return np.concatenate(parts, axis=1)

    def _scores(self, rows: Array, bought: Array, mean: Array, used: Array, people: Array) -> Array:
        """Return the sums of each person's scores ``(persons, D)``."""
        x = self.columns(rows)
        scores = x[:, used] * (bought - sigmoid(x @ mean))[:, None]
        sums = np.column_stack([np.bincount(people, column) for column in scores.T])
        sums = sums[np.bincount(people) > 0]
        return np.asarray(sums * np.sqrt(len(sums) / max(1, len(sums) - 1)))

    def draws(self, count: int) -> Array:
        """Return draws of the coefficients ``(count, D)``; the first do not depend on `count`."""
        shares = np.cumsum([one.weight for one in self._members])
        # multiples of the golden ratio are spread evenly, however many there are
        at = (0.5 + np.arange(count)) * _GOLDEN % 1.0 * shares[-1]
        noise = np.random.default_rng(3).standard_normal((count, len(self._members[0].mean)))
        chosen = [self._members[k] for k in np.searchsorted(shares, at)]
        return np.array([one.mean + one.root @ z for one, z in zip(chosen, noise)])

    def elasticities(self, rows: Array, coefficients: Array) -> Array:
        """Return the mean price elasticity of customers under each draw ``(K,)``.

        Args:
            rows: As for the constructor ``(n, d)``.
            coefficients: ``(K, D)``.
        """
        some = rows[:: -(-len(rows) // _MEASURED)].astype(np.float64)
        utilities = []
        for factor in (1.0 - _STEP, 1.0, 1.0 + _STEP):
            moved = some.copy()
            moved[:, -1] *= factor
            utilities.append(self.columns(moved) @ coefficients.T)
        below, here, above = utilities
        slopes = (above - below) / (2.0 * _STEP)
        return np.asarray((slopes * (1.0 - sigmoid(here))).mean(axis=0))


def _brownian(s: Array, t: Array) -> Array:
    """Return the covariance of integrated Brownian motion at s ``(n,)`` and t ``(m,)``."""
    low = np.minimum(s[:, None], t)
    high = np.maximum(s[:, None], t)
    return np.asarray(low**2 * (3.0 * high - low) / 6.0)


def _lines(u: Array) -> Array:
    return np.column_stack([np.ones(len(u)), u])


def _basis(u: Array) -> tuple[Array, Array, Array]:
    """Return knots ``(m,)``, and what gives the spline's columns at any price.

    The columns at u are ``_brownian(u, knots) @ along - _lines(u) @ line``. They have no line in
    the price, and their squares have a mean of 1 over the knots in all.

    Args:
        u: Prices of the customers in [0, 1].
    """
    knots = np.unique(u)
    if len(knots) > _KNOTS:
        knots = np.unique(np.quantile(u, (np.arange(_KNOTS) + 0.5) / _KNOTS))
    lines = _lines(knots)
    solve = np.linalg.pinv(lines)
    rest = np.eye(len(knots)) - lines @ solve
    covariance = _brownian(knots, knots)
    values, vectors = np.linalg.eigh(rest @ covariance @ rest)
    kept = np.argsort(-values)[:_WAVES]
    kept = kept[values[kept] > max(_FLAT * float(values.max()), 1e-15)]
    size = np.sqrt(len(knots) / max(float(values[kept].sum()), 1e-300))
    along = rest @ (size * vectors[:, kept] / np.sqrt(values[kept]))
    return knots, along, solve @ covariance @ along


def _counts(rows: Array, bought: Array) -> _Counts:
    """Return the customers of a log; equal ones of a large log are counted together."""
    if len(rows) <= _MOST:
        return _Counts(rows, np.ones(len(rows)), bought.astype(np.float64))
    first, place = equal_rows(rows)
    return _Counts(rows[first], np.bincount(place), np.bincount(place, bought))


def equal_rows(rows: Array) -> tuple[Array, Array]:
    """Return the numbers of different rows ``(m,)``, and the one that each row equals ``(n,)``.

    The second has positions in the first.
    """
    # different rows have different sums with random weights
    mixed = rows.astype(np.float64) @ np.random.default_rng(4).standard_normal(rows.shape[1])
    _, first, place = np.unique(mixed, return_index=True, return_inverse=True)
    return first, place.ravel()


def _fit(data: _Counts, used: Array, weights: Array, start: Array) -> tuple[Array, Array, float]:
    """Return the mode ``(D,)``, the precision of its used part, and its penalised log-likelihood.

    Args:
        data: The customers with all columns.
        used: Mask of the coefficients that are not 0 ``(D,)``.
        weights: Weight of each squared coefficient ``(D,)``.
        start: Starting point ``(D,)``.
    """
    x = data.rows[:, used]
    penalty = weights[used]

    def objective(theta: Array) -> tuple[float, Array]:
        utility = x @ theta
        value = data.bought @ utility - data.seen @ np.logaddexp(0.0, utility)
        return float(value - 0.5 * penalty @ theta**2), utility

    theta = start[used]
    value, utility = objective(theta)
    for _ in range(_STEPS):
        chance = sigmoid(utility)
        slope = x.T @ (data.bought - data.seen * chance) - penalty * theta
        spread = data.seen * chance * (1.0 - chance)
        precision = (x * spread[:, None]).T @ x + np.diag(penalty)
        move = np.linalg.solve(precision, slope)
        gain = float(slope @ move)
        if gain < _CLOSE:
            break
        for _ in range(_HALVINGS):
            better, utility = objective(theta + move)
            if better > value:
                break
            move *= 0.5
        theta = theta + move
        value = better
    mode = np.zeros(len(used))
    mode[used] = theta
    return mode, precision, value
