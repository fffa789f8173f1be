"""The page of integrations shows what was stored, and its lanes can be run."""

from __future__ import annotations

import ast
import importlib
import importlib.util
import json
import re
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def lanes() -> ModuleType:
    sys.path.insert(0, str(ROOT / "benchmarks"))
    try:
        path = ROOT / "benchmarks/integrations.py"
        spec = importlib.util.spec_from_file_location("integrations", path)
        assert spec is not None and spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
    finally:
        sys.path.pop(0)
    return module


@pytest.fixture(scope="module")
def stored(lanes: ModuleType) -> Any:
    return json.loads(lanes.STORED.read_text("utf-8"))


def test_the_page_shows_what_is_stored(lanes: ModuleType, stored: Any) -> None:
    page = lanes.PAGE.read_text("utf-8")
    assert lanes.marked.block(page, "integrations") == lanes.table(stored)
    assert lanes.marked.block(page, "counts") == lanes.counts(stored)
    assert "docs/add-an-environment.md#in-other-libraries" in (ROOT / "README.md").read_text(
        "utf-8"
    )


def test_every_lane_has_rows_with_pinned_versions(lanes: ModuleType, stored: Any) -> None:
    assert list(stored["lanes"]) == list(lanes.LANES)
    for name, lane in lanes.LANES.items():
        entry = stored["lanes"][name]
        assert entry["rows"] and (ROOT / f"benchmarks/integration_checks/{lane.check}.py").exists()
        for package in lane.packages:
            pinned = re.fullmatch(r"([\w.-]+)(?:\[[\w,]+\])?==([\w.]+)", package)
            if pinned and entry["versions"]:
                version = entry["versions"][pinned[1]]
                assert version.partition("+")[0] == pinned[2], package
        for row in entry["rows"]:
            assert row["verdict"] in lanes.ORDER
            assert bool(row["line"]) == (row["verdict"] == "needs this line")


ROWS = """
import sys
sys.path.insert(0, {checks!r})
from rows import attempt, difference

def fail():
    raise ValueError("no\\nsuch thing")

attempt("a", "works", lambda: 3)
attempt("b", "fails", fail)
attempt("c", "needs", fail, "one line", lambda: "seen")
attempt("d", "needs and fails", fail, "one line", fail)
attempt("e", "exits", lambda: sys.exit(2))
attempt("f", "equal", lambda: difference([1.0, 2.0], [1.0, 2.0]))
attempt("g", "differs", lambda: difference([1.0, 2.0], [1.0, 2.1]))
"""


def test_rows_say_what_happened(lanes: ModuleType) -> None:
    program = ROWS.format(checks=str(lanes.CHECKS))
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    rows = [json.loads(line[4:]) for line in done.stdout.splitlines()]
    verdicts = {row["program"]: row["verdict"] for row in rows}
    assert verdicts == {
        "a": "works unmodified", "b": "does not", "c": "needs this line", "d": "does not",
        "e": "does not", "f": "works unmodified", "g": "does not",
    }  # fmt: skip
    assert rows[1]["seen"] == "ValueError: no such thing"
    assert rows[2]["line"] == "one line" and rows[3]["line"] == ""
    text = lanes.table({"lanes": {"obp": {"versions": {"obp": "1"}, "rows": rows}}})
    assert "needs this line: `one line`" in text and len(text.splitlines()) == 2 + len(rows)


def test_what_cannot_be_had_is_skipped_with_a_reason(
    lanes: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def missing(*_: Any) -> Any:
        raise lanes.UnavailableError("no such package")

    monkeypatch.setattr(lanes, "made", missing)
    (row,) = lanes.run("obp")["rows"]
    assert (row["verdict"], row["seen"]) == ("skipped", "no such package")
    monkeypatch.setattr(lanes, "made", lambda *_: Path(sys.executable))
    monkeypatch.setattr(lanes, "versions", lambda *_: {})
    monkeypatch.setenv("INTEGRATION_SOURCES", str(tmp_path))
    (row,) = lanes.run("cleanrl")["rows"]
    assert row["verdict"] == "skipped" and "INTEGRATION_SOURCES has no cleanrl" in row["seen"]


def test_a_check_that_ends_early_is_a_row(
    lanes: ModuleType, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "broken.py").write_text("print('ROW {\"program\": 1}')\nraise SystemExit('gone')")
    monkeypatch.setattr(lanes, "CHECKS", tmp_path)
    monkeypatch.setattr(lanes, "made", lambda *_: Path(sys.executable))
    monkeypatch.setattr(lanes, "versions", lambda *_: {})
    monkeypatch.setattr(lanes, "LANES", {"x": lanes.Lane("broken", ())})
    rows = lanes.run("x")["rows"]
    assert rows[0] == {"program": 1}
    assert rows[1]["verdict"] == "does not" and rows[1]["seen"] == "gone"


OURS = ("dpb_gym", "dpb_agents", "dpb_data")
CHECKS = sorted((ROOT / "benchmarks/integration_checks").glob("*.py"))


def missing(text: str) -> list[str]:
    """Return the names of this project that a program uses and that do not exist."""
    tree = ast.parse(text)
    modules: dict[str, ModuleType] = {}
    wanted: list[tuple[ModuleType, str]] = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                if alias.name in OURS:
                    modules[alias.asname or alias.name] = importlib.import_module(alias.name)
        elif isinstance(node, ast.ImportFrom) and (node.module or "").startswith(OURS):
            module = importlib.import_module(node.module or "")
            for alias in node.names:
                with suppress(ModuleNotFoundError):  # a submodule is found once it is imported
                    importlib.import_module(f"{module.__name__}.{alias.name}")
                value = getattr(module, alias.name, None)
                wanted.append((module, alias.name))
                if isinstance(value, ModuleType):
                    modules[alias.asname or alias.name] = value
    for node in ast.walk(tree):
        owner = node.value if isinstance(node, ast.Attribute) else None
        if isinstance(owner, ast.Name) and owner.id in modules:
            wanted.append((modules[owner.id], node.attr))
    return [f"{module.__name__}.{name}" for module, name in wanted if not hasattr(module, name)]


@pytest.mark.parametrize("path", CHECKS, ids=lambda path: path.stem)
def test_the_checks_use_names_that_exist(path: Path) -> None:
    """The lanes do not run in this suite, so nothing else would see a renamed class."""
    assert missing(path.read_text("utf-8")) == []


def test_a_name_that_does_not_exist_is_seen() -> None:
    text = "import dpb_gym\nfrom dpb_gym import registry\nregistry.gone\ndpb_gym.evaluate\n"
    assert missing(text) == ["dpb_gym.registry.gone"]
