"""Prices: kernels, closed forms on evenly spaced prices, chosen bandwidths, problems."""

from __future__ import annotations

import math

import numpy as np
import pytest
from log_helpers import estimate, simulated_value, small_prices
from scipy import integrate

from dpb_gym import make_agent, make_problem, offline
from dpb_gym.errors import AgentError, ParameterError, UnknownNameError
from dpb_gym.offline import KERNELS, PriceLog
from dpb_gym.streams import AgentStreams

N = 200_000
EVEN = (np.arange(N) + 0.5) / N  # evenly spaced prices: the average of uniform ones, without noise


def even_log(reward, low=0.0, high=1.0, price_range=None):
    """Every price between the ends once, at its density."""
    prices = low + (high - low) * EVEN
    return PriceLog.from_arrays(
        np.zeros((N, 1)), prices, np.full(N, 1 / (high - low)), reward(prices), (-10.0, 10.0),
        price_range=price_range or (low, high),
    )  # fmt: skip


@pytest.mark.parametrize("kernel", KERNELS)
def test_kernels_are_densities_with_their_distribution_functions(kernel):
    density, mass = KERNELS[kernel]
    ends = (-8.0, 8.0) if kernel == "gaussian" else (-1.0, 1.0)
    for u in (-0.9, -0.2, 0.0, 0.5, 1.0):
        area, _ = integrate.quad(lambda v: float(density(np.array(v))), ends[0], u)
        assert float(mass(np.array(u))) == pytest.approx(area, abs=1e-10)
    total, _ = integrate.quad(lambda v: float(density(np.array(v))), *ends)
    assert total == pytest.approx(1.0, abs=1e-10)


VARIANCE = {"epanechnikov": 1 / 5, "triangular": 1 / 6, "cosine": 1 - 8 / math.pi**2, "gaussian": 1}


@pytest.mark.parametrize("kernel", KERNELS)
def test_the_bias_is_half_the_curvature_times_the_kernels_variance(kernel):
    h, price = 0.05, 0.4
    log = even_log(lambda p: 1 + 2 * p - 3 * p**2)
    at = 1 + 2 * price - 3 * price**2
    bias = 0.5 * -6 * h * h * VARIANCE[kernel]
    target = np.full(N, price)
    options = {"kernel": kernel, "bandwidth": h}
    for name in ("ips", "snips"):
        estimated = estimate(name, log, target, **options)
        assert estimated == pytest.approx(at + bias, abs=1e-7), name
    # a model that is correct up to a constant removes the bias
    reward = np.asarray(log.rewards)
    q = np.stack([reward - 0.7, np.full(N, at - 0.7)], axis=1)
    estimated = estimate("dr", log, target, q=q, **options)
    assert estimated == pytest.approx(at, abs=1e-7)
    assert estimate("dm", log, target, q=q) == pytest.approx(at - 0.7)


@pytest.mark.parametrize("kernel", ["epanechnikov", "gaussian"])
def test_no_weight_is_lost_at_an_end(kernel):
    log = even_log(lambda p: np.full_like(p, 3.0))
    options = {"kernel": kernel, "bandwidth": 0.1}
    for price in (0.0, 0.02, 0.97, 1.0):
        estimated = estimate("ips", log, np.full(N, price), **options)
        assert estimated == pytest.approx(3.0, abs=1e-5)
    unbounded = even_log(lambda p: np.full_like(p, 3.0), price_range=(-math.inf, math.inf))
    half = estimate("ips", unbounded, np.full(N, 1.0), **options)
    assert half == pytest.approx(1.5, abs=1e-4)


def test_changed_weights_of_prices_by_hand():
    logged, target, q = small_prices()
    log = PriceLog.from_arrays(**logged, reward_range=(0.0, 1.0))
    u = (target - logged["prices"]) / 0.3
    w = np.where(np.abs(u) <= 1, 0.75 * (1 - u * u), 0.0) / (0.3 * logged["densities"])
    both = np.stack([0.5 * q, q], axis=1)
    gap = logged["rewards"] - both[:, 0]
    expected = {
        "logged": logged["rewards"].mean(),
        "dm": q.mean(),
        "dr": (q + w * gap).mean(),
        "sndr": q.mean() + (w * gap).sum() / w.sum(),
        "clipped-dr": (q + np.minimum(w, 0.9) * gap).mean(),
        "switch-ips": (np.where(w <= 0.9, w, 0.0) * logged["rewards"]).mean(),
        "shrunk-ips": (0.9 * w / (w * w + 0.9) * logged["rewards"]).mean(),
    }
    limits = {"clipped": "clip", "switch": "threshold", "shrunk": "shrinkage"}
    for name, value in expected.items():
        limit = limits.get(name.split("-")[0])
        options = {} if limit is None else {limit: 0.9}
        estimated = estimate(name, log, target, q=both, bandwidth=0.3, **options)
        assert estimated == pytest.approx(value, abs=1e-12), name


def noisy_log(n, seed, wiggle):
    """Prices whose reward bends on the scale 1 / wiggle."""
    rng = np.random.default_rng(seed)
    prices = rng.random(n)
    mean = 0.5 + 0.4 * np.sin(wiggle * prices)
    rewards = (rng.random(n) < mean).astype(float)
    log = PriceLog.from_arrays(
        np.zeros((n, 1)), prices, np.ones(n), rewards, (0, 1), price_range=(0, 1)
    )
    return log, 0.5 + 0.4 * math.sin(wiggle * 0.5)


