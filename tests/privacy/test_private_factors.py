"""Private item features: sensitivity by adversarial search, noise, accuracy, budget."""

from __future__ import annotations

import math

import numpy as np
import pytest
from curated import curator
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.sparse import csr_array

from dpb_gym.errors import BudgetError, ParameterError
from dpb_gym.privacy import Budget
from dpb_gym.privacy.private_factors import private_factors, second_moment

LOOSE = Budget.zcdp(1e12)


def per_user(budget):
    return curator(str(budget), notion="central", unit="user", horizon=1)


def rows_of(rng, n=40, items=6):
    return rng.normal(size=(n, items)) * (rng.random((n, items)) < 0.5)


@pytest.mark.slow
@settings(max_examples=60, deadline=None)
@given(st.integers(0, 2**31), st.floats(0.01, 100.0), st.floats(0.01, 100.0))
def test_no_row_moves_the_moment_by_more_than_the_sensitivity(seed, a, b):
    """Random rows of any length, exchanged for random, parallel, opposite and orthogonal ones."""
    rng = np.random.default_rng(seed)
    rows = rows_of(rng, n=7)
    x = rng.normal(size=6)
    y = rng.normal(size=6)
    orthogonal = y - (y @ x) / (x @ x) * x
    bound = math.sqrt(2.0) / 7
    for other in (y, x, -x, orthogonal, np.zeros(6), np.eye(6)[2]):
        one, two = rows.copy(), rows.copy()
        one[3], two[3] = a * x, b * other
        distance = np.linalg.norm(second_moment(one) - second_moment(two))
        assert distance <= bound * (1 + 1e-12)


@pytest.mark.slow
def test_the_sensitivity_is_attained_and_one_over_n_is_not_enough():
    """Local search from random rows climbs to sqrt(2)/n, above RU's 1/n."""
    rng = np.random.default_rng(0)
    n = 5
    rows = rows_of(rng, n=n, items=4)

    def distance(pair):
        one, two = rows.copy(), rows.copy()
        one[0], two[0] = pair
        return float(np.linalg.norm(second_moment(one) - second_moment(two)))

    best, reached = rng.normal(size=(2, 4)), 0.0
    for step in range(700):
        trial = best + rng.normal(size=(2, 4)) * 0.4 * 0.993**step
        if (value := distance(trial)) > reached:
            best, reached = trial, value
    own = per_user(LOOSE)
    private_factors(rows, 2, own)
    stated = own.releasers[0].sensitivity
    assert stated == math.sqrt(2.0) / n
    assert 1.2 / n < reached <= stated * (1 + 1e-12)
    assert reached == pytest.approx(stated, rel=0.02)


def test_moment_by_hand_and_from_sparse_rows():
    rng = np.random.default_rng(1)
    rows = rows_of(rng)
    expected = np.zeros((6, 6))
    longer = 0
    for row in rows:
        length = math.sqrt(sum(v * v for v in row))
        longer += length > 1
        clipped = row / max(1.0, length)
        expected += np.outer(clipped, clipped) / len(rows)
    for given_rows in (rows, csr_array(rows)):
        np.testing.assert_allclose(second_moment(given_rows), expected, atol=1e-14)
    assert longer > 0


def test_calibration_and_guarantee():
    rows = rows_of(np.random.default_rng(2))
    for budget, sigma in (("rho=0.5", 1.0), ("eps=1,delta=1e-5", 3.73)):
        own = per_user(Budget.parse(budget))
        private = private_factors(rows, 3, own)
        sums = own.releasers[0]
        assert sums.sigma / sums.sensitivity == pytest.approx(sigma, abs=0.01)
        g = private.guarantee
        assert (g.notion, g.unit, g.relation, g.basis) == (
            "central", "user", "replace-one", "computed",
        )  # fmt: skip
    assert g.epsilon(1e-5) == pytest.approx(1.0, rel=1e-4)


def test_with_negligible_noise_factors_are_principal_directions():
    rng = np.random.default_rng(4)
    rows = rows_of(rng, n=200)
    private = private_factors(rows, 3, per_user(LOOSE))
    values, vectors = np.linalg.eigh(second_moment(rows))
    top = vectors[:, -3:] * np.sqrt(values[-3:])
    np.testing.assert_allclose(private.factors @ private.factors.T, top @ top.T, atol=1e-6)
    np.testing.assert_allclose(private.eigenvalues, values[:-4:-1], atol=1e-6)
    assert (private.factors[np.abs(private.factors).argmax(axis=0), np.arange(3)] > 0).all()


def test_much_noise_leaves_finite_factors():
    rows = rows_of(np.random.default_rng(5), n=10)
    private = private_factors(rows, 6, per_user(Budget.zcdp(1e-6)))
    assert np.isfinite(private.factors).all()
    assert (private.eigenvalues >= 0).all() and private.eigenvalues[-1] == 0.0, "floored"


def test_one_curator_makes_one_release():
    own, rows = per_user(Budget.zcdp(0.5)), rows_of(np.random.default_rng(6))
    private_factors(rows, 2, own)
    assert own.ledger.spent == pytest.approx(0.5)
    with pytest.raises(BudgetError, match="charged already"):
        private_factors(rows, 2, own)


@pytest.mark.parametrize(
    "change",
    [
        {"dim": 7},
        {"dim": 0},
        {"rows": np.zeros(6)},
        {"rows": np.zeros((3, 5000))},
        {"rows": np.full((3, 6), np.nan)},
        {"curator": curator("rho=1", 2, notion="central", unit="user")},
        {"curator": curator("rho=1", notion="central", unit="reward")},
    ],
)
def test_bad_arguments(change):
    arguments = {"rows": np.ones((3, 6)), "dim": 2, "curator": per_user(LOOSE)}
    with pytest.raises(ParameterError):
        private_factors(**{**arguments, **change})


def test_the_printed_sensitivity_costs_twice_its_budget():
    """RU, section 6.3: sigma = 1 / (n sqrt(2 rho)), and a replaced row costs 2 rho."""
    rows = rows_of(np.random.default_rng(7))
    own = per_user(Budget.zcdp(0.5))
    private = private_factors(rows, 3, own, literal=["sensitivity"])
    assert own.releasers[0].sigma == pytest.approx(1 / (40 * math.sqrt(2 * 0.5)))
    assert private.guarantee.rho == pytest.approx(2 * 0.5, rel=1e-6)
    assert "as printed" in private.guarantee.basis
    with pytest.raises(BudgetError, match="zCDP budget"):
        private_factors(
            rows, 3, per_user(Budget.parse("eps=1,delta=1e-5")), literal=["sensitivity"]
        )


def test_printed_features_are_eigenvectors():
    rows = rows_of(np.random.default_rng(4), n=200)
    ours, printed = (
        private_factors(rows, 3, per_user(LOOSE), literal=form) for form in ((), ("eigenvectors",))
    )
    np.testing.assert_allclose(printed.factors.T @ printed.factors, np.eye(3), atol=1e-12)
    np.testing.assert_allclose(printed.factors * np.sqrt(ours.eigenvalues), ours.factors, atol=1e-5)
    with pytest.raises(ParameterError, match="literal must be one of"):
        private_factors(rows, 3, per_user(LOOSE), literal=["eigenvalues"])
