"""Results of one agent as a zip archive that can be imported into other result directories.

An archive is a result directory: ``result.parquet`` and ``manifest.json``, whose key ``submitted``
names the sender and the origin of the agent's code. Imported numbers are marked as stated by their
sender until ``dpb verify`` has recomputed them.
"""

from __future__ import annotations

import io
import json
import os
import zipfile
import zlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from dpb_gym.audits.audit_records import audit_key
from dpb_gym.errors import DPBError, ParameterError, ResultError
from dpb_gym.files import write_file
from dpb_gym.results.cell_result import COMPUTED, CellResult
from dpb_gym.results.metrics import LARGEST
from dpb_gym.results.result_directory import ResultDirectory
from dpb_gym.results.row_audits import leaderboard_audit
from dpb_gym.results.row_result import by_row, of_agent, read_guarantee
from dpb_gym.results.storage import MANIFEST, TABLE, Storage
from dpb_gym.running.plan import blocks
from dpb_gym.suites import provenance
from dpb_gym.suites.code_digest import source_reference
from dpb_gym.suites.schema import printable
from dpb_gym.suites.spec import ALGORITHM_VERSION, AgentRun, Cell, Task
from dpb_gym.suites.suite import Suite, resolve_checkpoints

MEMBERS = {MANIFEST: 1 << 22, TABLE: 1 << 28}
"""Members of an archive, with the largest unpacked size of each in bytes."""


class Archive(Storage):
    """The members of an archive, in memory."""

    repair = "ask who sent it for another"

    def __init__(self, path: Path, members: dict[str, bytes]) -> None:
        super().__init__(path)
        self.members = members

    def at(self, name: str) -> str:
        return f"{self.path}: {name}"

    def names(self) -> list[str]:
        return list(self.members)

    def cells(self) -> list[str]:
        return []

    def read(self, name: str, most: int) -> bytes:
        return self.members[name]

    def write(self, name: str, content: bytes) -> None:
        self.members[name] = content


def submit(
    directory: str | os.PathLike[str],
    agent: str,
    out: str | os.PathLike[str],
    sender: str | None = None,
) -> dict[str, Any]:
    """Write an archive with all results of one agent that were computed here.

    Args:
        directory: A result directory.
        agent: The agent's registered name or its label.
        out: The archive, ``.zip``.
        sender: Name of the sender; the agent's package by default.

    Returns:
        Sender, agent and suite as in the manifest, with ``summary``: guarantee and replicates
        per row.

    Raises:
        UnknownNameError: If the directory has no results of the agent, or the agent is not
            registered.
        AgentError: If the agent's code cannot be imported by other processes.
        ResultError: If a result is damaged or was computed by other code than the installed
            one, or the archive cannot be written.
    """
    archive = Archive(_zip(out), {})
    store = ResultDirectory.open(directory)
    chosen = of_agent(store.results(), agent, f"agent in {store.path}")
    owners = {result.cell.agent.name for result in chosen}
    if len(owners) > 1:
        raise ParameterError(f"{agent!r} is the label of several agents: {', '.join(owners)}")
    source = source_reference(owners.pop())
    for result in chosen:
        check_cell(result.cell, store.suite, str(store.path))
        _check_code(result, source)
    submitted = {
        "sender": printable(sender or source["package"] or source["name"]),
        "created": provenance.now(),
        "agent": source,
        **provenance.origin(),
    }
    audits = store.manifest["audits"].items()
    head = {
        **store.manifest,
        "runs": [],
        "stated": {},
        "audits": {k: report for k, report in audits if json.loads(k)[0] == source["name"]},
    }
    ResultDirectory(archive, store.suite, {**head, "submitted": submitted}).replace(chosen)
    # Read it back as an import does, so that an invalid archive fails here.
    _checked(archive)
    write_file(Path(out), pack(archive.members))
    return {**head, **submitted, "summary": _summary(store.suite, chosen)}


