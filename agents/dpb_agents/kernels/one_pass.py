"""Kernels of one-pass-mnl and one-pass-pricing: one round's row.

Arrays lead with the replicate axis; every replicate is handled on its own, in a fixed order.
A row is a symmetric curvature H as an isometric half (upper triangle row by row, off-diagonal
entries times sqrt(2)) times one factor, followed by the response u times another.
"""

from __future__ import annotations

import numpy as np

from dpb_gym.kernels import elementary
from dpb_gym.kernels._jit import jit
from dpb_gym.kernels.pricing import LOGISTIC

ROOT2 = np.sqrt(2.0)
# A row's norm stays below its bound in floating point too.
ROUNDING = 1.0 - 1e-12


@jit
def _softmax(scores, scale, p):
    """Choice probabilities of utilities ``scores / scale``; the last score is the outside's."""
    top = scores[0]
    for i in range(1, scores.shape[0]):
        top = max(top, scores[i])
    total = 0.0
    for i in range(scores.shape[0]):
        p[i] = elementary.exp((scores[i] - top) / scale)
        total += p[i]
    for i in range(scores.shape[0]):
        p[i] /= total


@jit
def _mean(p, x, out):
    for j in range(x.shape[1]):
        out[j] = 0.0
        for i in range(p.shape[0]):
            out[j] += p[i] * x[i, j]


@jit
def _square(matrix, vector, shift):
    """(vector - shift)' matrix (vector - shift) of a symmetric matrix."""
    total = 0.0
    for j in range(vector.shape[0]):
        s = 0.0
        for k in range(vector.shape[0]):
            s += matrix[j, k] * (vector[k] - shift[k])
        total += s * (vector[j] - shift[j])
    return total


@jit
def _weight(curvature, response, bound, radius, share, most):
    """Factor that brings squared norms of H and u to the full sensitivity, at most `most`."""
    load = (1.0 - share) * curvature / (bound * bound) + share * response / (radius * radius)
    return min(most, ROUNDING / np.sqrt(load)) if load > 0.0 else most


@jit
def choice_rows(
    features, slates, choice, theta, covariance, cut, bound, radius, share, most, factors, rows
):
    """Rows of one multinomial-logit choice per replicate.

    The alternatives are the slate's items and the outside option x = 0. With p the choice
    probabilities at <x, theta> / c, where c^2 = 1 + (pi / 4) sum p_i s_i' V s_i flattens the
    link for the uncertainty V of theta (p at c = 1), s_i = x_i - sum p x, and
    v_i = s_i cut to norm `cut`: H = sum p_i v_i s_i' / c, u = H theta + v_chosen - sum p v.
    Both are multiplied by `_weight`, which does not depend on the choice.

    Args:
        features: ``(B, N, d)``.
        slates: ``(B, K)`` distinct items; -1 leaves a place empty.
        choice: ``(B,)``: position in the slate, or -1.
        theta: ``(B, d)``.
        covariance: V, ``(B, d, d)``.
        cut: Largest norm of v.
        bound: B of the weight.
        radius: U of the weight.
        share: q of the weight.
        most: Largest weight.
        factors: Of H and u in the row.
        rows: Output ``(B, d (d + 1) / 2 + d)``.
    """
    B, K = slates.shape
    d = theta.shape[1]
    x = np.empty((K + 1, d))
    p = np.empty(K + 1)
    scores = np.empty(K + 1)
    lengths = np.empty(K + 1)
    centre = np.empty(d)
    mean = np.empty(d)
    u = np.empty(d)
    h = np.empty((d, d))
    for b in range(B):
        n = 0
        chosen = -1
        for k in range(K):
            item = slates[b, k]
            if item < 0:
                continue
            if k == choice[b]:
                chosen = n
            s = 0.0
            for j in range(d):
                x[n, j] = features[b, item, j]
                s += x[n, j] * theta[b, j]
            scores[n] = s
            n += 1
        x[n] = 0.0
        scores[n] = 0.0
        if chosen < 0:
            chosen = n
        n += 1
        _softmax(scores[:n], 1.0, p[:n])
        _mean(p[:n], x, centre)
        c = 0.0
        for i in range(n):
            c += p[i] * _square(covariance[b], x[i], centre)
        c = np.sqrt(1.0 + 0.25 * np.pi * c)
        _softmax(scores[:n], c, p[:n])
        _mean(p[:n], x, centre)
        h[:] = 0.0
        mean[:] = 0.0
        for i in range(n):
            s = 0.0
            for j in range(d):
                x[i, j] -= centre[j]
                s += x[i, j] * x[i, j]
            lengths[i] = np.sqrt(s)
            cutting = 1.0 if lengths[i] <= cut else cut / lengths[i]
            for j in range(d):
                w = cutting * p[i] * x[i, j]
                mean[j] += w
                for k in range(j, d):
                    h[j, k] += w * x[i, k] / c
            lengths[i] = cutting
        curvature = 0.0
        for j in range(d):
            for k in range(j, d):
                h[k, j] = h[j, k]
                curvature += h[j, k] * h[j, k] * (1.0 if j == k else 2.0)
        for j in range(d):
            s = -mean[j]
            for k in range(d):
                s += h[j, k] * theta[b, k]
            u[j] = s
        longest = 0.0
        for i in range(n):
            s = 0.0
            for j in range(d):
                s += (u[j] + lengths[i] * x[i, j]) ** 2
            longest = max(longest, s)
        for j in range(d):
            u[j] += lengths[chosen] * x[chosen, j]
        w = _weight(curvature, longest, bound, radius, share, most)
        _fill(h, u, w * factors[0], w * factors[1], rows[b])


