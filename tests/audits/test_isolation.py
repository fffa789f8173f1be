"""Isolated runs: the agent's processes have no raw data of other rounds, and no noise."""

from __future__ import annotations

import os
import pickle
import signal
import subprocess
import sys
import time
from contextlib import closing
from dataclasses import replace
from typing import Any, NamedTuple
from unittest.mock import patch

import audit_mutations as mutants
import numpy as np
import pytest

import dpb_gym
from dpb_gym import state
from dpb_gym.agent import Agent
from dpb_gym.audits import interference
from dpb_gym.audits.agent_audit import small_setting
from dpb_gym.errors import AgentError, ParameterError
from dpb_gym.exchange import verification
from dpb_gym.feedback import GaussianResponse
from dpb_gym.local_privacy import LocalPrivacy
from dpb_gym.privacy import BatchSum, Budget, GaussianEvent, NoiseSource, Segment, Sum
from dpb_gym.privacy.releasers import releaser as releaser_module
from dpb_gym.problems.base import Context, Feedback, ProblemInfo
from dpb_gym.registry import AgentSpec, agent_specs, spec_of
from dpb_gym.running import api, isolation
from dpb_gym.running.isolation import IsolatedAgent
from dpb_gym.streams import AgentStreams

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="forks processes")
HONEST = spec_of(mutants.Honest, "recommendation")
ENV = "DPB/Recommendation-v0"


def evaluated(cls: Any, isolate: bool, budget: str, horizon: int, **env: Any) -> Any:
    """Evaluate an agent that has the random numbers and the noise of `Honest`."""
    spec = replace(HONEST, maker=cls, protects=getattr(cls, "protects", HONEST.protects))
    kwargs = {**mutants.SMALL["env_kwargs"], **env}
    return dpb_gym.evaluate(
        ENV, {"it": spec}, horizon, 3, env_kwargs=kwargs, budgets=budget, checkpoints="all",
        isolate=isolate,
    )  # fmt: skip


def regret(cls: Any, isolate: bool, budget: str = "rho=2", horizon: int = 24, **env: Any) -> Any:
    """Return its regret, also of an agent that cheats, which `evaluate` refuses."""
    with patch.object(api, "checked", lambda jobs, show: (list(jobs), [])):
        result = evaluated(cls, isolate, budget, horizon, **env)
    (cell,) = result.cells
    assert cell.guarantee is not None
    return cell.regret


PRIVATE = {
    name: spec
    for name, spec in agent_specs().items()
    if spec.protects is not None and spec.entry_point.startswith("dpb_agents")
}


@pytest.fixture(autouse=True)
def unchanged():
    """Check that a test leaves all classes and functions of the library as they were."""
    before = contents()
    yield
    after = contents()
    assert before.keys() <= after.keys()
    for name, value in before.items():
        assert after[name] is value, name


def contents() -> dict[str, Any]:
    """Return what modules and classes of the main process's side have, by name."""
    members: dict[str, Any] = {}
    for module in list(sys.modules.values()):
        if not module.__name__.startswith(("dpb_gym.privacy", "dpb_gym.running", "dpb_gym.state")):
            continue
        for name, value in list(vars(module).items()):
            if callable(value):
                members[f"{module.__name__}:{name}"] = value
            if isinstance(value, type) and value.__module__ == module.__name__:
                path = f"{module.__name__}:{name}"
                members |= {f"{path}.{key}": each for key, each in vars(value).items()}
    return members


@pytest.mark.parametrize("name", PRIVATE)
def test_agents_play_the_same_bits(name):
    spec = PRIVATE[name]
    env, kwargs = small_setting(spec, spec.supports[0])
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


FAMILIES = (
    ("one-pass-linear", ENV, {"dim": 2}),
    ("one-pass-linear-joint", ENV, {"dim": 2}),
    ("one-pass-pricing", "DPB/Pricing-v0", {}),
    ("one-pass-mnl", "DPB/Assortment-v0", {}),
)
USERS = {"interactions_per_user": 3, "user_order": "shuffled"}


