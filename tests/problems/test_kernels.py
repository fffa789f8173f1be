"""Problem kernels against plain NumPy versions."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import numpy_kernels
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dpb_gym import kernels

SEEDS = st.integers(0, 2**32 - 1)


@given(SEEDS, st.integers(1, 6))
@settings(max_examples=40, deadline=None)
def test_normalise(seed, d):
    rows = (np.random.default_rng(seed).normal(size=(9, d)) * 2).astype(np.float32)
    rows[0] = 0
    modes = {"raw": 0, "clip": 1, "scale": 2, "sphere": 3}
    for mode, code in modes.items():
        out = rows.copy()
        kernels.feature_rows.normalise(out, code)
        np.testing.assert_allclose(out, numpy_kernels.normalise(rows, mode), rtol=3e-7, atol=1e-7)


@given(SEEDS)
@settings(max_examples=40, deadline=None)
def test_mnl(seed):
    rng = np.random.default_rng(seed)
    B, n, d, K = 5, 9, 3, 4
    features = rng.normal(size=(B, n, d)).astype(np.float32)
    theta = rng.normal(size=(B, d)) * 3
    revenues = rng.random((B, n)).astype(np.float32)
    slates, uniform = rng.integers(-1, n, (B, K)), rng.random(B)
    utility = np.empty((B, n))
    kernels.mnl.utilities(features, theta, utility)
    np.testing.assert_allclose(utility, np.einsum("bnd,bd->bn", features, theta), atol=1e-12)
    choice, reward, expected = out = np.empty(B, np.int64), np.empty(B), np.empty(B)
    assert kernels.mnl.outcome(features, theta, revenues, slates, 1, 1.0, uniform, *out) == 0
    best, value = np.empty((B, K), np.int64), np.empty(B)
    kernels.mnl.best_slates(utility, revenues, K, False, best, value)
    for b in range(B):
        assert choice[b] == numpy_kernels.mnl_choice(utility[b], slates[b], uniform[b])
        earned = revenues[b, slates[b, choice[b]]] if choice[b] >= 0 else 0.0
        assert reward[b] == np.float64(earned)
        exact = numpy_kernels.mnl_revenue(utility[b], revenues[b], slates[b])
        assert expected[b] == pytest.approx(exact, rel=1e-12)
        assert value[b] == pytest.approx(
            numpy_kernels.mnl_best_value(utility[b], revenues[b].astype(float), K), rel=1e-12
        )


@given(SEEDS, st.integers(1, 12), st.integers(1, 14), st.sampled_from([-np.inf, -1.0, 0.0]))
@settings(max_examples=200, deadline=None)
def test_the_best_items_of_a_stable_sort(seed, n, K, floor):
    rng = np.random.default_rng(seed)
    scores = np.round(rng.normal(size=n), 1) * 10.0 ** rng.integers(-300, 300)
    odd = rng.choice([0.0, -0.0, -np.inf, np.nan, np.inf], n)
    scores = np.where(rng.random(n) < 0.4, odd, scores)
    picked, keys = np.empty(K, np.int64), np.empty(n, np.int64)
    count = kernels.mnl.top_indices(scores, K, floor, picked, keys)
    ranked = sorted(np.flatnonzero(scores > floor).tolist(), key=lambda i: -scores[i])
    assert picked[:count].tolist() == sorted(ranked[:K]) and (picked[count:] == -1).all()


@given(SEEDS, st.sampled_from(["logistic", "gaussian"]))
@settings(max_examples=40, deadline=None)
def test_pricing(seed, demand):
    rng = np.random.default_rng(seed)
    B, d = 6, 4
    features = rng.uniform(-1, 1, (B, d - 1)).astype(np.float32)
    theta, price = rng.normal(size=(B, d)), rng.random(B)
    model = ["logistic", "gaussian"].index(demand)
    uniform = rng.random(B)
    out = [np.empty(B) for _ in range(3)]
    kernels.demand_models.outcome(features, theta, price, model, 3.0, uniform, *out)
    np.testing.assert_allclose(
        out[2], numpy_kernels.pricing_revenue(features, theta, price, demand, 3.0), rtol=1e-12
    )
    best, value = np.empty(B), np.empty(B)
    kernels.demand_models.best_prices(features, theta, model, 3.0, best, value)
    np.testing.assert_allclose(
        best, numpy_kernels.best_price(features, theta, demand, 3.0), rtol=1e-10, atol=1e-14
    )


@pytest.mark.parametrize("bad", [None, -0.1, 1.1, np.nan])
def test_prices_move_into_a_range_unless_one_is_impossible(bad):
    price = np.array([0.0, 0.2, 0.25, 0.5, 0.9, 1.0])
    moved = np.empty(6)
    if bad is None:
        assert kernels.demand_models.move_into(price, 0.25, 0.75, moved)
        np.testing.assert_array_equal(moved, np.clip(price, 0.25, 0.75))
    else:
        price[3] = bad
        assert not kernels.demand_models.move_into(price, 0.25, 0.75, moved)


@given(SEEDS, st.sampled_from(["logistic", "linear", "gaussian"]))
@settings(max_examples=40, deadline=None)
def test_recommendation(seed, reward):
    rng = np.random.default_rng(seed)
    B, m, d = 6, 4, 3
    features = rng.normal(size=(B, m, d)).astype(np.float32)
    theta = rng.normal(size=(B, d))
    model = ["logistic", "linear", "gaussian"].index(reward)
    arm, value = np.empty(B, np.int64), np.empty(B)
    kernels.linear_rewards.best_arms(features, theta, model, 0.3, arm, value)
    mean = numpy_kernels.mean_reward(np.einsum("bmd,bd->bm", features, theta), reward, 0.3)
    np.testing.assert_allclose(value, mean.max(1), rtol=1e-10, atol=1e-14)
    np.testing.assert_allclose(mean[np.arange(B), arm], mean.max(1), rtol=1e-10, atol=1e-14)


def test_importing_the_package_compiles_and_imports_nothing_heavy():
    code = (
        "import sys, dpb_gym\n"
        "heavy = {'numba','duckdb','pyarrow','matplotlib','torch','dp_accounting','pandas',"
        "'scipy','dpb_agents','typer','rich'}\n"
        "loaded = heavy & set(sys.modules)\n"
        "import gymnasium\n"
        "print(sorted(loaded))"
    )
    base = subprocess.run(
        [sys.executable, "-c", "import sys, gymnasium; print(sorted(sys.modules))"],
        capture_output=True,
        text=True,
        check=True,
    )
    ours = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    already = {m for m in eval(base.stdout) if m in eval(ours.stdout)}
    assert set(eval(ours.stdout)) <= already
