"""What a row calls "by construction": no code of an agent's author runs where records are.

Each class here is an algorithm whose author's code would get records in a place that is no
function: its plan, a releaser, its player, its class, or a value of c.
"""

from __future__ import annotations

import copy
import sys
from typing import Any, NamedTuple

import numpy as np
import pytest

import dpb_gym
from dpb_gym import Agent, SingleAgent
from dpb_gym.errors import AgentError
from dpb_gym.play import Algorithm, Functions, Plan, jit
from dpb_gym.play.algorithm import by_construction
from dpb_gym.play.player import Player
from dpb_gym.privacy.releasers.releaser import Handle, behind
from dpb_gym.registry import spec_of
from dpb_gym.streams import AgentStreams

ROUNDS = 5
SEEN: list[Any] = []


class State(NamedTuple):
    theta: Any


class Known(NamedTuple):
    n: Any


@jit
def first_act(c, s, t, x, z):
    return 0


@jit
def reward_record(c, s, t, x, k, reward, z):
    return reward, x[k]


@jit
def sum_learn(c, s, released, t):
    s.theta[:] = released.sum


@jit
def known_draws(c, t):
    return int(c.n[0])


class Honest(Algorithm):
    """Release sums of rewards, and play the first candidate."""

    protects = ("central", "reward")
    functions = Functions(first_act, reward_record, sum_learn)

    def plan(self, problem, curator):
        return Plan(curator.batch_sum(problem.dim, reward=(0.0, 1.0)), directed=True, every=3)

    def start(self, problem, sums):
        return Known(np.ones(1)), State(np.zeros(problem.dim))


class Collector:
    """Take the place of a releaser, and keep its records."""

    def __init__(self, sums):
        self.sums = sums

    def __getattr__(self, name):
        return getattr(self.sums, name)

    def add(self, values, rows, **users):
        SEEN.append(values)
        self.sums.add(values, rows, **users)


class CollectingPlan(Plan):
    @property
    def sums(self):  # type: ignore[override]
        own = tuple.__getitem__(self, 0)
        return Collector(own) if sys._getframe(1).f_code.co_name == "observe" else own


class CollectingHandle(Handle):
    def add(self, values, rows, **users):
        SEEN.append(values)
        super().add(values, rows, **users)


class CollectingPlayer(Player):
    __module__ = "dpb_gym.play.player"

    def observe(self, context, action, feedback):
        SEEN.append(feedback.reward)
        super().observe(context, action, feedback)


class Raw(Agent):
    """Keep the rewards, beside a releaser."""

    protects = ("central", "reward")
    player = None

    def begin(self, problem, streams, curator):
        self.sums = curator.batch_sum(1, reward=(0.0, 1.0))

    def act(self, context):
        return np.zeros(len(context.features), np.int64)

    def observe(self, context, action, feedback):
        SEEN.append(feedback.reward)


class RawSingle(SingleAgent):
    """Keep the rewards, beside a releaser, for one replicate."""

    protects = ("central", "reward")
    player = None

    def begin(self):
        self.sums = self.curator.batch_sum(1, reward=(0.0, 1.0))

    def act(self, context):
        return 0

    def observe(self, context, action, feedback):
        SEEN.append(feedback.reward)


class OtherPlan(Honest):
    def plan(self, problem, curator):
        return CollectingPlan(*super().plan(problem, curator))


class OtherHandle(Honest):
    def plan(self, problem, curator):
        plan = super().plan(problem, curator)
        return plan._replace(sums=CollectingHandle(behind(plan.sums)))


class OtherPlayer(Honest):
    player = CollectingPlayer


class PlayerOfTheInstance(Honest):
    def __post_init__(self):
        super().__post_init__()
        self.player = CollectingPlayer


class OtherClass(Honest):
    def __new__(cls):
        return Raw()


class Both(Honest, SingleAgent):
    """Would be played as a `SingleAgent`."""

    def act(self, context):
        SEEN.append(context)
        return 0


class LyingClass(type(Algorithm)):  # type: ignore[misc]
    """Have no player at first."""

    @property
    def player(cls):
        name = sys._getframe(1).f_code.co_name
        return None if name == "by_construction" else CollectingPlayer


class OtherMetaclass(Honest, metaclass=LyingClass):
    pass