@pytest.mark.parametrize(
    ("agent", "env", "kwargs"),
    [
        *(
            (f"{name}@{trust}", env, kwargs)
            for name, env, kwargs in FAMILIES
            for trust in ("aggregator", "shuffler", "local")
        ),
        *((name, env, {**kwargs, "delay": "geometric=3"}) for name, env, kwargs in FAMILIES),
        ("dpmnl", "DPB/Assortment-v0", {"delay": "geometric=3"}),
        ("one-pass-linear", "DPB/MultiArmed-v0", {}),
        ("one-pass-linear-joint", "DPB/MultiArmed-v0", {}),
        ("one-pass-linear-joint", ENV, {"dim": 2, "available": 0.7}),
        ("one-pass-linear-joint max_rounds_per_user", ENV, {"dim": 2, **USERS}),
        ("one-pass-linear max_rounds_per_user", ENV, {"dim": 2, **USERS}),
        ("resolving-mnl", "DPB/Assortment-v0", {"stock": 5}),
        ("resolving-pricing", "DPB/Pricing-v0", {"stock": 9}),
        ("dpmnl calibration", "DPB/Assortment-v0", {}),
    ],
)
def test_play_is_that_without_isolation(agent, env, kwargs):
    """In every family and trust model, with late responses, fixed arms, users and stock."""
    name, _, option = agent.partition(" ")
    name, _, trust = name.partition("@")
    params = {
        "max_rounds_per_user": {"max_rounds_per_user": 2},
        "calibration": {"calibration": "paper"},
    }.get(option, {})
    budget = f"rho=2@{trust}" if trust else "rho=2"
    one, other = (
        dpb_gym.evaluate(
            env, {"it": (name, budget, params)}, 60, 2, env_kwargs=kwargs, checkpoints="all",
            isolate=isolate,
        ).cells[0]
        for isolate in (False, True)
    )  # fmt: skip
    np.testing.assert_array_equal(one.regret, other.regret)
    assert one.guarantee == other.guarantee


@pytest.mark.parametrize(
    "cheat",
    [
        mutants.ByAttribute, mutants.ByReferents, mutants.ByAddress, mutants.ByPickle,
        mutants.ByClosure, mutants.OfLargeRewards, mutants.SecondSum,
        mutants.Scaled, mutants.FirstOnly, mutants.FixedSeed,
        mutants.Blinding,
    ],
)  # fmt: skip
def test_agents_that_cheat_play_as_the_honest_one(cheat, monkeypatch):
    """They read zeros, and change the noise of releasers that release nothing."""
    for name in ("_hashed", "SLACK"):  # what `Blinding` sets in this process, too
        monkeypatch.setattr(interference, name, getattr(interference, name))
    honest = regret(mutants.Honest, False, horizon=48)
    assert not np.array_equal(regret(cheat, False, horizon=48), honest)
    np.testing.assert_array_equal(regret(cheat, True, horizon=48), honest)


class FirstOfProcess(mutants.FirstInAClass):
    """Shows whether one of the first rewards of the process is positive."""

    def peek(self) -> float:
        return max(self.rewards[:9]) - 0.01 if self.rewards else 0.0


class NoRewards(mutants.ByAttribute):
    """What it is if all rewards are 0."""

    def peeks(self, t: int) -> bool:
        return t > 1

    def peek(self) -> float:
        return -0.01


def test_nothing_is_left_from_an_earlier_run():
    """The earlier run is not isolated, and leaves its rewards in the class of this process."""
    zeros = regret(NoRewards, False)
    assert not np.array_equal(regret(FirstOfProcess, False), zeros)
    assert max(FirstOfProcess.rewards[:9]) > 0.01
    np.testing.assert_array_equal(regret(FirstOfProcess, True), zeros)


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
    with pytest.raises(AgentError, match="records are further apart"):
        evaluated(Turned, False, "rho=2", 48)
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


