"""Run an agent in lockstep; releasers that record or replay releases."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

from dpb_gym import make_agent, make_problem
from dpb_gym.agent import Agent
from dpb_gym.customer_rounds import locked
from dpb_gym.privacy import Budget
from dpb_gym.streams import AgentStreams


def play(
    agent,
    seeds,
    horizon,
    budget: Budget | None = None,
    params=None,
    env_id="DPB/Recommendation-v0",
    prepare=None,
    tamper=None,
    **env,
):
    """Play an agent (or registered name); the first axis of the result is the round.

    Args:
        prepare: Called with the agent after `begin`.
        tamper: ``tamper(t, reward)`` replaces the rewards that the agent observes.
    """
    problem = make_problem(env_id, horizon=horizon, **env)
    agent = agent if isinstance(agent, Agent) else make_agent(agent, **(params or {}))
    instance = problem.instance(seeds)
    agent.set_up(problem.info, AgentStreams(seeds), budget)
    if prepare is not None:
        prepare(agent)
    features, actions, rewards, observed, regret = [], [], [], [], []
    for t in range(horizon):
        context = locked(instance.context())
        action = agent.act(context)
        outcome = instance.respond(action)
        feedback = outcome.feedback
        if tamper is not None:
            feedback = feedback._replace(reward=tamper(t, feedback.reward))
        agent.observe(context, action, feedback)
        features.append(context.features.copy())
        actions.append(action.copy())
        rewards.append(feedback.reward.copy())
        seen = feedback.observed
        observed.append(np.ones(len(seeds), bool) if seen is None else seen.copy())
        regret.append(outcome.regret)
        if t < horizon - 1:
            instance.advance()
    return SimpleNamespace(
        agent=agent,
        problem=problem,
        features=np.array(features),
        actions=np.array(actions),
        rewards=np.array(rewards),
        observed=np.array(observed),
        regret=np.array(regret).sum(axis=0),
    )


class Recorder:
    """Forward calls to a releaser and store its releases, records and their directions."""

    def __init__(self, releaser):
        self.inner = releaser
        self.releases, self.records, self.directions = [], [], []

    def __getattr__(self, name):
        return getattr(self.inner, name)

    def add(self, records, along):
        self.records.append(records.copy())
        self.directions.append(along.copy())
        self.inner.add(records, along)

    def release(self):
        self.releases.append(self.inner.release())
        return self.releases[-1].copy()


class Playback:
    """Ignore the records and return earlier releases."""

    def __init__(self, releaser, releases):
        self.inner = releaser
        self.releases = list(releases)

    def __getattr__(self, name):
        return getattr(self.inner, name)

    def add(self, records, along):
        pass

    def release(self):
        return self.releases.pop(0).copy()


@pytest.fixture(name="play")
def play_fixture():
    return play


@pytest.fixture(name="recorder")
def recorder_fixture():
    return Recorder


@pytest.fixture(name="playback")
def playback_fixture():
    return Playback
