"""A saved session or agent is continued once: copies, forks, accounts and state directories."""

from __future__ import annotations

import contextlib
import copy
import hashlib
import json
import os
import shutil
import sqlite3
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import dpb_gym
from dpb_gym import state
from dpb_gym.agent import Agent
from dpb_gym.customer_rounds import locked
from dpb_gym.devices import Device
from dpb_gym.errors import AgentError, CheckpointError, DPBError
from dpb_gym.privacy import Account
from dpb_gym.privacy.generations import Saved, digest_of_file
from dpb_gym.privacy.releasers.releaser import behind
from dpb_gym.problems.rounds import ProblemInfo
from dpb_gym.registry import agent_specs, make_agent
from dpb_gym.streams import AgentStreams
from tests.children import error_of, in_child

PRICES = ProblemInfo("pricing", 400, 2, (0.0, 1.0), demand="logistic", zeta=4.0)
KEY = bytes(range(32))
HOLDERS = ("state directory", "account", "account with a key")


class Shop:
    """A folder with sessions, and their account or state directory."""

    def __init__(self, folder: Path, holder: str) -> None:
        self.folder = folder
        self.account = None
        self.given: dict[str, Any] = {"state_dir": folder / "state"}
        if holder != "state directory":
            key = KEY if "key" in holder else None
            self.account = Account(folder / "people", "rho=20", key=key)
            self.given = {} if key is None else {"account": self.account}

    def serve(self, **options: Any) -> dpb_gym.serving.Session:
        options = {"noise": "seeded", "seed": 4, "warm": False, "account": self.account} | options
        if self.account is None:
            options["state_dir"] = self.folder / "state"
        return dpb_gym.serve("one-pass-pricing", "rho=5", PRICES, **options)

    def load(self, path: Path, **options: Any) -> dpb_gym.serving.Session:
        return dpb_gym.Session.load(path, **self.given | options)

    def saved(self) -> Path:
        session = self.serve()
        sell(session, 30)
        session.save(self.folder / "session")
        return self.folder / "session"


@pytest.fixture(params=HOLDERS)
def shop(request: Any, tmp_path: Path) -> Shop:
    return Shop(tmp_path, request.param)


def sell(session: Any, rounds: int, first: int = 0) -> list[float]:
    """Serve customers who buy below 0.4, and return the prices."""
    prices = []
    for t in range(first, first + rounds):
        number, price = session.decide([(-1.0) ** t], user=t % 7)
        prices.append(price)
        session.observe(number, int(price < 0.4))
    return prices


def files(folder: Path) -> dict[str, bytes]:
    """Return the content of all files but SQLite's log of an account that is open."""
    return {
        str(file.relative_to(folder)): file.read_bytes()
        for file in folder.rglob("*")
        if file.is_file() and not file.name.endswith(("-wal", "-shm"))
    }


def copied(path: Path) -> Path:
    return Path(shutil.copy(path, path.with_name("copy")))


def linked(path: Path) -> Path:
    os.link(path, path.with_name("link"))
    return path.with_name("link")


def in_another_folder(path: Path) -> Path:
    other = path.parent / "other"
    other.mkdir()
    return Path(shutil.copy(path, other))


WAYS = {"same": lambda path: path, "copied": copied, "linked": linked, "folder": in_another_folder}


@pytest.mark.parametrize("way", WAYS)
def test_of_a_file_and_its_copy_the_first_goes_on(shop: Shop, way: str) -> None:
    path = shop.saved()
    other = WAYS[way](path)
    session = shop.load(path)
    for _ in range(2):
        with pytest.raises(CheckpointError, match=r"loaded before: the file has generation 1, and"):
            shop.load(other)
    assert session.guarantee.private
    sell(session, 30)
    with pytest.raises(CheckpointError, match="loaded before"):
        shop.load(other)


def test_a_renamed_or_restored_file_goes_on_once(shop: Shop) -> None:
    path = shop.saved()
    backup = path.read_bytes()
    path.rename(path.with_name("renamed"))
    session = shop.load(path.with_name("renamed"))
    path.write_bytes(backup)
    with pytest.raises(CheckpointError, match="loaded before"):
        shop.load(path)
    sell(session, 30)
    session.save(path)
    newest = path.read_bytes()
    path.write_bytes(backup)
    with pytest.raises(CheckpointError, match=r"has generation 1, and .* has 2"):
        shop.load(path)
    path.write_bytes(newest)
    assert shop.load(path).decisions == 60