class ChargesItself(mutants.Honest):
    """Charges a release of its own, and leaves a part of the budget for it."""

    def begin(self) -> None:
        self.sums = self.curator.batch_sum(2, reward=(0.0, 1.0), share=0.5)
        self.theta = np.zeros(2)
        self.curator.charge(GaussianEvent(100.0), what="mine")


class ChargesLater(mutants.Honest):
    """Charges a release of its own, or discloses data, in a later round."""

    stage, by = "act", "charge"

    def begin(self) -> None:
        self.sums = self.curator.batch_sum(2, reward=(0.0, 1.0), share=0.5)
        self.theta = np.zeros(2)

    def cheat(self, stage: str) -> None:
        if stage != self.stage:
            return
        if self.by == "disclose":
            self.curator.disclose("raw rewards")
        elif self.by == "charge":
            self.curator.charge(GaussianEvent(100.0), what="mine")
        else:
            self.curator.ledger.charge(GaussianEvent(100.0), what="mine")

    def act(self, context: Any) -> int:
        if context.t == 5:
            self.cheat("act")
        return 0

    def observe(self, context: Any, action: Any, feedback: Any) -> None:
        if context.t == 5:
            self.cheat("observe")
        self.sums.add(feedback.reward, along=context.features[action])


class DisclosesLater(ChargesLater):
    by = "disclose"


class ChargesOnLearning(ChargesLater):
    stage = "observe"


class ChargesItsLedger(ChargesLater):
    by = "ledger"


class Forged(LocalPrivacy):
    """Its mechanism has hardly any noise, and the cost of much."""

    def __init__(self) -> None:
        mechanism = GaussianResponse(0.01)
        mechanism.event = GaussianEvent(100.0)
        super().__init__("lin-ucb", mechanism)


# ------------------------------------------------------------------ what crosses to the policy


class Wider(NamedTuple):
    """A context with a field that isolation does not know."""

    t: int
    features: Any
    users: Any
    secret: Any
    nothing: Any = None


def test_every_field_is_blank_unless_it_is_public():
    rng = np.random.default_rng(0)
    given = Wider(3, rng.random((2, 4)), np.array([5, 6]), rng.random(2) > -1.0)
    blank = isolation._blank(given, "t")
    assert blank.t == 3 and blank.nothing is None
    assert not blank.features.any() and not blank.secret.any()
    assert (blank.users == -1).all()
    for value in ("text", 7, [1.0], {"a": 1}, np.array(["x"]), np.array([None])):
        with pytest.raises(AgentError, match="secret is protected"):
            isolation._blank(given._replace(secret=value), "t")


class Counts(Agent):
    """Plays the candidate of the round's number, and releases at fixed rounds."""

    protects = ("joint", "user-round")

    def begin(self, problem: Any, streams: Any, curator: Any) -> None:
        self.sums = curator.batch_sum(problem.dim, clip=1.0, limit=3 if self.limits else None)

    limits = False

    def act(self, context: Any) -> Any:
        return np.full(len(context.features), context.t % 3)

    def observe(self, context: Any, action: Any, feedback: Any) -> None:
        users = context.users if self.limits else None
        self.sums.add(context.features[:, 0], users=users)


class CountsOfUsers(Counts):
    protects = ("joint", "user")
    limits = True


def drawn(seed: int, t: int, late: bool) -> tuple[Context, Feedback]:
    """Return a round of three candidates, all of it random."""
    rng = np.random.default_rng([seed, t])
    context = Context(
        t,
        rng.random((2, 3, 2)).astype(np.float32),
        rng.random((2, 3)).astype(np.float32),
        rng.integers(0, 12, (2, 3)),
        rng.integers(0, 9, 2),
        rng.random((2, 3)) < 0.5,
    )
    observed = rng.random(2) < 0.5
    if late:
        observed = np.array([True, t % 2 == 0])
    answer = rng.integers(0, 5, (2, 3))
    return context, Feedback(rng.random(2), rng.integers(-1, 3, 2), rng.random(2), observed, answer)


