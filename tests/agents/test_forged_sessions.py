"""Forged sessions: each field changed, with a right hash, changes no privacy of any session."""

from __future__ import annotations

import hashlib
import json
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import dpb_gym
from dpb_gym.errors import CheckpointError, DPBError
from dpb_gym.feedback import LocalMechanism
from dpb_gym.privacy import Curator, NoiseSource
from dpb_gym.privacy.releasers.correlated_noise import Mechanism
from dpb_gym.privacy.releasers.releaser import behind
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
    "copies": ("reference-one-pass-pricing", "rho=1", "DPB/Pricing-v0", {}),
    "messages": ("local-reward-lin-ts", "rho=1", "DPB/Recommendation-v0", {}),
    "exact": ("one-pass-pricing", None, "DPB/Pricing-v0", {}),
}


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
    """Write a file with a right hash, and an id of its own."""
    payload = json.dumps(document).encode() + b"\n" + data
    header = header | {
        "bytes": len(payload),
        "sha256": hashlib.sha256(payload).hexdigest(),
        "id": os.urandom(16).hex(),
    }
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
                if isinstance(value, (Mechanism, LocalMechanism)):
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
    found = {}
    for name, module in list(sys.modules.items()):
        if name.partition(".")[0] in ("dpb_gym", "dpb_agents"):
            found[name] = dict(vars(module))
            for value in list(vars(module).values()):
                if isinstance(value, type) and value.__module__ == name:
                    found[f"{name}:{value.__qualname__}"] = dict(vars(value))
    return found


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


def second_releaser(document: Any) -> Any:
    """A releaser that no curator has charged, which the agent uses."""
    releaser = json.loads(json.dumps(at(document, RELEASER[:-2])))
    releaser["object"][1] |= {"_sigma": 1e-9, "_noise": None}
    handle = {"object": [at(document, RELEASER[:-4])[0], {"releaser": releaser}]}
    return put(document, AGENT, {**at(document, AGENT), "sums": handle})


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
    return put(document, [*AGENT, "ratio"], 3.0)


FORGERIES = [less_noise, more_budget, no_budget, second_releaser, quiet_noise, uncharged,
             of_the_class, another_agent]  # fmt: skip


@pytest.mark.parametrize("forge", FORGERIES, ids=lambda forge: forge.__name__)
def test_forgeries_that_fit_together_are_refused(tmp_path: Path, forge: Any) -> None:
    saved(tmp_path / "session", "curator")
    header, document, data = split(tmp_path / "session")
    write(tmp_path / "forged", header, forge(document), data)
    with pytest.raises(CheckpointError):
        Session.load(tmp_path / "forged")
    write(tmp_path / "forged", header, document, data)
    Session.load(tmp_path / "forged")


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
