"""Settings of all tests."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

import pytest
from hypothesis import settings

# A test says nothing about time: on a busy machine any example may take long.
settings.register_profile("dpb", deadline=None)
settings.load_profile("dpb")

STARTS = re.compile(
    r"^(import|from) (subprocess|multiprocessing)|nbclient|webdriver|workers=([2-9]|workers)", re.M
)


@cache
def starts_processes(path: Path) -> bool:
    """Whether the tests of a file start processes."""
    return STARTS.search(path.read_text(encoding="utf-8")) is not None


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if starts_processes(item.path):
            item.add_marker(pytest.mark.process)
