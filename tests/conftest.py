"""Settings of all tests."""

from __future__ import annotations

import os
import re
from functools import cache
from pathlib import Path

import pytest
from hypothesis import settings

# Tests run beside each other. Where several threads of a product of small matrices wait for a core,
# it costs twenty times as much; read when NumPy is loaded, here and in processes that tests start.
os.environ.setdefault("OMP_NUM_THREADS", "1")

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


# Where the tests start, in the order in which two workers take the files: first what compiles the
# kernels, each worker others, then the longest. What is short fills the gaps at the end.
FIRST = (
    "agents/test_zoo.py",
    "agents/recommendation",
    "agents/one_pass",
    "bits",
    "docs/test_snippets.py",
    "release",
    "audit",
    "report/browser",
    "evaluation",
    "sb3",
    "plugin",
    "cli",
    "examples",
    "papers",
    "hostile",
)


def place(item: pytest.Item) -> int:
    """Where a test stands in `FIRST`."""
    path = item.path.relative_to(Path(__file__).parent).as_posix()
    return next((i for i, start in enumerate(FIRST) if path.startswith(start)), len(FIRST))


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    items.sort(key=place)
    for item in items:
        if starts_processes(item.path):
            item.add_marker(pytest.mark.process)
