"""Checkpoints: resumed runs equal uninterrupted ones, and private checkpoints load once."""

from __future__ import annotations

import hashlib
import json
import os
import pickle

import numpy as np
import pytest

import dpb_gym
from dpb_gym import state
from dpb_gym.agent import Agent, SingleAgent
from dpb_gym.checkpoint import FORMAT, VERSION
from dpb_gym.customer_rounds import locked
from dpb_gym.errors import AgentError, CheckpointError
from dpb_gym.privacy import Budget, Curator, GaussianEvent, NoiseSource
from dpb_gym.privacy.releasers.releaser import Releaser, behind
from dpb_gym.registry import agent_specs, make_agent, spec_of
from dpb_gym.streams import AgentStreams

ENVIRONMENTS = {
    "assortment": ("DPB/Assortment-v0", {"n_items": 10, "capacity": 3, "dim": 3}),
    "assortment-pricing": ("DPB/AssortmentPricing-v0", {"n_items": 10, "capacity": 3, "dim": 4}),
    "pricing": ("DPB/Pricing-v0", {}),
    "recommendation": ("DPB/Recommendation-v0", {"dim": 4, "interactions_per_user": 2}),
}
SEEDS = [4, 5, 6]


def cases():
    for name, spec in agent_specs().items():
        ours = spec.entry_point.startswith("dpb_agents")
        if ours and not spec.uses_oracle:
            for kind in spec.supports:
                yield name, kind


def start(name, kind, rounds=700):
    env_id, kwargs = ENVIRONMENTS[kind]
    if agent_specs()[name].fixed_arms:
        env_id, kwargs = "DPB/MultiArmed-v0", {}
    problem = dpb_gym.make_problem(env_id, horizon=rounds, **kwargs)
    agent = make_agent(name)
    budget = None if agent_specs()[name].budget == "never" else Budget.zcdp(20.0)
    agent.set_up(problem.info, AgentStreams(SEEDS), budget)
    return problem.instance(SEEDS), agent


def play(instance, agent, first, last):
    actions = []
    for _ in range(first, last):
        context = locked(instance.context())
        action = agent.act(context)
        actions.append(np.array(action))
        agent.observe(context, action, instance.respond(action).feedback)
        if instance.t[0] < instance.problem.horizon:
            instance.advance()
    return actions


@pytest.mark.slow
@pytest.mark.parametrize(("name", "kind"), list(cases()))
def test_a_resumed_run_equals_the_uninterrupted_one(name, kind, tmp_path):
    # 187 is in the middle of every batch, block and schedule.
    whole = play(*start(name, kind, 300), 0, 300)
    instance, agent = start(name, kind, 300)
    before = play(instance, agent, 0, 187)
    agent.save(tmp_path / "agent.ckpt")
    del agent
    resumed = Agent.load(tmp_path / "agent.ckpt")
    after = play(instance, resumed, 187, 300)
    np.testing.assert_array_equal(before + after, whole)


def freed(value):
    """Fill memory that is free again with a number."""
    sizes = [*range(1, 80), 96, 128, 200, 256, 400, 512, 1000]
    blocks = [np.full(size, value) for size in sizes for _ in range(8)]
    del blocks


@pytest.mark.parametrize(("name", "kind"), list(cases()))
def test_saved_agents_hold_no_memory_of_others(name, kind):
    """An array that was not initialised has what was freed before: raw data, or a key."""
    dumped = []
    for value in (3.5, -9.25):
        freed(value)
        instance, agent = start(name, kind, 60)
        before = state.dumps(agent)
        freed(value)
        play(instance, agent, 1, 2)
        dumped.append((before, state.dumps(agent)))
    assert dumped[0] == dumped[1]


def saved(tmp_path, name="adaprivate-ts"):
    instance, agent = start(name, "recommendation")
    play(instance, agent, 0, 350)
    agent.save(tmp_path / "agent.ckpt")
    return agent, tmp_path / "agent.ckpt"


def test_the_ledger_is_restored_without_regaining_budget(tmp_path):
    agent, path = saved(tmp_path)
    resumed = Agent.load(path)
    mine, theirs = resumed.curator, agent.curator
    assert mine.ledger.spent == theirs.ledger.spent > 0
    assert mine.ledger.remaining == theirs.ledger.remaining
    assert str(mine.guarantee) == str(theirs.guarantee)


def test_a_private_checkpoint_loads_once(tmp_path):
    _, path = saved(tmp_path)
    Agent.load(path)
    with pytest.raises(CheckpointError, match="loaded before"):
        Agent.load(path)
    again = Agent.load(path, rehearsal=True)
    assert not again.curator.guarantee.private
    assert "second continuation" in again.curator.guarantee.basis
    again.save(path)
    assert not Agent.load(path).curator.guarantee.private, "what was disclosed stays so"


