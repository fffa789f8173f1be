"""Checks stored results: hashes, and a random sample computed again, bit for bit."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from dpb_gym import validation
from dpb_gym.agent import agent_specs
from dpb_gym.errors import AgentError, DPBError, MissingExtraError, ResultError, unknown_name
from dpb_gym.evaluation.exchange.merging import imported_shards
from dpb_gym.evaluation.exchange.submission import check_cell
from dpb_gym.evaluation.outcome import CellResult, Failure
from dpb_gym.evaluation.runner import run_block
from dpb_gym.evaluation.shards import read_shard
from dpb_gym.evaluation.spec import ALGORITHM_VERSION, FACTORY, Cell, code_hash
from dpb_gym.evaluation.store import Store

OTHER_CODE = " (the agent's code here is not the code that computed it)"


@dataclass
class Verification:
    """What `verify` found.

    Attributes:
        shards: Number of shards.
        damaged: Shards whose content is not what was written or imported, or whose task, seeds
            or checkpoints are not those of the suite.
        again: Cells that were computed again.
        differing: Those whose numbers differ, and where.
        impossible: Cells that could not be computed again, and why.
        unavailable: Cells that others can compute again: their agent or data are not
            installed here. Others were taken in their stead where there were any.
    """

    shards: int = 0
    damaged: list[str] = field(default_factory=list)
    again: list[str] = field(default_factory=list)
    differing: list[str] = field(default_factory=list)
    impossible: list[str] = field(default_factory=list)
    unavailable: list[str] = field(default_factory=list)

    @property
    def ok(self) -> bool:
        """Whether everything that was checked is right, and something could be."""
        checked = bool(self.again) or not self.unavailable
        return checked and not (self.damaged or self.differing or self.impossible)


def verify(
    path: str | os.PathLike[str],
    sample: int = 3,
    seed: int | None = None,
    report: Callable[[str], Any] | None = None,
    agent: str | None = None,
) -> Verification:
    """Checks every shard and computes a random sample of cells again.

    Imported results are checked like any others, and against the hashes of their archive.

    Args:
        path: A result directory.
        sample: Cells to compute again, at least 0; all if there are fewer.
        seed: Chooses the sample; a fresh one each time by default.
        agent: Takes the sample from this agent's cells only, by label or name.
        report: Called with a line about each cell before it is computed.

    Raises:
        ResultError: If there is no result directory, or it holds no results.
    """
    sample = validation.integer("sample", sample, 0)
    store = Store.open(path)
    found = Verification()
    sound: list[CellResult] = []
    imported = imported_shards(store.manifest)
    for file in store.shard_files():
        found.shards += 1
        name = file.relative_to(store.path / "shards").as_posix()
        digest, _ = imported.pop(name, ("", False))
        try:
            result = read_shard(file)
            check_cell(result.cell, store.suite, str(file))
            if digest and hashlib.sha256(file.read_bytes()).hexdigest() != digest:
                raise ResultError(f"{file}: is not the shard that was imported")
            sound.append(result)
        except ResultError as error:
            found.damaged.append(str(error))
    for name, (_, needed) in imported.items():
        if needed:
            found.damaged.append(f"{store.path / 'shards' / name}: was imported and is gone")
    if not found.shards:
        raise ResultError(f"{store.path} holds no results yet")
    if agent is not None:
        sound = _of_agent(sound, agent)
    order = np.random.default_rng(seed).permutation(len(sound))
    lacking: dict[tuple[str, str], str] = {}
    for i in order.tolist():
        if len(found.again) + len(found.impossible) >= sample:
            break
        cell = sound[i].cell
        what = cell.agent.name, cell.task.name
        if what in lacking:
            continue
        try:
            missing = unavailable(cell)
            if missing:
                lacking[what] = missing
                found.unavailable.append(f"{cell}: {missing}")
                continue
            if report is not None:
                report(f"computing {cell} again")
            again = recompute(cell)
        except MissingExtraError as error:
            lacking[what] = str(error)
            found.unavailable.append(f"{cell}: {error}")
            continue
        except DPBError as error:
            found.impossible.append(f"{cell}: {error}")
            continue
        found.again.append(str(cell))
        difference = compare(sound[i], again)
        if difference:
            other = "" if code_hash(again.cell.agent.maker) == cell.agent.source else OTHER_CODE
            found.differing.append(f"{cell}: {difference}{other}")
    return found


def _of_agent(results: list[CellResult], agent: str) -> list[CellResult]:
    known = {name for r in results for name in (r.cell.agent.label, r.cell.agent.name)}
    if agent not in known:
        raise unknown_name("agent in these results", agent, known)
    return [r for r in results if agent in (r.cell.agent.label, r.cell.agent.name)]


def unavailable(cell: Cell) -> str:
    """What is missing on this machine to compute a cell again, empty if nothing is."""
    run = cell.agent
    if not run.entry_point.startswith(FACTORY) and run.name not in agent_specs():
        return f"agent {run.name!r} ({run.entry_point}) is not installed here"
    if cell.data is None:
        return ""
    source = cell.task.parameters["data"]
    if isinstance(source, dict):
        if "digest" in source:
            return f"its data ({source.get('name')}) were given in memory and are not stored"
        source = source.get("source", "")
    return cell.task.model_copy(update={"requires": source}).missing_data()


def recompute(cell: Cell) -> CellResult:
    """Computes a stored cell again, alone, with the code that is here.

    Raises:
        ResultError: If its algorithm version or data are not today's.
        AgentError: If the agent fails or was made by a function.
        MissingExtraError: If the agent needs a package that is not installed.
        UnknownNameError: If agent or environment are not known here.
    """
    if cell.algorithm != ALGORITHM_VERSION:
        raise ResultError(
            f"was computed by algorithm version {cell.algorithm}; this is {ALGORITHM_VERSION}"
        )
    if cell.task.data_digest() != cell.data:
        raise ResultError("the data are not those that it was computed from")
    again = cell.model_copy(update={"agent": cell.agent.here()})
    (outcome,) = run_block(cell.task.problem(), [again])
    if isinstance(outcome, Failure):
        if MissingExtraError.__name__ in outcome.details.strip().split("\n")[-1]:
            raise MissingExtraError(outcome.message)
        raise AgentError(outcome.message)
    return outcome


def compare(stored: CellResult, again: CellResult) -> str:
    """Says where two results of one cell differ; empty if nowhere."""
    for name in ("regret", "reward"):
        a, b = getattr(stored, name), getattr(again, name)
        # Bits, not numbers: -0.0 and 0.0 differ here.
        unequal = a.view(np.int64) != np.ascontiguousarray(b).view(np.int64)
        if unequal.any():
            row, column = np.argwhere(unequal)[0]
            return (
                f"{name} of replicate {stored.cell.replicates[row]} at round "
                f"{stored.cell.checkpoints[column]} is {float(b[row, column])!r}, stored "
                f"{float(a[row, column])!r}"
            )
    if stored.guarantee != again.guarantee:
        return f"the guarantee is {again.guarantee}, stored {stored.guarantee}"
    return ""