def test_bandwidths_follow_the_curvature_and_the_length_of_the_log():
    target = {n: np.full(n, 0.5) for n in (2000, 50_000)}

    def chosen(n, wiggle):
        return np.mean([
            offline.evaluate_offline(
                target[n], noisy_log(n, s, wiggle)[0], estimators="snips", resamples=0
            ).settings["bandwidth"]
            for s in range(4)
        ])  # fmt: skip

    assert chosen(50_000, 40.0) < chosen(50_000, 3.0)
    assert chosen(50_000, 40.0) < chosen(2000, 40.0)
    log, true = noisy_log(50_000, 9, 40.0)
    snips = offline.evaluate_offline(target[50_000], log, estimators="snips", resamples=0)["snips"]
    assert abs(snips.value - true) < 5 * snips.std_error


@pytest.mark.slow
def test_intervals_cover_where_the_reward_is_straight():
    inside = 0
    for s in range(60):
        rng = np.random.default_rng(s)
        n = 3000
        x, prices = rng.random((n, 1)), rng.random(n)
        mean = 0.2 + 0.3 * x[:, 0] + 0.4 * prices
        rewards = (rng.random(n) < mean).astype(float)
        log = PriceLog.from_arrays(x, prices, np.ones(n), rewards, (0, 1), price_range=(0, 1))
        target = 0.3 + 0.4 * x[:, 0]
        true = 0.2 + 0.3 * 0.5 + 0.4 * 0.5
        estimates = offline.evaluate_offline(
            target, log, bandwidth=0.2, estimators=("dr", "snips"), resamples=200, seed=s
        )
        ends = (estimates["dr"].normal, estimates["dr"].percentile, estimates["snips"].normal)
        inside += all(low <= true <= high for low, high in ends)
    assert inside >= 50, "three 95% intervals at once"


@pytest.mark.slow
def test_logs_of_a_pricing_problem_against_its_truth():
    problem = make_problem("DPB/Pricing-v0", horizon=9000, dim=3)
    log = PriceLog.from_problem(problem, 8000, seed=2)
    assert (np.asarray(log.densities) == 1.0).all()
    instance = problem.instance([2])
    prices, truth = np.full(8000, 0.6), []
    for _ in range(3000):
        truth.append(instance.respond(np.array([0.6])).expected[0])
        instance.advance()
    estimates = offline.evaluate_offline(prices, log, bandwidth=0.05, resamples=0)
    for name in ("ips", "snips", "dr", "sndr"):
        e = estimates[name]
        assert abs(e.value - np.mean(truth)) < 4 * e.std_error, name
    agent = make_agent("fixed-price", price=0.6)
    agent.set_up(problem.info, AgentStreams([2]))
    again = offline.evaluate_offline(agent, log, bandwidth=0.05, resamples=0)
    assert again["dr"].value == estimates["dr"].value
    true, error = simulated_value(agent, problem, 1000, [2], skip=8000)
    assert abs(estimates["dr"].value - true[0]) < 4 * math.hypot(
        estimates["dr"].std_error, error[0]
    )


def test_a_policy_may_log_prices():
    problem = make_problem("DPB/Pricing-v0", horizon=4000, dim=3)
    log = PriceLog.from_problem(
        problem, 4000, seed=2, behaviour=lambda c: np.array([0.95]), exploration=0.4
    )
    near = np.asarray(log.prices) >= 0.85
    np.testing.assert_allclose(log.densities, np.where(near, 0.4 + 0.6 / 0.15, 0.4))
    assert abs(near.mean() - (0.6 + 0.4 * 0.15)) < 4 * math.sqrt(0.25 / 4000)
    # densities integrate to one: the mean of 1 / density is the length of the range
    assert np.mean(1 / log.densities) == pytest.approx(1.0, abs=0.05)
    with pytest.raises(AgentError, match="price in"):
        PriceLog.from_problem(problem, 10, behaviour=lambda c: np.array([1.2]))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"prices": [0.1, 1.2]}, "prices must lie in"),
        ({"densities": [1.0, 0.0]}, "positive, got 0 in round 1"),
        ({"rewards": [0.0, 3.0]}, "rewards must lie"),
        ({"price_range": (1.0, 0.0)}, "increasing"),
        ({"price_range": 1.0}, r"price_range must be \(lowest, highest\)"),
        ({"price_range": (1.0, 1.0)}, "price_range must be increasing"),
        ({"features": [0.0, 1.0]}, "shape"),
    ],
)
def test_bad_arrays(change, message):
    good = {
        "features": [[0.0], [1.0]],
        "prices": [0.1, 0.9],
        "densities": [1.0, 0.5],
        "rewards": [0.0, 1.0],
        "reward_range": (0.0, 1.0),
        "price_range": (0.0, 1.0),
    }
    log = PriceLog.from_arrays(**good)
    with pytest.raises(ParameterError, match=message):
        PriceLog.from_arrays(**{**good, **change})
    for options in ({"kernel": "box"}, {"bandwidth": 0.0}, {"groups": [0, 1]}):
        with pytest.raises((ParameterError, UnknownNameError)):
            offline.evaluate_offline([0.2, 0.3], log, estimators="ips", **options)
    with pytest.raises(ParameterError, match="target must lie"):
        offline.evaluate_offline([0.2, 1.3], log)
