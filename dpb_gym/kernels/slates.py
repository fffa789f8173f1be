"""Best slates under optimistic, sampled or averaged utilities.

The replicate axis comes first. V is a shifted Gram matrix with Cholesky factor L, and `root` is
the inverse of L, so that ||x||_{V^-1} = ||root x||.
"""

from __future__ import annotations

import numpy as np

from dpb_gym.kernels import elementary
from dpb_gym.kernels._jit import inline, jit, vectorised
from dpb_gym.kernels.linalg import copy_one, logdet_cholesky_one
from dpb_gym.kernels.mnl import best_slate_one, top_indices

# Larger utilities are clipped, so that sums of their exponentials stay finite.
LARGEST_UTILITY = 300.0
# Part of the last value that the next one is likely to exceed.
WARY = 0.95
# Bound of the utilities from which on such a guess is not used.
LARGEST_PLAIN = 16.0
# From more items of equal revenues only the best of each block under some draws are considered.
MANY_ITEMS = 1024
JUDGES = 8


@inline
def _add_products(weights, count, columns, out):
    """Add the sum over k < count of weights[k] columns[k, i] to out[i], term by term."""
    q = count - count % 4
    for k in range(0, q, 4):
        w0 = weights[k]
        w1 = weights[k + 1]
        w2 = weights[k + 2]
        w3 = weights[k + 3]
        c0 = columns[k]
        c1 = columns[k + 1]
        c2 = columns[k + 2]
        c3 = columns[k + 3]
        for i in range(out.shape[0]):
            out[i] = out[i] + w0 * c0[i] + w1 * c1[i] + w2 * c2[i] + w3 * c3[i]
    for k in range(q, count):
        w = weights[k]
        c = columns[k]
        for i in range(out.shape[0]):
            out[i] += w * c[i]


@vectorised
def _upper_factor(matrix, shift, weights, upper):
    """Write the upper factor R of R'R = matrix + shift I; return False if there is none.

    Entries below the diagonal and to the right are overwritten. `weights` is a buffer ``(d,)``.
    """
    d = matrix.shape[0]
    for i in range(d):
        row = upper[i]
        copy_one(matrix[i], row)
        row[i] += shift
        for k in range(i):
            weights[k] = -upper[k, i]
        _add_products(weights, i, upper, row)
        if not 0.0 < row[i] < np.inf:
            return False
        row[i] = np.sqrt(row[i])
        for j in range(i + 1, d):
            row[j] /= row[i]
    return True


@vectorised
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
    width = (d + 15) // 16 * 16  # rows of whole vectors
    factor = np.zeros((d, width))
    inverse = np.zeros((d, width))
    weights = np.empty(d)
    for b in range(B):
        ok[b] = floor <= 0.0 or _upper_factor(matrices[b], shift - floor, weights, factor)
        ok[b] = ok[b] and _upper_factor(matrices[b], shift, weights, factor)
        if not ok[b]:
            continue
        logdet[b] = logdet_cholesky_one(factor)
        for i in range(d):
            inverse[i] = 0.0
            for k in range(i):
                weights[k] = -factor[k, i]
            _add_products(weights, i, inverse, inverse[i])
            for j in range(i):
                inverse[i, j] /= factor[i, i]
                root[b, i, j] = inverse[i, j]
            root[b, i, i] = inverse[i, i] = 1.0 / factor[i, i]


@inline
def likely(features, norm, value):
    """Return a value that the best slate is likely to exceed, given the last one; 0 for no guess.

    Utilities are at most the largest entry of the features times `norm`. Where they may be
    large, values of different slates are equal up to rounding.
    """
    largest = np.float32(0.0)
    for i in range(features.shape[0]):
        for k in range(features.shape[1]):
            largest = max(largest, abs(features[i, k]))
    return WARY * max(value, 0.0) if largest * norm < LARGEST_PLAIN else 0.0


@inline
def reached(least, value):
    """Return whether a slate of the items that are `worthwhile` for `least` is the best one."""
    return least == 0.0 or value > (1.0 + 1e-6) * least


@inline
def worthwhile(revenues, every, least, items):
    """Write the items of a revenue above `least`, or `every` one; return their number.

    A best slate of at most K items with a value of at least `least` holds no other item.
    """
    n = 0
    for i in range(revenues.shape[0]):
        items[n] = i
        n += every or revenues[i] > least
    return n


