"""The marks that tests/conftest.py sets."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

SOURCE = """
import subprocess
from multiprocessing import Process as Other
import pytest

@pytest.fixture
def started():
    return subprocess.Popen(["true"])

def by_helper():
    return another()

def another():
    subprocess.run(["true"])

def test_helper():
    by_helper()

def test_fixture(started):
    print()

def test_imported_name():
    Other()

@pytest.mark.parametrize("workers", [2])
def test_workers(workers):
    evaluate(workers=workers)

def test_one_worker():
    evaluate(workers=1)

def test_own_variable():
    started = 3
    assert started

class TestGroup:
    def test_method(self):
        another()

    def test_nothing(self):
        assert self
"""


@pytest.fixture
def starters(pytestconfig: pytest.Config) -> Callable[[Path], frozenset[str]]:
    """The function of tests/conftest.py that reads a file."""
    name = str(Path(__file__).parents[1] / "conftest.py")
    found: Callable[[Path], frozenset[str]] = pytestconfig.pluginmanager.get_plugin(
        name
    ).process_starters
    return found


def test_only_tests_that_start_processes_are_marked(
    tmp_path: Path, starters: Callable[[Path], frozenset[str]]
) -> None:
    (tmp_path / "test_some.py").write_text(SOURCE)
    found = {name for name in starters(tmp_path / "test_some.py") if name.startswith("test")}
    assert found == {
        "test_helper",
        "test_fixture",
        "test_imported_name",
        "test_workers",
        "test_method",
    }


def test_this_file_is_not_marked(request: pytest.FixtureRequest) -> None:
    assert request.node.get_closest_marker("process") is None
