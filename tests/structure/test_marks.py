"""The marks that tests/conftest.py sets."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

import dpb_gym

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


class Variant:
    """A collected test."""

    def __init__(self, nodeid: str) -> None:
        self.nodeid = nodeid


@pytest.fixture
def starters(pytestconfig: pytest.Config) -> Callable[[Path], frozenset[str]]:
    """The function of tests/conftest.py that reads a file."""
    name = str(Path(__file__).parents[1] / "conftest.py")
    reader: Callable[[Path], frozenset[str]] = pytestconfig.pluginmanager.get_plugin(
        name
    ).process_starters
    return reader


def test_only_tests_that_start_processes_are_marked(
    tmp_path: Path, starters: Callable[[Path], frozenset[str]]
) -> None:
    (tmp_path / "test_some.py").write_text(SOURCE)
    names = {name for name in starters(tmp_path / "test_some.py") if name.startswith("test")}
    assert names == {
        "test_helper",
        "test_fixture",
        "test_imported_name",
        "test_workers",
        "test_method",
    }


def test_some_variants_are_the_first_the_last_and_between(pytestconfig: pytest.Config) -> None:
    plugin = pytestconfig.pluginmanager.get_plugin(str(Path(__file__).parents[1] / "conftest.py"))
    names = [*(f"a.py::test_x[{i}]" for i in range(5)), "a.py::test_y", "a.py::test_z[0]"]
    items = [Variant(name) for name in names]
    expected = [names[0], names[2], names[4], "a.py::test_y", "a.py::test_z[0]"]
    assert [item.nodeid for item in plugin.some(items, 3)] == expected
    assert [item.nodeid for item in plugin.some(items, 1)] == [names[0], *names[5:]]


def test_thinned_sweeps_and_audited_agents_exist(request: pytest.FixtureRequest) -> None:
    plugin = request.config.pluginmanager.get_plugin(str(Path(__file__).parents[1] / "conftest.py"))
    for start in [*plugin.THINNED, *plugin.LONG_PATHS, *plugin.AUDITED]:
        path, _, test = start.removeprefix("tests/").partition("::")
        file = Path(__file__).parents[1] / path
        assert file.exists(), start
        name = test.partition("[")[0].rpartition("::")[2]
        assert not test or f"def {name}" in file.read_text(encoding="utf-8"), start
    specs = dpb_gym.agent_specs()
    audited = {specs[name.rpartition("[")[2][:-1]].supports[0] for name in plugin.AUDITED}
    assert audited == {"assortment", "pricing", "recommendation"}


def test_this_file_is_not_marked(request: pytest.FixtureRequest) -> None:
    assert request.node.get_closest_marker("process") is None
