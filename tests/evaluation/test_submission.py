"""Submissions: what an archive holds, what is refused, and merging all or nothing."""

from __future__ import annotations

import gzip
import io
import json
import os
import signal
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dpb_gym.errors import DPBError, ParameterError, ResultError, UnknownNameError
from dpb_gym.evaluation.exchange import merging
from dpb_gym.evaluation.exchange import submission as submission_module
from dpb_gym.evaluation.exchange.archives import pack, unpack
from dpb_gym.evaluation.exchange.merging import import_submission
from dpb_gym.evaluation.exchange.sources import source_reference
from dpb_gym.evaluation.exchange.submission import read_submission, submit
from dpb_gym.evaluation.outcome import CellResult
from dpb_gym.evaluation.plan import plan_suite
from dpb_gym.evaluation.result import Result
from dpb_gym.evaluation.run import run_plan
from dpb_gym.evaluation.shards import read_shard, shard_bytes
from dpb_gym.evaluation.spec import AgentRun, Task
from dpb_gym.evaluation.suite import Suite, parse_suite
from dpb_gym.evaluation.verify import verify

TEXT = """
name: tiny-v0
replicates: 3
block: 2
checkpoints: 3
budgets:
  default: ["eps=1,delta=1e-5", "eps=5,delta=1e-5"]
tasks:
  - {name: prices, env: DPB/Pricing-v0, env_kwargs: {dim: 2}, horizon: 20}
  - {name: items, env: DPB/Recommendation-v0, env_kwargs: {dim: 2, n_arms: 8}, horizon: 30}
agents: [random]
"""


def parsed(text: str = TEXT) -> Suite:
    return parse_suite(text, "test suite")


def run(folder: Path, agents: list[str], text: str = TEXT) -> Path:
    suite = parsed(text)
    run_plan(suite, plan_suite(suite, agents), folder, suite_text=text, workers=1)
    return folder


@pytest.fixture(scope="module")
def theirs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return run(tmp_path_factory.mktemp("theirs") / "out", ["adaprivate-ts", "random"])


