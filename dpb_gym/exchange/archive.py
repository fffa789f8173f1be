"""Results of one agent as a zip archive that others can add to theirs.

An archive is a result directory: ``manifest.json``, which says under ``submitted`` who states the
results and where the agent's code is from, and ``result.parquet``. Numbers are never taken on
trust: what was imported is marked as stated by its sender until ``dpb verify`` has computed it
again.
"""

from __future__ import annotations

import io
import json
import os
import zipfile
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from dpb_gym.errors import DPBError, ParameterError, ResultError, unknown_name
from dpb_gym.files import write_file
from dpb_gym.results.cell_result import COMPUTED, CellResult, stated_by
from dpb_gym.results.metrics import LARGEST
from dpb_gym.results.result_directory import ResultDirectory
from dpb_gym.results.row_audits import audit_key, leaderboard_audit
from dpb_gym.results.row_result import by_row, read_guarantee
from dpb_gym.results.storage import MANIFEST, TABLE, Storage
from dpb_gym.running.plan import blocks
from dpb_gym.suites import provenance as origin
from dpb_gym.suites.code_digest import source_reference
from dpb_gym.suites.schema import printable
from dpb_gym.suites.spec import ALGORITHM_VERSION, AgentRun, Cell
from dpb_gym.suites.suite import Suite, resolve_checkpoints

MEMBERS = {MANIFEST: 1 << 22, TABLE: 1 << 28}
"""What an archive holds, and the most bytes of each, unpacked."""


class Archive(Storage):
    """The members of an archive, in memory."""

    mend = "ask who sent it for another"

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
    """Writes an archive with all results of one agent that were computed here.

    Args:
        directory: A result directory.
        agent: The agent's registered name or its label.
        out: The archive, ``.zip``.
        sender: Who states them; the agent's package by default.

    Returns:
        What its manifest says of sender, agent and suite, with ``summary``: guarantee and
        replicates per row.

    Raises:
        UnknownNameError: If the directory holds no results of the agent, or it is not
            registered here.
        AgentError: If others could not import the agent's code.
        ResultError: If something is damaged or was computed by other code than is installed, or
            the archive cannot be written.
    """
    archive = Archive(_zip(out), {})
    store = ResultDirectory.open(directory)
    results = store.results()
    chosen = [r for r in results if agent in (r.cell.agent.name, r.cell.agent.label)]
    if not chosen:
        known = {n for r in results for n in (r.cell.agent.name, r.cell.agent.label)}
        raise unknown_name(f"agent in {store.path}", agent, known)
    owners = {result.cell.agent.name for result in chosen}
    if len(owners) > 1:
        raise ParameterError(f"{agent!r} is the label of several agents: {', '.join(owners)}")
    source = source_reference(owners.pop())
    for result in chosen:
        check_cell(result.cell, store.suite, str(store.path))
        _check_code(result, source)
    told = {
        "sender": printable(sender or source["package"] or source["name"]),
        "created": origin.now(),
        "agent": source,
        **origin.origin(),
    }
    audits = store.manifest["audits"].items()
    head = {
        **store.manifest,
        "runs": [],
        "stated": {},
        "audits": {k: report for k, report in audits if json.loads(k)[0] == source["name"]},
    }
    ResultDirectory(archive, store.suite, {**head, "submitted": told}).replace(chosen)
    # Whoever imports it reads exactly this: better to stumble here than there.
    _checked(archive)
    write_file(Path(out), pack(archive.members))
    return {**head, **told, "summary": _summary(store.suite, chosen)}


def read_submission(path: str | os.PathLike[str]) -> ResultDirectory:
    """Reads an archive and checks all of it.

    Returns:
        Its results, stated by its sender; ``manifest["submitted"]`` says who that is.

    Raises:
        ResultError: If it is damaged, altered, holds other files than a submission does, or
            results that do not belong to the suite that it names.
    """
    return _checked(Archive(Path(path), unpack(Path(path))))


def _checked(archive: Archive) -> ResultDirectory:
    store, file = ResultDirectory.open(archive), str(archive)
    try:
        told = store.manifest["submitted"]
        agent = told["agent"]["name"], told["agent"]["entry_point"]
        provenance = stated_by(printable(told["sender"]))
        for key, report in store.manifest["audits"].items():
            _check_audit(key, report, agent[0])
    except (KeyError, TypeError, ValueError, RecursionError, DPBError) as error:
        said = f"is damaged, or of no submission ({error!s:.500})"
        raise ResultError(f"{archive.at(MANIFEST)} {said}") from error
    store.entries = {k: replace(e, provenance=provenance) for k, e in store.entries.items()}
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
    """Checks that a cell says exactly what its suite says.

    Raises:
        ResultError: If its suite, task, seed or checkpoints are others.
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


def check_block(cell: Cell, suite: Suite, where: str) -> None:
    """Checks that a cell holds one of the suite's own blocks: nobody chooses the seeds.

    Raises:
        ResultError: If it does not.
    """
    allowed = blocks(suite, suite.task(cell.task.name))
    if cell.replicates not in allowed:
        said = ", ".join(f"{b.start}-{b.stop - 1}" for b in allowed[:6])
        raise ResultError(
            f"{where}: {cell}: suite {suite.name!r} prescribes the replicates {said}"
            f"{', ...' if len(allowed) > 6 else ''}, and no others are taken"
        )


def _check_numbers(file: str, result: CellResult) -> None:
    """Finite rewards, pseudo-regret that never falls, and a guarantee that can be shown."""
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
    """Guarantee and number of replicates by task, label and budget."""
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
    """An audit must speak of the submission's own agent, and be one that the page can show."""
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
    """Returns a zip archive of `members`; the same members give the same bytes."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as zipped:
        for name in sorted(members):
            info = zipfile.ZipInfo(name)
            info.compress_type = zipfile.ZIP_DEFLATED
            info.external_attr = 0o100644 << 16
            zipped.writestr(info, members[name])
    return buffer.getvalue()


def unpack(path: Path) -> dict[str, bytes]:
    """Reads the `MEMBERS` of an archive into memory; nothing is written anywhere.

    Raises:
        ResultError: If it cannot be read, is damaged, too large, or holds anything else, or one of
            them twice.
    """
    try:
        if not _zip(path).is_file():
            raise ResultError(f"{path}: no such file")
        with zipfile.ZipFile(path) as zipped:
            found = sorted(zipped.namelist())
            if found != sorted(MEMBERS):
                raise ResultError(
                    f"{path}: refused: a submission holds {' and '.join(MEMBERS)} and nothing "
                    f"else; this holds {', '.join(map(repr, found[:5])) or 'nothing':.200}"
                )
            members = {}
            for name, most in MEMBERS.items():
                with zipped.open(name) as content:
                    # What the directory says of the size need not be true.
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
