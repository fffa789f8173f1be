"""Private item features: sensitivity by adversarial search, noise, accuracy, budget."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.sparse import csr_array

from dpb_gym.errors import BudgetExceeded, ParameterError
from dpb_gym.privacy import Budget, GaussianEvent, Ledger, NoiseSource
from dpb_gym.privacy.features import private_factors, second_moment, symmetric_noise

LOOSE = Budget.zcdp(1e12)


def rows_of(rng, n=40, items=6):
    return rng.normal(size=(n, items)) * (rng.random((n, items)) < 0.5)


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
        distance = np.linalg.norm(second_moment(one)[0] - second_moment(two)[0])
        assert distance <= bound * (1 + 1e-12)


def test_the_sensitivity_is_attained_and_one_over_n_is_not_enough():
    """Local search from random rows climbs to sqrt(2)/n, above RU's 1/n."""
    rng = np.random.default_rng(0)
    n = 5
    rows = rows_of(rng, n=n, items=4)

    def distance(pair):
        one, two = rows.copy(), rows.copy()
        one[0], two[0] = pair
        return float(np.linalg.norm(second_moment(one)[0] - second_moment(two)[0]))

    best, reached = rng.normal(size=(2, 4)), 0.0
    for step in range(700):
        trial = best + rng.normal(size=(2, 4)) * 0.4 * 0.993**step
        if (value := distance(trial)) > reached:
            best, reached = trial, value
    stated = private_factors(rows, 2, LOOSE, NoiseSource.from_seed(0)).sensitivity
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
        moment, count = second_moment(given_rows)
        np.testing.assert_allclose(moment, expected, atol=1e-14)
        assert count == longer > 0


def test_noise_is_standard_in_the_frobenius_norm():
    matrices = [symmetric_noise(NoiseSource.from_seed(s), 5) for s in range(2000)]
    stack = np.stack(matrices)
    np.testing.assert_array_equal(stack, stack.transpose(0, 2, 1))
    spread = stack.std(axis=0)
    np.testing.assert_allclose(np.diag(spread), 1.0, rtol=0.08)
    np.testing.assert_allclose(spread[np.triu_indices(5, 1)], math.sqrt(0.5), rtol=0.08)
    # Any direction of unit Frobenius norm meets noise of variance one: that is what the
    # sensitivity in Frobenius norm needs.
    direction = np.random.default_rng(3).normal(size=(5, 5))
    direction = direction + direction.T
    direction /= np.linalg.norm(direction)
    assert np.std((stack * direction).sum(axis=(1, 2))) == pytest.approx(1.0, rel=0.08)


def test_calibration_and_guarantee():
    rows = rows_of(np.random.default_rng(2))
    found = private_factors(rows, 3, Budget.zcdp(0.5), NoiseSource.from_seed(0))
    assert found.sigma == pytest.approx(found.sensitivity)  # S / sqrt(2 rho)
    assert found.guarantee.rho == pytest.approx(0.5)
    approx = private_factors(rows, 3, Budget.approx(1.0, 1e-5), NoiseSource.from_seed(0))
    assert approx.sigma / approx.sensitivity == pytest.approx(3.73, abs=0.01)
    g = approx.guarantee
    assert (g.notion, g.unit, g.relation) == ("central", "user", "replace-one")
    assert g.epsilon(1e-5) == pytest.approx(1.0, rel=1e-4)


def test_without_noise_to_speak_of_these_are_the_principal_directions():
    rng = np.random.default_rng(4)
    rows = rows_of(rng, n=200)
    found = private_factors(rows, 3, LOOSE, NoiseSource.from_seed(0))
    values, vectors = np.linalg.eigh(second_moment(rows)[0])
    top = vectors[:, -3:] * np.sqrt(values[-3:])
    np.testing.assert_allclose(found.factors @ found.factors.T, top @ top.T, atol=1e-6)
    np.testing.assert_allclose(found.eigenvalues, values[:-4:-1], atol=1e-6)
    assert (found.factors[np.abs(found.factors).argmax(axis=0), np.arange(3)] > 0).all()


def test_much_noise_leaves_finite_factors():
    rows = rows_of(np.random.default_rng(5), n=10)
    found = private_factors(rows, 6, Budget.zcdp(1e-6), NoiseSource.from_seed(1))
    assert np.isfinite(found.factors).all()
    assert (found.eigenvalues >= 0).all() and found.eigenvalues[-1] == 0.0, "floored"


def test_budget_is_charged_before_noise_is_drawn():
    rows = rows_of(np.random.default_rng(6))
    ledger = Ledger(Budget.zcdp(0.5), notion="central", unit="user")
    noise = NoiseSource.from_seed(0)
    private_factors(rows, 2, Budget.zcdp(0.4), noise, ledger)
    assert ledger.spent == pytest.approx(0.4)
    assert isinstance(ledger.entries[0].event, GaussianEvent)
    before = str(noise.state_dict())
    with pytest.raises(BudgetExceeded):
        private_factors(rows, 2, Budget.zcdp(0.4), noise, ledger)
    assert str(noise.state_dict()) == before


@pytest.mark.parametrize(
    "change",
    [
        {"dim": 7},
        {"dim": 0},
        {"rows": np.zeros(6)},
        {"rows": np.zeros((3, 5000))},
        {"rows": np.full((3, 6), np.nan)},
        {"noise": NoiseSource.from_seed(0, 2)},
        {"ledger": Ledger(LOOSE, notion="central", unit="reward")},
        {"ledger": Ledger(LOOSE, notion="central", unit="user", relation="add-remove")},
    ],
)
def test_bad_arguments(change):
    arguments = {
        "rows": np.ones((3, 6)),
        "dim": 2,
        "budget": LOOSE,
        "noise": NoiseSource.from_seed(0),
    }
    with pytest.raises(ParameterError):
        private_factors(**{**arguments, **change})
