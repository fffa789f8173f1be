"""Costs of a stored run, and forecasts of a plan from a few seconds of playing."""

from __future__ import annotations

import os
import re
import resource
import sys
import time
import tracemalloc
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, fields, is_dataclass
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple, Protocol

import numpy as np

from dpb_gym import validation
from dpb_gym.agent import Agent
from dpb_gym.errors import ResultError
from dpb_gym.play import Plan
from dpb_gym.privacy.releasers.releaser import Handle, Releaser, behind
from dpb_gym.progress_lines import step
from dpb_gym.registry import AgentSpec
from dpb_gym.results.cell_result import CellResult, Timing
from dpb_gym.results.parquet import table_bytes
from dpb_gym.results.result_directory import ResultDirectory
from dpb_gym.running.plan import Job, TaskPlan, blocks, make_jobs
from dpb_gym.running.runner import PROGRESS_SECONDS, run_block
from dpb_gym.suites.spec import Cell
from dpb_gym.suites.suite import Suite

LEAST_POINTS = 8
"""Points of the play whose memory is measured."""
MOST_PLAYS = 6
"""A forecast plays a block at most so often."""
FURTHER = 1.4
"""A forecast repeats a block until it gets less than this factor further than before."""


@dataclass(frozen=True)
class AgentCost:
    """Costs of one agent on one task, all its budgets together.

    Attributes:
        task: Name of the task.
        agent: Label of the agent.
        rounds: Agent rounds that were timed (replicates times rounds).
        seconds: Core time in the agent and in the responses to its actions, and its equal share of
            the time for the contexts, which all agents of a task share.
        cells: Number of its cells.
        bytes: Size of its cells in the table.
    """

    task: str
    agent: str
    rounds: int
    seconds: float
    cells: int
    bytes: int

    @property
    def rounds_per_second(self) -> float:
        """Agent rounds per second and core."""
        return self.rounds / self.seconds

    @property
    def bytes_per_cell(self) -> float:
        """Mean size of a cell."""
        return self.bytes / self.cells


@dataclass(frozen=True)
class Costs:
    """The costs of a result directory.

    Attributes:
        agents: One entry per task and agent, in the order of the table.
    """

    agents: tuple[AgentCost, ...]

    @property
    def rounds(self) -> int:
        """Agent rounds of all agents."""
        return sum(cost.rounds for cost in self.agents)

    def at(self, rounds: float, cores: int = 1) -> tuple[float, float]:
        """Return seconds on `cores` cores and bytes of a run of the same mix with `rounds` rounds.

        Cost per round does not grow with the round and blocks are independent, so both are
        proportional to the number of cells. Fixed costs of a run (start of the workers,
        compilation) are excluded.

        Raises:
            ParameterError: If an argument is not positive.
        """
        rounds = validation.real("rounds", rounds, 0.0, open_low=True)
        cores = validation.integer("cores", cores, 1)
        scale = rounds / self.rounds
        seconds = sum(cost.seconds for cost in self.agents)
        return seconds * scale / cores, sum(cost.bytes for cost in self.agents) * scale


def costs(path: str | os.PathLike[str]) -> Costs:
    """Read the costs of a result directory.

    Args:
        path: A result directory with timings.

    Raises:
        ResultError: If it does not exist or has no timings.
    """
    store = ResultDirectory.open(path)
    results = store.results()
    share = len(table_bytes(results)) / max(1, len(results))
    timings: dict[tuple[str, str], list[Timing]] = {}
    for result in results:
        if result.timing is not None:
            timings.setdefault(result.cell.row[:2], []).append(result.timing)
    agent_costs = tuple(
        AgentCost(
            task,
            agent,
            sum(timing.rounds for timing in some),
            sum(timing.seconds for timing in some),
            len(some),
            round(len(some) * share),
        )
        for (task, agent), some in timings.items()
    )
    if not agent_costs:
        raise ResultError(f"{store.path} holds no timings: nothing to extrapolate from")
    return Costs(agent_costs)


