"""SECURITY.md promises only what tests show."""

from __future__ import annotations

import re
from pathlib import Path

from typer.main import get_command

from dpb_gym.cli.app import app

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "SECURITY.md").read_text()
ROWS = [line.split("|")[1:-1] for line in TEXT.splitlines() if line.startswith("|")][2:]


def test_every_promise_names_tests_and_commands():
    assert len(ROWS) >= 5
    for _, commands, tests in ROWS:
        files = re.findall(r"`(tests/[^`]+)`", tests)
        assert files
        for path in files:
            assert "def test_" in (ROOT / path).read_text(), path
        for words in re.findall(r"`dpb ([^`]+)`", commands):
            assert words.split()[0] in get_command(app).commands
