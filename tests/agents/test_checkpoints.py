"""Checkpoints: resumed runs equal uninterrupted ones, and private checkpoints load once."""

from __future__ import annotations

import functools
import hashlib
import importlib
import json
import os
import pickle
import subprocess

import numpy as np
import pytest

import dpb_gym
from dpb_gym.agent import Agent, SingleAgent
from dpb_gym.checkpoint import FORMAT, VERSION
from dpb_gym.errors import AgentError, CheckpointError
from dpb_gym.files import write_whole
from dpb_gym.privacy import Budget
from dpb_gym.registry import agent_specs, make_agent, spec_of
from dpb_gym.streams import AgentStreams

ENVIRONMENTS = {
    "assortment": ("DPB/Assortment-v0", {"n_items": 10, "capacity": 3, "dim": 3}),
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
        context = instance.context()
        action = agent.act(context)
        actions.append(np.array(action))
        agent.observe(context, action, instance.respond(action).feedback)
        if instance.t[0] < instance.problem.horizon:
            instance.advance()
    return actions


@pytest.mark.parametrize(("name", "kind"), list(cases()))
def test_a_resumed_run_equals_the_uninterrupted_one(name, kind, tmp_path):
    # 437 is in the middle of every batch, block and schedule.
    whole = play(*start(name, kind), 0, 700)
    instance, agent = start(name, kind)
    before = play(instance, agent, 0, 437)
    agent.save(tmp_path / "agent.ckpt")
    del agent
    resumed = Agent.load(tmp_path / "agent.ckpt")
    after = play(instance, resumed, 437, 700)
    np.testing.assert_array_equal(before + after, whole)


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
    context = instance.context()
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


class Calls:
    """Object that pickles as a call of an arbitrary function."""

    def __init__(self, *call):
        self.call = call

    def __reduce__(self):
        return self.call[0], self.call[1:]


def write_payload(path, payload):
    header = {"format": FORMAT, "version": VERSION, "class": "a:B", "id": "0" * 32}
    header |= {"bytes": len(payload), "sha256": hashlib.sha256(payload).hexdigest()}
    path.write_bytes(json.dumps(header).encode() + b"\n" + payload)


HOSTILE = {
    "system": lambda file: Calls(os.system, f"touch {file}"),
    "eval": lambda file: Calls(eval, f"open({str(file)!r}, 'w')"),
    "exec": lambda file: Calls(exec, f"open({str(file)!r}, 'w')"),
    "open": lambda file: Calls(open, str(file), "w"),
    "getattr of a class": lambda file: Calls(getattr, Agent, "load"),
    "import": lambda file: Calls(importlib.import_module, "antigravity"),
    "partial": lambda file: Calls(functools.partial(os.system, f"touch {file}")),
    "foreign class": lambda file: Calls(subprocess.Popen, ["touch", str(file)]),
    "our function": lambda file: Calls(write_whole, file, b"text"),
    "numpy function": lambda file: Calls(np.save, str(file), 1.0),
    "hidden in an agent": lambda file: {"agent": make_agent("lin-ts"), 1: Calls(os.system, "true")},
}


@pytest.mark.parametrize("what", HOSTILE)
def test_untrusted_files_run_no_code(tmp_path, what):
    file, path = tmp_path / "made", tmp_path / "agent.ckpt"
    write_payload(path, pickle.dumps(HOSTILE[what](file), protocol=5))
    with pytest.raises(CheckpointError, match=r"cannot be restored: it asks for"):
        Agent.load(path)
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize(
    "name",
    [
        "dpb_gym.agent\nos",
        "dpb_gym.agent\nos.system",
        "dpb_gym.agent\nAgent.load",
        "dpb_gym.agent\nkind_of",
        "dpb_gym.agent\nAny",
        "dpb_gym.files\nPath",
        "dpb_gym.local_privacy\nfill_normals",
        "builtins\n__import__",
        "pickle\nUnpickler",
        "no_such_module\nClass",
        "dpb_gym.privacy.no_such\nClass",
    ],
)
def test_pickled_names_resolve_to_known_classes_only(tmp_path, name):
    path = tmp_path / "agent.ckpt"
    write_payload(path, b"\x80\x04c" + name.encode() + b"\n.")
    with pytest.raises(CheckpointError, match="cannot be restored"):
        Agent.load(path)


def test_data_without_an_agent_are_rejected(tmp_path):
    path = tmp_path / "agent.ckpt"
    write_payload(path, pickle.dumps({1: 2}))
    with pytest.raises(CheckpointError, match="holds no agent"):
        Agent.load(path)


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