@pytest.mark.parametrize("holder", HOLDERS)
def test_the_numbers_are_those_of_an_uninterrupted_session(tmp_path: Path, holder: str) -> None:
    shops = []
    for name in ("whole", "parts"):
        (tmp_path / name).mkdir()
        shops.append(Shop(tmp_path / name, holder))
    whole = sell(shops[0].serve(), 90)
    session = shops[1].serve()
    prices: list[float] = []
    for n, rounds in enumerate((29, 21, 20, 20)):
        prices += sell(session, rounds, first=len(prices))
        session.save(shops[1].folder / str(n))
        session = shops[1].load(shops[1].folder / str(n))
    assert prices == whole


@pytest.mark.parametrize("change", ["generation", "token", "id", "holder", "lost"])
def test_a_forged_header_is_refused(shop: Shop, change: str) -> None:
    path = shop.saved()
    old = path.read_bytes()
    session = shop.load(path)
    session.save(path)
    newest = json.loads(path.read_bytes().partition(b"\n")[0])
    assert newest["generation"] == 2
    line, _, payload = old.partition(b"\n")
    header = json.loads(line)
    if change == "lost":
        del header["id"]
    elif change == "holder":
        header["holder"] = {"account": "state directory", "state directory": "account"}[
            header["holder"]
        ]
    else:
        header[change] = newest[change] if change != "id" else "0" * 32
    forged = path.with_name("forged")
    forged.write_bytes(json.dumps(header).encode() + b"\n" + payload)
    before = files(shop.folder)
    refusals = "loaded before|no record|no account|header (has )?no|header is that of another file"
    with pytest.raises(CheckpointError, match=refusals):
        shop.load(forged)
    assert files(shop.folder) == before
    assert shop.load(path).decisions == 30


def forge(path: Path, change: Any) -> Path:
    """Write a file whose session's state was changed, with a right hash."""
    line, _, payload = path.read_bytes().partition(b"\n")
    agent = state.loads(payload)
    change(vars(agent)["_session"])
    payload = state.dumps(agent)
    header = json.loads(line) | {
        "bytes": len(payload),
        "sha256": hashlib.sha256(payload).hexdigest(),
    }
    forged = path.with_name("forged")
    forged.write_bytes(json.dumps(header).encode() + b"\n" + payload)
    return forged


def test_a_path_in_a_file_makes_and_opens_nothing(tmp_path: Path) -> None:
    shop = Shop(tmp_path, "account")
    path = shop.saved()
    other = Account(tmp_path / "other", "rho=1000")
    other.close()
    (tmp_path / "text").write_text("text")
    for named in ("new", "other", "text", ".", "no/such", "postgresql://host/name", ""):
        name = named if "://" in named or not named else str(tmp_path / named)
        forged = forge(path, lambda session, name=name: session.update(account=name))
        before = files(tmp_path)
        with pytest.raises(CheckpointError, match=r"no account .* holds this session"):
            dpb_gym.Session.load(forged)
        assert files(tmp_path) == before
    forged = forge(path, lambda session: session.update(account=None))
    with pytest.raises(CheckpointError, match="no account"):
        dpb_gym.Session.load(forged)
    forged = forge(path, lambda session: session.update(persons=[3]))
    with pytest.raises(CheckpointError, match="no text for a name"):
        dpb_gym.Session.load(forged)
    assert dpb_gym.Session.load(path).account.path == tmp_path / "people"


def test_an_account_that_moved_is_given(tmp_path: Path) -> None:
    shop = Shop(tmp_path, "account")
    path = shop.saved()
    shop.account.close()
    (tmp_path / "people").rename(tmp_path / "moved")
    with pytest.raises(CheckpointError, match=r"holds this session. Give account="):
        dpb_gym.Session.load(path)
    wrong = Account(tmp_path / "wrong", "rho=20")
    with pytest.raises(CheckpointError, match="no record of this session"):
        dpb_gym.Session.load(path, account=wrong)
    session = dpb_gym.Session.load(path, account=Account(tmp_path / "moved"))
    session.save(path)
    assert dpb_gym.Session.load(path).account.path == tmp_path / "moved"


