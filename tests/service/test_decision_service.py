"""A service continues after a crash with the same session, in one place only."""

from __future__ import annotations

import gc
import json
import os
import random
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import dpb_gym
from dpb_gym.errors import (
    AgentError,
    CheckpointError,
    DataError,
    HorizonExceeded,
)
from dpb_gym.privacy import Account
from dpb_gym.privacy.releasers.releaser import behind
from dpb_gym.service import DecisionService, decision_service
from dpb_gym.service.bodies import Bodies, BodyError
from dpb_gym.service.decision_service import ServiceError
from dpb_gym.service.journal import Journal
from tests.children import in_child

from .http_helpers import NEWS, PRICES, SLATES, configured, started

PREVIOUS = Path(__file__).with_name("previous")


def crash(service: DecisionService) -> None:
    """Leave the files as a killed process does, and free its locks."""
    service._closed = True
    service._journal.close()
    service._locks.close()


def customer(base: dict[str, Any], rng: random.Random) -> dict[str, Any]:
    """Return a random row of ``/decide``."""
    problem = base["problem"]
    if problem["kind"] == "assortment":
        features = [[rng.random(), rng.random()] for _ in problem["actions"]]
        return {"features": features, "revenues": [rng.random() for _ in problem["actions"]]}
    return {"features": {name: rng.uniform(*ends) for name, ends in problem["features"].items()}}


def response(base: dict[str, Any], action: Any, rng: random.Random) -> Any:
    if base["problem"]["kind"] == "assortment":
        return rng.choice([None, *action])
    return rng.randint(0, 1)


def play(service: DecisionService, base: dict[str, Any], seed: int, rounds: int) -> list[Any]:
    """Play random customers, of whom some respond late or never; return what was decided."""
    rng = random.Random(seed)
    waiting = []
    decided = []
    for _ in range(rounds):
        (answer,) = service.decide(customer(base, rng))
        decided.append(answer)
        waiting.append((answer["decision"], response(base, answer["action"], rng)))
        if rng.random() < 0.7:
            number, given = waiting.pop(rng.randrange(len(waiting)))
            service.observe({"decision": number, "response": given})
    return decided


def same(one: DecisionService, other: DecisionService) -> None:
    """Check that two sessions have released the same, and go on in the same way."""
    for mine, theirs in zip(releasers(one), releasers(other)):
        assert mine.releases == theirs.releases
        assert mine._released.tobytes() == theirs._released.tobytes()
    assert one.session.pending == other.session.pending
    assert one.session.guarantee == other.session.guarantee


def releasers(service: DecisionService) -> list[Any]:
    return [behind(each) for each in service.session.agent.curator.releasers]


@pytest.mark.slow
@pytest.mark.parametrize("base", [NEWS, PRICES, SLATES], ids=["news", "prices", "slates"])
def test_a_restarted_session_equals_one_that_went_on(tmp_path: Path, base: dict[str, Any]) -> None:
    (tmp_path / "whole").mkdir()
    (tmp_path / "parts").mkdir()
    whole = started(tmp_path / "whole", base)
    for seed, end in enumerate((crash, DecisionService.close, crash, crash)):
        parts = started(tmp_path / "parts", base)
        same(whole, parts)
        if seed == 3:
            parts.save()
        assert play(parts, base, seed, 30) == play(whole, base, seed, 30)
        end(parts)
    same(whole, started(tmp_path / "parts", base))


@pytest.mark.slow
@settings(max_examples=10)
@given(st.lists(st.integers(1, 12), min_size=1, max_size=4), st.sets(st.integers(0, 3)))
def test_crashes_at_any_time(
    tmp_path_factory: pytest.TempPathFactory, rounds: list[int], saved: set[int]
) -> None:
    folder = tmp_path_factory.mktemp("service")
    (folder / "whole").mkdir()
    (folder / "parts").mkdir()
    whole = started(folder / "whole")
    parts = started(folder / "parts")
    for seed, count in enumerate(rounds):
        assert play(parts, NEWS, seed, count) == play(whole, NEWS, seed, count)
        if seed in saved:
            parts.save()
        crash(parts)
        parts = started(folder / "parts")
        same(whole, parts)
    for service in (whole, parts):
        service.close()


