"""What the assortment agents' tests share: a lockstep run and NumPy twins."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from dpb_gym.agent import Agent
from dpb_gym.customer_rounds import locked
from dpb_gym.envs.registration import make_problem
from dpb_gym.privacy import Budget
from dpb_gym.problems.base import Problem
from dpb_gym.registry import make_agent
from dpb_gym.streams import AgentStreams

Array = NDArray[Any]


class Run:
    """One agent on one problem, round by round; keeps actions and choices."""

    def __init__(
        self, agent: Agent, problem: Problem, seeds: list[int], budget: Budget | None = None
    ) -> None:
        self.agent, self.problem = agent, problem
        self.instance = problem.instance(seeds)
        self.streams = AgentStreams(seeds)
        agent.set_up(problem.info, self.streams, budget)
        self.actions: list[Array] = []
        self.choices: list[Array] = []
        self.features: list[Array] = []
        self.regret = np.zeros(len(seeds))

    def play(self, rounds: int) -> Run:
        for _ in range(rounds):
            context = locked(self.instance.context())
            action = self.agent.act(context)
            outcome = self.instance.respond(action)
            self.features.append(context.features.copy())
            self.actions.append(action.copy())
            assert outcome.feedback.choice is not None
            self.choices.append(outcome.feedback.choice.copy())
            self.agent.observe(context, action, outcome.feedback)
            self.regret += outcome.regret
            if context.t < self.problem.horizon:
                self.instance.advance()
        return self


def play(
    name: str,
    seeds: list[int],
    horizon: int = 300,
    budget: Budget | None = None,
    params: dict[str, Any] | None = None,
    stop: int | None = None,
    **env: Any,
) -> Run:
    problem = make_problem("DPB/Assortment-v0", horizon=horizon, **env)
    run = Run(make_agent(name, **(params or {})), problem, seeds, budget)
    return run.play(horizon if stop is None else stop)


def random_regret(seeds: list[int], horizon: int, **env: Any) -> Array:
    """Regret of uniformly random sets of K items, by NumPy's own sampler."""
    problem = make_problem("DPB/Assortment-v0", horizon=horizon, **env)
    instance = problem.instance(seeds)
    rng = np.random.default_rng(0)
    regret = np.zeros(len(seeds))
    N, K = problem.info.n_items, problem.info.capacity
    for t in range(horizon):
        action = np.array([rng.choice(N, K, replace=False) for _ in seeds])
        regret += instance.respond(action).regret
        if t < horizon - 1:
            instance.advance()
    return regret


@pytest.fixture(name="play")
def play_fixture() -> Any:
    return play


@pytest.fixture(name="random_regret")
def random_regret_fixture() -> Any:
    return random_regret
