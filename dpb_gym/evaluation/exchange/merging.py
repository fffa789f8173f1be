"""Adds submissions to a result directory: all of one or nothing."""

from __future__ import annotations

import contextlib
import hashlib
import os
import shutil
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dpb_gym.errors import ResultError
from dpb_gym.evaluation.audits import FILE as AUDITS
from dpb_gym.evaluation.audits import read_audits
from dpb_gym.evaluation.exchange.submission import Submission, check_suite, read_submission
from dpb_gym.evaluation.filesystem import make_folder, unwritable, write_file, write_json
from dpb_gym.evaluation.manifest import command_line
from dpb_gym.evaluation.shards import read_shard
from dpb_gym.evaluation.spec import ALGORITHM_VERSION, Cell
from dpb_gym.evaluation.store import Store

INCOMING = ".incoming-"


@dataclass(frozen=True)
class Merge:
    """What an import did.

    Attributes:
        path: The result directory.
        agent: Name of the agent.
        labels: Labels that the leaderboard shows.
        added: Cells that are new.
        present: Cells that were there already, number for number.
        differences: Package versions of the submission that are others here, in words.
    """

    path: Path
    agent: str
    labels: tuple[str, ...]
    added: int
    present: int
    differences: tuple[str, ...]


def import_submission(archive: str | os.PathLike[str], directory: str | os.PathLike[str]) -> Merge:
    """Adds the results of an archive to a result directory.

    Everything is checked before anything is written, new files are written beside the results
    and then moved in, and a move that fails is undone. An import that was killed is completed
    by running it again. What the directory held stays as it is, byte for byte.

    Args:
        archive: What `submit` wrote.
        directory: A result directory of the same suite; made if there is none.

    Raises:
        ResultError: If the archive is damaged or altered; if suite, algorithm version, tasks or
            data are others than those of the directory; if it would replace a row; if all of it
            is there already; or if the directory is in use or cannot be written.
    """
    file = Path(archive)
    submission = read_submission(file)
    check_suite(submission.suite, str(file))
    if submission.info.get("algorithm") != ALGORITHM_VERSION:
        raise ResultError(
            f"{file}: was computed by algorithm version {submission.info.get('algorithm')!r}; "
            f"this is {ALGORITHM_VERSION}, so its numbers cannot be compared or verified"
        )
    store = Store.create(directory, submission.suite, submission.info["suite_text"])
    if (store.path / "manifest.json").exists():
        # The directory's own text stays: it may list other agents than the submission's.
        store = Store.open(directory)
    # Recorded before the first file moves, so that a killed import is known too.
    run: dict[str, Any] = {
        "command": command_line(),
        "agents": list(submission.info["labels"]),
        "imported": {
            "sha256": hashlib.sha256(file.read_bytes()).hexdigest(),
            **{
                key: submission.info.get(key)
                for key in ("agent", "labels", "created", "versions", "revision", "machine")
            },
            "shards": {
                name: hashlib.sha256(content).hexdigest()
                for name, content in sorted(submission.shards.items())
            },
        },
    }
    _new_cells(store, submission, file)
    with store.writing(run) as record:
        _remove_leftovers(store.path)
        new = _new_cells(store, submission, file)
        _move_in(store.path, new, submission)
        audits = read_audits(store.path)
        merged = {**submission.audits, **audits}
        if merged != audits:
            write_json(store.path / AUDITS, merged)
    return Merge(
        store.path,
        str(submission.info["agent"]["name"]),
        tuple(submission.info["labels"]),
        len(new),
        len(submission.shards) - len(new),
        _differences(submission.info.get("versions"), record["versions"]),
    )