@pytest.mark.parametrize(
    ("cls", "public", "delay"),
    [
        (Counts, (), None),
        (CountsOfUsers, ("users",), "fixed=2"),
        pytest.param(Counts, (), "fixed=2", marks=pytest.mark.long),
        pytest.param(CountsOfUsers, ("users",), None, marks=pytest.mark.long),
    ],
)
def test_the_policy_process_gets_nothing_of_protected_contexts(cls, public, delay, monkeypatch):
    """Bit for bit the same messages for other customers, but for what the unit makes public."""
    spec = replace(HONEST, maker=cls, protects=cls.protects)
    info = ProblemInfo(
        "recommendation", 9, 2, (0.0, 1.0), n_candidates=3, n_arms=12, delay=delay,
        partial_feedback=delay is None,
    )  # fmt: skip
    sent: list[list[bytes]] = []
    send = isolation._send_bytes

    def noted(link: Any, message: bytes) -> None:
        if link is agent._link:
            sent[-1].append(message)
        send(link, message)

    monkeypatch.setattr(isolation, "_send_bytes", noted)
    for seed in (1, 2):
        with closing(IsolatedAgent(spec)) as agent:
            sent.append([])
            agent.set_up(info, AgentStreams([5, 6]), Budget.parse("rho=1"))
            for t in range(1, 6):
                context, feedback = drawn(seed, t, delay is not None)
                action = agent.act(context)
                if public:  # users are public: these are the same for both
                    context = context._replace(users=drawn(3, t, False)[0].users)
                agent.observe(context, action, feedback)
    begun, *one = sent[0]
    assert len(one) == 10 and one != [begun] * 10
    for message, other in zip(one, sent[1][1:]):
        stage, shown, *_ = state.loads(message)
        if stage == isolation.OBSERVE or not public:
            assert message == other
        for name, value in shown._asdict().items():
            blank = value is None or name == "t" or len(np.unique(value)) == 1
            assert blank or name in public


def test_fixed_arms_are_shown_only_if_every_round_offers_the_same():
    arms = np.array([[0, 1, 2], [2, 0, 1]])
    features = np.arange(12.0).reshape(2, 3, 2)
    features[1] = features[1, [2, 0, 1]]
    info = ProblemInfo("recommendation", 9, 2, (0.0, 1.0), n_candidates=3, n_arms=3)
    with closing(IsolatedAgent(replace(HONEST, maker=Counts, protects=Counts.protects))) as agent:
        agent.set_up(info, AgentStreams([5, 6]), Budget.parse("rho=1"))
        context = Context(1, features, arms=arms, users=np.array([3, 4]))
        shown = agent._shown(context)
        assert shown.features is features and shown.arms is arms and (shown.users == -1).all()
        turned = Context(2, features[:, ::-1], arms=arms[:, ::-1])
        assert agent._shown(turned).arms is turned.arms
        late = Context(3, np.zeros_like(features), arms=np.full_like(arms, -1))
        agent._shown(late)
        for other in (context._replace(features=features + 1.0), context._replace(arms=arms[::-1])):
            with pytest.raises(AgentError, match="every round should offer the same arms"):
                agent._shown(other)


class OneRoundOnly(mutants.Features):
    """Adds what `act` knew of the customer of its round to the record of a late one."""

    def act(self, context: Any) -> Any:
        self.seen = context.features[:, 0].astype(float)
        return np.zeros(len(context.features), int)

    def observe(self, context: Any, action: Any, feedback: Any) -> None:
        self.sums.add(self.seen)
        self.total = self.sums.release()


def test_a_late_record_is_not_of_the_customer_who_acts(monkeypatch):
    seen = []
    add = Sum.add

    def noted(sums: Any, records: Any, *more: Any, **options: Any) -> None:
        seen.append(np.array(records))
        add(sums, records, *more, **options)

    for delay, blank in ((None, False), ("fixed=2", True)):
        seen.clear()
        with monkeypatch.context() as patch:
            patch.setattr(Sum, "add", noted)
            regret(OneRoundOnly, True, horizon=12, **({} if delay is None else {"delay": delay}))
        assert seen and all(blank == (not record.any()) for record in seen)


