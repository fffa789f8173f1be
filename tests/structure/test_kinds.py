"""A kind of problems is one place: no other code asks for kinds by name."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from dpb_gym.problems.kinds import _BUILT_IN

ROOT = Path(__file__).parents[2] / "dpb_gym"
OWN = ("kinds", "problems/kinds.py")
"""Where names of kinds belong: the kinds themselves, and the list of them."""
QUOTED = re.compile(rf"[\"']({'|'.join(_BUILT_IN)})[\"']")


def names_in(node: ast.AST) -> bool:
    """Return whether a node is the name of a kind, or a tuple, list or set with one."""
    if isinstance(node, (ast.Tuple, ast.List, ast.Set)):
        return any(map(names_in, node.elts))
    return isinstance(node, ast.Constant) and node.value in _BUILT_IN


def asked(source: str) -> Iterator[int]:
    """Yield the lines that compare with a kind's name, or look something up by it."""
    if not QUOTED.search(source):  # most files, whose syntax trees take seconds
        return
    for node in ast.walk(ast.parse(source)):
        nodes: list[ast.AST] = []
        if isinstance(node, ast.Compare):
            nodes = [node.left, *node.comparators]
        elif isinstance(node, ast.Dict):
            nodes = [key for key in node.keys if key is not None]
        elif isinstance(node, ast.Subscript):
            nodes = [node.slice]
        elif isinstance(node, ast.MatchValue):
            nodes = [node.value]
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            nodes = node.args[:1] if node.func.attr in ("get", "pop", "startswith") else []
        if any(map(names_in, nodes)):
            yield nodes[0].lineno


def test_no_code_outside_of_the_kinds_asks_for_their_names() -> None:
    files = [f for f in ROOT.rglob("*.py") if not f.relative_to(ROOT).as_posix().startswith(OWN)]
    assert len(files) > 150
    lines = {f"{f.relative_to(ROOT)}:{line}" for f in files for line in asked(f.read_text("utf-8"))}
    assert lines == set()


@pytest.mark.parametrize(
    "source",
    [
        "x = kind == 'pricing'", "x = 'assortment' != info.kind", "x = kind in ('a', 'pricing')",
        "x = {'recommendation': 1}", "x = table['pricing']", "x = table.get('pricing', 0)",
        "match kind:\n    case 'assortment-pricing':\n        pass",
    ],
)  # fmt: skip
def test_questions_are_found(source: str) -> None:
    assert [*asked(source)]


@pytest.mark.parametrize(
    "source", ["kind = 'pricing'", "info = ProblemInfo('pricing', 5)", "f(kind='pricing')"]
)
def test_statements_are_no_questions(source: str) -> None:
    assert not [*asked(source)]