@jit
def best_slate(items, utility, revenues, equal, exactly, least, slate):
    """Write the best slate of some items; return its value, or 0 for `equal` revenues."""
    n = items.shape[0]
    K = slate.shape[0]
    value = 0.0
    if equal:
        top_indices(utility, K, -np.inf, slate, np.empty(n, np.int64))
    else:
        own = np.empty(n)
        for a in range(n):
            own[a] = revenues[items[a]]
        value = best_slate_one(utility, own, K, exactly, least, slate)
    for a in range(K):
        slate[a] = items[slate[a]] if slate[a] >= 0 else -1
    return value


@inline
def _turn(rows, items, columns):
    """Transpose features of some items into double precision, columns[k, a] = rows[items[a], k]."""
    for a in range(items.shape[0]):
        row = rows[items[a]]
        for k in range(rows.shape[1]):
            columns[k, a] = row[k]


@jit
def optimistic_slates(features, revenues, equal, exactly, theta, root, width, values, slates):
    """Compute the best slates under the utilities <x, theta> + width ||x||_{V^-1}.

    Args:
        features: ``(B, N, d)``.
        revenues: ``(B, N)``, -inf for items that cannot be offered.
        equal: Whether all revenues are equal, so that the K largest utilities are best.
        exactly: Whether slates must hold K items.
        theta: ``(B, d)``.
        root: ``(B, d, d)``, lower triangular.
        width: Multiplier of the bonus; 0 for no bonus.
        values: Values of the slates ``(B,)``, in place. The search is fastest if those of the call
            before are near; the slates do not depend on them.
        slates: Output ``(B, K)``, ascending, padded with -1.
    """
    B, N, d = features.shape
    items = np.empty(N, np.int64)
    columns = np.empty((d, N))
    buffers = np.empty((3, N))
    for b in range(B):
        norm = 0.0
        squares = 0.0
        for j in range(d):
            norm += abs(theta[b, j])
            for k in range(j + 1 if width > 0.0 else 0):
                squares += root[b, j, k] * root[b, j, k]
        norm += width * np.sqrt(d * squares)
        least = 0.0 if equal or exactly else likely(features[b], norm, values[b])
        while True:
            n = worthwhile(revenues[b], least == 0.0, least, items)
            utility = buffers[0, :n]
            image = buffers[1, :n]
            square = buffers[2, :n]
            _turn(features[b], items[:n], columns)
            utility[:] = 0.0
            _add_products(theta[b], d, columns, utility)
            if width > 0.0:
                square[:] = 0.0
                for j in range(d):
                    image[:] = 0.0
                    _add_products(root[b, j], j + 1, columns, image)
                    for i in range(n):
                        square[i] += image[i] * image[i]
                for i in range(n):
                    utility[i] += width * np.sqrt(square[i])
            given = items[:n], utility, revenues[b], equal, exactly
            values[b] = best_slate(*given, least, slates[b])
            if reached(least, values[b]):
                break
            least = WARY * values[b]


@jit
def sampled_slates(features, revenues, equal, exactly, theta, root, width, normals, values, slates):
    """Compute the best slates under the largest of M utilities drawn by Thompson sampling.

    Sample m is theta + width L^-T normals[b, m], of covariance width^2 V^-1. The other arguments
    are those of `optimistic_slates`.

    Args:
        width: Standard deviation in units of V^-1/2.
        normals: ``(B, M, d)``.
    """
    B, N, d = features.shape
    items = np.empty(N, np.int64)
    columns = np.empty((d, N))
    buffers = np.empty((2, N))
    samples = np.empty((normals.shape[1], d))
    for b in range(B):
        for m in range(normals.shape[1]):
            for k in range(d):
                s = 0.0
                for j in range(k, d):
                    s += root[b, j, k] * normals[b, m, j]
                samples[m, k] = theta[b, k] + width * s
        norm = 0.0
        for m in range(normals.shape[1]):
            norm = max(norm, np.sum(np.abs(samples[m])))
        least = 0.0 if equal or exactly else likely(features[b], norm, values[b])
        while True:
            n = worthwhile(revenues[b], least == 0.0, least, items)
            utility = buffers[0, :n]
            drawn = buffers[1, :n]
            _turn(features[b], items[:n], columns)
            utility[:] = -np.inf
            for sample in samples:
                drawn[:] = 0.0
                _add_products(sample, d, columns, drawn)
                for i in range(n):
                    utility[i] = drawn[i] if drawn[i] > utility[i] else utility[i]
            given = items[:n], utility, revenues[b], equal, exactly
            values[b] = best_slate(*given, least, slates[b])
            if reached(least, values[b]):
                break
            least = WARY * values[b]