# ------------------------------------------------------------------ attacks


def link_of() -> Any:
    """Return the connection of the agent's process to the main process."""
    frame = sys._getframe()
    while frame.f_code.co_name != "_stage":
        frame = frame.f_back
    return frame.f_locals["link"]


class Attack(mutants.Honest):
    """Behaves well for two rounds."""

    def observe(self, context: Any, action: int, feedback: Any) -> None:
        super().observe(context, action, feedback)
        if context.t == 3:
            self.attack(link_of(), feedback)

    def attack(self, link: Any, feedback: Any) -> None:
        raise NotImplementedError


class HundredRecords(Attack):
    def attack(self, link: Any, feedback: Any) -> None:
        for _ in range(100):
            self.sums.add(feedback.reward, along=np.array([1.0, 0.0]))


class HundredMessages(Attack):
    """Sends what its releaser would, past the releaser."""

    def attack(self, link: Any, feedback: Any) -> None:
        record = {"records": np.ones(1), "along": np.array([[1.0, 0.0]])}
        for _ in range(100):
            link.send_bytes(state.dumps(["call", 0, "add", record]))


class ManyRounds(Attack):
    """Sends ten copies of a record by `add_rounds`, which has places for more."""

    def attack(self, link: Any, feedback: Any) -> None:
        along = np.tile([1.0, 0.0], (10, 1, 1))
        record = {"records": np.full((10, 1), feedback.reward), "along": along}
        link.send_bytes(state.dumps(["call", 0, "add_rounds", record]))


class InAct(mutants.Honest):
    def act(self, context: Any) -> int:
        self.sums.add(0.5, along=context.features[0])
        return super().act(context)


class SmallSensitivity(mutants.Honest):
    def begin(self) -> None:
        super().begin()
        self.sums = self.curator.batch_sum(2, reward=(0.0, 1.0), sensitivity=1e-6)


class ForgedBound(mutants.Honest):
    """Its bound says that records are close to each other."""

    def begin(self) -> None:
        class Small(Segment):
            def sensitivity(self, relation: str = "", public: bool = True) -> float:
                return 1e-6

        self.sums = self.curator.batch_sum(2, clip=Small(0.0, 1.0))
        self.theta = np.zeros(2)


class WithoutPlan(mutants.Honest):
    """Keeps its releasers from the plan."""

    def begin(self) -> None:
        (calls,) = releaser_module._notes
        super().begin()
        calls.clear()


class PatchedClasses(mutants.Honest):
    """Patches the noise of every releaser and the size of every bound in its process."""

    def begin(self) -> None:
        Sum._scales = lambda sums, rho: (1e-9, 0.0, GaussianEvent(1.0))  # type: ignore
        Segment.sensitivity = lambda *_: 1e-9  # type: ignore[method-assign]
        NoiseSource.gaussian = lambda source, std, width: np.zeros((1, width))  # type: ignore
        super().begin()


class ByPlan(mutants.Honest):
    """Adds a call to the plan that the main process carries out."""

    call: Any = "__setattr__", ("noise", None), {}

    def begin(self) -> None:
        super().begin()
        frame = sys._getframe()
        while frame.f_code.co_name != "_plan":
            frame = frame.f_back
        frame.f_locals["calls"].append((self.curator, *self.call))
        frame.f_globals["CHARGES"] = (*isolation.CHARGES, "__setattr__", "hand_over")


class HandsOver(ByPlan):
    call = "hand_over", ("for good",), {}


class Sends(Attack):
    """Sends bytes instead of a message."""

    message: bytes = b""

    def attack(self, link: Any, feedback: Any) -> None:
        link.send_bytes(self.message)


def sends(message: Any) -> type[Sends]:
    content = message if isinstance(message, bytes) else state.dumps(message)
    return type("Sends", (Sends,), {"message": content})


