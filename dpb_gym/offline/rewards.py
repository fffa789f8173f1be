"""The reward model of the direct and doubly robust estimators."""

from __future__ import annotations

import numpy as np

from dpb_gym import validation
from dpb_gym.offline.log import LoggedData
from dpb_gym.problems.base import Array


def ridge_rewards(log: LoggedData, ridge: float = 1.0, folds: int = 2, seed: int = 0) -> Array:
    """Cross-fitted ridge regression of the reward on the shown candidate's features.

    The rounds are split at random into `folds` parts; the predictions of a part come from a
    model that was fitted to the others, so that a round's own reward never enters its
    prediction (Chernozhukov et al. 2018). The model has an intercept, which is not penalised;
    predictions are moved into the declared range of rewards. Reads raw rewards: **not
    private**.

    Args:
        log: The log.
        ridge: Penalty on the squared norm of the coefficients, > 0.
        folds: At least 2.
        seed: Of the split.

    Returns:
        Predicted reward of every candidate ``(n, m)``.

    Raises:
        ParameterError: If a parameter is out of range.
    """
    ridge = validation.real("ridge", ridge, 0.0, open_low=True)
    folds = validation.integer("folds", folds, 2, len(log))
    n, m, d = log.features.shape
    shown = log.features[np.arange(n), log.actions].astype(np.float64)
    part = np.random.default_rng(validation.integer("seed", seed, 0)).permutation(n) % folds
    predicted = np.empty((n, m))
    for fold in range(folds):
        here = part == fold
        x, r = shown[~here], log.rewards[~here]
        centre, level = x.mean(axis=0), r.mean()
        centred = x - centre
        gram = centred.T @ centred + ridge * np.eye(d)
        theta = np.linalg.solve(gram, centred.T @ (r - level))
        predicted[here] = level + (log.features[here].astype(np.float64) - centre) @ theta
    low, high = log.reward_range
    clipped: Array = np.clip(predicted, low, high)
    return clipped
