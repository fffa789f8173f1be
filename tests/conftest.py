"""Settings of all tests."""

from __future__ import annotations

import gc
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest
from hypothesis import settings

# Tests run beside each other. Where several threads of a product of small matrices wait for a core,
# it costs twenty times as much; read when NumPy is loaded, here and in processes that tests start.
os.environ.setdefault("OMP_NUM_THREADS", "1")

# A shell's background jobs ignore Ctrl-C, and so does what they start: tests of it would wait.
signal.signal(signal.SIGINT, signal.default_int_handler)

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


# Where the tests start, in the order in which two workers take the files: one compiles all
# kernels while the other does what hardly needs any, then the longest; short ones fill the gaps.
FIRST = (
    "agents/test_zoo.py",
    "release",
    "report/browser",
    "harness/running/test_interruption.py",
    "harness/running/test_parallel.py",
    "bits",
    "docs/test_snippets.py",
    "audits",
    "agents/recommendation",
    "agents/one_pass",
    "harness",
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


def pytest_collection_finish(session: pytest.Session) -> None:
    """What is loaded by now stays: looking through it for garbage took a tenth of the time."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 50)


class Forks:
    """Runs programs in processes of their own, forked from one that imported the library."""

    def __init__(self, folder: Path) -> None:
        self.out, self.err = folder / "out", folder / "err"
        self.server = subprocess.Popen(
            [sys.executable, str(Path(__file__).with_name("forks.py"))],
            env={**os.environ, "MPLBACKEND": "Agg", "COLUMNS": "120"},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def run(
        self, program: str | Path, *arguments: str, cwd: Path, **environment: str
    ) -> subprocess.CompletedProcess[str]:
        """Runs a program, a path or its text, in a folder."""
        if not isinstance(program, Path):
            (script := cwd / "program.py").write_text(program)
            program = script
        words = [str(program), *arguments]
        for file in (self.out, self.err):
            file.write_text("")
        request = words, str(cwd), environment, str(self.out), str(self.err)
        assert self.server.stdin and self.server.stdout
        print(json.dumps(request), file=self.server.stdin, flush=True)
        status = int(self.server.stdout.readline())
        return subprocess.CompletedProcess(
            words, status, self.out.read_text(), self.err.read_text()
        )


@pytest.fixture(scope="session")
def forks(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Forks]:
    """What runs programs without the cost of starting Python."""
    forks = Forks(tmp_path_factory.mktemp("forks"))
    yield forks
    forks.server.communicate()
