"""Runs of players, one round at a time and many at once."""

from __future__ import annotations

import numpy as np
import pytest

import dpb_gym
from dpb_gym.agent import Agent
from dpb_gym.customer_rounds import locked
from dpb_gym.problems.folded import FoldedStretch
from dpb_gym.registry import make_agent
from dpb_gym.streams import AgentStreams


class Run:
    """A running agent and its instance.

    Args:
        name: Registered name.
        env_id: Environment.
        kwargs: Its arguments.
        budget: Budget as text, or None.
        seeds: Seeds.
        horizon: Rounds.
        params: Parameters of the agent.

    Attributes:
        agent: The agent.
        instance: The instance.
    """

    def __init__(self, name, env_id, kwargs, budget=None, seeds=(3, 4), horizon=240, **params):
        self.problem = dpb_gym.make_problem(env_id, horizon=horizon, **kwargs)
        self.agent = make_agent(name, **params)
        self.agent.set_up(self.problem.info, AgentStreams(seeds), budget)
        self.instance = self.problem.instance(seeds)
        self.left = horizon

    def singly(self, rounds, change=None):
        """Play rounds one by one; `change` returns context and feedback to observe."""
        actions = []
        for _ in range(rounds):
            context = locked(self.instance.context())
            action = np.array(self.agent.act(context))
            feedback = self.instance.respond(action).feedback
            given = (context, feedback) if change is None else change(context, feedback)
            self.agent.observe(given[0], action, given[1])
            actions.append(action)
            self._advance()
        return np.array(actions)

    def together(self, rounds, most=50):
        """Play many rounds at once."""
        actions = []
        while rounds:
            stretch = self.instance.move(min(rounds, most))
            actions.append(self.agent.play(stretch.view()).copy())
            assert isinstance(stretch, FoldedStretch) == (self.problem.kind != "recommendation")
            rounds -= len(actions[-1])
            self._advance(len(actions[-1]))
        return np.concatenate(actions)

    def _advance(self, rounds=1):
        self.left -= rounds
        if self.left:
            self.instance.advance()

    def saved(self, path):
        """Save the agent and load it."""
        self.agent.save(path)
        self.agent = Agent.load(path)

    @property
    def state(self):
        """Copies of the state's arrays."""
        return [part.copy() for part in self.agent.state]


@pytest.fixture(name="run")
def run_fixture():
    return Run
