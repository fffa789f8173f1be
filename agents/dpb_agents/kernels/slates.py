"""Slates of large revenue, and when a draw of them is a bad bet."""

from __future__ import annotations

import numpy as np

from dpb_gym.kernels._jit import inline, jit
from dpb_gym.kernels.linalg import copy_one
from dpb_gym.kernels.mnl import revenue_of
from dpb_gym.kernels.price_search import BET
from dpb_gym.kernels.slates import WARY as WARY
from dpb_gym.kernels.slates import best_slate as best_slate
from dpb_gym.kernels.slates import expected_slates as expected_slates
from dpb_gym.kernels.slates import likely as likely
from dpb_gym.kernels.slates import optimistic_slates as optimistic_slates
from dpb_gym.kernels.slates import reached as reached
from dpb_gym.kernels.slates import roots as roots
from dpb_gym.kernels.slates import sampled_slates as sampled_slates
from dpb_gym.kernels.slates import worthwhile as worthwhile


@jit
def warranted_slates(features, revenues, theta, drawn, best, slates):
    """Replace slates that are best for `drawn` by the slates `best` where they are a bad bet.

    `best` holds the best slates for theta. A bad bet has a loss under theta of more than `BET`
    times its gain under `drawn`.

    Args:
        features: ``(B, N, d)``.
        revenues: ``(B, N)``, -inf for items that cannot be offered.
        theta: ``(B, d)``.
        drawn: ``(B, d)``.
        best: ``(B, K)``, ascending, padded with -1.
        slates: ``(B, K)``, replaced in place.
    """
    utility = np.empty(features.shape[1])
    for b in range(features.shape[0]):
        cost = _revenue_at(features[b], revenues[b], theta[b], best[b], utility)
        cost -= _revenue_at(features[b], revenues[b], theta[b], slates[b], utility)
        gain = _revenue_at(features[b], revenues[b], drawn[b], slates[b], utility)
        gain -= _revenue_at(features[b], revenues[b], drawn[b], best[b], utility)
        if cost > BET * gain:
            copy_one(best[b], slates[b])


@inline
def _revenue_at(features, revenues, theta, slate, utility):
    """Return the expected revenue of a slate; `utility` is a buffer ``(N,)``."""
    count = 0
    for item in slate:
        if item < 0:
            break
        utility[item] = 0.0
        for k in range(theta.shape[0]):
            utility[item] += features[item, k] * theta[k]
        count += 1
    return revenue_of(slate, count, utility, revenues)