def _new_cells(store: Store, submission: Submission, file: Path) -> dict[str, bytes]:
    """The shards that are not there yet, after looking for anything that contradicts."""
    rows: dict[tuple[str, str, str], Any] = {}
    owners: dict[str, tuple[str, str]] = {}
    data: dict[str, Any] = {}
    present: dict[str, str] = {}
    for path in store.shard_files():
        try:
            result = read_shard(path)
        except ResultError as error:
            raise ResultError(f"{error}; run the suite again before importing") from error
        cell = result.cell
        rows[cell.row] = cell
        owners[cell.agent.label] = _owner(cell)
        data[cell.task.name] = cell.data
        present[path.relative_to(store.path / "shards").as_posix()] = result.digest
    new = {}
    for name, result in submission.results.items():
        cell = result.cell
        if name in present:
            if present[name] != result.digest:
                raise ResultError(
                    f"{file}: {cell} is in {store.path} already with other numbers: dpb verify "
                    "tells which are right; nothing was imported"
                )
            continue
        owner = owners.get(cell.agent.label, _owner(cell))
        if owner != _owner(cell):
            raise ResultError(
                f"{file}: the label {cell.agent.label!r} belongs to agent {owner[0]!r} "
                f"({owner[1]}) in {store.path}: submit under another label; nothing was imported"
            )
        old = rows.get(cell.row)
        if old is not None and old.identity != cell.identity:
            changed = [k for k in old.identity if old.identity[k] != cell.identity[k]]
            raise ResultError(
                f"{file}: {store.path} holds a row {cell.agent.title!r} on "
                f"{cell.task.name!r} already, with another {', '.join(changed)}: submit under "
                "another label; nothing was imported"
            )
        if data.get(cell.task.name, cell.data) != cell.data:
            raise ResultError(
                f"{file}: {cell} was computed on other data than the results in {store.path}; "
                "nothing was imported"
            )
        new[name] = submission.shards[name]
    if not new:
        raise ResultError(
            f"{file}: all {len(submission.shards)} cells are in {store.path} already; nothing "
            "was imported"
        )
    return new


def _owner(cell: Cell) -> tuple[str, str]:
    return cell.agent.name, cell.agent.entry_point


def _move_in(folder: Path, new: Mapping[str, bytes], submission: Submission) -> None:
    """Writes files into a folder of their own, then renames them into place."""
    staging = folder / f"{INCOMING}{uuid.uuid4().hex[:12]}"
    # Timings first: a shard without one has no speed, a timing without a shard is not read.
    moves = [
        (f"timings/{name.removesuffix('.parquet')}.json", submission.timings[name])
        for name in new
        if name in submission.timings
    ]
    moves += [(f"shards/{name}", content) for name, content in new.items()]
    done: list[Path] = []
    try:
        for name, content in moves:
            write_file(staging / name, content)
        for name, _ in moves:
            target = folder / name
            make_folder(target.parent)
            if target.exists():
                continue
            try:
                os.rename(staging / name, target)
            except OSError as error:
                raise unwritable(target, error) from error
            done.append(target)
    except BaseException:
        for target in done:
            with contextlib.suppress(OSError):
                target.unlink()
        raise
    finally:
        shutil.rmtree(staging, ignore_errors=True)


def _remove_leftovers(folder: Path) -> None:
    """Removes what an import that was killed had not moved in."""
    for path in folder.glob(f"{INCOMING}*"):
        shutil.rmtree(path, ignore_errors=True)


def _differences(theirs: Any, ours: Mapping[str, str]) -> tuple[str, ...]:
    if not isinstance(theirs, dict):
        return ()
    return tuple(
        f"{name} {theirs[name]} there, {version} here"
        for name, version in ours.items()
        if name in theirs and theirs[name] != version
    )


def imported_shards(manifest: Mapping[str, Any]) -> dict[str, tuple[str, bool]]:
    """What imports brought, by path below ``shards/``: its hash, and whether it must be there."""
    found: dict[str, tuple[str, bool]] = {}
    for run in manifest["runs"]:
        whole = run.get("status") == "finished"
        for name, digest in (run.get("imported") or {}).get("shards", {}).items():
            found[name] = digest, whole or found.get(name, ("", False))[1]
    return found
