"""A window of the one-pass agents: which records it keeps, its budget and its gain."""

from __future__ import annotations

import numpy as np
import pytest

import dpb_gym
from dpb_gym.errors import ParameterError
from dpb_gym.registry import make_agent
from dpb_gym.streams import AgentStreams

ARENAS = {
    "one-pass-mnl": ("DPB/Assortment-v0", {"n_items": 8, "capacity": 3, "dim": 3}),
    "one-pass-pricing": ("DPB/Pricing-v0", {"dim": 3}),
}


def play(name, budget, rounds, **params):
    """Return the agent, its rows and the sums of every update of a short run."""
    env_id, kwargs = ARENAS[name]
    problem = dpb_gym.make_problem(env_id, horizon=rounds, **kwargs)
    agent = make_agent(name, **params)
    agent.set_up(problem.info, AgentStreams([5, 6]), budget)
    instance, rows, learned = problem.instance([5, 6]), [], []
    learn = agent.learn
    agent.learn = lambda estimate, late: (
        learned.append((agent.rounds, estimate, late)),
        learn(estimate, late),
    )
    for t in range(rounds):
        context = instance.context()
        action = agent.act(context)
        agent.observe(context, action, instance.respond(action).feedback)
        rows.append(agent.rows.copy())
        if t < rounds - 1:
            instance.advance()
    return agent, np.array(rows), learned


@pytest.mark.parametrize("name", ARENAS)
def test_theta_depends_on_the_newest_records_only(name):
    _, rows, learned = play(name, None, 200, window=60)
    ends = [rounds for rounds, _, _ in learned]
    assert len(ends) > 20
    for rounds, estimate, _ in learned:
        start = max((end for end in ends if end <= rounds - 60), default=0)
        assert np.allclose(estimate.sums, rows[start:rounds].sum(axis=0), atol=1e-9)
    assert max(e for e in ends if e <= ends[-1] - 60) > 100


@pytest.mark.parametrize("name", ARENAS)
def test_a_private_window_spends_the_same_budget_and_states_its_noise(name):
    whole, _, all_of_it = play(name, "rho=2", 600)
    agent, rows, learned = play(name, "rho=2", 600, window=100)
    assert str(agent.curator.guarantee) == str(whole.curator.guarantee)
    assert [rounds for rounds, *_ in learned] == [rounds for rounds, *_ in all_of_it]
    ends = [rounds for rounds, *_ in learned]
    rounds, estimate, _ = learned[-1]
    old = [end for end in ends if end <= rounds - 100]
    before, k = len(old) - 1, len(ends) - 1
    plan, releases = agent._combinations.weights, agent._history
    weights = plan[k] - plan[before]
    expected = sum(w * r for w, r in zip(weights, releases))
    assert np.allclose(estimate.sums, expected)
    scales = agent._releaser.schedule.scales
    assert estimate.std == pytest.approx(
        agent._releaser.sigma * np.sqrt(((weights / scales) ** 2).sum())
    )
    left = rows[:rounds].sum(axis=0) - rows[: old[-1]].sum(axis=0)
    away = np.abs(estimate.sums - left) / estimate.std
    assert away.max() < 6.0 and away.mean() > 0.2


@pytest.mark.parametrize("name", ARENAS)
@pytest.mark.parametrize("budget", [None, "rho=2"])
def test_a_window_lowers_the_regret_where_theta_changes(name, budget):
    env_id, kwargs = ARENAS[name]
    result = dpb_gym.evaluate(
        env_id,
        agents={"all": (name, budget), "window": (name, budget, {"window": 200})},
        horizon=1500,
        replicates=8,
        env_kwargs={**kwargs, "drift": "abrupt,changes=2,angle=2"},
        progress=False,
    )
    gain = result.final_regret("all") - result.final_regret("window")
    assert gain.mean() > 2.0 * gain.std(ddof=1) / np.sqrt(len(gain)) > 0.0


def test_an_empty_window_is_rejected():
    with pytest.raises(ParameterError, match="window must be"):
        make_agent("one-pass-mnl", window=0)
