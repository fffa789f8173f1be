"""The import rules of docs/contributing.md hold, and code is as small as promised."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/contributing.md").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def structure():
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(ROOT / "benchmarks"))
        made = pytest.importorskip("structure")
        yield made
    made.parsed.cache_clear()  # a tree of every file takes a hundred megabytes


def test_imports_run_downwards():
    command = [sys.executable, "-c", "from importlinter.cli import lint_imports_command as c; c()"]
    done = subprocess.run(
        [*command, "--no-cache"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-1000:]
    assert "KEPT" in done.stdout


def test_the_page_lists_the_layers_of_the_import_contract():
    tools = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]
    contract = tools["importlinter"]["contracts"][0]["layers"]
    table = PAGE.partition("| layer | content |")[2].partition("\n\n")[0]
    rows = re.findall(r"^\| (`.+?) \|", table, re.M)
    assert [row.replace("`", "").replace(", ", " | ") for row in rows] == contract


def test_every_path_of_the_page_exists():
    # neither addresses nor hidden folders
    paths = set(re.findall(r"(?<![\w./:-])[\w/-]+/(?:[\w-]+\.(?:py|yaml))?", PAGE))
    missing = {p for p in paths if not any((ROOT / top / p).exists() for top in ("", "dpb_gym"))}
    assert len(paths) > 30 and not missing


def test_the_library_does_not_mention_the_agents_package():
    for file in (ROOT / "dpb_gym").rglob("*.py"):
        assert "dpb_agents" not in file.read_text(), file


def test_imports_have_no_cycles(structure):
    assert structure.cycles() == []


def test_type_annotations_make_no_cycles(structure):
    assert structure.cycles(types=True) == []


@pytest.mark.parametrize("package", ["dpb_gym", "dpb_agents", "dpb_data"])
def test_packages_form_no_circle(structure, package):
    """Imports of modules may run downwards while those of their packages do not."""
    assert structure.cycles(package, packages=True) == []


def test_circles_of_packages_are_detected(structure, tmp_path, monkeypatch):
    files = {
        "upper/a": "from rounds import lower\n",
        "upper/b": "",
        "lower/c": "import rounds.upper.b\n",
    }
    for name, text in {**files, "__init__": "", "upper/__init__": "", "lower/__init__": ""}.items():
        path = tmp_path / "rounds" / f"{name}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    monkeypatch.syspath_prepend(str(tmp_path))
    assert structure.cycles("rounds") == []
    assert structure.cycles("rounds", packages=True) == ["rounds.lower, rounds.upper"]


def test_call_paths_to_the_first_action_are_short(structure):
    assert len(structure.calls_before_act()) <= 64
    assert len(structure.calls_with_budget()) <= 8


def test_no_two_classes_share_a_name(structure):
    # every algorithm has a state and constants of its own
    assert structure.duplicate_classes().keys() <= {"Known", "State"}


@pytest.mark.parametrize("package", ["dpb_gym", "agents/dpb_agents", "envs_data/dpb_data"])
def test_no_two_modules_of_a_package_share_a_name(package):
    files = [f.relative_to(ROOT) for f in (ROOT / package).rglob("*.py") if f.stem != "__init__"]
    names = [file.stem for file in files]
    assert len(names) > 15 and len(names) == len(set(names))


def test_a_class_of_privacy_is_at_most_two_levels_deep(structure):
    """Sums are composed: a reader of a class opens one base at most."""
    depths = structure.class_depths("dpb_gym/privacy")
    assert {name: depth for name, depth in depths.items() if depth > 2} == {}
    assert depths["Sum"] == depths["Minimiser"] == 2
    assert depths["Releaser"] == depths["Mechanism"] == 1


@pytest.mark.parametrize("folder", ["dpb_gym/privacy", "agents"])
def test_privacy_and_agents_state_reasons(structure, folder):
    assert structure.comments(folder) >= 5.0


@pytest.mark.parametrize("folder", ["dpb_gym", "agents", "envs_data"])
def test_a_statement_assigns_one_thing(structure, folder):
    """A tuple is assigned to a tuple only to swap names, or where the parts belong together."""
    assert structure.packed(folder) < 3.0


def test_depths_comments_and_packed_assignments_are_counted(structure, tmp_path, monkeypatch):
    (tmp_path / "ringed").mkdir()
    source = "class A(dict): pass\nclass B(A): pass\nclass C(x.B, int): pass\n"
    source += "a, b = 1, 2  # why\nc = (a, b)\n(d, e) = c\nf = 1\n"
    (tmp_path / "ringed/a.py").write_text(source)
    monkeypatch.setattr(structure, "ROOT", tmp_path)
    monkeypatch.setattr(structure, "ROOTS", {"ringed": ""})
    assert structure.class_depths("ringed") == {"A": 1, "B": 2, "C": 3}
    assert structure.comments("ringed") == 100 / 7
    assert structure.packed("ringed") == 25.0


def test_lines_of_code_leave_out_docstrings_comments_and_blanks(structure):
    source = '"""Module\n\ndocstring."""\n\nX = 1  # one\n"""Docstring of X."""\n# comment\n'
    source += 'def f(\n    x\n):\n    """Docstring."""\n\n    return """two\n\nlines""" + x\n'
    assert structure.code_lines(source) == 1 + 3 + 3


def test_cycles_and_duplicate_classes_are_detected(structure, tmp_path, monkeypatch):
    late = "def late():\n    import ringed.a\n"
    named = "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import ringed.e\n"
    duplicate = "import ringed.a\nclass Same: pass\n"
    files = {"__init__": "", "a": "from ringed import b\nclass Same: pass\n",
             "b": "from ringed import c", "c": late, "d": duplicate, "e": "import ringed.f",
             "f": named}  # fmt: skip
    (tmp_path / "ringed").mkdir()
    for name, text in files.items():
        (tmp_path / "ringed" / f"{name}.py").write_text(text)
    monkeypatch.syspath_prepend(str(tmp_path))
    ring = "ringed.a, ringed.b, ringed.c"
    assert structure.cycles("ringed") == [ring]
    assert structure.cycles("ringed", types=True) == [ring, "ringed.e, ringed.f"]
    monkeypatch.setattr(structure, "ROOT", tmp_path)
    monkeypatch.setattr(structure, "ROOTS", {"ringed": ""})
    assert structure.duplicate_classes() == {"Same": 2}


def test_the_page_states_the_size_of_own_code():
    """Within a quarter, so that small changes need no new number."""
    section = PAGE.partition("## Own code and libraries")[2]
    rows = re.findall(r"^\| (`[^|]+`) in `([\w/.]+)` \| (\d+) \|", section, re.M)
    assert len(rows) == 7
    for names, file, stated in rows:
        tree = ast.parse((ROOT / "dpb_gym" / file).read_text("utf-8"))
        wanted = set(re.findall(r"`(\w+)`", names))
        lines = {defined(node): node.end_lineno - node.lineno + 1 for node in tree.body}
        assert wanted <= set(lines), names
        assert abs(sum(lines[name] for name in wanted) / int(stated) - 1) <= 0.25, names


def defined(node):
    """Return the name that a statement of a module defines, None for other statements."""
    target = getattr(node, "target", None)
    return getattr(node, "name", None) or getattr(target, "id", None)
