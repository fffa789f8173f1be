"""Private item features: principal directions of users' rating rows (DP-SVD)."""

from __future__ import annotations

import math
from collections.abc import Collection
from dataclasses import dataclass
from typing import Any

import numpy as np

from dpb_gym import validation
from dpb_gym.errors import BudgetError, ParameterError
from dpb_gym.privacy.curator import Curator
from dpb_gym.privacy.guarantee import Guarantee
from dpb_gym.privacy.releasers.named_sums import LogSum
from dpb_gym.privacy.releasers.record_bounds import RecordShape
from dpb_gym.validation import FloatArray

MAX_ITEMS = 4000
LITERAL = {
    "eigenvectors": "the features are the eigenvectors, not times the roots of their eigenvalues",
    "sensitivity": "the noise is for sensitivity 1 / n, not sqrt(2) / n",
}
"""Printed forms of RU, section 6.3, by the name that `literal` takes."""


@dataclass(frozen=True)
class PrivateFactors:
    """Result of `private_factors`.

    Attributes:
        factors: Eigenvectors times the square roots of their eigenvalues, ``(n_items, dim)``;
            with the printed form ``"eigenvectors"`` the eigenvectors alone.
        eigenvalues: The largest eigenvalues of the noisy second moment, floored at 0,
            decreasing, ``(dim,)``.
        guarantee: Central, per user (one row), replace-one; the number of rows is public.
    """

    factors: FloatArray
    eigenvalues: FloatArray
    guarantee: Guarantee


def second_moment(rows: Any) -> FloatArray:
    """Return R'R / n for the rows R clipped to the unit ball.

    Replace-one sensitivity ``sqrt(2) / n`` in Frobenius norm, attained by orthogonal unit rows:
    ``||x x' - y y'||_F^2 = ||x||^4 + ||y||^4 - 2 <x, y>^2 <= 2``.

    Args:
        rows: ``(n, n_items)``, dense or a SciPy sparse array; one row per user.
    """
    from scipy.sparse import csr_array

    # sparse: ratings of few of many items per user
    table = csr_array(rows, dtype=np.float64)
    if not np.isfinite(table.data).all():
        raise ParameterError("rows must be finite, got NaN or infinity")
    norms = np.sqrt(np.asarray(table.multiply(table).sum(axis=1)).ravel())
    scale = 1.0 / np.maximum(1.0, norms)
    clipped = csr_array(table.multiply(scale[:, None]))
    product: Any = clipped.T @ clipped
    moment: FloatArray = product.toarray() / table.shape[0]
    return moment


def private_factors(
    rows: Any, dim: int, curator: Curator, literal: Collection[str] = ()
) -> PrivateFactors:
    """Release item factors from a noisy second moment of the users' rows (RU, section 6.3).

    Rows are clipped to norm 1; their second moment is released once by the Gaussian mechanism
    with sensitivity sqrt(2) / n (`second_moment`; RU print 1 / n, which replacing a row
    exceeds). The noise is symmetric: N(0, sigma^2) on the diagonal and N(0, sigma^2 / 2) on each
    pair of entries off it, which is N(0, sigma^2 I) in the coordinates in which the Frobenius
    norm is the 2-norm. As post-processing, eigenvalues are floored at 0 and the largest `dim`
    selected.

    The items of the columns and n are public: do not choose the items from these rows.

    Args:
        rows: ``(n, n_items)``, dense or sparse, one row per user; values may be centred by a
            public constant only.
        dim: Number of factors, 1..n_items.
        curator: Curator of one replicate, whose budget is used; unit ``"user"``.
        literal: Names of `LITERAL`, printed forms to use instead. The guarantee has the true cost.

    Raises:
        BudgetError: If the curator has sealed already, or has no zCDP budget for the printed noise.
        ParameterError: If an argument is out of range, or there are more than `MAX_ITEMS`
            columns (the noise has an entry for every pair of columns).
    """
    shape: tuple[int, ...] = getattr(rows, "shape", ())
    if len(shape) != 2 or min(shape) < 1:
        raise ParameterError(f"rows must have shape (users, items), got {shape}")
    n = shape[0]
    n_items = validation.integer("the number of items", shape[1], 1, MAX_ITEMS)
    validation.integer("dim", dim, 1, n_items)
    if (curator.replicates, curator.unit, curator.relation) != (1, "user", "replace-one"):
        raise ParameterError(
            f"the factors are one release per user, replace-one; the curator has "
            f"{curator.replicates} replicates and protects the {curator.unit}, {curator.relation}"
        )
    for form in literal:
        validation.choice("literal", form, tuple(LITERAL))
    from scipy.linalg import eigh

    side = RecordShape(symmetric=n_items)
    what = "second moment of rating rows"
    noise = {"sensitivity": math.sqrt(2.0) / n}
    if "sensitivity" in literal:
        if curator.budget is None or curator.budget.rho is None:
            raise BudgetError("the printed noise takes a zCDP budget, 'rho=1' say")
        curator.as_printed("RU, section 6.3")
        noise["sigma"] = 1.0 / (n * math.sqrt(2.0 * curator.budget.rho))
    sums = LogSum(curator, side, clip=1.0, what=what, **noise)
    moment = sums.of(second_moment(rows))
    # only the largest `dim`, which is faster than all
    eigenpairs = eigh(moment, subset_by_index=(n_items - dim, n_items - 1))
    values = np.maximum(eigenpairs[0][::-1], 0.0)
    vectors = eigenpairs[1][:, ::-1]
    # signs of eigenvectors are arbitrary: fix them, so that results can be repeated
    largest = np.abs(vectors).argmax(axis=0)
    vectors = vectors * np.sign(vectors[largest, np.arange(dim)])
    factors = vectors if "eigenvectors" in literal else vectors * np.sqrt(values)
    return PrivateFactors(factors, values, curator.ledger.guarantee)
