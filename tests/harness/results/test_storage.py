"""Results in folders and in object stores: the same bytes, one writer, nothing half."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import dpb_gym
from dpb_gym.cli.options import new_folder
from dpb_gym.errors import MissingExtraError, ParameterError, ResultError
from dpb_gym.exchange.verification import verify
from dpb_gym.planning.costs import costs
from dpb_gym.results import result_directory as store_module
from dpb_gym.results import storage as places
from dpb_gym.results.parquet import cell_file, write_cell
from dpb_gym.results.result_directory import ResultDirectory, keep
from dpb_gym.results.storage import DamagedResult, UnreachableError, storage_of
from dpb_gym.running.execution import RunReport, run_plan
from dpb_gym.running.plan import plan_suite
from dpb_gym.suites.suite import Suite, parse_suite

pytest.importorskip("fsspec", reason="needs the extra [cloud]")

SUITE = """
name: small-v0
replicates: 6
block: 2
checkpoints: 3
tasks:
  - name: offers
    env: DPB/Assortment-v0
    env_kwargs: {n_items: 6, capacity: 2, dim: 2}
    horizon: 10
agents: [random, oracle]
"""
CELLS = 6


@pytest.fixture
def suite() -> Suite:
    return parse_suite(SUITE, "small")


@pytest.fixture(scope="session")
def server() -> Iterator[str]:
    """A server that speaks S3 and has a bucket, and the environment that points to it."""
    moto = pytest.importorskip("moto.server", reason="needs the extra [test-s3]")
    s3fs = pytest.importorskip("s3fs", reason="needs the extra [cloud]")
    running = moto.ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    running.start()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{running.get_host_and_port()[1]}")
        patch.setenv("AWS_DEFAULT_REGION", "us-east-1")
        for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
            patch.setenv(name, "for-tests")
        s3fs.S3FileSystem(use_listings_cache=False).mkdir("results")
        yield "s3://results"
    running.stop()


@pytest.fixture(params=["file", "memory", "s3"])
def address(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """An empty place of each kind."""
    if request.param == "file":
        return f"file://{tmp_path}/there"
    name = f"{request.node.name.partition('[')[0]}/{tmp_path.name}"
    return f"{request.getfixturevalue('server') if request.param == 's3' else 'memory://x'}/{name}"


@pytest.fixture(params=["memory", "s3"])
def objects(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """An empty place of an object store, with a short lease."""
    monkeypatch.setattr(places, "LEASE_SECONDS", 0.3)
    monkeypatch.setattr(places, "PULSE_SECONDS", 0.1)
    store = request.getfixturevalue("server") if request.param == "s3" else "memory://y"
    return f"{store}/{tmp_path.name}"


def go(suite: Suite, out: Any, **options: Any) -> RunReport:
    return run_plan(suite, plan_suite(suite), out, workers=1, **options)


def content(place: places.Storage) -> dict[str, bytes]:
    names = [*(place.names() or ()), *place.cells()]
    return {n: place.read(n, 1 << 28) for n in names if n not in (places.CELLS, places.ASIDE)}


@pytest.mark.slow
def test_every_storage_has_the_same_bytes(suite: Suite, address: str, tmp_path: Path) -> None:
    go(suite, tmp_path / "here")
    report = go(suite, address)
    there, here = storage_of(address), storage_of(tmp_path / "here")
    assert (report.computed, str(there)) == (CELLS, str(report.path))
    assert set(content(there)) == {"manifest.json", "result.parquet"}
    assert content(there)["result.parquet"] == content(here)["result.parquet"]
    mine, theirs = (dpb_gym.Result.load(p).records() for p in (tmp_path / "here", address))
    assert mine == theirs and mine
    bytes_there, bytes_here = (
        [row.bytes for row in costs(p).agents] for p in (address, tmp_path / "here")
    )
    assert bytes_there == bytes_here
    assert go(suite, address).computed == 0
    assert go(suite, address, replicates=8).computed == 2
    check = verify(address, 1, 0)
    assert check.ok and len(check.again) == 1 and check.cells == CELLS + 2


def scattered(suite: Suite, address: str) -> list[str]:
    """Split the table into one object per cell, as during a run."""
    store = ResultDirectory.open(address)
    names = []
    for result in store.results():
        names.append(f"{places.CELLS}/{cell_file(result.cell)}")
        store.place.write(names[-1], write_cell(result))
    store.entries.clear()
    store.save()
    return sorted(names)


@pytest.mark.slow
def test_single_cells_are_read_mended_and_compacted(suite: Suite, address: str) -> None:
    go(suite, address)
    place = storage_of(address)
    table = content(place)["result.parquet"]
    victim, empty, *_ = names = scattered(suite, address)
    assert place.cells() == names and len(ResultDirectory.open(address).results()) == CELLS
    place.write(victim, place.read(victim, 1 << 20)[:-9])
    place.write(empty, b"")
    with pytest.raises(ResultError, match="running the suite again sets it aside"):
        ResultDirectory.open(address).results()
    with pytest.warns(RuntimeWarning, match=r"moved to .*set-aside"):
        assert go(suite, address).computed == 2
    assert content(place)["result.parquet"] == table and not place.cells()
    place.write("result.parquet", table[:-9])
    with pytest.warns(RuntimeWarning, match=r"copied to .*set-aside/result\.parquet"):
        assert go(suite, address).computed == CELLS
    with pytest.warns(RuntimeWarning, match=r"set-aside/result\.parquet\.2"):
        place.write("result.parquet", b"")
        go(suite, address)
    place.write("manifest.json", b"{")
    with pytest.warns(RuntimeWarning, match=r"set-aside/manifest\.json and written again"):
        assert go(suite, address).computed == CELLS
    assert content(place)["result.parquet"] == table


@pytest.mark.slow
def test_large_objects_are_refused_before_they_are_read(
    suite: Suite, address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    go(suite, address)
    place = storage_of(address)
    place.write("manifest.json", bytes(5000))
    monkeypatch.setattr(store_module, "MOST_MANIFEST", 4096)
    with pytest.raises(ResultError, match="over 4 KiB"):
        ResultDirectory.open(address)
    if isinstance(place, places.ObjectStorage):
        monkeypatch.setattr(
            places.ObjectStorage, "_ask", lambda self, what, name: {"size": 1 << 40}
        )
        with pytest.raises(DamagedResult, match="over 4 KiB"):  # and no other call
            place.read("manifest.json", 4096)


@pytest.mark.slow
def test_one_run_at_a_time(suite: Suite, address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(places, "PULSE_SECONDS", 0.1)
    with (
        pytest.MonkeyPatch.context() as patch,
        ResultDirectory.writing(address, suite, {}) as first,
        pytest.raises(ResultError, match=rf"in use by process {os.getpid()} on "),
    ):
        patch.setattr(places, "warn", lambda _: None)
        with ResultDirectory.writing(address, suite):
            pass
    with pytest.raises(ResultError, match="was deleted or moved"):
        first.place.check()
    assert go(suite, address).computed == CELLS


@pytest.mark.filterwarnings("ignore:.*waiting 0.3 s")
@pytest.mark.parametrize("attempt", range(3))
def test_of_many_that_start_at_once_at_most_one_holds(objects: str, attempt: int) -> None:
    at_once, turned_away, most = [], [], []
    start = threading.Barrier(6)

    def hold() -> None:
        start.wait()
        try:
            with storage_of(objects).held() as token:
                at_once.append(token)
                most.append(len(at_once))
                time.sleep(0.05)
                at_once.remove(token)
        except ResultError as error:
            turned_away.append(str(error))

    threads = [threading.Thread(target=hold) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert set(most) <= {1} and len(most) + len(turned_away) == 6
    assert all("is in use by" in said for said in turned_away)
    assert storage_of(objects).names() is None
    with storage_of(objects).held():
        pass


@pytest.mark.slow
def test_a_stale_run_is_replaced_and_cannot_write(
    suite: Suite, objects: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    cell = _cell(suite)
    with pytest.MonkeyPatch.context() as asleep:
        asleep.setattr(places.ObjectStorage, "_beat", lambda *_: None)
        with (
            pytest.raises(ResultError, match="another run now"),
            ResultDirectory.writing(objects, suite, {}) as old,
        ):
            with pytest.warns(RuntimeWarning, match="waiting"):
                new = ResultDirectory.writing(objects, suite, {})
                store = new.__enter__()
            keep(store.place, cell)
            with pytest.raises(ResultError, match="another run now"):
                keep(old.place, cell)
    new.__exit__(None, None, None)
    manifest = ResultDirectory.open(objects).manifest
    assert [run["status"] for run in manifest["runs"]] == ["killed", "finished"]
    assert [r.digest for r in ResultDirectory.open(objects).results()] == [cell.digest]


def _cell(suite: Suite) -> Any:
    from dpb_gym.running.execution import execute
    from dpb_gym.running.plan import make_jobs

    jobs = make_jobs(suite, plan_suite(suite, ["random"], ["offers"]), 2)
    return execute(jobs, None, workers=1)[0]


@pytest.mark.slow
def test_a_store_that_fails_temporarily_loses_no_results(
    suite: Suite, objects: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    go(suite, objects)
    before = content(storage_of(objects))
    names = scattered(suite, objects)
    ask = places.ObjectStorage._ask

    def fail(self: Any, what: str, name: str, *rest: Any, **more: Any) -> Any:
        if what in broken and not name.startswith("."):
            raise UnreachableError("the store says: no")
        return ask(self, what, name, *rest, **more)

    monkeypatch.setattr(places.ObjectStorage, "_ask", fail)
    for call in ("info", "cat_file", "pipe_file", "ls", "find"):
        broken = {call}
        with pytest.raises(UnreachableError):
            go(suite, objects)
    broken = set()
    place = storage_of(objects)
    assert place.cells() == names and places.ASIDE not in (place.names() or ())
    assert go(suite, objects).computed == 0
    assert content(place)["result.parquet"] == before["result.parquet"]


@pytest.mark.parametrize(
    "bad",
    ["ftp://host/x", "http://host/x", "s4://x", "s3://", "memory:///", "a\0b", "dir::s3://b/x", 7],
)
def test_bad_addresses_are_refused(bad: Any, suite: Suite) -> None:
    with pytest.raises(ParameterError, match="result"):
        storage_of(bad)
    with pytest.raises(ParameterError, match="result"):
        go(suite, bad)


@pytest.mark.slow
def test_missing_bucket_credentials_server_or_package(
    suite: Suite, server: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    import s3fs

    with pytest.raises(ResultError, match="no such result directory"):
        dpb_gym.Result.load("s3://nowhere/x")
    with pytest.raises(UnreachableError, match="no such bucket"):
        go(suite, "s3://nowhere/x")
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_MAX_ATTEMPTS", "1")
    for name, value, said in (
        ("AWS_ENDPOINT_URL", "http://127.0.0.1:9", "Could not connect|Connection was closed"),
        ("AWS_SECRET_ACCESS_KEY", None, "redentials"),
        ("AWS_ACCESS_KEY_ID", None, "redentials"),
    ):
        monkeypatch.setenv(name, value) if value else monkeypatch.delenv(name)
        s3fs.S3FileSystem.clear_instance_cache()
        monkeypatch.setattr(s3fs.S3FileSystem, "retries", 1)
        with pytest.raises(UnreachableError, match=said):
            go(suite, "s3://results/x")
    monkeypatch.undo()
    s3fs.S3FileSystem.clear_instance_cache()
    with pytest.raises(ResultError, match="no such result directory"):
        dpb_gym.Result.load("s3://results/none")
    monkeypatch.setitem(sys.modules, "fsspec.core", None)
    with pytest.raises(MissingExtraError, match=r"dpb-gym\[cloud\]"):
        go(suite, "s3://results/x")


def test_pages_are_files_of_this_machine() -> None:
    with pytest.raises(ParameterError, match="is an address"):
        new_folder("s3://results/page.html")


def test_what_is_no_result_directory_is_refused(suite: Suite, objects: str) -> None:
    storage_of(objects).write("thesis.tex", b"x")
    with pytest.raises(ResultError, match=r"not a result directory.*thesis\.tex"):
        go(suite, objects)
    with pytest.raises(ResultError, match=r"no manifest\.json"):
        ResultDirectory.open(objects)
    assert storage_of(objects).names() == ["thesis.tex"]


@pytest.mark.slow
def test_evaluate_keeps_its_results(address: str) -> None:
    options: dict[str, Any] = {"agents": ["random", "oracle"], "horizon": 40, "replicates": 3}
    plain = dpb_gym.evaluate("DPB/Pricing-v0", **options)
    kept = dpb_gym.evaluate("DPB/Pricing-v0", **options, out=address)
    assert kept.records() == plain.records() == dpb_gym.Result.load(address).records()
    more = dpb_gym.evaluate("DPB/Pricing-v0", **{**options, "agents": ["oracle"]}, out=address)
    assert more.labels == ["oracle"]
    runs = ResultDirectory.open(address).manifest["runs"]
    assert [run["computed"] for run in runs] == [2, 0]
    with pytest.raises(ResultError, match="give another directory"):
        dpb_gym.evaluate("DPB/Pricing-v0", **{**options, "horizon": 41}, out=address)


def test_the_memory_of_a_process_has_no_workers() -> None:
    with pytest.raises(ParameterError, match="workers=1"):
        dpb_gym.evaluate(
            "DPB/Pricing-v0", "random", 40, replicates=2, workers=2, out="memory://z/w"
        )


PROGRAM = """
from dpb_gym.results import storage as places
places.LEASE_SECONDS, places.PULSE_SECONDS = 2.0, 0.5
from dpb_gym.cli import main
main()
"""


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="sends POSIX signals")
def test_kill_9_and_the_commands(suite: Suite, server: str, tmp_path: Path) -> None:
    text = SUITE.replace("horizon: 10", "horizon: 4000")
    (tmp_path / "s.yaml").write_text(text)
    address = f"{server}/killed"
    place = storage_of(address)

    def start(*words: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [sys.executable, "-c", PROGRAM, *words], stdout=subprocess.PIPE,
            stderr=subprocess.PIPE, text=True, start_new_session=True, cwd=tmp_path,
        )  # fmt: skip

    words = ["run", "s.yaml", "--out", address, "--workers", "1", "--quiet"]
    process = start(*words)
    while len(place.cells()) < 2 and process.poll() is None:
        time.sleep(0.01)
    os.killpg(process.pid, signal.SIGKILL)
    process.communicate()
    kept = ResultDirectory.open(address).results()
    assert 2 <= len(kept) < CELLS
    process = start(*words)
    printed, said = process.communicate(timeout=120)
    assert process.returncode == 0, said
    assert f"{len(kept)} were there already; results in {address}" in printed
    assert "waiting 2 s for its pulse" in said and "creating the folder" not in said
    process = start("leaderboard", address, "--json")
    printed, said = process.communicate(timeout=120)
    assert process.returncode == 0, said
    assert sorted(place.names() or ()) == ["manifest.json", "result.parquet"]
    assert [p.name for p in tmp_path.iterdir()] == ["s.yaml"]
