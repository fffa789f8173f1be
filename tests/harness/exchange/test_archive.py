"""Submissions: what an archive holds, what is refused, and merging all or nothing."""

from __future__ import annotations

import json
import signal
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
from dpb_gym.exchange import archive as submission_module
from dpb_gym.exchange import importing as merging
from dpb_gym.exchange.archive import MEMBERS, pack, read_submission, submit, unpack
from dpb_gym.exchange.importing import import_submission, remove_submission
from dpb_gym.exchange.verification import verify
from dpb_gym.registry import agent_spec
from dpb_gym.results.cell_result import CellResult
from dpb_gym.results.parquet import from_rows, read_table, table_bytes, to_rows
from dpb_gym.results.result import Result
from dpb_gym.results.result_directory import ResultDirectory
from dpb_gym.running.execution import run_plan
from dpb_gym.running.plan import plan_suite
from dpb_gym.suites.code_digest import source_reference
from dpb_gym.suites.spec import AgentRun, Task
from dpb_gym.suites.suite import Suite, parse_suite

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
    run_plan(suite, plan_suite(suite, agents), folder, workers=1)
    return folder


@pytest.fixture(scope="module")
def theirs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return run(tmp_path_factory.mktemp("theirs") / "out", ["adaprivate-ts", "random"])