def test_a_session_without_a_budget_starts_again(tmp_path: Path) -> None:
    options = {"agent": "lin-ucb", "budget": "none", "noise": "system"}
    service = started(tmp_path, **options)
    play(service, NEWS, 0, 5)
    crash(service)
    again = started(tmp_path, **options)
    assert again.session.decisions == 5 and again.guarantee == "no privacy"
    again.close()


@pytest.mark.slow
def test_system_noise_is_repeated_after_a_crash(tmp_path: Path) -> None:
    pytest.importorskip("opendp", reason="needs the extra [secure]")
    service = started(tmp_path, noise="system")
    play(service, NEWS, 0, 60)
    (sums,) = releasers(service)
    assert sums.releases >= 3
    crash(service)
    journal = Journal(tmp_path / "shop" / "journal")
    taped = [event["tape"] for event in journal.events if event.get("tape")]
    journal.close()
    assert len(taped) == len(set(taped)) == sums.releases
    again = started(tmp_path, noise="system")
    same(service, again)
    assert play(again, NEWS, 1, 60)
    assert releasers(again)[0].releases > sums.releases
    again.close()


def test_a_copy_and_the_original_cannot_both_go_on(tmp_path: Path) -> None:
    service = started(tmp_path)
    play(service, NEWS, 0, 10)
    shutil.copytree(tmp_path / "shop", tmp_path / "copy")
    with pytest.raises(CheckpointError, match="another process serves this session"):
        started(tmp_path, folder="copy")
    crash(service)
    copy = started(tmp_path, folder="copy")
    play(copy, NEWS, 2, 3)
    crash(copy)
    with pytest.raises(CheckpointError, match="goes on elsewhere"):
        started(tmp_path)
    started(tmp_path, folder="copy").close()


def test_a_copy_of_a_running_service_is_refused_once_the_service_has_answered_more(
    tmp_path: Path,
) -> None:
    """Its customers' responses are in later releases of the original."""
    service = started(tmp_path)
    play(service, NEWS, 0, 10)
    shutil.copytree(tmp_path / "shop", tmp_path / "copy")
    play(service, NEWS, 1, 1)
    assert not service.synced
    service.sync()
    assert service.synced
    crash(service)
    with pytest.raises(CheckpointError, match="it is an older copy"):
        started(tmp_path, folder="copy")
    again = started(tmp_path)
    assert again.session.decisions == 11
    again.close()


def test_an_older_copy_is_refused(tmp_path: Path) -> None:
    service = started(tmp_path)
    shutil.copytree(tmp_path / "shop", tmp_path / "copy")
    play(service, NEWS, 0, 10)
    service.close()
    with pytest.raises(CheckpointError, match="it is an older copy"):
        started(tmp_path, folder="copy")
    started(tmp_path).close()


def test_another_state_directory_is_refused(tmp_path: Path) -> None:
    started(tmp_path).close()
    with pytest.raises(CheckpointError, match="has lost its record"):
        started(tmp_path, state_dir="other")
    started(tmp_path).close()


