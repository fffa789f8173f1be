"""The program ``dpb serve``: killed processes, signals, and a second process."""

from __future__ import annotations

import base64
import http.client
import json
import random
import re
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from dpb_gym.cli import run
from dpb_gym.privacy.generations import Continuation
from dpb_gym.privacy.releasers.releaser import behind
from dpb_gym.privacy.tape import Tape
from dpb_gym.service.decision_service import _read_snapshot
from dpb_gym.service.journal import Journal
from dpb_gym.serving import Session

from .http_helpers import NEWS, configured, started

pytest.importorskip("uvicorn", reason="needs the extra [serve]")
pytest.importorskip("prometheus_client", reason="needs the extra [serve]")


class Program:
    """A running ``dpb serve``."""

    def __init__(self, config: Path, *options: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "dpb_gym", "serve", str(config), "--port", "0", *options],
            stderr=subprocess.PIPE,
            text=True,
        )
        assert self.process.stderr
        self.said = ""
        for line in self.process.stderr:
            self.said += line
            if match := re.search(r"http://127\.0\.0\.1:(\d+)", line):
                self.port = int(match[1])
                return
        raise AssertionError(self.said)

    def client(self) -> http.client.HTTPConnection:
        return http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)

    def end(self, number: int) -> int:
        """Send a signal and return the exit status."""
        self.process.send_signal(number)
        _, more = self.process.communicate(timeout=60)
        self.said += more
        return self.process.returncode


@contextmanager
def program(config: Path, *options: str) -> Iterator[Program]:
    running = Program(config, *options)
    try:
        yield running
    finally:
        running.process.kill()
        running.process.communicate()


def post(client: http.client.HTTPConnection, path: str, body: Any) -> Any:
    client.request("POST", path, json.dumps(body), {"Content-Type": "application/json"})
    answer = client.getresponse()
    content = answer.read()
    assert answer.status in (200, 204), content
    return json.loads(content) if content else None


def play(running: Program, rng: random.Random, answered: list[Any]) -> None:
    """Play customers until the connection breaks."""
    client = running.client()
    try:
        while True:
            row = {"features": {"hour": rng.uniform(0, 24), "age": rng.uniform(0, 120)}}
            answer = post(client, "/decide", row)
            answered.append(answer)
            if rng.random() < 0.8:
                response = float(answer["action"] == "music")
                post(client, "/observe", {"decision": answer["decision"], "response": response})
    except (OSError, http.client.HTTPException):
        client.close()


@pytest.mark.slow
def test_kill_9_at_any_time_releases_nothing_twice(tmp_path: Path) -> None:
    """Every release that any process made is the one that ledger and journal have."""
    pytest.importorskip("opendp", reason="needs the extra [secure]")
    configured(tmp_path, noise="system", problem={**NEWS["problem"], "horizon": 2000})
    config = tmp_path / "shop.yaml"
    first = started(tmp_path, noise="system", problem={**NEWS["problem"], "horizon": 2000})
    first.close()
    begin = (tmp_path / "shop" / "snapshot").read_bytes()
    (tmp_path / "begin").write_bytes(begin)
    rng = random.Random(5)
    answered: list[Any] = []
    events: dict[int, Any] = {}
    for _ in range(2):
        with program(config) as running:
            until = len(answered) + rng.randint(90, 165)
            player = threading.Thread(target=play, args=(running, rng, answered))
            player.start()
            while len(answered) < until and player.is_alive():
                player.join(0.002)
            running.process.kill()
            player.join()
        journal = Journal(tmp_path / "shop" / "journal")
        journal.close()
        for event in journal.events:
            if "n" in event:
                assert events.setdefault(event["n"], event) == event
    assert sorted(events) == list(range(1, len(events) + 1))
    last = started(tmp_path, noise="system", problem={**NEWS["problem"], "horizon": 2000})

    # each answer is an event, and there is one for each number
    decided = {event["decision"]: event["action"] for event in events.values() if "tape" in event}
    assert [answer["decision"] for answer in answered] == sorted({f["decision"] for f in answered})
    assert all(decided[answer["decision"]] == answer["action"] for answer in answered)
    assert len(answered) <= len(decided) == last.session.decisions <= len(answered) + 3

    # the whole history, repeated by one process from the first snapshot
    header, content = _read_snapshot(tmp_path / "begin")
    own = header["session"]
    one = Session.restored(content, Continuation(own["id"], own["generation"]), tmp_path / "begin")
    tapes = []
    for number in sorted(events):
        event = events[number]
        if "observe" in event:
            one.observe(*event["observe"])
            continue
        tape = base64.b64decode(event["tape"])
        tapes += [tape] * bool(tape)
        with Tape(tape):
            one.decide(**last.bodies.arguments(event["decide"]))
    (mine,) = [behind(each) for each in one.agent.curator.releasers]
    (theirs,) = [behind(each) for each in last.session.agent.curator.releasers]
    assert mine._released.tobytes() == theirs._released.tobytes()
    assert one.pending == last.session.pending

    # the ledger charged the plan once, before the first release, and the plan has every release
    assert len(tapes) == len(set(tapes)) == theirs.releases >= 5
    assert theirs.releases <= len(theirs._schedule.ends)
    before, after = one.agent.curator.ledger, last.session.agent.curator.ledger
    assert before.entries == after.entries and len(after.entries) == 1
    assert after.spent <= after.budget.limit
    assert str(last.session.guarantee) == str(one.guarantee)
    last.close()