@pytest.fixture(scope="module")
def ours(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return run(tmp_path_factory.mktemp("ours") / "out", ["random"])


@pytest.fixture(scope="module")
def archive(theirs: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("archive") / "private.zip"
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


def content(folder: Path) -> dict[str, Any]:
    """Digest and provenance of every cell."""
    if not (folder / "manifest.json").exists():
        return {}
    return {str(r.cell): (r.digest, r.provenance) for r in ResultDirectory.open(folder).results()}


Change = Callable[[list[CellResult], dict[str, Any]], Any]


def altered(archive: Path, target: Path, change: Change, *, rehash: bool = True) -> Path:
    """A copy of an archive after `change`; with `rehash` all digests fit again."""
    members = unpack(archive)
    info = json.loads(members["manifest.json"])
    results, _ = read_table(members["result.parquet"], "t", from_rows(info["rows"]))
    kept = change(results, info)
    results = results if kept is None or not isinstance(kept, list) else kept
    table = table_bytes(results)
    if rehash:
        info["rows"] = to_rows(results)
    target.write_bytes(pack({"manifest.json": json.dumps(info).encode(), "result.parquet": table}))
    return target


def first(change: Callable[[CellResult], CellResult]) -> Change:
    """Changes the first result."""
    return lambda results, info: [change(results[0]), *results[1:]]


@pytest.mark.slow
def test_an_archive_brings_an_agent_onto_another_leaderboard(
    theirs: Path, board: Path, tmp_path: Path
) -> None:
    info = submit(theirs, "adaprivate-ts", tmp_path / "it.zip", "Ada")
    assert info["agent"] == source_reference("adaprivate-ts")
    assert [row["replicates"] for row in info["summary"]] == [3, 3]
    before = content(board)
    merge = import_submission(tmp_path / "it.zip", board)
    assert (merge.added, merge.present, merge.labels) == (4, 0, ("adaprivate-ts",))
    after, source = content(board), content(theirs)
    assert {name: after[name] for name in before} == before
    new = {name: after[name] for name in after.keys() - before.keys()}
    assert new == {k: (v[0], "stated by Ada") for k, v in source.items() if "adaprivate" in k}
    labels = {row.agent for task in Result.load(board).to_leaderboard().tasks for row in task.rows}
    assert labels == {"random", "adaprivate-ts"}


def test_a_stated_row_is_confirmed_by_computing_all_of_it(archive: Path, board: Path) -> None:
    import_submission(archive, board)
    report = verify(board, sample=0)
    assert not report.ok and (report.rows, report.confirmed) == (4, 2) and not report.damaged
    # One cell of each row: the rows have two blocks.
    report = verify(board, sample=1)
    assert not report.ok and report.confirmed == 2 and len(report.again) == 3
    report = verify(board, sample=1)
    assert report.ok and report.confirmed == 4
    assert {v[1] for k, v in content(board).items() if "adaprivate" in k} == {"recomputed here"}


def test_a_submission_can_be_taken_out_again(archive: Path, board: Path) -> None:
    before, manifest = content(board), ResultDirectory.open(board).manifest
    import_submission(archive, board)
    verify(board, sample=1)
    with pytest.raises(UnknownNameError, match="imported agent"):
        remove_submission(board, "random")
    assert remove_submission(board, "adaprivate-ts") == 4
    assert content(board) == before
    after = ResultDirectory.open(board).manifest
    assert {k: v for k, v in after.items() if k != "updated"} == {
        k: v for k, v in manifest.items() if k != "updated"
    }
    assert import_submission(archive, board).added == 4


def test_one_forged_cell_of_many_is_found(archive: Path, board: Path, tmp_path: Path) -> None:
    def change(result: CellResult) -> CellResult:
        regret = result.regret.copy()
        regret[0, 0] = np.nextafter(regret[0, 0], 0)
        return replace(result, regret=regret)

    import_submission(altered(archive, tmp_path / "f.zip", first(change)), board)
    report = verify(board)
    assert (
        not report.ok and len(report.differing) == 1 and (report.rows, report.confirmed) == (4, 3)
    )


def test_the_same_results_give_the_same_bytes(theirs: Path, tmp_path: Path) -> None:
    members = []
    for name in ("a.zip", "b.zip"):
        submit(theirs, "adaprivate-ts", tmp_path / name)
        members.append(unpack(tmp_path / name))
    assert members[0]["result.parquet"] == members[1]["result.parquet"]
    assert pack(members[0]) == pack(dict(members[0]))


def test_a_new_directory_is_made(archive: Path, tmp_path: Path) -> None:
    import_submission(archive, tmp_path / "new")
    assert verify(tmp_path / "new", sample=9).ok


def test_only_what_was_computed_here_can_be_submitted(
    theirs: Path, archive: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(UnknownNameError, match="lin-ucb"):
        submit(theirs, "lin-ucb", tmp_path / "x.zip")
    for name in ("x.rar", "x.tar.gz"):
        with pytest.raises(ResultError, match=r"is a \.zip archive"):
            submit(theirs, "random", tmp_path / name)
    monkeypatch.setattr(submission_module, "ALGORITHM_VERSION", 99)
    with pytest.raises(ResultError, match="run the suite again"):
        submit(theirs, "random", tmp_path / "x.zip")
    assert list(tmp_path.iterdir()) == []
    monkeypatch.undo()
    import_submission(archive, tmp_path / "new")
    with pytest.raises(ResultError, match="submit what was computed here"):
        submit(tmp_path / "new", "adaprivate-ts", tmp_path / "x.zip")


def test_what_is_there_already_is_refused(archive: Path, board: Path) -> None:
    import_submission(archive, board)
    before = content(board)
    with pytest.raises(ResultError, match=r"all 4 cells are in .* already"):
        import_submission(archive, board)
    assert content(board) == before


def test_other_numbers_for_the_same_cell_are_refused(
    archive: Path, board: Path, tmp_path: Path
) -> None:
    fake = altered(archive, tmp_path / "f.zip", first(lambda r: replace(r, reward=r.reward + 1.0)))
    import_submission(archive, board)
    before = content(board)
    with pytest.raises(ResultError, match="already with other numbers"):
        import_submission(fake, board)
    assert content(board) == before


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("horizon: 20", "horizon: 21"),
        ("checkpoints: 3", "checkpoints: 2"),
        ("replicates: 3", "seed: 5000000\nreplicates: 3"),
    ],
)
def test_another_version_of_the_suite_is_refused(
    archive: Path, tmp_path: Path, old: str, new: str
) -> None:
    other = run(tmp_path / "other", ["random"], TEXT.replace(old, new))
    before = content(other)
    with pytest.raises(ResultError, match="give another directory"):
        import_submission(archive, other)
    assert content(other) == before


def test_a_suite_that_borrows_a_published_name_is_refused(theirs: Path, tmp_path: Path) -> None:
    borrowed = TEXT.replace("tiny-v0", "smoke")
    source = run(tmp_path / "source", ["random"], borrowed)
    submit(source, "random", tmp_path / "x.zip")
    with pytest.raises(ResultError, match="is not the one of this package"):
        import_submission(tmp_path / "x.zip", tmp_path / "new")
    assert not (tmp_path / "new").exists()


OTHER = Task(name="items", env="DPB/Recommendation-v0", env_kwargs={"dim": 1}, horizon=30)


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"seed": 7}, "other seeds"),
        ({"protocol": "0" * 64}, "belongs to suite"),
        ({"suite": "core-v0"}, "belongs to suite"),
        ({"task": OTHER}, "another environment"),
        ({"checkpoints": (10, 20, 29)}, "other seeds or checkpoints"),
    ],
)
def test_cells_that_contradict_their_suite_are_refused(
    archive: Path, tmp_path: Path, fields: dict[str, Any], words: str
) -> None:
    def change(result: CellResult) -> CellResult:
        return replace(result, cell=result.cell.model_copy(update=fields))

    with pytest.raises(ResultError, match=words):
        read_submission(altered(archive, tmp_path / "x.zip", first(change)))


