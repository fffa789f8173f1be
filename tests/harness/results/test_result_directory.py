"""Result directories: resumed, refused, repaired, locked, queried."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap
import warnings
from pathlib import Path
from typing import Any

import pytest

import dpb_gym
from dpb_gym.errors import ParameterError, ResultError
from dpb_gym.play.player import Player
from dpb_gym.results.parquet import cell_file, write_cell
from dpb_gym.results.result_directory import ResultDirectory, keep
from dpb_gym.running import runner
from dpb_gym.running.execution import RunReport, run_plan
from dpb_gym.running.plan import plan_suite
from dpb_gym.suites import spec
from dpb_gym.suites.suite import Suite, parse_suite

CELLS = 3 * 2 + 3 * 4  # three blocks; two rows on one task, four on the other


def go(suite: Suite, out: Path, **options: Any) -> RunReport:
    chosen = {k: options.pop(k) for k in ("agents", "tasks") if k in options}
    return run_plan(suite, plan_suite(suite, **chosen), out, workers=1, **options)


def digests(out: Path) -> dict[str, str]:
    """Every cell's digest, table and files alike; damage is an error."""
    return {result.cell.key: result.digest for result in ResultDirectory.open(out).results()}


@pytest.fixture
def finished(suite: Suite, tmp_path: Path) -> Path:
    out = tmp_path / "out"
    go(suite, out)
    return out


def test_a_run_leaves_a_table_and_a_manifest(suite: Suite, finished: Path) -> None:
    assert {p.name for p in finished.iterdir()} == {"result.parquet", "manifest.json", ".lock"}
    manifest = json.loads((finished / "manifest.json").read_text())
    assert sum(len(row["blocks"]) for row in manifest["rows"]) == CELLS == len(digests(finished))
    assert manifest["suite"] == "tiny-v0" and manifest["protocol"] == suite.protocol
    assert parse_suite(manifest["suite_text"], "x") == suite
    (run,) = manifest["runs"]
    assert run["status"] == "finished" and run["computed"] == CELLS and run["failures"] == []
    assert run["versions"]["numpy"] and run["versions"]["python"] and run["versions"]["dpb-gym"]
    assert {"system", "machine", "cpu", "blas", "libc"} == set(run["machine"])
    assert run["wall_seconds"] > 0 and run["command"] and run["started"] <= run["ended"]
    promised = [row["cell"]["agent"] for row in manifest["rows"] if row["guarantee"] is not None]
    assert {agent["label"] for agent in promised} == {"Private"}
    assert {agent["budget"] for agent in promised} == {"eps=1,delta=1e-5", "eps=5,delta=1e-5"}
    for row in manifest["rows"]:
        for block in row["blocks"]:
            assert block["provenance"] == "computed here" and block["timing"]["rounds"] > 0


def test_the_same_run_elsewhere_gives_the_same_bytes(
    suite: Suite, finished: Path, tmp_path: Path
) -> None:
    go(suite, tmp_path / "again")
    table = (finished / "result.parquet").read_bytes()
    assert (tmp_path / "again" / "result.parquet").read_bytes() == table


def test_resuming_computes_nothing_twice(suite: Suite, finished: Path) -> None:
    before = (finished / "result.parquet").stat().st_mtime_ns
    report = go(suite, finished)
    assert (report.computed, report.skipped) == (0, CELLS)
    assert (finished / "result.parquet").stat().st_mtime_ns == before
    assert len(json.loads((finished / "manifest.json").read_text())["runs"]) == 2


def scattered(suite: Suite, out: Path, every: int = 1) -> list[Path]:
    """Put cells back into files of their own, as in the midst of a run."""
    store = ResultDirectory.open(out)
    chosen = store.results()[::every]
    paths = [out / "cells" / cell_file(result.cell) for result in chosen]
    for path, result in zip(paths, chosen):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(write_cell(result))
    for result in chosen:
        del store.entries[result.cell.key]
    store.save()
    return paths


def test_both_forms_are_read_and_the_same(suite: Suite, finished: Path) -> None:
    whole, table = digests(finished), (finished / "result.parquet").read_bytes()
    shown = dpb_gym.Result.load(finished).to_leaderboard().tasks
    scattered(suite, finished, 2)
    assert digests(finished) == whole
    assert dpb_gym.Result.load(finished).to_leaderboard().tasks == shown
    report = go(suite, finished)
    assert (report.computed, report.skipped) == (0, CELLS)
    assert digests(finished) == whole and not (finished / "cells").exists()
    assert (finished / "result.parquet").read_bytes() == table