@pytest.fixture(scope="module")
def ours(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return run(tmp_path_factory.mktemp("ours") / "out", ["random"])


@pytest.fixture(scope="module")
def archive(theirs: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("archive") / "private.tar.gz"
    submit(theirs, "adaprivate-ts", path)
    return path


@pytest.fixture
def board(ours: Path, tmp_path: Path) -> Path:
    """A copy of our results that may be written to."""
    target = tmp_path / "board"
    for file in ours.rglob("*"):
        if file.is_file():
            copy = target / file.relative_to(ours)
            copy.parent.mkdir(parents=True, exist_ok=True)
            copy.write_bytes(file.read_bytes())
    return target


def content(folder: Path) -> dict[str, bytes]:
    """Every file but the manifest and the lock."""
    return {
        file.relative_to(folder).as_posix(): file.read_bytes()
        for file in sorted(folder.rglob("*"))
        if file.is_file() and file.name not in (".lock", "manifest.json")
    }


Change = Callable[[dict[str, bytes], dict[str, Any]], None]


def altered(archive: Path, target: Path, change: Change, *, rehash: bool = True) -> Path:
    """A copy of an archive after `change`; with `rehash` its list of hashes fits again."""
    import hashlib

    members = unpack(archive)
    info = json.loads(members.pop("submission.json"))
    change(members, info)
    if rehash:
        info["files"] = {k: hashlib.sha256(v).hexdigest() for k, v in members.items()}
    members["submission.json"] = json.dumps(info).encode()
    target.write_bytes(pack(target, members))
    return target


def forged(members: dict[str, bytes], tmp: Path, change: Callable[[CellResult], CellResult]) -> str:
    """Replaces the first shard by another sound one; returns its name."""
    name = sorted(k for k in members if k.startswith("shards/"))[0]
    copy = tmp / Path(name).name
    copy.write_bytes(members[name])
    members[name] = shard_bytes(change(read_shard(copy)))
    return name


@pytest.mark.parametrize("suffix", [".tar.gz", ".zip", ".tgz"])
def test_an_archive_brings_an_agent_onto_another_leaderboard(
    theirs: Path, board: Path, tmp_path: Path, suffix: str
) -> None:
    info = submit(theirs, "adaprivate-ts", tmp_path / f"it{suffix}")
    assert info["agent"] == source_reference("adaprivate-ts")
    assert [row["replicates"] for row in info["rows"]] == [3, 3]
    before = content(board)
    merge = import_submission(tmp_path / f"it{suffix}", board)
    assert (merge.added, merge.present, merge.labels) == (4, 0, ("adaprivate-ts",))
    after = content(board)
    assert {name: after[name] for name in before} == before
    source = content(theirs)
    new = {name: after[name] for name in after.keys() - before.keys()}
    assert new == {k: v for k, v in source.items() if "adaprivate" in k}
    labels = {row.agent for task in Result.load(board).to_leaderboard().tasks for row in task.rows}
    assert labels == {"random", "adaprivate-ts"}
    found = verify(board, sample=100, agent="adaprivate-ts")
    assert found.ok and len(found.again) == 4


def test_the_same_results_give_the_same_bytes(theirs: Path, tmp_path: Path) -> None:
    members = []
    for name in ("a.tar.gz", "b.tar.gz", "c.zip"):
        submit(theirs, "adaprivate-ts", tmp_path / name)
        found = unpack(tmp_path / name)
        found.pop("submission.json")  # holds the time
        members.append(found)
    assert members[0] == members[1] == members[2]
    assert pack(tmp_path / "x.zip", members[0]) == pack(tmp_path / "x.zip", dict(members[0]))


def test_a_new_directory_is_made(archive: Path, tmp_path: Path) -> None:
    import_submission(archive, tmp_path / "new")
    assert verify(tmp_path / "new", sample=1).ok


def test_only_what_is_there_can_be_submitted(
    theirs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(UnknownNameError, match="lin-ucb"):
        submit(theirs, "lin-ucb", tmp_path / "x.zip")
    with pytest.raises(ResultError, match="must end in"):
        submit(theirs, "random", tmp_path / "x.rar")
    monkeypatch.setattr(submission_module, "ALGORITHM_VERSION", 99)
    with pytest.raises(ResultError, match="run the suite again"):
        submit(theirs, "random", tmp_path / "x.zip")
    assert list(tmp_path.iterdir()) == []


def test_what_is_there_already_is_refused(archive: Path, board: Path) -> None:
    import_submission(archive, board)
    before = content(board)
    with pytest.raises(ResultError, match=r"all 4 cells are in .* already"):
        import_submission(archive, board)
    assert content(board) == before


def test_an_import_that_was_cut_short_is_completed(archive: Path, board: Path) -> None:
    import_submission(archive, board)
    whole = content(board)
    for name in list(whole)[:3]:
        if "adaprivate" in name:
            (board / name).unlink()
    merge = import_submission(archive, board)
    assert merge.added + merge.present == 4 and merge.added < 4
    assert content(board) == whole


def test_other_numbers_for_the_same_cell_are_refused(
    archive: Path, board: Path, tmp_path: Path
) -> None:
    def change(result: CellResult) -> CellResult:
        regret = result.regret.copy()
        regret[0, -1] = np.nextafter(regret[0, -1], 0)
        return replace(result, regret=regret)

    fake = altered(archive, tmp_path / "f.zip", lambda m, i: forged(m, tmp_path, change) and None)
    import_submission(archive, board)
    before = content(board)
    with pytest.raises(ResultError, match="already with other numbers"):
        import_submission(fake, board)
    assert content(board) == before
    # Alone the forgery looks sound; computing it again tells.
    import_submission(fake, tmp_path / "alone")
    found = verify(tmp_path / "alone", sample=100)
    assert not found.ok and len(found.differing) == 1 and not found.damaged


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("horizon: 20", "horizon: 21", "give another directory"),
        ("checkpoints: 3", "checkpoints: 2", "give another directory"),
        ("replicates: 3", "seed: 5000000\nreplicates: 3", "give another directory"),
    ],
)
def test_another_version_of_the_suite_is_refused(
    archive: Path, tmp_path: Path, old: str, new: str, words: str
) -> None:
    other = run(tmp_path / "other", ["random"], TEXT.replace(old, new))
    before = content(other)
    with pytest.raises(ResultError, match=words):
        import_submission(archive, other)
    assert content(other) == before


def test_a_suite_that_borrows_a_published_name_is_refused(theirs: Path, tmp_path: Path) -> None:
    borrowed = TEXT.replace("tiny-v0", "smoke")
    source = run(tmp_path / "source", ["random"], borrowed)
    submit(source, "random", tmp_path / "x.zip")
    with pytest.raises(ResultError, match="is not the one of this package"):
        import_submission(tmp_path / "x.zip", tmp_path / "new")
    assert not (tmp_path / "new").exists()


def _with_config(result: CellResult, **fields: Any) -> CellResult:
    return replace(result, cell=result.cell.model_copy(update=fields))


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"seed": 7}, "other seeds"),
        ({"protocol": "0" * 64}, "belongs to suite"),
        ({"suite": "core-v0"}, "belongs to suite"),
        (
            {"task": Task(name="items", env="DPB/Recommendation-v0",
                          env_kwargs={"dim": 1, "n_arms": 8}, horizon=30)},
            "another environment",
        ),
    ],
)  # fmt: skip
def test_cells_that_contradict_their_suite_are_refused(
    archive: Path, tmp_path: Path, fields: dict[str, Any], words: str
) -> None:
    from dpb_gym.evaluation.shards import shard_name

    def change(members: dict[str, bytes], info: dict[str, Any]) -> None:
        name = forged(members, tmp_path, lambda result: _with_config(result, **fields))
        copy = tmp_path / "s.parquet"
        copy.write_bytes(members[name])
        members.pop(name.replace("shards/", "timings/").replace(".parquet", ".json"))
        import pyarrow.parquet as pq

        from dpb_gym.evaluation.spec import Cell

        meta = pq.read_metadata(copy).metadata
        members[f"shards/{shard_name(Cell.read(meta[b'dpb.cell']))}"] = members.pop(name)

    with pytest.raises(ResultError, match=words):
        read_submission(altered(archive, tmp_path / "x.zip", change))


