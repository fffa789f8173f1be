"""Runs jobs here, on several cores (joblib on loky), or on a cluster (joblib on dask)."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from dpb_gym.errors import DPBError, MissingExtraError, ParameterError
from dpb_gym.evaluation.cells import CellResult
from dpb_gym.evaluation.planning import Job
from dpb_gym.evaluation.progress import Board, Heartbeat
from dpb_gym.evaluation.runner import Failure, Lane, run_block
from dpb_gym.evaluation.store import Store

BACKENDS = ("loky", "dask")


class WorkerError(DPBError, RuntimeError):
    """A worker process died or could not be started; finished results are kept."""


@dataclass(frozen=True)
class JobOutcome:
    """What a job left.

    Attributes:
        index: Number of the job.
        results: Its cells' results; empty if they were written to a store.
        failures: Its failures, with the task they happened on.
        cells: Number of cells that are finished.
    """

    index: int
    results: tuple[CellResult, ...]
    failures: tuple[tuple[str, Failure], ...]
    cells: int


def run_job(index: int, job: Job, store: Store | None, heartbeat: Heartbeat) -> JobOutcome:
    """Runs a job's cells in lockstep, and writes their shards if there is a store."""
    outcomes = run_block(
        job.task.problem(), job.entries, job.cells[0].seeds, job.cells[0].checkpoints, heartbeat
    )
    results, failures = [], []
    for cell, outcome in zip(job.cells, outcomes):
        if isinstance(outcome, Failure):
            failures.append((job.task.name, outcome))
            continue
        result = cell_result(cell, outcome)
        if store is None:
            results.append(result)
        else:
            store.write(result)
    return JobOutcome(index, tuple(results), tuple(failures), len(outcomes) - len(failures))


def cell_result(cell: Any, lane: Lane) -> CellResult:
    """The result of a lane under its cell's configuration."""
    return CellResult(cell, lane.regret, lane.reward, lane.guarantee, lane.clipped, lane.timing)


def check_workers(workers: int | None) -> int:
    """Returns the number of workers, by default the number of usable cores.

    Raises:
        ParameterError: If it is not a positive integer.
    """
    if workers is None:
        return _cores()
    if isinstance(workers, bool) or not isinstance(workers, int) or workers < 1:
        raise ParameterError(f"workers must be an integer >= 1, got {workers!r}")
    return workers


def check_backend(backend: str, scheduler: str | None) -> str:
    """Validates backend and scheduler.

    Raises:
        ParameterError: If the backend is unknown or the scheduler does not fit it.
        MissingExtraError: If the backend's packages are not installed.
    """
    if backend not in BACKENDS:
        raise ParameterError(f"backend must be one of {', '.join(BACKENDS)}, got {backend!r}")
    if backend == "dask":
        try:
            import distributed  # noqa: F401
        except ImportError:
            raise MissingExtraError(
                "the dask backend needs the extra [dask]: pip install 'dpb-gym[dask]'"
            ) from None
        if not scheduler:
            raise ParameterError("the dask backend needs the scheduler's address (tcp://HOST:PORT)")
    elif scheduler:
        raise ParameterError(f"a scheduler belongs to the dask backend, not to {backend!r}")
    return backend


def run_jobs(
    jobs: Sequence[Job],
    store: Store | None,
    board: Board,
    *,
    workers: int = 1,
    backend: str = "loky",
    scheduler: str | None = None,
) -> Iterator[JobOutcome]:
    """Runs jobs and yields their outcomes as they finish.

    Args:
        jobs: The jobs.
        store: Where jobs write their shards; None keeps results in memory. On a cluster
            every worker must see the directory under the same path.
        board: Where they report progress.
        workers: Processes on this machine; 1 runs in this process.
        backend: ``"loky"`` or ``"dask"``.
        scheduler: Address of the dask scheduler.

    Raises:
        WorkerError: If a worker dies.
    """
    calls = [(i, job, store, board.heartbeat(i)) for i, job in enumerate(jobs)]
    if backend == "loky" and (workers == 1 or len(jobs) == 1):
        for call in calls:
            outcome = run_job(*call)
            board.finish(outcome.index)
            yield outcome
        return
    source = _dask(calls, scheduler) if backend == "dask" else _loky(calls, workers)
    for outcome in source:
        board.finish(outcome.index)
        yield outcome


def remote(jobs: int, workers: int, backend: str) -> bool:
    """Whether `run_jobs` uses other processes."""
    return backend == "dask" or (workers > 1 and jobs > 1)


def _loky(calls: list[Any], workers: int) -> Iterator[JobOutcome]:
    import joblib
    from joblib.externals.loky import get_reusable_executor
    from joblib.externals.loky.process_executor import BrokenProcessPool

    workers = min(workers, len(calls))
    try:
        with joblib.parallel_config("loky", n_jobs=workers, inner_max_num_threads=1):
            yield from _parallel(joblib, calls)
    except BrokenProcessPool as error:
        raise WorkerError(
            "a worker process died, perhaps for lack of memory. Finished results are kept: run "
            "the same command again, with fewer --workers or a smaller block"
        ) from error
    except BaseException:
        # Workers would otherwise finish their jobs after an interruption.
        get_reusable_executor().shutdown(wait=False, kill_workers=True)
        raise


def _dask(calls: list[Any], scheduler: str | None) -> Iterator[JobOutcome]:
    import distributed
    import joblib

    connect: Any = distributed.Client
    try:
        client = connect(scheduler, timeout="10s", set_as_default=False)
    except (OSError, ValueError) as error:
        raise WorkerError(f"cannot reach the dask scheduler at {scheduler}: {error}") from error
    with client, joblib.parallel_config("dask", client=client):
        yield from _parallel(joblib, calls)


def _parallel(joblib: Any, calls: list[Any]) -> Iterator[JobOutcome]:
    task: Callable[..., Any] = joblib.delayed(run_job)
    parallel = joblib.Parallel(return_as="generator_unordered", batch_size=1)
    yield from parallel(task(*call) for call in calls)


def _cores() -> int:
    if hasattr(os, "sched_getaffinity"):
        return max(1, len(os.sched_getaffinity(0)))
    return os.cpu_count() or 1