def read_submission(path: str | os.PathLike[str]) -> ResultDirectory:
    """Read an archive and check all of it.

    Returns:
        Its results, marked as stated by the sender in ``manifest["submitted"]``.

    Raises:
        ResultError: If it is damaged or altered, contains other files, or contains results that
            do not belong to the suite that it names.
    """
    return _checked(Archive(Path(path), unpack(Path(path))))


def _checked(archive: Archive) -> ResultDirectory:
    store, file = ResultDirectory.open(archive), str(archive)
    try:
        submitted = store.manifest["submitted"]
        agent = submitted["agent"]["name"], submitted["agent"]["entry_point"]
        stated = f"stated by {printable(submitted['sender'])}"
        for key, report in store.manifest["audits"].items():
            _check_audit(key, report, agent[0])
    except (KeyError, TypeError, ValueError, RecursionError, DPBError) as error:
        said = f"is damaged, or of no submission ({error!s:.500})"
        raise ResultError(f"{archive.at(MANIFEST)} {said}") from error
    store.entries = {k: replace(e, provenance=stated) for k, e in store.entries.items()}
    if not store.entries:
        raise ResultError(f"{file}: holds no results")
    for entry in store.entries.values():
        check_cell(entry.cell, store.suite, file)
        check_block(entry.cell, store.suite, file)
        run = entry.cell.agent
        if (run.name, run.entry_point) != agent:
            raise ResultError(
                f"{file}: {entry.cell} belongs to agent {run.name!r:.100}, not {agent[0]!r:.100}"
            )
    results, damaged = store.check()
    if damaged:
        raise damaged[0]
    for result in results:
        _check_numbers(file, result)
    return store


def check_cell(cell: Cell, suite: Suite, where: str) -> None:
    """Check that a cell agrees with its suite.

    Raises:
        ResultError: If its suite, task, seed or checkpoints differ.
    """
    task = next((task for task in suite.tasks if task.name == cell.task.name), None)
    if (cell.suite, cell.protocol) != (suite.name, suite.protocol):
        wrong = (
            f"belongs to suite {cell.suite!r} (protocol {cell.protocol[:8]}), not to "
            f"{suite.name!r} (protocol {suite.protocol[:8]})"
        )
    elif task is None or cell.task.identity != task.identity:
        wrong = f"was computed on another environment than suite {suite.name!r} has"
    elif (cell.seed, cell.checkpoints) != (
        suite.seed, resolve_checkpoints(suite.checkpoints, task.horizon)
    ):  # fmt: skip
        wrong = f"has other seeds or checkpoints than suite {suite.name!r}"
    else:
        return
    raise ResultError(f"{where}: {cell} {wrong}")


def unfit_for_submission(suite: Suite, tasks: Iterable[Task], replicates: int | None) -> str:
    """Return why results of a suite with another number of replicates cannot be submitted.

    Empty if they can, because the number only adds to whole blocks of each task.
    """
    if replicates is None:
        return ""
    for task in tasks:
        allowed = blocks(suite, task)
        if any(block not in allowed for block in blocks(suite, task, replicates)):
            return (
                f"with {replicates} replicates the results cannot be submitted (dpb submit): suite "
                f"{suite.name!r} prescribes {allowed[-1].stop} on {task.name}"
            )
    return ""


def check_block(cell: Cell, suite: Suite, where: str) -> None:
    """Check that a cell holds one of the suite's blocks, so that seeds cannot be chosen.

    Raises:
        ResultError: If it holds other replicates.
    """
    allowed = blocks(suite, suite.task(cell.task.name))
    if cell.replicates not in allowed:
        said = ", ".join(f"{b.start}-{b.stop - 1}" for b in allowed[:6])
        raise ResultError(
            f"{where}: {cell}: suite {suite.name!r} prescribes the replicates {said}"
            f"{', ...' if len(allowed) > 6 else ''}, and no others are taken"
        )