def test_another_algorithm_version_is_refused(
    archive: Path, board: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(merging, "ALGORITHM_VERSION", 99)
    with pytest.raises(ResultError, match="algorithm version"):
        import_submission(archive, board)


def test_results_on_other_data_are_refused(
    archive: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from dpb_gym.evaluation import spec

    monkeypatch.setattr(spec.Task, "data_digest", lambda self: "other")
    other = run(tmp_path / "other", ["random"])
    with pytest.raises(ResultError, match="other data"):
        import_submission(archive, other)


def test_a_label_that_is_taken_is_refused(archive: Path, tmp_path: Path) -> None:
    labelled = TEXT.replace("[random]", "[{name: lin-ucb, label: adaprivate-ts}]")
    other = run(tmp_path / "other", ["lin-ucb"], labelled)
    with pytest.raises(ResultError, match="the label 'adaprivate-ts' belongs to agent 'lin-ucb'"):
        import_submission(archive, other)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda m, i: i.update(submission=2), "submission version"),
        (lambda m, i: i.update(suite="other"), "names another suite"),
        (lambda m, i: i.pop("agent"), "damaged"),
        (lambda m, i: i["agent"].update(name="lin-ucb"), "belongs to agent"),
        (lambda m, i: m.update({"notes.txt": b"hello"}), "no part of a submission"),
        (lambda m, i: m.update({"timings/items/x.json": b"{}"}), "belongs to no shard"),
        (lambda m, i: [m.pop(k) for k in list(m)], "holds no results"),
        (lambda m, i: m.update({"audits.json": b"[]"}), "damaged"),
        (
            lambda m, i: m.update({"shards/items/a.parquet": next(iter(m.values()))}),
            "not a readable|misnamed|holds another cell",
        ),
    ],
)
def test_what_is_no_submission_is_refused(
    archive: Path, board: Path, tmp_path: Path, change: Any, words: str
) -> None:
    before = content(board)
    with pytest.raises(ResultError, match=words):
        import_submission(altered(archive, tmp_path / "x.zip", change), board)
    assert content(board) == before


