"""The snippets of docs/privacy.md and of the docstrings run and print what they say."""

from __future__ import annotations

import contextlib
import doctest
import importlib
import io
import pkgutil
import re
from pathlib import Path

import pytest

import dpb_gym.privacy

PAGE = Path(__file__).parents[2] / "docs" / "privacy.md"
BLOCK = re.compile(r"```(\w+)\n(.*?)```", re.DOTALL)
MODULES = [
    info.name
    for info in pkgutil.walk_packages(dpb_gym.privacy.__path__, "dpb_gym.privacy.")
    if not info.name.startswith("dpb_gym.privacy.audit")
]


def test_page_runs_and_prints_what_it_says() -> None:
    namespace: dict[str, object] = {}
    blocks = BLOCK.findall(PAGE.read_text())
    assert sum(kind == "python" for kind, _ in blocks) >= 8
    printed = ""
    for kind, body in blocks:
        if kind == "python":
            with contextlib.redirect_stdout(io.StringIO()) as out:
                exec(compile(body, str(PAGE), "exec"), namespace)
            printed = out.getvalue()
        elif kind == "text":
            assert printed == body


@pytest.mark.parametrize("name", MODULES)
def test_docstrings(name: str) -> None:
    module = importlib.import_module(name)
    assert doctest.testmod(module).failed == 0


def test_some_docstrings_have_examples() -> None:
    finder = doctest.DocTestFinder(exclude_empty=True)
    examples = [
        test
        for name in MODULES
        for test in finder.find(importlib.import_module(name))
        if test.examples
    ]
    assert len(examples) >= 5