def test_an_account_with_a_key_is_given(tmp_path: Path) -> None:
    shop = Shop(tmp_path, "account with a key")
    path = shop.saved()
    with pytest.raises(CheckpointError, match=r"Give account=.*if it has a key"):
        dpb_gym.Session.load(path)
    assert shop.load(path).account is shop.account
    plain = Shop(tmp_path / "plain", "state directory")
    plain.folder.mkdir()
    with pytest.raises(CheckpointError, match="this session has no account"):
        plain.load(plain.saved(), account=shop.account)


def test_session_files_of_an_account_with_a_key_have_no_text_of_a_customer(tmp_path: Path) -> None:
    shop = Shop(tmp_path, "account with a key")
    session = shop.serve()
    for name in ("ana@shop.example", "bob@shop.example", "ana@shop.example"):
        number, _ = session.decide([0.5], user=name)
        session.observe(number, 1)
    session.save(tmp_path / "session")
    assert b"shop.example" not in (tmp_path / "session").read_bytes()
    again = shop.load(tmp_path / "session")
    again.decide([0.5], user="bob@shop.example")
    assert [shop.account.spent(f"{name}@shop.example") for name in ("ana", "bob")] == [
        pytest.approx(20.0),
        pytest.approx(5.0),
    ]
    assert again._state["open"][4][0].users.tolist() == [1]


def test_a_forged_or_old_file_cannot_undercharge(tmp_path: Path) -> None:
    """The counts of records are the account's: a second record costs three times the first."""
    shop = Shop(tmp_path, "account")
    session = shop.serve()
    session.observe(session.decide([0.5], user=3)[0], 1)
    session.decide([0.5], user=1)
    session.save(tmp_path / "session")
    forged = forge(tmp_path / "session", lambda session: session.update(charged=0))
    with pytest.raises(CheckpointError, match="its content was changed"):
        shop.load(forged)
    again = shop.load(tmp_path / "session")
    again.observe(again.decide([0.5], user=3)[0], 1)
    again.decide([0.5], user=1)
    assert shop.account.spent(3) == pytest.approx(20.0)


@pytest.mark.parametrize("keys", [("key",), ()])
@pytest.mark.parametrize("donor", ["session", "older"])
def test_a_header_of_another_file_continues_nothing(
    shop: Shop, donor: str, keys: tuple[str, ...]
) -> None:
    """An id, a generation and a token belong to one content."""
    path = shop.saved()
    line, _, payload = path.read_bytes().partition(b"\n")
    if donor == "session":
        other = shop.serve()
        sell(other, 5)
        other.save(shop.folder / "other")
        newest = (shop.folder / "other").read_bytes().partition(b"\n")[0]
    else:
        session = shop.load(path)
        sell(session, 5)
        session.save(path)
        newest = path.read_bytes().partition(b"\n")[0]
    names = ("id", "generation", "token", "holder", *keys)
    parts = {name: json.loads(newest)[name] for name in names}
    forged = shop.folder / "forged"
    forged.write_bytes(json.dumps(json.loads(line) | parts).encode() + b"\n" + payload)
    with pytest.raises(CheckpointError, match="its header is that of another file"):
        shop.load(forged)
    assert shop.load(path).decisions in (30, 35)


def test_a_file_of_an_earlier_version_has_its_digest_in_its_token(shop: Shop) -> None:
    path = shop.saved()
    line, _, payload = path.read_bytes().partition(b"\n")
    header = json.loads(line)
    token = header["token"][:16] + header["sha256"]
    places = [each for each in shop.folder.rglob("*") if each.is_file()]
    (place,) = [each for each in places if each.read_bytes().startswith(b"SQLite format 3")]
    with contextlib.closing(sqlite3.connect(place)) as table, table:
        table.execute("UPDATE dpb_sessions SET token = ?", (token,))
    del header["key"]
    path.write_bytes(json.dumps(header | {"token": token}).encode() + b"\n" + payload)
    assert shop.load(path).decisions == 30


