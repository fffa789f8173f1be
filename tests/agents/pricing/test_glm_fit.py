"""The maximum-likelihood fit of the demand models against scipy.optimize."""

from __future__ import annotations

import tracemalloc

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize
from scipy.special import expit

from dpb_agents import kernels as agent_kernels
from dpb_agents.pricing.demand_records import DemandRecords, ExactMLE
from dpb_gym import make_problem
from dpb_gym.errors import HorizonExceeded, ParameterError
from dpb_gym.problems.base import Context, Round

MODELS = ("logistic", "gaussian")


def data(seed, B, n, d, model, spread=1.0):
    rng = np.random.default_rng(seed)
    x = rng.uniform(-1, 1, (B, n, d - 1)).astype(np.float32)
    p = rng.random((B, n))
    theta = rng.standard_normal((B, d)) * spread
    z = (np.einsum("bnk,bk->bn", x, theta[:, :-1]) - p * theta[:, -1:]) / np.sqrt(d)
    if model == "logistic":
        return x, p, (rng.random((B, n)) < expit(4.0 * z)).astype(float)
    return x, p, z + rng.standard_normal((B, n))


def objective(theta, x, p, y, model, zeta, ridge, linear):
    """Objective, gradient and Hessian of one replicate, by NumPy."""
    phi = np.column_stack([x.astype(np.float64), -p]) / np.sqrt(len(theta))
    z = phi @ theta
    if model == "logistic":
        s = zeta * z
        loss = np.sum(np.logaddexp(0.0, s) - y * s)
        residual = zeta * (expit(s) - y)
        weight = zeta**2 * expit(s) * expit(-s)
    else:
        loss = 0.5 * np.sum((y - z) ** 2)
        residual, weight = z - y, np.ones(len(y))
    value = loss + 0.5 * ridge * theta @ theta + linear @ theta
    gradient = phi.T @ residual + ridge * theta + linear
    return value, gradient, phi.T @ (phi * weight[:, None]) + ridge * np.eye(len(theta))


def scipy_fit(x, p, y, model, zeta, ridge, linear):
    d = x.shape[1] + 1
    args = (x, p, y, model, zeta, ridge, linear)
    optimum = minimize(
        lambda t: objective(t, *args)[:2],
        np.zeros(d),
        jac=True,
        hess=lambda t: objective(t, *args)[2],
        method="trust-exact",
        options={"gtol": 1e-9},
    )
    return optimum.x


def fit(x, p, y, model, ridge=1.0, linear=None, start=None, due=None, zeta=4.0, tolerance=1e-12):
    B, n, m = x.shape
    theta = np.zeros((B, m + 1)) if start is None else start.copy()
    linear = np.zeros((B, m + 1)) if linear is None else linear
    norm = np.full(B, np.nan)
    due = np.ones(B, bool) if due is None else due
    code = MODELS.index(model)
    curvature = np.zeros((B, m + 1, m + 1))
    data = (x, p, y, 1.0, n, due, code, zeta, ridge)
    agent_kernels.demand.newton(*data, curvature, linear, tolerance, 0.0, theta, norm)
    return theta, norm


@settings(max_examples=25, deadline=None)
@given(
    st.integers(0, 2**32 - 1),
    st.integers(1, 300),
    st.integers(2, 6),
    st.sampled_from(MODELS),
    st.sampled_from([0.01, 1.0, 10.0]),
    st.sampled_from([0.3, 1.0, 10.0]),
)
@example(4, 5, 6, "logistic", 0.01, 0.3)  # gradients fall where values rise: steps could go round
def test_fit_agrees_with_scipy(seed, n, d, model, ridge, spread):
    x, p, y = data(seed, 2, n, d, model, spread)
    linear = np.random.default_rng(seed).standard_normal((2, d))
    theta, _ = fit(x, p, y, model, ridge, linear)
    for b in range(2):
        expected = scipy_fit(x[b], p[b], y[b], model, 4.0, ridge, linear[b])
        np.testing.assert_allclose(theta[b], expected, rtol=1e-5, atol=1e-6)
        gradient = objective(theta[b], x[b], p[b], y[b], model, 4.0, ridge, linear[b])[1]
        assert np.linalg.norm(gradient) < 1e-6


@pytest.mark.parametrize("model", MODELS)
def test_start_does_not_matter(model):
    x, p, y = data(3, 3, 400, 4, model)
    cold, _ = fit(x, p, y, model)
    far = 100.0 * np.random.default_rng(0).standard_normal(cold.shape)
    warm, norm = fit(x, p, y, model, start=far)
    np.testing.assert_allclose(warm, cold, atol=1e-7)
    assert np.isfinite(norm).all()