def test_files_must_be_those_that_are_listed(archive: Path, tmp_path: Path) -> None:
    def add(members: dict[str, bytes], info: dict[str, Any]) -> None:
        members["audits.json"] = b"{}"

    with pytest.raises(ResultError, match="not those that"):
        read_submission(altered(archive, tmp_path / "x.zip", add, rehash=False))

    def change(members: dict[str, bytes], info: dict[str, Any]) -> None:
        name = next(k for k in members if k.startswith("timings/"))
        members[name] = b"{}"

    with pytest.raises(ResultError, match="does not have the hash"):
        read_submission(altered(archive, tmp_path / "y.zip", change, rehash=False))


NAMES = ["../up", "/root", "a/../../b", "shards/../x", "C:\\x", "a\\..\\b", ".hidden", "a//b", ""]


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("suffix", [".zip", ".tar.gz"])
def test_names_that_lead_elsewhere_are_refused(tmp_path: Path, name: str, suffix: str) -> None:
    path = tmp_path / f"evil{suffix}"
    path.write_bytes(pack(path, {name: b"x"}))
    with pytest.raises(ResultError, match=r"refused|no plain file|damaged"):
        unpack(path)
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize(
    "kind", [tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.DIRTYPE, tarfile.FIFOTYPE]
)
def test_links_folders_and_devices_are_refused(tmp_path: Path, kind: bytes) -> None:
    path = tmp_path / "evil.tar.gz"
    with tarfile.open(path, "w:gz") as tar:
        entry = tarfile.TarInfo("shards")
        entry.type, entry.linkname = kind, "/etc/passwd"
        tar.addfile(entry)
    with pytest.raises(ResultError, match="no plain file"):
        unpack(path)
    link = zipfile.ZipInfo("shards")
    link.external_attr = 0o120777 << 16
    with zipfile.ZipFile(tmp_path / "evil.zip", "w") as zipped:
        zipped.writestr(link, "/etc/passwd")
    with pytest.raises(ResultError, match="no plain file"):
        unpack(tmp_path / "evil.zip")


def test_a_name_that_stands_twice_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "twice.tar.gz"
    with tarfile.open(path, "w:gz") as tar:
        for _ in range(2):
            tar.addfile(tarfile.TarInfo("a"), io.BytesIO())
    with pytest.raises(ResultError, match="twice"):
        unpack(path)


