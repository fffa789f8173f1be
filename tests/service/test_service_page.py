"""docs/service.md and the Dockerfile state what the service does."""

from __future__ import annotations

import json
import re
import shlex
from pathlib import Path
from typing import Any

import pytest
import yaml
from typer.main import get_command

import dpb_gym
from dpb_gym.cli.app import app as commands
from dpb_gym.service import DecisionService, ServiceSettings
from dpb_gym.service.application import MOST_BYTES, application
from dpb_gym.service.bodies import MOST_ROWS
from dpb_gym.service.decision_service import SAVE_SECONDS
from dpb_gym.service.settings import TOKEN_VARIABLE

from .http_helpers import call

pytest.importorskip("starlette", reason="needs the extra [serve]")
pytest.importorskip("prometheus_client", reason="needs the extra [serve]")
pytest.importorskip("opendp", reason="needs the extra [secure]")
ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "service.md").read_text(encoding="utf-8")
DOCKERFILE = (ROOT / "examples" / "service" / "Dockerfile").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```(\w+)\n(.*?)^```", PAGE, re.M | re.S)


def served(folder: Path, more: str = "") -> DecisionService:
    (config,) = [code for language, code in BLOCKS if code.startswith("# shop.yaml")]
    (folder / "shop.yaml").write_text(config + more + "state_dir: state\n", encoding="utf-8")
    return DecisionService(ServiceSettings.read(folder / "shop.yaml"), warm=False)


def test_the_requests_of_the_page_work(tmp_path: Path) -> None:
    service = served(tmp_path)
    app = application(service)
    lines = [line for _, code in BLOCKS for line in code.splitlines() if line.startswith("curl ")]
    answers = []
    for line in lines:
        _, address, *body = shlex.split(line)
        path = address.removeprefix("http://127.0.0.1:8000")
        method = "POST" if body else "GET"
        status, _, content = call(app, method, path, body[-1].encode() if body else b"")
        assert status in (200, 204), line
        answers.append(content.decode())
    shown = re.findall(r"`(\{\"decision\".*?\})`", PAGE)
    assert len(answers) == 4 and len(shown) == 2 and answers[0] in shown
    assert service.settings.port == 8000
    service.close()


def test_the_error_of_the_page_is_the_answer(tmp_path: Path) -> None:
    service = served(tmp_path)
    row = {"features": {"hour": 9, "age": "young"}}
    status, _, content = call(application(service), "POST", "/decide", row)
    (shown,) = [code for language, code in BLOCKS if language == "json"]
    assert status == 400 and json.loads(content) == json.loads(shown)
    service.close()


def test_the_account_of_the_page_works(tmp_path: Path) -> None:
    (tmp_path / "people.key").write_bytes(b"k" * 32)
    (more,) = [code for language, code in BLOCKS if code.startswith("account:")]
    service = served(tmp_path, more)
    row = {"features": {"hour": 9, "age": 41}, "user": "ana"}
    app = application(service)
    assert call(app, "POST", "/decide", row)[0] == 200
    assert call(app, "POST", "/decide", {"features": row["features"]})[0] == 400
    names = [tmp_path / "shop" / "journal", tmp_path / "people.db"]
    assert [b"ana" in path.read_bytes() for path in names] == [True, False]
    service.save()
    assert b"ana" not in names[0].read_bytes()
    assert b'"ana"' not in (tmp_path / "shop" / "snapshot").read_bytes()
    service.close()


def test_numbers_of_the_page() -> None:
    assert f"at most {MOST_ROWS:,} rows" in PAGE and "more than 1 MiB" in PAGE
    assert MOST_BYTES == 1 << 20 and SAVE_SECONDS == 300.0 and "every five minutes" in PAGE
    default = ServiceSettings.model_fields["most_pending"].default
    assert f"{default:,} by default" in PAGE and TOKEN_VARIABLE in PAGE


def test_the_dockerfile_installs_and_starts_this_version() -> None:
    wanted = re.search(r'"dpb-gym\[([\w,]+)\]==([\d.]+)"', DOCKERFILE)
    assert wanted and wanted[2] == dpb_gym.__version__
    assert wanted[1].split(",") == ["serve", "secure"]
    entry = json.loads(re.search(r"^ENTRYPOINT (.+)$", DOCKERFILE, re.M)[1])  # type: ignore[index]
    more = json.loads(re.search(r"^CMD (.+)$", DOCKERFILE, re.M)[1])  # type: ignore[index]
    assert entry[:2] == ["dpb", "serve"] and more == ["shop.yaml"]
    group: Any = get_command(commands)
    given = group.commands["serve"].make_context("serve", [*entry[2:], *more]).params
    assert given["host"] == "0.0.0.0" and given["port"] == 8000
    assert re.search(r"^USER (?!root)", DOCKERFILE, re.M)
    assert "XDG_STATE_HOME=/state" in DOCKERFILE and 'VOLUME ["/shop", "/state"]' in DOCKERFILE
    assert yaml.safe_load(next(code for _, code in BLOCKS if "# shop.yaml" in code))["agent"]