@pytest.mark.parametrize("block", [(600, 602), (1, 3), (0, 3), (2, 4)])
def test_seeds_cannot_be_chosen(
    archive: Path, board: Path, tmp_path: Path, block: tuple[int, int]
) -> None:
    """The suite prescribes replicates 0, 1 and 2 in its own blocks."""

    def change(result: CellResult) -> CellResult:
        start, stop = block
        cell = result.cell.model_copy(update={"start": start, "stop": stop})
        rows = np.zeros((stop - start, len(cell.checkpoints)))
        return replace(result, cell=cell, regret=rows, reward=rows)

    before = content(board)
    fake = altered(archive, tmp_path / "x.zip", first(change))
    with pytest.raises(ResultError, match="prescribes the replicates 0-1, 2-2"):
        read_submission(fake)

    def larger(results: list[CellResult], info: dict[str, Any]) -> list[CellResult]:
        """The suite's text may say what it likes: sizes are no part of the protocol."""
        size = 1 if block[0] % 2 else block[1] - block[0]
        text = info["suite_text"].replace("replicates: 3", "replicates: 700")
        info["suite_text"] = text.replace("block: 2", f"block: {size}")
        return [change(results[0])]

    with pytest.raises(ResultError, match="prescribes the replicates"):
        import_submission(altered(archive, tmp_path / "y.zip", larger), board)
    assert content(board) == before


@pytest.mark.parametrize("value", [np.nan, np.inf, -1.0])
def test_impossible_numbers_are_refused(archive: Path, tmp_path: Path, value: float) -> None:
    for place in (0, -1):

        def change(result: CellResult, place: int = place) -> CellResult:
            regret = result.regret.copy()
            regret[0, place] = value
            return replace(result, regret=regret)

        with pytest.raises(ResultError, match=r"falls, or is no finite number|disagree"):
            read_submission(altered(archive, tmp_path / "x.zip", first(change)))


def test_another_algorithm_version_is_refused(
    archive: Path, board: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(merging, "ALGORITHM_VERSION", 99)
    with pytest.raises(ResultError, match="algorithm version"):
        import_submission(archive, board)


def test_results_on_other_data_are_refused(
    archive: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Task, "data_digest", lambda self: "other")
    other = run(tmp_path / "other", ["random"])
    with pytest.raises(ResultError, match="other data"):
        import_submission(archive, other)


@pytest.mark.parametrize("label", ["adaprivate-ts", "AdaPrivate-TS"])
def test_a_label_that_is_taken_is_refused(archive: Path, tmp_path: Path, label: str) -> None:
    labelled = TEXT.replace("[random]", f"[{{name: lin-ucb, label: {label}}}]")
    other = run(tmp_path / "other", ["lin-ucb"], labelled)
    with pytest.raises(ResultError, match="the label 'adaprivate-ts' is that of agent 'lin-ucb'"):
        import_submission(archive, other)
    unlisted = run(tmp_path / "unlisted", ["lin-ucb"], labelled)
    manifest = json.loads((unlisted / "manifest.json").read_text())
    (unlisted / "manifest.json").write_text(json.dumps({**manifest, "suite_text": TEXT}))
    with pytest.raises(ResultError, match="the label 'adaprivate-ts' belongs to agent 'lin-ucb'"):
        import_submission(archive, unlisted)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda r, i: i.update(manifest=1), "manifest version"),
        (lambda r, i: i.update(protocol="0" * 64), "suite and protocol disagree"),
        (lambda r, i: i.pop("submitted"), "of no submission"),
        (lambda r, i: i["submitted"].pop("agent"), "damaged"),
        (lambda r, i: i["submitted"].update(sender="a\u200bb"), "damaged"),
        (lambda r, i: i.update(suite_text=7), "damaged"),
        (lambda r, i: i["submitted"]["agent"].update(name="lin-ucb"), "belongs to agent"),
        (lambda r, i: r.clear(), "holds no results"),
        (lambda r, i: i.update(audits=[]), "damaged"),
        (lambda r, i: [replace(r[0], guarantee={"notion": 3}), *r[1:]], "guarantee is damaged"),
        (lambda r, i: [replace(r[0], guarantee={"curve": {}}), *r[1:]], "guarantee is damaged"),
    ],
)
def test_what_is_no_submission_is_refused(
    archive: Path, board: Path, tmp_path: Path, change: Any, words: str
) -> None:
    before = content(board)
    with pytest.raises(ResultError, match=words):
        import_submission(altered(archive, tmp_path / "x.zip", change), board)
    assert content(board) == before


