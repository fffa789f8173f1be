"""The import rules of docs/architecture.md hold."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture
def house(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    return pytest.importorskip("house")


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


def test_no_modules_import_each_other(house):
    assert house.circles() == []


def test_no_modules_import_each_other_for_types(house):
    assert house.circles(types=True) == []


def test_the_way_to_the_first_action_is_short(house):
    assert len(house.until_act()) <= 60
    assert len(house.crossed_by_a_budget()) <= 8


def test_no_two_classes_share_a_name(house):
    assert house.doubled() == {}


def test_circles_and_twins_are_seen(house, tmp_path, monkeypatch):
    late = "def late():\n    import ringed.a\n"
    named = "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import ringed.e\n"
    twin = "import ringed.a\nclass Same: pass\n"
    files = {"__init__": "", "a": "from ringed import b\nclass Same: pass\n",
             "b": "from ringed import c", "c": late, "d": twin, "e": "import ringed.f",
             "f": named}  # fmt: skip
    (tmp_path / "ringed").mkdir()
    for name, text in files.items():
        (tmp_path / "ringed" / f"{name}.py").write_text(text)
    monkeypatch.syspath_prepend(str(tmp_path))
    ring = "ringed.a, ringed.b, ringed.c"
    assert house.circles("ringed") == [ring]
    assert house.circles("ringed", types=True) == [ring, "ringed.e, ringed.f"]
    monkeypatch.setattr(house, "ROOT", tmp_path)
    monkeypatch.setattr(house, "HOUSES", {"ringed": ""})
    assert house.doubled() == {"Same": 2}