@vectorised
def _nominated(features, draws, blocks, items):
    """Keep the items that are best in their block under one of the first draws.

    Args:
        features: ``(N, d)``.
        draws: Draws of theta ``(M, d)``, of which the first `JUDGES` are used.
        blocks: Number of blocks of consecutive items, at most ``len(items)``.
        items: Ascending items; the first n are replaced by those that are kept, ascending.

    Returns:
        n, at least `blocks` and at most `blocks` times `JUDGES`.
    """
    d = features.shape[1]
    longest = (items.shape[0] + blocks - 1) // blocks
    columns = np.empty((d, longest))
    utility = np.empty(longest)
    kept = np.empty(longest, np.bool_)
    n = 0
    for block in range(blocks):
        first = block * items.shape[0] // blocks
        length = (block + 1) * items.shape[0] // blocks - first
        _turn(features, items[first : first + length], columns)
        kept[:] = False
        for m in range(min(JUDGES, draws.shape[0])):
            utility[:length] = 0.0
            _add_products(draws[m], d, columns, utility[:length])
            best = 0
            for a in range(1, length):
                if utility[a] > utility[best]:
                    best = a
            kept[best] = True
        for a in range(length):
            if kept[a]:
                items[n] = items[first + a]
                n += 1
    return n


@jit
def _considered(features, revenues, draws, K, items):
    """Write the items that `expected_slates` considers, ascending; return their number.

    These are all that can be offered. Of more than `MANY_ITEMS` items of equal revenues they are
    those that some draw ranks first in its block.
    """
    n = 0
    lowest = np.inf
    highest = -np.inf
    for i in range(revenues.shape[0]):
        if revenues[i] > -np.inf:
            items[n] = i
            n += 1
            lowest = min(lowest, revenues[i])
            highest = max(highest, revenues[i])
    if n > MANY_ITEMS and lowest == highest:
        n = _nominated(features, draws, min(n, max(K, MANY_ITEMS // JUDGES)), items[:n])
    return n


@jit
def _expected(revenue, sold, earned, attraction):
    """Return the revenue of a slate with one more item, summed over the draws of theta."""
    total = 0.0
    for m in range(sold.shape[0]):
        w = attraction[m]
        total += (earned[m] + revenue * w) / (1.0 + sold[m] + w)
    return total


@jit
def expected_slates(features, revenues, exactly, theta, root, normals, slates):
    """Compute slates of large mean revenue over draws theta + root z, greedily.

    Items are added one by one, each time the one that adds most, while that is not negative. For
    equal revenues the mean is submodular, so the result is at least 1 - 1/e of the best one of the
    considered items (Nemhauser, Wolsey & Fisher 1978). All items are considered, unless there are
    more than `MANY_ITEMS` of equal revenues. The other arguments are those of
    `optimistic_slates`.

    Args:
        root: ``(B, d, d)``.
        normals: z, ``(B, M, d)``.
    """
    B, N, d = features.shape
    M = normals.shape[1]
    K = slates.shape[1]
    items = np.empty(N, np.int64)
    draw = np.empty((M, d))
    sold = np.empty(M)
    earned = np.empty(M)
    for b in range(B):
        for m in range(M):
            for j in range(d):
                draw[m, j] = theta[b, j]
                for k in range(d):
                    draw[m, j] += root[b, j, k] * normals[b, m, k]
        n = _considered(features[b], revenues[b], draw, K, items)
        attraction = np.empty((n, M))
        taken = np.zeros(n, np.bool_)
        for a in range(n):
            for m in range(M):
                s = 0.0
                for j in range(d):
                    s += features[b, items[a], j] * draw[m, j]
                attraction[a, m] = elementary.exp(min(s, LARGEST_UTILITY))
        sold[:], earned[:] = 0.0, 0.0
        reached = 0.0
        for _ in range(K):
            best = -np.inf
            chosen = -1
            for a in range(n):
                if not taken[a]:
                    value = _expected(revenues[b, items[a]], sold, earned, attraction[a])
                    if value > best:
                        best = value
                        chosen = a
            if chosen < 0 or (best < reached and not exactly):
                break
            reached, taken[chosen] = best, True
            for m in range(M):
                sold[m] += attraction[chosen, m]
                earned[m] += revenues[b, items[chosen]] * attraction[chosen, m]
        offered = 0
        slates[b] = -1
        for a in range(n):
            if taken[a]:
                slates[b, offered] = items[a]
                offered += 1
