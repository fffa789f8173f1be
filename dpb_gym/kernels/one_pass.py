"""Symmetric matrices as isometric halves, and their shrinkage towards isotropy."""

from __future__ import annotations

import numpy as np

from dpb_gym.kernels._jit import jit

ROOT2 = np.sqrt(2.0)


@jit
def into_ball(vector, radius):
    """Scales a vector down to norm `radius` in place; returns whether it was longer."""
    s = 0.0
    for j in range(vector.shape[0]):
        s += vector[j] * vector[j]
    if s > radius * radius:
        factor = radius / np.sqrt(s)
        for j in range(vector.shape[0]):
            vector[j] *= factor
        return True
    return False


@jit
def unpack(rows, factor, out):
    """Symmetric matrices ``(B, d, d)``: `factor` times the halves that begin `rows`."""
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
def flatten(matrices, noise, evenness):
    """Shrinks noisy symmetric matrices ``(B, d, d)`` towards isotropic ones, in place.

    With mu = trace / d (negative ones count as 0), a matrix M becomes mu I + w (M - mu I),
    w = v / (v + noise^2), v = (evenness mu)^2: the posterior mean if M's deviation from mu I
    has prior variance v per coordinate of its isometric half, and its noise noise^2.
    """
    B, d, _ = matrices.shape
    if noise == 0.0:
        return
    for b in range(B):
        level = 0.0
        for j in range(d):
            level += matrices[b, j, j]
        level = max(0.0, level / d)
        own = (evenness * level) ** 2
        w = own / (own + noise * noise)
        for j in range(d):
            for k in range(d):
                matrices[b, j, k] *= w
            matrices[b, j, j] += (1.0 - w) * level
