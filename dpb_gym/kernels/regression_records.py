"""Records of linear regression: chosen features x, and noisy x x' and r x."""

from __future__ import annotations

import numpy as np

from dpb_gym.kernels._jit import jit, vectorised
from dpb_gym.kernels.feature_rows import clipped_row


@jit
def take(features, action, observed, out, weight):
    """out[b] = weight[b] times the chosen candidate, clipped to the unit ball; 0 if not observed.

    Returns 0, or 1 + the first replicate whose action is out of range.
    """
    B, m, d = features.shape
    for b in range(B):
        if action[b] < 0 or action[b] >= m:
            return b + 1
        if observed[b]:
            weight[b] = clipped_row(features, b, action[b], out[b])
        else:
            for j in range(d):
                out[b, j] = 0.0
    return 0


@vectorised
def statistics(vectors, rewards, sigma, normals, out):
    """Compute noisy x x' and r x of one candidate per replicate, x clipped to the unit ball.

    The matrix gets GOE noise, with standard deviation sigma / sqrt(2) off the diagonal.

    Args:
        vectors: x, ``(B, 1, d)``.
        rewards: r, ``(B,)``.
        sigma: Noise scale.
        normals: Standard normals, as many as `out` has numbers.
        out: Output ``(B, d (d + 1) / 2 + d)``: upper triangle of x x' row by row, then r x.
    """
    B, _, d = vectors.shape
    x = np.empty(d)
    root2 = np.sqrt(2.0)
    for b in range(B):
        clipped_row(vectors, b, 0, x)
        first = 0
        for i in range(d):
            left = x[i]
            rest = x[i:]
            row = out[b, first : first + d - i]
            noise = normals[b, first : first + d - i]
            for j in range(d - i):
                row[j] = (left * rest[j] * root2 + sigma * noise[j]) / root2
            row[0] = left * left + sigma * noise[0]
            first += d - i
        row = out[b, first:]
        noise = normals[b, first:]
        for j in range(d):
            row[j] = rewards[b] * x[j] + sigma * noise[j]


@jit
def unfold(rows, matrices, vectors):
    """Convert sums of `statistics` to symmetric matrices ``(B, d, d)`` and vectors ``(B, d)``."""
    B, d = vectors.shape
    for b in range(B):
        at = 0
        for i in range(d):
            for j in range(i, d):
                matrices[b, i, j] = matrices[b, j, i] = rows[b, at]
                at += 1
        for i in range(d):
            vectors[b, i] = rows[b, at + i]
