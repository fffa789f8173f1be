"""Results of one agent as a zip archive that others can add to theirs.

An archive holds ``submission.json`` (what the manifest says of the agent's cells, its source,
its audits) and ``result.parquet`` (their numbers). Numbers are never taken on trust: what was
imported is marked as stated by its sender until ``dpb verify`` has computed it again.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import tempfile
import zipfile
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from dpb_gym.errors import DPBError, ParameterError, ResultError, unknown_name
from dpb_gym.evaluation import manifest as origin
from dpb_gym.evaluation import stored
from dpb_gym.evaluation.audits import audit_key, leaderboard_audit
from dpb_gym.evaluation.metrics import LARGEST
from dpb_gym.evaluation.outcome import COMPUTED, CellResult, stated_by
from dpb_gym.evaluation.places import TABLE
from dpb_gym.evaluation.plan import blocks
from dpb_gym.evaluation.schema import printable
from dpb_gym.evaluation.series import read_guarantee
from dpb_gym.evaluation.sources import source_reference
from dpb_gym.evaluation.spec import ALGORITHM_VERSION, AgentRun, Cell
from dpb_gym.evaluation.store import Store
from dpb_gym.evaluation.suite import Suite, parse_suite, resolve_checkpoints
from dpb_gym.evaluation.table import from_rows, read_table, table_bytes, to_rows
from dpb_gym.files import write_file

SUBMISSION_VERSION = 2
SUBMISSION = "submission.json"
MEMBERS = {SUBMISSION: 1 << 22, TABLE: 1 << 28}
"""What an archive holds, and the most bytes of each, unpacked."""


@dataclass(frozen=True)
class Submission:
    """An archive that was read and found sound.

    Attributes:
        info: Content of its ``submission.json``.
        suite: The suite that it belongs to.
        results: Its cells, stated by its sender.
        audits: Audit reports by `dpb_gym.evaluation.audits.audit_key`.
    """

    info: Mapping[str, Any]
    suite: Suite
    results: Sequence[CellResult]
    audits: Mapping[str, Mapping[str, Any]]


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
        Content of its ``submission.json``, with ``summary``: guarantee and replicates per row.

    Raises:
        UnknownNameError: If the directory holds no results of the agent, or it is not
            registered here.
        AgentError: If others could not import the agent's code.
        ResultError: If something is damaged or was computed by other code than is installed, or
            the archive cannot be written.
    """
    target = _zip(out)
    store = Store.open(directory)
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
    table = table_bytes(chosen)
    info = {
        "submission": SUBMISSION_VERSION,
        "sender": printable(sender or source["package"] or source["name"]),
        "created": origin.now(),
        "suite": store.suite.name,
        "protocol": store.suite.protocol,
        "suite_text": store.manifest["suite_text"],
        "algorithm": ALGORITHM_VERSION,
        "agent": source,
        **origin.origin(),
        "audits": {
            key: report
            for key, report in store.manifest["audits"].items()
            if json.loads(key)[0] == source["name"]
        },
        "rows": to_rows(chosen),
        "table": hashlib.sha256(table).hexdigest(),
    }
    text = json.dumps(info, indent=1, allow_nan=False) + "\n"
    content = pack({SUBMISSION: text.encode(), TABLE: table})
    # Whoever imports it reads exactly this: better to stumble here than there.
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder) / target.name
        copy.write_bytes(content)
        read_submission(copy)
    write_file(target, content)
    return {**info, "summary": _summary(store.suite, chosen)}


def read_submission(path: str | os.PathLike[str]) -> Submission:
    """Reads an archive and checks all of it.

    Raises:
        ResultError: If it is damaged, altered, holds other files than a submission does, or
            results that do not belong to the suite that it names.
    """
    file = Path(path)
    members = unpack(file, MEMBERS)
    try:
        content = members[SUBMISSION]
        info = stored.read(content, stored.SUBMISSION, "submission", SUBMISSION_VERSION)
        suite = parse_suite(info["suite_text"], f"{file}: suite_text")
        agent = info["agent"]["name"], info["agent"]["entry_point"]
        provenance = stated_by(printable(info["sender"]))
        entries = [replace(e, provenance=provenance) for e in from_rows(info["rows"])]
        audits = {key: _audit(key, report, agent[0]) for key, report in info["audits"].items()}
    except ResultError:
        raise
    except (KeyError, TypeError, ValueError, RecursionError, DPBError) as error:
        said = f"{SUBMISSION} is damaged or of another version ({error!s:.500})"
        raise ResultError(f"{file}: {said}") from error
    if (info["suite"], info["protocol"]) != (suite.name, suite.protocol):
        raise ResultError(f"{file}: {SUBMISSION} names another suite than it holds")
    if hashlib.sha256(members[TABLE]).hexdigest() != info["table"]:
        raise ResultError(f"{file}: {TABLE} does not have the hash that {SUBMISSION} states")
    if not entries:
        raise ResultError(f"{file}: holds no results")
    for entry in entries:
        check_cell(entry.cell, suite, str(file))
        check_block(entry.cell, suite, str(file))
        run = entry.cell.agent
        if (run.name, run.entry_point) != agent:
            raise ResultError(
                f"{file}: {entry.cell} belongs to agent {run.name!r:.100}, not {agent[0]!r:.100}"
            )
    results, damaged = read_table(members[TABLE], f"{file}: {TABLE}", entries, spare=0)
    if damaged:
        raise damaged[0]
    for result in results:
        _check_numbers(file, result)
    return Submission(info, suite, results, audits)


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


def _check_numbers(file: Path, result: CellResult) -> None:
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
    found: dict[tuple[str, str, str], dict[str, Any]] = {}
    for result in results:
        task, label, budget = result.cell.row
        row = {"task": task, "agent": label, "budget": budget, "guarantee": result.guarantee}
        of = suite.task(task).replicates or suite.replicates
        known = found.setdefault(result.cell.row, {**row, "replicates": 0, "of": of})
        known["replicates"] += len(result.cell.replicates)
    return list(found.values())


def _audit(key: str, report: Any, agent: str) -> Mapping[str, Any]:
    """An audit must speak of the submission's own agent, and be one that the page can show."""
    name, params, kind = json.loads(key)
    run = AgentRun(label=name, name=name, entry_point=name, params=params)
    if name != agent or key != audit_key(run, kind):
        raise ValueError(f"an audit speaks of {name!r}, which is not the agent")
    leaderboard_audit(report, strict=True)
    return dict(report)


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


def unpack(path: Path, sizes: Mapping[str, int]) -> dict[str, bytes]:
    """Reads an archive into memory; nothing is written anywhere.

    Args:
        path: The archive.
        sizes: The names that it must hold, each once, and no other; the bytes that each may have.

    Raises:
        ResultError: If it cannot be read, is damaged, too large, or holds anything else.
    """
    try:
        if not _zip(path).is_file():
            raise ResultError(f"{path}: no such file")
        with zipfile.ZipFile(path) as zipped:
            found = sorted(zipped.namelist())
            if found != sorted(sizes):
                raise ResultError(
                    f"{path}: refused: a submission holds {' and '.join(sizes)} and nothing "
                    f"else; this holds {', '.join(map(repr, found[:5])) or 'nothing':.200}"
                )
            members = {}
            for name, most in sizes.items():
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
