"""Small tasks, agents that misbehave on request, and a suite to store."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from dpb_gym.agent import Agent
from dpb_gym.registry import AgentSpec
from dpb_gym.running.execution import run_plan
from dpb_gym.running.plan import plan_suite
from dpb_gym.suites.spec import AgentRun
from dpb_gym.suites.suite import Suite, parse_suite

SUITE = """
name: tiny-v0
title: Tiny suite
replicates: 5
block: 2
checkpoints: 4
budgets:
  default: ["eps=1,delta=1e-5", "eps=5,delta=1e-5"]
tasks:
  - name: offers
    env: DPB/Assortment-v0
    env_kwargs: {n_items: 6, capacity: 2, dim: 2}
    horizon: 40
    normalisation: {random: 10.0, oracle: 30.0}
  - name: items
    env: DPB/Recommendation-v0
    env_kwargs: {dim: 3, n_arms: 12}
    horizon: 60
agents:
  - random
  - {name: oracle, label: Oracle}
  - {name: adaprivate-ts, label: Private, params: {batch: 20}}
"""


@pytest.fixture(scope="session")
def suite() -> Suite:
    return parse_suite(SUITE, "test suite")


@pytest.fixture(scope="session")
def finished(suite: Suite, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("finished") / "out"
    run_plan(suite, plan_suite(suite), folder, workers=1)
    return folder


@pytest.fixture
def out(finished: Path, tmp_path: Path) -> Path:
    """A copy of the suite's results that may be changed."""
    return shutil.copytree(finished, tmp_path / "out")


class Fixed(Agent):
    """Agent that plays a fixed action and fails at a chosen stage."""

    def __init__(
        self, action: Any = None, fail_at: str = "", round: int = 3, error: Any = None
    ) -> None:
        self.action, self.fail_at, self.round = action, fail_at, round
        self.error = RuntimeError("told to fail") if error is None else error

    def begin(self, problem: Any, streams: Any, curator: Any) -> None:
        self.replicates = streams.replicates
        self.problem = problem
        if self.fail_at == "begin":
            raise self.error

    def act(self, context: Any) -> Any:
        if self.fail_at == "act" and context.t == self.round:
            raise self.error
        if self.fail_at == "write":
            context.features[...] = 0.0
        if self.action is not None and context.t == self.round:
            return self.action(self.replicates)
        shape = (self.replicates,)
        if self.problem.kind == "pricing":
            return np.full(shape, 0.5)
        if self.problem.kind == "assortment":
            return np.tile(np.arange(self.problem.capacity), (self.replicates, 1))
        return np.zeros(shape, np.int64)

    def observe(self, context: Any, action: Any, feedback: Any) -> None:
        if self.fail_at == "observe" and context.t == self.round:
            raise self.error


@pytest.fixture
def fixed_entry() -> Callable[..., AgentRun]:
    """A run of `Fixed` with parameters."""

    def make(label: str = "Fixed", **params: Any) -> AgentRun:
        kinds = ("assortment", "pricing", "recommendation")
        spec = AgentSpec("fixed", "tests:Fixed", kinds, params=params, maker=Fixed)
        return AgentRun(spec=spec, label=label)

    return make
