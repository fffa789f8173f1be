"""Weighted records of x x' and what follows from their sums.

Arrays lead with the replicate axis; replicates are handled one by one, in a fixed order.
"""

from __future__ import annotations

import numpy as np

from dpb_gym.kernels._jit import jit
from dpb_gym.kernels.elementary import exp
from dpb_gym.kernels.linalg import cholesky_one, dot_one, eigh_one, multiply_one

LEAST = 0.5  # of the regularisation, below which no eigenvalue stays


@jit
def records(vectors, rewards, root, gamma, bound, weights, scaled, response):
    """The two records of a round, in units of their bound R = `bound`.

    With W = root^2, w = 1 / (1 + gamma ||W x||): weights[b] scaled[b] scaled[b]' =
    w (root x)(root x)' / R and response[b] = w r W x / R.

    Args:
        vectors: x ``(B, d)``; 0 adds nothing.
        rewards: r ``(B,)``.
        root: W^(1/2), ``(B, d, d)``.
        gamma: ``(B,)``.
        bound: ``(B,)``.
        weights: Output ``(B,)``.
        scaled: Output ``(B, d)``.
        response: Output ``(B, d)``.
    """
    B, d = vectors.shape
    y = np.empty(d)
    for b in range(B):
        multiply_one(root[b], vectors[b], scaled[b])
        multiply_one(root[b], scaled[b], y)
        weights[b] = 1.0 / ((1.0 + gamma[b] * np.sqrt(dot_one(y, y))) * bound[b])
        for i in range(d):
            response[b, i] = weights[b] * rewards[b] * y[i]


@jit
def _of_eigenvalues(values, vectors, out):
    """out = sum_i values[i] v v' over the columns v of vectors."""
    d = values.shape[0]
    for j in range(d):
        for k in range(j + 1):
            s = 0.0
            for i in range(d):
                s += values[i] * vectors[j, i] * vectors[k, i]
            out[j, k] = out[k, j] = s


@jit
def _between(outer, inner, scratch, out):
    """out = outer inner outer for symmetric matrices, exactly symmetric."""
    d = outer.shape[0]
    for j in range(d):
        multiply_one(inner, outer[j], scratch[j])
    for j in range(d):
        for k in range(j + 1):
            out[j, k] = out[k, j] = dot_one(scratch[j], outer[k])


@jit
def accumulate(gram, response, root, total, summed):
    """total += W^(-1/2) gram W^(-1/2) and summed += W^-1 response, with W = root^2.

    Args:
        gram: Noisy sum ``(B, d, d)``.
        response: Noisy sum ``(B, d)``.
        root: W^(1/2) ``(B, d, d)``.
        total: ``(B, d, d)``, in place.
        summed: ``(B, d)``, in place.
    """
    B, d = response.shape
    values, vectors = np.empty(d), np.empty((d, d))
    back, scratch, plain = np.empty((d, d)), np.empty((d, d)), np.empty((d, d))
    image, vector = np.empty(d), np.empty(d)
    for b in range(B):
        eigh_one(root[b], values, vectors)
        for i in range(d):
            values[i] = 1.0 / values[i]
        _of_eigenvalues(values, vectors, back)
        _between(back, gram[b], scratch, plain)
        multiply_one(back, response[b], image)
        multiply_one(back, image, vector)
        for i in range(d):
            summed[b, i] += vector[i]
            for j in range(d):
                total[b, i, j] += plain[i, j]


@jit
def solve(total, summed, shift, ridge, rounds, root, known, inverse, theta, pull, size):
    """V = total + shift W^-1 + ridge I, the estimate V^-1 summed, and the next W.

    In units of W^(-1/2), eigenvalues of V are at least half of shift + ridge. pull = (shift W^-1 +
    ridge I) known; next W = (V / rounds)^(-1/2).

    Args:
        total: Noisy sum ``(B, d, d)``.
        summed: Noisy sum ``(B, d)``.
        shift: ``(B,)``.
        ridge: > 0.
        rounds: Rounds that the sums are over.
        root: W^(1/2) ``(B, d, d)``; replaced by that of the next W.
        known: ``(d,)``.
        inverse: Output V^-1, ``(B, d, d)``.
        theta: Output ``(B, d)``.
        pull: Output ``(B, d)``.
        size: Output: operator norm of the next W, ``(B,)``.
    """
    B, d = theta.shape
    values, vectors, roots = np.empty(d), np.empty((d, d)), np.empty(d)
    work, scratch, scaled = np.empty((d, d)), np.empty((d, d)), np.empty((d, d))
    for b in range(B):
        eigh_one(root[b], roots, vectors)
        for i in range(d):
            values[i] = shift[b] / (roots[i] * roots[i]) + ridge
        _of_eigenvalues(values, vectors, work)
        multiply_one(work, known, pull[b])
        _between(root[b], total[b], scratch, scaled)
        for i in range(d):
            values[i] = shift[b] + ridge * roots[i] * roots[i]
        _of_eigenvalues(values, vectors, work)
        for i in range(d):
            for j in range(d):
                scaled[i, j] += work[i, j]
        eigh_one(scaled, values, vectors)
        for i in range(d):
            values[i] = 1.0 / max(values[i], LEAST * (shift[b] + ridge))
        _of_eigenvalues(values, vectors, work)
        _between(root[b], work, scratch, inverse[b])
        multiply_one(inverse[b], summed[b], theta[b])
        eigh_one(inverse[b], values, vectors)
        for i in range(d):
            values[i] = np.sqrt(np.sqrt(rounds * max(values[i], 0.0)))
        _of_eigenvalues(values, vectors, root[b])
        size[b] = values[d - 1] * values[d - 1]


@jit
def slopes(vectors, theta, out):
    """out[b] = mu'(<x, theta>) with the logistic mean mu, ``(B,)``."""
    for b in range(vectors.shape[0]):
        e = exp(-abs(dot_one(vectors[b], theta[b])))
        out[b] = e / ((1.0 + e) * (1.0 + e))


@jit
def outgrown(gram, shift, frozen, factor, due):
    """due[b] = gram[b] + shift I is larger than factor frozen[b] in some direction.

    Args:
        gram: ``(B, d, d)``.
        shift: Added to the diagonal.
        frozen: ``(B, d, d)``.
        factor: > 1.
        due: Output ``(B,)``.

    Returns:
        Whether any of them is True.
    """
    B, d, _ = gram.shape
    left, lower = np.empty((d, d)), np.empty((d, d))
    some = False
    for b in range(B):
        for j in range(d):
            for k in range(d):
                left[j, k] = factor * frozen[b, j, k] - gram[b, j, k]
            left[j, j] -= shift
        due[b] = not cholesky_one(left, lower)
        some = some or due[b]
    return some
