"""Newton's method, records and Gram matrices against scipy and NumPy."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy.optimize import minimize

from dpb_agents import kernels as agent_kernels
from dpb_agents.assortment.choice_records import ChoiceMLE, ChoiceRecords
from dpb_gym.errors import HorizonExceeded
from dpb_gym.privacy import Curator

Array = NDArray[Any]


def simulate(seed: int, B: int, rounds: int, K: int, d: int, scale: float = 1.0) -> list[Any]:
    """Random features, slates with gaps, and choices of an MNL customer."""
    rng = np.random.default_rng(seed)
    N = K + 3
    features = (scale * rng.normal(size=(rounds, B, N, d))).astype(np.float32)
    theta = rng.uniform(-1, 1, size=(B, d))
    slates = np.argsort(rng.random((rounds, B, N)), axis=2)[:, :, :K]
    slates[rng.random((rounds, B, K)) < 0.2] = -1
    choice = np.full((rounds, B), -1)
    for t in range(rounds):
        for b in range(B):
            u = features[t, b, slates[t, b]].astype(float) @ theta[b]
            weight = np.where(slates[t, b] >= 0, np.exp(u), 0.0)
            p = weight / (1 + weight.sum())
            choice[t, b] = rng.choice([*range(K), -1], p=[*p, 1 - p.sum()])
    return [features, slates, choice]


def objective(
    theta: Array, records: list[Any], b: int, ridge: float, linear: Array
) -> tuple[float, Array]:
    """Penalised negative log-likelihood and gradient, written for reading."""
    value = 0.5 * ridge * theta @ theta + linear @ theta
    gradient = ridge * theta + linear
    for features, slates, choice in zip(*records, strict=True):
        items = slates[b][slates[b] >= 0]
        x = features[b, items].astype(float)
        u = x @ theta
        p = np.exp(u) / (1 + np.exp(u).sum())
        value += np.log1p(np.exp(u).sum())
        gradient = gradient + p @ x
        if choice[b] >= 0:
            bought = features[b, slates[b, choice[b]]].astype(float)
            value -= bought @ theta
            gradient = gradient - bought
    return value, gradient


class Fit:
    """Buffers around the kernels."""

    def __init__(self, records: list[Any], clip: bool = False) -> None:
        features, slates, choice = records
        rounds, B, K = slates.shape
        d = features.shape[3]
        self.x = np.full((B, rounds, K, d), np.nan, np.float32)
        self.offered = np.zeros((B, rounds), np.int32)
        self.chosen = np.zeros((B, rounds), np.int32)
        for t in range(rounds):
            args = (features[t], slates[t], choice[t], clip, t)
            assert agent_kernels.choices.store(*args, self.x, self.offered, self.chosen)
        self.theta = np.zeros((B, d))
        self.hessian = np.zeros((B, d, d))
        self.seen = np.zeros(B, np.int64)
        self.norm = np.zeros(B)

    def run(
        self,
        n: int,
        ridge: float,
        linear: Array | None = None,
        tolerance: float = 1e-9,
        precision: float = 0.0,
        due: Array | None = None,
    ) -> Array:
        B, d = self.theta.shape
        agent_kernels.choices.newton(
            (self.x, self.offered, self.chosen, n),
            np.ones(B, bool) if due is None else due, ridge,
            np.zeros((B, d)) if linear is None else linear, None, tolerance, precision,
            self.theta, self.hessian, self.seen, self.norm,
        )  # fmt: skip
        return self.theta.copy()


@settings(max_examples=25, deadline=None)
@given(
    st.integers(0, 10_000), st.integers(1, 4), st.integers(1, 6), st.integers(1, 60),
    st.floats(0.01, 10.0), st.booleans(),
)  # fmt: skip
def test_newton_finds_scipys_minimum(
    seed: int, d: int, K: int, rounds: int, ridge: float, perturbed: bool
) -> None:
    B = 2
    records = simulate(seed, B, rounds, K, d)
    linear = np.random.default_rng(seed).normal(size=(B, d)) if perturbed else np.zeros((B, d))
    fit = Fit(records)
    theta = fit.run(rounds, ridge, linear)
    for b in range(B):
        args = (records, b, ridge, linear[b])
        optimum = minimize(objective, np.zeros(d), args, jac=True, method="BFGS", tol=1e-10)
        np.testing.assert_allclose(theta[b], optimum.x, atol=2e-6, rtol=1e-6)


@settings(max_examples=15, deadline=None)
@given(st.integers(0, 10_000), st.integers(1, 4), st.integers(1, 5))
def test_a_certified_minimum_has_a_vanishing_gradient(seed: int, d: int, K: int) -> None:
    records = simulate(seed, 2, 80, K, d)
    linear = 5.0 * np.random.default_rng(seed).normal(size=(2, d))
    fit = Fit(records)
    theta = fit.run(80, 2.0, linear, tolerance=0.0, precision=1e-10)
    assert (fit.norm <= 1e-10).all()
    for b in range(2):
        assert np.linalg.norm(objective(theta[b], records, b, 2.0, linear[b])[1]) < 1e-9


def test_newton_converges_from_far_away_and_on_separable_choices() -> None:
    records = simulate(3, 1, 200, 4, 3, scale=5.0)
    records[2][:] = np.where(records[1] >= 0, records[1], -9).argmax(axis=2)
    fit = Fit(records)
    fit.theta[:] = [[40.0, -300.0, 700.0]]
    far = fit.run(200, 1e-3, tolerance=0.0, precision=1e-9)
    near = Fit(records).run(200, 1e-3, tolerance=0.0, precision=1e-9)
    np.testing.assert_allclose(far, near, rtol=1e-6)


def test_a_warm_start_reaches_the_cold_minimum_and_spares_passes() -> None:
    records = simulate(5, 3, 400, 5, 4)
    warm = Fit(records)
    for n in (50, 60, 90, 200, 400):
        warm.run(n, 1.0)
    cold = Fit(records)
    np.testing.assert_allclose(warm.theta, cold.run(400, 1.0), atol=1e-8)
    assert (warm.seen == 400).all()


def test_only_replicates_that_are_due_move() -> None:
    records = simulate(6, 3, 50, 3, 2)
    fit = Fit(records)
    theta = fit.run(50, 1.0, due=np.array([True, False, True]))
    assert not theta[1].any() and theta[[0, 2]].all()
    assert fit.seen.tolist() == [50, 0, 50]


def test_store_closes_gaps_and_keeps_the_choice() -> None:
    features = np.arange(2 * 4 * 2, dtype=np.float32).reshape(1, 2, 4, 2)
    slates = np.array([[[-1, 3, 1], [-1, -1, -1]]])
    choice = np.array([[2, -1]])
    fit = Fit([features, slates, choice])
    assert fit.offered.tolist() == [[2], [0]] and fit.chosen.tolist() == [[1], [-1]]
    np.testing.assert_array_equal(fit.x[0, 0, :2], features[0, 0, [3, 1]])


def test_store_clips_strictly_into_the_ball_and_reports_nan() -> None:
    records = simulate(8, 4, 30, 5, 7)
    fit = Fit(records, clip=True)
    norms = np.linalg.norm(np.nan_to_num(fit.x).astype(float), axis=3)
    assert norms.max() <= 1.0 and norms.max() > 1.0 - 1e-6
    records[0][0, 0, 0, 0] = np.nan
    slates = np.zeros((4, 5), np.int64)
    args = (records[0][0], slates, records[2][0], False, 0)
    assert not agent_kernels.choices.store(*args, fit.x, fit.offered, fit.chosen)


@pytest.mark.parametrize("clip", [False, True])
def test_offered_rows_against_numpy(clip: bool) -> None:
    features, slates, _ = simulate(9, 6, 1, 4, 3)
    rows = np.empty((6, slates.shape[2], 3))
    agent_kernels.choices.offered_rows(features[0], slates[0], clip, rows)
    for b in range(6):
        x = features[0, b, slates[0, b][slates[0, b] >= 0]].astype(float)
        if clip:
            x = x / np.maximum(1.0, np.linalg.norm(x, axis=1, keepdims=True))
        np.testing.assert_allclose(rows[b][slates[0, b] >= 0], x, rtol=1e-6, atol=1e-12)
        assert not rows[b][slates[0, b] < 0].any()


def test_copied_records_have_no_unused_memory_and_grow() -> None:
    rng = np.random.default_rng(3)
    features = rng.normal(size=(8, 2, 6, 4)).astype(np.float32)
    slates, choice = np.array([[0, 2, 5], [1, -1, 4]]), np.array([1, -1])
    records = ChoiceRecords(2, 3, 4, 100_000)
    for round_ in features[:5]:
        records.add(round_, slates, choice)
    copied = pickle.loads(pickle.dumps(records))
    assert copied.x.shape == (2, 5, 3, 4)
    for round_ in features[5:]:
        records.add(round_, slates, choice)
        copied.add(round_, slates, choice)
    for whole, part in zip(records.stored[:3], copied.stored[:3]):
        np.testing.assert_array_equal(whole[0, :8], part[0, :8])
    assert records.count == copied.count == 8


def test_memory_of_a_store_is_its_peak() -> None:
    """Records are copied when the store grows, so the peak is twice the smaller capacity."""
    records = ChoiceRecords(2, 3, 4, 100)
    each = 2 * (3 * 4 * 4 + 8)
    assert records.memory(30) == 30 * each and records.memory(10**6) == 100 * each
    small = pickle.loads(pickle.dumps(records))
    small.x, small.offered, small.chosen = (a[:, :10] for a in records.stored[:3])
    assert small.memory(10) == 10 * each
    assert small.memory(11) == 20 * each  # 10 old ones beside 10 copies
    assert small.memory(40) == 42 * each
    assert small.memory(44) == 86 * each
    small.drop()
    assert small.memory(10**6) == 0


def folded(seed: int, rounds: int, capacity: int) -> Any:
    """Simulated choices, and an exact fit that folds every `capacity` of them."""
    records = simulate(seed, 2, rounds, 4, 3)
    curator = Curator(None, ("joint", "user-round"), replicates=2)
    estimator = ChoiceMLE(curator, 4, 3, rounds)
    estimator.records = ChoiceRecords(2, 4, 3, capacity)
    return records, estimator


@pytest.mark.parametrize("rounds", [499, 500, 501, 1500, 4000])
def test_folded_records_stand_for_their_losses(rounds: int) -> None:
    """The gradient of all losses at the estimate from folded records is O(1), not O(sqrt(n))."""
    records, estimator = folded(8, rounds, 500)
    for features, slates, choice in zip(*records, strict=True):
        estimator.add(features, slates, choice)
        assert estimator.records.x.shape[1] <= 500
    theta = estimator.release(np.ones(2, bool))
    assert estimator.added == rounds
    best = Fit(records).run(rounds, 1.0, tolerance=0.0, precision=1e-9)
    np.testing.assert_allclose(theta, best, atol=1e-4 if rounds <= 500 else 0.02)
    for b in range(2):
        error = np.linalg.norm(objective(theta[b], records, b, 1.0, np.zeros(3))[1])
        assert error < (1e-2 if rounds <= 500 else 0.1 * np.sqrt(rounds * 4 / 3))
    with pytest.raises(HorizonExceeded):
        estimator.add(*(part[0] for part in records))


def test_folding_does_not_depend_on_when_estimates_are_released() -> None:
    estimates = []
    for often in (False, True):
        records, estimator = folded(3, 1300, 400)
        for t, row in enumerate(zip(*records, strict=True)):
            estimator.add(*row)
            if often and t % 90 == 89:
                estimator.release(np.array([True, False]))
        estimates.append(estimator.release(np.ones(2, bool)))
    np.testing.assert_allclose(estimates[0], estimates[1], atol=2e-3)