class Large(Attack):
    def attack(self, link: Any, feedback: Any) -> None:
        link.send_bytes(state.dumps(["call", 0, "add", {"records": np.zeros(1 << 22)}]))


class Endless(Attack):
    def attack(self, link: Any, feedback: Any) -> None:
        while True:
            self.sums.value  # noqa: B018 - asks the main process


class OtherNumbers(Attack):
    """Adds a record with numbers that no record has."""

    records: Any = None

    def attack(self, link: Any, feedback: Any) -> None:
        call = ["call", 0, "add", {"records": self.records, "along": np.array([[1.0, 0.0]])}]
        link.send_bytes(state.dumps(call))


class NoSuchCandidate(mutants.Honest):
    def act(self, context: Any) -> Any:
        return 10**6


class NoAction(Attack):
    def attack(self, link: Any, feedback: Any) -> None:
        link.send_bytes(state.dumps(["done", None]))  # of observe
        link.send_bytes(state.dumps(["done", {"action": 1}]))  # of act


class TwoAxes(Agent):
    protects = ("central", "reward")

    def begin(self, problem: Any, streams: Any, curator: Any) -> None:
        self.sums = curator.batch_sum(problem.dim, reward=(0.0, 1.0))

    def act(self, context: Any) -> Any:
        return np.zeros((2, 2, 2))

    def observe(self, context: Any, action: Any, feedback: Any) -> None:
        pass


class Silent(Attack):
    def attack(self, link: Any, feedback: Any) -> None:
        signal.setitimer(signal.ITIMER_REAL, 0)
        while True:
            time.sleep(1.0)


class Hangs(Silent):
    """Does not answer in its constructor."""

    def begin(self) -> None:
        self.attack(None, None)


class Closes(Attack):
    def attack(self, link: Any, feedback: Any) -> None:
        link.close()


BATCH = "dpb_gym.privacy.releasers.sums:Sum"
FORGED = b'{"state":1,"value":{"object":["%s",{"_sigma":0.0}]}}\n' % BATCH.encode()


@pytest.mark.parametrize(
    ("attack", "text"),
    [
        (HundredRecords, "a second record of one round"),
        (HundredMessages, "a second record of one round"),
        (ManyRounds, "a second record of one round"),
        (InAct, "a record enters in observe, not in act"),
        (SmallSensitivity, "a sensitivity of 1e-06, which nothing enforces"),
        (ForgedBound, "Small.*a class of another package could change its bound"),
        (WithoutPlan, "the agent made no releaser"),
        (ByPlan, "'__setattr__' would run|__setattr__ would run"),
        (HandsOver, "hand_over would run beside"),
        (sends(b"\x00\xff raw bytes"), "sent what is no message"),
        (sends(b""), "sent what is no message"),
        (sends(pickle.dumps(["done", None])), "sent what is no message"),
        (sends(FORGED), "an object, where plain values and arrays are read"),
        (sends(["call", 0, "value", {}, Budget.zcdp(1.0)]), "an object, where plain values"),
        (sends(["call", 3, "release", {}]), "'release' of a releaser is not for isolated agents"),
        (sends(["call", -1, "release", {}]), "is not for isolated agents"),
        (sends(["call", True, "release", {}]), "is not for isolated agents"),
        (sends(["call", "0", "release", {}]), "is not for isolated agents"),
        (sends(["call", 0, "__getattribute__", {"name": "_total"}]), "not for isolated agents"),
        (sends(["call", 0, "exact_sums", {"rounds": 1}]), "not for isolated agents"),
        (sends(["call", 0, "open", {"rho": None}]), "not for isolated agents"),
        (sends(["call", 0, "release", {"due": None}]), "release of sums of disjoint batches takes"),
        (sends(["call", 0, ["release"], {}]), "not for isolated agents"),
        (sends(["call", 0, "release"]), "sent what is no message"),
        (sends([np.zeros(3), 0]), "sent what is no message"),
        (sends({"call": 0}), "sent what is no message"),
        (sends(["done"]), "sent what is no message"),
        (sends(["done", None, None]), "sent what is no message"),
        (sends(["done", [[None, BATCH, {}, None]]]), "raw data reach the plan"),
        (sends(["error", "SystemExit", "mine", "", "", -5]), "SystemExit: mine"),
        (sends(["error", "errors", 5]), "errors: errors"),
        (Large, "a message of more than"),
        (Endless, "more than 128 calls in one round|more than 256 calls in one round"),
        (type("Nan", (OtherNumbers,), {"records": np.array([np.nan])}), "second record"),
        (NoSuchCandidate, "outside 0..2"),
        (NoAction, "an action must be an array|asks for"),
        (TwoAxes, "shape"),
        (Closes, "ended its process"),
    ],
)  # fmt: skip
def test_attacks_end_in_a_typed_error(attack, text):
    with pytest.raises(AgentError, match=text):
        regret(attack, True, horizon=6)
    assert not releaser_module._notes