@pytest.mark.slow
def test_a_crash_at_any_write_leaves_a_session_that_starts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each write of a snapshot and of tokens is the last one of some process."""
    service = started(tmp_path)
    decided = play(service, NEWS, 0, 10)
    service.close()
    steps = ("confirm", "snapshot", "write_whole", "chmod", "clear", "announce", "announced")
    for step in steps:
        with monkeypatch.context() as patched:
            fail_at(step, patched)
            try:
                service = started(tmp_path)
                decided += play(service, NEWS, len(decided), 2)
                service.save()
            except (Killed, CheckpointError):
                gc.collect()  # frees locks, as the end of a process does
            else:
                raise AssertionError(step)
        service = started(tmp_path)
        assert service.session.decisions == len(decided), step
        decided += play(service, NEWS, len(decided), 2)
        crash(service)
    assert [answer["decision"] for answer in decided] == list(range(1, len(decided) + 1))


class Killed(BaseException):
    """Takes the place of the end of a process."""


def fail_at(step: str, patched: pytest.MonkeyPatch) -> None:
    """Let a step of a start or of a save end the process."""

    def killed(*_: Any, **__: Any) -> None:
        raise Killed

    if step == "announce":
        patched.setattr(DecisionService, "_announce", killed)
    elif step == "announced":
        real = DecisionService._announce

        def after(self: DecisionService, token: str) -> None:
            real(self, token)
            raise Killed

        patched.setattr(DecisionService, "_announce", after)
    elif step in ("confirm", "snapshot"):
        patched.setattr(dpb_gym.Session, step, killed)
    elif step == "clear":
        patched.setattr(Journal, step, killed)
    elif step == "chmod":
        patched.setattr(decision_service.os, step, killed)
    else:
        patched.setattr(decision_service, step, killed)


def test_one_process_at_a_time(tmp_path: Path) -> None:
    service = started(tmp_path)
    with pytest.raises(CheckpointError, match=r"another process serves the folder .* one worker"):
        started(tmp_path)
    play(service, NEWS, 0, 3)
    service.close()
    started(tmp_path).close()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="forks processes")
def test_a_forked_process_writes_nothing(tmp_path: Path) -> None:
    service = started(tmp_path)
    play(service, NEWS, 0, 3)
    size = service._journal.size

    def use() -> list[str]:
        messages = []
        for call in (lambda: service.decide({"features": {"hour": 1, "age": 2}}), service.save):
            try:
                call()
            except CheckpointError as error:
                messages.append(str(error))
        return messages

    assert all("forked" in text for text in in_child(use)) and len(in_child(use)) == 2
    assert (tmp_path / "shop" / "journal").stat().st_size == size
    play(service, NEWS, 1, 3)
    service.close()


@pytest.mark.parametrize(
    "change",
    [
        {"budget": "rho=2"},
        {"agent": "lin-ucb", "budget": "none"},
        {"noise": "system"},
        {"problem": {**NEWS["problem"], "horizon": 501}},
        {"problem": {**NEWS["problem"], "features": {"age": [0, 120], "hour": [0, 23]}}},
        {"parameters": {"c": 2.0}},
    ],
)
def test_a_session_keeps_what_it_was_started_with(tmp_path: Path, change: dict[str, Any]) -> None:
    started(tmp_path).close()
    with pytest.raises(CheckpointError, match="was started with"):
        started(tmp_path, **change)
    started(tmp_path, most_pending=7, port=81).close()


def test_bad_rows_change_nothing(tmp_path: Path) -> None:
    service = started(tmp_path)
    play(service, NEWS, 0, 5)
    row = {"features": {"hour": 1, "age": 2}}
    number = service.decide(row)[0]["decision"]
    before = service._journal.size, service.session.pending, service.session.decisions
    for body in ([row, {}], {"features": {"hour": 1, "age": "young"}}):
        with pytest.raises(BodyError):
            service.decide(body)
    answer = {"decision": number, "response": 1}
    for body, field in (
        ([answer, {"decision": 400, "response": 1}], "decision"),
        ([answer, {"decision": service.session.pending[0], "response": 2}], "response"),
        ({"decision": number, "response": float("nan")}, "response"),
        ({"decision": number, "response": True}, "response"),
        ({"decision": number + 1, "response": 1}, "decision"),
    ):
        with pytest.raises(BodyError) as caught:
            service.observe(body)
        assert caught.value.errors[0].field == field
        assert caught.value.errors[0].row == (1 if isinstance(body, list) else 0)
    assert before == (service._journal.size, service.session.pending, service.session.decisions)
    service.observe(answer)
    with pytest.raises(BodyError, match="was answered or dropped already"):
        service.observe(answer)
    service.close()


def test_excluded_actions_are_never_chosen(tmp_path: Path) -> None:
    service = started(tmp_path)
    names = NEWS["problem"]["actions"]
    rng = random.Random(0)
    for _ in range(60):
        excluded = rng.sample(names, rng.randint(0, 2))
        (answer,) = service.decide({**customer(NEWS, rng), "excluded": excluded})
        assert answer["action"] in set(names) - set(excluded)
        service.observe({"decision": answer["decision"], "response": 1.0})
    crash(service)
    assert started(tmp_path).session.decisions == 60


def always_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> DecisionService:
    """Return a service whose agent chooses the first action, also where that is excluded."""
    service = started(tmp_path, agent="random", budget="none")
    kind = type(service.session.agent)
    monkeypatch.setattr(kind, "act", lambda self, context: np.array([0]))
    return service


def test_an_agent_that_chooses_excluded_actions_is_no_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    service = always_first(tmp_path, monkeypatch)
    with pytest.raises(ServiceError):
        service.decide({"features": {"hour": 1, "age": 1}, "excluded": ["sport"]})
    assert service.session.pending == ()
    assert service.decide({"features": {"hour": 1, "age": 1}})[0]["action"] == "sport"
    crash(service)
    assert started(tmp_path, agent="random", budget="none").session.decisions == 2


def test_rows_before_one_that_the_agent_fails_on_remain(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    service = always_first(tmp_path, monkeypatch)
    row = {"features": {"hour": 1, "age": 1}}
    with pytest.raises(ServiceError):
        service.decide([row, {**row, "excluded": ["sport"]}, row])
    assert service.session.pending == (1,) and service.session.decisions == 2
    crash(service)
    again = started(tmp_path, agent="random", budget="none")
    assert again.session.pending == (1,)
    answer = {"decision": 1, "response": 1}
    with pytest.raises(BodyError):  # a wrong row is found before the first one is done
        again.observe([answer, answer])
    assert again.session.pending == (1,)
    again.close()


def test_the_horizon_ends_a_session(tmp_path: Path) -> None:
    service = started(tmp_path, problem={**NEWS["problem"], "horizon": 3})
    row = {"features": {"hour": 1, "age": 2}}
    with pytest.raises(HorizonExceeded, match="planned for 3"):
        service.decide([row] * 4)
    assert len(service.decide([row] * 3)) == 3
    with pytest.raises(HorizonExceeded):
        service.decide(row)
    service.close()


def test_the_oldest_pending_decisions_are_dropped(tmp_path: Path) -> None:
    service = started(tmp_path, most_pending=5)
    row = {"features": {"hour": 1, "age": 2}}
    for _ in range(9):
        service.decide(row)
    assert service.session.pending == (5, 6, 7, 8, 9)
    crash(service)
    again = started(tmp_path, most_pending=3)
    assert again.session.pending == (5, 6, 7, 8, 9)
    again.decide(row)
    assert again.session.pending == (8, 9, 10)
    again.close()


def test_a_response_that_the_agent_fails_on_is_lost_and_the_next_customer_served(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    said: list[str] = []
    settings = configured(tmp_path, agent="lin-ucb", budget="none")
    service = DecisionService(settings, warm=False, log=said.append)
    row = {"features": {"hour": 1, "age": 2}}
    number = service.decide(row)[0]["decision"]
    service.observe({"decision": number, "response": 0.25})
    kind = type(service.session.agent)
    real = kind.observe

    def fail(self: Any, context: Any, action: Any, feedback: Any) -> None:
        if feedback.reward[0] == 0.25:
            raise ValueError("cannot learn from 0.25")
        real(self, context, action, feedback)

    monkeypatch.setattr(kind, "observe", fail)
    assert service.decide(row)[0]["decision"] == 2
    assert service.session.lost == (1,)
    assert len(said) == 1 and "0.25" in said[0]
    crash(service)
    again = DecisionService(settings, warm=False, log=said.append)
    assert again.session.lost == (1,) and again.session.pending == (2,)
    again.close()


def test_a_full_disk_stops_the_service_and_loses_nothing_that_was_answered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    service = started(tmp_path)
    decided = play(service, NEWS, 0, 10)
    row = {"features": {"hour": 1, "age": 2}}

    def full(*_: Any) -> int:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr("dpb_gym.service.journal.os.write", full)
        with pytest.raises(CheckpointError, match="start it again"):
            service.decide(row)
    for use in (lambda: service.decide(row), service.save):
        with pytest.raises(CheckpointError, match="start it again"):
            use()
    assert service.status()["status"] == "failed"
    service.close()
    again = started(tmp_path)
    assert again.session.decisions == len(decided)
    again.close()


def test_a_journal_that_is_not_repeated_names_the_version(tmp_path: Path) -> None:
    service = started(tmp_path)
    play(service, NEWS, 0, 5)
    crash(service)
    path = tmp_path / "shop" / "journal"
    journal = Journal(path)
    events = journal.events
    journal.clear()
    chosen = next(event for event in events if "decide" in event)
    names = NEWS["problem"]["actions"]
    chosen["action"] = names[names.index(chosen["action"]) - 1]
    for event in events:
        journal.append(event)
    journal.close()
    with pytest.raises(CheckpointError, match=r"not repeated by this version.* 0\.1\.0"):
        started(tmp_path)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda data: data[:-1], "is damaged"),
        (lambda data: data[:-1] + bytes([data[-1] ^ 1]), "is damaged"),
        (lambda data: b"", "no snapshot"),
        (lambda data: b"{}" + data, "no snapshot"),
        (lambda data: data.replace(b'"version": 1,', b'"version": 2,', 1), "reads version 1"),
        (lambda data: data.replace(b'"events": ', b'"events": -', 1), "no snapshot"),
        (lambda data: data.replace(b'"tokens": [', b'"tokens": [3, ', 1), "no snapshot"),
    ],
)
def test_a_damaged_snapshot_is_refused(tmp_path: Path, change: Any, message: str) -> None:
    service = started(tmp_path)
    play(service, NEWS, 0, 3)
    service.close()
    path = tmp_path / "shop" / "snapshot"
    path.write_bytes(change(path.read_bytes()))
    with pytest.raises(DataError, match=message):
        started(tmp_path)


def test_files_are_the_owners(tmp_path: Path) -> None:
    started(tmp_path).close()
    folder = tmp_path / "shop"
    assert folder.stat().st_mode & 0o077 == 0
    for name in ("snapshot", "journal"):
        assert (folder / name).stat().st_mode & 0o077 == 0


def test_a_removed_snapshot_is_refused(tmp_path: Path) -> None:
    service = started(tmp_path)
    play(service, NEWS, 0, 3)
    crash(service)
    (tmp_path / "shop" / "snapshot").unlink()
    with pytest.raises(DataError, match="a journal without its snapshot"):
        started(tmp_path)


@pytest.mark.parametrize(
    ("agent", "budget", "message"),
    [
        ("one-pass-linear", "rho=1@local", "no server sees a customer's data"),
        ("one-pass-linear-joint", "rho=1", ""),
        ("lin-ucb", "rho=1", "non-private"),
        ("no-such-agent", "none", "unknown agent"),
    ],
)
def test_what_cannot_be_served(tmp_path: Path, agent: str, budget: str, message: str) -> None:
    pytest.importorskip("opendp", reason="needs the extra [secure]")
    if message:
        with pytest.raises(Exception, match=message):
            started(tmp_path, agent=agent, budget=budget, noise="system")
    else:
        started(tmp_path, agent=agent, budget=budget, noise="system").close()
    started(tmp_path, folder="other").close()


def test_an_agent_that_needs_every_response_is_refused(tmp_path: Path) -> None:
    names = [
        name
        for name, spec in dpb_gym.agent_specs().items()
        if "recommendation" in spec.supports
        and spec.budget == "never"
        and not (spec.partial_feedback and spec.delayed_feedback)
    ]
    assert names
    with pytest.raises(AgentError, match="every response in its own round"):
        started(tmp_path, agent=names[0], budget="none")


# accounts


def charged(at: Path, **changes: Any) -> DecisionService:
    account = {"place": "people.db", "lifetime": "rho=1", "unit": "user-rewards"}
    return started(at, account=account, budget="rho=0.1", **changes)


def serve_people(service: DecisionService, names: list[str]) -> None:
    for name in names:
        row = {"features": {"hour": 1, "age": 2}, "user": name}
        (answer,) = service.decide(row)
        service.observe({"decision": answer["decision"], "response": 1})


def test_an_account_charges_each_record_once_through_crashes(tmp_path: Path) -> None:
    (tmp_path / "whole").mkdir()
    (tmp_path / "parts").mkdir()
    names = ["ana", "bo", "ana", "cem", "ana", "ana", "bo", "dua"]
    whole = charged(tmp_path / "whole")
    serve_people(whole, names)
    for start in range(0, len(names), 3):
        parts = charged(tmp_path / "parts")
        serve_people(parts, names[start : start + 3])
        crash(parts)
    parts = charged(tmp_path / "parts")
    same(whole, parts)
    for service in (whole, parts):
        serve_people(service, ["ana"])
    spent = [
        {name: service._account.spent(name) for name in set(names)} for service in (whole, parts)
    ]
    assert spent[0] == spent[1] and spent[0]["ana"] > spent[0]["bo"] > 0.0
    assert max(spent[0].values()) <= 1.0
    for service in (whole, parts):
        service.close()


def test_charges_that_a_power_failure_took_back_end_the_session(tmp_path: Path) -> None:
    """The journal is on the disk with each answer, the account's charges with each release."""
    service = charged(tmp_path)
    serve_people(service, ["ana"])
    service._account.commit()
    service._account._database.empty_log()
    shutil.copy(tmp_path / "people.db", tmp_path / "older")
    releases = releasers(service)[0].releases
    serve_people(service, ["bo", "cem"])
    service.sync()
    assert releasers(service)[0].releases == releases and service.session._charges.charged == 2
    crash(service)
    for suffix in ("-wal", "-shm"):
        (tmp_path / f"people.db{suffix}").unlink(missing_ok=True)
    (tmp_path / "older").replace(tmp_path / "people.db")
    for _ in range(2):
        with pytest.raises(CheckpointError, match=r"has 0 charges of this .* from 2 records"):
            charged(tmp_path)


