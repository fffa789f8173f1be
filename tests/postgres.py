"""A PostgreSQL server for tests, where its programs are installed."""

from __future__ import annotations

import glob
import importlib.util
import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest


@dataclass(frozen=True)
class Server:
    """A running server.

    Attributes:
        url: Of its database.
        crash: Kills the server and starts it again, without what was not yet on the disk.
    """

    url: str
    crash: Callable[[], None]


@contextmanager
def server(encoding: str = "UTF8") -> Iterator[Server]:
    """Start a server in a folder of its own and yield it; skip without one."""
    for name in ("sqlalchemy", "psycopg"):
        if importlib.util.find_spec(name) is None:
            pytest.skip(f"{name} is not installed: pip install 'dpb-gym[postgres]'")
    folders = [*sorted(glob.glob("/usr/lib/postgresql/*/bin"), reverse=True), None]
    programs = (shutil.which("initdb", path=folder) for folder in folders)
    initdb = next(filter(None, programs), None)
    if initdb is None:
        pytest.skip("PostgreSQL is not installed: no program initdb")
    # the server refuses to run as root
    other = "nobody" if hasattr(os, "geteuid") and os.geteuid() == 0 else None
    home = Path(tempfile.mkdtemp(prefix="pg"))
    if other is not None:
        shutil.chown(home, other)

    def run(program: str, *arguments: str) -> None:
        command = [str(Path(initdb).with_name(program)), "-D", str(home / "data"), *arguments]
        done = subprocess.run(command, user=other, cwd=home, stdout=subprocess.DEVNULL)
        assert done.returncode == 0, command

    run(
        "initdb",
        "--auth=trust",
        "--username=tester",
        f"--encoding={encoding}",
        "--locale=C",
        "--no-sync",
    )
    # the data end with the tests: nothing needs to reach the disk
    options = f"-c fsync=off -c listen_addresses='' -c unix_socket_directories='{home}'"

    def start() -> None:
        run("pg_ctl", "--wait", "--log", str(home / "log"), "--options", options, "start")

    def crash() -> None:
        run("pg_ctl", "--wait", "--mode=immediate", "stop")
        start()

    start()
    try:
        yield Server(f"postgresql://tester@/postgres?host={home}", crash)
    finally:
        run("pg_ctl", "--wait", "--mode=immediate", "stop")
        shutil.rmtree(home, ignore_errors=True)
