"""Transformations of rows of features."""

from __future__ import annotations

import numpy as np

from dpb_gym.kernels._jit import inline, jit, vectorised
from dpb_gym.kernels.linalg import dot_one
from dpb_gym.kernels.scratch import frame_vector

RAW = 0
CLIP = 1
SCALE = 2
SPHERE = 3
SHORT = 8
"""Rows of fewer numbers do not fill a vector register."""


@jit
def normalise(rows, mode):
    """Rescale each row of a float32 ``(n, d)`` array in place.

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
    """Add sigma z to float32 rows ``(n, d)`` in place, clamped to [-most, most]."""
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


@jit
def project_block(coefficients, basis, first, out):
    """Compute unit vectors in a block of columns of an orthonormal basis.

    out[b, k] is the normalised
    sum_j coefficients[b, k, j] basis[b, :, (first[b] + j) mod d].
    """
    B, m, r = coefficients.shape
    d = basis.shape[1]
    for b in range(B):
        for k in range(m):
            s2 = 0.0
            for i in range(d):
                s = 0.0
                for j in range(r):
                    s += np.float64(coefficients[b, k, j]) * basis[b, i, (first[b] + j) % d]
                out[b, k, i] = s
                s2 += s * s
            if s2 > 0.0:
                for i in range(d):
                    out[b, k, i] = out[b, k, i] / np.sqrt(s2)


@inline
def clipped_row(features, b, k, out):
    """Write features[b, k], clipped to the unit ball, to `out`; return the scaling factor.

    The factor is exactly 1 for unit vectors rounded to single precision.
    """
    s = 0.0
    for j in range(out.shape[0]):
        x = np.float64(features[b, k, j])
        out[j] = x
        s += x * x
    factor = 1.0
    if s > 1.0:
        factor = 1.0 / np.sqrt(s)
        for j in range(out.shape[0]):
            out[j] *= factor
    return factor if s > 1.0 + 1e-6 else 1.0


@inline
def squared_norm(x):
    """||x||^2, in index order."""
    s = 0.0
    for j in range(x.shape[0]):
        s += x[j] * x[j]
    return s


@vectorised
def clip_one(x, out):
    """Write x / max(1, ||x||) to `out`."""
    s = squared_norm(x)
    factor = 1.0 / np.sqrt(s) if s > 1.0 else 1.0
    for j in range(x.shape[0]):
        out[j] = x[j] * factor


@inline
def _image_of_four(columns, metric, j, out):
    """Write entry j of the products of a symmetric matrix and four vectors.

    Args:
        columns: Entry i of vector k at 4 i + k.
        metric: ``(d, d)``.
        j: The entry.
        out: Output ``(4,)``.
    """
    d = metric.shape[0]
    n = d - d % 4
    for k in range(4):
        out[k] = 0.0
    for i in range(0, n, 4):
        a = metric[i, j]
        b = metric[i + 1, j]
        c = metric[i + 2, j]
        e = metric[i + 3, j]
        at = 4 * i
        for k in range(4):
            out[k] += (columns[at + k] * a + columns[at + 4 + k] * b) + (
                columns[at + 8 + k] * c + columns[at + 12 + k] * e
            )
    for i in range(n, d):
        a = metric[i, j]
        for k in range(4):
            out[k] += columns[4 * i + k] * a


@vectorised
def _upper_bounds_of_short_rows(x, theta, metric, width, out):
    """`upper_bounds` of rows of fewer than `SHORT` numbers.

    The operations of `linalg.multiply_one` and `linalg.dot_one`, for four rows at a time: a row has
    too few numbers for vector registers.
    """
    m, d = x.shape
    n = d - d % 4
    columns = frame_vector()
    image = frame_vector()
    means = frame_vector()
    squares = frame_vector()
    for first in range(0, m, 4):
        for k in range(4):
            # after the last row, that row again
            row = min(first + k, m - 1)
            for j in range(d):
                columns[4 * j + k] = x[row, j]
        for k in range(16):
            means[k] = 0.0
            squares[k] = 0.0
        for j in range(d):
            _image_of_four(columns, metric, j, image)
            # `dot_one` adds products to four sums in turn, and those of the rest to the first
            at = 4 * (j % 4) if j < n else 0
            weight = theta[j]
            for k in range(4):
                means[at + k] += columns[4 * j + k] * weight
                squares[at + k] += columns[4 * j + k] * image[k]
        for k in range(min(4, m - first)):
            mean = (means[k] + means[4 + k]) + (means[8 + k] + means[12 + k])
            square = (squares[k] + squares[4 + k]) + (squares[8 + k] + squares[12 + k])
            out[first + k] = mean + width * np.sqrt(max(0.0, square))


@vectorised
def _add_norms(x, metric, width, image, out):
    """Add width ||x_k||_metric to out[k], with the buffer `image` ``(d,)``."""
    m, d = x.shape
    n = d - d % 4
    for k in range(m):
        # the operations of `linalg.multiply_one`, inlined: a fifth faster
        for j in range(d):
            image[j] = 0.0
        for i in range(0, n, 4):
            x0 = x[k, i]
            x1 = x[k, i + 1]
            x2 = x[k, i + 2]
            x3 = x[k, i + 3]
            for j in range(d):
                image[j] += (x0 * metric[i, j] + x1 * metric[i + 1, j]) + (
                    x2 * metric[i + 2, j] + x3 * metric[i + 3, j]
                )
        for i in range(n, d):
            x0 = x[k, i]
            for j in range(d):
                image[j] += x0 * metric[i, j]
        out[k] += width * np.sqrt(max(0.0, dot_one(x[k], image)))


@vectorised
def upper_bounds(x, theta, metric, width, image, out):
    """Write <x_k, theta> + width ||x_k||_metric of every row x_k to `out`.

    Args:
        x: ``(m, d)``.
        theta: ``(d,)``.
        metric: ``(d, d)``, symmetric.
        width: >= 0; 0 for no norm.
        image: Buffer ``(d,)``.
        out: Output ``(m,)``.
    """
    m, d = x.shape
    if width > 0.0 and d < SHORT:
        _upper_bounds_of_short_rows(x, theta, metric, width, out)
        return
    for k in range(m):
        out[k] = dot_one(x[k], theta)
    if width > 0.0:
        _add_norms(x, metric, width, image, out)