@dataclass(frozen=True)
class Forecast:
    """Forecast of one task of a plan.

    Attributes:
        task: Name of the task.
        jobs: Blocks of replicates, one job each.
        cells: Number of cells: agents and budgets times blocks.
        rounds: Agent rounds.
        seconds: Core time of all jobs.
        bytes: Size of its part of the table.
        memory: Largest memory of a worker, in bytes.
    """

    task: str
    jobs: int
    cells: int
    rounds: int
    seconds: float
    bytes: int
    memory: int


class _Enough(Exception):
    pass


def forecast(
    suite: Suite, plans: Sequence[TaskPlan], replicates: int | None = None, seconds: float = 1.0
) -> list[Forecast]:
    """Forecast time, size and memory of a plan from short plays of its first blocks.

    The first block of each task is played at its full horizon for `seconds`, and again while that
    gets much further, so that compilation is not measured. If this was not the whole block, it is
    played once more with memory allocations counted. Rounds that were not played are assumed to
    cost as much as those of the second half of the sample. Stored records have the size that their
    releasers state for the horizon (`Releaser.memory`); an attribute of an agent may state its
    memory in the same way. Imports and compilation are excluded. Each task is reported as a step,
    see `dpb_gym.progress_lines`.

    Args:
        suite: The suite.
        plans: The agents of each task.
        replicates: Overrides the number of the suite and of its tasks.
        seconds: Processor time of each play after its set-up, > 0.

    Raises:
        ParameterError: If a parameter is invalid.
        DataError: If data are missing or damaged.
    """
    seconds = validation.real("seconds", seconds, 0.0, open_low=True)
    forecasts = []
    played = [plan for plan in plans if plan.runs]
    for number, plan in enumerate(played, 1):
        step(f"task {plan.task.name}, {number} of {len(played)}")
        sizes = [len(block) for block in blocks(suite, plan.task, replicates)]
        (job,) = make_jobs(suite, [plan], sizes[0])
        seen = points = _play(job, seconds)
        for _ in range(MOST_PLAYS - 1):
            before = seen[-1].round
            seen = _play(job, seconds)
            points = [point for point in seen if point.round <= before] or seen[:1]
            if seen[-1].round <= FURTHER * before:
                break
        growth = 0.0
        # a block that was played whole has had the memory that it needs
        if seen[-1].round < plan.task.horizon:
            tracemalloc.start()
            # points come by the clock on the wall: on a busy machine eight of them are little work
            counted = _play(job, max(seconds, LEAST_POINTS * PROGRESS_SECONDS), LEAST_POINTS)
            tracemalloc.stop()
            growth = _growth(job, counted) + counted[-1].coming
        share = sum(sizes) / sizes[0]
        forecasts.append(
            Forecast(
                plan.task.name,
                len(sizes),
                len(sizes) * len(job.cells),
                sum(sizes) * len(job.cells) * plan.task.horizon,
                (points[-1].seconds + _rest(job, points)) * share,
                round(_table_size(job) * share),
                _most_memory() + round(growth),
            )
        )
    return forecasts


class _Point(NamedTuple):
    """What is known after some rounds.

    Attributes:
        round: Rounds played.
        seconds: Processor time since the start.
        bytes: Bytes in use, without those of stored records.
        coming: Bytes that stored records will need in addition.
    """

    round: int
    seconds: float
    bytes: int
    coming: int


@dataclass(frozen=True)
class _Watched(AgentSpec):
    """Specification that passes every agent that it makes to `watch`."""

    watch: Callable[[Agent], None] = field(compare=False, kw_only=True)

    def make(self, **params: Any) -> Agent:
        agent = super().make(**params)
        self.watch(agent)
        return agent


