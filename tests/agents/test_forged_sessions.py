"""Forged sessions: each field changed, with a right hash, changes no privacy of any session."""

from __future__ import annotations

import copy
import hashlib
import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import dpb_gym
from dpb_gym import state
from dpb_gym.agent import Agent
from dpb_gym.errors import CheckpointError, DPBError
from dpb_gym.feedback import LocalMechanism
from dpb_gym.privacy import Curator, NoiseSource
from dpb_gym.privacy.generations import Lease, digest_of_file
from dpb_gym.privacy.releasers.correlated_noise import CorrelatedNoise
from dpb_gym.privacy.releasers.releaser import Handle, behind
from dpb_gym.registry import make_agent
from dpb_gym.serving import Session, serve

CASES = {
    "curator": ("one-pass-pricing", "rho=1", "DPB/Pricing-v0", {}),
    "epsilon": ("one-pass-pricing", "eps=1,delta=1e-6", "DPB/Pricing-v0", {}),
    "local": ("one-pass-pricing", "rho=1@local", "DPB/Pricing-v0", {}),
    "shuffler": ("one-pass-pricing", "rho=1@shuffler", "DPB/Pricing-v0", {}),
    "aggregator": ("one-pass-pricing", "rho=1@aggregator", "DPB/Pricing-v0", {}),
    "system": ("one-pass-pricing", "rho=1", "DPB/Pricing-v0", {"noise": "system"}),
    "batches": ("adaprivate-ts", "rho=1", "DPB/Recommendation-v0", {}),
    "minimiser": ("private-pricing", "rho=1", "DPB/Pricing-v0", {}),
    "tree": ("jdp-lin-ucb", "rho=1", "DPB/Recommendation-v0", {"noise": "system"}),
    "copies": ("forged-copies", "rho=1", "DPB/Recommendation-v0", {}),
    "messages": ("local-reward-lin-ts", "rho=1", "DPB/Recommendation-v0", {}),
    "exact": ("one-pass-pricing", None, "DPB/Pricing-v0", {}),
}


@dpb_gym.register_agent(
    "forged-copies", supports=["recommendation"], protects=("central", "reward"), budget="required"
)
class Copies(dpb_gym.SingleAgent):
    """Greedy on noisy sums of batches: a curator of its own for each replicate."""

    def begin(self) -> None:
        self.sums = self.curator.batch_sum(
            self.problem.dim, reward=self.problem.reward_range, cumulative=True
        )
        self.A = np.eye(self.problem.dim)
        self.b = np.zeros(self.problem.dim)
        self.count = 0

    def act(self, context: Any) -> int:
        return int((context.features @ np.linalg.solve(self.A, self.b)).argmax())

    def observe(self, context: Any, action: int, feedback: Any) -> None:
        x = context.features[action].astype(float)
        self.A = self.A + np.outer(x, x)
        self.sums.add(feedback.reward, along=x)
        self.count += 1
        if self.count % 8 == 0:
            self.b = self.sums.release()


def saved(path: Path, case: str) -> Session:
    """Save a session after a few decisions to `path` and return it as it was loaded again."""
    name, budget, environment, options = CASES[case]
    if options.get("noise") == "system":
        pytest.importorskip("opendp")
    problem = dpb_gym.make_problem(environment, horizon=60, **SMALL.get(environment, {}))
    options = {"noise": "seeded", "seed": 1, "warm": False} | options
    session = serve(name, budget, problem, **options)
    instance = problem.instance([3])
    for _ in range(20):
        context = instance.context()
        given = {} if context.arms is None else {"arms": context.arms[0]}
        if problem.info.max_interactions is not None:
            given["user"] = int(context.users[0])
        number, _ = session.decide(context.features[0], **given)
        session.observe(number, 1.0)
        instance.respond(session._state["came"][-1][1])
        instance.advance()
    session.decide(context.features[0], **given)
    session.save(path)
    return Session.load(path)


AGENT = ["value", "object", 1]
SMALL = {"DPB/Recommendation-v0": {"n_candidates": 3, "dim": 2}}


def split(path: Path) -> tuple[dict[str, Any], dict[str, Any], bytes]:
    """Return the header of a session's file, the JSON of its state, and the data of its arrays."""
    header, line, data = path.read_bytes().split(b"\n", 2)
    return json.loads(header), json.loads(line), data


def write(path: Path, header: dict[str, Any], document: Any, data: bytes) -> None:
    """Write a file with a right hash, as by somebody who can write the state directory, too."""
    payload = json.dumps(document).encode() + b"\n" + data
    header = header | {"bytes": len(payload), "sha256": hashlib.sha256(payload).hexdigest()}
    header.setdefault("key", "any")
    own = Lease().enter()
    token = Lease().confirm(own, digest_of_file(header["key"], header["sha256"]))
    header |= {"id": own.id, "generation": 1, "token": token}
    path.write_bytes(json.dumps(header).encode() + b"\n" + payload)


def others(value: Any) -> list[Any]:
    """Return other values of a field."""
    if isinstance(value, bool):
        return [not value]
    if isinstance(value, int):
        return [value + 1, 0 if value else -1, 7 * value + 3]
    if isinstance(value, float):
        return [0.5 * value, 1e-9, -value]
    if isinstance(value, str):
        return [f"{value}1", "0x1", ""]
    return [1.5]


def changes(content: Any) -> Iterator[tuple[list[Any], Any]]:
    """Yield places of a document with other values, one for each kind of change."""
    waiting: list[tuple[list[Any], Any]] = [([], content)]
    while waiting:
        path, value = waiting.pop()
        if isinstance(value, dict):
            waiting += [([*path, key], each) for key, each in value.items()]
            for key in value:
                yield path, {k: v for k, v in value.items() if k != key}
            if path and path[-1] == 1:  # attributes of an object
                yield path, {**value, "_sigma": 1e-9}
        elif isinstance(value, list):
            waiting += [([*path, number], each) for number, each in enumerate(value)]
            if value:
                yield path, value[:-1]
                yield path, [*value, value[0]]
        else:
            yield from ((path, other) for other in others(value))


def put(content: Any, path: list[Any], value: Any) -> Any:
    """Return a copy of a document with another value at a place."""
    if not path:
        return value
    copied = dict(content) if isinstance(content, dict) else list(content)
    copied[path[0]] = put(content[path[0]], path[1:], value)
    return copied


def plans(agent: Any) -> str:
    """Return a text of everything that decides how much noise an agent's releases have."""
    texts = []
    curators = [agent.curator, *agent.curator.parts.values()]
    for curator in curators:
        texts.append(f"{curator.budget} {curator.notion} {curator.unit} {type(curator.noise)}")
        for releaser in map(behind, curator.releasers):
            names = "rho _sigma sensitivity clip horizon grid gain _radius least_weight law every"
            names += " steps sampling levels batch _plan _bits_sent _mechanism mechanism max_calls"
            names += " dropout per_record pure refuses_long records_per_unit _printed"
            for name in names.split():
                value = getattr(releaser, name, None)
                if isinstance(value, (CorrelatedNoise, LocalMechanism)):
                    value = {
                        k: v for k, v in vars(value).items() if k in ("gain", "event", "sigma")
                    }
                texts.append(f"{name}={value!r}")
            schedule = getattr(releaser, "_schedule", None)
            texts.append("" if schedule is None else f"{schedule.ends} {schedule.weights}")
    return "\n".join(texts)


def new_noise() -> tuple[float, str]:
    curator = Curator("rho=0.5", noise=NoiseSource.from_seed(0), horizon=10)
    sums = curator.batch_sum(3, clip=1.0)
    return sums.sigma, str(curator.guarantee)


