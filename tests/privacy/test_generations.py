"""Generations of sessions: each is continued once, by accounts and by the state directory."""

from __future__ import annotations

import os
import sqlite3
import sys
import threading
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dpb_gym.errors import CheckpointError, DataError
from dpb_gym.privacy import Account, Composition, GaussianEvent, Guarantee
from dpb_gym.privacy.generations import Continuation, Lease, state_directory

GUARANTEE = Guarantee("joint", "user-round", curve=Composition.of(GaussianEvent(9.0)))


class OfAccount:
    """The calls of a `Lease`, for an account."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(exist_ok=True)
        self.account = Account(folder / "people", "rho=1")
        self.confirm = self.account.confirm

    def enter(self) -> Continuation:
        return self.account.enter(GUARANTEE)

    def advance(self, session: str, generation: int) -> Continuation:
        return self.account.advance(session, generation, GUARANTEE)


HOLDERS = {"lease": Lease, "account": OfAccount}


@pytest.fixture(params=HOLDERS)
def made(request):
    return HOLDERS[request.param]


@settings(max_examples=30, suppress_health_check=list(HealthCheck))
@given(steps=st.lists(st.tuples(st.sampled_from("elcC"), st.integers(0, 9)), max_size=25))
def test_a_session_has_one_continuation_at_any_time(made, tmp_path_factory, steps):
    """Compare with a dict of newest generations, whatever is loaded and confirmed in what order."""
    holder = made(tmp_path_factory.mktemp("state"))
    newest = {}
    running = []
    for what, at in steps:
        if what == "e" or not running:
            own = holder.enter()
            assert own.id not in newest and own.generation == 1
            newest[own.id] = 1
            running.append(own)
            continue
        own = running[at % len(running)]
        current = newest[own.id] == own.generation
        if what == "l":  # a file that this one saved, at any time before
            if current:
                running.append(holder.advance(own.id, own.generation))
                newest[own.id] += 1
                assert running[-1].generation == newest[own.id]
            else:
                with pytest.raises(CheckpointError, match="loaded before: the file has generation"):
                    holder.advance(own.id, own.generation)
        elif current:
            holder.confirm(own)
        else:
            with pytest.raises(CheckpointError, match="goes on elsewhere"):
                holder.confirm(own)


def test_unknown_sessions_are_refused(made, tmp_path):
    holder = made(tmp_path)
    own = holder.enter()
    for session in ("0" * 32, own.id[:-1], ""):
        with pytest.raises(CheckpointError, match="no record of this session"):
            holder.advance(session, 1)
    for generation in (0, 2, 10**15):
        with pytest.raises(CheckpointError, match="loaded before"):
            holder.advance(own.id, generation)
    with pytest.raises(CheckpointError, match="goes on elsewhere"):
        holder.confirm(Continuation("0" * 32))
    holder.confirm(own)


def test_of_two_copies_in_memory_the_first_goes_on(made, tmp_path):
    holder = made(tmp_path)
    own = holder.enter()
    copy = Continuation(own.id, own.generation, set(own.tokens))
    holder.confirm(copy)
    with pytest.raises(CheckpointError, match="goes on elsewhere"):
        holder.confirm(own)
    holder.confirm(copy)


def test_of_many_loads_at_the_same_time_one_goes_on(made, tmp_path):
    own = made(tmp_path).enter()
    found = []

    def load():
        try:
            found.append(made(tmp_path).advance(own.id, 1).generation)
        except CheckpointError:
            found.append(None)

    threads = [threading.Thread(target=load) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 8 and sorted(found, key=str) == [2, *[None] * 7]


def test_loading_creates_no_file(tmp_path):
    lease = Lease(tmp_path / "state")
    with pytest.raises(CheckpointError, match=r"no record of any session.*state_dir="):
        lease.advance("0" * 32, 1)
    with pytest.raises(CheckpointError, match="lost its record"):
        lease.confirm(Continuation("0" * 32))
    assert not list(tmp_path.iterdir())
    own = lease.enter()
    assert [file.name for file in (tmp_path / "state").iterdir()] == ["generations.db"]
    lease.advance(own.id, 1)
    assert [file.name for file in (tmp_path / "state").iterdir()] == ["generations.db"]


@pytest.mark.skipif(os.name != "posix", reason="permissions of POSIX")
def test_only_the_owner_can_read_the_state_directory(tmp_path):
    Lease(tmp_path / "state").enter()
    assert (tmp_path / "state").stat().st_mode & 0o777 == 0o700
    assert (tmp_path / "state" / "generations.db").stat().st_mode & 0o777 == 0o600


def test_a_damaged_state_file_is_refused(tmp_path):
    lease = Lease(tmp_path)
    own = lease.enter()
    file = tmp_path / "generations.db"
    whole = file.read_bytes()
    for content in (b"text", whole[:500], whole[:200] + bytes(len(whole) - 200)):
        file.write_bytes(content)
        for use in (lease.enter, lambda: lease.advance(own.id, 1), lambda: lease.confirm(own)):
            with pytest.raises(DataError, match="state file"):
                use()
    file.write_bytes(whole)
    with sqlite3.connect(file) as raw:
        raw.execute("DROP TABLE dpb_sessions")
    raw.close()
    with pytest.raises(DataError, match="state file"):
        lease.advance(own.id, 1)
    (tmp_path / "file").touch()
    with pytest.raises(CheckpointError, match=r"cannot be created.*state_dir="):
        Lease(tmp_path / "file").enter()


@pytest.mark.parametrize(
    ("platform", "variables", "expected"),
    [
        ("linux", {"XDG_STATE_HOME": "/s"}, "/s/dpb-gym"),
        ("linux", {"XDG_STATE_HOME": "relative"}, "~/.local/state/dpb-gym"),
        ("linux", {}, "~/.local/state/dpb-gym"),
        ("darwin", {"XDG_STATE_HOME": "/s"}, "~/Library/Application Support/dpb-gym"),
        ("win32", {"LOCALAPPDATA": "/local"}, "/local/dpb-gym"),
        ("win32", {}, "~/AppData/Local/dpb-gym"),
    ],
)
def test_the_state_directory_is_that_of_the_platform(monkeypatch, platform, variables, expected):
    for name in ("XDG_STATE_HOME", "LOCALAPPDATA"):
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(sys, "platform", platform)
    assert state_directory() == Path(expected).expanduser()
