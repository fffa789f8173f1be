"""Rewards of linear-contextual recommendation: means, best candidates, outcomes."""

from __future__ import annotations

import numpy as np

from dpb_gym.kernels._jit import inline, jit
from dpb_gym.kernels.elementary import normal_cdf, normal_density, normal_of, sigmoid
from dpb_gym.kernels.linalg import dot_one

LOGISTIC = 0
LINEAR = 1
GAUSSIAN = 2


@jit
def _clipped_normal_mean(mean, sd):
    """Return E[min(1, max(0, mean + sd Z))], Z standard normal."""
    low = -mean / sd
    high = (1.0 - mean) / sd
    inside = normal_cdf(high) - normal_cdf(low)
    return mean * inside + sd * (normal_density(low) - normal_density(high)) + normal_cdf(-high)


@jit
def mean_reward(score, model, sd):
    """Return the expected reward of an arm of score <x, theta>."""
    if model == LOGISTIC:
        return sigmoid(score)
    mean = 0.5 + 0.25 * score
    if model == LINEAR:
        return min(1.0, max(0.0, mean))
    return _clipped_normal_mean(mean, sd)


@jit
def evaluate(rows, theta, model, sd, score, mean):
    """Write <x, theta> and the expected reward of rows ``(n, d)``."""
    for i in range(rows.shape[0]):
        score[i] = dot_one(rows[i], theta)
        mean[i] = mean_reward(score[i], model, sd)


@jit
def best_arms(features, theta, model, sd, arm, value):
    """Find the candidate of largest expected reward (lowest index among equal scores).

    Every reward model increases with the score, so scores are compared.
    """
    B, m, _ = features.shape
    for b in range(B):
        arm[b] = 0
        best = dot_one(features[b, 0], theta[b])
        for k in range(1, m):
            score = dot_one(features[b, k], theta[b])
            if score > best:
                arm[b] = k
                best = score
        value[b] = mean_reward(best, model, sd)


@inline
def _drawn_reward(score, expected, model, sd, uniform):
    """Reward of an arm of score <x, theta> and that expectation."""
    if model == GAUSSIAN:
        return min(1.0, max(0.0, 0.5 + 0.25 * score + sd * normal_of(uniform)))
    return 1.0 if uniform < expected else 0.0


@jit
def outcome(features, theta, arm, model, sd, uniform, reward, expected):
    """Compute reward and expected reward; return 0, or 1 + the first replicate out of range."""
    B, m, _ = features.shape
    for b in range(B):
        if arm[b] < 0 or arm[b] >= m:
            return b + 1
        score = dot_one(features[b, arm[b]], theta[b])
        expected[b] = mean_reward(score, model, sd)
        reward[b] = _drawn_reward(score, expected[b], model, sd, uniform[b])
    return 0


@jit
def outcomes(features, theta, model, sd, uniform, reward, expected, best):
    """`outcome` of every candidate, and `best_arms`' value, for several rounds.

    Args:
        features: ``(n, B, m, d)``.
        theta: ``(B, d)``.
        model: `LOGISTIC`, `LINEAR` or `GAUSSIAN`.
        sd: Standard deviation of Gaussian rewards.
        uniform: ``(n, B)``.
        reward: Output ``(n, B, m)``.
        expected: Output ``(n, B, m)``.
        best: Output ``(n, B)``.
    """
    n, B, m, _ = features.shape
    for t in range(n):
        for b in range(B):
            top = 0.0
            at = 0
            for k in range(m):
                score = dot_one(features[t, b, k], theta[b])
                mean = mean_reward(score, model, sd)
                expected[t, b, k] = mean
                reward[t, b, k] = _drawn_reward(score, mean, model, sd, uniform[t, b])
                if k == 0 or score > top:
                    top = score
                    at = k
            best[t, b] = expected[t, b, at]


@jit
def arm_outcomes(arms, scores, means, model, sd, uniform, reward, expected, best):
    """`outcomes` of arms ``(n, B, m)`` from pools that were evaluated, ``(B, arms)``."""
    n, B, m = arms.shape
    for t in range(n):
        for b in range(B):
            top = -np.inf
            for k in range(m):
                score = scores[b, arms[t, b, k]]
                mean = means[b, arms[t, b, k]]
                expected[t, b, k] = mean
                reward[t, b, k] = _drawn_reward(score, mean, model, sd, uniform[t, b])
                if score > top:
                    top, best[t, b] = score, mean


@jit
def pick(rewards, means, action, reward, expected):
    """Entries of the chosen candidates: tables ``(n, B, m)``, actions and outputs ``(n, B)``.

    Returns:
        Whether an action is out of range.
    """
    n, B, m = rewards.shape
    for t in range(n):
        for b in range(B):
            k = action[t, b]
            if k < 0 or k >= m:
                return True
            reward[t, b] = rewards[t, b, k]
            expected[t, b] = means[t, b, k]
    return False
