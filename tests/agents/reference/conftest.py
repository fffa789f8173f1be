"""A lockstep of a fast agent and its reference: same streams, noise, customers and responses."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import dpb_gym
from dpb_gym.agent import BatchedSingle
from dpb_gym.customer_rounds import locked
from dpb_gym.privacy import Budget
from dpb_gym.registry import make_agent
from dpb_gym.streams import AgentStreams


def lockstep(name, env_id, budget, seeds, rounds, params=None, scale=1.0, *, oracle, **env):
    """Yield (context, fast agent, reference's copies, actions of both) after every round.

    The reference is the class `oracle`. It has the same streams and noise as the agent.

    Both see the response to the fast agent's action, so that one round's rounding error does not
    grow over the next ones. Features are multiplied by `scale`.
    """
    problem = dpb_gym.make_problem(env_id, horizon=rounds, **env)
    params = params or {}
    fast = make_agent(name, **params)
    reference = BatchedSingle(oracle, params)
    reference.protects = oracle.protects
    for agent in (fast, reference):
        agent.set_up(problem.info, AgentStreams(seeds), budget and Budget.parse(budget))
    known, expected = fast.curator.guarantee, reference.curator.guarantee
    if oracle is not None and expected is not None and expected.basis.startswith("declared"):
        # the library vouches for no releaser of a test
        expected = replace(expected, basis=known.basis)
    assert known == expected
    instance = problem.instance(seeds)
    for t in range(rounds):
        context = locked(instance.context())
        context = context._replace(features=np.float32(scale) * context.features)
        actions = np.array(fast.act(context)), np.array(reference.act(context))
        feedback = instance.respond(actions[0]).feedback
        fast.observe(context, actions[0], feedback)
        reference.observe(context, actions[0], feedback)
        yield context, fast, reference.copies, actions
        if t < rounds - 1:
            instance.advance()


@pytest.fixture(name="lockstep")
def lockstep_fixture():
    return lockstep