def test_missing_cells_are_computed_alone_and_are_the_same(suite: Suite, finished: Path) -> None:
    whole, table = digests(finished), (finished / "result.parquet").read_bytes()
    lost = scattered(suite, finished, 3)
    for path in lost:
        path.unlink()
    report = go(suite, finished)
    assert report.computed == len(lost)
    assert digests(finished) == whole
    assert (finished / "result.parquet").read_bytes() == table


@pytest.mark.parametrize("damage", ["truncate", "flip", "empty", "text", "swap"])
def test_damaged_cells_are_set_aside_and_redone(damage: str, suite: Suite, finished: Path) -> None:
    whole = digests(finished)
    victim, other = scattered(suite, finished)[:2]
    content = bytearray(victim.read_bytes())
    if damage == "truncate":
        content = content[: len(content) // 2]
    elif damage == "flip":
        content[60] ^= 0xFF
    elif damage == "empty":
        content = bytearray()
    elif damage == "text":
        content = bytearray(b"not a shard")
    else:
        content = bytearray(other.read_bytes())
    victim.write_bytes(bytes(content))
    with pytest.raises(ResultError, match="running the suite again"):
        digests(finished)
    with pytest.warns(RuntimeWarning, match="set-aside"):
        report = go(suite, finished)
    assert report.computed == 1
    (aside,) = (finished / "set-aside").iterdir()
    assert aside.name == victim.name and aside.read_bytes() == bytes(content)
    assert digests(finished) == whole


@pytest.mark.slow
@pytest.mark.parametrize("place", [0.1, 0.4, 0.9])
def test_a_damaged_table_is_set_aside_and_mended(
    place: float, suite: Suite, finished: Path
) -> None:
    whole, path = digests(finished), finished / "result.parquet"
    content = bytearray(path.read_bytes())
    content[int(place * len(content))] ^= 0xFF
    path.write_bytes(bytes(content))
    with pytest.raises(ResultError, match="running the suite again"):
        digests(finished)
    with pytest.warns(RuntimeWarning, match="copied to .*set-aside"):
        report = go(suite, finished)
    assert 0 < report.computed <= CELLS
    assert digests(finished) == whole
    path.unlink()
    with pytest.warns(RuntimeWarning, match="is gone"):
        assert go(suite, finished).computed == CELLS
    assert digests(finished) == whole


def test_a_directory_that_is_deleted_or_taken_over_is_an_error(
    suite: Suite, tmp_path: Path
) -> None:
    import shutil

    cell = next(iter(_computed(suite)))
    deleted = pytest.raises(ResultError, match="was deleted or moved while this run")
    with deleted, ResultDirectory.writing(tmp_path / "a", suite) as store:
        shutil.rmtree(tmp_path / "a")
        keep(store.place, cell)
    assert not (tmp_path / "a").exists()
    with deleted, ResultDirectory.writing(tmp_path / "b", suite, {}) as store:
        keep(store.place, cell)
        shutil.rmtree(tmp_path / "b")
    assert not (tmp_path / "b").exists()
    with ResultDirectory.writing(tmp_path / "c", suite) as old:
        pass
    with (
        ResultDirectory.writing(tmp_path / "c", suite),
        pytest.raises(ResultError, match="another run now"),
    ):
        keep(old.place, cell)


def _computed(suite: Suite) -> Any:
    from dpb_gym.running.execution import execute
    from dpb_gym.running.plan import make_jobs

    jobs = make_jobs(suite, plan_suite(suite, ["random"], ["offers"]), 1)
    return execute(jobs, None, workers=1)


def test_results_of_another_suite_are_refused_and_untouched(suite: Suite, finished: Path) -> None:
    before = digests(finished), (finished / "manifest.json").read_bytes()
    for other in (
        suite.model_copy(update={"name": "other-v0"}),
        suite.model_copy(update={"checkpoints": 3}),
        parse_suite(suite.to_yaml().replace("horizon: 40", "horizon: 41"), "x"),
    ):
        with pytest.raises(ResultError, match=r"holds results of suite 'tiny-v0'.*directory"):
            go(parse_suite(other.to_yaml(), "x"), finished)
    assert (digests(finished), (finished / "manifest.json").read_bytes()) == before


def test_a_foreign_shard_is_set_aside_and_named_when_read(
    suite: Suite, finished: Path, tmp_path: Path
) -> None:
    other = parse_suite(suite.to_yaml().replace("horizon: 40", "horizon: 41"), "x")
    go(other, tmp_path / "other")
    (foreign,) = scattered(other, tmp_path / "other", 99)
    (finished / "cells" / "offers").mkdir(parents=True)
    (finished / "cells" / "offers" / foreign.name).write_bytes(foreign.read_bytes())
    with pytest.raises(ResultError, match="belongs to another suite"):
        ResultDirectory.open(finished).results()
    before, data = dpb_gym.Result.load(tmp_path / "other"), dpb_gym.Result.load(finished)
    notes = data.to_leaderboard().notes
    assert len(data.rows) == 6 and before.to_leaderboard().notes == ()
    assert [n for n in notes if "Set aside" in n and "belongs to another suite" in n] == [*notes]


def test_other_agents_and_more_replicates_are_added(suite: Suite, finished: Path) -> None:
    before = digests(finished)
    report = go(suite, finished, agents=["lin-ts"], tasks=["items"])
    assert report.computed == 3
    more = go(suite, finished, replicates=6)
    # Two more blocks would be 4-5: the old 4-4 stays, and counts once.
    assert more.computed == 6
    after = digests(finished)
    assert all(after[name] == content for name, content in before.items())
    result = dpb_gym.Result.load(finished)
    assert len(result.final_regret("Oracle", task="items")) == 6
    assert len(result.final_regret("lin-ts")) == 5
    counts = {(s.task, s.agent, s.budget): len(s.replicates) for s in result.rows}
    assert counts.pop(("items", "lin-ts", "none")) == 5
    assert set(counts.values()) == {6} and len(counts) == 6


def test_one_label_cannot_stand_for_two_parameters(suite: Suite, finished: Path) -> None:
    changed = parse_suite(suite.to_yaml().replace("batch: 20", "batch: 30"), "x")
    assert changed.protocol == suite.protocol
    before = digests(finished)
    with pytest.raises(ResultError, match=r"Private.*other params.*another label"):
        go(changed, finished)
    assert digests(finished) == before


def test_cells_of_older_code_are_set_aside_and_redone(
    suite: Suite, finished: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = len(digests(finished))
    monkeypatch.setattr(spec, "ALGORITHM_VERSION", 99)
    with pytest.warns(RuntimeWarning, match="another version of the code"):
        report = go(suite, finished)
    assert report.computed == whole
    assert len(list((finished / "set-aside").iterdir())) == whole


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b"{}", b'{"manifest": 1}', b"\xff\xfe"])
def test_a_damaged_manifest_is_refused_by_readers_and_mended_by_runs(
    content: bytes, suite: Suite, finished: Path
) -> None:
    (finished / "manifest.json").write_bytes(content)
    with pytest.raises(ResultError, match=r"manifest\.json"):
        dpb_gym.Result.load(finished)
    with pytest.warns(RuntimeWarning, match=r"manifest\.json.*written again"):
        report = go(suite, finished)
    # Without a manifest the provenance of the table is unknown.
    assert report.computed == CELLS
    assert len(dpb_gym.Result.load(finished).rows) == 6


