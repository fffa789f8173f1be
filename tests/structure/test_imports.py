"""The import rules of docs/architecture.md hold."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_imports_run_downwards():
    command = [sys.executable, "-c", "from importlinter.cli import lint_imports_command as c; c()"]
    done = subprocess.run(
        [*command, "--no-cache"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-1000:]
    assert "KEPT" in done.stdout


def test_agents_are_never_named_by_the_library():
    for file in (ROOT / "dpb_gym").rglob("*.py"):
        assert "dpb_agents" not in file.read_text(), file
