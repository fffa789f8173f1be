"""Kernels of records with public directions: choices, directions and users' weights.

The first axis of all arrays is the replicate. Replicates are computed one by one.
"""

from __future__ import annotations

import numpy as np

from dpb_gym.kernels._jit import jit
from dpb_gym.kernels.linalg import copy_one

# Lengths whose squares differ by a smaller factor count as equal.
ROUNDING = 1.0 + 1e-6


@jit
def _add(features, b, k, weight, out):
    """Add weight x to `out` and return |x|^2."""
    square = 0.0
    for j in range(out.shape[0]):
        x = np.float64(features[b, k, j])
        square += x * x
        out[j] += weight * x
    return square


@jit
def best_candidates(features, theta, factor, scale, normals, action):
    """Write the candidate of the largest <x, theta + scale L z>, the longest of equals.

    Records have equal lengths, so the reward of a longer feature says more. Of equally long
    candidates the lower index is chosen.

    Args:
        features: ``(B, m, d)``.
        theta: ``(B, d)`` or wider.
        factor: L, lower triangular, ``(B, d, d)``.
        scale: ``(B,)``, >= 0; 0 is greedy.
        normals: z, ``(B, d)``.
        action: Output ``(B,)``.
    """
    B, m, d = features.shape
    x = np.empty(d)
    drawn = np.empty(d)
    for b in range(B):
        for i in range(d):
            drawn[i] = theta[b, i]
            if scale[b] > 0.0:
                for j in range(i + 1):
                    drawn[i] += scale[b] * factor[b, i, j] * normals[b, j]
        best = -np.inf
        longest = 0.0
        action[b] = 0
        for k in range(m):
            x[:] = 0.0
            square = _add(features, b, k, 1.0, x)
            s = 0.0
            for j in range(d):
                s += x[j] * drawn[j]
            if s > best or (s == best and square > ROUNDING * longest):
                best = s
                longest = square
                action[b] = k


@jit
def directions(features, action, observed, contrast, intercept, phi, out, moments):
    """Write the regressors phi of a round's reward and the unit vector v that it multiplies.

    phi[b] = [x; 1; xbar] for the chosen x and the mean xbar of the round's candidates. With
    z = x - kappa xbar, out[b] = [z / |z|; intercept] / sqrt(1 + intercept^2). kappa is 0 or, with
    `contrast`, (1 - (1 + 2 / d) s^2 / |xbar|^2)_+. s^2 is the expected |xbar|^2 of candidates that
    share nothing, estimated from their spread with a relative variance of 2 / d, so kappa xbar is
    a James-Stein estimate of what they share. kappa is at most 1 - 1 / m, so that nearly equal
    candidates leave a record. phi[b] and out[b] are 0 where nothing was observed, out[b] also if
    z = 0.

    Args:
        features: ``(B, m, d)``.
        action: ``(B,)``, the chosen candidates.
        observed: ``(B,)``.
        contrast: Whether kappa xbar is subtracted.
        intercept: Value of the constant feature.
        phi: Output ``(B, 2 d + 1)``.
        out: Output ``(B, d + 1)``.
        moments: Increased by [xbar; |xbar|^2, mean |x_k|^2, 1], ``(B, d + 3)``.

    Returns:
        0, or 1 + the first replicate whose action is out of range.
    """
    B, m, d = features.shape
    for b in range(B):
        if action[b] < 0 or action[b] >= m:
            return b + 1
    stretch = 1.0 + intercept * intercept
    for b in range(B):
        x = phi[b]
        z = out[b]
        x[:] = 0.0
        z[:] = 0.0
        if not observed[b]:
            continue
        alone = 0.0
        together = 0.0
        for k in range(m):
            alone += _add(features, b, k, 1.0 / m, x[d + 1 :]) / m
        for j in range(d):
            together += x[d + 1 + j] ** 2
        if together < np.inf:  # not for NaN
            for j in range(d):
                moments[b, j] += x[d + 1 + j]
            moments[b, d] += together
            moments[b, d + 1] += alone
            moments[b, d + 2] += 1.0
        _add(features, b, action[b], 1.0, x[:d])
        x[d] = 1.0
        kappa = 0.0
        square = 0.0
        if contrast and m > 1 and together > 0.0:
            chance = (1.0 + 2.0 / d) * (alone - together) / ((m - 1.0) * together)
            kappa = max(0.0, min(1.0 - chance, 1.0 - 1.0 / m))
        for j in range(d):
            z[j] = x[j] - kappa * x[d + 1 + j]
            square += z[j] * z[j]
        # the releaser raises for NaN
        if square == 0.0:
            continue
        for j in range(d):
            z[j] /= np.sqrt(square * stretch)
        z[d] = intercept / np.sqrt(stretch)
    return 0


@jit
def lifetime_weights(users, admitted, bound, counts, spent, kept, directions, weights):
    """Scale each round's public direction so that its user stays within a lifetime bound.

    With z_s the earlier directions of the user, the bound is on
    sum_{s,t} |<z_s, z_t>|, which is at least ||sum_t c_t z_t||^2 for all |c_t| <= 1. Directions
    that are not admitted become 0.

    Args:
        users: ``(B,)``, below counts.shape[1].
        admitted: ``(B,)``.
        bound: Largest sum, > 0.
        counts: Stored rounds ``(B, U)``, updated.
        spent: The sums ``(B, U)``, updated.
        kept: Scaled directions ``(B, U, k, m)``, float32, updated.
        directions: ``(B, m)``, in place.
        weights: Output ``(B,)``: the factors of the directions.
    """
    for b in range(len(directions)):
        u = users[b]
        z = directions[b]
        weights[b] = 0.0
        if not admitted[b]:
            z[:] = 0.0
            continue
        weights[b] = 1.0
        square = (z * z).sum()
        cross = 0.0
        if not square < np.inf:
            # the releaser raises for it
            continue
        for i in range(counts[b, u]):
            cross += abs((kept[b, u, i] * z).sum())
        left = max(0.0, bound - spent[b, u])
        # the largest w <= 1 with w^2 square + 2 w cross <= left
        w = 1.0
        if square + 2.0 * cross > left:
            w = left / (cross + np.sqrt(cross * cross + square * left))
        z *= w
        weights[b] = w
        copy_one(z, kept[b, u, counts[b, u]])
        counts[b, u] += 1
        spent[b, u] += w * (w * square + 2.0 * cross)
