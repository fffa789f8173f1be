"""Isolated runs: the agent's processes have no raw data of other rounds, and no noise."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from typing import Any

import audit_mutations as mutants
import numpy as np
import pytest

import dpb_gym
from dpb_gym.agent import Agent
from dpb_gym.audits.agent_audit import small_setting
from dpb_gym.errors import AgentError, ParameterError
from dpb_gym.exchange import verification
from dpb_gym.feedback import GaussianResponse
from dpb_gym.local_privacy import LocalPrivacy
from dpb_gym.privacy import BatchSum, GaussianEvent, NoiseSource
from dpb_gym.registry import AgentSpec, agent_specs, spec_of
from dpb_gym.running import isolation
from dpb_gym.running.isolation import IsolatedAgent

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="forks processes")
HONEST = spec_of(mutants.Honest, "recommendation")
ENV = "DPB/Recommendation-v0"


def regret(cls: Any, isolate: bool, budget: str = "rho=2", horizon: int = 48, **env: Any) -> Any:
    """Return the regret of an agent that has the random numbers and the noise of `Honest`."""
    spec = replace(HONEST, maker=cls, protects=getattr(cls, "protects", HONEST.protects))
    kwargs = {**mutants.SMALL["env_kwargs"], **env}
    result = dpb_gym.evaluate(
        ENV, {"it": spec}, horizon, 3, env_kwargs=kwargs, budgets=budget, checkpoints="all",
        isolate=isolate,
    )  # fmt: skip
    (cell,) = result.cells
    assert cell.guarantee is not None
    return cell.regret


PRIVATE = {name: spec for name, spec in agent_specs().items() if spec.protects is not None}


@pytest.mark.parametrize("name", PRIVATE)
def test_agents_play_the_same_bits(name):
    spec = PRIVATE[name]
    env, kwargs = small_setting(spec, spec.supports[0])
    if name == "reference-dpmnl" or name == "reference-private-pricing":
        pytest.skip("its records are in a function")
    given = vars(spec.maker).get("audit_params") or {}
    budget = "eps=2,delta=1e-5" if name == "adaprivate-amp" else "rho=2"
    one, other = (
        dpb_gym.evaluate(
            env, {name: (name, budget, {**given, **spec.params})}, 40, 3, env_kwargs=kwargs,
            checkpoints="all", isolate=isolate,
        ).cells[0]
        for isolate in (False, True)
    )  # fmt: skip
    np.testing.assert_array_equal(one.regret, other.regret)
    assert one.guarantee == other.guarantee


def test_late_responses_are_those_without_isolation():
    names, env = ["one-pass-linear", "one-pass-linear-joint"], {"dim": 2, "delay": "geometric=3"}
    one, other = (
        dpb_gym.evaluate(ENV, names, 60, 2, env_kwargs=env, budgets="rho=2", isolate=isolate)
        for isolate in (False, True)
    )
    for name in names:
        np.testing.assert_array_equal(one.final_regret(name), other.final_regret(name))


@pytest.mark.parametrize(
    "cheat",
    [
        mutants.ByAttribute, mutants.ByReferents, mutants.ByAddress, mutants.ByPickle,
        mutants.ByClosure, mutants.OfLargeRewards, mutants.SecondSum,
        mutants.Scaled, mutants.FirstOnly, mutants.FixedSeed,
    ],
)  # fmt: skip
def test_agents_that_cheat_play_as_the_honest_one(cheat):
    """They read zeros, and change the noise of releasers that release nothing."""
    honest = regret(mutants.Honest, False)
    assert not np.array_equal(regret(cheat, False), honest)
    np.testing.assert_array_equal(regret(cheat, True), honest)


class NothingFromBefore(mutants.Honest):
    """`Again`, if it has no reward of the round before."""

    def observe(self, context: Any, action: int, feedback: Any) -> None:
        reward = feedback.reward if context.t % 2 else 0.0
        super().observe(context, action, feedback._replace(reward=reward))


def test_a_record_depends_on_its_own_round_only():
    np.testing.assert_array_equal(regret(mutants.Again, True), regret(NothingFromBefore, False))


class Turned(mutants.Honest):
    """Turns the public direction of a large reward, so that records are 2 apart, not 1."""

    turns = True

    def observe(self, context: Any, action: int, feedback: Any) -> None:
        sign = 1.0 if self.turns and feedback.reward > 0.5 else -1.0
        self.sums.add(feedback.reward, along=sign * context.features[action])
        if context.t % self.every == 0:
            self.theta = self.theta + self.sums.release()


class NeverTurned(Turned):
    turns = False


def test_public_directions_do_not_depend_on_responses():
    assert not np.array_equal(regret(Turned, False), regret(NeverTurned, False))
    np.testing.assert_array_equal(regret(Turned, True), regret(NeverTurned, False))


class First(mutants.Features):
    def act(self, context: Any) -> Any:
        return np.zeros(len(context.features), int)


@pytest.mark.parametrize("cheat", [mutants.Features, mutants.SeenFeatures])
def test_protected_features_are_forgotten(cheat):
    assert not np.array_equal(regret(cheat, False), regret(First, False))
    np.testing.assert_array_equal(regret(cheat, True), regret(First, False))


class Early(mutants.Honest):
    """Ends a batch where the reward of the round is large."""

    def observe(self, context: Any, action: int, feedback: Any) -> None:
        self.sums.add(feedback.reward, along=context.features[action])
        if feedback.reward > 0.7:
            self.theta = self.theta + self.sums.release()


class Broken(mutants.Honest):
    def observe(self, context: Any, action: int, feedback: Any) -> None:
        super().observe(context, action, feedback)
        if context.t == 7:
            raise ZeroDivisionError("a share of nothing")


class Ending(mutants.Honest):
    """Ends the process, with a response or without one."""

    with_response = False

    def observe(self, context: Any, action: int, feedback: Any) -> None:
        if (feedback.reward != 0.0) == self.with_response:
            os._exit(3)


class EndingWithResponse(Ending):
    with_response = True


class Typed(mutants.Honest):
    def __init__(self, size: int = 3) -> None:
        raise ParameterError("size must be at least 4")


class Own(BatchSum):
    """A releaser of another package."""


class WithOwn(Agent):
    protects = ("joint", "user-round")

    def begin(self, problem: Any, streams: Any, curator: Any) -> None:
        self.sums = Own(curator, problem.dim, clip=1.0)

    act = observe = None  # type: ignore[assignment]


class WithLoss(WithOwn):
    def begin(self, problem: Any, streams: Any, curator: Any) -> None:
        self.fit = curator.minimiser(problem.dim, loss=np.sum, gradient_bound=1.0, curvature=1.0)


class ByMessage(mutants.Honest):
    """Asks the main process for an attribute of the releaser."""

    def act(self, context: Any) -> int:
        frame = sys._getframe()
        while frame is not None and "calls" not in frame.f_locals:
            frame = frame.f_back
        link = frame.f_locals["calls"].link
        isolation._send(link, (isolation.CALL, ((0, "__getattribute__"), ("_total",), {})))
        self.theta = isolation._receive(link)[0]
        return super().act(context)


class ByPlan(mutants.Honest):
    """Adds a call to the plan that the main process carries out."""

    call: Any = ("__setattr__", ("noise", NoiseSource.from_seed(0)))

    def begin(self) -> None:
        super().begin()
        frame = sys._getframe()
        while frame.f_code.co_name != "_plan":
            frame = frame.f_back
        frame.f_locals["calls"].append((self.curator, *self.call, {}))


class ByKind(ByPlan):
    call = (NoiseSource.from_seed(0), ())


class Forged(LocalPrivacy):
    """Its mechanism has hardly any noise, and the cost of much."""

    def __init__(self) -> None:
        mechanism = GaussianResponse(0.01)
        mechanism.event = GaussianEvent(100.0)
        super().__init__("lin-ucb", mechanism)


def test_errors_say_what_they_say_without_isolation():
    texts = []
    for isolate in (False, True):
        with pytest.raises(AgentError) as found:
            regret(Broken, isolate)
        texts.append(str(found.value))
    assert texts[0] == texts[1]
    assert "a share of nothing" in texts[0] and "test_isolation.py, line" in texts[0]
    for isolate in (False, True):
        with pytest.raises(ParameterError, match="at least 4"):
            regret(Typed, isolate)


@pytest.mark.parametrize(
    ("cheat", "text"),
    [
        (Early, "raw data reach the plan of its releases"),
        (Ending, "ended its process"),
        (EndingWithResponse, "ended its process"),
        (WithOwn, "test_isolation.Own would run beside the raw data"),
        (WithLoss, "would run beside the raw data"),
        (Forged, "above the budget rho=2"),
        (ByMessage, "'__getattribute__' of a releaser is not for isolated agents"),
        (ByPlan, "makes releasers, not '__setattr__'"),
        (ByKind, "makes releasers, not <class 'dpb_gym.privacy.noise.NoiseSource'>"),
    ],
)
def test_what_cannot_be_isolated_fails(cheat, text):
    with pytest.raises(AgentError, match=text):
        regret(cheat, True)


def test_agents_without_a_budget_run_as_usual():
    class NotForOthers(mutants.Honest):
        pass

    spec: AgentSpec = replace(HONEST, maker=NotForOthers)
    for isolate in (False, True):
        result = dpb_gym.evaluate(ENV, {"it": spec}, 20, 2, isolate=isolate)
        assert result.cells[0].guarantee is None


def test_verification_isolates_agents_of_other_packages(tmp_path, monkeypatch):
    dpb_gym.evaluate(ENV, ["adaprivate-ucb", "random"], 40, 2, budgets="rho=2", out=tmp_path / "it")
    said: list[str] = []
    for isolate, packages, words in ((None, ("other",), 1), (None, (), 0), (True, (), 1)):
        said.clear()
        if packages:
            monkeypatch.setattr(verification, "own_packages", lambda: {"other"})
        else:
            monkeypatch.undo()
        assert verification.verify(tmp_path / "it", 5, 0, said.append, isolate=isolate).ok
        assert sum("isolated" in line for line in said) == words and len(said) == 2


def alive(group: int) -> bool:
    """Return whether a process of the group lives, after waiting up to ten seconds for its end."""
    for _ in range(100):
        try:
            os.killpg(group, 0)
        except ProcessLookupError:
            return False
        time.sleep(0.1)
    return True


def test_an_agent_is_closed_with_its_processes():
    agent = IsolatedAgent(HONEST)
    group = agent._process.pid
    os.killpg(group, 0)
    agent.close()
    assert not alive(group)


SCRIPT = """
import os, dpb_gym
from dpb_gym.running import isolation

class Told(isolation.IsolatedAgent):
    def begin(self, *given):
        super().begin(*given)
        print(self._process.pid, flush=True)

isolation.IsolatedAgent = Told
dpb_gym.evaluate("DPB/Recommendation-v0", [("adaprivate-ucb", "rho=1")], 10**6, 2, isolate=True)
"""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_no_process_is_left_when_the_run_is_killed(number):
    run = subprocess.Popen(
        [sys.executable, "-c", SCRIPT], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    group = int(run.stdout.readline())
    time.sleep(0.5)
    os.kill(run.pid, number)
    _, errors = run.communicate(timeout=60)
    assert run.returncode == -number and not alive(group)
    assert ("KeyboardInterrupt" in errors) == (number == signal.SIGINT)
