"""Agents that write into the arrays that they return and get change no other number."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import dpb_gym
from dpb_gym.audits import audit
from dpb_gym.privacy import Budget


class Writer(dpb_gym.Agent):
    """Random actions; `writes`: in one array, which `observe` overwrites with all that it gets."""

    def __init__(self, writes: bool) -> None:
        self.writes = writes

    def begin(self, problem: Any, streams: Any, curator: Any) -> None:
        self.problem, self.rngs = problem, streams.agent
        self.array: Any = None

    def act(self, context: Any) -> Any:
        info = self.problem
        if info.kind == "pricing":
            action = np.array([rng.random() for rng in self.rngs])
        elif info.kind == "assortment":
            action = np.array([rng.permutation(info.n_items)[: info.capacity] for rng in self.rngs])
        else:
            action = np.array([rng.integers(info.n_candidates) for rng in self.rngs])
        self.array = action if self.array is None or not self.writes else self.array
        self.array[:] = action
        return self.array

    def observe(self, context: Any, action: Any, feedback: Any) -> None:
        if self.writes:
            action[:] = 0
            for part in feedback:
                if isinstance(part, np.ndarray):
                    part[:] = 0


@pytest.mark.parametrize(
    "env_id", ["DPB/Recommendation-v0", "DPB/Pricing-v0", "DPB/Assortment-v0", "DPB/MultiArmed-v0"]
)
@pytest.mark.parametrize("condition", [{}, {"delay": 3}])
def test_numbers_of_a_writer_and_of_others(env_id: str, condition: dict[str, Any]) -> None:
    records = []
    for writes in (True, False):
        result = dpb_gym.evaluate(
            env_id,
            {"same": lambda writes=writes: Writer(writes), "random": "random"},
            horizon=40, replicates=3, progress=False, env_kwargs=condition,
        )  # fmt: skip
        records.append([result.records()])
    assert records[0] == records[1]


class Private(dpb_gym.Agent):
    """Greedy on a private sum, whose actions are in one array that `observe` overwrites."""

    protects = ("central", "reward")

    def __init__(self, writes: bool) -> None:
        self.writes = writes

    def begin(self, problem: Any, streams: Any, curator: Any) -> None:
        self.sums = curator.running_sum(problem.dim, reward=(0.0, 1.0))
        self.array = np.zeros(streams.replicates, np.int64)

    def act(self, context: Any) -> Any:
        chosen = (context.features * self.sums.value[:, None]).sum(axis=2).argmax(axis=1)
        self.array[:] = chosen
        return self.array if self.writes else chosen

    def observe(self, context: Any, action: Any, feedback: Any) -> None:
        rows = np.arange(len(action))
        self.sums.add(feedback.reward, along=context.features[rows, action])
        if self.writes:
            self.array[:] = -1


@pytest.mark.slow
@pytest.mark.parametrize("delay", [None, 2])
def test_an_audit_of_a_writer(delay: int | None) -> None:
    reports = [
        audit(
            lambda writes=writes: Private(writes), Budget.zcdp(0.5), 100, horizon=16,
            env_id="DPB/Recommendation-v0",
            env_kwargs={"dim": 2, "n_arms": 12, "n_candidates": 3, "delay": delay},
        ).to_dict()
        for writes in (True, False)
    ]  # fmt: skip
    assert reports[0]["verdict"] == "PASS"
    assert reports[0] == reports[1]
