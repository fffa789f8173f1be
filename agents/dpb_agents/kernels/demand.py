"""Records of priced demand: storage, losses, fits and gradients; growth of a Gram matrix.

phi(x, p) = [x; -p] / sqrt(d). The replicate axis comes first.
"""

from __future__ import annotations

import numpy as np

from dpb_gym.kernels._jit import jit
from dpb_gym.kernels.demand_models import add_demands_one
from dpb_gym.kernels.determinants import signed_logdet_one
from dpb_gym.kernels.linalg import dot_one
from dpb_gym.kernels.newton import minimise

FEATURES = 1
PRICE = 2
DEMAND = 3
SHAPE = 4
INSIDE = 1.0 - 1e-6


@jit
def store(features, price, demand, at, low, high, ball, unit, xs, ps, ys):
    """Store one record per replicate in column `at`, or no record if one is invalid.

    Args:
        features: x, ``(B, d - 1)``.
        price: ``(B,)``.
        demand: ``(B,)``.
        at: Column, below the store's capacity.
        low: Demand is clipped to [low, high].
        high: Upper end of that range.
        ball: Whether phi = [x; -p] / sqrt(d), as stored, is scaled into the unit ball.
        unit: Demand is stored times `unit`, rounded to an integer unless `unit` is 1.
        xs: Store of x, ``(B, capacity, d - 1)``.
        ps: Store of p, ``(B, capacity)``.
        ys: Store of demand, ``(B, capacity)``.

    Returns:
        0 if stored; FEATURES, PRICE or DEMAND if a number there is not finite; SHAPE if the
        shapes are inconsistent.
    """
    B, m = features.shape
    if not (len(price) == len(demand) == B and xs.shape[0] == B and xs.shape[2] == m):
        return SHAPE
    for b in range(B):
        for k in range(m):
            # All replicates are checked before one is written, so that an error stores no part of a
            # round.
            if not np.isfinite(features[b, k]):
                return FEATURES
        if not np.isfinite(price[b]):
            return PRICE
        if not np.isfinite(demand[b]):
            return DEMAND
    for b in range(B):
        ps[b, at] = price[b]
        # The norm of the numbers as stored: rounding to single precision may lengthen phi.
        square = np.float64(ps[b, at]) ** 2
        for k in range(m):
            xs[b, at, k] = features[b, k]
            square += np.float64(xs[b, at, k]) ** 2
        norm = np.sqrt(square / (m + 1.0))
        if ball and norm > 1.0:
            # slightly inside, as the store may round to single precision
            factor = INSIDE / norm
            ps[b, at] = price[b] * factor
            for k in range(m):
                xs[b, at, k] = features[b, k] * factor
        y = min(max(demand[b], low), high)
        # Rounded, not cut, so that a demand of 0 or 1 is exact.
        ys[b, at] = y if unit == 1.0 else np.floor(y * unit + 0.5)
    return 0


@jit
def store_rounds(features, price, demand, at, low, high, ball, unit, xs, ps, ys):
    """`store` records of n rounds ``(n, B, ...)`` in columns from `at` on.

    Returns:
        The status of the last round, and the number of rounds that are stored.
    """
    if not len(features) == len(price) == len(demand):
        return SHAPE, 0
    for i in range(price.shape[0]):
        record = (features[i], price[i], demand[i])
        status = store(*record, at + i, low, high, ball, unit, xs, ps, ys)
        if status:
            return status, i
    return 0, price.shape[0]