def contents() -> dict[str, dict[str, Any]]:
    """Return the attributes of every module and class of the library."""
    attributes = {}
    for name, module in list(sys.modules.items()):
        if name.partition(".")[0] in ("dpb_gym", "dpb_agents"):
            attributes[name] = dict(vars(module))
            for value in list(vars(module).values()):
                if isinstance(value, type) and value.__module__ == name:
                    attributes[f"{name}:{value.__qualname__}"] = dict(vars(value))
    return attributes


def forge_all(tmp_path: Path, case: str, every: int) -> tuple[int, int]:
    """Check forged files of a session; return how many were refused, and how many loaded."""
    original = saved(tmp_path / "session", case)
    header, document, data = split(tmp_path / "session")
    guarantee, plan = str(original.guarantee), plans(original.agent)
    noise, before = new_noise(), contents()
    refused = loaded = 0
    file = tmp_path / "forged"
    for number, (path, value) in enumerate(changes(document)):
        if number % every:
            continue
        forged = put(document, path, value)
        write(file, header, forged, data)
        try:
            session = Session.load(file)
        except DPBError as error:
            assert isinstance(error, CheckpointError), (path, value, error)
            refused += 1
        else:
            assert str(session.guarantee) == guarantee, (path, value)
            assert session.guarantee is None or plans(session.agent) == plan, (path, value)
            loaded += 1
        assert new_noise() == noise, (path, value)
    allowed = {"session", "forged"}
    made = {name.partition(".")[0] for name in os.listdir(tmp_path)}
    assert made == allowed
    after = contents()
    for name, content in before.items():
        changed = [key for key, each in content.items() if after[name].get(key) is not each]
        assert set(changed) <= {"_abc_impl"}, (name, changed)
    return refused, loaded


@pytest.mark.slow
@pytest.mark.parametrize("case", CASES)
def test_a_forged_field_changes_no_guarantee_noise_or_budget(tmp_path: Path, case: str) -> None:
    refused, loaded = forge_all(tmp_path, case, every=23)
    assert refused > 20 and loaded > 5


@pytest.mark.slow
@pytest.mark.parametrize("case", ["system", "tree", "batches"])
def test_no_forged_field_changes_guarantee_noise_or_budget(tmp_path: Path, case: str) -> None:
    refused, loaded = forge_all(tmp_path, case, every=1)
    assert refused > 500 and loaded > 100


RELEASER = [*AGENT, "curator", "object", 1, "releasers", 0, "object", 1, "releaser", "object", 1]
LEDGER = [*AGENT, "curator", "object", 1, "ledger", "object", 1]
EVENT = [*LEDGER, "entries", 0, "object", 1, "event", "object", 1]
SESSION = [*AGENT, "_session", "dict"]


def at(content: Any, path: list[Any]) -> Any:
    for key in path:
        content = content[key]
    return content


def session_field(document: Any, name: str) -> list[Any]:
    """Return the place of a field of the session."""
    names = [pair[0] for pair in at(document, SESSION)]
    return [*SESSION, names.index(name), 1]


def less_noise(document: Any) -> Any:
    """A thousandth of the noise, with the sensitivity and the charge that belong to it."""
    for path in ([*RELEASER, "sensitivity"], [*RELEASER, "_sigma"], [*EVENT, "sigma"],
                 [*EVENT, "sensitivity"]):  # fmt: skip
        document = put(document, path, 1e-3 * at(document, path))
    return document


def more_budget(document: Any) -> Any:
    """A larger budget in all places."""
    text = json.dumps(document)
    assert '"rho": 1.0' in text and '"rho=1"' in text
    return json.loads(text.replace('"rho": 1.0', '"rho": 9.0').replace('"rho=1"', '"rho=9"'))


def no_budget(document: Any) -> Any:
    """No budget and no charge, in all places."""
    for path in ([*AGENT, "curator", "object", 1, "budget"], [*LEDGER, "budget"]):
        document = put(document, path, None)
    facts = session_field(document, "facts")
    text = json.dumps(at(document, facts)).replace('"rho=1"', "null")
    return put(put(document, facts, json.loads(text)), [*LEDGER, "entries"], [])


