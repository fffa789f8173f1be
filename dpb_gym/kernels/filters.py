"""Steps of a Kalman filter for agents' functions."""

from __future__ import annotations

import numpy as np

from dpb_gym import kernels
from dpb_gym.kernels.deferred import shape_checked
from dpb_gym.kernels.vectors import matmul


@shape_checked
def filter_step(mean, covariance, gram, own, weight, spread, release, noise):
    """Update the normal distribution of (theta, S), S the weighted sum of rewards times z.

    This is one step of a Kalman filter. A batch adds weight * sum (<phi, theta> + e) z to S,
    Var e = spread. Then the state is conditioned on release = S + N(0, noise I).

    Args:
        mean: ``(n + m,)``, updated in place.
        covariance: ``(n + m, n + m)``, updated in place, exactly symmetric.
        gram: Sum of z phi' over the batch, ``(m, n)``.
        own: Sum of z z', ``(m, m)``.
        weight: Of the batch.
        spread: Variance of a reward.
        release: ``(m,)``.
        noise: Variance of the release, > 0.
    """
    m, n = gram.shape
    fits = mean.shape[0] == n + m and release.shape[0] == m
    fits = fits and covariance.shape[0] == n + m and covariance.shape[1] == n + m
    if not (fits and own.shape[0] == m and own.shape[1] == m):
        raise IndexError("shapes differ")
    lower = np.empty((m, m))
    gain = np.empty((m, n + m))
    error = np.empty(m)
    c = covariance
    g = weight * gram
    moved = matmul(g, c[:n])
    inner = matmul(moved[:, :n], g.T.copy())
    for i in range(m):
        for j in range(m):
            inner[i, j] += weight * weight * spread * own[i, j]
            inner[i, j] += moved[i, n + j] + moved[j, n + i]
        for j in range(n):
            c[n + i, j] += moved[i, j]
            c[j, n + i] = c[n + i, j]
    for i in range(m):
        step = 0.0
        for j in range(n):
            step += g[i, j] * mean[j]
        mean[n + i] += step
        for j in range(m):
            c[n + i, n + j] += 0.5 * (inner[i, j] + inner[j, i])
            lower[i, j] = c[n + i, n + j]
        lower[i, i] += noise
    kernels.linalg.cholesky_one(lower, lower)
    for i in range(m):
        error[i] = release[i] - mean[n + i]
        for j in range(n + m):
            gain[i, j] = c[n + i, j]
        for k in range(i):
            error[i] -= lower[i, k] * error[k]
            for j in range(n + m):
                gain[i, j] -= lower[i, k] * gain[k, j]
        error[i] /= lower[i, i]
        for j in range(n + m):
            gain[i, j] /= lower[i, i]
    for i in range(m):
        for r in range(n + m):
            mean[r] += error[i] * gain[i, r]
            for j in range(n + m):
                c[r, j] -= gain[i, r] * gain[i, j]
