"""Kernels of one-pass least squares: public features, posterior means, choices.

Arrays lead with the replicate axis; every replicate is handled on its own, in a fixed order.
"""

from __future__ import annotations

import numpy as np

from dpb_gym.kernels._jit import jit
from dpb_gym.kernels.linalg import cholesky_one
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


@jit
def centred_directions(features, action, observed, centre, intercept, phi, out):
    """What a public round is regressed on, and the unit vector that its reward multiplies.

    phi[b] = [x; 1] with x moved into the unit ball; out[b] is [x - centre; intercept] scaled
    to norm 1; both 0 where nothing was observed.

    Args:
        features: ``(B, m, d)``.
        action: ``(B,)``, the chosen candidates.
        observed: ``(B,)``.
        centre: ``(B, d)``.
        intercept: Value of the constant feature.
        phi: Output ``(B, d + 1)``.
        out: Output ``(B, d + 1)``.

    Returns:
        0, or 1 + the first replicate whose action is out of range.
    """
    B, m, d = features.shape
    for b in range(B):
        if action[b] < 0 or action[b] >= m:
            return b + 1
    for b in range(B):
        x, z = phi[b], out[b]
        if not observed[b]:
            for j in range(d + 1):
                x[j] = 0.0
                z[j] = 0.0
            continue
        for j in range(d):
            x[j] = features[b, action[b], j]
        x[d] = 0.0
        into_ball(x, 1.0)
        x[d] = 1.0
        square = intercept * intercept
        for j in range(d):
            z[j] = x[j] - centre[b, j]
            square += z[j] * z[j]
        z[d] = intercept
        if square > 0.0:
            factor = 1.0 / np.sqrt(square)
            for j in range(d + 1):
                z[j] *= factor
    return 0


@jit
def add_public(phi, directions, gram, own):
    """gram[b] += z phi' and own[b] += z z' for z = directions[b] ``(B, m)``, phi ``(B, n)``."""
    B, m = directions.shape
    n = phi.shape[1]
    for b in range(B):
        for i in range(m):
            z = directions[b, i]
            if z == 0.0:
                continue
            row, square = gram[b, i], own[b, i]
            for j in range(n):
                row[j] += z * phi[b, j]
            for j in range(m):
                square[j] += z * directions[b, j]


@jit
def filter_predict(mean, covariance, gram, own, weight, spread):
    """Adds a batch to the weighted sum S of the state (theta, S), before it is released.

    S += weight * sum (phi' theta + e) z over the batch, Var e = spread.

    Args:
        mean: ``(B, n + m)``, in place.
        covariance: ``(B, n + m, n + m)``, in place, exactly symmetric.
        gram: Sum of z phi' ``(B, m, n)``.
        own: Sum of z z' ``(B, m, m)``.
        weight: Of the batch.
        spread: Variance of a reward.
    """
    B, m, n = gram.shape
    N = n + m
    moved = np.empty((m, N))
    turned = np.empty((n, m))
    total = np.empty(m)
    for b in range(B):
        c = covariance[b]
        for i in range(m):
            for j in range(N):
                moved[i, j] = 0.0
            s = 0.0
            for k in range(n):
                g = weight * gram[b, i, k]
                turned[k, i] = g
                s += g * mean[b, k]
                for j in range(N):
                    moved[i, j] += g * c[k, j]
            mean[b, n + i] += s
        for i in range(m):
            for j in range(i + 1):
                total[j] = moved[i, n + j] + moved[j, n + i]
                total[j] += weight * weight * spread * own[b, i, j]
            for k in range(n):
                f = moved[i, k]
                for j in range(i + 1):
                    total[j] += f * turned[k, j]
            for j in range(i + 1):
                c[n + i, n + j] += total[j]
                if j < i:
                    c[n + j, n + i] = c[n + i, n + j]
        for i in range(m):
            for j in range(n):
                c[n + i, j] += moved[i, j]
                c[j, n + i] = c[n + i, j]


@jit
def filter_update(mean, covariance, release, noise):
    """Conditions the state (theta, S) on release = S + N(0, noise I), ``(B, m)``, in place."""
    B, m = release.shape
    N = mean.shape[1]
    n = N - m
    lower = np.empty((m, m))
    scaled = np.empty((m, N))
    error = np.empty(m)
    for b in range(B):
        c = covariance[b]
        for i in range(m):
            for j in range(i + 1):
                lower[i, j] = c[n + i, n + j]
            lower[i, i] += noise
        cholesky_one(lower, lower)
        for i in range(m):
            e = release[b, i] - mean[b, n + i]
            row = scaled[i]
            for j in range(N):
                row[j] = c[n + i, j]
            for k in range(i):
                f = lower[i, k]
                e -= f * error[k]
                for j in range(N):
                    row[j] -= f * scaled[k, j]
            f = 1.0 / lower[i, i]
            error[i] = e * f
            for j in range(N):
                row[j] *= f
        for i in range(m):
            for j in range(N):
                mean[b, j] += error[i] * scaled[i, j]
            for r in range(N):
                f = scaled[i, r]
                row = c[r]
                for j in range(N):
                    row[j] -= f * scaled[i, j]


