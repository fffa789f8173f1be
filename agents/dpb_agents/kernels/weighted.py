"""Weighted records of x x' and what follows from their sums.

Arrays lead with the replicate axis; replicates are handled one by one, in a fixed order.
"""

from __future__ import annotations

import numpy as np

from dpb_gym.kernels._jit import jit
from dpb_gym.kernels.elementary import exp
from dpb_gym.kernels.linalg import cholesky_one, dot_one, multiply_one


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
def between(outer, inner):
    """outer inner outer for symmetric matrices ``(B, d, d)``, exactly symmetric."""
    B, d, _ = outer.shape
    scratch, out = np.empty((d, d)), np.empty((B, d, d))
    for b in range(B):
        for j in range(d):
            multiply_one(inner[b], outer[b, j], scratch[j])
        for j in range(d):
            for k in range(j + 1):
                out[b, j, k] = out[b, k, j] = dot_one(scratch[j], outer[b, k])
    return out


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
