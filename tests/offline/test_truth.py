"""Estimates against known truth: errors within standard errors, intervals that cover."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest
from log_helpers import simulated_value, small_log

import dpb_gym
from dpb_gym import offline
from dpb_gym.errors import AgentError, ParameterError, UnknownNameError
from dpb_gym.offline import LoggedData

ROUNDS = 4000
ENVIRONMENT = "DPB/Recommendation-v0"


def scores(features):
    """Utilities of a fixed linear policy."""
    return features.astype(float).sum(axis=-1)


def softmax(values, scale):
    shares = np.exp(scale * (values - values.max(axis=-1, keepdims=True)))
    return shares / shares.sum(axis=-1, keepdims=True)


@pytest.fixture(scope="module")
def log():
    return LoggedData.from_problem(ENVIRONMENT, ROUNDS, seed=11, dim=6)


@pytest.fixture(scope="module")
def uneven_log():
    """Logged by a soft linear policy: propensities from .03 to .9."""
    return LoggedData.from_problem(
        ENVIRONMENT,
        ROUNDS,
        seed=12,
        behaviour=lambda context: 0.85 * softmax(-scores(context.features), 1.0) + 0.03,
        dim=6,
    )


@pytest.mark.slow
@pytest.mark.parametrize("which", ["log", "uneven_log"])
@pytest.mark.parametrize("scale", [0.0, 1.0, 1e6])
def test_estimates_lie_within_four_standard_errors(which, scale, request):
    log = request.getfixturevalue(which)
    target = softmax(scores(log.features), scale)
    evaluation = offline.evaluate_offline(target, log, resamples=100, seed=3)
    true = float((target * log.expected).sum(axis=1).mean())
    assert evaluation.true_value == pytest.approx(true)
    assert abs(evaluation.mean_weight - 1) < 0.3
    for name in ("ips", "snips", "dr", "switch-dr"):
        e = evaluation[name]
        # The standard error is at least the Bernoulli rewards' own.
        assert 0.3 / math.sqrt(ROUNDS) < e.std_error < 0.1
        assert abs(e.value - true) < 4 * e.std_error, name
    # The model has the right features here, so it is nearly right.
    assert abs(evaluation["dm"].value - true) < 0.03
    assert evaluation["dr"].std_error <= evaluation["ips"].std_error * 1.01


@pytest.mark.slow
def test_a_trained_agent_against_fresh_rounds():
    train = LoggedData.from_problem(ENVIRONMENT, 3000, seed=5, dim=6)
    later = LoggedData.from_problem(ENVIRONMENT, ROUNDS, seed=5, skip=3000, dim=6)
    agent = offline.train_offline(
        "one-pass-linear", train, dpb_gym.Budget.approx(5, 1e-5), seeds=[5]
    )
    # the estimates are linear in the shares, which 40 choices a round estimate without bias
    evaluation = dpb_gym.evaluate_offline(agent, later, samples=40, resamples=100)
    true, error = simulated_value(agent, ENVIRONMENT, 4000, [5], skip=7000, dim=6)
    assert error[0] < 0.004
    assert true[0] > later.expected.mean() + 0.05, "it has learned"
    for name in ("ips", "snips", "dr", "switch-dr"):
        gap = abs(evaluation[name].value - true[0])
        assert gap < 4 * math.hypot(evaluation[name].std_error, error[0]), name
    assert evaluation.guarantee == agent.curator.guarantee
    assert "eps=5" in str(evaluation) and "not private" in str(evaluation)
    json.dumps(evaluation.to_dict())


@pytest.mark.slow
def test_standard_errors_and_intervals_over_many_logs():
    """100 logs of one problem: z-scores have variance one, intervals cover."""
    rng = np.random.default_rng(7)
    n, m, logs = 200, 3, 100
    mean = rng.random((n, m))
    behaviour = 0.5 * rng.dirichlet(np.ones(m), n) + 0.5 / m
    target = rng.dirichlet(np.ones(m), n)
    q = np.clip(mean + rng.normal(0, 0.2, mean.shape), 0, 1)
    true = float((target * mean).sum(axis=1).mean())
    z, covered = [], []
    for s in range(logs):
        actions = np.array([rng.choice(m, p=row) for row in behaviour])
        shown = np.arange(n), actions
        rewards = (rng.random(n) < mean[shown]).astype(float)
        one = LoggedData.from_arrays(
            np.zeros((n, m, 1)), actions, behaviour[shown], rewards, (0, 1)
        )
        evaluation = offline.evaluate_offline(
            target, one, q=q, estimators=("ips", "snips", "dr"), resamples=100, level=0.9, seed=s
        )
        z.append([(e.value - true) / e.std_error for e in evaluation.estimates])
        covered.append(
            [
                [low <= true <= high for low, high in (e.normal, e.percentile)]
                for e in evaluation.estimates
            ]
        )
    z = np.array(z)
    # Rounds here have different means by design, so standard errors are conservative.
    assert (np.abs(z.mean(axis=0)) < 4 / math.sqrt(logs)).all()
    assert (z.std(axis=0) < 1.2).all() and (z.std(axis=0) > 0.6).all()
    share = np.mean(covered, axis=0)
    # 90% intervals; four standard errors of a share of 100.
    assert (share > 0.9 - 4 * math.sqrt(0.09 / logs)).all()
    assert share.min() < 1.0


def test_linearised_error_of_the_ratio_agrees_with_the_bootstrap(uneven_log):
    target = softmax(scores(uneven_log.features), 1.0)
    evaluation = offline.evaluate_offline(
        target, uneven_log, estimators=("ips", "snips", "dr"), level=0.6827, resamples=400
    )
    for e in evaluation.estimates:
        spread = 0.5 * (e.percentile[1] - e.percentile[0])
        assert spread == pytest.approx(e.std_error, rel=0.2)
        assert e.normal[1] - e.value == pytest.approx(e.std_error, rel=1e-3)


def test_the_same_seed_gives_the_same_intervals():
    log, target, _ = small_log()
    first, again = (offline.evaluate_offline(target, log, seed=1) for _ in range(2))
    assert first.to_dict() == again.to_dict()
    assert (
        offline.evaluate_offline(target, log, seed=2)["ips"].percentile != first["ips"].percentile
    )
    none = offline.evaluate_offline(target, log, resamples=0)
    assert math.isnan(none["ips"].percentile[0]) and none["ips"].normal == first["ips"].normal


def test_cross_fitted_model_is_the_ridge_solution_of_the_other_half(log):
    q = log.predicted(ridge=2.0, folds=2, seed=4)
    part = np.random.default_rng(4).permutation(len(log)) % 2
    shown = log.features[np.arange(len(log)), log.actions].astype(float)
    for fold in (0, 1):
        here = part == fold
        # The intercept is not penalised: append a constant with penalty zero.
        X = np.column_stack([shown[~here], np.ones((~here).sum())])
        penalty = np.diag([2.0] * 6 + [0.0])
        theta = np.linalg.solve(X.T @ X + penalty, X.T @ log.rewards[~here])
        expected = log.features[here].astype(float) @ theta[:6] + theta[6]
        np.testing.assert_allclose(q[here], np.clip(expected, 0, 1), atol=1e-9)
    # A round's own reward does not enter its own prediction.
    changed = log.rewards.copy()
    changed[0] = 1.0 - changed[0]
    other = LoggedData.from_arrays(
        log.features, log.actions, log.propensities, changed, log.reward_range
    )
    again = other.predicted(ridge=2.0, folds=2, seed=4)
    np.testing.assert_array_equal(again[0], q[0])
    assert (again[part != part[0]] != q[part != part[0]]).all()


@pytest.mark.parametrize(
    "kwargs",
    [
        {"estimators": ()},
        {"estimators": "mean"},
        {"level": 1.0},
        {"resamples": -1},
        {"folds": 1},
        {"ridge": 0.0},
        {"seed": -1},
    ],
)
def test_bad_arguments(kwargs):
    log, target, _ = small_log()
    with pytest.raises(ParameterError):
        offline.evaluate_offline(target, log, **kwargs)


def test_bad_targets():
    log, target, _ = small_log()
    with pytest.raises(ParameterError, match="train_offline"):
        offline.evaluate_offline("lin-ucb", log)
    with pytest.raises(ParameterError, match="log such as"):
        offline.evaluate_offline(target, target)
    with pytest.raises(AgentError, match="not begun"):
        offline.evaluate_offline(dpb_gym.make_agent("lin-ucb"), log)
    with pytest.raises(UnknownNameError, match="ips"):
        offline.evaluate_offline(target, log, estimators="ips")["dr"]