@pytest.mark.parametrize(
    "rows", [[], {}, 7, [1], [{}], [{"cell": {}, "guarantee": None, "blocks": [{}]}], "deep"]
)
def test_rows_that_are_none_are_refused(archive: Path, tmp_path: Path, rows: Any) -> None:
    def change(results: list[CellResult], info: dict[str, Any]) -> None:
        info["rows"] = rows

    with pytest.raises(ResultError):
        read_submission(altered(archive, tmp_path / "x.zip", change, rehash=False))


def test_the_table_must_be_the_one_that_is_named(archive: Path, tmp_path: Path) -> None:
    def change(results: list[CellResult], info: dict[str, Any]) -> list[CellResult]:
        return results[:-1]

    with pytest.raises(ResultError, match="its rows are damaged or gone"):
        read_submission(altered(archive, tmp_path / "y.zip", change, rehash=False))


NAMES = ["../result.parquet", "/root", "a/../../b", "C:\\x", "a\\..\\b", "MANIFEST.json", ""]


@pytest.mark.parametrize("name", NAMES)
def test_other_names_are_refused(archive: Path, tmp_path: Path, name: str) -> None:
    path = tmp_path / "evil.zip"
    path.write_bytes(pack({**unpack(archive), name: b"x"}))
    with pytest.raises(ResultError, match="refused"):
        read_submission(path)
    assert list(tmp_path.iterdir()) == [path]


