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
from dpb_gym.files import state_directory
from dpb_gym.privacy import Account, Composition, GaussianEvent, Guarantee
from dpb_gym.privacy.generations import Continuation, Lease, Saved

GUARANTEE = Guarantee("joint", "user-round", curve=Composition.of(GaussianEvent(9.0)))


class OfAccount:
    """The calls of a `Lease`, for an account."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(exist_ok=True)
        self.account = Account(folder / "people", "rho=1")
        self.confirm = self.account.confirm

    def enter(self) -> Continuation:
        return self.account.enter(GUARANTEE)

    def advance(self, saved: Saved) -> Continuation:
        return self.account.advance(saved, GUARANTEE)


def save(holder, own):
    """Return what a file of this continuation has."""
    return Saved(own.id, own.generation, holder.confirm(own))


HOLDERS = {"lease": Lease, "account": OfAccount}


@pytest.fixture(params=HOLDERS)
def made(request):
    return HOLDERS[request.param]


@pytest.mark.slow
@settings(max_examples=30, suppress_health_check=list(HealthCheck))
@given(
    steps=st.lists(
        st.tuples(st.sampled_from(["enter", "save", "load"]), st.integers(0, 9)), max_size=25
    )
)
def test_a_session_has_one_continuation_at_any_time(made, tmp_path_factory, steps):
    """Compare with a dict of newest generations, whatever is loaded and confirmed in what order."""
    holder = made(tmp_path_factory.mktemp("state"))
    newest = {}  # generation and token of each session
    running = []
    files = []
    for what, at in steps:
        if what == "enter" or not running:
            own = holder.enter()
            assert own.id not in newest and own.generation == 1
            newest[own.id] = (1, None)
            running.append(own)
            continue
        own = running[at % len(running)]
        if what == "save":
            if newest[own.id][0] == own.generation:
                files.append(save(holder, own))
                newest[own.id] = (own.generation, files[-1].token)
            else:
                with pytest.raises(CheckpointError, match="goes on elsewhere"):
                    holder.confirm(own)
        elif files:
            file = files[at % len(files)]
            if newest[file.id] == (file.generation, file.token):
                running.append(holder.advance(file))
                newest[file.id] = (file.generation + 1, None)
                assert running[-1].generation == file.generation + 1
            else:
                with pytest.raises(CheckpointError, match="loaded before: the file has generation"):
                    holder.advance(file)


def test_unknown_sessions_are_refused(made, tmp_path):
    holder = made(tmp_path)
    own = holder.enter()
    file = save(holder, own)
    for session in ("0" * 32, own.id[:-1], ""):
        with pytest.raises(CheckpointError, match="no record of this session"):
            holder.advance(Saved(session, 1, file.token))
    for generation in (0, 2, 10**15):
        with pytest.raises(CheckpointError, match="loaded before"):
            holder.advance(Saved(own.id, generation, file.token))
    with pytest.raises(CheckpointError, match="loaded before"):
        holder.advance(Saved(own.id, 1, "0" * 16))
    with pytest.raises(CheckpointError, match="goes on elsewhere"):
        holder.confirm(Continuation("0" * 32))
    assert holder.advance(file).generation == 2


def test_an_old_file_with_the_newest_number_is_refused(made, tmp_path):
    holder = made(tmp_path)
    first = save(holder, holder.enter())
    own = holder.advance(first)
    with pytest.raises(CheckpointError, match="loaded before"):
        holder.advance(Saved(first.id, 2, first.token))
    newest = save(holder, own)
    with pytest.raises(CheckpointError, match="loaded before"):
        holder.advance(Saved(first.id, 2, first.token))
    assert holder.advance(newest).generation == 3


def test_of_two_copies_in_memory_the_first_goes_on(made, tmp_path):
    holder = made(tmp_path)
    own = holder.enter()
    copy = Continuation(own.id, own.generation, set(own.tokens))
    holder.confirm(copy)
    with pytest.raises(CheckpointError, match="goes on elsewhere"):
        holder.confirm(own)
    holder.confirm(copy)


def test_of_many_loads_at_the_same_time_one_goes_on(made, tmp_path):
    holder = made(tmp_path)
    file = save(holder, holder.enter())
    generations = []

    def load():
        try:
            generations.append(made(tmp_path).advance(file).generation)
        except CheckpointError:
            generations.append(None)

    threads = [threading.Thread(target=load) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(generations) == 8 and sorted(generations, key=str) == [2, *[None] * 7]


def test_loading_creates_no_file(tmp_path):
    lease = Lease(tmp_path / "state")
    with pytest.raises(CheckpointError, match=r"no record of any session.*state_dir="):
        lease.advance(Saved("0" * 32, 1, ""))
    with pytest.raises(CheckpointError, match="lost its record"):
        lease.confirm(Continuation("0" * 32))
    assert not list(tmp_path.iterdir())
    own = lease.enter()
    assert [file.name for file in (tmp_path / "state").iterdir()] == ["generations.db"]
    lease.advance(save(lease, own))
    assert [file.name for file in (tmp_path / "state").iterdir()] == ["generations.db"]


@pytest.mark.skipif(os.name != "posix", reason="permissions of POSIX")
def test_only_the_owner_can_read_the_state_directory(tmp_path):
    Lease(tmp_path / "state").enter()
    assert (tmp_path / "state").stat().st_mode & 0o777 == 0o700
    assert (tmp_path / "state" / "generations.db").stat().st_mode & 0o777 == 0o600


def test_a_damaged_state_file_is_refused(tmp_path):
    lease = Lease(tmp_path)
    own = lease.enter()
    file_of = save(lease, own)
    file = tmp_path / "generations.db"
    whole = file.read_bytes()
    for content in (b"text", whole[:500], whole[:200] + bytes(len(whole) - 200)):
        file.write_bytes(content)
        for use in (lease.enter, lambda: lease.advance(file_of), lambda: lease.confirm(own)):
            with pytest.raises(DataError, match="state file"):
                use()
    file.write_bytes(whole)
    with sqlite3.connect(file) as raw:
        raw.execute("DROP TABLE dpb_sessions")
    raw.close()
    with pytest.raises(DataError, match="state file"):
        lease.advance(file_of)
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