def quiet_noise(document: Any) -> Any:
    """Noise of a class that divides it."""
    noise = {**at(document, [*RELEASER, "_noise", "object", 1]), "factor": 1e-9}
    quiet = {"object": ["dpb_gym.privacy.noise:QuietNoise", noise]}
    return put(document, [*RELEASER, "_noise"], quiet)


def uncharged(document: Any) -> Any:
    """A ledger with a charge of nothing."""
    return put(document, [*EVENT, "sigma"], 1e9)


def of_the_class(document: Any) -> Any:
    """An attribute in the place of a method."""
    return put(document, RELEASER, {**at(document, RELEASER), "ready": True})


def another_agent(document: Any) -> Any:
    """An agent of other parameters, whose plan has other scales."""
    return put(document, [*AGENT, "algorithm", "object", 1, "first"], 3.0)


def charged_twice(document: Any) -> Any:
    """A second charge, as if it had been planned."""
    entries = at(document, [*LEDGER, "entries"])
    return put(document, [*LEDGER, "entries"], entries * 2)


def negative_count(document: Any) -> Any:
    """Fewer records than none, so that more releases follow."""
    return put(document, [*RELEASER, "rounds"], -5)


def another_shape(document: Any) -> Any:
    """Raw sums of another shape, which compiled code would write beyond."""
    shape = [*RELEASER, "_total", "array", "shape"]
    return put(document, shape, at(document, shape)[::-1])


def another_statement(document: Any) -> Any:
    """A session that states another budget than its agent has."""
    facts = session_field(document, "facts")
    text = json.dumps(at(document, facts)).replace('"rho=1"', '"rho=0.1"')
    return put(document, facts, json.loads(text))


def another_generator(document: Any) -> Any:
    """A session that states noise of the operating system, but has seeded noise."""
    facts = session_field(document, "facts")
    text = json.dumps(at(document, facts)).replace("seeded", "system")
    return put(document, facts, json.loads(text))


FORGERIES = {
    less_noise: r"is 0\.\d+, but .* follows from budget and plan",
    more_budget: "follows from budget and plan",
    no_budget: "noise without a budget",
    quiet_noise: "no registered class",
    uncharged: "follows from budget and plan",
    charged_twice: "entries is .* follows from budget and plan",
    of_the_class: "'ready' is of the class",
    another_agent: "follows from budget and plan",
    negative_count: "rounds is -5; a count is at least 0",
    another_shape: "expected float64",
    another_statement: "states the budget 'rho=0.1'",
    another_generator: "states the generator 'system'",
}


@pytest.mark.parametrize("forge", FORGERIES, ids=lambda forge: forge.__name__)
def test_forgeries_that_fit_together_are_refused(tmp_path: Path, forge: Any) -> None:
    saved(tmp_path / "session", "curator")
    header, document, data = split(tmp_path / "session")
    write(tmp_path / "forged", header, forge(document), data)
    with pytest.raises(CheckpointError, match=FORGERIES[forge]):
        Session.load(tmp_path / "forged")
    write(tmp_path / "forged", header, document, data)
    Session.load(tmp_path / "forged")


def arrays(content: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[tuple[Any, ...], Any]]:
    """Yield the places and descriptions of arrays, in the order of their data."""
    if isinstance(content, dict) and "array" in content:
        yield path, content["array"]
        return
    if isinstance(content, (dict, list)):
        pairs = content.items() if isinstance(content, dict) else enumerate(content)
        for key, value in pairs:
            yield from arrays(value, (*path, key))


