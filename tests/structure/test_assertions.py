"""Every test says what it expects."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

TESTS = Path(__file__).parents[1]
CHECKS = {"raises", "warns", "check_env"}
"""Calls that fail by themselves: those of pytest, and Gymnasium's checker of environments."""


def states(function: ast.AST) -> bool:
    """Return whether a function asserts, or calls what fails by itself."""
    for node in ast.walk(function):
        if isinstance(node, ast.Assert):
            return True
        if isinstance(node, ast.Call) and (
            called(node) in CHECKS or called(node).startswith("assert_")
        ):
            return True
    return False


def called(call: ast.Call) -> str:
    """Return the name of what is called, without its object."""
    function = call.func
    return function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")


def statements(node: ast.AST) -> Iterator[ast.AST]:
    """Yield the statements in a node, without their expressions, which are most of a tree."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, (ast.stmt, ast.excepthandler, ast.match_case)):
            yield child
            yield from statements(child)


def silent_tests(text: str) -> list[str]:
    """Return the tests of a file that state nothing, also not through a function of the file."""
    functions = {
        node.name: node for node in statements(ast.parse(text)) if isinstance(node, ast.FunctionDef)
    }
    stating = {name for name, node in functions.items() if states(node)}
    tests = [name for name in functions if name.startswith("test")]
    return [
        name
        for name in tests
        if name not in stating
        and not any(
            isinstance(node, ast.Call) and called(node) in stating
            for node in ast.walk(functions[name])
        )
    ]


def test_every_test_has_an_assertion() -> None:
    silent = {
        path.relative_to(TESTS).as_posix(): names
        for path in sorted(TESTS.rglob("test_*.py"))
        if (names := silent_tests(path.read_text(encoding="utf-8")))
    }
    assert silent == {}


def test_a_test_without_assertion_is_found() -> None:
    text = """
def helper():
    assert True

def test_by_helper():
    helper()

def test_nothing():
    print(helper)
"""
    assert silent_tests(text) == ["test_nothing"]
