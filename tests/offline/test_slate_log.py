"""Slates: expectations by enumeration under each model of the customer, sets, agents."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from log_helpers import estimate, simulated_value, small_slates

from dpb_gym import make_agent, make_problem, offline
from dpb_gym.errors import AgentError, ParameterError
from dpb_gym.offline import SlateLog, SlateProbabilities
from dpb_gym.streams import AgentStreams

M, K = 3, 2
SLATES = list(itertools.product(range(M), repeat=K))


def ranking(salt):
    """A policy of dependent positions: P(first), P(second | first)."""
    rng = np.random.default_rng(salt)
    first = 0.1 + rng.random(M)
    second = 0.1 + rng.random((M, M))
    return first / first.sum(), second / second.sum(axis=1, keepdims=True)


def probabilities(policy, slate):
    first, second = policy
    conditional = np.stack([first, second[slate[0]]])
    marginal = [first[slate[0]], first @ second[:, slate[1]]]
    return SlateProbabilities.of_ranking(
        conditional[None].repeat(2, axis=0), [slate, slate], np.array([marginal, marginal])
    )


BEHAVIOUR, TARGET = ranking(1), ranking(2)
RNG = np.random.default_rng(3)
MODELS = {
    # a position's reward depends on its own item; on those above too; on the whole slate
    "independent": [RNG.random(M) for _ in range(K)],
    "cascade": [RNG.random(M), RNG.random((M, M))],
    "anything": [RNG.random((M, M)), RNG.random((M, M))],
}
Q = RNG.random((K, M, M))  # deliberately wrong, of position k, given the item above


def reward(model, slate):
    means = MODELS[model]
    if model == "independent":
        return [means[k][slate[k]] for k in range(K)]
    if model == "cascade":
        return [means[0][slate[0]], means[1][slate]]
    return [means[k][slate] for k in range(K)]


def value(model, policy):
    first, second = policy
    return sum(first[a] * second[a, b] * sum(reward(model, (a, b))) for a, b in SLATES)


def expectation(name, model):
    """Over every slate that may be logged; two equal rounds make a log, rewards are their means."""
    total = 0.0
    for slate in SLATES:
        rewards = np.array([reward(model, slate)] * 2)
        log = SlateLog.from_arrays(
            np.zeros((2, M, 1)), [slate, slate], probabilities(BEHAVIOUR, slate), rewards, (0, 1)
        )
        model_q = np.stack([Q[0, 0], Q[1, slate[0]]])[None].repeat(2, axis=0)
        chance = BEHAVIOUR[0][slate[0]] * BEHAVIOUR[1][slate]
        total += chance * estimate(name, log, probabilities(TARGET, slate), q=model_q)
    return total


@pytest.mark.parametrize(
    ("name", "unbiased"),
    [
        ("ips", {"independent", "cascade", "anything"}),
        ("interaction-ips", {"independent", "cascade"}),
        ("cascade-dr", {"independent", "cascade"}),
        ("independent-ips", {"independent"}),
    ],
)
def test_unbiased_under_its_own_model_of_the_customer(name, unbiased):
    for model in MODELS:
        gap = abs(expectation(name, model) - value(model, TARGET))
        assert (gap < 1e-12) if model in unbiased else (gap > 1e-3), model


def test_a_right_model_takes_the_variance_away():
    """With the true model every log's cascade estimate equals its expectation."""
    right = np.zeros((2, K, M))
    first, second = MODELS["cascade"]
    to_go = first + (TARGET[1] * second).sum(axis=1)
    for slate in SLATES:
        rewards = np.array([reward("cascade", slate)] * 2)
        log = SlateLog.from_arrays(
            np.zeros((2, M, 1)), [slate, slate], probabilities(BEHAVIOUR, slate), rewards, (0, 1)
        )
        right[:, 0], right[:, 1] = to_go, second[slate[0]]
        estimated = estimate("cascade-dr", log, probabilities(TARGET, slate), q=right)
        assert estimated == pytest.approx(value("cascade", TARGET), abs=1e-12)