def test_the_table_says_nothing_of_what_a_file_has(shop: Shop) -> None:
    """Who knows all responses but one could compute the digest of each possible file."""
    path = shop.saved()
    content = path.read_bytes()
    digest = hashlib.sha256(content.partition(b"\n")[2]).hexdigest()
    assert digest.encode() in content
    others = [each for each in shop.folder.rglob("*") if each.is_file() and each != path]
    assert any(each.read_bytes().startswith(b"SQLite format 3") for each in others)
    assert not any(digest.encode() in each.read_bytes() for each in others)
    again = shop.load(path)
    again.save(path)
    assert digest_of_file("one", digest) != digest_of_file("two", digest)
    headers = (each.partition(b"\n")[0] for each in (content, path.read_bytes()))
    assert len({json.loads(header)["key"] for header in headers}) == 2


def test_a_lost_or_other_state_directory_refuses(tmp_path: Path) -> None:
    shop = Shop(tmp_path, "state directory")
    path = shop.saved()
    for other in ({"state_dir": tmp_path / "none"}, {"state_dir": None}):
        before = files(tmp_path)
        with pytest.raises(CheckpointError, match=r"has no record of .* session.*state"):
            dpb_gym.Session.load(path, **other)
        assert files(tmp_path) == before
    kept = tmp_path / "kept"
    (tmp_path / "state").rename(kept)
    with pytest.raises(CheckpointError, match="no record"):
        shop.load(path)
    assert shop.load(path, state_dir=kept).decisions == 30


def test_loading_makes_no_file(shop: Shop) -> None:
    path = shop.saved()
    before = files(shop.folder)
    shop.load(path)
    assert files(shop.folder).keys() == before.keys()


def test_a_file_or_folder_that_cannot_be_written_leaves_the_session_usable(shop: Shop) -> None:
    session = shop.serve()
    sell(session, 20)
    with pytest.raises(CheckpointError, match="cannot write"):
        session.save(shop.folder / "no" / "folder")
    sell(session, 20)
    if shop.account is None:
        (shop.folder / "file").touch()
        session._state_dir = shop.folder / "file"
        session.agent.curator.handed_over = None
        other = shop.serve()
        other._state_dir = shop.folder / "file"
        with pytest.raises(CheckpointError, match=r"cannot be created.*state_dir="):
            other.save(shop.folder / "other")
        assert not (shop.folder / "other").exists()
        sell(other, 5)
        session._state_dir = shop.folder / "state"
    session.save(shop.folder / "session")
    assert shop.load(shop.folder / "session").decisions == 40


def test_a_call_on_a_saved_session_leaves_its_file_the_newest(shop: Shop) -> None:
    session = shop.serve()
    sell(session, 30)
    session.save(shop.folder / "session")
    uses: tuple[Any, ...] = (
        session.confirm,
        session.snapshot,
        lambda: session.decide([1.0], user=1),
        lambda: session.save(shop.folder / "other"),
    )
    for use in uses:
        with pytest.raises(AgentError, match="handed over"):
            use()
    session.certificate()
    sell(shop.load(shop.folder / "session"), 10, 30)


def test_a_relative_state_directory_is_that_of_the_start(tmp_path: Path, monkeypatch: Any) -> None:
    options = {"noise": "seeded", "seed": 4, "warm": False, "state_dir": "state"}
    other = tmp_path / "other"
    other.mkdir()
    for number in range(2):
        monkeypatch.chdir(tmp_path)
        if number:
            session = dpb_gym.Session.load(tmp_path / "session", state_dir="state")
        else:
            session = dpb_gym.serve("one-pass-pricing", "rho=5", PRICES, **options)
        sell(session, 3)
        monkeypatch.chdir(other)
        session.save(tmp_path / "session")
    assert os.listdir(other) == [] and (tmp_path / "state").is_dir()