@pytest.mark.parametrize("name", ["adaprivate-ts", "one-pass-linear", "local-lin-ucb"])
def test_a_saved_private_agent_continues_from_its_checkpoint_only(tmp_path, name):
    instance, agent = start(name, "recommendation")
    play(instance, agent, 0, 100)
    context = locked(instance.context())
    action = agent.act(context)
    feedback = instance.respond(action).feedback
    agent.save(tmp_path / "first.ckpt")
    with pytest.raises(AgentError, match="handed over"):
        agent.act(context)
    with pytest.raises(AgentError, match="handed over"):
        agent.observe(context, action, feedback)
    with pytest.raises(AgentError, match="handed over"):
        type(agent).observe(agent, context, action, feedback)
    with pytest.raises(AgentError, match="cannot be saved"):
        agent.save(tmp_path / "second.ckpt")
    assert not (tmp_path / "second.ckpt").exists()
    assert agent.curator.guarantee.private
    agent.set_up(instance.problem.info, AgentStreams([7, 8, 9]), Budget.zcdp(1.0))
    agent.act(context)


def test_a_new_checkpoint_at_the_same_path_can_be_loaded(tmp_path):
    _, path = saved(tmp_path)
    Agent.load(path).save(path)
    assert Agent.load(path).curator.guarantee.private


class Single(SingleAgent):
    protects = ("central", "reward")

    def __init__(self, price=0.5):
        self.price = price

    def begin(self):
        self.sums = self.curator.running_sum(1, clip=1.0)

    def act(self, context):
        return self.price

    def observe(self, context, action, feedback):
        self.sums.add([feedback.reward])


def test_single_agents_are_saved_and_handed_over_with_all_copies(tmp_path):
    problem = dpb_gym.make_problem("DPB/Pricing-v0", horizon=50)
    agent = spec_of(Single, "pricing").make(price=0.25)
    agent.set_up(problem.info, AgentStreams(SEEDS), Budget.zcdp(1.0))
    instance = problem.instance(SEEDS)
    play(instance, agent, 0, 20)
    sums = agent.copies[1].sums
    agent.save(tmp_path / "agent.ckpt")
    with pytest.raises(AgentError, match="handed over"):
        sums.add([0.0])
    resumed = Agent.load(tmp_path / "agent.ckpt")
    play(instance, resumed, 20, 50)
    assert resumed.copies[0].price == 0.25 and resumed.curator.guarantee.private
    again = Agent.load(tmp_path / "agent.ckpt", rehearsal=True)
    assert not again.curator.guarantee.private


def write_payload(path, payload, kind="a:B", version=VERSION):
    header = {"format": FORMAT, "version": version, "class": kind, "id": "0" * 32}
    header |= {"bytes": len(payload), "sha256": hashlib.sha256(payload).hexdigest()}
    path.write_bytes(json.dumps(header).encode() + b"\n" + payload)


@pytest.mark.parametrize("version", range(VERSION))
def test_checkpoints_of_earlier_versions_are_refused_unread(tmp_path, version):
    path = tmp_path / "agent.ckpt"
    write_payload(path, pickle.dumps(print), version=version)
    with pytest.raises(CheckpointError, match=r"End its run with the version .* start a new run"):
        Agent.load(path)
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("value", [{1: 2}, None, [Budget.zcdp(1.0)], Budget.zcdp(1.0)])
def test_data_without_an_agent_are_rejected(tmp_path, value):
    path = tmp_path / "agent.ckpt"
    write_payload(path, state.dumps(value))
    with pytest.raises(CheckpointError, match="holds no agent"):
        Agent.load(path)


def test_a_pickle_is_no_checkpoint(tmp_path):
    path = tmp_path / "agent.ckpt"
    for payload in (pickle.dumps(make_agent("lin-ts")), b"", b"\n", b"{}\n"):
        write_payload(path, payload)
        with pytest.raises(CheckpointError, match="cannot be restored"):
            Agent.load(path)


def test_an_agent_of_another_class_than_the_header_says_is_rejected(tmp_path):
    path = tmp_path / "agent.ckpt"
    agent = start("lin-ts", "recommendation", 20)[1]
    write_payload(path, state.dumps(agent))
    with pytest.raises(CheckpointError, match="not what it says"):
        Agent.load(path)
    write_payload(path, state.dumps(agent), kind=state.name_of(type(agent)))
    Agent.load(path)


@pytest.mark.parametrize(
    "header",
    [
        b"[" * 4000, b"[]", b"1", b"{}", b'"a"', b"\xff", b"{" + b" " * 5000 + b"}",
        json.dumps({"format": FORMAT, "version": VERSION, "class": "a:B", "bytes": 0, "sha256": "",
                    "id": "../../../../../../tmp/a0a0a0a0a0"}).encode(),
    ],
)  # fmt: skip
def test_headers_that_are_none_are_rejected(tmp_path, header):
    path = tmp_path / "agent.ckpt"
    path.write_bytes(header + b"\n")
    with pytest.raises(CheckpointError, match="is not an agent checkpoint"):
        Agent.load(path)


