"""Item features of rating data by truncated SVD, exact or private, and user factors."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from dpb_gym import kernels
from dpb_gym.problems.base import Array
from dpb_gym.problems.prior import Prior

if TYPE_CHECKING:
    from dpb_gym.privacy.private_factors import PrivateFactors

# Keys the generators of private features' noise, which do not depend on a replicate's seed.
_NOISE_KEY = 0xFEA7


def svd_factors(rows: Any, dim: int) -> Array:
    """Return right singular vectors times singular values, without privacy for the rows' users."""
    from scipy.sparse.linalg import svds

    _, singular, right = svds(rows, k=dim, v0=np.ones(min(rows.shape)), solver="arpack")
    descending = np.argsort(singular)[::-1]
    factors = (right[descending] * singular[descending, None]).T
    largest = np.abs(factors).argmax(axis=0)
    factors *= np.sign(factors[largest, np.arange(dim)])
    return np.asarray(factors)


def private_svd_factors(
    rows: Any, dim: int, asked: tuple[float, float], seed: int
) -> PrivateFactors:
    """Return private factors, computed from a noisy second moment of clipped rows.

    See `dpb_gym.privacy.private_factors.private_factors`.

    Args:
        rows: Sparse ratings, a row per user.
        dim: Number of factors.
        asked: Epsilon and delta.
        seed: Seed of the noise.
    """
    from dpb_gym.privacy import Budget, Curator, NoiseSource
    from dpb_gym.privacy.private_factors import private_factors

    budget = Budget.approx(*asked)
    # keyed by the budget too; the seed is a parameter of the environment: a simulation
    key = [seed, _NOISE_KEY, *f"{budget}, {dim} factors".encode()]
    noise = NoiseSource.from_seed(key)
    curator = Curator(budget, ("central", "user"), noise=noise, horizon=1)
    return private_factors(rows, dim, curator)


def scaled(factors: Array) -> Array:
    """Scale factors to features: float32 ``(n_items, dim)``, in the unit ball, median norm 1."""
    norms = np.sqrt((factors * factors).sum(axis=1))
    features = np.ascontiguousarray(factors / max(float(np.median(norms)), 1e-12), np.float32)
    kernels.feature_rows.normalise(features, kernels.feature_rows.CLIP)
    return features


def fold_in(factors: Array, test_users: Array, users: Array, items: Array, values: Array) -> Array:
    """Return ridge-regression user factors, scaled to sup norm 1, float32 ``(n, dim)``."""
    dim = factors.shape[1]
    result = np.zeros((len(test_users), dim), np.float32)
    scale = float(np.median(np.sqrt((factors * factors).sum(axis=1))))
    design = factors / max(scale, 1e-12)
    sort = np.argsort(users, kind="stable")
    users = users[sort]
    items = items[sort]
    values = values[sort]
    left = np.searchsorted(users, test_users, side="left")
    right = np.searchsorted(users, test_users, side="right")
    for i, (a, b) in enumerate(zip(left, right)):
        X = design[items[a:b]]
        solved = np.linalg.solve(X.T @ X + np.eye(dim), X.T @ values[a:b])
        top = np.abs(solved).max() if b > a else 0.0
        # A user without a profile gets the plain item features.
        result[i] = solved / top if top > 0.0 else 1.0
    return result


def with_predictions(
    features: Array, users: Array, items: Array, rewards: Array
) -> tuple[Array, Prior]:
    """Append to each item's features its reward as predicted from the training rewards.

    The last coordinate is the prediction of a ridge regression of the rewards on the
    features, minus its mean over the items and divided by its largest magnitude: a policy that
    uses it alone follows the training users' preferences. Both parts are scaled by sqrt(1/2),
    so that together they stay in the unit ball.

    Args:
        features: float32 ``(n_items, dim)`` in the unit ball.
        users: User of each training reward ``(n,)``.
        items: Item of each training reward ``(n,)``.
        rewards: Training rewards ``(n,)``, used without noise.

    Returns:
        Features, float32 ``(n_items, dim + 1)``, and a prior of their coefficients. Its mean
        reproduces the predictions in units of the reward. Its precision is that of least squares,
        divided by the overdispersion of the users' summed scores relative to independent rewards,
        because future users differ from the training users.
    """
    n_items, dim = features.shape
    count = np.bincount(items, minlength=n_items).astype(np.float64)
    total = np.bincount(items, weights=rewards - rewards.mean(), minlength=n_items)
    X = features.astype(np.float64)
    gram = X.T @ (count[:, None] * X) + np.eye(dim)
    fitted = X @ np.linalg.solve(gram, X.T @ total)
    predicted = fitted - fitted.mean()
    largest = max(float(np.abs(predicted).max()), 1e-12)
    # One part in 10^6 for the rounding to float32.
    scale = float(np.sqrt(0.5)) * (1.0 - 1e-6)
    table = np.hstack([X, predicted[:, None] / largest]) * scale
    mean = np.append(np.zeros(dim), largest / scale)
    residual = rewards - rewards.mean() - fitted[items]
    left = np.linalg.solve(np.linalg.cholesky(gram), X.T).T[items] * residual[:, None]
    by_user = np.zeros((int(users.max()) + 1, dim))
    np.add.at(by_user, users, left)
    excess = max(1.0, float((by_user**2).sum() / max((left**2).sum(), 1e-300)))
    variance = excess * max(float((residual**2).mean()), 1e-12)
    return table.astype(np.float32), Prior(mean, table.T @ (count[:, None] * table) / variance)
