"""Checkpoints: a resumed run is the uninterrupted one, and no checkpoint serves twice."""

from __future__ import annotations

import json

import numpy as np
import pytest

import dpb_gym
from dpb_gym.agent import Agent, agent_specs, make_agent
from dpb_gym.errors import AgentError, CheckpointError
from dpb_gym.privacy import Budget
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
        if ours and not spec.uses_oracle and not name.startswith("sb3-"):
            for kind in spec.supports:
                yield name, kind


def start(name, kind, rounds=700):
    env_id, kwargs = ENVIRONMENTS[kind]
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
def test_a_resumed_run_is_the_uninterrupted_one(name, kind, tmp_path):
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


def test_the_ledger_survives_and_nothing_is_regained(tmp_path):
    agent, path = saved(tmp_path)
    resumed = Agent.load(path)
    ours, theirs = resumed.curator.ledger, agent.curator.ledger
    assert ours.spent == theirs.spent > 0 and ours.remaining == theirs.remaining
    assert str(resumed.curator.guarantee) == str(agent.curator.guarantee)
    assert resumed.curator.guarantee.private


def test_a_checkpoint_is_spent_by_loading_it(tmp_path):
    _, path = saved(tmp_path)
    Agent.load(path)
    with pytest.raises(CheckpointError, match="loaded before"):
        Agent.load(path)
    again = Agent.load(path, rehearsal=True)
    assert not again.curator.guarantee.private


def test_a_new_checkpoint_at_the_same_place_is_fresh(tmp_path):
    agent, path = saved(tmp_path)
    Agent.load(path)
    agent.save(path)
    assert Agent.load(path).curator.guarantee.private


def test_agents_without_a_ledger_load_as_often_as_you_like(tmp_path):
    _, path = saved(tmp_path, "lin-ts")
    assert Agent.load(path) is not Agent.load(path)
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("damage", ["cut", "flip", "empty", "text", "version", "missing"])
def test_damaged_checkpoints_are_refused(tmp_path, damage):
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


def test_what_cannot_be_saved_says_so_and_keeps_the_old_file(tmp_path):
    agent, path = saved(tmp_path, "lin-ts")
    before = path.read_bytes()
    agent.extra = lambda: None
    with pytest.raises(AgentError, match="cannot be saved"):
        agent.save(path)
    assert path.read_bytes() == before
    del agent.extra
    with pytest.raises(CheckpointError, match="cannot write"):
        agent.save(tmp_path / "no" / "folder.ckpt")
