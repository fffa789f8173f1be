"""Rows of one round: kernels of one-pass-mnl and one-pass-pricing.

The first axis of an array is the replicate; every replicate is computed on its own. A row is a
symmetric curvature H as an isometric half (upper triangle row by row, off-diagonal entries times
sqrt(2)) times one factor, followed by the response u times another.
"""

from __future__ import annotations

import numpy as np

from dpb_gym.kernels import elementary
from dpb_gym.kernels._jit import inline, jit
from dpb_gym.kernels.demand_models import LOGISTIC

ROOT2 = np.sqrt(2.0)
# Keeps the norm of a row below its bound in floating point.
ROUNDING = 1.0 - 1e-12


@jit
def _softmax(scores, scale, p):
    """Write the choice probabilities of utilities ``scores / scale`` to `p`."""
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
    """Return (vector - shift)' matrix (vector - shift) of a symmetric matrix."""
    total = 0.0
    for j in range(vector.shape[0]):
        s = 0.0
        for k in range(vector.shape[0]):
            s += matrix[j, k] * (vector[k] - shift[k])
        total += s * (vector[j] - shift[j])
    return total


@jit
def _weight(curvature, response, weighting):
    """Return the factor that brings a row to the full sensitivity, given |H|^2 and |u|^2.

    It is 1 for a row of zeros, and where nothing is private (B and U are infinite).
    """
    bound, radius, share = weighting
    load = (1.0 - share) * curvature / (bound * bound) + share * response / (radius * radius)
    return ROUNDING / np.sqrt(load) if load > 0.0 else 1.0


@jit
def choice_rows(features, slates, choice, theta, covariance, cut, weighting, factors, rows):
    """Write the rows of one multinomial-logit choice per replicate.

    The alternatives are the slate's items and the outside option x = 0. With p the choice
    probabilities at <x, theta> / c, where c^2 = 1 + (pi / 4) sum p_i s_i' V s_i flattens the
    link for the uncertainty V of theta (p at c = 1), s_i = x_i - sum p x, and
    v_i = s_i cut to norm `cut`: H = sum p_i v_i s_i' / c, u = H theta + v_chosen - sum p v.
    Both are multiplied by `_weight`, which does not depend on the choice, and, where nothing is
    cut, divided by c at equal p, which is not small where p is sure and wrong.

    Args:
        features: ``(B, N, d)``.
        slates: ``(B, K)`` distinct items; -1 leaves a place empty.
        choice: ``(B,)``: position in the slate, or -1.
        theta: ``(B, d)``.
        covariance: V, ``(B, d, d)``.
        cut: Largest norm of v.
        weighting: B, U and q.
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
        n, chosen = _alternatives(features[b], slates[b], choice[b], theta[b], x, scores)
        w = 1.0
        if cut == np.inf:
            p[:n] = 1.0 / n
            w /= _link_scale(p[:n], x, covariance[b], centre)
        _softmax(scores[:n], 1.0, p[:n])
        c = _link_scale(p[:n], x, covariance[b], centre)
        _softmax(scores[:n], c, p[:n])
        _mean(p[:n], x, centre)
        _spread(n, x, p, centre, cut, c, lengths, mean, h)
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
        w *= _weight(curvature, longest, weighting)
        _fill(h, u, w * factors[0], w * factors[1], rows[b])


@inline
def _link_scale(p, x, covariance, centre):
    """Return c at choice probabilities p; write the mean of x to `centre`."""
    _mean(p, x, centre)
    c = 0.0
    for i in range(p.shape[0]):
        c += p[i] * _square(covariance, x[i], centre)
    return np.sqrt(1.0 + 0.25 * np.pi * c)


@inline
def _alternatives(features, slate, choice, theta, x, scores):
    """Write features and scores of the offer, outside option last; return size and chosen."""
    n, chosen = 0, -1
    for k in range(slate.shape[0]):
        if slate[k] < 0:
            continue
        if k == choice:
            chosen = n
        s = 0.0
        for j in range(theta.shape[0]):
            x[n, j] = features[slate[k], j]
            s += x[n, j] * theta[j]
        scores[n] = s
        n += 1
    x[n] = 0.0
    scores[n] = 0.0
    return n + 1, chosen if chosen >= 0 else n


@inline
def _spread(n, x, p, centre, cut, c, cuts, mean, h):
    """Centre n rows; write the factor of each cut, sum p v and the upper half of sum p v s' / c."""
    d = x.shape[1]
    h[:] = 0.0
    mean[:] = 0.0
    for i in range(n):
        s = 0.0
        for j in range(d):
            x[i, j] -= centre[j]
            s += x[i, j] * x[i, j]
        length = np.sqrt(s)
        cuts[i] = 1.0 if length <= cut else cut / length
        for j in range(d):
            w = cuts[i] * p[i] * x[i, j]
            mean[j] += w
            for k in range(j, d):
                h[j, k] += w * x[i, k] / c


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
def _demand(phi, theta, covariance, model, zeta):
    """Return <phi, theta>, the expected demand and the factor of phi phi' in the curvature."""
    s, v = 0.0, 0.0
    for j in range(phi.shape[0]):
        s += phi[j] * theta[j]
        for k in range(phi.shape[0]):
            v += phi[j] * covariance[j, k] * phi[k]
    if model != LOGISTIC:
        return s, s, 1.0
    c = np.sqrt(1.0 + 0.125 * np.pi * zeta * zeta * v)
    f = elementary.sigmoid(zeta * s / c)
    return s, f, zeta * zeta * f * (1.0 - f) / c


