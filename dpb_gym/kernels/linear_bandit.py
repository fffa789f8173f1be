"""Choices of linear bandit policies: ridge statistics in, candidate indices out.

Candidates are clipped to the unit ball on the fly, x / max(1, ||x||). Ties go to the lower
index.
"""

from __future__ import annotations

import numpy as np

from dpb_gym.kernels._jit import jit
from dpb_gym.kernels.linalg import (
    dot_one,
    multiply_one,
    quadratic_form_one,
    solve_lower_one,
    solve_upper_one,
)


@jit
def _clipped_row(features, b, k, out):
    s = 0.0
    for j in range(out.shape[0]):
        x = np.float64(features[b, k, j])
        out[j] = x
        s += x * x
    if s > 1.0:
        factor = 1.0 / np.sqrt(s)
        for j in range(out.shape[0]):
            out[j] *= factor


@jit
def take(features, action, observed, out):
    """out[b] = clipped features of the chosen candidate, or 0 where nothing was observed.

    Returns 0, or 1 + the first replicate whose action is out of range.
    """
    B, m, d = features.shape
    for b in range(B):
        if action[b] < 0 or action[b] >= m:
            return b + 1
        if observed[b]:
            _clipped_row(features, b, action[b], out[b])
        else:
            for j in range(d):
                out[b, j] = 0.0
    return 0


@jit
def append_constant(features, constant, out):
    """out = (clipped x, constant) / sqrt(1 + constant^2): again in the unit ball.

    Args:
        features: ``(B, m, d)``.
        constant: Value of the extra feature, >= 0.
        out: Output ``(B, m, d + 1)``.
    """
    B, m, d = features.shape
    scale = 1.0 / np.sqrt(1.0 + constant * constant)
    for b in range(B):
        for k in range(m):
            row = out[b, k]
            _clipped_row(features, b, k, row[:d])
            for j in range(d):
                row[j] *= scale
            row[d] = constant * scale


@jit
def _quadratic_forms(matrix, rows, out):
    """out[k] = x_k' matrix x_k. A function of its own compiles to better loops."""
    scratch = np.empty(rows.shape[1])
    for k in range(rows.shape[0]):
        out[k] = quadratic_form_one(matrix, rows[k], scratch)


@jit
def choose_optimistic(features, inverse, response, alpha, action):
    """argmax_k <x_k, theta> + alpha ||x_k||_{A^-1} with theta = A^-1 b (alpha = 0: greedy).

    Args:
        features: ``(B, m, d)``.
        inverse: A^-1, ``(B, d, d)``.
        response: b, ``(B, d)``.
        alpha: Width of the bonus, >= 0.
        action: Output ``(B,)``.
    """
    B, m, d = features.shape
    theta = np.empty(d)
    rows = np.empty((m, d))
    variance = np.zeros(m)
    for b in range(B):
        multiply_one(inverse[b], response[b], theta)
        for k in range(m):
            _clipped_row(features, b, k, rows[k])
        if alpha > 0.0:
            _quadratic_forms(inverse[b], rows, variance)
        best = -np.inf
        action[b] = 0
        for k in range(m):
            score = dot_one(rows[k], theta) + alpha * np.sqrt(max(0.0, variance[k]))
            if score > best:
                best = score
                action[b] = k


@jit
def choose_sampled(features, lower, response, v, normals, action):
    """argmax_k <x_k, theta> with theta = L'^-1 (L^-1 b + v xi), where A = L L'.

    theta is a draw from N(A^-1 b, v^2 A^-1) (RU, Algorithm 1, line 8).

    Args:
        features: ``(B, m, d)``.
        lower: L, ``(B, d, d)``.
        response: b, ``(B, d)``.
        v: Width of the draw.
        normals: xi, ``(B, d)``.
        action: Output ``(B,)``.
    """
    B, m, d = features.shape
    theta = np.empty(d)
    row = np.empty(d)
    for b in range(B):
        solve_lower_one(lower[b], response[b], theta)
        for j in range(d):
            theta[j] += v * normals[b, j]
        solve_upper_one(lower[b], theta, theta)
        best = -np.inf
        action[b] = 0
        for k in range(m):
            _clipped_row(features, b, k, row)
            score = dot_one(row, theta)
            if score > best:
                best = score
                action[b] = k
