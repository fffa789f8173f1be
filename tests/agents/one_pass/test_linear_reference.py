"""one-pass-linear and its joint form are the plain NumPy of tests/agents, round for round."""

from __future__ import annotations

import runpy
from pathlib import Path

import numpy as np
import pytest

import dpb_gym
from dpb_gym.privacy import Budget
from dpb_gym.registry import make_agent
from dpb_gym.streams import AgentStreams

REFERENCE = Path(__file__).parents[1] / "reference_one_pass_linear.py"
play = runpy.run_path(str(REFERENCE))["play"]


@pytest.mark.parametrize("rho", [0.05, 2.0, 200.0])
@pytest.mark.parametrize("name", ["one-pass-linear", "one-pass-linear-joint"])
@pytest.mark.parametrize("arms", [False, True])
def test_the_agent_is_its_reference(name, rho, arms):
    rounds, seeds = 1500, [3]
    env, sizes = "DPB/Recommendation-v0", {"dim": 4, "n_arms": 20}
    if arms:
        env, sizes = "DPB/MultiArmed-v0", {"n_arms": 5}
    problem = dpb_gym.make_problem(env, horizon=rounds, **sizes)
    agent = make_agent(name)
    agent.set_up(problem.info, AgentStreams(seeds), Budget.zcdp(rho))
    releaser = agent.releaser
    normals, draw = [], releaser._noise.gaussian

    def recorded(std, width):
        noise = draw(std, width)
        normals.append(noise[0] / std)
        return noise

    releaser._noise.gaussian = recorded
    instance = problem.instance(seeds)
    contexts, rewards, actions = [], [], []
    for t in range(rounds):
        context = instance.context()
        action = agent.act(context)
        feedback = instance.respond(action).feedback
        agent.observe(context, action, feedback)
        contexts.append(context.features[0].astype(float))
        rewards.append(float(feedback.reward[0]))
        actions.append(int(action[0]))
        if t < rounds - 1:
            instance.advance()

    def answer(t, arm):
        # once the reference chooses otherwise, its rewards would be others
        assert arm == actions[t]
        return rewards[t]

    found, theta = play(
        name.endswith("joint"), np.array(contexts), answer, normals.__getitem__, releaser.sigma
    )
    np.testing.assert_array_equal(found, actions)
    np.testing.assert_allclose(agent.theta[0], theta, rtol=1e-5, atol=1e-8)
    assert len(normals) > 20 and theta.any()
