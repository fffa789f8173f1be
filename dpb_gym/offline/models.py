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
from dpb_gym.problems.fitting import fit_mnl


def folds_of(n: int, folds: int, seed: int) -> Iterator[tuple[Array, Array]]:
    """The parts of a cross-fit: rounds that a model is fitted to, and rounds that it predicts."""
    folds = validation.integer("folds", folds, 2, n)
    part = np.random.default_rng(validation.integer("seed", seed, 0)).permutation(n) % folds
    yield from ((part != fold, part == fold) for fold in range(folds))


def cross_fitted(
    x: Array, r: Array, new: Array, ridge: float = 1.0, folds: int = 2, seed: int = 0
) -> Array:
    """Cross-fitted ridge regression with an intercept, which is not penalised.

    Args:
        x: Features of what was logged ``(n, d)``.
        r: Rewards ``(n,)``.
        new: Features to predict from, ``(n, ..., d)``.
        ridge: Penalty on the squared norm of the coefficients, > 0.
        folds: At least 2.
        seed: Of the split.

    Returns:
        Predictions ``(n, ...)``.

    Raises:
        ParameterError: If a parameter is out of range.
    """
    ridge = validation.real("ridge", ridge, 0.0, open_low=True)
    predicted = np.empty(new.shape[:-1])
    for others, here in folds_of(len(x), folds, seed):
        centre, level = x[others].mean(axis=0), r[others].mean()
        centred = x[others] - centre
        gram = centred.T @ centred + ridge * np.eye(x.shape[1])
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
    design = np.concatenate([features, np.broadcast_to(np.eye(m), (n, m, m))], axis=2)
    # Only differences of utilities count: candidate 0 is the outside option.
    relative = design[:, 1:] - design[:, :1]
    found = np.empty((n, m))
    for others, here in folds_of(n, folds, seed):
        rows = relative[others].reshape(-1, design.shape[2])
        starts = np.arange(0, len(rows) + 1, m - 1)
        beta = fit_mnl(rows, starts, actions[others] - 1, penalty, "propensities")
        weights = np.exp(design[here] @ beta - (design[here] @ beta).max(axis=1, keepdims=True))
        found[here] = weights / weights.sum(axis=1, keepdims=True)
    return found
