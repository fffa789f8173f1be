"""What the candidates of one customer have in common, for agents' functions."""

from __future__ import annotations

import numpy as np

from dpb_gym import kernels
from dpb_gym.kernels.deferred import shape_checked
from dpb_gym.kernels.vectors import largest

# Lengths whose squares differ by a smaller factor count as equal.
ROUNDING = 1.0 + 1e-6


@shape_checked
def best_candidate(x, theta, u):
    """Candidate of the largest <x_k, theta>, the longest of equals.

    Records have equal lengths, so the reward of a longer feature says more.

    Args:
        x: ``(m, d)``.
        theta: ``(d,)``.
        u: Of n equally long ones number floor(u n) is taken; 0 for the first.
    """
    m, d = x.shape
    if m == 0 or theta.shape[0] != d:
        raise IndexError("shapes differ")
    best = -np.inf
    longest = 0.0
    action = 0
    for k in range(m):
        s = 0.0
        for j in range(d):
            s += x[k, j] * theta[j]
        # the length matters for few candidates, and takes as long as the score
        if s >= best:
            square = kernels.feature_rows.squared_norm(x[k])
            if s > best or square > ROUNDING * longest:
                best = s
                longest = square
                action = k
    if u > 0.0:
        return _among_equals(x, theta, u, best, longest, action)
    return action


@shape_checked
def _among_equals(x, theta, u, best, longest, action):
    count = 0
    for turn in range(2):
        left = min(int(u * count), count - 1)
        for k in range(x.shape[0]):
            s = 0.0
            for j in range(x.shape[1]):
                s += x[k, j] * theta[j]
            if s == best and kernels.feature_rows.squared_norm(x[k]) * ROUNDING >= longest:
                if turn == 1 and left == 0:
                    return k
                if turn == 1:
                    left -= 1
                else:
                    count += 1
    return action


@shape_checked
def optimistic_candidate(x, b, inverse, width, u):
    """Candidate of the largest <x_k, theta> + width ||x_k||_inverse with theta = inverse b.

    Args:
        x: ``(m, d)``.
        b: ``(d,)``.
        inverse: ``(d, d)``, symmetric.
        width: >= 0.
        u: Of n equal scores number floor(u n) is taken; 0 for the first.
    """
    m, d = x.shape
    if b.shape[0] != d or inverse.shape[0] != d or inverse.shape[1] != d:
        raise IndexError("shapes differ")
    scratch = kernels.scratch.vector(2 * d + m)
    theta = scratch[:d]
    scores = scratch[2 * d :]
    kernels.linalg.multiply_one(inverse, b, theta)
    kernels.feature_rows.upper_bounds(x, theta, inverse, width, scratch[d : 2 * d], scores)
    return largest(scores, u)


@shape_checked
def mean_candidate(x):
    """Mean of the candidates, and the mean of their squared lengths."""
    m, d = x.shape
    mean = np.zeros(d)
    alone = 0.0
    for k in range(m):
        square = 0.0
        for j in range(d):
            square += x[k, j] * x[k, j]
            mean[j] += 1.0 / m * x[k, j]
        alone += square / m
    return mean, alone


@shape_checked
def shared_part(m, d, alone, together):
    """Share kappa of the mean candidate that all candidates of a round have in common.

    kappa = (1 - (1 + 2 / d) s^2 / |xbar|^2)_+. s^2 is the expected |xbar|^2 of candidates that
    share nothing, estimated from their spread with a relative variance of 2 / d, so kappa xbar is
    a James-Stein estimate of what they share. It is at most 1 - 1 / m, so that nearly equal
    candidates leave a record.

    Args:
        m: Candidates.
        d: Their dimension.
        alone: Mean of |x_k|^2.
        together: |xbar|^2.
    """
    if m > 1 and together > 0.0:
        chance = (1.0 + 2.0 / d) * (alone - together) / ((m - 1.0) * together)
        return max(0.0, min(1.0 - chance, 1.0 - 1.0 / m))
    return 0.0