class NotANumber(mutants.Honest):
    records: Any = np.nan

    def observe(self, context: Any, action: int, feedback: Any) -> None:
        self.sums.add(self.records, along=context.features[action])


def test_records_that_are_no_numbers_end_in_the_error_of_honest_agents():
    with pytest.raises(AgentError, match="must be finite"):
        regret(NotANumber, True, horizon=6)


def test_patched_classes_play_with_the_charged_noise():
    np.testing.assert_array_equal(regret(PatchedClasses, True), regret(mutants.Honest, False))


@pytest.mark.parametrize("attack", [Silent, Hangs])
def test_an_agent_that_does_not_answer_is_killed(attack, monkeypatch):
    began = []
    start = IsolatedAgent.__init__

    def noted(agent: Any, spec: Any) -> None:
        start(agent, spec)
        began.append(agent._process.pid)
        # not before: on a busy machine the start of the process takes longer
        monkeypatch.setattr(isolation, "ANSWER_SECONDS", 3.0)
        isolation.limit_answers(agent._link)

    monkeypatch.setattr(IsolatedAgent, "__init__", noted)
    with pytest.raises(AgentError, match="did not answer in 3 seconds"):
        regret(attack, True, horizon=6)
    assert len(began) == 1 and not alive(began[0])


class Forks(Attack):
    """Forks the customer process, so that two processes answer."""

    def attack(self, link: Any, feedback: Any) -> None:
        if feedback.reward:
            os.fork()


def test_a_fork_of_the_customer_changes_nothing():
    honest = regret(mutants.Honest, False, horizon=12)
    np.testing.assert_array_equal(regret(Forks, True, horizon=12), honest)


class Stays(mutants.Honest):
    """Ends the group of its process, so that it is not killed with it."""

    def begin(self) -> None:
        super().begin()
        if hasattr(os, "setpgid"):
            os.getsid(0)
        signal.signal(signal.SIGTERM, signal.SIG_IGN)


def test_an_agent_that_ignores_signals_is_closed():
    spec = replace(HONEST, maker=Stays)
    with closing(IsolatedAgent(spec)) as agent:
        info = ProblemInfo("recommendation", 9, 2, (0.0, 1.0), n_candidates=3, n_arms=12)
        agent.set_up(info, AgentStreams([5]), Budget.parse("rho=1"))
        group = agent._process.pid
    assert not alive(group)


def test_errors_say_what_they_say_without_isolation():
    texts = []
    for isolate in (False, True):
        with pytest.raises(AgentError) as caught:
            regret(Broken, isolate)
        texts.append(str(caught.value))
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
        (WithLoss, "a minimiser's loss"),
        (Forged, "above the budget rho=2"),
        (ChargesItself, "charges what its releasers release"),
        (ChargesLater, "charges what its releasers release"),
        (DisclosesLater, "charges what its releasers release"),
        (ChargesOnLearning, "charges what its releasers release"),
        (ChargesItsLedger, "charges what its releasers release"),
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
from dpb_gym.running import api, isolation

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
