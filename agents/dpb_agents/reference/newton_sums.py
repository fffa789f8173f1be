"""Noisy sums of curvature H and response u: the part that assortment and pricing share.

docs/one-pass.md derives every formula, and the symbols here are those of that page. The references
of `one-pass-mnl` and `one-pass-pricing` use these functions.
"""

from __future__ import annotations

import math

import numpy as np

LEAST_EVENNESS = 0.3  # least deviation of sum H_t from isotropy, relative to its mean eigenvalue


def softmax(scores):
    """Return the probabilities proportional to exp(scores)."""
    weights = np.exp(scores - scores.max())
    return weights / weights.sum()


def isometric_half(H):
    """Return the upper triangle with off-diagonal entries times sqrt(2), which keeps |H|_F."""
    return (H * np.where(np.eye(len(H)), 1.0, math.sqrt(2.0)))[np.triu_indices(len(H))]


def symmetric(half, d):
    """Return the matrix of an isometric half."""
    H = np.zeros((d, d))
    H[np.triu_indices(d)] = half
    return (H + H.T) / np.where(np.eye(d), 2.0, math.sqrt(2.0))


def even_out(H, noise):
    """Return H shrunk towards mu I, mu = tr H / d, and the variance of the error in an entry."""
    if noise == 0.0:
        return H, 0.0
    d = len(H)
    mu = max(0.0, np.trace(H) / d)
    D = H - mu * np.eye(d)
    # the deviation's mean square less the noise's, at least (.3 mu)^2
    own = max((D**2).sum() / (d * (d + 1) / 2) - noise**2, (LEAST_EVENNESS * mu) ** 2)
    w = own / (own + noise**2)
    return mu * np.eye(d) + w * D, w * noise**2


def combined(sums, plan, releases, k, without):
    """Return the best estimate of (H, u) in one row from releases 0..k.

    Args:
        sums: Releaser of the weighted sums.
        plan: Public weights of the releases; None: sums are exact.
        releases: Rounds and values of the releases so far.
        k: Index of the newest release.
        without: Number of first releases whose records are left out.

    Returns:
        The row, the standard deviation of its noise, and the mean squared weight of its records.
    """
    if plan is None:
        return sums.value - (releases[without - 1][1] if without else 0.0), 0.0, 1.0
    alpha = plan.weights[k] - (plan.weights[without - 1] if without else 0.0)
    std = sums.sigma * np.linalg.norm(alpha / sums.schedule.scales)
    row = sum(weight * release for weight, (_, release) in zip(alpha, releases))
    return row, std, plan.uneven[k]


def mixture(beliefs, prior, h, z, error):
    """Return mean and covariance of t given z_i = h_i t_i + error_i, and the weights of the sizes.

    Args:
        beliefs: Prior probabilities of the sizes, ``(m,)``.
        prior: Prior variances of t_i for each size, ``(m, d)``.
        h: Eigenvalues of H, ``(d,)``.
        z: Responses in the eigenbasis of H, ``(d,)``.
        error: Variances of the errors for each size, ``(m, d)``.
    """
    total = prior * h**2 + error
    known = total > 0  # without noise nothing is known where h = 0
    total = np.where(known, total, 1.0)
    # Each size counts by its belief times the likelihood of z.
    weights = softmax(np.log(beliefs) - 0.5 * (np.log(total) + z**2 / total).sum(axis=1))
    means, variances = prior * h * z / total, np.where(known, prior * error / total, prior)
    mean = weights @ means
    covariance = np.diag(weights @ variances) + ((means - mean).T * weights) @ (means - mean)
    return mean, covariance, weights
