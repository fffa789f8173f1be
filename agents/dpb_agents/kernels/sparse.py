"""Noisy iterative hard thresholding, and the density of its releases.

The first axis of all arrays is the replicate. Replicates are computed one by one.
"""

from __future__ import annotations

import numpy as np

from dpb_gym.kernels._jit import inline, jit
from dpb_gym.kernels.elementary import exp, log
from dpb_gym.kernels.linalg import copy_one, dot_one, multiply_one


@jit
def add(vectors, rewards, most, gram, response):
    """Add x x' to gram[b] and r x to response[b]; x is clipped to the unit ball and cube."""
    B, d = vectors.shape
    x = np.empty(d)
    for b in range(B):
        # The ball comes first: clipping to the cube shortens x, so both bounds hold afterwards.
        size = max(1.0, np.sqrt(dot_one(vectors[b], vectors[b])))
        for j in range(d):
            x[j] = min(most, max(-most, vectors[b, j] / size))
        for i in range(d):
            response[b, i] += rewards[b] * x[i]
            # Features that are 0, as in one-hot ones, need no row of the outer product.
            if x[i] != 0.0:
                for j in range(d):
                    gram[b, i, j] += x[i] * x[j]


@inline
def _descended(gram, response, step, theta, out):
    multiply_one(gram, theta, out)
    for j in range(theta.shape[0]):
        out[j] = theta[j] - step * (out[j] - response[j])


@jit
def thresholded(
    gram, response, step, xi, zeta, gumbels, normals, radius, theta, points, order, values
):
    """Run M steps of descent, each followed by peeling and scaling.

    v = theta - step (gram theta - response). Peeling keeps the coordinates of largest |v_j| +
    xi G_j with Gumbel noise G, one after the other, with the values v_j + zeta Z_j.

    Args:
        gram: ``(B, d, d)``.
        response: ``(B, d)``.
        step: Length of a step.
        xi: Noise of the choice; 0 is exact.
        zeta: Noise of the values; 0 is exact.
        gumbels: G, ``(B, M, d)``.
        normals: Z, ``(B, M, s)``.
        radius: Radius of the l1 ball that iterates are scaled into.
        theta: First iterates ``(B, d)``, replaced by the last.
        points: Output: iterates before each step, ``(B, M, d)``.
        order: Output: selected coordinates, in order, ``(B, M, s)``.
        values: Output: their noisy values, ``(B, M, s)``.
    """
    B, M, s = order.shape
    d = theta.shape[1]
    v = np.empty(d)
    score = np.empty(d)
    for b in range(B):
        for m in range(M):
            copy_one(theta[b], points[b, m])
            _descended(gram[b], response[b], step, theta[b], v)
            for j in range(d):
                # One draw of Gumbel noise per step: its s largest values are s exponential
                # mechanisms.
                score[j] = abs(v[j]) + xi * gumbels[b, m, j]
                theta[b, j] = 0.0
            for k in range(s):
                best = 0
                for j in range(1, d):
                    if score[j] > score[best]:
                        best = j
                score[best] = -np.inf
                order[b, m, k] = best
                values[b, m, k] = v[best] + zeta * normals[b, m, k]
                theta[b, best] = values[b, m, k]
            # The next step's sensitivity assumes ||theta||_1 <= C, so every iterate is scaled, not
            # the last one only.
            size = 0.0
            for j in range(d):
                size += abs(theta[b, j])
            if size > radius:
                for j in range(d):
                    theta[b, j] *= radius / size


@jit
def log_density(gram, response, step, xi, zeta, points, order, values, out):
    """Write the log-density of a release of `thresholded`, given the sums.

    `thresholded` documents the other arguments.

    Args:
        out: Output ``(B,)``, up to a constant.
    """
    B, M, s = order.shape
    d = points.shape[2]
    v = np.empty(d)
    left = np.empty(d)
    for b in range(B):
        out[b] = 0.0
        for m in range(M):
            # Iterates are released, so a step has its density given the iterate before it.
            _descended(gram[b], response[b], step, points[b, m], v)
            for j in range(d):
                left[j] = abs(v[j]) / xi
            for k in range(s):
                # Without the largest exponent exp would overflow where the noise is small.
                highest = np.max(left)
                total = 0.0
                for j in range(d):
                    total += exp(left[j] - highest)
                best = order[b, m, k]
                z = (values[b, m, k] - v[best]) / zeta
                out[b] += left[best] - highest - log(total) - 0.5 * z * z
                left[best] = -np.inf
