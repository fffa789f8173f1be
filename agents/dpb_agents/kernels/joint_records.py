"""Kernels of records with private contexts and relative lengths."""

from __future__ import annotations

import numpy as np

from dpb_agents.kernels import linear_records
from dpb_gym.kernels._jit import jit


@jit
def joint_rows(features, phi, directions, response, length, weights, rows):
    """Write rows of private rounds, see `linear_records.joint_rows`, of records with lengths.

    With z and v = [z / |z|; b] / sqrt(1 + b^2) of `linear_records.directions`, the length is
    l = |z| / rms_k |x_k - kappa xbar| over the candidates x_k of the round, or |z| / `length`. The
    slopes of v are multiplied by min(1, l) and the response is divided by max(1, l).

    Two rows differ by at most as much as for l = 1. The new v has |v| <= 1, and the new response
    stays in [-1/2, 1/2]. For rows of v, v' with g = <v, v'>, and responses s, s', the squared
    distance is, with the squares h, u of the weights,

        h (|v|^4 + |v'|^4 - 2 g^2) + u (s^2 |v|^2 + s'^2 |v'|^2 - 2 s s' g).

    Given g, it increases in |v| and |v'|. So it is at most that of the unit vectors that
    extend v and v' by a coordinate each, which have the same g.

    Args:
        features: ``(B, m, d)``.
        phi: [x; 1; xbar], ``(B, 2 d + 1)``.
        directions: v, ``(B, d + 1)``, 0 for no record; scaled in place.
        response: ``(B,)``; scaled in place.
        length: Typical |z|, if it is public, else 0.
        weights: Of the half and of the response.
        rows: Output ``(B, n (n + 1) / 2 + n)``, n = d + 1.
    """
    B, m, d = features.shape
    for b in range(B):
        if directions[b, d] == 0.0:
            continue
        alone, together, square, kappa = 0.0, 0.0, 0.0, 0.0
        for k in range(m):
            for j in range(d):
                alone += np.float64(features[b, k, j]) ** 2 / m
        for j in range(d):
            together += phi[b, d + 1 + j] ** 2
        if m > 1 and together > 0.0:
            chance = (1.0 + 2.0 / d) * (alone - together) / ((m - 1.0) * together)
            kappa = max(0.0, min(1.0 - chance, 1.0 - 1.0 / m))
        for j in range(d):
            square += (phi[b, j] - kappa * phi[b, d + 1 + j]) ** 2
        if length > 0.0:
            relative = np.sqrt(square) / length
        else:
            relative = np.sqrt(square / (alone - (2.0 - kappa) * kappa * together))
        directions[b, :d] *= min(1.0, relative)
        response[b] /= max(1.0, relative)
    linear_records.joint_rows(directions, response, weights, rows)


@jit
def play_greedy(rounds, theta, rules, weights, rows, action):
    """Write choices and rows of `OnePassLinearJoint` for rounds without a release.

    Args:
        rounds: Features ``(n, B, m, d)``; rewards and whether they are observed, of every
            candidate ``(n, B, m)``.
        theta: ``(B, d + 1)``.
        rules: Intercept, middle and width of the range of the rewards, and `length`.
        weights: See `joint_rows`.
        rows: Output ``(n, B, width)``.
        action: Output ``(n, B)``.
    """
    features, rewards, observed = rounds
    intercept, middle, width, length = rules
    n, B, _, d = features.shape
    phi, v, moments = np.empty((B, 2 * d + 1)), np.empty((B, d + 1)), np.empty((B, d + 3))
    response, seen, none = np.empty(B), np.empty(B, np.bool_), np.zeros(B)
    for t in range(n):
        x, chosen = features[t], action[t]
        linear_records.best_candidates(x, theta, np.empty((B, d, d)), none, theta, chosen)
        for b in range(B):
            response[b] = (rewards[t, b, chosen[b]] - middle) / width
            response[b] = max(-0.5, min(0.5, response[b]))
            seen[b] = observed[t, b, chosen[b]]
        linear_records.directions(x, chosen, seen, True, intercept, phi, v, moments)
        joint_rows(x, phi, v, response, length, weights, rows[t])
