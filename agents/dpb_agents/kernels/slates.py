"""Best slates under optimistic, sampled or averaged utilities.

The replicate axis comes first. V is a shifted Gram matrix with Cholesky factor L, and `root` is
the inverse of L, so that ||x||_{V^-1} = ||root x||.
"""

from __future__ import annotations

import numpy as np

from dpb_agents.kernels.prices import BET
from dpb_gym.kernels import elementary
from dpb_gym.kernels._jit import inline, jit
from dpb_gym.kernels.linalg import cholesky_shifted_one, logdet_cholesky_one
from dpb_gym.kernels.mnl import best_slates, revenue_of, top_indices

# Larger utilities are clipped, so that sums of their exponentials stay finite.
LARGEST_UTILITY = 300.0


@jit
def roots(matrices, shift, floor, root, logdet, ok):
    """Compute inverse Cholesky factors and log-determinants of matrices + shift I.

    Args:
        matrices: ``(B, d, d)``, symmetric.
        shift: Added to the diagonal.
        floor: Smallest eigenvalue that V = matrix + shift I must have.
        root: Output ``(B, d, d)``, lower triangular; upper triangles are not written.
        logdet: Output ``(B,)``.
        ok: Output ``(B,)``: False where V has an eigenvalue below `floor` (or is not
            positive definite); root and logdet of such a replicate are unchanged.
    """
    B, d, _ = matrices.shape
    factor = np.empty((d, d))
    for b in range(B):
        ok[b] = floor <= 0.0 or cholesky_shifted_one(matrices[b], shift - floor, factor)
        ok[b] = ok[b] and cholesky_shifted_one(matrices[b], shift, factor)
        if not ok[b]:
            continue
        logdet[b] = logdet_cholesky_one(factor)
        for j in range(d):
            root[b, j, j] = 1.0 / factor[j, j]
            for i in range(j + 1, d):
                s = 0.0
                for k in range(j, i):
                    s -= factor[i, k] * root[b, k, j]
                root[b, i, j] = s / factor[i, i]


@jit
def _best_slate(b, utility, revenues, equal, exactly, slates):
    """Write the best slate of replicate `b`; the arrays are those of all replicates."""
    one, K = slice(b, b + 1), slates.shape[1]
    if equal:
        top_indices(utility[b], K, -np.inf, slates[b], np.empty(utility.shape[1], np.int64))
    else:
        best_slates(utility[one], revenues[one], K, exactly, slates[one], np.empty(1))


@inline
def _turn(rows, columns):
    """Transpose features into double precision, columns[k, i] = rows[i, k]."""
    for i in range(rows.shape[0]):
        for k in range(rows.shape[1]):
            columns[k, i] = rows[i, k]


@inline
def _add_products(weights, count, columns, out):
    """Add the sum over k < count of weights[k] columns[k, i] to out[i], term by term."""
    q = count - count % 4
    for k in range(0, q, 4):
        w0, w1, w2, w3 = weights[k], weights[k + 1], weights[k + 2], weights[k + 3]
        c0, c1, c2, c3 = columns[k], columns[k + 1], columns[k + 2], columns[k + 3]
        for i in range(out.shape[0]):
            out[i] = out[i] + w0 * c0[i] + w1 * c1[i] + w2 * c2[i] + w3 * c3[i]
    for k in range(q, count):
        w, c = weights[k], columns[k]
        for i in range(out.shape[0]):
            out[i] += w * c[i]


@jit
def optimistic_slates(features, revenues, equal, exactly, theta, root, width, utility, slates):
    """Compute the best slates under the utilities <x, theta> + width ||x||_{V^-1}.

    Args:
        features: ``(B, N, d)``.
        revenues: ``(B, N)``, -inf for items that cannot be offered.
        equal: Whether all revenues are equal, so that the K largest utilities are best.
        exactly: Whether slates must hold K items.
        theta: ``(B, d)``.
        root: ``(B, d, d)``, lower triangular.
        width: Multiplier of the bonus; 0 for no bonus.
        utility: Output ``(B, N)``.
        slates: Output ``(B, K)``, ascending, padded with -1.
    """
    B, N, d = features.shape
    columns, image, square = np.empty((d, N)), np.empty(N), np.empty(N)
    for b in range(B):
        _turn(features[b], columns)
        utility[b] = 0.0
        _add_products(theta[b], d, columns, utility[b])
        if width > 0.0:
            square[:] = 0.0
            for j in range(d):
                image[:] = 0.0
                _add_products(root[b, j], j + 1, columns, image)
                for i in range(N):
                    square[i] += image[i] * image[i]
            for i in range(N):
                utility[b, i] += width * np.sqrt(square[i])
        _best_slate(b, utility, revenues, equal, exactly, slates)


