"""The board that takes submissions: its pages, imports, and what it rejects."""

import asyncio
import importlib.util
import json
from pathlib import Path

import pytest

from dpb_gym.exchange.archive import submit
from dpb_gym.results.result import Result
from dpb_gym.running.execution import run_plan
from dpb_gym.running.plan import plan_suite
from dpb_gym.suites.suite import parse_suite

pytest.importorskip("starlette", reason="needs the extra [serve]")
SPACE = Path(__file__).parents[2] / "examples" / "space"
SUITE = """
name: tiny-v0
replicates: 2
tasks: [{name: prices, env: DPB/Pricing-v0, env_kwargs: {dim: 2}, horizon: 20}]
agents: [random]
"""


def run(folder, agents):
    suite = parse_suite(SUITE, "test suite")
    run_plan(suite, plan_suite(suite, agents), folder, workers=1)
    return folder


@pytest.fixture
def space(tmp_path, monkeypatch):
    board = run(tmp_path / "board", ["random"])
    monkeypatch.setenv("DPB_BOARD", str(board))
    spec = importlib.util.spec_from_file_location("space_app", SPACE / "app.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def archive(tmp_path):
    theirs = run(tmp_path / "theirs", ["greedy-pricing"])
    submit(theirs, "greedy-pricing", tmp_path / "mine.zip", sender="Ada")
    return (tmp_path / "mine.zip").read_bytes()


def call(app, method, path, body=b""):
    """Return the status and the text of the application's response."""
    parts = [body[i : i + 1000] for i in range(0, len(body), 1000)] or [b""]
    sent = []

    async def receive():
        part = parts.pop(0)
        return {"type": "http.request", "body": part, "more_body": bool(parts)}

    async def send(message):
        sent.append(message)

    scope = {"type": "http", "method": method, "path": path, "headers": [], "query_string": b""}
    asyncio.run(app(scope, receive, send))
    return sent[0]["status"], b"".join(part.get("body", b"") for part in sent[1:]).decode()


def test_a_submission_appears_on_the_page_as_stated(space, archive):
    status, before = call(space.app, "GET", "/")
    assert status == 200 and "random" in before and "greedy-pricing" not in before
    status, text = call(space.app, "POST", "/submissions", archive)
    answer = json.loads(text)["message"]
    assert status == 201 and answer == "greedy-pricing by Ada: 1 cells added, 0 known"
    assert "greedy-pricing" in call(space.app, "GET", "/")[1]
    stated = [row for row in Result.load(space.BOARD).rows if row.cell.agent.name != "random"]
    assert [row.trust for row in stated] == ["stated by Ada"]
    status, text = call(space.app, "POST", "/submissions", archive)
    again = "the archive: all 1 cells are in the board already; nothing was imported"
    assert status == 400 and json.loads(text)["message"] == again


def test_bad_archives_leave_the_board_unchanged(space, archive, monkeypatch):
    manifest = Path(space.BOARD, "manifest.json").read_bytes()
    middle = len(archive) // 2
    altered = archive[:middle] + bytes([archive[middle] ^ 1]) + archive[middle + 1 :]
    for body in (b"", b"no archive", archive[:-40], altered):
        status, text = call(space.app, "POST", "/submissions", body)
        assert status == 400 and json.loads(text)["message"]
    monkeypatch.setattr(space, "LARGEST", len(archive) - 1)
    status, text = call(space.app, "POST", "/submissions", archive)
    assert status == 413 and "nothing was imported" in text
    assert Path(space.BOARD, "manifest.json").read_bytes() == manifest


def test_the_form_and_the_container_name_what_exists(space):
    assert "fetch('submissions'" in call(space.app, "GET", "/submit")[1]
    assert call(space.app, "GET", "/submissions")[0] == 405
    copied = (SPACE / "Dockerfile").read_text()
    assert all(path.name in copied for path in (SPACE / "app.py", SPACE / "submit.html"))