@pytest.mark.slow
@pytest.mark.parametrize("case", ["curator", "aggregator", "minimiser", "tree", "batches"])
def test_forged_arrays_change_no_plan(tmp_path: Path, case: str) -> None:
    original = saved(tmp_path / "session", case)
    header, document, data = split(tmp_path / "session")
    plan, start, refused = plans(original.agent), 0, set()
    for path, array in arrays(document):
        dtype, count = np.dtype(array["dtype"]), int(np.prod(array["shape"], dtype=int))
        end = start + dtype.itemsize * count
        values = np.frombuffer(data[start:end], dtype)
        for forged in (values * 0.5, values - 1, values + 1):
            changed = data[:start] + forged.astype(dtype).tobytes() + data[end:]
            if changed == data:
                continue
            write(tmp_path / "forged", header, document, changed)
            try:
                session = Session.load(tmp_path / "forged")
            except CheckpointError:
                refused.add(path[-1])
                continue
            assert plans(session.agent) == plan, path
            assert not {"ends", "weights", "theta"} & {path[-1]} or "releasers" not in path, path
        start = end
    assert start == len(data)
    expected = {
        "curator": {"ends", "weights", "scales", "clipped_count"},
        "aggregator": {"ends", "weights", "clipped_count"},
        "minimiser": {"theta", "omega", "calls", "clipped_count"},
        "tree": {"clipped_count"},
        "batches": {"clipped_count"},
    }
    assert expected[case] <= refused


class TwoSums(Agent):
    """An agent with two equal releasers and an agent without a budget."""

    protects = ("central", "reward")

    def begin(self, problem: Any, streams: Any, curator: Curator) -> None:
        self.one, self.other = (curator.batch_sum(2, clip=1.0) for _ in range(2))
        self.inner = [make_agent("greedy-pricing")]
        self.inner[0].set_up(problem, streams)

    def act(self, context: Any) -> Any:
        return np.full(len(context.features), 0.5)

    def observe(self, context: Any, action: Any, feedback: Any) -> None:
        self.one.add(context.features)


def spare_releaser(agent: Any) -> None:
    """A releaser with little noise, which no curator has charged."""
    releaser = copy.copy(behind(agent.one))
    releaser._sigma = 1e-9
    agent.one = Handle(releaser)


def the_same_twice(agent: Any) -> None:
    agent.curator.releasers[1] = agent.other = agent.one


def no_inner_curator(agent: Any) -> None:
    agent.inner[0].curator = None


def inner_releaser(agent: Any) -> None:
    """The curator without a budget in the place of that with one."""
    behind(agent.one).curator = agent.inner[0].curator


OBJECTS = {
    spare_releaser: "none of those that `begin` makes",
    the_same_twice: "another Sum than planned",
    no_inner_curator: "curator in one of the two only",
    inner_releaser: "follows from budget and plan|another Curator than planned",
}


@pytest.mark.parametrize("forge", OBJECTS, ids=lambda forge: forge.__name__)
def test_objects_in_the_place_of_others_are_refused(tmp_path: Path, forge: Any) -> None:
    problem = dpb_gym.make_problem("DPB/Pricing-v0", horizon=60)
    serve(TwoSums, "rho=1", problem, noise="seeded").save(tmp_path / "session")
    header, _, payload = (tmp_path / "session").read_bytes().partition(b"\n")
    agent = state.loads(payload)
    forge(agent)
    line, _, data = state.dumps(agent).partition(b"\n")
    write(tmp_path / "forged", json.loads(header), json.loads(line), data)
    with pytest.raises(CheckpointError, match=OBJECTS[forge]):
        Session.load(tmp_path / "forged")
    Session.load(tmp_path / "session")


@pytest.mark.parametrize("name", ["new.db", "text.txt", "folder", "\0", "text.txt/x"])
def test_a_forged_account_opens_no_file(tmp_path: Path, name: str) -> None:
    saved(tmp_path / "session", "curator")
    header, document, data = split(tmp_path / "session")
    (tmp_path / "text.txt").write_text("format of another program")
    (tmp_path / "folder").mkdir()
    before = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")}
    forged = put(document, session_field(document, "account"), str(tmp_path / name))
    write(tmp_path / "forged", header, forged, data)
    before[tmp_path / "forged"] = (tmp_path / "forged").stat().st_mtime_ns
    with pytest.raises(CheckpointError, match="account"):
        Session.load(tmp_path / "forged")
    assert {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*")} == before
