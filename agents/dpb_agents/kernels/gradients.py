"""Gradients of one response's log-likelihood, as customers' devices compute them."""

from __future__ import annotations

import numpy as np

from dpb_gym.kernels._jit import jit
from dpb_gym.kernels.pricing import LOGISTIC, mean_demand


@jit
def demand_vectors(features, price, out):
    """out[b] = [x; -p] / sqrt(d) for x ``(B, d - 1)`` and p ``(B,)``."""
    B, m = features.shape
    root = np.sqrt(m + 1.0)
    for b in range(B):
        for k in range(m):
            out[b, k] = features[b, k] / root
        out[b, m] = -price[b] / root


@jit
def negative_scores(vectors, response, theta, model, scale, limit, gradient, reach):
    """gradient[b] = (f(<v, theta>) - y) v, and the largest norm it can have for ||v|| <= 1.

    Args:
        vectors: v, ``(B, d)``.
        response: y, ``(B,)``; in [0, 1] for the logistic model, else clipped to +-`limit`.
        theta: ``(B, d)``.
        model: Of `mean_demand`: logistic or Gaussian.
        scale: Of the logistic link, f(z) = sigmoid(scale z).
        limit: Bound of a Gaussian response.
        gradient: Output ``(B, d)``.
        reach: Output ``(B,)``.
    """
    B, d = vectors.shape
    for b in range(B):
        z = square = 0.0
        for k in range(d):
            z += vectors[b, k] * theta[b, k]
            square += theta[b, k] * theta[b, k]
        y, norm = response[b], np.sqrt(square)
        if model == LOGISTIC:
            y = min(1.0, max(0.0, y))
            reach[b] = mean_demand(norm, model, scale)
        else:
            y = min(limit, max(-limit, y))
            reach[b] = limit + norm
        gap = mean_demand(z, model, scale) - y
        for k in range(d):
            gradient[b, k] = gap * vectors[b, k]