def test_a_rehearsal_has_no_guarantee_and_changes_nothing(shop: Shop) -> None:
    path = shop.saved()
    spent = None if shop.account is None else shop.account.summary()
    for _ in range(2):
        rehearsal = dpb_gym.Session.load(path, rehearsal=True)
        assert rehearsal.account is None and not rehearsal.guarantee.private
        assert "second continuation" in rehearsal.guarantee.basis
        sell(rehearsal, 30)
    rehearsal.save(shop.folder / "rehearsed")
    for _ in range(2):
        again = dpb_gym.Session.load(shop.folder / "rehearsed")
        assert not again.guarantee.private and again.decisions == 60
    assert spent == (None if shop.account is None else shop.account.summary())
    session = shop.load(path)
    assert session.guarantee.private
    with pytest.raises(CheckpointError, match="rehearsal=True loads it without a guarantee"):
        shop.load(path)


def test_the_guarantee_says_where_a_session_continues_once(shop: Shop) -> None:
    session = shop.serve()
    where = "on this machine" if shop.account is None else "by its account"
    for each in (session, reload(shop, session)):
        assert str(each.guarantee).count("a saved session continues once") == 1
        assert where in str(each.guarantee)
        each.certificate().save(shop.folder / "certificate.json")
        assert where in (shop.folder / "certificate.json").read_text()


def reload(shop: Shop, session: Any) -> Any:
    sell(session, 10)
    session.save(shop.folder / "session")
    return shop.load(shop.folder / "session")


def test_a_session_that_was_continued_elsewhere_decides_nothing_more(tmp_path: Path) -> None:
    shop = Shop(tmp_path, "account")
    for silent in (False, True):
        session = shop.serve()
        own = session._charges.own
        releaser = session.agent.curator.releasers[0]
        for _ in range(releaser.schedule.ends[0] - 1):
            number, _ = session.decide([0.5], user=1)
            if not silent:
                session.observe(number, 1)
        token = shop.account.confirm(own)
        shop.account.advance(Saved(own.id, 1, token), session.agent.curator.guarantee)
        made = session.decisions
        with pytest.raises(CheckpointError, match="goes on elsewhere"):
            for _ in range(20):
                number, _ = session.decide([0.5], user=1)
                made += 1
                if not silent:
                    session.observe(number, 1)
        assert session.decisions == made and releaser.releases <= 1
        with pytest.raises(CheckpointError, match="goes on elsewhere"):
            session.save(tmp_path / "session")
        assert not (tmp_path / "session").exists()


LOAD = """
import sys
import dpb_gym
from dpb_gym.errors import CheckpointError
sys.stdin.readline()
try:
    print(dpb_gym.Session.load(sys.argv[1], state_dir=sys.argv[2]).decisions)
except CheckpointError as error:
    print(error)
"""


@pytest.mark.parametrize("holder", HOLDERS[:2])
def test_of_processes_that_load_at_once_one_goes_on(tmp_path: Path, holder: str) -> None:
    shop = Shop(tmp_path, holder)
    path = shop.saved()
    copied(path)
    pipes: Any = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", LOAD, str(tmp_path / name), str(tmp_path / "state")], **pipes
        )
        for name in ("session", "copy")
    ]
    for process in processes:
        assert process.stdin is not None
        process.stdin.write("\n")
        process.stdin.flush()
    answers = [process.communicate()[0] for process in processes]
    assert sorted("loaded before" in answer for answer in answers) == [False, True]
    assert "30\n" in answers
    # both have ended without a save: the session is over
    with pytest.raises(CheckpointError, match="loaded before"):
        shop.load(path)


# ------------------------------------------------------------------ agents without a session


def played(rounds: int = 40) -> tuple[Any, Agent]:
    problem = dpb_gym.make_problem("DPB/Pricing-v0", horizon=400)
    agent = make_agent("one-pass-pricing")
    agent.set_up(problem.info, AgentStreams([4, 5]), dpb_gym.Budget.zcdp(20.0))
    instance = problem.instance([4, 5])
    go_on(instance, agent, rounds)
    return instance, agent


def go_on(instance: Any, agent: Agent, rounds: int) -> None:
    for _ in range(rounds):
        context = locked(instance.context())
        action = agent.act(context)
        agent.observe(context, action, instance.respond(action).feedback)
        instance.advance()