def _check_numbers(file: str, result: CellResult) -> None:
    """Check for finite rewards, nondecreasing pseudo-regret and a readable guarantee."""
    regret = result.regret
    sound = all((np.abs(values) <= LARGEST).all() for values in (regret, result.reward))
    if not sound or (regret < 0).any() or (np.diff(regret, axis=1) < 0).any():
        raise ResultError(f"{file}: {result.cell}: its regret falls, or is no finite number")
    try:
        if result.guarantee is not None:
            read_guarantee(result.guarantee).describe()
    except (DPBError, ArithmeticError, TypeError, ValueError) as error:
        raise ResultError(
            f"{file}: {result.cell}: its guarantee is damaged ({error!r:.300})"
        ) from error


def _check_code(result: CellResult, source: Mapping[str, Any]) -> None:
    cell = result.cell
    if result.provenance != COMPUTED:
        raise ResultError(f"{cell} is {result.provenance}: submit what was computed here")
    other = [key for key in ("entry_point", "source") if getattr(cell.agent, key) != source[key]]
    if cell.algorithm != ALGORITHM_VERSION:
        wrong = f"by algorithm version {cell.algorithm}; this is {ALGORITHM_VERSION}"
    elif other:
        wrong = f"with another {other[0].replace('_', ' ')} of the agent than is here"
    else:
        return
    raise ResultError(f"{cell} was computed {wrong}: run the suite again")


def _summary(suite: Suite, results: Sequence[CellResult]) -> list[dict[str, Any]]:
    """Return guarantee and number of replicates by task, label and budget."""
    return [
        {
            **dict(zip(("task", "agent", "budget"), row)),
            "guarantee": blocks[0].guarantee,
            "replicates": sum(len(block.cell.replicates) for block in blocks),
            "of": suite.task(row[0]).replicates or suite.replicates,
        }
        for row, blocks in by_row(results).items()
    ]


def _check_audit(key: str, report: Any, agent: str) -> None:
    """Check that an audit is about the submitted agent and can be shown on the page."""
    name, params, kind = json.loads(key)
    run = AgentRun(label=name, name=name, entry_point=name, params=params)
    if name != agent or key != audit_key(run, kind):
        raise ValueError(f"an audit speaks of {name!r}, which is not the agent")
    leaderboard_audit(report, strict=True)


def _zip(path: str | os.PathLike[str]) -> Path:
    if Path(path).suffix.lower() != ".zip":
        raise ResultError(f"{path}: a submission is a .zip archive")
    return Path(path)


def pack(members: Mapping[str, bytes]) -> bytes:
    """Return a zip archive of `members`; equal members give equal bytes."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as zipped:
        for name in sorted(members):
            info = zipfile.ZipInfo(name)
            info.compress_type = zipfile.ZIP_DEFLATED
            info.external_attr = 0o100644 << 16
            zipped.writestr(info, members[name])
    return buffer.getvalue()


def unpack(path: Path) -> dict[str, bytes]:
    """Read the `MEMBERS` of an archive into memory, without writing a file.

    Raises:
        ResultError: If it cannot be read, is damaged or too large, or contains other or repeated
            members.
    """
    try:
        if not _zip(path).is_file():
            raise ResultError(f"{path}: no such file")
        with zipfile.ZipFile(path) as zipped:
            names = sorted(zipped.namelist())
            if names != sorted(MEMBERS):
                raise ResultError(
                    f"{path}: refused: a submission holds {' and '.join(MEMBERS)} and nothing "
                    f"else; this holds {', '.join(map(repr, names[:5])) or 'nothing':.200}"
                )
            members = {}
            for name, most in MEMBERS.items():
                with zipped.open(name) as content:
                    # The size in the archive's directory may be wrong.
                    members[name] = content.read(most + 1)
                if len(members[name]) > most:
                    raise ResultError(
                        f"{path}: refused: {name} is over {most >> 10:,} KiB unpacked"
                    )
            return members
    except ResultError:
        raise
    except OSError as error:
        raise ResultError(f"{path}: cannot read the archive: {error.strerror}") from error
    except (EOFError, zlib.error, zipfile.BadZipFile, NotImplementedError, RuntimeError,
            ValueError, OverflowError) as error:  # fmt: skip
        raise ResultError(
            f"{path}: damaged, or no archive: {str(error) or 'cut off':.300}"
        ) from error