@jit
def grown(gram, shift, rise, sign, logdet, due):
    """Set due[b] to det(gram[b] + shift I) > exp(rise) sign[b] exp(logdet[b]), for any signs.

    Args:
        gram: ``(B, d, d)``.
        shift: Added to the diagonal.
        rise: Logarithm of the factor.
        sign: Sign of the earlier determinant, ``(B,)``.
        logdet: Logarithm of its absolute value, ``(B,)``.
        due: Output ``(B,)``.

    Returns:
        Whether any entry of `due` is True.
    """
    B, d, _ = gram.shape
    matrix = np.empty((d, d))
    work = np.empty((d, d))
    some = False
    for b in range(B):
        for j in range(d):
            for k in range(d):
                matrix[j, k] = gram[b, j, k]
            matrix[j, j] += shift
        own, size = signed_logdet_one(matrix, work)
        # Noise can make determinants negative. Of two negative ones the one of smaller size is
        # larger.
        due[b] = own > sign[b] or (own == sign[b] and own * (size - logdet[b] - rise) > 0.0)
        some = some or due[b]
    return some


@jit
def signed_logdet(matrices, sign, logdet):
    """Compute signs ``(B,)`` and log-absolute-values ``(B,)`` of determinants, for `grown`."""
    d = matrices.shape[1]
    work = np.empty((d, d))
    for b in range(matrices.shape[0]):
        sign[b], logdet[b] = signed_logdet_one(matrices[b], work)


@jit
def add_demands(features, price, demand, unit, n, model, zeta, due, theta, loss, gradient, hessian):
    """Add `pricing.add_demands_one` of every replicate, an objective of `minimise`.

    Args:
        features: ``(B, records, d - 1)``; price and demand ``(B, records)``; unit, n, model and
            zeta as in `pricing.add_demands_one`.
        due: Mask of replicates, ``(B,)``.
        theta: ``(B, d)``.
        loss: ``(B,)``, in place.
        gradient: ``(B, d)``, in place.
        hessian: ``(B, d, d)``, in place; the lower triangle.
    """
    for b in range(theta.shape[0]):
        if due[b]:
            records = (features[b], price[b], demand[b], unit, n, model, zeta)
            loss[b] += add_demands_one(*records, theta[b], gradient[b], hessian[b])


def newton(
    features, price, demand, unit, n, due, model, zeta, ridge, curvature, linear, decrement,
    precision, theta, norm,
):  # fmt: skip
    """Minimise the losses of `add_demands` + a fixed quadratic; see `newton.minimise`."""

    def losses(*arguments):
        add_demands(features, price, demand, unit, n, model, zeta, *arguments)

    terms = {"ridge": ridge, "linear": linear, "curvature": curvature}
    stops = {"decrement": decrement, "precision": precision}
    minimise(losses, due, theta, norm, np.empty_like(curvature), **terms, **stops)


@jit
def fold(features, price, demand, unit, n, model, zeta, theta, curvature, linear):
    """Add the second-order expansions at theta of n records' losses to `curvature` and `linear`.

    Up to a constant they are <g, t> + 1/2 t' H t, with H the Hessian at theta and g the gradient
    at theta minus H theta.

    Args:
        features: As in `add_demands`, like the next six arguments.
        theta: Point of expansion, ``(B, d)``.
        curvature: In and out, ``(B, d, d)``.
        linear: In and out, ``(B, d)``.
    """
    B, d = theta.shape
    loss = np.zeros(B)
    gradient = np.zeros((B, d))
    hessian = np.zeros((B, d, d))
    terms = (theta, loss, gradient, hessian)
    add_demands(features, price, demand, unit, n, model, zeta, np.ones(B, np.bool_), *terms)
    for b in range(B):
        for j in range(d):
            for k in range(j):
                # `add_demands` fills the lower triangle only.
                hessian[b, k, j] = hessian[b, j, k]
        for j in range(d):
            linear[b, j] += gradient[b, j] - dot_one(hessian[b, j], theta[b])
            for k in range(d):
                curvature[b, j, k] += hessian[b, j, k]


@jit
def demand_vectors(features, price, out):
    """Write phi = [x; -p] / sqrt(d) to `out`, for x ``(B, d - 1)`` and p ``(B,)``."""
    B, m = features.shape
    root = np.sqrt(m + 1.0)
    for b in range(B):
        for k in range(m):
            out[b, k] = features[b, k] / root
        out[b, m] = -price[b] / root
