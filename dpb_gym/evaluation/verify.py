"""Checks stored results: hashes, and a random sample computed again, bit for bit."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from dpb_gym import validation
from dpb_gym.agent import agent_spec, check_supported
from dpb_gym.errors import AgentError, DPBError, ResultError
from dpb_gym.evaluation.cells import ALGORITHM_VERSION, CellResult, Task
from dpb_gym.evaluation.entries import Entry
from dpb_gym.evaluation.parallel import cell_result
from dpb_gym.evaluation.runner import Failure, run_block
from dpb_gym.evaluation.shards import read_shard
from dpb_gym.evaluation.store import Store


@dataclass
class Verification:
    """What `verify` found.

    Attributes:
        shards: Number of shards.
        damaged: Shards whose content is not what was written, or of another suite.
        again: Cells that were computed again.
        differing: Those whose numbers differ, and where.
        impossible: Cells that could not be computed again, and why.
    """

    shards: int = 0
    damaged: list[str] = field(default_factory=list)
    again: list[str] = field(default_factory=list)
    differing: list[str] = field(default_factory=list)
    impossible: list[str] = field(default_factory=list)

    @property
    def ok(self) -> bool:
        """Whether everything that was checked is right."""
        return not (self.damaged or self.differing or self.impossible)


def verify(
    path: str | os.PathLike[str],
    sample: int = 3,
    seed: int | None = None,
    report: Callable[[str], Any] | None = None,
) -> Verification:
    """Checks every shard's digest and computes a random sample of cells again.

    Args:
        path: A result directory.
        sample: Cells to compute again, at least 0; all if there are fewer.
        seed: Chooses the sample; a fresh one each time by default.
        report: Called with a line about each cell before it is computed.

    Raises:
        ResultError: If there is no result directory, or it holds no results.
    """
    sample = validation.integer("sample", sample, 0)
    store = Store.open(path)
    found = Verification()
    sound: list[CellResult] = []
    for file in store.shard_files():
        found.shards += 1
        try:
            result = read_shard(file)
            if result.cell.config["protocol"] != store.manifest["protocol"]:
                raise ResultError(f"{file}: belongs to another suite")
            sound.append(result)
        except ResultError as error:
            found.damaged.append(str(error))
    if not found.shards:
        raise ResultError(f"{store.path} holds no results yet")
    order = np.random.default_rng(seed).permutation(len(sound))[:sample]
    for i in sorted(order.tolist()):
        cell = sound[i].cell
        if report is not None:
            report(f"computing {cell} again")
        try:
            again = recompute(sound[i])
        except DPBError as error:
            found.impossible.append(f"{cell}: {error}")
            continue
        found.again.append(str(cell))
        difference = compare(sound[i], again)
        if difference:
            found.differing.append(f"{cell}: {difference}")
    return found


def recompute(stored: CellResult) -> CellResult:
    """Computes a cell again from its stored configuration, alone.

    Raises:
        ResultError: If its algorithm version, data or agent version is not today's.
        AgentError: If the agent fails or was made by a function.
        UnknownNameError: If agent or environment are not known here.
    """
    config = stored.cell.config
    if config["algorithm"] != ALGORITHM_VERSION:
        raise ResultError(
            f"was computed by algorithm version {config['algorithm']}; this is {ALGORITHM_VERSION}"
        )
    fields = config["task"]
    task = Task(fields["name"], fields["env_id"], fields["env_kwargs"], fields["horizon"])
    if task.data_digest() != config["data"]:
        raise ResultError("the data are not those that it was computed from")
    entry = _entry(config)
    problem = task.problem()
    check_supported(entry.spec, problem.info, entry.budget)
    (lane,) = run_block(problem, [entry], stored.cell.seeds, stored.cell.checkpoints)
    if isinstance(lane, Failure):
        raise lane.error()
    return cell_result(stored.cell, lane)


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
    if stored.clipped != again.clipped:
        return f"clipped records are {again.clipped}, stored {stored.clipped}"
    return ""


def _entry(config: Any) -> Entry:
    from dpb_gym.privacy import Budget

    agent = config["agent"]
    if agent["entry_point"].startswith("factory:"):
        raise AgentError("its agent was made by a function, which is not stored")
    spec = agent_spec(agent["name"])
    if spec.entry_point != agent["entry_point"]:
        raise AgentError(
            f"agent {agent['name']!r} is {spec.entry_point} here; it was {agent['entry_point']}"
        )
    budget = None if config["budget"] is None else Budget.from_dict(config["budget"])
    spec = agent_spec(agent["name"], **agent["params"])
    entry = Entry(agent["label"], spec, budget, spec.load())
    if entry.version != agent["version"]:
        raise ResultError(
            f"agent {agent['name']!r} has version {entry.version!r} here, it was "
            f"{agent['version']!r}"
        )
    return entry
