"""`RowResult`: all replicates of one agent at one budget on one task, and its guarantee."""

from __future__ import annotations

import functools
import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from dpb_gym import privacy
from dpb_gym.errors import ResultError, unknown_name
from dpb_gym.lazy import AGENTS, load_plugins
from dpb_gym.privacy.budget import REPORT_DELTA, report_delta
from dpb_gym.problems.base import Array
from dpb_gym.report.leaderboard_data import DELTAS
from dpb_gym.results.cell_result import COMPUTED, CellResult
from dpb_gym.suites.spec import Cell

NON_PRIVATE = "non-private"


@dataclass(frozen=True)
class RowResult:
    """All replicates of one agent at one budget on one task.

    Attributes:
        task: Name of the task.
        agent: Label.
        budget: Budget as short text, ``"none"`` without one.
        cell: Its first cell; all share the rest of the specification.
        replicates: Numbers of the replicates ``(n,)``, increasing.
        rounds: Recorded rounds ``(C,)``.
        regret: Cumulative pseudo-regret ``(n, C)``.
        reward: Cumulative reward ``(n, C)``.
        guarantee: The weakest guarantee of its cells, None if one of them has none.
        rounds_per_second: Agent rounds per second over all timed cells, None if unknown.
        trust: Weakest provenance of its cells, see `CellResult.provenance`.
        recorded: Measurements of a study, by name and replicate.
    """

    task: str
    agent: str
    budget: str
    cell: Cell
    replicates: Array
    rounds: Array
    regret: Array
    reward: Array
    guarantee: dict[str, Any] | None
    rounds_per_second: float | None
    trust: str
    recorded: Mapping[str, Mapping[int, float]] = field(default_factory=dict)

    @property
    def final_regret(self) -> dict[int, float]:
        """Regret at the horizon by replicate."""
        return dict(zip(self.replicates.tolist(), self.regret[:, -1].tolist()))


def collect(results: Iterable[CellResult]) -> list[RowResult]:
    """Join the blocks of each row; a replicate that occurs twice counts once.

    Raises:
        ResultError: If cells of one row were computed with different parameters.
    """
    return [join(cells) for cells in by_row(results).values()]


def by_row(results: Iterable[CellResult]) -> dict[tuple[str, str, str], list[CellResult]]:
    """Group cells by task, label and budget."""
    rows: dict[tuple[str, str, str], list[CellResult]] = {}
    for result in results:
        rows.setdefault(result.cell.row, []).append(result)
    return rows


def of_agent(results: Iterable[CellResult], agent: str, what: str) -> list[CellResult]:
    """Return the results of an agent, given its registered name or its label.

    Raises:
        UnknownNameError: If there are none; the message calls the agent `what`.
    """
    named = [(result, (result.cell.agent.name, result.cell.agent.label)) for result in results]
    matches = [result for result, names in named if agent in names]
    if not matches:
        raise unknown_name(what, agent, {name for _, names in named for name in names})
    return matches


def join(cells: list[CellResult]) -> RowResult:
    """Join the cells of one row; see `collect`."""
    # cells without digests belong to one call, and their parameters need no JSON form
    rest = cells[1:] if cells[0].cell.protocol else []
    identity = cells[0].cell.identity if rest else {}
    for result in rest:
        if result.cell.identity != identity:
            raise ResultError(
                f"{result.cell} and {cells[0].cell} were computed with different parameters or "
                "versions and cannot be joined"
            )
    taken: dict[int, tuple[CellResult, int]] = {}
    for result in cells:
        for row, replicate in enumerate(result.cell.replicates):
            taken.setdefault(replicate, (result, row))
    order = sorted(taken)
    timings = [result.timing for result in cells if result.timing is not None]
    seconds = sum(timing.seconds for timing in timings)
    rounds = sum(timing.rounds for timing in timings)
    return RowResult(
        *cells[0].cell.row,
        cells[0].cell,
        np.asarray(order),
        np.asarray(cells[0].cell.checkpoints),
        np.stack([taken[i][0].regret[taken[i][1]] for i in order]),
        np.stack([taken[i][0].reward[taken[i][1]] for i in order]),
        _weakest([result.guarantee for result in cells]),
        rounds / seconds if seconds > 0 and rounds > 0 else None,
        _least([result.provenance for result in cells]),
        {
            name: {i: taken[i][0].recorded[name][taken[i][1]] for i in order}
            for name in cells[0].recorded
            if all(name in result.recorded for result in cells)
        },
    )


def _least(provenances: Sequence[str]) -> str:
    """Return the weakest provenance: "stated" before "recomputed" before "computed"."""
    stated = sorted(p for p in provenances if p.startswith("stated"))
    return next(iter([*stated, *(p for p in provenances if p != COMPUTED)]), COMPUTED)


def _weakest(guarantees: Sequence[dict[str, Any] | None]) -> dict[str, Any] | None:
    """Return the guarantee that spent most; blocks differ if releases depend on public data."""
    known = [guarantee for guarantee in guarantees if guarantee is not None]
    if len(known) < len(guarantees):
        return None
    if all(guarantee == known[0] for guarantee in known):
        return known[0]
    return max(known, key=lambda g: read_guarantee(g).epsilon(REPORT_DELTA))


def read_guarantee(guarantee: Mapping[str, Any]) -> privacy.Guarantee:
    """Return a stored guarantee as an object, including events of third-party agents."""
    return _read(json.dumps(guarantee, sort_keys=True))


@functools.lru_cache(maxsize=4096)  # rows share guarantees
def _read(text: str) -> privacy.Guarantee:
    load_plugins(AGENTS)  # third-party agents may define accounting events
    return privacy.Guarantee.from_dict(json.loads(text))


def describe_guarantee(
    guarantee: Mapping[str, Any] | None, budget: privacy.Budget | None = None
) -> tuple[str, str | None, str | None]:
    """Return a stored guarantee in one line, its notion and its unit (None if non-private).

    Epsilon is stated at the delta of the budget, if it has one, and at `REPORT_DELTA` otherwise.
    """
    if guarantee is None or guarantee.get("curve") is None:
        return NON_PRIVATE, None, None
    read = read_guarantee(guarantee)
    return read.describe(report_delta(budget)), read.notion, read.unit


def epsilons(guarantee: Mapping[str, Any] | None) -> tuple[float, ...]:
    """Return epsilon of a stored guarantee at each of `DELTAS`, empty without a guarantee."""
    if guarantee is None or guarantee.get("curve") is None:
        return ()
    read = read_guarantee(guarantee)
    values = tuple(read.epsilon(delta) for delta in DELTAS)
    return values if all(map(math.isfinite, values)) else ()
