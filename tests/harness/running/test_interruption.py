"""Runs that are killed or interrupted: nothing lost, nothing doubled."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import dpb_gym
from dpb_gym.errors import ResultError
from dpb_gym.results.parquet import write_cell
from dpb_gym.results.result_directory import ResultDirectory
from dpb_gym.running.execution import remembered_interrupt
from dpb_gym.suites.suite import parse_suite

# Long enough that a signal sent after a third of the cells finds the run still at work,
# however late a busy machine delivers it.
REPLICATES = 16
SUITE = f"""
name: slow-v0
replicates: {REPLICATES}
block: 2
checkpoints: 5
tasks:
  - {{name: a, env: DPB/Recommendation-v0, env_kwargs: {{dim: 4, n_arms: 20}}, horizon: 3000}}
agents: [random, oracle, lin-ts]
"""
CELLS = REPLICATES // 2 * 3

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="sends POSIX signals")


def start(folder: Path, workers: int) -> subprocess.Popen[str]:
    (folder / "slow.yaml").write_text(SUITE)
    command = [sys.executable, "-c", "from dpb_gym.cli import main; main()", "run",
               str(folder / "slow.yaml"), "--out", str(folder / "out"),
               "--workers", str(workers), "--quiet"]  # fmt: skip
    return subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
    )


def shards(folder: Path) -> dict[str, bytes]:
    """The cells that are finished: files while a run goes on, then the table's."""
    try:
        finished, damaged = ResultDirectory.open(folder / "out").check()
    except ResultError:
        return {}
    assert not damaged
    return {r.cell.key: write_cell(replace(r, timing=None)) for r in finished}


def wait_for_shards(folder: Path, process: subprocess.Popen[str], count: int) -> None:
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline and process.poll() is None:
        if len(list((folder / "out" / "cells").glob("*/*.parquet"))) >= count:
            return
        time.sleep(0.002)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    """The cell files of an uninterrupted run."""
    folder = tmp_path_factory.mktemp("whole")
    process = start(folder, 1)
    _, errors = process.communicate(timeout=120)
    assert process.returncode == 0, errors
    assert len(shards(folder)) == CELLS
    return shards(folder)


@pytest.mark.parametrize("workers", [1, 2])
def test_kill_9_at_random_moments(workers: int, whole: dict[str, bytes], tmp_path: Path) -> None:
    rng = np.random.default_rng(workers)
    for attempt in range(2):
        process = start(tmp_path, workers)
        wait_for_shards(tmp_path, process, 1 + 3 * attempt)
        time.sleep(float(rng.uniform(0, 0.05)))
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate(timeout=30)
        kept = shards(tmp_path)
        # Everything under its final name is whole: the bytes of the undisturbed run.
        assert all(whole[name] == content for name, content in kept.items())
    process = start(tmp_path, workers)
    output, errors = process.communicate(timeout=120)
    assert process.returncode == 0, errors
    assert shards(tmp_path) == whole
    assert f"{CELLS - len(kept)} cells computed" in output
    if kept:
        assert f"{len(kept)} were there already" in output
    assert not list((tmp_path / "out").rglob("*.tmp"))
    manifest = json.loads((tmp_path / "out/manifest.json").read_text())
    statuses = [run["status"] for run in manifest["runs"]]
    assert statuses[-1] == "finished" and set(statuses[:-1]) <= {"killed"}


@pytest.mark.parametrize(
    ("workers", "number"), [(1, signal.SIGINT), (2, signal.SIGINT), (2, signal.SIGTERM)]
)
def test_ctrl_c_keeps_what_is_finished_and_says_how_to_go_on(
    workers: int, number: int, whole: dict[str, bytes], tmp_path: Path
) -> None:
    process = start(tmp_path, workers)
    wait_for_shards(tmp_path, process, 1)
    if number == signal.SIGINT:
        os.killpg(process.pid, number)  # a terminal sends it to the whole group
    else:
        process.send_signal(number)
    _, errors = process.communicate(timeout=60)
    kept = shards(tmp_path)
    assert process.returncode == 130, errors
    assert "Traceback" not in errors
    assert f"resume with: dpb run {tmp_path}/slow.yaml --out {tmp_path}/out" in errors
    assert kept and all(whole[name] == content for name, content in kept.items())
    assert json.loads((tmp_path / "out/manifest.json").read_text())["runs"][-1]["status"] == (
        "interrupted"
    )
    if workers == 2:  # how a run of several workers goes on is seen above
        return
    process = start(tmp_path, workers)
    _, errors = process.communicate(timeout=120)
    assert process.returncode == 0, errors
    assert shards(tmp_path) == whole
    assert len(dpb_gym.Result.load(tmp_path / "out").final_regret("lin-ts")) == REPLICATES


def descendants(process: int) -> list[int]:
    """Processes below another, from the process table."""
    table = subprocess.run(["ps", "-eo", "pid=,ppid="], capture_output=True, text=True, check=True)
    parents = [tuple(map(int, line.split())) for line in table.stdout.splitlines()]
    processes = [process]
    for parent in processes:
        processes += [child for child, above in parents if above == parent]
    return processes[1:]


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads the process table")
def test_workers_die_with_their_parent(tmp_path: Path) -> None:
    process = start(tmp_path, 2)
    wait_for_shards(tmp_path, process, 1)
    workers = descendants(process.pid)
    assert workers
    process.kill()  # the parent alone
    process.communicate(timeout=30)
    deadline = time.monotonic() + 20
    while (alive := [pid for pid in workers if Path(f"/proc/{pid}").exists()]) and (
        time.monotonic() < deadline
    ):
        time.sleep(0.05)
    assert not alive


def test_a_second_run_is_turned_away_while_the_first_holds_the_directory(tmp_path: Path) -> None:
    with ResultDirectory.writing(tmp_path / "out", parse_suite(SUITE, "slow")):
        second = start(tmp_path, 1)
        _, errors = second.communicate(timeout=60)
    assert second.returncode == 2
    assert f"in use by process {os.getpid()}" in errors and errors.count("\n") == 1
    assert not list(tmp_path.rglob("*.parquet"))
    third = start(tmp_path, 1)
    third.communicate(timeout=120)
    assert third.returncode == 0


def test_an_interrupt_that_a_finaliser_swallows_is_remembered(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Finalised:
        def __del__(self) -> None:
            signal.raise_signal(signal.SIGINT)

    swallowed = []
    monkeypatch.setattr(sys, "unraisablehook", lambda hook: swallowed.append(hook.exc_type))
    before = signal.getsignal(signal.SIGINT)
    with remembered_interrupt() as check:
        check()
        doomed = Finalised()
        del doomed
        assert swallowed == [KeyboardInterrupt]
        with pytest.raises(KeyboardInterrupt):
            check()
    assert signal.getsignal(signal.SIGINT) is before
