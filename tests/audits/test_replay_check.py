"""The check of private agents before their rows are shown."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import dpb_gym
from dpb_gym.audits import replay_check
from dpb_gym.audits.replay_check import check_agent
from dpb_gym.errors import AgentError, BudgetError
from dpb_gym.registry import spec_of
from dpb_gym.suites.spec import AgentRun, Task


class Sums(dpb_gym.SingleAgent):
    """Greedy on a private sum of rewards times features, with the mistakes that are asked for."""

    protects: Any = ("central", "reward")

    def __init__(
        self, raw: str = "", feed_from: int = 1, read_from: int = 1, span: Any = (0.0, 1.0),
        clip: float = 1.0, own_random: bool = False, least_horizon: int = 0,
    ) -> None:  # fmt: skip
        self.raw = raw
        self.feed_from = feed_from
        self.read_from = read_from
        self.span = span
        self.clip = clip
        self.own_random = own_random
        self.least_horizon = least_horizon

    def begin(self) -> None:
        if (self.problem.horizon or 0) < self.least_horizon:
            raise ValueError("too few rounds")
        self.sums = self.curator.running_sum(self.problem.dim, reward=self.span)
        self.state = np.zeros(self.problem.dim)

    def act(self, context: Any) -> int:
        theta = self.sums.value if context.t >= self.read_from else 0.0
        theta = theta + (self.state if self.raw else 0.0)
        if self.own_random:
            theta = theta + np.random.default_rng().normal(size=len(self.state))
        return int((context.features @ np.broadcast_to(theta, self.state.shape)).argmax())

    def observe(self, context: Any, action: Any, feedback: Any) -> None:
        x = context.features[action]
        if self.raw == "rewards":
            self.state = self.state + feedback.reward * x
        if self.raw == "contexts":
            self.state = self.state + x
        if context.t >= self.feed_from:
            self.sums.add(min(feedback.reward, self.clip), along=x)


class Batches(dpb_gym.SingleAgent):
    """One batch of a size, released when it is full."""

    protects: Any = ("central", "reward")

    def __init__(self, size: int) -> None:
        self.size = size

    def begin(self) -> None:
        self.sums = self.curator.batch_sum(self.problem.dim, reward=(0.0, 1.0))
        self.theta = np.zeros(self.problem.dim)

    def act(self, context: Any) -> int:
        return int((context.features @ self.theta).argmax())

    def observe(self, context: Any, action: Any, feedback: Any) -> None:
        self.sums.add(feedback.reward, along=context.features[action])
        if self.sums.rounds % self.size == 0:
            self.theta = self.sums.release()


def check(agent: Any, horizon: int = 60, said: list[str] | None = None, **params: Any) -> None:
    task = Task(
        name="x", env="DPB/Recommendation-v0", env_kwargs={"dim": 3, "n_arms": 12}, horizon=horizon
    )
    spec = spec_of(agent, "recommendation").over(params)
    run = AgentRun(spec=spec, budget="rho=0.5")
    check_agent(run, task, say=None if said is None else said.append)


class Joint(Sums):
    protects = ("joint", "user-round")


def test_an_honest_agent_passes() -> None:
    said: list[str] = []
    check(Sums, said=said)
    check(Joint)
    assert said[0] == "sums (rho=0.5): 60 rounds" and "raw data: run 2 of" in " ".join(said)


@pytest.mark.parametrize(
    ("agent", "raw"), [(Sums, "rewards"), (Joint, "rewards"), (Joint, "contexts")]
)
def test_raw_data_in_a_decision_are_named(agent: Any, raw: str) -> None:
    with pytest.raises(AgentError, match="reads raw data: records reach the action of round"):
        check(agent, raw=raw)


def test_records_that_are_too_far_apart_are_named() -> None:
    class Small(Sums):
        def begin(self) -> None:
            self.sums = self.curator.batch_sum(3, reward=(0.0, 1.0), sensitivity=0.1)

        def act(self, context: Any) -> int:
            theta = self.sums.release() if context.t > 1 else np.zeros(3)
            return int((context.features @ theta).argmax())

    with pytest.raises(AgentError, match="its records are further apart than its guarantee"):
        check(Small)


def test_public_contexts_may_decide() -> None:
    check(Sums, said=(said := []), raw="contexts")
    assert any("raw data" in line for line in said)


def test_raw_data_after_the_first_rounds_are_found() -> None:
    """Rounds beyond the 200 are not played: their rows stay "not audited"."""

    class Late(Sums):
        def act(self, context: Any) -> int:
            late = context.t > 150
            return int((context.features @ self.state).argmax()) if late else super().act(context)

    check(Late, horizon=140, raw="contexts")
    with pytest.raises(AgentError, match="reads raw data"):
        check(Late, horizon=1000, raw="rewards")


@pytest.mark.parametrize("lacks", [{"feed_from": 10**6}, {"read_from": 10**6}])
def test_an_unused_releaser_is_refused(lacks: dict[str, int]) -> None:
    word = "takes no record" if "feed_from" in lacks else "is never read"
    with pytest.raises(AgentError, match=f"'running sum' {word} in 2000 rounds"):
        check(Sums, **lacks)


@pytest.mark.parametrize("late", [{"feed_from": 300}, {"read_from": 300}])
def test_a_releaser_that_is_used_late_is_not_refused(late: dict[str, int]) -> None:
    for horizon, first in ((60, 300), (2500, 2100)):
        check(Sums, horizon=horizon, said=(said := []), **{name: first for name in late})
        assert any("raw data" in line for line in said)


def test_a_task_too_long_to_be_played_is_not_judged(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replay_check, "MOST_ROUNDS", 2200)
    check(Sums, horizon=2201, said=(said := []), feed_from=10**6)
    assert any("raw data" in line for line in said)


def test_a_batch_that_is_not_full_is_not_refused() -> None:
    check(Batches, size=100)
    with pytest.raises(AgentError, match="is never read in 2000 rounds"):
        check(Batches, size=10**6)


def test_a_range_that_cuts_rewards_is_refused() -> None:
    for low, high in ((0.0, 0.1), (0.5, 1.0)):
        given = rf"\({low:g}, {high:g}\)"
        with pytest.raises(BudgetError, match=rf"numbers in {given}, but rewards are in \(0, 1\)"):
            check(Sums, span=(low, high))


@pytest.mark.parametrize(
    "fine",
    [
        {"span": (0.0, 0.1), "clip": 0.1},  # cut on purpose
        {"span": (-1.0, 2.0)},
        {"span": (0.25, 1.5)},  # not inside the problem's range
        {"span": (-0.25, 0.25)},
    ],
)
def test_other_ranges_are_not_refused(fine: dict[str, Any]) -> None:
    check(Sums, said=(said := []), **fine)
    assert any("raw data" in line for line in said)


def test_a_range_of_unbounded_rewards_is_the_agents_choice() -> None:
    class Price(dpb_gym.SingleAgent):
        protects = ("central", "reward")

        def begin(self) -> None:
            assert not np.isfinite(self.problem.reward_range).all()
            self.sums = self.curator.running_sum(1, reward=(-0.1, 0.1))

        def act(self, context: Any) -> float:
            return float(np.clip(self.sums.value[0], 0.0, 1.0))

        def observe(self, context: Any, action: Any, feedback: Any) -> None:
            self.sums.add(feedback.reward, along=np.ones(1))

    task = Task(name="x", env="DPB/Pricing-v0", env_kwargs={"demand": "gaussian"}, horizon=40)
    check_agent(AgentRun(spec=spec_of(Price, "pricing"), budget="rho=0.5"), task)


def test_own_random_numbers_are_named() -> None:
    with pytest.raises(AgentError, match="not reproducible: two runs with one seed differ"):
        check(Sums, own_random=True)


def test_an_agent_that_fails_with_few_rounds_plays_the_first_of_its_own() -> None:
    said: list[str] = []
    check(Sums, horizon=500, said=said, least_horizon=400)
    with pytest.raises(AgentError, match="reads raw data"):
        check(Sums, horizon=500, raw="rewards", least_horizon=400)


def test_an_agent_that_fails_is_left_to_the_run() -> None:
    said: list[str] = []
    check(Sums, said=said, least_horizon=10**6)
    assert len(said) == 1


def test_an_agent_that_fails_with_other_responses_is_named() -> None:
    class Strict(Sums):
        def observe(self, context: Any, action: Any, feedback: Any) -> None:
            self.seen = [*getattr(self, "seen", []), feedback.reward]
            if len(self.seen) == 50 and not any(self.seen):
                raise ValueError("nobody is interested")
            super().observe(context, action, feedback)

    with pytest.raises(AgentError, match=r"it fails with other responses.*nobody is interested"):
        check(Strict)


def test_an_error_of_the_check_itself_is_raised(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replay_check._Use, "hold", None)
    with pytest.raises(TypeError):
        check(Sums)


def test_limited_stock_is_left_out() -> None:
    """What is sold out follows from raw responses, and an agent has to offer what is left."""

    class Slate(dpb_gym.SingleAgent):
        protects = ("central", "reward")

        def begin(self) -> None:
            n = self.problem.n_items
            self.sums = self.curator.running_sum(n, reward=self.problem.reward_range)

        def act(self, context: Any) -> list[int]:
            scores = self.sums.value.copy()
            if context.available is not None:
                scores[~context.available] = -np.inf
            order = np.argsort(-scores)[: self.problem.capacity]
            return [int(i) for i in order if scores[i] > -np.inf]

        def observe(self, context: Any, action: Any, feedback: Any) -> None:
            along = np.zeros(self.problem.n_items)
            along[0] = 1.0
            self.sums.add(feedback.reward, along=along)

    kwargs = {"n_items": 6, "capacity": 2, "stock": 5}
    task = Task(name="x", env="DPB/Assortment-v0", env_kwargs=kwargs, horizon=150)
    said: list[str] = []
    check_agent(
        AgentRun(spec=spec_of(Slate, "assortment"), budget="rho=0.5"), task, say=said.append
    )
    assert "raw data: run" in said[-1]
