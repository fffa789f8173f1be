"""Models that are fitted to a log: of rewards, and of unknown propensities.

All are cross-fitted: the rounds are split at random into parts, and the predictions of a part come
from a model that was fitted to the others, so that a round's own reward or choice never enters its
own prediction (Chernozhukov et al. 2018). They read raw data: **not private**.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from dpb_gym import validation
from dpb_gym.problems.base import Array


def folds_of(n: int, folds: int, seed: int) -> Iterator[tuple[Array, Array]]:
    """The parts of a cross-fit: rounds that a model is fitted to, and rounds that it predicts."""
    folds = validation.integer("folds", folds, 2, n)
    part = np.random.default_rng(validation.integer("seed", seed, 0)).permutation(n) % folds
    yield from ((part != fold, part == fold) for fold in range(folds))


def cross_fitted(
    x: Array, r: Array, new: Array, penalty: float = 1.0, folds: int = 2, seed: int = 0
) -> Array:
    """Cross-fitted ridge regression with an intercept, which is not penalised.

    Args:
        x: Features of what was logged ``(n, d)``.
        r: Rewards ``(n,)``.
        new: Features to predict from, ``(n, ..., d)``.
        penalty: On the squared norm of the coefficients, > 0.
        folds: At least 2.
        seed: Of the split.

    Returns:
        Predictions ``(n, ...)``.

    Raises:
        ParameterError: If a parameter is out of range.
    """
    penalty = validation.real("ridge", penalty, 0.0, open_low=True)
    predicted = np.empty(new.shape[:-1])
    for others, here in folds_of(len(x), folds, seed):
        centre, level = x[others].mean(axis=0), r[others].mean()
        centred = x[others] - centre
        gram = centred.T @ centred + penalty * np.eye(x.shape[1])
        theta = np.linalg.solve(gram, centred.T @ (r[others] - level))
        predicted[here] = level + (new[here] - centre) @ theta
    return predicted


def estimated_propensities(
    features: Array, actions: Array, penalty: float = 1.0, folds: int = 2, seed: int = 0
) -> Array:
    """Cross-fitted conditional logit of what was shown: P(k) proportional to exp(b'x_k + c_k).

    Args:
        features: ``(n, m, d)``.
        actions: ``(n,)``.
        penalty: On the squared norm of b and c, > 0.
        folds: At least 2.
        seed: Of the split.

    Returns:
        Probabilities ``(n, m)``, positive.
    """
    n, m, _ = features.shape
    slots = np.broadcast_to(np.eye(m), (n, m, m))
    design = np.concatenate([features.astype(np.float64), slots], axis=2)
    found = np.empty((n, m))
    for others, here in folds_of(n, folds, seed):
        found[here] = _softmax(design[here] @ _logit(design[others], actions[others], penalty))
    return found


def _softmax(utility: Array) -> Array:
    weights = np.exp(utility - utility.max(axis=1, keepdims=True))
    return np.asarray(weights / weights.sum(axis=1, keepdims=True))


def _logit(x: Array, chosen: Array, penalty: float) -> Array:
    """Penalised maximum likelihood by Newton's method, with halved steps where it must."""
    n, _, d = x.shape
    shown = x[np.arange(n), chosen].sum(axis=0)

    def loss(b: Array) -> float:
        utility = x @ b
        top = utility.max(axis=1)
        spread = np.log(np.exp(utility - top[:, None]).sum(axis=1)) + top
        return float(spread.sum() - shown @ b + 0.5 * penalty * b @ b)

    beta = np.zeros(d)
    current = loss(beta)
    for _ in range(100):
        p = _softmax(x @ beta)
        weighted = p[:, :, None] * x
        mean = weighted.sum(axis=1)
        gradient = mean.sum(axis=0) - shown + penalty * beta
        rows = weighted.reshape(-1, d).T @ x.reshape(-1, d)
        step = np.linalg.solve(rows - mean.T @ mean + penalty * np.eye(d), gradient)
        size = 1.0
        while (ahead := loss(beta - size * step)) > current and size > 1e-6:
            size *= 0.5
        beta, done, current = beta - size * step, current - ahead < 1e-10 * n, ahead
        if done:
            break
    return beta
