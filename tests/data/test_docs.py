"""The page and the docstrings agree with the code."""

from __future__ import annotations

import doctest
import importlib
import pkgutil
from pathlib import Path

import pytest

import dpb_data

PAGE = Path(__file__).resolve().parents[2] / "docs" / "data.md"
MODULES = [f"dpb_data.{module.name}" for module in pkgutil.iter_modules(dpb_data.__path__)]


@pytest.mark.slow
def test_snippets_of_the_page_run() -> None:
    result = doctest.testfile(str(PAGE), module_relative=False, encoding="utf-8")
    assert result.attempted > 8 and result.failed == 0


@pytest.mark.parametrize("name", ["dpb_data", *MODULES])
def test_snippets_of_the_docstrings_run(name: str) -> None:
    assert doctest.testmod(importlib.import_module(name)).failed == 0


def test_every_name_and_count_is_on_the_page() -> None:
    text = PAGE.read_text(encoding="utf-8")
    for name in dpb_data.FORMATS:
        assert f"| `{name}` |" in text, name
    for known in dpb_data.datasets():
        row = next(line for line in text.splitlines() if line.startswith(f"| `{known.name}` |"))
        for count in (known.counts.ratings, known.counts.users, known.counts.items):
            assert count is None or f" {count:,} " in row, known.name
    jokes = len(dpb_data.load_ratings("synthetic-jester"))
    assert f"| `synthetic-jester` | {jokes:,} |" in text


def test_files_are_short_enough_to_read() -> None:
    for module in MODULES:
        file = importlib.import_module(module).__file__
        assert file is not None
        assert len(Path(file).read_text(encoding="utf-8").splitlines()) < 400
