"""Pipes, links, folders and garbage in the place of files; zip bombs; untrusted suites."""

from __future__ import annotations

import copy as copying
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml
from hostile_lists import SUITE, VALUES, chosen, places, put, refused, shown

from dpb_gym.errors import SuiteError
from dpb_gym.exchange.archive import pack, unpack
from dpb_gym.exchange.importing import import_submission
from dpb_gym.exchange.verification import verify
from dpb_gym.results.parquet import to_table
from dpb_gym.running.execution import run_plan
from dpb_gym.running.plan import plan_suite
from dpb_gym.suites.suite import load_suite, parse_suite

FILES = ["manifest.json", "result.parquet", ".lock", ".owner", "cells", "cells/prices", "set-aside"]


def spoil(path: Path, how: str, outside: Path) -> None:
    path.parent.mkdir(exist_ok=True)
    if path.exists():
        path.unlink()
    if how == "pipe":
        os.mkfifo(path)
    elif how == "folder":
        path.mkdir()
    elif how == "link to a file":
        outside.write_text("precious")
        path.symlink_to(outside)
    elif how == "link to a folder":
        outside.mkdir()
        path.symlink_to(outside)
    elif how == "dangling link":
        path.symlink_to(outside)
    else:
        path.write_bytes({"empty": b"", "rubbish": b"\0\xff{[" * 999}[how])


HOWS = ["pipe", "folder", "link to a file", "link to a folder", "dangling link", "empty", "rubbish"]


def again(board: Path, _: Path) -> None:
    suite = parse_suite(SUITE, "hostile")
    run_plan(suite, plan_suite(suite), board, workers=1)


CALLS: list[Callable[[Path, Path], Any]] = [
    lambda board, _: shown(board),
    lambda board, _: verify(board, sample=1),
    again,
    lambda board, archive: import_submission(archive, board),
]


@pytest.mark.filterwarnings("ignore::RuntimeWarning")
@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("how", HOWS)
def test_nothing_hangs_and_no_file_outside_changes(
    name: str, how: str, finished: Path, archive: Path, copy: Any, tmp_path: Path
) -> None:
    outside = tmp_path / "outside"
    for call in CALLS:
        board = copy(finished)
        spoil(board / name, how, outside)
        refused(lambda call=call, board=board: call(board, archive))
        if how == "link to a file":
            assert outside.read_text() == "precious"
            outside.unlink()
        elif how == "link to a folder":
            assert list(outside.iterdir()) == []
            outside.rmdir()
        else:
            assert not outside.exists()


# a link given by the user is followed
GIVEN = [how for how in HOWS if how not in ("link to a file", "empty")]


@pytest.mark.parametrize("name", ["archive.zip", "suite.yaml"])
@pytest.mark.parametrize("how", GIVEN)
def test_arguments_that_are_not_regular_files(name: str, how: str, tmp_path: Path) -> None:
    spoil(tmp_path / name, how, tmp_path / "outside")
    call = import_submission if name == "archive.zip" else lambda path, _: load_suite(str(path))
    assert refused(lambda: call(tmp_path / name, tmp_path / "board"))


@pytest.mark.slow
def test_every_value_of_a_suite_may_be_anything() -> None:
    data, wrong = yaml.safe_load(SUITE), []
    for at, value in chosen([(at, value) for at in places(data) for value in VALUES]):
        lie = copying.deepcopy(data)
        put(lie, at, value)
        text = yaml.safe_dump(lie, allow_unicode=False)
        try:
            refused(lambda text=text: plan_suite(parse_suite(text, "suite")))
        except Exception as error:
            wrong.append(f"{at} = {value!r:.60}: {error!r:.400}")
    assert not wrong, "\n".join(wrong)