def test_separable_demand_stays_finite():
    # Everybody buys: without the ridge the likelihood has no maximum.
    x, p, _ = data(4, 1, 50, 3, "logistic")
    theta, _ = fit(x, p, np.ones((1, 50)), "logistic", ridge=1e-6)
    gradient = objective(theta[0], x[0], p[0], np.ones(50), "logistic", 4.0, 1e-6, np.zeros(3))[1]
    assert np.isfinite(theta).all() and np.linalg.norm(gradient) < 1e-6


def test_replicates_that_are_not_due_are_left_alone_and_bits_do_not_depend_on_the_batch():
    x, p, y = data(5, 8, 120, 3, "logistic")
    theta, _ = fit(x, p, y, "logistic")
    for size in (1, 3):
        for start in range(0, 8, size):
            part = slice(start, start + size)
            alone, _ = fit(x[part].copy(), p[part].copy(), y[part].copy(), "logistic")
            assert (alone == theta[part]).all()
    due = np.arange(8) % 2 == 0
    start = np.full((8, 3), 7.0)
    some, norm = fit(x, p, y, "logistic", start=start, due=due)
    assert (some[~due] == 7.0).all() and np.isnan(norm[~due]).all()
    assert (some[due] != 7.0).all()


@pytest.mark.parametrize("model", MODELS)
def test_minimiser_balances_what_the_problem_expects_and_what_was_bought(model):
    problem = make_problem("DPB/Pricing-v0", horizon=200, dim=4, demand=model)
    x, p, y = data(6, 1, 200, 4, model)
    theta, _ = fit(x, p, y, model, ridge=0.5)
    total = 0.5 * theta[0]
    for i in range(200):
        round_ = Round(Context(i + 1, x[:, i]), np.zeros(1), {})
        mean = problem.respond({"theta": theta}, round_, p[:, i])[1] / p[:, i]
        phi = np.append(x[0, i], -p[0, i]) / np.sqrt(4.0)
        total = total + (4.0 if model == "logistic" else 1.0) * (mean - y[:, i]) * phi
    np.testing.assert_allclose(total, 0.0, atol=1e-7)


def test_releaser_grows_warm_starts_and_refuses():
    B, T, d = 2, 700, 3
    x, p, y = data(7, B, T, d, "logistic")
    releaser = ExactMLE(B, d, T, "logistic", 4.0, ridge=1.0, tolerance=1e-10)
    everybody = np.ones(B, bool)
    for i in range(T):
        releaser.add(x[:, i], p[:, i], y[:, i])
        if i in (9, 299, T - 1):
            theta = releaser.release(everybody)
            cut = slice(0, i + 1)
            expected, _ = fit(x[:, cut].copy(), p[:, cut].copy(), y[:, cut].copy(), "logistic")
            np.testing.assert_allclose(theta, expected, atol=1e-7)
    theta[:] = 0.0  # a release is a copy
    assert (releaser.release(np.zeros(B, bool)) != 0.0).all()
    with pytest.raises(HorizonExceeded, match="700 rounds"):
        releaser.add(x[:, 0], p[:, 0], y[:, 0])


@pytest.mark.parametrize("place", range(3))
@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_releaser_rejects_numbers_that_are_not_finite(place, bad):
    releaser = ExactMLE(2, 3, 10, "logistic", 4.0, ridge=1.0)
    record = [np.zeros((2, 2), np.float32), np.full(2, 0.5), np.zeros(2)]
    record[place] = record[place].copy()
    record[place][1] = bad
    with pytest.raises(ParameterError, match="must be finite"):
        releaser.add(*record)
    assert releaser.records.count == 0


@pytest.mark.parametrize("model", MODELS)
def test_folded_records_stand_for_their_losses(model):
    """Fits on folded records against fits on all of them; exact for quadratic losses."""
    B, T, d, capacity = 3, 4000, 3, 500
    x, p, y = data(8, B, T, d, model)
    zeta = 4.0 if model == "logistic" else None
    releaser = ExactMLE(B, d, T, model, zeta, 1.0, tolerance=1e-12, capacity=capacity)
    due = np.ones(B, bool)
    for i in range(T):
        releaser.add(x[:, i], p[:, i], y[:, i])
        if i + 1 in (capacity, capacity + 1, 3 * capacity, T):
            theta = releaser.release(due)
            cut = slice(0, i + 1)
            whole, _ = fit(x[:, cut].copy(), p[:, cut].copy(), y[:, cut].copy(), model)
            for b in range(B):
                args = (x[b, cut], p[b, cut], y[b, cut], model, 4.0, 1.0, np.zeros(d))
                error = objective(whole[b], *args)[2] @ (theta[b] - whole[b])
                # the gradient's own sampling error is of order 2 sqrt(n / d)
                bound = 1e-6 if model == "gaussian" or i < capacity else 0.1 * np.sqrt(i / d)
                assert np.linalg.norm(error) < bound, (i, b, error)
        assert releaser.records.price.shape[1] <= capacity  # memory does not grow
    assert releaser.count == T
    with pytest.raises(HorizonExceeded, match="4000 rounds"):
        releaser.add(x[:, 0], p[:, 0], y[:, 0])


def test_compact_records_are_lossless():
    rng = np.random.default_rng(9)
    x = rng.uniform(-2, 2, (200, 2, 3)).astype(np.float32)
    p, y = rng.random((200, 2)), rng.random((200, 2)) * 3 - 1
    small = DemandRecords(2, 4, 200, (0.0, 1.0), compact=True)
    wide = DemandRecords(2, 4, 200, (-0.5, 1.0), compact=True)
    for row in zip(x, p, y):
        small.add(*row)
        wide.add(*row)
    assert [a.dtype.itemsize for a in (small.features, small.price, small.demand)] == [4, 4, 1]
    for kept, low, error in ((small, 0.0, 0.5 / 255), (wide, -0.5, 1e-7)):
        stored = kept.demand[:, :200].T / kept.unit
        np.testing.assert_allclose(stored, np.clip(y, low, 1.0), atol=error * 1.001)
        stored = np.concatenate([kept.features, kept.price[:, :, None]], axis=2).astype(float)
        norm = np.sqrt((stored[:, :200] ** 2).sum(axis=2) / 4).T
        assert (norm <= 1.0).all()
        true = np.sqrt(((x.astype(float) ** 2).sum(axis=2) + p**2) / 4)
        np.testing.assert_allclose(norm, np.minimum(true, 1.0), atol=2e-6)
    exact = DemandRecords(1, 2, 9, (0.0, 1.0), compact=True)
    for demand in (0.0, 1.0):
        exact.add(np.zeros((1, 1), np.float32), np.zeros(1), np.array([demand]))
    assert (exact.demand[0, :2] / exact.unit == [0.0, 1.0]).all()


def test_records_of_wrong_shapes_are_refused():
    kept = DemandRecords(2, 3, 9)
    with pytest.raises(ParameterError, match=r"must have shapes \(2, 2\), \(2,\) and \(2,\)"):
        kept.add(np.zeros((3, 2), np.float32), np.zeros(3), np.zeros(3))
    assert kept.count == 0


@pytest.mark.parametrize("d", [1, 2, 5])
def test_signed_determinants_against_numpy(d):
    rng = np.random.default_rng(d)
    matrices = rng.standard_normal((200, d, d))
    matrices[0] = 0.0
    sign, logdet = np.empty(200), np.empty(200)
    agent_kernels.demand.signed_logdet(matrices, sign, logdet)
    expected = np.linalg.slogdet(matrices)
    np.testing.assert_array_equal(sign, expected[0])
    np.testing.assert_allclose(logdet, expected[1], rtol=1e-10, atol=1e-10)
    # grown: det(M + I) > 2 (sign exp(logdet)), in plain numbers
    old, due = rng.permutation(200), np.empty(200, bool)
    shifted = np.linalg.det(matrices + np.eye(d))
    past = sign[old] * np.exp(logdet[old])
    some = agent_kernels.demand.grown(matrices, 1.0, np.log(2.0), sign[old], logdet[old], due)
    positive = (sign[old] > 0) | (shifted > 0)
    np.testing.assert_array_equal(due[positive], (shifted > 2.0 * past)[positive])
    # both negative: the printed comparison, det > 2 det', asks for a smaller absolute value
    np.testing.assert_array_equal(due[~positive], (shifted > 2.0 * past)[~positive])
    assert some == due.any()


@pytest.mark.parametrize("rounds", [1, 256, 257, 700, 1024])
def test_memory_of_a_store_is_its_peak(rounds):
    """Against what the interpreter counts while records are added."""
    store = DemandRecords(50, 8, 1024, (0.0, 1.0), compact=True)
    expected = store.memory(rounds)
    store.add(np.zeros((50, 7), np.float32), np.zeros(50), np.zeros(50))  # compiled before
    tracemalloc.start()
    fresh = DemandRecords(50, 8, 1024, (0.0, 1.0), compact=True)
    for _ in range(rounds):
        fresh.add(np.zeros((50, 7), np.float32), np.zeros(50), np.zeros(50))
    now, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert now == pytest.approx(fresh.memory(), abs=20_000)
    # what was allocated and not written is not in the store's own figure
    assert peak <= max(3 * expected / 2, fresh.memory()) + 20_000
    assert expected <= peak + 20_000
    fresh.drop()
    assert fresh.memory(10**9) == fresh.memory() == fresh.stored[-1] == 0
