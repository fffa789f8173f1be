"""Re-solved bid prices: what they are made of, what they cost, and that they pay."""

from __future__ import annotations

import numpy as np
import pytest

import dpb_gym
from dpb_gym import make_problem
from dpb_gym.errors import AgentError, ParameterError
from dpb_gym.privacy import Budget
from dpb_gym.registry import agent_spec, make_agent
from dpb_gym.streams import AgentStreams

SEASONS = {
    "resolving-mnl": (
        "DPB/Assortment-v0",
        {"n_items": 6, "capacity": 3, "dim": 2, "revenues": "random", "stock": 40},
    ),
    "resolving-pricing": ("DPB/Pricing-v0", {"dim": 2, "stock": 90}),
}
WITHOUT = {"resolving-mnl": "one-pass-mnl", "resolving-pricing": "one-pass-pricing"}


def begun(name, budget=None, horizon=600, seeds=(0, 1), **more):
    env_id, kwargs = SEASONS[name]
    problem = make_problem(env_id, horizon=horizon, **{**kwargs, **more})
    agent = make_agent(name)
    agent.set_up(problem.info, AgentStreams(list(seeds)), budget)
    return agent, problem.instance(list(seeds))


def play(agent, season, rounds):
    actions = []
    for t in range(rounds):
        context = season.context()
        actions.append(agent.act(context).copy())
        agent.observe(context, actions[-1], season.respond(actions[-1]).feedback)
        if t < rounds - 1:
            season.advance()
    return np.array(actions)


@pytest.mark.parametrize("name", SEASONS)
def test_prices_are_those_of_what_is_left_at_the_estimate(name, monkeypatch):
    asked = []

    def spy(problem, hidden, rounds, rate, start, steps):
        asked.append((hidden["theta"][0].copy(), rate.copy(), len(rounds.uniform)))
        return np.full(len(rate), 0.1 * len(asked))

    monkeypatch.setattr("dpb_agents.resolving.bid_prices", spy)
    agent, season = begun(name, horizon=100)
    play(agent, season, 45)
    assert [count for *_, count in asked] == [n for n in range(5, 50, 5) for _ in (0, 1)]
    theta, rate, _ = asked[-1]
    np.testing.assert_array_equal(theta, agent.theta[1])
    np.testing.assert_allclose(rate, season.left[1] / (100 - 45))
    np.testing.assert_allclose(agent._bids[1], 1.8)


@pytest.mark.slow
@pytest.mark.parametrize("name", SEASONS)
def test_private_agents_see_noisy_sales_and_spend_the_budget(name):
    agent, season = begun(name, "rho=0.5")
    play(agent, season, 300)
    assert agent.curator.guarantee.notion == "central" and agent.curator.guarantee.unit == "reward"
    assert agent.curator.guarantee.rho == pytest.approx(0.5, rel=1e-6)
    stock = season.problem.info.stock
    sold = np.array(stock) - season.left
    away = np.abs(agent._sales.value - sold)
    assert away.min() > 0.0 and away.max() < 6.0 * agent._sales.noise_std
    assert agent._sales.sensitivity == pytest.approx(np.sqrt(2.0) if len(stock) > 1 else 1.0)


@pytest.mark.parametrize("name", SEASONS)
def test_one_customer_adds_one_sale_at_most(name):
    """A demand that the problem does not exclude must not leave the curator."""
    agent, season = begun(name, "rho=1e12")
    context = season.context()
    action = agent.act(context)
    feedback = season.respond(action).feedback
    if feedback.demand is not None:
        feedback = feedback._replace(demand=np.full(len(feedback.reward), 1e9))
    agent.observe(context, action, feedback)
    assert np.linalg.norm(agent._sales.value, axis=1).max() < 1.0 + 1e-3


@pytest.mark.parametrize("name", SEASONS)
def test_without_stock_it_is_the_one_pass_agent(name):
    env_id, kwargs = SEASONS[name]
    problem, actions = make_problem(env_id, horizon=80, **{**kwargs, "stock": None}), []
    without_level = {"level": 0.0} if problem.kind == "pricing" else {}
    for agent in (make_agent(name), make_agent(WITHOUT[name], **without_level)):
        agent.set_up(problem.info, AgentStreams([3]), None)
        actions.append(play(agent, problem.instance([3]), 80))
    np.testing.assert_array_equal(*actions)


@pytest.mark.parametrize("name", SEASONS)
def test_a_lane_equals_a_replicate_alone(name):
    together = play(*begun(name, seeds=(4, 5, 6), horizon=200), 150)
    np.testing.assert_array_equal(
        together[:, 1], play(*begun(name, seeds=[5], horizon=200), 150)[:, 0]
    )


@pytest.mark.slow
@pytest.mark.parametrize("name", SEASONS)
@pytest.mark.parametrize("budget", [None, "rho=1"])
def test_bid_prices_pay(name, budget):
    env_id, kwargs = SEASONS[name]
    result = dpb_gym.evaluate(
        env_id,
        agents={"with": (name, budget), "without": (WITHOUT[name], budget)},
        horizon=600,
        replicates=6,
        env_kwargs=kwargs,
        progress=False,
    )
    gain = result.final_regret("without") - result.final_regret("with")
    assert gain.mean() > 3.0 * gain.std(ddof=1) / np.sqrt(len(gain)) > 0.0


def test_it_must_know_the_horizon():
    with pytest.raises(AgentError, match="must know horizon"):
        begun("resolving-pricing", unknown_horizon=True)


@pytest.mark.parametrize("name", ["resolving-mnl", "resolving-pricing"])
def test_users_are_protected_only_where_every_sum_limits_them(name):
    assert agent_spec(name).make().protects == ("central", "reward")
    env_id = "DPB/Assortment-v0" if name == "resolving-mnl" else "DPB/Pricing-v0"
    agent = make_agent(name, max_rounds_per_user=2)
    info = make_problem(env_id, horizon=50, stock=9, returning=20).info
    with pytest.raises(ParameterError, match="users are protected"):
        agent.set_up(info, AgentStreams([0]), Budget.zcdp(1.0))
