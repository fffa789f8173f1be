"""A lockstep run that keeps its records."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

from dpb_gym import make_agent, make_problem
from dpb_gym.agent import Agent
from dpb_gym.customer_rounds import locked
from dpb_gym.streams import AgentStreams


def play(agent, seeds, horizon, params=None, **env):
    """Plays one agent (or registered name); arrays of the result lead with the round."""
    problem = make_problem("DPB/Pricing-v0", horizon=horizon, **env)
    agent = agent if isinstance(agent, Agent) else make_agent(agent, **(params or {}))
    instance = problem.instance(seeds)
    agent.set_up(problem.info, AgentStreams(seeds))
    features, prices, demand, regret = [], [], [], []
    for t in range(horizon):
        context = locked(instance.context())
        action = agent.act(context)
        outcome = instance.respond(action)
        agent.observe(context, action, outcome.feedback)
        features.append(context.features.copy())
        prices.append(action.copy())
        demand.append(outcome.feedback.demand.copy())
        regret.append(outcome.regret)
        if t < horizon - 1:
            instance.advance()
    return SimpleNamespace(
        agent=agent,
        problem=problem,
        features=np.array(features),
        prices=np.array(prices),
        demand=np.array(demand),
        regret=np.array(regret).sum(axis=0),
    )


@pytest.fixture(name="play")
def play_fixture():
    return play
