"""A window of the one-pass agents: which records it keeps, its budget and its gain."""

from __future__ import annotations

import numpy as np
import pytest

import dpb_gym
from dpb_agents.assortment import one_pass_mnl as mnl
from dpb_agents.kernels import curvature
from dpb_agents.pricing import one_pass_pricing as pricing
from dpb_gym.customer_rounds import locked
from dpb_gym.errors import ParameterError
from dpb_gym.play import Released
from dpb_gym.registry import make_agent
from dpb_gym.streams import AgentStreams

ARENAS = {
    "one-pass-mnl": ("DPB/Assortment-v0", {"n_items": 8, "capacity": 3, "dim": 3}),
    "one-pass-pricing": ("DPB/Pricing-v0", {"dim": 3}),
}


def play(name, budget, rounds, **params):
    """Return the agent, its rows and the states after every release of a short run."""
    env_id, kwargs = ARENAS[name]
    problem = dpb_gym.make_problem(env_id, horizon=rounds, **kwargs)
    agent = make_agent(name, **params)
    agent.set_up(problem.info, AgentStreams([5, 6]), budget)
    instance, rows, learned = problem.instance([5, 6]), [], []
    record, learn = agent._record, agent._learn

    def recorded(*args):
        values, row, others = record(*args)
        rows.append(row[0].copy())
        return values, row, others

    def learnt(sums, due=None):
        learn(sums, due)
        state = type(agent.state)(*(part.copy() for part in agent.state))
        learned.append((agent.rounds, sums.copy(), state))

    agent._record, agent._learn = recorded, learnt
    for t in range(rounds):
        context = locked(instance.context())
        action = agent.act(context)
        agent.observe(context, action, instance.respond(action).feedback)
        if t < rounds - 1:
            instance.advance()
    return agent, np.array(rows), learned


def estimated(agent, learned, number, b, old):
    """The estimate of release `number` without the first `old` stored ones, and its theta."""
    rounds, sums, state = learned[number]
    own = type(state)(*(part[b].copy() for part in state))
    history = curvature.History(own.sums, own.ends, own.count)
    released = Released(sums[b], agent.plan.sums.sigma, 0.0, number, float(rounds), np.zeros(0))
    estimate = curvature.estimate(agent.known.sums, history, released, old)
    module = mnl if agent.problem.kind == "assortment" else pricing
    module.learn_from(agent.known, own, estimate, *([rounds] if module is mnl else []))
    return estimate, own.theta


@pytest.mark.parametrize("name", ARENAS)
def test_theta_depends_on_the_newest_records_only(name):
    agent, rows, learned = play(name, None, 200, window=60)
    ends = [rounds for rounds, *_ in learned]
    assert len(ends) > 20
    for number, (rounds, _, state) in enumerate(learned):
        old = sum(end <= rounds - 60 for end in ends)
        start = ends[old - 1] if old else 0
        for b in (0, 1):
            (sums, _, _), theta = estimated(agent, learned, number, b, old)
            np.testing.assert_allclose(sums, rows[start:rounds, b].sum(axis=0), atol=1e-9)
            if start >= 0.1 * rounds:  # earlier records are no more left out than they are
                np.testing.assert_array_equal(state.theta[b], theta)
    assert max(e for e in ends if e <= ends[-1] - 60) > 100


@pytest.mark.parametrize("name", ARENAS)
def test_a_private_window_spends_the_same_budget_and_states_its_noise(name):
    whole, _, all_of_it = play(name, "rho=2", 600)
    agent, rows, learned = play(name, "rho=2", 600, window=100)
    assert str(agent.curator.guarantee) == str(whole.curator.guarantee)
    assert [rounds for rounds, *_ in learned] == [rounds for rounds, *_ in all_of_it]
    ends = [rounds for rounds, *_ in learned]
    rounds, _, state = learned[-1]
    old = [end for end in ends if end <= rounds - 100]
    before, k = len(old) - 1, len(ends) - 1
    schedule, sigma = agent.plan.sums.schedule, agent.plan.sums.sigma
    plan = agent.known.sums.weights
    weights = plan[k] - plan[before]
    for b in (0, 1):
        (sums, std, _), theta = estimated(agent, learned, k, b, len(old))
        releases = np.array([released[b] for _, released, _ in learned])
        np.testing.assert_allclose(sums, weights @ releases, atol=1e-9)
        assert std == pytest.approx(sigma * np.sqrt(((weights / schedule.scales) ** 2).sum()))
        np.testing.assert_array_equal(state.theta[b], theta)
        left = rows[:rounds, b].sum(axis=0) - rows[: old[-1], b].sum(axis=0)
        away = np.abs(sums - left) / std
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