@jit
def demand_rows(
    features,
    prices,
    demand,
    theta,
    covariance,
    weak,
    model,
    zeta,
    low,
    high,
    weighting,
    factors,
    rows,
):
    """Write the rows of one demand per replicate.

    phi = [x; -p] / sqrt(d), a = zeta and f, h = zeta^2 f' / c the sigmoid's at s / c,
    s = zeta <phi, theta>, c^2 = 1 + (pi / 8) zeta^2 phi' V phi; for Gaussian demand, moved into
    [low, high], a = h = 1 and f = <phi, theta>. D is the gap of phi's last coordinate e to its
    mean over the m prices, and g the least h of any of them:
        H = h phi phi' + m g D^2 e e' + h (<w, phi> / |w|)^2 w w',
        u = H theta + a (y - f) (phi + m g / h D e + <w, phi> w).
    m D^2 is on average, over which of the prices is posted, their sum of squares. H and u are
    multiplied by `_weight`, which does not depend on the demand.

    Args:
        features: ``(B, d - 1)``.
        prices: The price posted and others drawn alike, ``(m, B)``.
        demand: ``(B,)``.
        theta: ``(B, d)``.
        covariance: V, ``(B, d, d)``.
        weak: w, ``(B, d)``; see `kernels.posterior.weak_direction`.
        model: 0 logistic, 1 Gaussian.
        zeta: Link scale of the logistic model.
        low: Least demand that counts.
        high: Largest demand that counts.
        weighting: B, U and q.
        factors: Of H and u in the row.
        rows: Output ``(B, d (d + 1) / 2 + d)``.
    """
    B, d = theta.shape
    m = prices.shape[0]
    root = np.sqrt(np.float64(d))
    scale = zeta if model == LOGISTIC else 1.0
    phi, u, h = np.empty(d), np.empty(d), np.empty((d, d))
    for b in range(B):
        for j in range(d - 1):
            phi[j] = features[b, j] / root
        least, mean = np.inf, 0.0
        for i in range(m - 1, -1, -1):
            phi[d - 1] = -prices[i, b] / root
            s, f, slope = _demand(phi, theta[b], covariance[b], model, zeta)
            least = min(least, slope)
            mean += phi[d - 1] / m
        gap = phi[d - 1] - mean
        along, known, square = 0.0, 0.0, 0.0
        for j in range(d):
            along += weak[b, j] * phi[j]
            known += weak[b, j] * theta[b, j]
            square += weak[b, j] * weak[b, j]
        more = along * along / square if square > 0.0 else 0.0
        for j in range(d):
            u[j] = slope * (s * phi[j] + more * known * weak[b, j])
            for k in range(j, d):
                h[j, k] = slope * (phi[j] * phi[k] + more * weak[b, j] * weak[b, k])
        h[d - 1, d - 1] += m * least * gap * gap
        u[d - 1] += m * least * gap * gap * theta[b, d - 1]
        for j in range(d):
            phi[j] += along * weak[b, j]
        phi[d - 1] += m * (least / slope if slope > 0.0 else 0.0) * gap
        curvature, lowest, highest = 0.0, 0.0, 0.0
        for j in range(d):
            lowest += (u[j] + scale * (low - f) * phi[j]) ** 2
            highest += (u[j] + scale * (high - f) * phi[j]) ** 2
            for k in range(j, d):
                curvature += h[j, k] * h[j, k] * (1.0 if j == k else 2.0)
        y = min(max(demand[b], low), high) if demand[b] == demand[b] else demand[b]
        for j in range(d):
            u[j] += scale * (y - f) * phi[j]
        w = _weight(curvature, max(lowest, highest), weighting)
        _fill(h, u, w * factors[0], w * factors[1], rows[b])
