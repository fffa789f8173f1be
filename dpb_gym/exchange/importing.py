"""Import of archives into a result directory, and removal of imported results."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

from dpb_gym.errors import DPBError, ResultError
from dpb_gym.exchange.archive import check_block, read_submission
from dpb_gym.report.page import render
from dpb_gym.results.cell_result import COMPUTED, CellResult
from dpb_gym.results.leaderboard import SET_ASIDE
from dpb_gym.results.result import Result
from dpb_gym.results.result_directory import ResultDirectory
from dpb_gym.results.row_result import of_agent
from dpb_gym.suites import provenance
from dpb_gym.suites.spec import ALGORITHM_VERSION
from dpb_gym.suites.suite import load_suite, suite_names


@dataclass(frozen=True)
class Merge:
    """Summary of an import.

    Attributes:
        path: The result directory.
        agent: Name of the agent.
        labels: Labels that the leaderboard shows.
        sender: Name of the sender.
        added: Number of new cells.
        present: Number of cells that the directory already had, with equal numbers.
        differences: Package versions that differ from the installed ones, as text.
    """

    path: Path | str
    agent: str
    labels: tuple[str, ...]
    sender: str
    added: int
    present: int
    differences: tuple[str, ...]


def import_submission(archive: str | os.PathLike[str], directory: str | os.PathLike[str]) -> Merge:
    """Add the results of an archive to a result directory.

    Everything is checked before anything is written, and one rename of the manifest commits
    all of it: an import that fails or is killed leaves the directory as it was.

    Args:
        archive: Archive written by `submit`.
        directory: A result directory of the same suite; created if it does not exist.

    Raises:
        ResultError: If the archive is damaged or altered; if suite, algorithm version, tasks,
            replicates or data differ from those of the directory; if it would replace a row; if
            the directory has all of it already, is in use or cannot be written.
    """
    file = Path(archive)
    theirs = read_submission(file)
    info, suite, results = theirs.manifest["submitted"], theirs.suite, theirs.results()
    own = load_suite(suite.name) if suite.name in suite_names() else suite
    if own.protocol != suite.protocol:
        raise ResultError(
            f"{file}: its suite {suite.name!r} (protocol {suite.protocol[:8]}) is not the one of "
            f"this package (protocol {own.protocol[:8]}): other tasks, seeds or checkpoints"
        )
    if other := {result.cell.algorithm for result in results} - {ALGORITHM_VERSION}:
        raise ResultError(
            f"{file}: was computed by algorithm version {other.pop()}; "
            f"this is {ALGORITHM_VERSION}, so its numbers cannot be compared or verified"
        )
    with ResultDirectory.writing(directory, suite) as store:
        new = _new_cells(store, results, file)
        labels = tuple(sorted({result.cell.agent.label for result in results}))
        store.manifest["runs"].append(
            {
                "command": provenance.command_line(),
                "agents": list(labels),
                "status": "finished",
                "ended": provenance.now(),
                "imported": {"sha256": hashlib.sha256(file.read_bytes()).hexdigest(), **info},
            }
        )
        audits = theirs.manifest["audits"]
        _trial(store, new, audits, file)
        for key, report in audits.items():
            store.manifest["stated"][key] = {**report, "by": results[0].provenance}
        store.add(new)
    there, here = info["versions"], provenance.versions()
    return Merge(
        store.path,
        str(info["agent"]["name"]),
        labels,
        str(info["sender"]),
        len(new),
        len(results) - len(new),
        tuple(
            f"{name} {there[name]} there, {version} here"
            for name, version in here.items()
            if there.get(name, version) != version
        ),
    )


def remove_submission(directory: str | os.PathLike[str], agent: str) -> int:
    """Remove all imported results of an agent from a result directory.

    Args:
        directory: A result directory.
        agent: The agent's label or name.

    Returns:
        Number of removed cells. Results computed in this directory stay.

    Raises:
        UnknownNameError: If nothing was imported for the agent.
        ResultError: If the directory is damaged, in use or cannot be written.
    """
    with ResultDirectory.writing(directory, ResultDirectory.open(directory).suite) as store:
        results = store.check()[0]
        theirs = [r for r in results if r.provenance != COMPUTED]
        gone = of_agent(theirs, agent, f"imported agent in {store.path}")
        keys = {result.cell.key for result in gone}
        rest = [result for result in results if result.cell.key not in keys]
        left = {result.cell.agent.name for result in rest if result.provenance != COMPUTED}
        names = {result.cell.agent.name for result in gone} - left
        stated, runs = store.manifest["stated"], store.manifest["runs"]
        agents = [run.get("imported", {}).get("agent", {}).get("name") for run in runs]
        store.manifest |= {
            "stated": {k: report for k, report in stated.items() if json.loads(k)[0] not in names},
            "runs": [run for run, name in zip(runs, agents) if name not in names],
        }
        store.replace(rest)
    return len(gone)


def _new_cells(
    store: ResultDirectory, theirs: Sequence[CellResult], file: Path
) -> list[CellResult]:
    """Return the results that the directory lacks, after checking that none contradicts it.

    The suite prescribes blocks of replicates and reserves the labels of its agents. The protocol
    does not include agents and numbers of replicates, so they are read from the package's suite.
    """

    def refuse(why: str) -> NoReturn:
        raise ResultError(f"{file}: {why}; nothing was imported")

    sound, problems = store.check()
    if problems:
        raise ResultError(f"{problems[0]}; run the suite again before importing")
    suite = load_suite(store.suite.name) if store.suite.name in suite_names() else store.suite
    reserved = {agent.label.casefold(): agent for agent in suite.agents}
    present = {result.cell.key: result.digest for result in sound}
    rows = {result.cell.row: result.cell for result in sound}
    owners = {cell.agent.label.casefold(): cell.agent for cell in rows.values()}
    data = {cell.task.name: cell.data for cell in rows.values()}
    new = []
    for result in theirs:
        cell, run = result.cell, result.cell.agent
        check_block(cell, suite, str(file))
        own = reserved.get(run.label.casefold())
        other = owners.get(run.label.casefold(), run)
        if own is not None and (own.label, own.name) != (run.label, run.name):
            refuse(
                f"the label {run.label!r} is that of agent {own.name!r} in suite "
                f"{store.suite.name!r}: submit under another label"
            )
        if cell.key in present:
            if present[cell.key] != result.digest:
                refuse(
                    f"{cell} is in {store.path} already with other numbers: dpb verify shows "
                    "which are right"
                )
            continue
        if any(getattr(other, k) != getattr(run, k) for k in ("label", "name", "entry_point")):
            refuse(
                f"the label {run.label!r} belongs to agent {other.name!r} ({other.entry_point}) in "
                f"{store.path}: submit under another label"
            )
        if cell.row in rows:
            old, mine = rows[cell.row].identity, cell.identity
            if changed := [key for key in old if old[key] != mine[key]]:
                refuse(
                    f"{store.path} holds a row {run.title!r} on {cell.task.name!r} already, with "
                    f"another {', '.join(changed)}: submit under another label"
                )
        if data.get(cell.task.name, cell.data) != cell.data:
            refuse(f"{cell} was computed on other data than the results in {store.path}")
        new.append(result)
    if not new:
        refuse(f"all {len(theirs)} cells are in {store.path} already")
    return new


def _trial(
    store: ResultDirectory, new: Sequence[CellResult], audits: Mapping[str, Any], file: Path
) -> None:
    """Render the resulting page once, and reject an archive that makes it fail."""
    try:
        cells = [*store.results(), *new]
        data = Result(store.suite, cells, audits=audits).to_leaderboard()
        render(data)
    except (DPBError, ArithmeticError, LookupError, TypeError, ValueError) as error:
        raise ResultError(f"{file}: refused: no page can be drawn with it: {error}") from error
    for note in data.notes:
        if note.startswith(SET_ASIDE):
            raise ResultError(f"{file}: refused: {note.removeprefix(SET_ASIDE)}")