@jit
def _fill(h, u, curvature_factor, response_factor, row):
    column = 0
    d = u.shape[0]
    for j in range(d):
        row[column] = curvature_factor * h[j, j]
        column += 1
        for k in range(j + 1, d):
            row[column] = ROOT2 * curvature_factor * h[j, k]
            column += 1
    for j in range(d):
        row[column + j] = response_factor * u[j]


@jit
def demand_rows(
    features,
    price,
    demand,
    theta,
    covariance,
    model,
    zeta,
    low,
    high,
    bound,
    radius,
    share,
    most,
    factors,
    rows,
):
    """Rows of one demand per replicate.

    phi = [x; -p] / sqrt(d). Logistic: with s = zeta <phi, theta>,
    c^2 = 1 + (pi / 8) zeta^2 phi' V phi and f the sigmoid, H = zeta^2 f'(s / c) / c phi phi',
    u = H theta + zeta (y - f(s / c)) phi. Gaussian: H = phi phi', u = y phi, y the demand
    moved into [low, high]. Both are multiplied by `_weight`, which does not depend on the
    demand.

    Args:
        features: ``(B, d - 1)``.
        price: ``(B,)``.
        demand: ``(B,)``.
        theta: ``(B, d)``.
        covariance: V, ``(B, d, d)``.
        model: 0 logistic, 1 Gaussian.
        zeta: Link scale of the logistic model.
        low: Least demand that counts.
        high: Largest demand that counts.
        bound: B of the weight.
        radius: U of the weight.
        share: q of the weight.
        most: Largest weight.
        factors: Of H and u in the row.
        rows: Output ``(B, d (d + 1) / 2 + d)``.
    """
    B, d = theta.shape
    root = np.sqrt(np.float64(d))
    phi = np.empty(d)
    zero = np.zeros(d)
    u = np.empty(d)
    h = np.empty((d, d))
    for b in range(B):
        for j in range(d - 1):
            phi[j] = features[b, j] / root
        phi[d - 1] = -price[b] / root
        y = min(max(demand[b], low), high) if demand[b] == demand[b] else demand[b]
        square = 0.0
        for j in range(d):
            square += phi[j] * phi[j]
        if model == LOGISTIC:
            s = 0.0
            for j in range(d):
                s += phi[j] * theta[b, j]
            c = np.sqrt(1.0 + 0.125 * np.pi * zeta * zeta * _square(covariance[b], phi, zero))
            f = elementary.sigmoid(zeta * s / c)
            slope = zeta * zeta * f * (1.0 - f) / c
            response = slope * s + zeta * (y - f)
            longest = max(abs(slope * s + zeta * (1.0 - f)), abs(slope * s - zeta * f))
        else:
            slope = 1.0
            response = y
            longest = max(abs(low), abs(high))
        for j in range(d):
            u[j] = response * phi[j]
            for k in range(j, d):
                h[j, k] = slope * phi[j] * phi[k]
        w = _weight(
            slope * slope * square * square, longest * longest * square, bound, radius, share, most
        )
        _fill(h, u, w * factors[0], w * factors[1], rows[b])