def _watched(cell: Cell, watch: Callable[[Agent], None]) -> Cell:
    spec = cell.agent.spec
    known = {one.name: getattr(spec, one.name) for one in fields(spec)}
    run = cell.agent.model_copy(update={"spec": _Watched(**known, watch=watch)})
    return cell.model_copy(update={"agent": run})


class _Store(Protocol):
    def memory(self, rounds: int | None = None) -> int: ...


def _stores(agents: Sequence[Agent]) -> list[_Store]:
    """Return the releasers of agents that have begun, and what else of them states its memory."""
    curators = [vars(agent).get("curator") for agent in agents]
    parts = [one for c in curators if c is not None for one in (c, *c.parts.values())]
    stores: list[_Store] = [behind(handle) for one in parts for handle in one.releasers]
    own = [value for agent in agents for value in vars(agent).values()]
    algorithms = [part for part in own if is_dataclass(part) and not isinstance(part, type)]
    own += [getattr(part, one.name) for part in algorithms for one in fields(part)]
    own += [value for part in own if isinstance(part, Plan) for value in part]
    return stores + [
        part for part in own if hasattr(part, "memory") and not isinstance(part, (Releaser, Handle))
    ]


def _play(job: Job, seconds: float, least: int = 3) -> list[_Point]:
    """Play a job for `seconds` after its set-up, and until there are `least` points."""
    points: list[_Point] = []
    agents: list[Agent] = []
    cells = [_watched(cell, agents.append) for cell in job.cells]
    each = len(cells) * len(cells[0].replicates)

    def note(done: int) -> None:
        clock = time.process_time() - start
        used = tracemalloc.get_traced_memory()[0]
        played = done // each
        stores = _stores(agents)
        allocated = sum(store.memory() for store in stores)
        coming = sum(store.memory(job.task.horizon) - store.memory(played) for store in stores)
        points.append(_Point(played, clock, used - allocated, coming))
        if clock - points[0].seconds > seconds and len(points) >= least:
            raise _Enough

    problem = job.problem or job.task.problem()
    start = time.process_time()
    with suppress(_Enough):
        run_block(problem, cells, note)
    return points


def _rest(job: Job, points: Sequence[_Point]) -> float:
    """Extrapolate the seconds of the second half of the points to the rounds after the last one."""
    middle = points[len(points) // 2]
    last = points[-1]
    each = (last.seconds - middle.seconds) / max(1, last.round - middle.round)
    return each * (job.task.horizon - last.round)


def _growth(job: Job, points: Sequence[_Point]) -> float:
    """Extrapolate the growth of the bytes in use to the rounds after the last point.

    Medians of the two halves are compared, as some points are in the middle of work whose arrays
    go again: 200 kB of them would be a gigabyte after ten million rounds.
    """
    half = len(points) // 2
    if not half:  # the whole job was played at once
        return 0.0
    first = points[:half]
    second = points[-half:]
    passed = median(p.round for p in second) - median(p.round for p in first)
    grown = median(p.bytes for p in second) - median(p.bytes for p in first)
    return max(0.0, grown) / max(1, passed) * (job.task.horizon - points[-1].round)


def _table_size(job: Job) -> int:
    """Return the bytes of the job's part of a table, estimated with random curves."""
    rng = np.random.default_rng(0)
    shape = len(job.cells[0].replicates), len(job.cells[0].checkpoints)
    results = [CellResult(cell, *rng.random((2, *shape)).cumsum(axis=2)) for cell in job.cells]
    return len(table_bytes(results))


def _most_memory() -> int:
    """Return the peak memory of this process in bytes."""
    if sys.platform == "linux":
        # ru_maxrss also counts the process that started this one, until it ran its own program
        status = Path("/proc/self/status").read_text(encoding="utf-8")
        if peak := re.search(r"^VmHWM:\s+(\d+) kB$", status, re.M):
            return int(peak[1]) << 10
    unit = 1 if sys.platform == "darwin" else 1 << 10
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit
