"""The maximum-likelihood fit of the demand models against scipy.optimize."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import minimize
from scipy.special import expit

from dpb_agents.pricing.records import ExactMLE
from dpb_gym import kernels, make_problem
from dpb_gym.errors import HorizonExceeded, ParameterError
from dpb_gym.problems.base import Context, Feedback

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
    found = minimize(
        lambda t: objective(t, *args)[:2],
        np.zeros(d),
        jac=True,
        hess=lambda t: objective(t, *args)[2],
        method="trust-exact",
        options={"gtol": 1e-9},
    )
    return found.x


def fit(x, p, y, model, ridge=1.0, linear=None, start=None, due=None, zeta=4.0, tolerance=1e-12):
    B, n, m = x.shape
    theta = np.zeros((B, m + 1)) if start is None else start.copy()
    linear = np.zeros((B, m + 1)) if linear is None else linear
    norm = np.full(B, np.nan)
    due = np.ones(B, bool) if due is None else due
    code = MODELS.index(model)
    kernels.glm_fit.newton(x, p, y, n, due, code, zeta, ridge, linear, tolerance, theta, norm)
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
def test_minimiser_balances_the_problems_own_loss_gradients(model):
    problem = make_problem("DPB/Pricing-v0", horizon=200, dim=4, demand=model)
    x, p, y = data(6, 1, 200, 4, model)
    theta, _ = fit(x, p, y, model, ridge=0.5)
    total = 0.5 * theta[0]
    for i in range(200):
        feedback = Feedback(p[:, i] * y[:, i], demand=y[:, i])
        total = total + problem.loss(theta, Context(i + 1, x[:, i]), p[:, i], feedback).gradient[0]
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