def test_only_ordinary_files_are_read(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    os.symlink("/dev/zero", tmp_path / "link")
    for name in ("pipe", "link", "."):
        with pytest.raises(CheckpointError, match="cannot be read"):
            Agent.load(tmp_path / name)


class Counts(Releaser):
    """Releaser whose plan changes in a run without a declaration."""

    def __init__(self, curator, **options):
        self.seen = 0
        super().__init__(curator, share=None, what="counts", **options)

    def cost(self, rho):
        return GaussianEvent(1.0 / np.sqrt(2.0 * rho))

    def open(self, rho, noise):
        self.sigma = 0.0 if rho is None else 1.0 / np.sqrt(2.0 * rho)


class Declared(Counts):
    evolves = ("seen",)


class Counting(Agent):
    protects = ("central", "reward")
    kind = Counts

    def begin(self, problem, streams, curator):
        self.releaser = self.kind(curator)
        self.helper = Helper()

    def act(self, context):
        behind(self.releaser).seen += 1
        return np.full(len(context.features), 0.5)

    def observe(self, context, action, feedback):
        self.helper.rewards.append(float(feedback.reward[0]))


class Helper:
    """Object of the module that defines the agent."""

    def __init__(self):
        self.rewards = []


class CountingDeclared(Counting):
    kind = Declared


def test_a_releaser_declares_what_a_run_changes(tmp_path):
    problem = dpb_gym.make_problem("DPB/Pricing-v0", horizon=50)
    for kind, refused in ((Counting, True), (CountingDeclared, False)):
        agent = kind()
        agent.set_up(problem.info, AgentStreams(SEEDS), Budget.zcdp(1.0))
        play(problem.instance(SEEDS), agent, 0, 20)
        if refused:
            with pytest.raises(AgentError, match=r"releasers\[0\].seen is 20, but 0 follows"):
                agent.save(tmp_path / "agent.ckpt")
            agent.act(problem.instance(SEEDS).context())
            continue
        agent.save(tmp_path / "agent.ckpt")
        loaded = Agent.load(tmp_path / "agent.ckpt")
        assert behind(loaded.releaser).seen == 20 and len(loaded.helper.rewards) == 20


def test_an_agent_that_was_begun_by_hand_cannot_be_saved(tmp_path):
    problem = dpb_gym.make_problem("DPB/Pricing-v0", horizon=50)
    agent, streams = make_agent("one-pass-pricing"), AgentStreams(SEEDS)
    agent.curator = Curator(
        "rho=1", ("anticipating", "user-round"), noise=NoiseSource(streams.noise), horizon=50
    )
    agent.begin(problem.info, streams, agent.curator)
    agent.curator.seal()
    with pytest.raises(AgentError, match="set_up was not called"):
        agent.save(tmp_path / "agent.ckpt")


def test_non_private_checkpoints_load_any_number_of_times(tmp_path):
    _, path = saved(tmp_path, "lin-ts")
    assert Agent.load(path) is not Agent.load(path)
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("damage", ["cut", "flip", "empty", "text", "version", "missing"])
def test_damaged_checkpoints_are_rejected(tmp_path, damage):
    _, path = saved(tmp_path)
    data = path.read_bytes()
    if damage == "cut":
        path.write_bytes(data[:-10])
    elif damage == "flip":
        path.write_bytes(data[:-10] + bytes([data[-10] ^ 1]) + data[-9:])
    elif damage == "empty":
        path.write_bytes(b"")
    elif damage == "text":
        path.write_text("hello\nworld")
    elif damage == "version":
        header, _, rest = data.partition(b"\n")
        path.write_bytes(json.dumps({**json.loads(header), "version": 99}).encode() + b"\n" + rest)
    else:
        path.unlink()
    with pytest.raises(CheckpointError) as error:
        Agent.load(path)
    assert str(path) in str(error.value)
    assert not list(tmp_path.glob("*.loaded")), "a refused checkpoint is not spent"


def test_unsaveable_agents_raise_and_keep_the_old_file(tmp_path):
    agent, path = saved(tmp_path, "lin-ts")
    before = path.read_bytes()
    agent.extra = lambda: None
    with pytest.raises(AgentError, match="cannot be saved"):
        agent.save(path)
    agent.extra = os.getcwd
    with pytest.raises(AgentError, match="getcwd"):
        agent.save(path)
    assert path.read_bytes() == before
    del agent.extra
    with pytest.raises(CheckpointError, match="cannot write"):
        agent.save(tmp_path / "no" / "folder.ckpt")
