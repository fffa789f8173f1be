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
from dpb_gym.evaluation import spec
from dpb_gym.evaluation.filesystem import exclusive
from dpb_gym.evaluation.plan import plan_suite
from dpb_gym.evaluation.run import RunReport, run_plan
from dpb_gym.evaluation.store import Store
from dpb_gym.evaluation.suite import Suite, parse_suite

CELLS = 3 * 2 + 3 * 4  # three blocks; two rows on one task, four on the other


def go(suite: Suite, out: Path, **options: Any) -> RunReport:
    chosen = {k: options.pop(k) for k in ("agents", "tasks") if k in options}
    return run_plan(suite, plan_suite(suite, **chosen), out, workers=1, **options)


def shards(out: Path) -> dict[str, bytes]:
    return {str(p.relative_to(out)): p.read_bytes() for p in sorted(out.rglob("*.parquet"))}


@pytest.fixture
def finished(suite: Suite, tmp_path: Path) -> Path:
    out = tmp_path / "out"
    go(suite, out)
    return out


def test_a_run_leaves_shards_timings_and_a_manifest(suite: Suite, finished: Path) -> None:
    assert len(shards(finished)) == CELLS
    assert len(list(finished.glob("timings/*/*.json"))) == CELLS
    manifest = json.loads((finished / "manifest.json").read_text())
    assert manifest["suite"] == "tiny-v0" and manifest["protocol"] == suite.protocol
    assert parse_suite(manifest["suite_text"], "x") == suite
    (run,) = manifest["runs"]
    assert run["status"] == "finished" and run["computed"] == CELLS and run["failures"] == []
    assert run["versions"]["numpy"] and run["versions"]["python"] and run["versions"]["dpb-gym"]
    assert run["wall_seconds"] > 0 and run["command"] and run["started"] <= run["ended"]
    promised = [g for g in manifest["guarantees"] if g["guarantee"] is not None]
    assert {g["agent"] for g in promised} == {"Private"}
    assert {g["budget"] for g in promised} == {"eps=1,delta=1e-5", "eps=5,delta=1e-5"}


def test_the_same_run_elsewhere_gives_the_same_bytes(
    suite: Suite, finished: Path, tmp_path: Path
) -> None:
    go(suite, tmp_path / "again")
    assert shards(tmp_path / "again") == shards(finished)


def test_resuming_computes_nothing_twice(suite: Suite, finished: Path) -> None:
    before = {p: p.stat().st_mtime_ns for p in finished.rglob("*.parquet")}
    report = go(suite, finished)
    assert (report.computed, report.skipped) == (0, CELLS)
    assert {p: p.stat().st_mtime_ns for p in finished.rglob("*.parquet")} == before
    assert len(json.loads((finished / "manifest.json").read_text())["runs"]) == 2


def test_missing_cells_are_computed_alone_and_are_the_same(suite: Suite, finished: Path) -> None:
    whole = shards(finished)
    lost = sorted(finished.rglob("*.parquet"))[::3]
    for path in lost:
        path.unlink()
    report = go(suite, finished)
    assert report.computed == len(lost)
    assert shards(finished) == whole