def test_what_is_no_result_directory_is_refused(suite: Suite, tmp_path: Path) -> None:
    with pytest.raises(ResultError, match="no such result directory"):
        ResultDirectory.open(tmp_path / "none")
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "thesis.tex").write_text("x")
    with pytest.raises(ResultError, match=r"not a result directory.*thesis\.tex"):
        go(suite, tmp_path / "full")
    with pytest.raises(ResultError, match=r"no manifest\.json"):
        ResultDirectory.open(tmp_path / "full")
    with pytest.raises(ResultError, match="is a file"):
        go(suite, tmp_path / "full" / "thesis.tex")
    with pytest.raises(ResultError, match="cannot write"):
        go(suite, tmp_path / "full" / "thesis.tex" / "out")
    assert [p.name for p in (tmp_path / "full").iterdir()] == ["thesis.tex"]


def test_two_runs_do_not_share_a_directory(suite: Suite, finished: Path) -> None:
    busy = pytest.raises(ResultError, match=rf"in use by process {os.getpid()}")
    with ResultDirectory.writing(finished, suite), busy:
        go(suite, finished)
    (finished / ".lock").unlink(missing_ok=True)
    (finished / ".lock").symlink_to(finished / "manifest.json")
    with pytest.raises(ResultError, match="is a link"):
        go(suite, finished)
    (finished / ".lock").unlink()
    assert go(suite, finished).skipped == CELLS