@pytest.mark.parametrize("suffix", [".zip", ".tar.gz"])
def test_what_unpacks_to_too_much_is_refused(
    tmp_path: Path, suffix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from dpb_gym.evaluation.exchange import archives

    path = tmp_path / f"bomb{suffix}"
    path.write_bytes(pack(path, {f"f{i}": b"\0" * 4000 for i in range(9)}))
    assert path.stat().st_size < 4000
    monkeypatch.setattr(archives, "MOST_BYTES", 20_000)
    with pytest.raises(ResultError, match="unpacks to more"):
        unpack(path)
    monkeypatch.setattr(archives, "MOST_BYTES", 1 << 20)
    monkeypatch.setattr(archives, "MOST_FILES", 8)
    with pytest.raises(ResultError, match="unpacks to more"):
        unpack(path)


def damage(raw: bytes, data: st.DataObject, first: int) -> bytes:
    if data.draw(st.booleans()):
        return raw[: data.draw(st.integers(0, len(raw) - 1))]
    place = data.draw(st.integers(first, len(raw) - 1))
    return raw[:place] + bytes([raw[place] ^ data.draw(st.integers(1, 255))]) + raw[place + 1 :]


@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_a_damaged_archive_never_passes(archive: Path, tmp_path: Path, data: st.DataObject) -> None:
    path = tmp_path / archive.name
    path.write_bytes(damage(archive.read_bytes(), data, 10))  # the first ten hold no content
    with pytest.raises(DPBError):
        read_submission(path)


@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_a_damaged_zip_is_refused_or_unharmed(
    archive: Path, tmp_path: Path, data: st.DataObject
) -> None:
    """Some bytes of a zip say nothing (times, attributes)."""
    path = tmp_path / "x.zip"
    members = unpack(archive)
    path.write_bytes(damage(pack(path, members), data, 0))
    try:
        found = unpack(path)
    except DPBError:
        return
    assert found == members


def test_a_tar_of_rubbish_is_named_damaged(tmp_path: Path) -> None:
    path = tmp_path / "rubbish.tar.gz"
    path.write_bytes(gzip.compress(b"rubbish" * 1000))
    with pytest.raises(ResultError, match="damaged"):
        unpack(path)


@pytest.mark.parametrize("step", ["write", "move", "audits"])
def test_a_failed_import_leaves_everything_as_it_was(
    archive: Path, board: Path, tmp_path: Path, step: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    before, calls = content(board), []

    def fail(*args: Any, **kwargs: Any) -> Any:
        calls.append(args)
        if len(calls) == 3:
            raise OSError(28, "No space left on device")
        return real(*args, **kwargs)

    if step == "write":
        from dpb_gym.evaluation import filesystem

        real = filesystem.write_whole
        # The manifest is written first.
        monkeypatch.setattr(filesystem, "write_whole", fail)
    else:
        real = os.rename
        monkeypatch.setattr(os, "rename", fail)
    with pytest.raises(ResultError, match="No space left"):
        import_submission(archive, board)
    monkeypatch.undo()
    assert content(board) == before
    assert import_submission(archive, board).added == 4


KILLED = """
import os, signal, sys
from dpb_gym.evaluation.exchange import merging
real, calls = os.rename, []
def rename(a, b):
    calls.append(a)
    if len(calls) == int(sys.argv[3]):
        os.kill(os.getpid(), signal.SIGKILL)
    return real(a, b)
os.rename = rename
merging.import_submission(sys.argv[1], sys.argv[2])
"""


@pytest.mark.parametrize("moment", [1, 6])
def test_a_killed_import_loses_nothing_and_is_completed(
    archive: Path, board: Path, moment: int
) -> None:
    before = content(board)
    done = subprocess.run(
        [sys.executable, "-c", KILLED, str(archive), str(board), str(moment)], check=False
    )
    assert done.returncode == -signal.SIGKILL
    middle = content(board)
    assert {name: middle[name] for name in before} == before
    assert verify(board, sample=0).ok
    import_submission(archive, board)
    assert verify(board, sample=0).ok and not list(board.glob(".incoming-*"))
    assert len(list((board / "shards").glob("*/adaprivate*"))) == 4


def test_what_happens_to_imported_shards_is_noticed(
    archive: Path, board: Path, tmp_path: Path
) -> None:
    import_submission(archive, board)
    victim = sorted((board / "shards").glob("*/adaprivate*"))[0]
    original = victim.read_bytes()
    result = read_shard(victim)
    forged_result = replace(result, regret=result.regret + 1.0)
    victim.write_bytes(shard_bytes(forged_result))
    (line,) = verify(board, sample=0).damaged
    assert "is not the shard that was imported" in line
    victim.unlink()
    (line,) = verify(board, sample=0).damaged
    assert "was imported and is gone" in line
    victim.write_bytes(original)
    assert verify(board, sample=0).ok


def test_agents_that_are_not_installed_are_named_and_others_checked(
    archive: Path, board: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from dpb_gym.evaluation import verify as module

    import_submission(archive, board)
    known = module.agent_specs()
    monkeypatch.setattr(
        module, "agent_specs", lambda: {k: v for k, v in known.items() if k != "adaprivate-ts"}
    )
    found = verify(board, sample=100)
    assert found.ok and len(found.again) == 4
    (line,) = found.unavailable
    assert "agent 'adaprivate-ts'" in line and "is not installed here" in line
    # Nothing that was asked for could be checked: that is no confirmation.
    assert not verify(board, sample=3, agent="adaprivate-ts").ok
    with pytest.raises(UnknownNameError, match="nobody"):
        verify(board, agent="nobody")


def _agent(name: str) -> AgentRun:
    return AgentRun(label=name, name=name, entry_point="m:C")


def test_audits_travel_and_ours_stay(theirs: Path, ours: Path, board: Path, tmp_path: Path) -> None:
    from dpb_gym.evaluation.audits import audit_key, read_audits

    key = audit_key(_agent("adaprivate-ts"), "recommendation")
    other = audit_key(_agent("random"), "pricing")
    (theirs / "audits.json").write_text(json.dumps({key: {"error": "x"}, other: {"error": "y"}}))
    try:
        submit(theirs, "adaprivate-ts", tmp_path / "x.tar.gz")
    finally:
        (theirs / "audits.json").unlink()
    assert read_submission(tmp_path / "x.tar.gz").audits == {key: {"error": "x"}}
    import_submission(tmp_path / "x.tar.gz", board)
    assert read_audits(board) == {key: {"error": "x"}}


@pytest.mark.parametrize(
    ("audits", "words"),
    [
        ({'["one-pass-linear", {}, "recommendation"]': {"error": "x"}}, "is not the agent"),
        ({'["adaprivate-ts",  {}, "recommendation"]': {"error": "x"}}, "is not the agent"),
        ({"adaprivate-ts": {"error": "x"}}, "damaged"),
        ({'["adaprivate-ts", {}, "recommendation"]': {"verdict": "pass"}}, "damaged"),
        ({'["adaprivate-ts", {}, "recommendation"]': 7}, "damaged"),
    ],
)
def test_audits_of_others_and_broken_ones_are_refused(
    archive: Path, board: Path, tmp_path: Path, audits: dict[str, Any], words: str
) -> None:
    def change(members: dict[str, bytes], info: dict[str, Any]) -> None:
        members["audits.json"] = json.dumps(audits).encode()

    with pytest.raises(ResultError, match=words):
        import_submission(altered(archive, tmp_path / "x.zip", change), board)
    assert not (board / "audits.json").exists()


def test_labels_of_two_agents_are_not_mixed(tmp_path: Path) -> None:
    text = TEXT.replace("[random]", "[{name: random, label: L, tasks: [prices]}, "
                        "{name: lin-ucb, label: L}]")  # fmt: skip
    folder = run(tmp_path / "out", ["L"], text)
    with pytest.raises(ParameterError, match="several agents"):
        submit(folder, "L", tmp_path / "x.zip")


def test_an_imported_audit_stays_where_the_agent_is_missing(
    archive: Path, board: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from dpb_gym.evaluation import audit as audit_room
    from dpb_gym.evaluation.audits import audit_key, audit_series, read_audits

    import_submission(archive, board)
    result = Result.load(board)
    row = next(s for s in result.series if s.agent == "adaprivate-ts")
    key = audit_key(row.cell.agent, "recommendation")
    (board / "audits.json").write_text(json.dumps({key: {"runs": 10, "claimed": None}}))

    def missing(*args: Any, **kwargs: Any) -> Any:
        raise UnknownNameError("not installed")

    monkeypatch.setattr(audit_room, "audit", missing)
    audit_series(board, [(row, "recommendation")], 20)
    assert read_audits(board)[key]["runs"] == 10