@pytest.mark.slow
def test_a_signal_saves_and_a_second_process_is_refused(tmp_path: Path) -> None:
    configured(tmp_path)
    config = tmp_path / "shop.yaml"
    with program(config) as running:
        client = running.client()
        row = {"features": {"hour": 1, "age": 2}}
        assert post(client, "/decide", row)["decision"] == 1
        client.request("GET", "/health")
        assert json.loads(client.getresponse().read())["decisions"] == 1
        client.close()
        done = subprocess.run(
            [sys.executable, "-m", "dpb_gym", "serve", str(config), "--port", "0"],
            capture_output=True,
            text=True,
            check=False,
            timeout=120,
        )
        assert done.returncode == 1 and "another process serves the folder" in done.stderr
        assert running.end(signal.SIGTERM) == -signal.SIGTERM
    journal = Journal(tmp_path / "shop" / "journal")
    journal.close()
    assert journal.events == []
    service = started(tmp_path)
    assert service.session.pending == (1,)
    service.close()


def errors_of(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str]:
    status = run(["serve", *words])
    return status, capsys.readouterr().err


def test_several_workers_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    configured(tmp_path)
    status, said = errors_of(capsys, str(tmp_path / "shop.yaml"), "--workers", "2")
    assert status == 2 and "one process owns the session" in said
    assert not (tmp_path / "shop").exists()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"workers": 4}, "workers: unknown key"),
        ({"agent": "lin-uch"}, "did you mean 'lin-ucb'"),
        ({"budget": "rho=-1"}, "rho"),
        ({"port": "x"}, "port"),
        ({"host": "0.0.0.0"}, "token_file"),
        ({"token_file": "missing"}, "token_file cannot be read"),
        ({"problem": {"kind": "recommendation"}}, "needs horizon|needs"),
        ({"problem": {**NEWS["problem"], "horizon": "long"}}, "problem.horizon"),
        ({"problem": {**NEWS["problem"], "actions": ["a", "a"]}}, "appears twice"),
        ({"problem": {**NEWS["problem"], "actions": "a"}}, "problem.actions"),
        ({"problem": {**NEWS["problem"], "features": ["a"]}}, "problem.features"),
        ({"problem": {**NEWS["problem"], "features": {"a": [1, 0]}}}, "problem.features.a"),
        ({"problem": {**NEWS["problem"], "dim": 4}}, "problem.dim: 9 follows"),
        ({"problem": {**NEWS["problem"], "colour": 4}}, "colour"),
        ({"parameters": {"colour": 4}}, "colour"),
    ],
)
def test_wrong_configurations_are_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], change: dict[str, Any], message: str
) -> None:
    configured_text = {**NEWS, **change}
    (tmp_path / "shop.yaml").write_text(json.dumps(configured_text))
    status, said = errors_of(capsys, str(tmp_path / "shop.yaml"), "--port", "0")
    if "port" in change:
        status, said = errors_of(capsys, str(tmp_path / "shop.yaml"))
    assert status == 2 and said.count("\n") == 1, said
    assert re.search(message, said), said


def test_a_port_in_use_is_an_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    configured(tmp_path)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        status, said = errors_of(capsys, str(tmp_path / "shop.yaml"), "--port", port)
    assert status == 2 and f"port {port}" in said
    assert not (tmp_path / "shop").exists()
