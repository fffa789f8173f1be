"""Logs of agents that write into the arrays that they returned."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import dpb_gym
from dpb_gym.envs.registration import make_problem
from dpb_gym.offline.collecting import collect
from dpb_gym.problems.base import Problem
from dpb_gym.streams import AgentStreams

B = 3


class Tilted(dpb_gym.Agent):
    """Chooses by weights that it learns; `reuses`: in one array for actions, one for shares."""

    def __init__(self, reuses: bool) -> None:
        self.reuses = reuses

    def begin(self, problem: Any, streams: Any, curator: Any) -> None:
        m = problem.n_candidates
        self.rngs = streams.agent
        self.weights = np.ones((B, m))
        self.choice, self.shares = np.zeros(B, np.int64), np.zeros((B, m))

    def probabilities(self, context: Any) -> Any:
        shares = self.weights / self.weights.sum(axis=1, keepdims=True)
        self.shares[:] = shares
        return self.shares if self.reuses else shares

    def act(self, context: Any) -> Any:
        shares = np.array(self.probabilities(context))
        m = shares.shape[1]
        action = np.array([rng.choice(m, p=row) for rng, row in zip(self.rngs, shares)])
        self.choice[:] = action
        self.shares[:] = 0.0  # as scratch memory
        return self.choice if self.reuses else action

    def observe(self, context: Any, action: Any, feedback: Any) -> None:
        self.weights[np.arange(B), action] += np.array(feedback.reward)
        if self.reuses:
            action[:] = 0
            feedback.reward[:] = -1.0
            self.shares[:] = 0.25


class Draws(dpb_gym.Agent):
    """Random actions, in a new array or always in the same one."""

    def __init__(self, reuses: bool) -> None:
        self.reuses = reuses

    def begin(self, problem: Any, streams: Any, curator: Any) -> None:
        self.problem, self.rngs = problem, streams.agent
        self.array: Any = None

    def act(self, context: Any) -> Any:
        if self.problem.kind == "pricing":
            action = np.array([rng.random() for rng in self.rngs])
        elif self.problem.kind == "assortment":
            action = np.array(
                [
                    rng.permutation(self.problem.n_items)[: self.problem.capacity]
                    for rng in self.rngs
                ]
            )
        else:
            action = np.array([rng.integers(self.problem.n_candidates) for rng in self.rngs])
        self.array = action if self.array is None or not self.reuses else self.array
        self.array[:] = action
        return self.array

    def observe(self, context: Any, action: Any, feedback: Any) -> None:
        pass


def logs(agent: Any, problem: Problem, **options: Any) -> list[dict[str, Any]]:
    agent.set_up(problem.info, AgentStreams(range(B), "logger"))
    collected = collect(problem, 40, range(B), agent, **options)
    return [
        {name: value for name, value in vars(log).items() if isinstance(value, np.ndarray)}
        for log in collected
    ]


def assert_equal(one: list[dict[str, Any]], other: list[dict[str, Any]]) -> None:
    assert [sorted(log) for log in one] == [sorted(log) for log in other]
    for mine, theirs in zip(one, other):
        for name, value in mine.items():
            np.testing.assert_array_equal(value, theirs[name], err_msg=name)


@pytest.mark.parametrize("delay", [None, 3])
def test_a_learning_agent_may_write_into_its_arrays(delay: int | None) -> None:
    problem = make_problem("DPB/Recommendation-v0", horizon=40, n_candidates=4, delay=delay)
    logged = logs(Tilted(True), problem, learn=True)
    assert len({*logged[0]["actions"].tolist()}) > 1 and logged[0]["rewards"].min() >= 0
    assert_equal(logged, logs(Tilted(False), problem, learn=True))


@pytest.mark.parametrize("kind", ["Recommendation", "Pricing", "Assortment"])
def test_samples_of_a_random_agent_differ_also_in_one_array(kind: str) -> None:
    problem = make_problem(f"DPB/{kind}-v0", horizon=40)
    assert_equal(logs(Draws(True), problem), logs(Draws(False), problem))