def test_two_services_cannot_continue_one_session_of_an_account(tmp_path: Path) -> None:
    service = charged(tmp_path)
    serve_people(service, ["ana", "bo"])
    shutil.copytree(tmp_path / "shop", tmp_path / "copy")
    copy = charged(tmp_path, folder="copy")
    serve_people(copy, ["cem"])
    with pytest.raises(CheckpointError):
        serve_people(service, ["dua", "eva", "flo"])
    assert service.failed
    serve_people(copy, ["dua"])
    copy.close()
    service.close()


def test_a_start_does_not_wait_for_the_account_at_each_event(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    service = charged(tmp_path)
    serve_people(service, [f"customer {n}" for n in range(30)])
    crash(service)
    tokens: list[str] = []
    real = DecisionService._announce

    def counted(self: DecisionService, token: str) -> None:
        tokens.append(token)
        real(self, token)

    monkeypatch.setattr(DecisionService, "_announce", counted)
    again = charged(tmp_path)
    assert len(tokens) == 2  # one before the first snapshot, one with it
    again.close()


def test_a_copy_that_is_older_than_a_release_is_refused_by_the_account(tmp_path: Path) -> None:
    service = charged(tmp_path)
    serve_people(service, ["ana", "bo"])
    shutil.copytree(tmp_path / "shop", tmp_path / "copy")
    releases = releasers(service)[0].releases
    while releasers(service)[0].releases == releases:
        serve_people(service, [f"customer {service.session.decisions}"])
    crash(service)
    with pytest.raises(CheckpointError, match="goes on elsewhere"):
        charged(tmp_path, folder="copy")
    charged(tmp_path).close()


def test_users_are_needed_where_there_is_an_account(tmp_path: Path) -> None:
    service = charged(tmp_path)
    with pytest.raises(BodyError, match="user"):
        service.decide({"features": {"hour": 1, "age": 2}})
    serve_people(service, ["7"])
    service.decide({"features": {"hour": 1, "age": 2}, "user": 7})
    assert service.session._state["persons"] == ["7"]
    service.close()
    other = Account(tmp_path / "people.db")
    assert other.spent(7) > 0.0
    other.close()


def test_keys_hash_the_names(tmp_path: Path) -> None:
    (tmp_path / "key").write_bytes(b"k" * 32)
    account = {"place": "people.db", "lifetime": "rho=1", "unit": "user-rewards"}
    service = started(tmp_path, account={**account, "key_file": "key"}, budget="rho=0.4")
    serve_people(service, ["secret-name"] * 3)
    service.close()
    assert b"secret-name" not in (tmp_path / "people.db").read_bytes()
    assert b"secret-name" not in (tmp_path / "shop" / "snapshot").read_bytes()
    with pytest.raises(dpb_gym.errors.ParameterError, match="opened with"):
        started(tmp_path, account=account, budget="rho=0.4")


# upgrades


def write_previous(folder: Path) -> None:
    """Write a session with pending decisions, and its state directory.

    `previous` is written again where its classes are gone, with this function and a new folder.
    """
    own = configured(folder.parent)
    folder.mkdir()
    bodies = Bodies(own.info(), own.actions(), own.features(), people=False)
    session = dpb_gym.serve(
        own.agent, own.budget, bodies.info, noise="seeded", seed=4, state_dir=folder,
        warm=False,
    )  # fmt: skip
    rng = random.Random(0)
    for _ in range(40):
        number, _ = session.decide(**bodies.arguments(customer(NEWS, rng)))
        if number % 5 != 1:
            session.observe(number, rng.randint(0, 1))
    session.save(folder / "shop.session")


@pytest.mark.parametrize(
    "write", [lambda folder: shutil.copytree(PREVIOUS, folder), write_previous],
    ids=["stored", "new"],
)  # fmt: skip
def test_a_session_of_the_previous_version_goes_on(
    tmp_path: Path, write: Callable[[Path], Any]
) -> None:
    """`previous` has a file of `Session.save` and its state directory, as they were written."""
    write(tmp_path / "state")
    file = tmp_path / "state" / "shop.session"
    with pytest.raises(CheckpointError, match="has budget 'rho=1', the configuration 'rho=2'"):
        started(tmp_path, session=file, budget="rho=2")
    service = started(tmp_path, session=file)
    assert service.session.decisions == 40
    assert service.session.pending == (1, 6, 11, 16, 21, 26, 31, 36)
    assert "rho=1" in service.guarantee
    service.observe({"decision": 31, "response": 1})
    play(service, NEWS, 0, 5)
    crash(service)
    with pytest.raises(CheckpointError, match="has a session already"):
        started(tmp_path, session=file)
    again = started(tmp_path)
    assert again.session.decisions == 45 and 31 not in again.session.pending
    again.close()
    with pytest.raises(CheckpointError, match="loaded before"):
        started(tmp_path, session=file, folder="second")


def test_the_version_that_wrote_the_files_does_not_matter(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(decision_service, "version", lambda: "0.0.9")
    service = started(tmp_path)
    play(service, NEWS, 0, 5)
    crash(service)
    monkeypatch.undo()
    again = started(tmp_path)
    assert again.session.decisions == 5
    again.close()
    header = json.loads((tmp_path / "shop" / "snapshot").read_bytes().partition(b"\n")[0])
    assert header["written_by"] == dpb_gym.__version__
