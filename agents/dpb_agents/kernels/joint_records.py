"""Kernels of records with private contexts and lengths."""

from __future__ import annotations

import numpy as np

from dpb_agents.kernels import linear_records
from dpb_gym.kernels._jit import jit
from dpb_gym.kernels.elementary import LN2, log

OCTAVES = 16.0  # lengths from 2^-8 to 2^8 differ in a row
LN_2 = LN2[0] + LN2[1]


@jit
def joint_rows(features, phi, directions, response, lengths, weights, rows):
    """Write rows of private rounds, see `linear_records.joint_rows`, of records with lengths.

    With z and v = [z / |z|; b] / sqrt(1 + b^2) of `linear_records.directions`, the length is
    l = |z| / rms_k |x_k - kappa xbar| over the candidates x_k of the round, or |z| / `lengths`. The
    slopes of v are multiplied by min(1, l) and the response is divided by max(1, l).

    Two rows differ by at most as much as for l = 1. The new v has |v| <= 1, and the new response
    stays in [-1/2, 1/2]. For rows of v, v' with g = <v, v'>, and responses s, s', the squared
    distance is, with the squares h, u of the weights,

        h (|v|^4 + |v'|^4 - 2 g^2) + u (s^2 |v|^2 + s'^2 |v'|^2 - 2 s s' g).

    Given g, it increases in |v| and |v'|. So it is at most that of the unit vectors that
    extend v and v' by a coordinate each, which have the same g.

    A further entry, with a weight of its own, is there to learn `lengths` where they are not known:
    the mean over the candidates of log2 |x_k - kappa xbar| / `OCTAVES`, cut to [-1/2, 1/2]. It
    adds at most the square of its weight to the squared distance.

    Args:
        features: ``(B, m, d)``.
        phi: [x; 1; xbar], ``(B, 2 d + 1)``.
        directions: v, ``(B, d + 1)``, 0 for no record; scaled in place.
        response: ``(B,)``; scaled in place.
        lengths: Typical |z|, 0 where it is not known, ``(B,)``.
        weights: Of the half, of the response and of the further entry, which is left out if 0.
        rows: Output ``(B, n (n + 1) / 2 + n)``, n = d + 1, and a column for the further entry.
    """
    B, m, d = features.shape
    own = (d + 1) * (d + 4) // 2
    for b in range(B):
        if weights[2] > 0.0:
            rows[b, own] = 0.0
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
        if lengths[b] > 0.0:
            relative = np.sqrt(square) / lengths[b]
        else:
            relative = np.sqrt(square / (alone - (2.0 - kappa) * kappa * together))
            if weights[2] > 0.0:
                rows[b, own] = weights[2] * mean_octave(features[b], phi[b], kappa)
        for j in range(d):
            directions[b, j] *= min(1.0, relative)
        response[b] /= max(1.0, relative)
    linear_records.joint_rows(directions, response, weights, rows)


@jit
def mean_octave(features, phi, kappa):
    """Return the mean over candidates of log2 |x_k - kappa xbar| / `OCTAVES`, each cut."""
    m, d = features.shape
    total = 0.0
    for k in range(m):
        square = 0.0
        for j in range(d):
            square += (features[k, j] - kappa * phi[d + 1 + j]) ** 2
        octave = 0.5 * log(square) / (LN_2 * OCTAVES) if square > 0.0 else -0.5
        total += max(-0.5, min(0.5, octave))
    return total / m


@jit
def play_greedy(rounds, theta, rules, weights, rows, action):
    """Write choices and rows of `OnePassLinearJoint` for rounds without a release.

    Args:
        rounds: Features ``(n, B, m, d)``; rewards and whether they are observed, of every
            candidate ``(n, B, m)``.
        theta: ``(B, d + 1)``.
        rules: Intercept, middle and width of the range of the rewards, and `lengths`.
        weights: See `joint_rows`.
        rows: Output ``(n, B, width)``.
        action: Output ``(n, B)``.
    """
    features, rewards, observed = rounds
    intercept, middle, width, lengths = rules
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
        joint_rows(x, phi, v, response, lengths, weights, rows[t])