def test_sampled_slates_estimate_the_policys_probabilities():
    """The shares of many answers, as probabilities of whole, prefix, position and next item."""
    logged, _, _ = small_slates(n=4)
    logged.pop("conditional")
    log = SlateLog.from_arrays(**logged, reward_range=(0.0, 1.0))
    rng = np.random.default_rng(0)
    given = rng.integers(0, 4, (5000, 4, 3))
    given[:, :, 2] = np.where(rng.random((5000, 4)) < 0.5, given[:, :, 1], given[:, :, 2])
    shares = SlateProbabilities.of_answers(given, log)
    for i, shown in enumerate(log.actions):
        for k in range(3):
            so_far = (given[:, i, : k + 1] == shown[: k + 1]).all(axis=1)
            before = (given[:, i, :k] == shown[:k]).all(axis=1)
            assert shares.prefixes[i, k] == so_far.mean()
            assert shares.marginals[i, k] == (given[:, i, k] == shown[k]).mean()
            expected = np.bincount(given[before, i, k], minlength=4) / before.sum()
            np.testing.assert_allclose(shares.conditional[i, k], expected)
        assert shares.slate[i] == shares.prefixes[i, -1]
    never = SlateProbabilities.of_answers((log.actions[None] + 1) % 4, log)
    assert never.slate.max() == 0.0
    np.testing.assert_allclose(never.conditional.sum(axis=2), 1.0)


def test_sets_ignore_order():
    rng = np.random.default_rng(5)
    n, m, size = 400, 5, 2
    actions = np.array([rng.permutation(m)[:size] for _ in range(n)])
    means = rng.random(m)
    rewards = np.where(rng.random((n, size)) < means[actions], 1.0, 0.0)
    behaviour = SlateProbabilities(np.full(n, 1 / math.comb(m, size)), np.full((n, size), size / m))
    log = SlateLog.from_arrays(
        np.zeros((n, m, 1)), actions, behaviour, rewards, (0, 1), ordered=False
    )
    best = np.tile(np.argsort(means)[-2:], (n, 1))
    both = [offline.evaluate_offline(target, log, resamples=0) for target in (best, best[:, ::-1])]
    assert both[0].to_dict() == both[1].to_dict()
    for name in ("ips", "snips", "independent-ips"):
        e = both[0][name]
        assert abs(e.value - np.sort(means)[-2:].sum()) < 4 * e.std_error
    assert both[0]["independent-ips"].std_error < 0.7 * both[0]["ips"].std_error
    for name in ("interaction-ips", "cascade-dr"):
        with pytest.raises(ParameterError, match="needs the"):
            estimate(name, log, best)


@pytest.mark.slow
def test_logs_of_an_assortment_problem_against_its_truth():
    """A fixed assortment's estimated revenue is near its expected one on new customers."""
    env = {"n_items": 6, "capacity": 2, "dim": 3, "context_norm": "clip"}
    problem = make_problem("DPB/Assortment-v0", horizon=9000, **env)
    log = SlateLog.from_problem(problem, 6000, seed=4)
    assert log.behaviour.slate[0] == pytest.approx(1 / 15)
    assert log.behaviour.marginals[0, 0] == pytest.approx(1 / 3)
    agent = make_agent("random")
    agent.set_up(problem.info, AgentStreams([4]))
    evaluation = offline.evaluate_offline(agent, log, samples=40, resamples=0)
    true, error = simulated_value(agent, problem, 3000, [4], skip=6000, samples=5)
    for name in ("ips", "snips"):
        e = evaluation[name]
        assert abs(e.value - true[0]) < 4 * math.hypot(e.std_error, error[0]), name
    fixed = np.tile([1, 3], (6000, 1))
    evaluation = offline.evaluate_offline(fixed, log, resamples=0)
    instance = problem.instance([4])
    truth = []
    for _ in range(1500):
        truth.append(instance.respond(np.array([[1, 3]])).expected[0])
        instance.advance()
    truth = float(np.mean(truth))
    for name in ("ips", "snips"):
        assert abs(evaluation[name].value - truth) < 4 * evaluation[name].std_error, name
    # under a multinomial logit an item's sales depend on the others: independence is biased
    assert abs(evaluation["independent-ips"].value - truth) < 0.2
    sold = (log.rewards > 0).sum(axis=1)
    assert sold.max() == 1 and 0.05 < sold.mean() < 0.95


