"""Verification of stored results: digests, and cells recomputed bit for bit."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from dpb_gym import validation
from dpb_gym.errors import AgentError, DPBError, MissingExtraError, ResultError
from dpb_gym.exchange.archive import check_cell
from dpb_gym.lazy import own_packages
from dpb_gym.registry import FACTORY, agent_specs
from dpb_gym.results.cell_result import COMPUTED, RECOMPUTED, CellResult, Failure
from dpb_gym.results.result_directory import ResultDirectory
from dpb_gym.results.row_result import by_row, of_agent
from dpb_gym.running.runner import run_block
from dpb_gym.suites.code_digest import code_hash
from dpb_gym.suites.provenance import describe_machine
from dpb_gym.suites.spec import ALGORITHM_VERSION, Cell

OTHER_CODE = " (the agent's code here is not the code that computed it)"
ROUNDING = 1e-12
"""Relative differences up to this size count as rounding on another machine."""


@dataclass
class Verification:
    """Result of `verify`.

    Attributes:
        cells: Number of cells.
        rows: Number of rows of the leaderboard.
        confirmed: Rows whose cells were all computed or recomputed on this machine.
        damaged: Cells whose content differs from their digest, or whose task, seeds or
            checkpoints differ from the suite.
        again: Recomputed cells.
        differing: Recomputed cells whose numbers differ, with the first difference.
        rounding: Recomputed cells that differ by rounding only and were computed on another
            machine; they count as equal.
        impossible: Cells that could not be recomputed, with the reason.
        unavailable: Cells whose agent or data are not installed.
    """

    cells: int = 0
    rows: int = 0
    confirmed: int = 0
    damaged: list[str] = field(default_factory=list)
    again: list[str] = field(default_factory=list)
    differing: list[str] = field(default_factory=list)
    rounding: list[str] = field(default_factory=list)
    impossible: list[str] = field(default_factory=list)
    unavailable: list[str] = field(default_factory=list)

    @property
    def ok(self) -> bool:
        """Return whether every check succeeded and every row is confirmed."""
        wrong = self.damaged or self.differing or self.impossible
        return not wrong and self.confirmed == self.rows


def verify(
    path: str | os.PathLike[str],
    sample: int = 3,
    seed: int | None = None,
    report: Callable[[str], object] | None = None,
    agent: str | None = None,
    isolate: bool | None = None,
) -> Verification:
    """Check every digest and recompute a sample of cells.

    From every imported row, cells are sampled that have not been recomputed here. Cells with equal
    numbers are recorded as recomputed, and a row is confirmed when all of its cells are. Of the
    results computed here, one random sample is taken.

    Args:
        path: A result directory.
        sample: Cells to recompute of every imported row, and of all other rows together; at
            least 0.
        seed: Seed of the sample; random by default.
        agent: Label or name of an agent to restrict the sample to.
        report: Called with a line about each cell before it is recomputed.
        isolate: Whether private agents are isolated (`dpb_gym.running.isolation`); by default
            those of other packages.

    Raises:
        ResultError: If there is no result directory, or it is empty.
    """
    sample = validation.integer("sample", sample, 0)
    store = ResultDirectory.open(path)
    sound, problems = store.check()
    outcome = Verification(damaged=[str(problem) for problem in problems])
    kept = []
    for result in sound:
        try:
            check_cell(result.cell, store.suite, str(store.path))
            kept.append(result)
        except ResultError as error:
            outcome.damaged.append(str(error))
    outcome.cells = len(sound) + len(problems)
    if not outcome.cells:
        raise ResultError(f"{store.path} holds no results yet")
    asked = kept if agent is None else of_agent(kept, agent, "agent in these results")
    right: list[str] = []
    elsewhere = _elsewhere(store)
    for group in _groups(asked, seed):
        lacking: set[tuple[str, str]] = set()
        taken = 0
        for result in group:
            what = result.cell.agent.name, result.cell.task.name
            if taken == sample:
                break
            if what in lacking:
                continue
            same = _again(result, outcome, report, elsewhere, isolate)
            if same is None:
                lacking.add(what)
                continue
            taken += 1
            right += [result.cell.key] if same else []
    trusted = {r.cell.key for r in kept if r.provenance in (COMPUTED, RECOMPUTED)}
    trusted |= set(right)
    rows = by_row(kept).values()
    outcome.rows = len(rows)
    outcome.confirmed = sum(all(r.cell.key in trusted for r in row) for row in rows)
    news = [key for key in right if store.entries[key].provenance not in (COMPUTED, RECOMPUTED)]
    if news:
        with ResultDirectory.writing(path, store.suite) as writable:
            writable.confirm(news)
    return outcome


def _groups(results: Sequence[CellResult], seed: int | None) -> list[list[CellResult]]:
    """Return the unconfirmed cells of each imported row, and all other cells, in random order."""
    groups: dict[tuple[str, ...], list[CellResult]] = {}
    for result in results:
        stated = result.provenance not in (COMPUTED, RECOMPUTED)
        groups.setdefault(result.cell.row if stated else (), []).append(result)
    rng = np.random.default_rng(seed)
    return [[group[i] for i in rng.permutation(len(group))] for group in groups.values()]


def _elsewhere(store: ResultDirectory) -> str:
    """Return the machines that computed the results, empty if this one is among them."""
    described = (run.get("imported", run).get("machine") for run in store.manifest["runs"])
    machines = [machine for machine in described if isinstance(machine, dict)]
    here = describe_machine()
    return "" if here in machines else "; ".join(dict.fromkeys(map(_named, machines)))


def _named(machine: Mapping[str, Any]) -> str:
    return ", ".join(str(machine.get(key, "unknown")) for key in ("cpu", "blas", "libc"))


def _again(
    result: CellResult,
    outcome: Verification,
    report: Callable[[str], object] | None,
    elsewhere: str,
    isolate: bool | None,
) -> bool | None:
    """Recompute a cell and record the outcome.

    Returns:
        Whether the numbers are equal, up to rounding on another machine; None if the agent or
        its data are not installed.
    """
    cell = result.cell
    try:
        if missing := unavailable(cell):
            raise MissingExtraError(missing)
        if isolate is None:
            isolate = cell.agent.entry_point.partition(".")[0] not in own_packages()
        isolate = isolate and cell.agent.budget is not None
        if report is not None:
            report(f"computing {cell} again{', isolated' if isolate else ''}")
        again = recompute(cell, isolate)
    except MissingExtraError as error:
        outcome.unavailable.append(f"{cell}: {error}")
        return None
    except (DPBError, MemoryError) as error:
        outcome.impossible.append(f"{cell}: {error}")
        return False
    outcome.again.append(str(cell))
    difference = compare(result, again)
    size = _distance(result, again)
    if difference and elsewhere and size <= ROUNDING and result.guarantee == again.guarantee:
        outcome.rounding.append(
            f"{cell}: rounding ({size:.0e}), another CPU: stored {elsewhere}; here "
            f"{_named(describe_machine())}"
        )
        return True
    if difference:
        other = "" if code_hash(again.cell.agent.spec.maker) == cell.agent.source else OTHER_CODE
        outcome.differing.append(f"{cell}: {difference}{other}")
    return not difference


def unavailable(cell: Cell) -> str:
    """Return what is missing on this machine to recompute a cell, empty if nothing is."""
    run = cell.agent
    if not run.entry_point.startswith(FACTORY) and run.name not in agent_specs():
        return f"agent {run.name!r} ({run.entry_point}) is not installed here"
    source = cell.task.parameters.get("data")
    if cell.data is None or source is None:
        return ""
    if isinstance(source, dict):
        if "digest" in source:
            return f"its data ({source.get('name')}) were given in memory and are not stored"
        source = source.get("source", "")
    return cell.task.model_copy(update={"requires": source}).missing_data()


def recompute(cell: Cell, isolate: bool = False) -> CellResult:
    """Recompute a stored cell, alone, with the installed code.

    Args:
        cell: The cell.
        isolate: See `verify`.

    Raises:
        ResultError: If its algorithm version or data differ from the installed ones.
        AgentError: If the agent fails or was made by a function.
        MissingExtraError: If the agent needs a package that is not installed.
        UnknownNameError: If agent or environment are not registered.
    """
    if cell.algorithm != ALGORITHM_VERSION:
        raise ResultError(
            f"was computed by algorithm version {cell.algorithm}; this is {ALGORITHM_VERSION}"
        )
    if cell.task.data_digest() != cell.data:
        raise ResultError("the data are not those that it was computed from")
    again = cell.model_copy(update={"agent": cell.agent.here()})
    # round by round, where an agent cannot use the rewards of other candidates
    (outcome,) = run_block(cell.task.problem(), [again], stretches=False, isolate=isolate)
    if isinstance(outcome, Failure):
        if MissingExtraError.__name__ in outcome.details.strip().split("\n")[-1]:
            raise MissingExtraError(outcome.message)
        raise AgentError(outcome.message)
    return outcome


def _distance(stored: CellResult, again: CellResult) -> float:
    """Return the largest difference of two results, relative to their largest number."""
    pairs = ((getattr(stored, name), getattr(again, name)) for name in ("regret", "reward"))
    return max(float(np.abs(a - b).max() / max(np.abs(a).max(), 1e-300)) for a, b in pairs)


def compare(stored: CellResult, again: CellResult) -> str:
    """Return where two results of one cell differ, empty if they are equal."""
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