@jit
def sampled_slates(
    features, revenues, equal, exactly, theta, root, width, normals, utility, slates
):
    """Compute the best slates under the largest of M utilities drawn by Thompson sampling.

    Sample m is theta + width L^-T normals[b, m], of covariance width^2 V^-1. The other arguments
    are those of `optimistic_slates`.

    Args:
        width: Standard deviation in units of V^-1/2.
        normals: ``(B, M, d)``.
    """
    B, N, d = features.shape
    columns, drawn, sample = np.empty((d, N)), np.empty(N), np.empty(d)
    for b in range(B):
        _turn(features[b], columns)
        utility[b] = -np.inf
        for m in range(normals.shape[1]):
            for k in range(d):
                s = 0.0
                for j in range(k, d):
                    s += root[b, j, k] * normals[b, m, j]
                sample[k] = theta[b, k] + width * s
            drawn[:] = 0.0
            _add_products(sample, d, columns, drawn)
            for i in range(N):
                utility[b, i] = drawn[i] if drawn[i] > utility[b, i] else utility[b, i]
        _best_slate(b, utility, revenues, equal, exactly, slates)


@jit
def _expected(i, revenue, sold, earned, attraction):
    """Return the revenue of a slate with item i added, summed over the draws of theta."""
    total = 0.0
    for m in range(sold.shape[0]):
        w = attraction[i, m]
        total += (earned[m] + revenue * w) / (1.0 + sold[m] + w)
    return total


@jit
def expected_slates(features, revenues, exactly, theta, root, normals, slates):
    """Compute slates of large mean revenue over draws theta + root z, greedily.

    Items are added one by one, each time the one that adds most, while that is not negative. For
    equal revenues the mean is submodular, so the result is at least 1 - 1/e of the best
    (Nemhauser, Wolsey & Fisher 1978). The other arguments are those of `optimistic_slates`.

    Args:
        root: ``(B, d, d)``.
        normals: z, ``(B, M, d)``.
    """
    B, N, d = features.shape
    M, K = normals.shape[1], slates.shape[1]
    attraction, draw = np.empty((N, M)), np.empty((M, d))
    sold, earned, taken = np.empty(M), np.empty(M), np.empty(N, np.bool_)
    for b in range(B):
        for m in range(M):
            for j in range(d):
                draw[m, j] = theta[b, j]
                for k in range(d):
                    draw[m, j] += root[b, j, k] * normals[b, m, k]
        for i in range(N):
            for m in range(M):
                s = 0.0
                for j in range(d):
                    s += features[b, i, j] * draw[m, j]
                attraction[i, m] = elementary.exp(min(s, LARGEST_UTILITY))
        sold[:], earned[:], taken[:] = 0.0, 0.0, False
        reached = 0.0
        for _ in range(K):
            best, chosen = -np.inf, -1
            for i in range(N):
                if not taken[i] and revenues[b, i] > -np.inf:
                    value = _expected(i, revenues[b, i], sold, earned, attraction)
                    if value > best:
                        best, chosen = value, i
            if chosen < 0 or (best < reached and not exactly):
                break
            reached, taken[chosen] = best, True
            for m in range(M):
                sold[m] += attraction[chosen, m]
                earned[m] += revenues[b, chosen] * attraction[chosen, m]
        n = 0
        slates[b] = -1
        for i in range(N):
            if taken[i]:
                slates[b, n] = i
                n += 1


@jit
def warranted_slates(features, revenues, theta, drawn, best, slates):
    """Replace slates that are best for `drawn` by the slates `best` where they are a bad bet.

    `best` holds the best slates for theta. A bad bet has a loss under theta of more than `BET`
    times its gain under `drawn`.

    Args:
        features: ``(B, N, d)``.
        revenues: ``(B, N)``, -inf for items that cannot be offered.
        theta: ``(B, d)``.
        drawn: ``(B, d)``.
        best: ``(B, K)``, ascending, padded with -1.
        slates: ``(B, K)``, replaced in place.
    """
    utility = np.empty(features.shape[1])
    for b in range(features.shape[0]):
        cost = _revenue_at(features[b], revenues[b], theta[b], best[b], utility)
        cost -= _revenue_at(features[b], revenues[b], theta[b], slates[b], utility)
        gain = _revenue_at(features[b], revenues[b], drawn[b], slates[b], utility)
        gain -= _revenue_at(features[b], revenues[b], drawn[b], best[b], utility)
        if cost > BET * gain:
            slates[b] = best[b]


@inline
def _revenue_at(features, revenues, theta, slate, utility):
    """Return the expected revenue of a slate; `utility` is a buffer ``(N,)``."""
    count = 0
    for item in slate:
        if item < 0:
            break
        utility[item] = 0.0
        for k in range(theta.shape[0]):
            utility[item] += features[item, k] * theta[k]
        count += 1
    return revenue_of(slate, count, utility, revenues)
