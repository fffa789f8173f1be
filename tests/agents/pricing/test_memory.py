"""Memory of the pricing agents does not grow with the horizon, where that is possible."""

from __future__ import annotations

import pickle

import numpy as np
import pytest

from dpb_agents.pricing import demand_records
from dpb_gym import make_agent, make_problem
from dpb_gym.customer_rounds import locked
from dpb_gym.privacy import Budget
from dpb_gym.streams import AgentStreams

FLAT = [
    ("greedy-pricing", None),
    ("glm-ucb-pricing", None),
    ("ts-pricing", None),
    ("cils-pricing", None),
    ("mle-cycle-pricing", None),
    ("explore-commit-pricing", None),
    ("fixed-price", None),
    ("one-pass-pricing", None),
    ("one-pass-pricing", Budget.zcdp(1.0)),
]


def sizes(name, budget, horizon, at, params=None):
    """Bytes of the agent's whole state after each of the rounds `at`."""
    problem = make_problem("DPB/Pricing-v0", horizon=horizon)
    agent = make_agent(name, **(params or {}))
    instance = problem.instance(range(4))
    agent.set_up(problem.info, AgentStreams(range(4)), budget)
    lengths = []
    for t in range(1, horizon + 1):
        context = locked(instance.context())
        price = agent.act(context)
        agent.observe(context, price, instance.respond(price).feedback)
        if t in at:
            lengths.append(len(pickle.dumps(agent)))
        if t < horizon:
            instance.advance()
    return lengths


@pytest.mark.parametrize(("name", "budget"), FLAT, ids=lambda value: str(value))
def test_state_does_not_grow(monkeypatch, name, budget):
    monkeypatch.setattr(demand_records, "CAPACITY", 128)
    early, late = sizes(name, budget, 2400, (600, 2400))
    # one-pass keeps its releases, whose number grows like log t
    allowed = 60 * 4 * 9 * 8 if name == "one-pass-pricing" else 1000
    assert late - early <= allowed


def test_private_records_are_those_of_the_docs():
    params = {"max_updates": 2, "growth": 1e6, "every": 1}
    early, late = sizes("private-pricing", Budget.zcdp(1.0), 4096, (1024, 2048), params)
    assert late - early == pytest.approx(4 * 1024 * (4 * 3 + 1), rel=0.01)
    params = {"max_updates": 2, "growth": 1.5, "every": 1}
    problem = make_problem("DPB/Pricing-v0", horizon=3000)
    agent = make_agent("private-pricing", **params)
    instance = problem.instance([0, 1])
    agent.set_up(problem.info, AgentStreams([0, 1]), Budget.zcdp(50.0))
    for t in range(3000):
        context = locked(instance.context())
        price = agent.act(context)
        agent.observe(context, price, instance.respond(price).feedback)
        if t < 2999:
            instance.advance()
    assert (agent.updates == 2).all()
    kept = agent._releasers.estimator.records
    assert kept.price.nbytes == kept.features.nbytes == kept.demand.nbytes == 0
    kept.add(np.zeros((2, 2), np.float32), np.zeros(2), np.zeros(2))  # counted, not kept
    assert kept.price.nbytes == 0