@pytest.mark.parametrize("damage", ["truncate", "flip", "empty", "text", "swap"])
def test_damaged_shards_are_set_aside_and_redone(damage: str, suite: Suite, finished: Path) -> None:
    whole = shards(finished)
    victim, other = sorted(finished.rglob("*.parquet"))[:2]
    content = bytearray(victim.read_bytes())
    if damage == "truncate":
        content = content[: len(content) // 2]
    elif damage == "flip":
        content[len(content) // 4] ^= 0xFF
    elif damage == "empty":
        content = bytearray()
    elif damage == "text":
        content = bytearray(b"not a shard")
    else:
        content = bytearray(other.read_bytes())
    victim.write_bytes(bytes(content))
    with pytest.warns(RuntimeWarning, match="set-aside"):
        report = go(suite, finished)
    assert report.computed == 1
    (aside,) = (finished / "set-aside").iterdir()
    assert aside.name == victim.name and aside.read_bytes() == bytes(content)
    kept = {k: v for k, v in shards(finished).items() if not k.startswith("set-aside")}
    assert kept == whole


def test_results_of_another_suite_are_refused_and_untouched(suite: Suite, finished: Path) -> None:
    before = shards(finished), (finished / "manifest.json").read_bytes()
    for other in (
        suite.model_copy(update={"name": "other-v0"}),
        suite.model_copy(update={"checkpoints": 3}),
        parse_suite(suite.to_yaml().replace("horizon: 40", "horizon: 41"), "x"),
    ):
        with pytest.raises(ResultError, match=r"holds results of suite 'tiny-v0'.*directory"):
            go(parse_suite(other.to_yaml(), "x"), finished)
    assert (shards(finished), (finished / "manifest.json").read_bytes()) == before


def test_a_foreign_shard_is_an_error_when_read(
    suite: Suite, finished: Path, tmp_path: Path
) -> None:
    other = parse_suite(suite.to_yaml().replace("horizon: 40", "horizon: 41"), "x")
    go(other, tmp_path / "other")
    foreign = next((tmp_path / "other").rglob("offers/*.parquet"))
    (finished / "shards" / "offers" / foreign.name).write_bytes(foreign.read_bytes())
    with pytest.raises(ResultError, match="belongs to another suite"):
        dpb_gym.Result.load(finished)


def test_other_agents_and_more_replicates_are_added(suite: Suite, finished: Path) -> None:
    before = shards(finished)
    report = go(suite, finished, agents=["lin-ts"], tasks=["items"])
    assert report.computed == 3
    more = go(suite, finished, replicates=6)
    # Two more blocks would be 4-5: the old 4-4 stays, and counts once.
    assert more.computed == 6
    after = shards(finished)
    assert all(after[name] == content for name, content in before.items())
    result = dpb_gym.Result.load(finished)
    assert len(result.final_regret("Oracle", task="items")) == 6
    assert len(result.final_regret("lin-ts")) == 5
    counts = {(s.task, s.agent, s.budget): len(s.replicates) for s in result.series}
    assert counts.pop(("items", "lin-ts", "none")) == 5
    assert set(counts.values()) == {6} and len(counts) == 6


def test_one_label_cannot_stand_for_two_parameters(suite: Suite, finished: Path) -> None:
    changed = parse_suite(suite.to_yaml().replace("batch: 20", "batch: 30"), "x")
    assert changed.protocol == suite.protocol
    before = shards(finished)
    with pytest.raises(ResultError, match=r"Private.*other params.*another label"):
        go(changed, finished)
    assert shards(finished) == before


def test_shards_of_older_code_are_set_aside_and_redone(
    suite: Suite, finished: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = len(shards(finished))
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
    with pytest.warns(RuntimeWarning, match=r"manifest\.json.*written afresh"):
        report = go(suite, finished)
    assert report.computed == 0
    assert len(dpb_gym.Result.load(finished).series) == 6


def test_what_is_no_result_directory_is_refused(suite: Suite, tmp_path: Path) -> None:
    with pytest.raises(ResultError, match="no such result directory"):
        Store.open(tmp_path / "none")
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "thesis.tex").write_text("x")
    with pytest.raises(ResultError, match=r"not a result directory.*thesis\.tex"):
        go(suite, tmp_path / "full")
    with pytest.raises(ResultError, match=r"no manifest\.json"):
        Store.open(tmp_path / "full")
    with pytest.raises(ResultError, match="is a file"):
        go(suite, tmp_path / "full" / "thesis.tex")
    with pytest.raises(ResultError, match="cannot write"):
        go(suite, tmp_path / "full" / "thesis.tex" / "out")
    assert [p.name for p in (tmp_path / "full").iterdir()] == ["thesis.tex"]


def test_two_runs_do_not_share_a_directory(suite: Suite, finished: Path) -> None:
    with exclusive(finished), pytest.raises(ResultError, match=rf"in use by process {os.getpid()}"):
        go(suite, finished)
    assert go(suite, finished).skipped == CELLS


def test_a_read_only_directory_is_a_clear_error(
    suite: Suite, finished: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The tests may run as root, whom file modes do not stop; the system call is what refuses.
    def refuse(*_: Any, **__: Any) -> None:
        raise OSError(30, "Read-only file system")

    before = shards(finished)
    next(finished.rglob("*.parquet")).unlink()
    monkeypatch.setattr(os, "replace", refuse)
    with pytest.raises(ResultError, match=r"cannot write .*Read-only file system.*untouched"):
        go(suite, finished)
    monkeypatch.undo()
    assert not list(finished.rglob("*.tmp"))
    assert go(suite, finished).computed == 1
    assert shards(finished) == before


LIMITED = """
    import resource, sys, warnings
    from pathlib import Path
    from dpb_gym.evaluation.plan import plan_suite
    from dpb_gym.evaluation.plan import make_jobs
    from dpb_gym.evaluation.run import execute, run_plan
    from dpb_gym.evaluation.suite import parse_suite
    from dpb_gym.errors import ResultError
    suite = parse_suite(Path(sys.argv[1]).read_text(), "x")
    plans = plan_suite(suite)
    limit = int(sys.argv[3])
    if limit:
        execute(make_jobs(suite, plans), None, workers=1)  # compiles first
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
    # the shards of the longer checkpoints do not.
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
    kept = shards(out)
    assert kept and all("offers" in name for name in kept)
    finished = start(0)
    assert finished.returncode == 0, finished.stderr
    assert int(finished.stdout) == CELLS - len(kept)
    assert all(shards(out)[name] == content for name, content in kept.items())


def test_what_killed_writers_leave_is_cleared(suite: Suite, finished: Path) -> None:
    litter = finished / "shards" / "items" / ".x.parquet-0123.tmp"
    litter.write_bytes(b"half")
    go(suite, finished)
    assert not litter.exists()


def test_failed_cells_are_reported_and_tried_again(
    suite: Suite, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "out"
    cls: Any = dpb_gym.agent_spec("adaprivate-ts").load()
    original = cls.act

    def broken(self: Any, context: Any) -> Any:
        if context.t == 30:
            raise RuntimeError("boom")
        return original(self, context)

    monkeypatch.setattr(cls, "act", broken)
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
    assert dpb_gym.Result.load(out).to_leaderboard().notes == ()


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
        Store.open(finished).results()


def test_timings_may_be_missing_or_damaged(finished: Path) -> None:
    for path in finished.glob("timings/items/*.json"):
        path.write_text("{")
    for path in finished.glob("timings/offers/*.json"):
        path.unlink()
    tasks = dpb_gym.Result.load(finished).to_leaderboard().tasks
    rows = [row for task in tasks for row in task.rows]
    assert len(rows) == 6
    assert all(row.rounds_per_second is None for row in rows)


def test_the_key_names_the_file_and_versions_are_part_of_it(finished: Path) -> None:
    store = Store.open(finished)
    for result in store.results():
        assert store.shard_path(result.cell).exists()
        assert result.cell.key[:16] in store.shard_path(result.cell).name
        older = result.cell.model_copy(update={"algorithm": 0})
        assert store.shard_path(older) != store.shard_path(result.cell)