def test_a_suite_imports_nothing_and_expands_to_limited_size(tmp_path: Path) -> None:
    (tmp_path / "trap").mkdir()
    (tmp_path / "trap" / "__init__.py").write_text("raise SystemExit('imported')")
    with pytest.raises(SuiteError, match="needs"):
        parse_suite(SUITE.replace("random,", "{name: random, needs: trap.inner},"), "suite")
    sys.path.insert(0, str(tmp_path))
    try:
        plan_suite(parse_suite(SUITE.replace("random,", "{name: random, needs: trap},"), "suite"))
    finally:
        sys.path.remove(str(tmp_path))
    assert "trap" not in sys.modules
    levels = "".join(f"a{k}: &a{k} [{', '.join([f'*a{k - 1}'] * 9)}]\n" for k in range(1, 12))
    said = {
        "a0: &a0 [x]\n" + levels: "unfolds",
        "a: &a [*a]": "unfolds",
        "- " * 3000: "100 levels",
        "x" * 2_000_000: "characters",
    }
    for text, words in said.items():
        with pytest.raises(SuiteError, match=words):
            parse_suite(text, "suite")


BOMB = """
import sys, resource
from pathlib import Path
from hostile_lists import refused
from dpb_gym.exchange.archive import pack, unpack
from dpb_gym.exchange.importing import import_submission
from dpb_gym.suites.suite import load_suite
import pyarrow.parquet, jinja2, dpb_gym.report.page
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
path = Path(sys.argv[1])
call = (lambda: load_suite(str(path))) if path.suffix == ".yaml" else (
    lambda: import_submission(path, path.with_suffix("")))
assert refused(call)
print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) // 1024)
"""


def bombs(archive: Path, folder: Path) -> dict[str, Path]:
    """Write small files that would expand to gigabytes."""
    members = unpack(archive)
    schema = to_table([]).schema
    count = 1 << 20
    arrays = [
        pa.ListArray.from_arrays(
            pa.array([0] * (count + 1), pa.int32()), pa.array([], kind.value_type)
        )
        if pa.types.is_list(kind)
        else pa.array(["x" * 50] * count)
        if pa.types.is_string(kind)
        else pa.array([0] * count, kind)
        for kind in schema.types
    ]
    table = pa.table(arrays, schema=schema)
    with pq.ParquetWriter(folder / "rows", schema, compression="zstd") as writer:
        for _ in range(8):
            writer.write_table(table, row_group_size=count)
    rows = (folder / "rows").read_bytes()
    levels = "".join(f"a{k}: &a{k} [{', '.join([f'*a{k - 1}'] * 9)}]\n" for k in range(1, 9))
    made = {
        "rows.zip": pack({**members, "result.parquet": rows}),
        "zeros.zip": pack({**members, "result.parquet": bytes((1 << 28) + 1)}),
        "lists.zip": pack({**members, "manifest.json": b"[" + b"[]," * (1 << 24) + b"[]]"}),
        "suite.yaml": f"name: x\nreplicates: 1\na0: &a0 [x]\n{levels}tasks: *a8\n".encode(),
    }
    for name, content in made.items():
        (folder / name).write_bytes(content)
    return {name: folder / name for name in made}


def test_bombs_are_refused_in_little_memory(archive: Path, tmp_path: Path) -> None:
    for name, path in bombs(archive, tmp_path).items():
        assert path.stat().st_size < 700_000, name
        env = {
            **os.environ,
            "PYTHONPATH": f"{Path(__file__).parent}:{os.environ.get('PYTHONPATH', '')}",
        }
        done = subprocess.run(
            [sys.executable, "-c", BOMB, str(path)],
            capture_output=True,
            text=True,
            env=env,
            timeout=60,
        )
        assert done.returncode == 0, (name, done.stderr[-2000:])
        assert int(done.stdout) < 200, name


@pytest.mark.skipif(sys.platform == "win32", reason="resource limits are of POSIX")
def test_a_file_above_the_limit_is_refused_without_its_size_in_memory(tmp_path: Path) -> None:
    code = (
        "import resource, sys\n"
        "from pathlib import Path\n"
        "from dpb_gym.files import read_regular\n"
        "limit = 2 << 30\n"
        "resource.setrlimit(resource.RLIMIT_AS, (limit, limit))\n"
        "try:\n"
        "    read_regular(Path(sys.argv[1]), 1 << 33)\n"
        "except OSError as error:\n"
        "    print(error)\n"
    )
    large = tmp_path / "agent.state"
    with large.open("wb") as file:
        file.truncate(20 << 30)  # a sparse file, which takes no space
    ended = subprocess.run(
        [sys.executable, "-c", code, str(large)], capture_output=True, text=True, check=False
    )
    assert (ended.returncode, ended.stdout.strip()) == (0, "over 8,388,608 KiB"), ended.stderr
