"""Records of offers with prices, and random changes of prices.

The first axis of an array is the replicate; every replicate is computed on its own.
"""

from __future__ import annotations

import numpy as np

from dpb_gym.kernels import elementary
from dpb_gym.kernels._jit import jit

# Off-diagonal entries count twice in the Frobenius norm, hence this factor in a half.
ROOT2 = np.sqrt(2.0)
# Keeps the norm of a row below its bound in floating point.
ROUNDING = 1.0 - 1e-12


@jit
def _softmax(scores, scale, p):
    """Write the choice probabilities of utilities ``scores / scale`` to `p`."""
    # Subtracting the largest score keeps exp from overflowing.
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
def unpack(rows, factor, out):
    """Write symmetric matrices ``(B, d, d)``: `factor` times the halves that begin `rows`."""
    d = out.shape[1]
    for b in range(out.shape[0]):
        column = 0
        for j in range(d):
            out[b, j, j] = factor * rows[b, column]
            column += 1
            for k in range(j + 1, d):
                value = factor * rows[b, column] / ROOT2
                out[b, j, k] = value
                out[b, k, j] = value
                column += 1


@jit
def offered_rows(features, offers, choice, phi, count, position):
    """Write phi = [x; -p x] of the offered items, their number, and the place of the bought one.

    Args:
        features: ``(B, N, m)``.
        offers: Prices ``(B, N)``, negative for items that are left out.
        choice: Bought item ``(B,)``, or -1.
        phi: Output ``(B, K, 2 m)``; the rows after the offered items are 0.
        count: Output ``(B,)``.
        position: Output ``(B,)``: row of the bought item, or -1.
    """
    B, N, m = features.shape
    for b in range(B):
        phi[b] = 0.0
        n = 0
        position[b] = -1
        for i in range(N):
            price = offers[b, i]
            if price < 0.0:
                continue
            for j in range(m):
                phi[b, n, j] = features[b, i, j]
                phi[b, n, m + j] = -price * features[b, i, j]
            if choice[b] == i:
                position[b] = n
            n += 1
        count[b] = n


@jit
def newton_rows(phi, count, position, theta, norm, private, rows):
    """Write the curvature H and the response u = H theta + score of a choice, weighted.

    The alternatives are the offered items and buying nothing, phi = 0. With p their probabilities
    under theta, H is the covariance of phi and the score is phi_chosen - sum p phi. With a budget
    the row (norm H, u) is multiplied by the weight that gives its longest outcome the norm 1/2.
    The weight does not depend on the choice, so the sums have no bias.

    Args:
        phi: ``(B, K, d)``; see `offered_rows`.
        count: ``(B,)``; a record of no items is 0.
        position: ``(B,)``.
        theta: ``(B, d)``.
        norm: Factor of H.
        private: Whether rows are weighted.
        rows: Output ``(B, d (d + 1) / 2 + d)``: isometric half of H, then u.
    """
    B, K, d = phi.shape
    x = np.zeros((K + 1, d))
    p = np.empty(K + 1)
    scores = np.empty(K + 1)
    mean = np.empty(d)
    u = np.empty(d)
    h = np.empty((d, d))
    for b in range(B):
        n = count[b]
        rows[b] = 0.0
        if n == 0:
            continue
        for i in range(n):
            scores[i] = 0.0
            for j in range(d):
                x[i, j] = phi[b, i, j]
                scores[i] += x[i, j] * theta[b, j]
        # The last alternative is to buy nothing, of utility 0.
        x[n] = 0.0
        scores[n] = 0.0
        _softmax(scores[: n + 1], 1.0, p[: n + 1])
        _mean(p[: n + 1], x, mean)
        square = 0.0
        for j in range(d):
            for k in range(j, d):
                s = 0.0
                for i in range(n + 1):
                    s += p[i] * (x[i, j] - mean[j]) * (x[i, k] - mean[k])
                h[j, k] = s
                h[k, j] = s
                # Frobenius norm from the upper triangle: entries off the diagonal count twice.
                square += s * s * (1.0 if j == k else 2.0)
        for j in range(d):
            u[j] = -mean[j]
            for k in range(d):
                u[j] += h[j, k] * theta[b, k]
        # Over all outcomes, because a weight that depends on the choice would bias the sums.
        longest = 0.0
        for i in range(n + 1):
            s = 0.0
            for j in range(d):
                s += (u[j] + x[i, j]) ** 2
            longest = max(longest, s)
        chosen = position[b] if position[b] >= 0 else n
        for j in range(d):
            u[j] += x[chosen, j]
        weight = 1.0
        if private:
            # Two rows of norm 1/2 differ by at most 1, the declared sensitivity.
            length = np.sqrt(norm * norm * square + longest)
            weight = 0.5 * ROUNDING / length if length > 0.0 else 0.0
        _fill(h, u, weight * norm, weight, rows[b])


@jit
def shocked(offers, uniforms, size, low, high, out):
    """Move every price up or down by `size`, each with probability 1/2, within [low, high]."""
    B, N = offers.shape
    for b in range(B):
        for i in range(N):
            out[b, i] = offers[b, i]
            if offers[b, i] >= 0.0:
                # Two-point changes have the largest variance among changes of at most this size.
                step = size if uniforms[b, i] < 0.5 else -size
                out[b, i] = min(max(offers[b, i] + step, low), high)