class Looking(NamedTuple):
    """Run code where Python reads a field."""

    n: Any

    def __getattribute__(self, name):
        SEEN.append(name)
        return tuple.__getattribute__(self, name)


class Descriptor(NamedTuple):
    n: Any


class LookingArray(np.ndarray):
    def __getitem__(self, at):
        SEEN.append(at)
        return np.asarray(self)[at]


class Drawing(Honest):
    """Python reads c in every round, for the number of random vectors."""

    functions = Honest.functions._replace(draws=known_draws)

    def plan(self, problem, curator):
        return super().plan(problem, curator)._replace(draws=1, dim=2)


class OtherTuple(Drawing):
    def start(self, problem, sums):
        return Looking(np.ones(1)), State(np.zeros(problem.dim))


class OtherDescriptor(Drawing):
    def start(self, problem, sums):
        field = Descriptor.n
        Descriptor.n = property(lambda it: SEEN.append(it) or field.__get__(it))
        return Descriptor(np.ones(1)), State(np.zeros(problem.dim))


class OtherArray(Drawing):
    def start(self, problem, sums):
        return Known(np.ones(1).view(LookingArray)), State(np.zeros(problem.dim))


def helper(x):
    return 0


changing_helper = jit(helper)


@jit
def helped_act(c, s, t, x, z):
    return changing_helper(x)


def hidden_helper(x):
    return int(np.random.random() * 2.0)  # noqa: NPY002


class ChangedCode(Honest):
    """Give a helper other code, when the agent before it has been checked."""

    functions = Functions(helped_act, reward_record, sum_learn)
    started = 0

    def start(self, problem, sums):
        ChangedCode.started += 1
        if ChangedCode.started > 1:
            helper.__code__ = hidden_helper.__code__
        return super().start(problem, sums)


def played(cls):
    """Play some rounds and return what the author's code saw in them."""
    problem = dpb_gym.make_problem("DPB/Recommendation-v0", horizon=ROUNDS)
    agent = spec_of(cls, problem.kind).make()
    agent.set_up(problem.info, AgentStreams([0]), dpb_gym.Budget.zcdp(0.5))
    SEEN.clear()
    instance = problem.instance([0])
    for t in range(1, ROUNDS + 1):
        context = instance.context()
        action = np.asarray(agent.act(context))
        feedback = instance.respond(action).feedback
        with agent.curator.round(t):
            agent.observe(context, action, feedback)
        if t < ROUNDS:
            instance.advance()
    return list(SEEN)


@pytest.mark.parametrize("cls", [Honest, Drawing])
def test_an_honest_algorithm_is_played(cls):
    copy.deepcopy(Known(1.0))  # sets an attribute of the class
    assert "__slotnames__" in vars(Known)
    assert by_construction(cls) and played(cls) == []


@pytest.mark.parametrize(
    "cls", [OtherPlan, OtherHandle, OtherClass, OtherTuple, OtherDescriptor, OtherArray]
)
def test_code_of_the_author_gets_no_records(cls):
    with pytest.raises(AgentError):
        played(cls)


@pytest.mark.parametrize("cls", [PlayerOfTheInstance, Both])
def test_an_algorithm_is_played_by_the_player_of_its_class(cls):
    assert by_construction(cls) and played(cls) == []


@pytest.mark.parametrize("cls", [OtherPlayer, OtherMetaclass])
def test_a_player_of_another_package_is_not_by_construction(cls):
    assert played(cls) and not by_construction(cls)


@pytest.mark.parametrize("cls", [Raw, RawSingle])
def test_a_class_that_is_only_registered_as_an_algorithm_is_none(cls):
    Algorithm.register(cls)
    assert issubclass(cls, Algorithm) and not by_construction(cls)


def test_functions_with_other_code_are_checked_again():
    problem = dpb_gym.make_problem("DPB/Recommendation-v0", horizon=ROUNDS)
    spec = spec_of(ChangedCode, problem.kind)
    spec.make().set_up(problem.info, AgentStreams([0]), dpb_gym.Budget.zcdp(0.5))
    with pytest.raises(AgentError, match=r"'helper' uses numpy.random"):
        spec.make().set_up(problem.info, AgentStreams([0]), dpb_gym.Budget.zcdp(0.5))
