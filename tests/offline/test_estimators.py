"""The estimators against plain sums, Open Bandit Pipeline's numbers, and enumeration."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from log_helpers import by_hand, estimate, small_log, weights_of

from dpb_gym import offline
from dpb_gym.errors import DataError, ParameterError
from dpb_gym.offline import LoggedData

# What Open Bandit Pipeline 0.5.7 returns for `small_log` (InverseProbabilityWeighting,
# SelfNormalizedInverseProbabilityWeighting, DirectMethod, DoublyRobust, SwitchDoublyRobust).
OPEN_BANDIT_PIPELINE = {
    "ips": 0.5035055852447062,
    "snips": 0.47038650585020364,
    "dm": 0.44959104309082587,
    "dr": 0.4948860981691551,
    ("switch-dr", 0.5): 0.4413575696629555,
    ("switch-dr", 1.0): 0.4551372024361674,
    ("switch-dr", 2.0): 0.48877820649247655,
}


def all_values(log, target, q, threshold=1.0):
    return {
        name: estimate(name, log, target, q=q, threshold=threshold)
        for name in ("ips", "snips", "dm", "dr", "switch-dr")
    }


def test_open_bandit_pipeline_on_the_same_log():
    log, target, q = small_log()
    for key, expected in OPEN_BANDIT_PIPELINE.items():
        name, threshold = key if isinstance(key, tuple) else (key, 1.0)
        got = all_values(log, target, q, threshold)[name]
        assert got == pytest.approx(expected, abs=1e-10)


@pytest.mark.parametrize("m", [2, 5])
@pytest.mark.parametrize("threshold", [0.3, 1.0, 4.0])
def test_plain_sums(m, threshold):
    log, target, q = small_log(n=31, m=m)
    expected, weights = by_hand(log, target, q, threshold)
    for name, value in all_values(log, target, q, threshold).items():
        assert value == pytest.approx(expected[name], abs=1e-12)
    estimates = offline.evaluate_offline(
        target, log, q=q, threshold=threshold, estimators=list(expected), resamples=0
    )
    for name, value in expected.items():
        assert estimates[name].value == pytest.approx(value, abs=1e-12)
    np.testing.assert_allclose(weights_of(log, target), weights, rtol=1e-12)
    squares = math.fsum(w * w for w in weights)
    expected_size = math.fsum(weights) ** 2 / squares
    assert offline.effective_sample_size(weights_of(log, target)) == pytest.approx(expected_size)
    assert estimates.effective_sample_size == pytest.approx(expected_size)


def test_unbiased_by_enumeration_of_every_log():
    """Two rounds, three candidates, Bernoulli rewards: the expectation over all 36 logs."""
    behaviour = np.array([[0.5, 0.3, 0.2], [0.1, 0.6, 0.3]])
    mean = np.array([[0.9, 0.2, 0.4], [0.3, 0.7, 0.05]])
    target = np.array([[0.2, 0.2, 0.6], [0.7, 0.0, 0.3]])
    q = np.array([[0.3, 0.9, 0.1], [0.5, 0.2, 0.8]])  # deliberately wrong
    true = float((target * mean).sum(axis=1).mean())
    total, expectation = 0.0, dict.fromkeys(("ips", "dr", "dm", "switch-dr", "snips"), 0.0)
    for actions in itertools.product(range(3), repeat=2):
        for rewards in itertools.product((0.0, 1.0), repeat=2):
            chance = 1.0
            for i in range(2):
                p = mean[i, actions[i]]
                chance *= behaviour[i, actions[i]] * (p if rewards[i] else 1.0 - p)
            shown = [behaviour[i, actions[i]] for i in range(2)]
            log = LoggedData.from_arrays(np.zeros((2, 3, 1)), actions, shown, rewards, (0, 1))
            total += chance
            if not weights_of(log, target).any():
                with pytest.raises(DataError, match="never chooses"):
                    estimate("snips", log, target)
                continue
            for name, value in all_values(log, target, q, 1.5).items():
                expectation[name] += chance * value
    dm = float((target * q).sum(axis=1).mean())
    assert total == pytest.approx(1.0)
    assert expectation["ips"] == pytest.approx(true, abs=1e-12)
    # A log in which every weight is zero has the model's value as its DR estimate.
    nothing = behaviour[1, 1] * 0.0
    assert expectation["dr"] == pytest.approx(true - nothing * dm, abs=1e-12)
    assert abs(expectation["dm"] - true) > 0.1, "the model is wrong"
    switched = float(
        (target * q).sum(axis=1).mean()
        + (np.where(target / behaviour <= 1.5, target, 0.0) * (mean - q)).sum(axis=1).mean()
    )
    assert expectation["switch-dr"] == pytest.approx(switched, abs=1e-12)


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 2**31), st.integers(2, 30), st.integers(2, 5), st.floats(0.1, 3.0))
def test_identities(seed, n, m, threshold):
    rng = np.random.default_rng(seed)
    behaviour, target = rng.dirichlet(np.ones(m), (2, n))
    behaviour = 0.5 * behaviour + 0.5 / m
    actions = np.array([rng.choice(m, p=row) for row in behaviour])
    shown = behaviour[np.arange(n), actions]
    rewards, q = rng.random(n), rng.random((n, m))
    log = LoggedData.from_arrays(rng.normal(size=(n, m, 2)), actions, shown, rewards, (-2, 3))
    values = all_values(log, target, q, threshold)
    zero = np.zeros((n, m))
    assert estimate("dr", log, target, q=zero) == pytest.approx(values["ips"])
    assert estimate("switch-dr", log, target, q=q, threshold=math.inf) == values["dr"]
    for tau, name in ((weights_of(log, target).max(), "dr"), (0.0, "dm")):
        switched = estimate("switch-dr", log, target, q=q, threshold=float(tau))
        assert switched == pytest.approx(values[name])
    assert rewards.min() - 1e-12 <= values["snips"] <= rewards.max() + 1e-12
    # Rewards shifted by a constant shift SNIPS, and DR with a shifted model, by that constant.
    moved = LoggedData.from_arrays(log.features, actions, shown, rewards + 1.5, (-2, 3))
    assert estimate("snips", moved, target) == pytest.approx(values["snips"] + 1.5)
    assert estimate("dr", moved, target, q=q + 1.5) == pytest.approx(values["dr"] + 1.5)
    # The logging policy itself has weight one everywhere.
    assert estimate("ips", log, behaviour) == pytest.approx(rewards.mean())
    assert offline.effective_sample_size(weights_of(log, behaviour)) == pytest.approx(n)
    # IPS, DM, DR are linear in the policy.
    half = 0.5 * target + 0.5 * behaviour
    for name in ("ips", "dr"):
        mixed, other = (estimate(name, log, pi, q=q) for pi in (half, behaviour))
        assert mixed == pytest.approx(0.5 * values[name] + 0.5 * other)


def test_automatic_threshold_is_the_best_of_its_candidates():
    log, target, q = small_log(n=200, m=4)
    estimates = offline.evaluate_offline(target, log, estimators="switch-dr", q=q, resamples=0)
    chosen = estimates.settings["switch-dr"]
    weights = weights_of(log, target)

    def score(tau):
        kept = np.where(weights <= tau, weights, 0.0)
        shown = q[np.arange(len(log)), log.actions]
        terms = (target * q).sum(1) + kept * (log.rewards - shown)
        return terms.var(ddof=1) / len(log) + np.where(weights > tau, weights, 0.0).mean() ** 2

    grid = np.quantile(weights, np.linspace(0, 1, 21), method="higher")
    assert chosen in grid
    assert score(chosen) == pytest.approx(min(score(tau) for tau in grid))
    given = estimate("switch-dr", log, target, q=q, threshold=chosen)
    assert estimates["switch-dr"].value == given


def test_one_huge_weight_is_switched_off():
    rng = np.random.default_rng(0)
    n = 400
    shown = np.full(n, 0.5)
    shown[0] = 1e-4
    rewards = rng.random(n)
    rewards[0] = 1.0
    log = LoggedData.from_arrays(rng.normal(size=(n, 2, 1)), np.zeros(n), shown, rewards, (0, 1))
    target = np.tile([0.5, 0.5], (n, 1))
    q = np.full((n, 2), 0.5)
    # Dropping a weight of 5000 would bias by 5000 / 400 at worst: the bound keeps it.
    estimates = offline.evaluate_offline(
        target, log, estimators=("switch-dr", "dr"), q=q, resamples=0
    )
    assert estimates.settings["switch-dr"] == pytest.approx(5000.0)
    assert estimate("switch-dr", log, target, q=q, threshold=2.0) < 1 < estimates["dr"].value


@pytest.mark.parametrize(
    ("kwargs", "message"),
    [
        ({"policy": np.full((40, 3), 0.5)}, "sum to 1"),
        ({"policy": np.full((40, 2), 0.5)}, "shape"),
        ({"policy": np.tile([1.5, -0.5, 0.0], (40, 1))}, r"\[0"),
        ({"policy": np.full((40, 3), np.nan)}, "finite"),
        ({"q": np.zeros((3, 40))}, "shape"),
        ({"q": np.full((40, 3), np.inf)}, "finite"),
        ({"threshold": -1.0}, "threshold"),
        ({"threshold": math.nan}, "threshold"),
    ],
)
def test_bad_arguments(kwargs, message):
    log, target, q = small_log()
    with pytest.raises(ParameterError, match=message):
        estimate(
            "switch-dr", log, kwargs.pop("policy", target), **{"q": q, "threshold": 1.0, **kwargs}
        )
