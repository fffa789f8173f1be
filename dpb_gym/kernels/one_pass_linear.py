"""Kernels of one-pass least squares: public features, posterior means, choices.

Arrays lead with the replicate axis; every replicate is handled on its own, in a fixed order.
"""

from __future__ import annotations

import numpy as np

from dpb_gym.kernels._jit import jit
from dpb_gym.kernels.one_pass import ROOT2, into_ball


@jit
def directions(features, action, observed, intercept, out):
    """Chosen features with an intercept, in the unit ball.

    out[b] = [x; intercept] / sqrt(1 + intercept^2), x moved into the unit ball, or 0 where
    nothing was observed.

    Args:
        features: ``(B, m, d)``.
        action: ``(B,)``, the chosen candidates.
        observed: ``(B,)``.
        intercept: Value of the constant feature.
        out: Output ``(B, d + 1)``.

    Returns:
        0, or 1 + the first replicate whose action is out of range.
    """
    B, m, d = features.shape
    for b in range(B):
        if action[b] < 0 or action[b] >= m:
            return b + 1
    factor = 1.0 / np.sqrt(1.0 + intercept * intercept)
    for b in range(B):
        row = out[b]
        if not observed[b]:
            for j in range(d + 1):
                row[j] = 0.0
            continue
        for j in range(d):
            row[j] = features[b, action[b], j]
        row[d] = 0.0
        into_ball(row, 1.0)
        for j in range(d):
            row[j] *= factor
        row[d] = intercept * factor
    return 0


@jit
def add_outer_halves(vectors, out):
    """Adds the isometric half of v v' to out[b] ``(B, d (d + 1) / 2)`` for v = vectors[b]."""
    B, d = vectors.shape
    for b in range(B):
        column = 0
        for j in range(d):
            x = vectors[b, j]
            out[b, column] += x * x
            column += 1
            x *= ROOT2
            for k in range(j + 1, d):
                out[b, column + k - j - 1] += x * vectors[b, k]
            column += d - j - 1


@jit
def best_candidates(features, theta, action):
    """argmax_k <x_k, theta>, x moved into the unit ball; ties to the lower index.

    theta may be longer than x: further entries (an intercept) change no comparison.
    """
    B, m, d = features.shape
    for b in range(B):
        best = -np.inf
        action[b] = 0
        for k in range(m):
            s = 0.0
            norm = 0.0
            for j in range(d):
                x = np.float64(features[b, k, j])
                s += x * theta[b, j]
                norm += x * x
            if norm > 1.0:
                s /= np.sqrt(norm)
            if s > best:
                best = s
                action[b] = k


@jit
def posterior_systems(matrices, prior, spread, noise, out):
    """out[b] = G P G + spread G + noise I, for symmetric G ``(B, d, d)`` and diagonal P ``(d,)``.

    The covariance of u = G t + e with t ~ N(0, P) and e ~ N(0, spread G + noise I).
    """
    B, d, _ = matrices.shape
    for b in range(B):
        g = matrices[b]
        for j in range(d):
            for k in range(d):
                out[b, j, k] = spread * g[j, k]
            out[b, j, j] += noise
            for i in range(d):
                w = prior[i] * g[j, i]
                for k in range(d):
                    out[b, j, k] += w * g[i, k]


@jit
def posterior_means(matrices, prior, solutions, out):
    """out[b] = P G z, for symmetric G ``(B, d, d)``, diagonal P ``(d,)`` and z ``(B, d)``."""
    B, d, _ = matrices.shape
    for b in range(B):
        for j in range(d):
            s = 0.0
            for k in range(d):
                s += matrices[b, j, k] * solutions[b, k]
            out[b, j] = prior[j] * s
