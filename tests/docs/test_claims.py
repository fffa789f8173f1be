"""Each paragraph of the pages about privacy names tests that hold it, and these exist.

Limits: the text of a test is not compared with the sentences. A reviewer does that.
"""

from __future__ import annotations

import ast
import functools
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = ("docs/guarantees.md", "docs/trust.md", "docs/audit.md", "docs/account.md", "SECURITY.md")
FENCE = re.compile(r"^```.*?^```$", re.M | re.S)
GENERATED = re.compile(r"<!-- (?!tests:)([a-z -]+?) -->\n.*?<!-- /[a-z-]+ -->", re.S)
NAMES = re.compile(r"<!-- tests: (.*?) -->", re.S)
MOST_EXEMPT = 8
"""Paragraphs of the five pages that may name a reason instead of tests."""


def blocks(text: str) -> Iterator[tuple[str, str]]:
    """Yield each block of running text with its comment, or with "" if it has none.

    A block that ends with a colon belongs to the list, table or code that follows. Code between a
    block and its comment is no part of either.
    """
    text = NAMES.sub(lambda m: f"\n\n<!-- tests: {' '.join(m[1].split())} -->\n\n", text)
    text = GENERATED.sub("", FENCE.sub("", text))
    open_block = ""
    for part in re.split(r"\n\s*\n", text):
        block = part.strip()
        if not block or block.startswith("!["):
            continue
        names = NAMES.fullmatch(block)
        if names:
            yield open_block or "code, or a generated table", names[1]
            open_block = ""
        elif block.startswith("#"):
            if open_block:
                yield open_block, ""
            open_block = ""
        else:
            if open_block and not open_block.endswith(":"):
                yield open_block, ""
            open_block = block
    if open_block:
        yield open_block, ""


def named(names: str) -> list[tuple[str, str]]:
    """Return the path and the function of each test; "" stands for a whole file."""
    tests: list[tuple[str, str]] = []
    path = ""
    for name in names.split(", "):
        given, separator, function = name.rpartition("::")
        if separator:
            path = given
        elif name.endswith(".py"):
            path = name
            function = ""
        tests.append((path, function))
    return tests


@functools.cache
def functions(path: Path) -> frozenset[str]:
    """Return the names of the tests of a file."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    nodes = (node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef))
    return frozenset(node.name for node in nodes if node.name.startswith("test_"))


@pytest.mark.parametrize("page", PAGES)
def test_every_paragraph_names_tests_that_exist(page: str) -> None:
    wrong = []
    pairs = list(blocks((ROOT / page).read_text(encoding="utf-8")))
    for block, names in pairs:
        start = block[:60]
        if not names:
            wrong.append(f"no tests: {start}")
        elif not names.startswith("none, "):
            for path, function in named(names):
                file = ROOT / "tests" / path
                if not file.is_file() or (function and function not in functions(file)):
                    wrong.append(f"no such test: {path}::{function} of {start}")
    assert len(pairs) > 3 and not wrong, "\n".join(wrong)


def test_few_paragraphs_are_without_tests() -> None:
    texts = [(ROOT / page).read_text(encoding="utf-8") for page in PAGES]
    exempt = [names for text in texts for _, names in blocks(text) if names.startswith("none, ")]
    assert all(len(names) > len("none, ") + 10 for names in exempt)
    assert len(exempt) <= MOST_EXEMPT


def test_paragraphs_without_tests_are_noticed() -> None:
    text = "# A\n\nOne.\n<!-- tests: a.py::test_b, test_c, d.py -->\n\n![picture](a.svg)\n\n"
    text += "Two:\n\n- three\n\n## B\n\nFour."
    assert list(blocks(text)) == [
        ("One.", "a.py::test_b, test_c, d.py"),
        ("- three", ""),
        ("Four.", ""),
    ]
    assert named("a.py::test_b, test_c, d.py") == [
        ("a.py", "test_b"),
        ("a.py", "test_c"),
        ("d.py", ""),
    ]
    after_code = "Five:\n\n```text\nx\n\ny\n```\n\n<!-- tests: none, z -->"
    assert list(blocks(after_code)) == [("Five:", "none, z")]
