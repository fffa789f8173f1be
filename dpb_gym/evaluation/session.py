"""Runs plans: decides what is missing, runs it, and says how it went."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dpb_gym.errors import ParameterError
from dpb_gym.evaluation.cells import CellResult
from dpb_gym.evaluation.interrupts import remembered_interrupt
from dpb_gym.evaluation.manifest import command_line
from dpb_gym.evaluation.parallel import (
    JobOutcome,
    check_backend,
    check_workers,
    remote,
    run_jobs,
)
from dpb_gym.evaluation.planning import Job, TaskPlan, make_jobs
from dpb_gym.evaluation.progress import board
from dpb_gym.evaluation.runner import Failure
from dpb_gym.evaluation.store import Store
from dpb_gym.evaluation.suite import Suite

Show = bool | Callable[[int, int], Any]


@dataclass(frozen=True)
class RunReport:
    """How a run went.

    Attributes:
        path: The result directory.
        cells: Cells of the plan.
        computed: Cells computed in this run.
        failures: Task and failure of every cell that failed.
        rounds: Agent rounds played in this run.
        seconds: Wall time.
    """

    path: Path
    cells: int
    computed: int
    failures: tuple[tuple[str, Failure], ...]
    rounds: int
    seconds: float

    @property
    def skipped(self) -> int:
        """Cells that had been computed before."""
        return self.cells - self.computed - len(self.failures)


def run_plan(
    suite: Suite,
    plans: Sequence[TaskPlan],
    out: str | os.PathLike[str],
    *,
    suite_text: str | None = None,
    replicates: int | None = None,
    workers: int | None = None,
    backend: str = "loky",
    scheduler: str | None = None,
    show: Show = False,
    delay: float = 2.0,
) -> RunReport:
    """Runs a plan into a result directory; what is there already is not computed again.

    Args:
        suite: The suite.
        plans: Who runs on which task; see `plan_suite`.
        out: The result directory; made if there is none, resumed if there is one.
        suite_text: The suite's YAML for the manifest.
        replicates: Instead of the suite's.
        workers: Processes; the number of usable cores by default.
        backend: ``"loky"`` or ``"dask"``.
        scheduler: Address of the dask scheduler.
        show: Progress; see `dpb_gym.evaluation.progress.board`.
        delay: Seconds before progress is shown.

    Raises:
        ResultError: If the directory belongs to another suite, is in use or not writable.
        ParameterError: If an argument is invalid or nobody takes part.
        DataError: If data are missing.
        WorkerError: If a worker dies.
    """
    workers = check_workers(workers)
    check_backend(backend, scheduler)
    store = Store.create(out, suite, suite_text or suite.to_yaml())
    jobs = make_jobs(suite, plans, replicates)
    if not jobs:
        raise ParameterError(f"no agent takes part in suite {suite.name!r}: nothing to run")
    cells = [cell for job in jobs for cell in job.cells]
    run = {
        "command": command_line(),
        "workers": workers,
        "backend": backend,
        "replicates": replicates or suite.replicates,
        "agents": list(dict.fromkeys(cell.agent for cell in cells)),
    }
    start = time.monotonic()
    with store.writing(run) as record:
        missing = {cell.key for cell in store.prepare(cells)}
        todo = [remaining for job in jobs if (remaining := _restrict(job, missing)) is not None]
        outcomes = execute(
            todo, store, workers=workers, backend=backend, scheduler=scheduler, show=show,
            delay=delay,
        )  # fmt: skip
        failures = tuple(failure for outcome in outcomes for failure in outcome.failures)
        report = RunReport(
            store.path,
            len(cells),
            sum(outcome.cells for outcome in outcomes),
            failures,
            sum(job.rounds for job in todo),
            time.monotonic() - start,
        )
        record.update(
            cells=report.cells,
            computed=report.computed,
            failures=[f"{task}: {failure.message}" for task, failure in failures],
            rounds=report.rounds,
            wall_seconds=round(report.seconds, 3),
        )
    return report


def run_in_memory(
    suite: Suite,
    plans: Sequence[TaskPlan],
    *,
    workers: int = 1,
    backend: str = "loky",
    scheduler: str | None = None,
    show: Show = False,
) -> tuple[list[CellResult], list[tuple[str, Failure]]]:
    """Runs a plan and keeps the results in memory; see `run_plan`."""
    workers = check_workers(workers)
    check_backend(backend, scheduler)
    jobs = make_jobs(suite, plans)
    outcomes = execute(jobs, None, workers=workers, backend=backend, scheduler=scheduler, show=show)
    results = [result for outcome in outcomes for result in outcome.results]
    return results, [failure for outcome in outcomes for failure in outcome.failures]


def execute(
    jobs: Sequence[Job],
    store: Store | None,
    *,
    workers: int,
    backend: str = "loky",
    scheduler: str | None = None,
    show: Show = False,
    delay: float = 2.0,
) -> list[JobOutcome]:
    """Runs jobs with progress and returns their outcomes in the order of the jobs."""
    if not jobs:
        return []
    elsewhere = remote(len(jobs), workers, backend)
    sizes, titles = [job.rounds for job in jobs], [job.title for job in jobs]
    with (
        board(sizes, titles, show, remote=elsewhere, delay=delay) as watched,
        remembered_interrupt() as check_interrupt,
    ):
        running = run_jobs(
            jobs, store, watched, workers=workers, backend=backend, scheduler=scheduler
        )
        outcomes = []
        for outcome in running:
            outcomes.append(outcome)
            check_interrupt()
        return sorted(outcomes, key=lambda outcome: outcome.index)


def _restrict(job: Job, missing: set[str]) -> Job | None:
    """The job without the cells that are there already."""
    kept = [(e, c) for e, c in zip(job.entries, job.cells) if c.key in missing]
    if not kept:
        return None
    return Job(job.task, tuple(e for e, _ in kept), tuple(c for _, c in kept))
