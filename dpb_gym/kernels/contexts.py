"""Feature transformations shared by the problems."""

from __future__ import annotations

import numpy as np

from dpb_gym.kernels._jit import inline, jit

RAW, CLIP, SCALE, SPHERE = 0, 1, 2, 3


@jit
def normalise(rows, mode):
    """Rescales each row of a float32 ``(n, d)`` array in place.

    `CLIP`: x / max(1, ||x||); `SCALE`: x / sqrt(d); `SPHERE`: x / ||x|| (0 stays 0).
    """
    n, d = rows.shape
    if mode == RAW:
        return
    for i in range(n):
        s = 0.0
        for k in range(d):
            s += np.float64(rows[i, k]) * np.float64(rows[i, k])
        if mode == CLIP:
            factor = 1.0 / max(1.0, np.sqrt(s))
        elif mode == SCALE:
            factor = 1.0 / np.sqrt(d)
        elif s > 0.0:
            factor = 1.0 / np.sqrt(s)
        else:
            factor = 1.0
        for k in range(d):
            rows[i, k] = rows[i, k] * factor


@jit
def perturb(rows, sigma, normals, most):
    """Float32 rows ``(n, d)`` plus sigma z, z of the same shape; within +-most, in place."""
    n, d = rows.shape
    for i in range(n):
        for k in range(d):
            noisy = np.float32(rows[i, k] + sigma * normals[i, k])
            rows[i, k] = max(-most, min(most, noisy))


@jit
def combine(coefficients, basis, out):
    """out[i] = sum_k coefficients[i, k] basis[:, k], for float32 ``(n, r)``, ``(d, r)``."""
    n, r = coefficients.shape
    d = basis.shape[0]
    for i in range(n):
        for j in range(d):
            s = 0.0
            for k in range(r):
                s += np.float64(coefficients[i, k]) * basis[j, k]
            out[i, j] = s


@inline
def clipped_row(features, b, k, out):
    """out = features[b, k] in double precision, moved into the unit ball."""
    s = 0.0
    for j in range(out.shape[0]):
        x = np.float64(features[b, k, j])
        out[j] = x
        s += x * x
    if s > 1.0:
        factor = 1.0 / np.sqrt(s)
        for j in range(out.shape[0]):
            out[j] *= factor


@inline
def clipped_rows(features, b, out):
    """out[k] = `clipped_row` of every k, ``(m, d)``, in step and without a branch to guess."""
    m, d = out.shape
    n = m - m % 4
    for k in range(m):
        for j in range(d):
            out[k, j] = features[b, k, j]
    for k in range(0, n, 4):
        s0, s1, s2, s3 = 0.0, 0.0, 0.0, 0.0
        for j in range(d):
            s0 += out[k, j] * out[k, j]
            s1 += out[k + 1, j] * out[k + 1, j]
            s2 += out[k + 2, j] * out[k + 2, j]
            s3 += out[k + 3, j] * out[k + 3, j]
        for i, s in enumerate((s0, s1, s2, s3)):
            factor = 1.0 / np.sqrt(max(s, 1.0))
            for j in range(d):
                out[k + i, j] *= factor
    for k in range(n, m):
        s = 0.0
        for j in range(d):
            s += out[k, j] * out[k, j]
        factor = 1.0 / np.sqrt(max(s, 1.0))
        for j in range(d):
            out[k, j] *= factor
