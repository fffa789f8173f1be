from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import pytest

from dpb_gym import make_problem
from dpb_gym.streams import AgentStreams


@pytest.fixture(autouse=True, scope="session")
def one_torch_thread() -> Iterator[None]:
    """Networks of a few neurons gain nothing from threads."""
    torch = pytest.importorskip("torch", reason="needs the [sb3] extra")
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


Play = Callable[..., tuple[np.ndarray, np.ndarray]]


@pytest.fixture(scope="session")
def play() -> Play:
    """Run an agent in lockstep and return its actions and regrets, round by round."""

    def run(
        agent: Any, env_id: str, seeds: Sequence[int], horizon: int, **kwargs: Any
    ) -> tuple[np.ndarray, np.ndarray]:
        problem = make_problem(env_id, horizon=horizon, **kwargs)
        instance = problem.instance(seeds)
        agent.set_up(problem.info, AgentStreams(seeds))
        actions, regrets = [], []
        for t in range(horizon):
            if t:
                instance.advance()
            context = instance.context()
            action = agent.act(context)
            outcome = instance.respond(action)
            agent.observe(context, action, outcome.feedback)
            actions.append(action)
            regrets.append(outcome.regret)
        return np.array(actions), np.array(regrets)

    return run