def test_archives_with_duplicate_names_or_bombs_are_rejected(
    archive: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "twice.zip"
    with zipfile.ZipFile(path, "w") as zipped, pytest.warns(UserWarning, match="Duplicate"):
        for name in (*MEMBERS, "manifest.json"):
            zipped.writestr(name, "{}")
    with pytest.raises(ResultError, match="refused"):
        read_submission(path)
    path.write_bytes(pack({"manifest.json": b"{}", "result.parquet": b"\0" * 100_000}))
    assert path.stat().st_size < 4000
    monkeypatch.setitem(MEMBERS, "result.parquet", 20_000)
    with pytest.raises(ResultError, match="is over 19 KiB unpacked"):
        read_submission(path)


@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_a_damaged_archive_is_refused_or_unharmed(
    archive: Path, tmp_path: Path, data: st.DataObject
) -> None:
    """Some bytes of a zip say nothing (times, attributes)."""
    path, raw = tmp_path / "x.zip", archive.read_bytes()
    if data.draw(st.booleans()):
        path.write_bytes(raw[: data.draw(st.integers(0, len(raw) - 1))])
    else:
        place = data.draw(st.integers(0, len(raw) - 1))
        flip = bytes([raw[place] ^ data.draw(st.integers(1, 255))])
        path.write_bytes(raw[:place] + flip + raw[place + 1 :])
    try:
        submission = read_submission(path)
    except DPBError:
        return
    kept = read_submission(archive).results()
    assert [r.digest for r in submission.results()] == [r.digest for r in kept]


def test_what_is_no_archive_is_refused(tmp_path: Path) -> None:
    for path in (tmp_path / "none.zip", tmp_path):
        with pytest.raises(ResultError):
            read_submission(path)
    (tmp_path / "rubbish.zip").write_bytes(b"rubbish" * 1000)
    with pytest.raises(ResultError, match="damaged"):
        read_submission(tmp_path / "rubbish.zip")


@pytest.mark.parametrize("call", [1, 2, 3])
def test_a_failed_import_leaves_everything_as_it_was(
    archive: Path, board: Path, call: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    from dpb_gym import files

    before, calls, real = content(board), [], files.write_whole

    def fail(*args: Any, **kwargs: Any) -> Any:
        calls.append(args)
        if len(calls) == call:
            raise OSError(28, "No space left on device")
        return real(*args, **kwargs)

    monkeypatch.setattr(files, "write_whole", fail)
    with pytest.raises(ResultError, match="No space left"):
        import_submission(archive, board)
    monkeypatch.undo()
    assert content(board) == before
    assert import_submission(archive, board).added == 4


KILLED = """
import os, signal, sys
from dpb_gym.exchange import importing as merging
real, calls = os.replace, []
def replace(a, b):
    calls.append(a)
    if len(calls) == int(sys.argv[3]):
        os.kill(os.getpid(), signal.SIGKILL)
    return real(a, b)
os.replace = replace
merging.import_submission(sys.argv[1], sys.argv[2])
"""


@pytest.mark.parametrize("moment", [1, 2, 3])
def test_a_killed_import_loses_nothing_and_is_completed(
    archive: Path, board: Path, moment: int, tmp_path: Path, forks: Any
) -> None:
    before = content(board)
    done = forks.run(KILLED, str(archive), str(board), str(moment), cwd=tmp_path)
    assert done.returncode == -signal.SIGKILL
    assert content(board) == before and verify(board, sample=0).ok
    assert import_submission(archive, board).added == 4
    assert len(content(board)) == len(before) + 4


def test_verify_names_agents_that_are_not_installed_and_checks_others(
    archive: Path, board: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from dpb_gym.exchange import verification as module

    import_submission(archive, board)
    known = module.agent_specs()
    monkeypatch.setattr(
        module, "agent_specs", lambda: {k: v for k, v in known.items() if k != "adaprivate-ts"}
    )
    report = verify(board, sample=100)
    # Cells that cannot be recomputed are not confirmed.
    assert not report.ok and (report.rows, report.confirmed) == (4, 2) and len(report.again) == 4
    assert len(report.unavailable) == 2
    assert all("agent 'adaprivate-ts'" in line for line in report.unavailable)
    with pytest.raises(UnknownNameError, match="nobody"):
        verify(board, agent="nobody")


@pytest.mark.slow
def test_audits_of_others_are_marked_and_never_count_as_done(
    theirs: Path, archive: Path, board: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from dpb_gym import audits as audit_room
    from dpb_gym.audits.audit_records import audit_key
    from dpb_gym.results.row_audits import audit_rows

    key = audit_key(AgentRun(spec=agent_spec("adaprivate-ts")), "recommendation")
    report = audit_room.audit("adaprivate-ts", "rho=0.5", runs=60, deployment=64).to_dict()
    forged = {**report, "runs": 10**9}
    fake = altered(archive, tmp_path / "x.zip", lambda r, i: i.update(audits={key: forged}))
    import_submission(fake, board)
    (row,) = {
        row.audit.verdict
        for task in Result.load(board).to_leaderboard().tasks
        for row in task.rows
        if row.audit is not None
    }
    assert row.startswith("PASS (stated by ")
    asked = []

    def audited(*args: Any, **kwargs: Any) -> Any:
        asked.append(args)
        raise UnknownNameError("not installed")

    monkeypatch.setattr(audit_room, "audit", audited)
    series = next(s for s in Result.load(board).rows if s.agent == "adaprivate-ts")
    reports = audit_rows(board, [series], 20)
    assert len(asked) == 1 and reports[key] == {"error": "not installed"}


@pytest.mark.parametrize(
    "audits",
    [
        {'["one-pass-linear", {}, "recommendation"]': {"error": "x"}},
        {'["adaprivate-ts",  {}, "recommendation"]': {"error": "x"}},
        {"adaprivate-ts": {"error": "x"}},
        {'["adaprivate-ts", {}, "recommendation"]': {"verdict": "pass"}},
        {'["adaprivate-ts", {}, "recommendation"]': 7},
    ],
)
def test_audits_of_other_agents_and_broken_ones_are_refused(
    archive: Path, board: Path, tmp_path: Path, audits: dict[str, Any]
) -> None:
    with pytest.raises(ResultError, match="damaged"):
        import_submission(
            altered(archive, tmp_path / "x.zip", lambda r, i: i.update(audits=audits)), board
        )
    assert ResultDirectory.open(board).manifest["stated"] == {}


def test_labels_of_two_agents_are_not_mixed(tmp_path: Path) -> None:
    text = TEXT.replace("[random]", "[{name: random, label: L, tasks: [prices]}, "
                        "{name: lin-ucb, label: L}]")  # fmt: skip
    folder = run(tmp_path / "out", ["L"], text)
    with pytest.raises(ParameterError, match="several agents"):
        submit(folder, "L", tmp_path / "x.zip")