def test_a_read_only_directory_is_a_clear_error(
    suite: Suite, finished: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The tests may run as root, whom file modes do not stop; the system call is what refuses.
    def refuse(*_: Any, **__: Any) -> None:
        raise OSError(30, "Read-only file system")

    before = digests(finished)
    for path in scattered(suite, finished, CELLS):
        path.unlink()
    monkeypatch.setattr(os, "replace", refuse)
    with pytest.raises(ResultError, match=r"cannot write .*Read-only file system.*untouched"):
        go(suite, finished)
    monkeypatch.undo()
    assert not list(finished.rglob("*.tmp"))
    assert go(suite, finished).computed == 1
    assert digests(finished) == before


LIMITED = """
    import resource, sys, warnings
    from pathlib import Path
    from dpb_gym.running.plan import plan_suite
    from dpb_gym.running.plan import make_jobs
    from dpb_gym.running.execution import execute, run_plan
    from dpb_gym.suites.suite import parse_suite
    from dpb_gym.errors import ResultError
    suite = parse_suite(Path(sys.argv[1]).read_text(), "x")
    plans = plan_suite(suite)
    limit = int(sys.argv[3])
    if limit:
        execute(make_jobs(suite, plans), None, workers=1)  # compiles first
        short = [plan for plan in plans if plan.task.name == "offers"]
        run_plan(suite, short, sys.argv[2], workers=1)
        resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))
    try:
        print(run_plan(suite, plans, sys.argv[2], workers=1).computed)
    except ResultError as error:
        print(error)
        sys.exit(3)
"""


@pytest.mark.skipif(sys.platform == "win32", reason="needs a limit on file sizes")
def test_a_full_disk_leaves_nothing_half_written(suite: Suite, tmp_path: Path) -> None:
    # A limit on file sizes fails in the middle of a write, as a full disk does. Manifests pass,
    # the cells of the longer checkpoints do not.
    text = (
        suite.to_yaml()
        .replace("checkpoints: 4", "checkpoints: all")
        .replace("horizon: 60", "horizon: 2000")
    )
    (tmp_path / "s.yaml").write_text(text)
    out = tmp_path / "out"

    def start(limit: int) -> subprocess.CompletedProcess[str]:
        program = textwrap.dedent(LIMITED)
        arguments = [sys.executable, "-c", program, str(tmp_path / "s.yaml"), str(out), str(limit)]
        return subprocess.run(arguments, capture_output=True, text=True, check=False)

    stopped = start(16_000)
    assert stopped.returncode == 3, stopped.stderr
    assert "cannot write" in stopped.stdout and "File too large" in stopped.stdout
    assert not list(out.rglob("*.tmp"))
    kept = digests(out)
    assert kept and {r.cell.task.name for r in ResultDirectory.open(out).results()} == {"offers"}
    finished = start(0)
    assert finished.returncode == 0, finished.stderr
    assert int(finished.stdout) == CELLS - len(kept)
    assert all(digests(out)[name] == content for name, content in kept.items())


def test_what_killed_writers_leave_is_cleared(suite: Suite, finished: Path) -> None:
    litter = finished / "cells" / "items" / ".x.parquet-0123.tmp"
    litter.parent.mkdir(parents=True)
    litter.write_bytes(b"half")
    go(suite, finished)
    assert not litter.exists()


def test_failed_cells_are_reported_and_tried_again(
    suite: Suite, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "out"
    cls: Any = dpb_gym.agent_spec("adaprivate-ts").maker
    original = Player.act

    def broken(self: Any, context: Any) -> Any:
        if isinstance(self.algorithm, cls) and context.t == 30:
            raise RuntimeError("boom")
        return original(self, context)

    monkeypatch.setattr(Player, "act", broken)
    monkeypatch.setattr(runner, "plays_stretches", lambda agent: False)
    report = go(suite, out)
    assert len(report.failures) == 6 and report.computed == CELLS - 6
    failure = report.failures[0]
    assert failure.cell.task.name == "items"
    assert "'Private (eps=1,delta=1e-5)' failed in round 30" in failure.message
    notes = dpb_gym.Result.load(out).to_leaderboard().notes
    assert any("boom" in note for note in notes)
    monkeypatch.undo()
    again = go(suite, out)
    assert again.computed == 6 and not again.failures
    assert not any("boom" in note for note in dpb_gym.Result.load(out).to_leaderboard().notes)


def test_an_empty_run_is_refused(suite: Suite, tmp_path: Path) -> None:
    with pytest.raises(ParameterError, match="nothing to run"):
        go(suite, tmp_path / "out", agents=["lin-ts"], tasks=["offers"])
    for count in (0, -1, True, 2.5, 10**9):
        with pytest.raises(ParameterError, match="replicates"):
            go(suite, tmp_path / "out", replicates=count)
    assert not (tmp_path / "out").exists()


def test_reading_is_silent(finished: Path) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert ResultDirectory.open(finished).results()


def test_timings_may_be_missing_or_invalid(finished: Path) -> None:
    manifest = json.loads((finished / "manifest.json").read_text())
    for row in manifest["rows"]:
        for block in row["blocks"]:
            offers = row["cell"]["task"]["name"] == "offers"
            block["timing"] = None if offers else {**block["timing"], "agent_seconds": -1.0}
    (finished / "manifest.json").write_text(json.dumps(manifest))
    tasks = dpb_gym.Result.load(finished).to_leaderboard().tasks
    rows = [row for task in tasks for row in task.rows]
    assert len(rows) == 6
    assert all(row.rounds_per_second is None for row in rows)