@jit
def symmetric_times(matrices, vectors, out):
    """out[b] = matrices[b] vectors[b], ``(B, d, d)`` and ``(B, d)``."""
    B, d = vectors.shape
    for b in range(B):
        for j in range(d):
            out[b, j] = 0.0
        for k in range(d):
            f = vectors[b, k]
            for j in range(d):
                out[b, j] += matrices[b, k, j] * f


@jit
def lifetime_weights(users, admitted, bound, counts, spent, kept, directions):
    """Scales each round's public direction so that its user stays within a lifetime bound.

    With z_s the directions that user had before, the bound is on
    sum_{s,t} |<z_s, z_t>|, which is at least ||sum_t c_t z_t||^2 for all |c_t| <= 1. Directions
    that are not admitted become 0.

    Args:
        users: ``(B,)``, below counts.shape[1].
        admitted: ``(B,)``.
        bound: Largest sum, > 0.
        counts: Rounds kept so far ``(B, U)``, updated.
        spent: The sums so far ``(B, U)``, updated.
        kept: Scaled directions ``(B, U, k, m)``, float32, updated.
        directions: ``(B, m)``, in place.
    """
    B, m = directions.shape
    for b in range(B):
        u = users[b]
        row = directions[b]
        if not admitted[b]:
            for j in range(m):
                row[j] = 0.0
            continue
        square = 0.0
        for j in range(m):
            square += row[j] * row[j]
        if not square < np.inf:
            # the releaser refuses it
            continue
        cross = 0.0
        for i in range(counts[b, u]):
            s = 0.0
            for j in range(m):
                s += kept[b, u, i, j] * row[j]
            cross += abs(s)
        left = max(0.0, bound - spent[b, u])
        # the largest w <= 1 with w^2 square + 2 w cross <= left
        w = 1.0
        if square + 2.0 * cross > left:
            w = left / (cross + np.sqrt(cross * cross + square * left))
        for j in range(m):
            row[j] *= w
            kept[b, u, counts[b, u], j] = row[j]
        counts[b, u] += 1
        spent[b, u] += w * (w * square + 2.0 * cross)


@jit
def joint_rows(features, action, reward, observed, middle, width, intercept, weights, rows):
    """Rows of private rounds: the half of x x' and the centred reward times x.

    x is [x; intercept] / sqrt(1 + intercept^2) with x moved into the unit ball; the reward is
    moved into its range and scaled to [-1/2, 1/2]. A row is 0 where nothing was observed.

    Args:
        features: ``(B, m, d)``.
        action: ``(B,)``, the chosen candidates.
        reward: ``(B,)``.
        observed: ``(B,)``.
        middle: Middle of the reward's range.
        width: Length of the reward's range.
        intercept: Value of the constant feature.
        weights: Of the half of x x', and of the response.
        rows: Output ``(B, n (n + 1) / 2 + n)``, n = d + 1.

    Returns:
        0, or 1 + the first replicate whose action is out of range.
    """
    B, m, d = features.shape
    for b in range(B):
        if action[b] < 0 or action[b] >= m:
            return b + 1
    factor = 1.0 / np.sqrt(1.0 + intercept * intercept)
    x = np.empty(d + 1)
    for b in range(B):
        row = rows[b]
        if not observed[b]:
            for j in range(row.shape[0]):
                row[j] = 0.0
            continue
        for j in range(d):
            x[j] = features[b, action[b], j]
        x[d] = 0.0
        into_ball(x, 1.0)
        for j in range(d):
            x[j] *= factor
        x[d] = intercept * factor
        r = (reward[b] - middle) / width
        if r == r:
            r = min(max(r, -0.5), 0.5)
        column = 0
        for j in range(d + 1):
            v = weights[0] * x[j]
            row[column] = v * x[j]
            column += 1
            for k in range(j + 1, d + 1):
                row[column] = ROOT2 * v * x[k]
                column += 1
        for j in range(d + 1):
            row[column + j] = weights[1] * r * x[j]
    return 0


@jit
def rebuild(values, vectors, out):
    """out[b] = V diag(values) V', exactly symmetric, eigenvectors in the columns of V."""
    B, d = values.shape
    for b in range(B):
        for i in range(d):
            for j in range(i + 1):
                s = 0.0
                for k in range(d):
                    s += vectors[b, i, k] * values[b, k] * vectors[b, j, k]
                out[b, i, j] = s
                out[b, j, i] = s