def test_agents_have_generations_too(tmp_path: Path) -> None:
    instance, agent = played()
    given = {"state_dir": tmp_path / "state"}
    agent.save(tmp_path / "agent", **given)
    copied(tmp_path / "agent")
    later = Agent.load(tmp_path / "copy", **given)
    with pytest.raises(CheckpointError, match="loaded before"):
        Agent.load(tmp_path / "agent", **given)
    go_on(instance, later, 20)
    later.save(tmp_path / "agent", **given)
    with pytest.raises(CheckpointError, match="loaded before"):
        Agent.load(tmp_path / "copy", **given)
    with pytest.raises(CheckpointError, match="no record"):
        Agent.load(tmp_path / "agent", state_dir=tmp_path / "other")
    assert Agent.load(tmp_path / "agent", **given).curator.guarantee.private
    assert sorted(file.name for file in tmp_path.iterdir()) == ["agent", "copy", "state"]


def test_the_state_directory_is_the_users_by_default(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setattr(
        "dpb_gym.privacy.generations.state_directory", lambda: tmp_path / "of the user"
    )
    _, agent = played()
    agent.save(tmp_path / "agent")
    assert (tmp_path / "of the user" / "generations.db").exists()
    Agent.load(tmp_path / "agent", state_dir=tmp_path / "of the user")
    session = dpb_gym.serve("one-pass-pricing", "rho=5", PRICES, noise="seeded", warm=False)
    session.save(tmp_path / "session")
    dpb_gym.Session.load(tmp_path / "session", state_dir=tmp_path / "of the user")


def test_an_agent_of_a_session_with_an_account_is_loaded_as_a_session(tmp_path: Path) -> None:
    shop = Shop(tmp_path, "account")
    path = shop.saved()
    with pytest.raises(CheckpointError, match=r"load it with dpb_gym.Session.load"):
        Agent.load(path)
    assert shop.load(path).decisions == 30


def test_a_new_run_of_a_loaded_agent_is_another_session(tmp_path: Path) -> None:
    instance, agent = played()
    agent.save(tmp_path / "agent")
    later = Agent.load(tmp_path / "agent")
    later.save(tmp_path / "second")
    agent.set_up(instance.problem.info, AgentStreams([7, 8]), dpb_gym.Budget.zcdp(1.0))
    agent.save(tmp_path / "new")
    headers = [
        json.loads((tmp_path / name).read_bytes().partition(b"\n")[0]) for name in ("second", "new")
    ]
    assert headers[0]["id"] != headers[1]["id"]
    assert [header["generation"] for header in headers] == [2, 1]


def test_agents_without_a_budget_need_no_state_directory(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setattr("dpb_gym.privacy.generations.state_directory", lambda: 1 / 0)
    problem = dpb_gym.make_problem("DPB/Pricing-v0", horizon=400)
    agent = make_agent("one-pass-pricing")
    agent.set_up(problem.info, AgentStreams([4]), None)
    agent.save(tmp_path / "agent")
    for _ in range(2):
        Agent.load(tmp_path / "agent")
    assert [file.name for file in tmp_path.iterdir()] == ["agent"]


def private_agents() -> list[str]:
    return [
        name
        for name, spec in agent_specs().items()
        if spec.entry_point.startswith("dpb_agents") and spec.budget != "never"
    ]


@pytest.mark.parametrize("name", private_agents())
def test_no_releaser_that_was_handed_over_releases_anything(name: str) -> None:
    spec = agent_specs()[name]
    kind = next(iter(spec.supports))
    env_id, kwargs = {
        "assortment": ("DPB/Assortment-v0", {"n_items": 10, "capacity": 3, "dim": 3}),
        "assortment-pricing": (
            "DPB/AssortmentPricing-v0",
            {"n_items": 10, "capacity": 3, "dim": 4},
        ),
        "pricing": ("DPB/Pricing-v0", {}),
        "recommendation": ("DPB/Recommendation-v0", {"dim": 4, "interactions_per_user": 2}),
    }[kind]
    if spec.fixed_arms:
        env_id, kwargs = "DPB/MultiArmed-v0", {}
    problem = dpb_gym.make_problem(env_id, horizon=200, **kwargs)
    agent = make_agent(name)
    agent.set_up(problem.info, AgentStreams([4]), dpb_gym.Budget.zcdp(20.0))
    go_on(problem.instance([4]), agent, 25)
    curators = [agent.curator, *agent.curator.parts.values()]
    agent.curator.hand_over("a test")
    releasers = [releaser for curator in curators for releaser in curator.releasers]
    assert releasers
    for releaser in releasers:
        for use in (lambda r=releaser: r.add(1.0), lambda r=releaser: r.release()):
            with pytest.raises((AgentError, AttributeError)) as error:
                use()
            text = str(error.value)
            assert "handed over: a test" in text or "has no attribute" in text, text


# ------------------------------------------------------------------ forks


@pytest.mark.skipif(not hasattr(os, "fork"), reason="forks processes")
def test_after_a_fork_the_parent_goes_on(shop: Shop) -> None:
    session = shop.serve()
    sell(session, 10)
    pending, _ = session.decide([0.5], user=1)
    loaded = reload(shop, shop.serve())
    for each, open_ in ((session, pending), (loaded, 11)):
        errors = in_child(
            lambda each=each, open_=open_: [
                error_of(lambda: each.decide([0.5], user=1)),
                error_of(lambda: each.observe(open_, 1)),
                error_of(lambda: each.drop(open_)),
                error_of(lambda: each.device()),
                error_of(lambda: each.receive({})),
                error_of(lambda: each.aggregate_with(None)),
                error_of(lambda: each.save(shop.folder / "child")),
                error_of(lambda: each.agent.save(shop.folder / "child")),
            ]
        )
        assert all("forked" in text and "the parent process goes on" in text for text in errors)
    assert not (shop.folder / "child").exists()
    session.observe(pending, 1)
    assert len(sell(session, 10)) == len(sell(loaded, 10)) == 10

    def child() -> Any:
        own = shop.serve()
        prices = sell(own, 5)
        own.save(shop.folder / "child")
        return [len(prices), dpb_gym.Session.load(shop.folder / "child", **shop.given).decisions]

    assert in_child(child) == [5, 5], "a session that is served after the fork"
    sell(session, 10)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="forks processes")
def test_a_device_is_not_used_in_a_fork() -> None:
    session = dpb_gym.serve(
        "one-pass-pricing", "rho=1@local", PRICES, noise="seeded", seed=1, warm=False
    )
    device = session.device(simulation=True)
    decided = session.device(simulation=True)
    decided.decide([0.5])
    public = device.public
    *errors, price = in_child(
        lambda: [
            error_of(lambda: device.decide([0.5])),
            error_of(lambda: decided.message(1)),
            Device(public).decide([0.5]),
        ]
    )
    assert 0.0 <= price <= 1.0, "a device that is made in the child"
    assert all("forked" in text for text in errors), errors
    device.decide([0.5])
    session.receive(decided.message(1))


@pytest.mark.skipif(not hasattr(os, "fork"), reason="forks processes")
def test_sessions_without_a_budget_go_on_in_both_processes() -> None:
    session = dpb_gym.serve("one-pass-pricing", None, PRICES, seed=1, warm=False)
    sell(session, 5)
    prices = in_child(lambda: sell(session, 5))
    assert prices == sell(session, 5)


def test_errors_are_typed(tmp_path: Path) -> None:
    shop = Shop(tmp_path, "state directory")
    path = shop.saved()
    (tmp_path / "state" / "generations.db").write_text("damage")
    with pytest.raises(DPBError, match="no SQLite file"):
        shop.load(path)


def test_a_copy_of_an_agent_in_its_process_is_not_noticed(tmp_path: Path) -> None:
    """A limit of docs/account.md: Python code can copy every object of its process."""
    session = dpb_gym.serve(
        "one-pass-pricing", "rho=1", "DPB/Pricing-v0", seed=1, noise="seeded", state_dir=tmp_path
    )
    for _ in range(20):
        decision, price = session.decide([0.3, 0.8])
        session.observe(decision, price < 0.5)
    twin = copy.deepcopy(session.agent)
    sums = [behind(agent.curator.releasers[0]) for agent in (session.agent, twin)]
    before = sums[1].releases
    with twin.curator.round(60, 60):
        twin.curator.releasers[0].add_rounds(np.zeros((60, 1, sums[1].shape.width)))
    assert sums[1].releases > before
    assert sums[0].releases == before
