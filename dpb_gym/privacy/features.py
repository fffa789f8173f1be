"""Private item features: principal directions of users' rating rows (DP-SVD)."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from dpb_gym.errors import ParameterError
from dpb_gym.privacy.budget import Budget
from dpb_gym.privacy.calibration import Release, calibrate
from dpb_gym.privacy.checks import FloatArray, count
from dpb_gym.privacy.events import GaussianEvent
from dpb_gym.privacy.guarantee import Guarantee
from dpb_gym.privacy.ledger import Ledger
from dpb_gym.privacy.noise import NoiseSource

MAX_ITEMS = 4000


@dataclass(frozen=True)
class PrivateFactors:
    """What `private_factors` released.

    Attributes:
        factors: Eigenvectors times the square roots of their eigenvalues, ``(n_items, dim)``.
        eigenvalues: The largest eigenvalues of the noisy second moment, floored at 0,
            decreasing, ``(dim,)``.
        sensitivity: Replace-one sensitivity of the second moment in Frobenius norm.
        sigma: Noise scale.
        clipped_count: Rows longer than 1. Not released: for tests and simulations only.
        ledger: What was spent.
    """

    factors: FloatArray
    eigenvalues: FloatArray
    sensitivity: float
    sigma: float
    clipped_count: int
    ledger: Ledger

    @property
    def guarantee(self) -> Guarantee:
        """Central, per user (one row), replace-one; the number of rows is public."""
        return self.ledger.guarantee


def second_moment(rows: Any) -> tuple[FloatArray, int]:
    """R'R / n of rows clipped to the unit ball, and how many were longer.

    Replace-one sensitivity ``sqrt(2) / n`` in Frobenius norm, attained by orthogonal unit rows:
    ``||x x' - y y'||_F^2 = ||x||^4 + ||y||^4 - 2 <x, y>^2 <= 2``.

    Args:
        rows: ``(n, n_items)``, dense or a SciPy sparse array; one row per user.
    """
    from scipy.sparse import csr_array

    table = csr_array(rows, dtype=np.float64)
    if not np.isfinite(table.data).all():
        raise ParameterError("rows must be finite, got NaN or infinity")
    norms = np.sqrt(np.asarray(table.multiply(table).sum(axis=1)).ravel())
    scale = 1.0 / np.maximum(1.0, norms)
    clipped = csr_array(table.multiply(scale[:, None]))
    product: Any = clipped.T @ clipped
    return product.toarray() / table.shape[0], int((norms > 1.0).sum())


def private_factors(
    rows: Any,
    dim: int,
    budget: Budget,
    noise: NoiseSource,
    ledger: Ledger | None = None,
) -> PrivateFactors:
    """Item factors from one noisy second moment of the users' rows (RU, section 6.3).

    Rows are clipped to norm 1; their second moment is released once by the Gaussian mechanism
    with sensitivity sqrt(2) / n (`second_moment`; RU print 1 / n, which replacing a row
    exceeds). The noise is symmetric: N(0, sigma^2) on the diagonal and N(0, sigma^2 / 2) on each
    pair of entries off it, which is N(0, sigma^2 I) in the coordinates in which the Frobenius
    norm is the 2-norm. Eigenvalues are floored at 0 and the largest `dim` kept;
    that is post-processing.

    Which items make the columns, and n, count as public: choose the items without looking at
    these rows.

    Args:
        rows: ``(n, n_items)``, dense or sparse, one row per user; whatever the values were
            centred with must be a public constant.
        dim: Number of factors, 1..n_items.
        budget: What the release may spend.
        noise: Source of the noise, of one replicate.
        ledger: Charged with the release; by default one of its own. Its unit must be "user".

    Raises:
        BudgetExceeded: If the ledger refuses; nothing is released.
        ParameterError: If an argument is out of range, or there are more than `MAX_ITEMS`
            columns: the noise has an entry for every pair of them.
    """
    shape: tuple[int, ...] = getattr(rows, "shape", ())
    if len(shape) != 2 or min(shape) < 1:
        raise ParameterError(f"rows must have shape (users, items), got {shape}")
    n, n_items = shape[0], shape[1]
    if n_items > MAX_ITEMS:
        raise ParameterError(f"at most {MAX_ITEMS} items are possible, got {n_items}")
    if count("dim", dim) > n_items:
        raise ParameterError(f"dim must be in 1..{n_items}, got {dim}")
    if noise.replicates != 1:
        raise ParameterError(f"the noise must have one replicate, got {noise.replicates}")
    own = Ledger(budget, notion="central", unit="user") if ledger is None else ledger
    if (own.unit, own.relation) != ("user", "replace-one"):
        raise ParameterError(
            f"the ledger counts per {own.unit} ({own.relation}), the factors per user (replace-one)"
        )
    sensitivity = math.sqrt(2.0) / n
    (sigma,) = calibrate(budget, Release(sensitivity))
    exact, clipped_count = second_moment(rows)
    own.charge(GaussianEvent(sigma, sensitivity), what="second moment of rating rows")
    values, vectors = _leading(exact + sigma * symmetric_noise(noise, n_items), dim)
    values = np.maximum(values, 0.0)
    return PrivateFactors(vectors * np.sqrt(values), values, sensitivity, sigma, clipped_count, own)


def symmetric_noise(noise: NoiseSource, side: int) -> FloatArray:
    """A symmetric matrix, standard normal in isometric coordinates, ``(side, side)``."""
    upper = np.triu_indices(side)
    drawn = noise.normal(len(upper[0]))[0]
    drawn[upper[0] != upper[1]] *= math.sqrt(0.5)
    matrix = np.zeros((side, side))
    matrix[upper] = drawn
    matrix.T[upper] = drawn
    return matrix


def _leading(matrix: FloatArray, dim: int) -> tuple[FloatArray, FloatArray]:
    """The largest eigenvalues, decreasing, and their eigenvectors with fixed signs."""
    from scipy.linalg import eigh

    side = len(matrix)
    values, vectors = eigh(matrix, subset_by_index=(side - dim, side - 1))
    values, vectors = values[::-1], vectors[:, ::-1]
    largest = np.abs(vectors).argmax(axis=0)
    return values, vectors * np.sign(vectors[largest, np.arange(dim)])


__all__ = ["PrivateFactors", "private_factors", "second_moment", "symmetric_noise"]
