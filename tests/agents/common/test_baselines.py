"""`random` is uniform, `oracle` has no regret."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest
from scipy import stats

from dpb_gym import make_agent, make_problem
from dpb_gym.customer_rounds import locked
from dpb_gym.envs.registration import ENVIRONMENTS
from dpb_gym.errors import AgentError
from dpb_gym.streams import AgentStreams, Stream, generator


def random_actions(env_id, seeds, rounds, **env):
    problem = make_problem(env_id, horizon=rounds, **env)
    agent, instance = make_agent("random"), problem.instance(seeds)
    agent.set_up(problem.info, AgentStreams(seeds))
    actions = []
    for t in range(rounds):
        action = agent.act(instance.context())
        instance.respond(action)  # refuses anything out of range
        actions.append(action)
        if t < rounds - 1:
            instance.advance()
    return np.array(actions)


def test_random_slates_are_uniform_subsets():
    slates = random_actions("DPB/Assortment-v0", range(40), 100, n_items=6, capacity=2, dim=2)
    subsets = {pair: k for k, pair in enumerate(combinations(range(6), 2))}
    flat = slates.reshape(-1, 2)
    counts = np.bincount([subsets[tuple(sorted(s))] for s in flat.tolist()], minlength=15)
    assert stats.chisquare(counts).pvalue > 1e-3


def test_random_candidates_are_uniform():
    actions = random_actions("DPB/Recommendation-v0", range(40), 100, n_candidates=7)
    assert stats.chisquare(np.bincount(actions.ravel(), minlength=7)).pvalue > 1e-3


def test_random_prices_are_uniform_and_the_replicate_s_own():
    prices = random_actions("DPB/Pricing-v0", range(40), 100)
    assert stats.kstest(prices.ravel(), "uniform").pvalue > 1e-3
    own = [generator(seed, Stream.AGENT).random(100) for seed in range(40)]
    np.testing.assert_array_equal(prices, np.array(own).T)


def test_random_fills_a_slate_as_large_as_the_assortment():
    slates = random_actions("DPB/Assortment-v0", [0, 1], 5, n_items=4, capacity=4, dim=2)
    assert (np.sort(slates, axis=2) == np.arange(4)).all()


@pytest.mark.parametrize("env_id", ["DPB/Assortment-v0", "DPB/Pricing-v0", "DPB/Recommendation-v0"])
def test_random_bits_do_not_depend_on_the_batch(env_id):
    seeds = [4, 1, 7, 0, 3, 8, 2, 6]
    full = random_actions(env_id, seeds, 60)
    for size in (1, 3):
        for start in range(0, 8, size):
            part = random_actions(env_id, seeds[start : start + size], 60)
            np.testing.assert_array_equal(part, full[:, start : start + size])


VARIANTS = [(env_id, {}) for env_id in ENVIRONMENTS] + [
    ("DPB/Assortment-v0", {"n_items": 12, "capacity": 3, "revenues": "random"}),
    ("DPB/Pricing-v0", {"demand": "gaussian"}),
    ("DPB/Recommendation-v0", {"reward": "gaussian", "fresh": True}),
    ("DPB/MovieLensReplay-v0", {"protocol": "replay", "dim": 6}),
]


@pytest.mark.parametrize(("env_id", "env"), VARIANTS)
def test_oracle_has_no_regret(env_id, env):
    problem = make_problem(env_id, horizon=40, **env)
    seeds = [3, 1, 2]
    agent, instance = make_agent("oracle"), problem.instance(seeds)
    agent.attach(instance)
    agent.set_up(problem.info, AgentStreams(seeds))
    for t in range(40):
        context = locked(instance.context())
        action = agent.act(context)
        outcome = instance.respond(action)
        agent.observe(context, action, outcome.feedback)
        np.testing.assert_allclose(outcome.regret, 0.0, atol=1e-12)
        if t < 39:
            instance.advance()


def test_oracle_needs_the_running_environment():
    problem = make_problem("DPB/Pricing-v0", horizon=10)
    agent = make_agent("oracle")
    with pytest.raises(AgentError, match="must be attached"):
        agent.set_up(problem.info, AgentStreams([0]))
    agent.attach(problem.instance([0, 1]))
    with pytest.raises(AgentError, match="attached to 2 replicates, but begins with 1"):
        agent.set_up(problem.info, AgentStreams([0]))