def test_an_agent_may_log_sets():
    problem = make_problem("DPB/Assortment-v0", horizon=3000, n_items=5, capacity=2, dim=2)
    policy = lambda context: np.tile([0, 4], (1, 1))  # noqa: E731
    log = SlateLog.from_problem(problem, 3000, seed=1, behaviour=policy, exploration=0.5)
    own = (np.sort(log.actions, axis=1) == [0, 4]).all(axis=1)
    np.testing.assert_allclose(log.behaviour.slate[own], 0.5 + 0.5 / 10)
    np.testing.assert_allclose(log.behaviour.slate[~own], 0.5 / 10)
    assert abs(own.mean() - 0.55) < 4 * math.sqrt(0.25 / 3000)
    held = np.isin(log.actions, [0, 4])
    np.testing.assert_allclose(log.behaviour.marginals, np.where(held, 0.5 + 0.2, 0.2))
    with pytest.raises(AgentError, match="2 different items"):
        SlateLog.from_problem(problem, 10, behaviour=lambda c: np.tile([0, 0], (1, 1)))


def test_the_model_is_the_ridge_solution_of_the_other_half():
    logged, _, _ = small_slates(n=60)
    logged.pop("conditional")
    log = SlateLog.from_arrays(**logged, reward_range=(0.0, 1.0))
    predictions = log.predicted(ridge=0.5, folds=2, seed=3)
    part = np.random.default_rng(3).permutation(60) % 2
    x = log.features[np.arange(60)[:, None], log.actions].astype(float)[:, :, 0]
    to_go = log.rewards[:, 1] + log.rewards[:, 2]
    others = part != part[0]
    X = np.column_stack([x[others, 1], x[others, 0], np.ones(others.sum())])
    theta = np.linalg.solve(X.T @ X + np.diag([0.5, 0.5, 0.0]), X.T @ to_go[others])
    own = log.features[0].astype(float)[:, 0]
    np.testing.assert_allclose(predictions[0, 1], own * theta[0] + x[0, 0] * theta[1] + theta[2])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"actions": [[0, 1], [2, 3]]}, "actions must lie"),
        ({"rewards": [[0, 1], [0, 2]]}, "rewards must lie"),
        ({"behaviour": SlateProbabilities(np.array([0.0, 1.0]))}, "positive"),
        ({"behaviour": SlateProbabilities(np.array([1.5, 1.0]))}, "slate must lie"),
        ({"behaviour": SlateProbabilities(np.ones(2), np.ones((2, 3)))}, "shape"),
        ({"actions": [[0, 0], [1, 2]], "ordered": False}, "no item twice"),
        ({"features": np.zeros((2, 3))}, "shape"),
        ({"behaviour": [0.5, 0.5]}, "behaviour must be SlateProbabilities"),
        ({"ordered": "yes"}, "ordered must be"),
    ],
)
def test_bad_arrays(change, message):
    good = {
        "features": np.zeros((2, 3, 1)),
        "actions": [[0, 1], [2, 1]],
        "behaviour": SlateProbabilities(np.array([0.5, 0.5])),
        "rewards": [[0.0, 1.0], [0.5, 0.0]],
        "reward_range": (0.0, 1.0),
    }
    assert len(SlateLog.from_arrays(**good).select([1, 0])) == 2
    with pytest.raises(ParameterError, match=message):
        SlateLog.from_arrays(**{**good, **change})


def test_whole_slates_by_hand():
    """The estimators that look at whole slates, with sums over positions as rewards."""
    logged, target, _ = small_slates()
    logged.pop("conditional")
    log = SlateLog.from_arrays(**logged, reward_range=(0.0, 1.0))
    w = [t / b for t, b in zip(target.slate, log.behaviour.slate)]
    r = [math.fsum(row) for row in log.rewards]
    weigh = {
        "logged": (lambda v: 1.0, {}),
        "switch-ips": (lambda v: v if v <= 1.1 else 0.0, {"threshold": 1.1}),
        "clipped-ips": (lambda v: min(v, 1.1), {"clip": 1.1}),
        "shrunk-ips": (lambda v: 1.1 * v / (v * v + 1.1), {"shrinkage": 1.1}),
    }
    for name, (of, options) in weigh.items():
        expected = math.fsum(of(v) * reward for v, reward in zip(w, r)) / len(log)
        estimated = estimate(name, log, target, **options)
        assert estimated == pytest.approx(expected, abs=1e-12), name
    chosen = offline.evaluate_offline(target, log, estimators="clipped-ips", resamples=0).settings
    assert chosen["clipped-ips"] in w
