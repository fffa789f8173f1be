"""Missing propensities: estimated, cross-fitted, and marked."""

from __future__ import annotations

import numpy as np
import pytest
from log_helpers import estimate
from scipy import optimize

from dpb_gym import offline
from dpb_gym.offline import LoggedData

N, M, D = 4000, 4, 3


@pytest.fixture(scope="module")
def truth():
    """A log by a conditional logit that prefers a slot, its probabilities, means and a target."""
    rng = np.random.default_rng(1)
    x = rng.normal(size=(N, M, D)).astype(np.float32)
    utility = x.astype(float) @ np.array([0.8, -0.5, 0.0]) + np.array([0.7, 0.0, 0.0, -0.4])
    p = np.exp(utility)
    p /= p.sum(axis=1, keepdims=True)
    actions = np.array([rng.choice(M, p=row) for row in p])
    mean = 1 / (1 + np.exp(-x.astype(float) @ np.array([1.0, 0.5, -1.0])))
    rewards = (rng.random(N) < mean[np.arange(N), actions]).astype(float)
    target = np.eye(M)[mean.argmax(axis=1)]
    return x, actions, rewards, p, mean, target


def test_estimated_propensities_are_close_to_the_true_ones(truth):
    x, actions, rewards, p, _, _ = truth
    log = LoggedData.from_arrays(x, actions, None, rewards, (0, 1))
    assert log.estimated
    assert np.abs(log.behaviour - p).max() < 0.08
    np.testing.assert_array_equal(log.propensities, log.behaviour[np.arange(N), actions])
    np.testing.assert_allclose(log.behaviour.sum(axis=1), 1.0)


def test_the_fit_is_the_penalised_maximum(truth):
    x, actions = truth[0][:300], truth[1][:300]
    propensities = offline.estimated_propensities(x, actions, penalty=2.0, folds=3, seed=5)
    part = np.random.default_rng(5).permutation(300) % 3
    design = np.concatenate([x.astype(float), np.tile(np.eye(M), (300, 1, 1))], axis=2)

    def loss(b, rows):
        utility = design[rows] @ b
        chosen = utility[np.arange(rows.sum()), actions[rows]]
        return np.log(np.exp(utility).sum(axis=1)).sum() - chosen.sum() + b @ b

    for fold in range(3):
        rows = part != fold
        best = optimize.minimize(loss, np.zeros(D + M), rows, tol=1e-12).x
        utility = design[~rows] @ best
        expected = np.exp(utility) / np.exp(utility).sum(axis=1, keepdims=True)
        np.testing.assert_allclose(propensities[~rows], expected, atol=1e-5)


def test_a_round_does_not_enter_its_own_propensity(truth):
    x, actions = truth[0][:200], truth[1][:200].copy()
    before = offline.estimated_propensities(x, actions)
    actions[7] = (actions[7] + 1) % M
    after = offline.estimated_propensities(x, actions)
    np.testing.assert_array_equal(before[7], after[7])
    assert (before != after).any()


def test_estimates_with_estimated_propensities_are_marked(truth, tmp_path):
    x, actions, rewards, p, mean, target = truth
    unknown = LoggedData.from_arrays(x, actions, None, rewards, (0, 1))
    known = LoggedData.from_arrays(x, actions, p[np.arange(N), actions], rewards, (0, 1))
    true = float((target * mean).sum(axis=1).mean())
    estimates = offline.evaluate_offline(target, unknown, resamples=0)
    for name in ("ips", "snips", "dr"):
        assert abs(estimates[name].value - true) < 4 * estimates[name].std_error + 0.01, name
    assert estimates.estimated and "propensities estimated" in str(estimates)
    other = offline.evaluate_offline(target, known, resamples=0)
    assert not other.estimated and "estimated" not in str(other)
    # uniform propensities are worse
    uniform = LoggedData.from_arrays(x, actions, np.full(N, 1 / M), rewards, (0, 1))
    assert abs(estimate("ips", uniform, target) - true) > 0.05
    # files keep the mark
    short = unknown.select(slice(0, 50))
    short.write_csv(tmp_path / "log.csv")
    assert LoggedData.from_columns(tmp_path / "log.csv", (0, 1)).estimated


def test_wrong_propensities_and_few_effective_rounds_are_sentences(truth):
    x, actions, rewards, p, _, target = truth
    shown = p[np.arange(N), actions]
    right = LoggedData.from_arrays(x, actions, shown, rewards, (0, 1))
    assert offline.evaluate_offline(target, right, resamples=0).doubts == ()
    for wrong in (np.clip(1.5 * shown, 0, 1), np.full(N, 1 / M), shown**2):
        log = LoggedData.from_arrays(x, actions, wrong, rewards, (0, 1))
        estimates = offline.evaluate_offline(target, log, resamples=0)
        if abs(np.mean(1 / wrong) - M) < 0.02 * M:  # uniform ones have the right mean
            continue
        assert estimates.doubts[0].startswith("wrong propensities: the mean of 1 / propensity is ")
        assert "and should be 4, the number of candidates" in estimates.doubts[0]
        assert f"doubt: {estimates.doubts[0]}" in str(estimates)
    rare = np.where(np.arange(N) < 5, 0.0005, 0.5)
    log = LoggedData.from_arrays(x[:, :2], actions % 2, rare, rewards, (0, 1))
    estimates = offline.evaluate_offline(np.full((N, 2), 0.5), log, resamples=0)
    assert any(
        d.startswith("few rounds count: the weights have the effect of") for d in estimates.doubts
    )
    assert any("intervals reach beyond the possible rewards, 0 to 1" in d for d in estimates.doubts)


def test_a_slate_log_of_right_propensities_has_no_doubt():
    log = offline.SlateLog.from_problem("DPB/Assortment-v0", 600, n_items=6, capacity=2, dim=3)
    inverse, expected, _ = log.inverse_propensities()
    assert expected == 6 and abs(inverse.mean() - 6) < 0.2
    prices = offline.PriceLog.from_problem("DPB/Pricing-v0", 600)
    inverse, expected, _ = prices.inverse_propensities()
    assert expected == 1.0 and abs(inverse.mean() - 1.0) < 0.1
