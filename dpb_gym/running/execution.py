"""Execution of plans: in this process, on several cores (joblib, loky) or a cluster (dask)."""

from __future__ import annotations

import contextlib
import os
import signal
import threading
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from functools import cache, partial
from pathlib import Path
from types import FrameType
from typing import Any, TypeAlias

from dpb_gym import validation
from dpb_gym.errors import DPBError, ParameterError, optional_module
from dpb_gym.kernel_cache import compilations
from dpb_gym.results.cell_result import CellResult, Failure
from dpb_gym.results.parquet import cell_file
from dpb_gym.results.result_directory import ResultDirectory, keep
from dpb_gym.results.storage import CELLS, Storage
from dpb_gym.running import unfinished
from dpb_gym.running.agent_checks import checked
from dpb_gym.running.callbacks import Callback, listening, replay
from dpb_gym.running.plan import Job, TaskPlan, make_jobs
from dpb_gym.running.progress import Report, Show, board
from dpb_gym.running.runner import run_block
from dpb_gym.running.unfinished import JobState, state_file
from dpb_gym.suites.provenance import command_line
from dpb_gym.suites.spec import Cell
from dpb_gym.suites.suite import Suite

WATCH_SECONDS = 0.5
POLL_SECONDS = 0.05
FETCH_SECONDS = 2.0
LOST_SECONDS = 45.0
"""Seconds without progress after which a cluster is given up."""
SETTLED_SECONDS = 15.0
"""Seconds after which a worker counts as stable."""
LOST = "the dask cluster is lost"


class WorkerError(DPBError, RuntimeError):
    """A worker process died or could not be started; finished results are kept."""


Outcome: TypeAlias = CellResult | Failure
Done: TypeAlias = tuple[int, list[Outcome]]
"""Number of a job and the outcomes of its cells."""


@dataclass(frozen=True)
class RunReport:
    """Summary of a run.

    Attributes:
        store: The result directory.
        keys: Keys of the plan's cells.
        computed: Cells computed in this run.
        failures: The cells that failed.
        rounds: Agent rounds of the jobs of this run, also those that an interrupted run had
            played and saved.
        seconds: Wall time.
    """

    store: ResultDirectory
    keys: tuple[str, ...]
    computed: int
    failures: tuple[Failure, ...]
    rounds: int
    seconds: float

    @property
    def path(self) -> Path | str:
        """Path of the result directory, or its address."""
        return self.store.path

    @property
    def cells(self) -> int:
        """Cells of the plan."""
        return len(self.keys)

    @property
    def skipped(self) -> int:
        """Cells that had been computed before."""
        return self.cells - self.computed - len(self.failures)

    def results(self) -> list[CellResult]:
        """Return the plan's results, in its order, read from the directory.

        Raises:
            ResultError: If a result is damaged.
        """
        stored = {result.cell.key: result for result in self.store.results()}
        return [stored[key] for key in self.keys if key in stored]


def run_plan(
    suite: Suite,
    plans: Sequence[TaskPlan],
    out: str | os.PathLike[str],
    *,
    replicates: int | None = None,
    workers: int | None = None,
    backend: str = "loky",
    scheduler: str | None = None,
    show: Show = False,
    callbacks: Sequence[Callback] = (),
    isolate: bool = False,
) -> RunReport:
    """Run a plan and store its results; cells that are already stored are skipped.

    Private agents of other packages that have cells to run are checked first, see `checked`.

    Args:
        suite: The suite.
        plans: The agents of each task; see `plan_suite`.
        out: The result directory; created or resumed.
        replicates: Overrides the suite's number.
        workers: Processes; the number of usable cores by default.
        backend: ``"loky"`` or ``"dask"``.
        scheduler: Address of the dask scheduler.
        show: Progress; see `dpb_gym.running.progress.board`.
        callbacks: See `dpb_gym.running.callbacks`; called for the cells computed in this run.
        isolate: See `evaluate`.

    Raises:
        ResultError: If the directory belongs to another suite, is in use or not writable.
        ParameterError: If an argument is invalid or no agent takes part.
        DataError: If data are missing.
        WorkerError: If a worker dies.
    """
    workers = check_backend(workers, backend, scheduler)
    for plan in plans:  # report errors before a long run starts
        if plan.runs and plan.problem is None:
            plan.task.problem()
        for one in plan.runs:
            if not isolate:
                one.spec.make()
    jobs = make_jobs(suite, plans, replicates, isolate=isolate)
    if not jobs:
        raise ParameterError(f"no agent takes part in suite {suite.name!r}: nothing to run")
    cells = [cell for job in jobs for cell in job.cells]
    run = {
        "command": command_line(),
        "workers": workers,
        "backend": backend,
        "replicates": replicates or suite.replicates,
        "isolated": isolate,
        "agents": list(dict.fromkeys(cell.agent.label for cell in cells)),
    }
    start = time.monotonic()
    with ResultDirectory.writing(out, suite, run) as store:
        missing = {cell.key for cell in store.prepare(cells)}
        left = [tuple(cell for cell in job.cells if cell.key in missing) for job in jobs]
        todo = [replace(job, cells=cells) for job, cells in zip(jobs, left) if cells]
        todo, refused = checked(todo, show)
        outcomes = execute(
            todo, store.place, workers=workers, backend=backend, scheduler=scheduler, show=show,
            callbacks=callbacks,
        )  # fmt: skip
        failed = tuple(outcome for outcome in outcomes if isinstance(outcome, Failure))
        failures = (*refused, *failed)
        report = RunReport(
            store,
            tuple(cell.key for cell in cells),
            len(missing) - len(failures),
            failures,
            sum(job.rounds for job in todo),
            time.monotonic() - start,
        )
        run.update(
            cells=report.cells,
            computed=report.computed,
            failures=[str(failure) for failure in failures],
            rounds=report.rounds,
            wall_seconds=round(report.seconds, 3),
        )
    return report


def execute(
    jobs: Sequence[Job],
    place: Storage | None,
    *,
    workers: int,
    backend: str = "loky",
    scheduler: str | None = None,
    show: Show = False,
    callbacks: Sequence[Callback] = (),
) -> list[Outcome]:
    """Run jobs with progress and return the outcomes of their cells, in the order of the jobs.

    Args:
        jobs: The jobs.
        place: Where jobs write their results, so that only failures are returned; None keeps
            results in memory. Every worker of a cluster must reach it under the same address.
        workers: Processes on this machine; 1 runs in this process. The other arguments are
            those of `run_plan`.

    Raises:
        WorkerError: If a worker dies.
    """
    if not jobs:
        return []
    elsewhere = backend == "dask" or (workers > 1 and len(jobs) > 1)
    if elsewhere and place is not None and not place.shared:
        raise ParameterError(f"workers do not see {place}, this process's memory: workers=1")
    done: dict[int, list[Outcome]] = {}
    with (
        board(jobs, show) as watched,
        listening(callbacks) if callbacks else nullcontext() as notify,
        remembered_interrupt() as check_interrupt,
    ):
        beats = [watched.heartbeat(i) if watched is not None else None for i in range(len(jobs))]
        whole = place is None or (notify is not None and elsewhere)
        seconds = unfinished.SAVE_SECONDS
        calls = [
            (i, job, place, beat, whole, seconds) for i, (job, beat) in enumerate(zip(jobs, beats))
        ]
        if backend == "dask":
            source = _dask(calls, scheduler)
        elif elsewhere:
            source = in_processes(run_job, calls, workers)
        else:
            source = (run_job(*call, notify) for call in calls)
        try:
            for index, outcomes in source:
                if watched is not None:
                    watched.finish(index)
                if notify is not None and elsewhere:
                    replay(outcomes, notify)
                done[index] = outcomes
                check_interrupt()
        except KeyboardInterrupt:
            warnings.warn(kept(jobs, place), RuntimeWarning, stacklevel=2)
            raise
        except WorkerError as error:
            raise WorkerError(f"{error}. {kept(jobs, place)}") from error
    return [outcome for index in range(len(jobs)) for outcome in done[index]]


def kept(jobs: Sequence[Job], place: Storage | None) -> str:
    """Return what an interrupted run has stored, as a sentence."""
    if place is None:
        return "Nothing is kept: this run has no result directory"
    cells = [cell for job in jobs for cell in job.cells]
    try:
        files = set(place.cells())
        states = set(place.unfinished())
    except DPBError as error:  # a store that does not answer
        return f"Finished results are kept, as far as {place} has them ({error})"
    finished = sum(f"{CELLS}/{cell_file(cell)}" in files for cell in cells)
    waiting = [job for job in jobs if state_file(job.cells[0]) in states]
    text = f"Finished results are kept: {finished} of {len(cells)} cells"
    if waiting:
        saved = sum(
            f"{CELLS}/{cell_file(cell)}" not in files for job in waiting for cell in job.cells
        )
        text += f", and the last saved state of {saved} unfinished ones"
    return text


def run_job(
    index: int,
    job: Job,
    place: Storage | None,
    heartbeat: Report | None,
    whole: bool,
    save_seconds: float,
    notify: Callback | None = None,
    check: Callable[[], None] | None = None,
) -> Done:
    """Run a job's cells in lockstep and write their results if there is a place.

    A job that runs longer than `save_seconds` writes its state at such intervals, and continues
    from the state of an interrupted run. Return all outcomes if `whole`, else the failures alone.
    `check` is called with every report of progress, and ends the job by an exception.
    """
    states = None if place is None or job.isolate else JobState(place, job.cells[0], save_seconds)
    by_cell: dict[int, Outcome] = {}
    problem = job.problem or job.task.problem()
    for cells in [job.cells] if states is None else _parts(job, states):
        report = heartbeat
        if heartbeat is not None and by_cell:
            report = partial(_further, heartbeat, len(by_cell) * job.rounds // len(job.cells))
        progress = report if check is None else partial(_checked_report, check, report)
        with nullcontext() if report is None else compilations(partial(report, 0)):
            outcomes = run_block(
                problem, cells, progress, notify, job.study, isolate=job.isolate, states=states
            )
        for cell, outcome in zip(cells, outcomes):
            by_cell[id(cell)] = outcome
            if place is not None and isinstance(outcome, CellResult):
                keep(place, outcome)
    if states is not None:
        states.remove()
    outcomes = [by_cell[id(cell)] for cell in job.cells]
    return index, outcomes if whole else [o for o in outcomes if isinstance(o, Failure)]


def _parts(job: Job, states: JobState) -> list[tuple[Cell, ...]]:
    """Return the cells that continue from a saved state together, and those that begin."""
    resumed = states.of(job.cells)
    keys = {cell.key for cell in resumed}
    rest = tuple(cell for cell in job.cells if cell.key not in keys)
    return [cells for cells in (resumed, rest) if cells]


def _further(report: Report, before: int, rounds: int, *compiling: Any) -> None:
    """Report the rounds of a later part of a job."""
    report(before + rounds, *compiling)


def _checked_report(check: Callable[[], None], report: Report | None, rounds: int) -> None:
    """Check whether the job goes on, and report its rounds if somebody listens."""
    check()
    if report is not None:
        report(rounds)


def _job_on_cluster(*call: Any) -> Done:
    """Run a job on a worker of a cluster until the run that submitted it ends.

    The cluster cancels the jobs of a run that was interrupted or died, but cannot stop a thread.
    """
    import distributed

    dask: Any = distributed
    worker = dask.get_worker()
    key = worker.get_current_task()

    def check() -> None:
        task = worker.state.tasks.get(key)
        if task is None or task.state == "cancelled":
            raise WorkerError("the run that submitted this job has ended")

    run: Callable[..., Done] = partial(run_job, check=check)
    return run(*call)


def _job_of(parent: int, run: Callable[..., Any], *call: Any) -> Any:
    die_with_parent(parent)
    return run(*call)


def check_backend(workers: int | None, backend: str = "loky", scheduler: str | None = None) -> int:
    """Return the number of workers, by default the number of usable cores.

    Raises:
        ParameterError: If it is not a positive integer, the backend is unknown or the scheduler
            does not fit it.
        MissingExtraError: If the backend's packages are not installed.
    """
    validation.choice("backend", backend, ("loky", "dask"))
    if backend == "dask":
        optional_module("distributed", "the dask backend", "dask")
        if not scheduler:
            raise ParameterError("the dask backend needs the scheduler's address (tcp://HOST:PORT)")
    elif scheduler:
        raise ParameterError(f"a scheduler belongs to the dask backend, not to {backend!r}")
    if workers is None:
        usable = os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else ()
        return max(1, len(usable) or os.cpu_count() or 1)
    return validation.integer("workers", workers, 1)


def in_processes(run: Callable[..., Any], calls: Sequence[Any], workers: int) -> Iterator[Any]:
    """Yield the values of a function in the order in which processes of this machine return them.

    Args:
        run: The function.
        calls: Its arguments, per call.
        workers: Number of processes.

    Raises:
        WorkerError: If a worker dies.
    """
    import joblib
    from joblib.externals.loky import get_reusable_executor
    from joblib.externals.loky.process_executor import BrokenProcessPool

    workers = min(workers, len(calls))
    try:
        with joblib.parallel_config("loky", n_jobs=workers, inner_max_num_threads=1):
            task: Callable[..., Any] = joblib.delayed(partial(_job_of, os.getpid(), run))
            parallel = joblib.Parallel(return_as="generator_unordered", batch_size=1)
            yield from parallel(task(*call) for call in calls)
    except BrokenProcessPool as error:
        raise WorkerError(
            "a worker process died, perhaps for lack of memory: run the same command again, with "
            "fewer --workers or a smaller block"
        ) from error
    except BaseException:
        # Otherwise workers would finish their jobs after an interruption.
        get_reusable_executor().shutdown(wait=False, kill_workers=True)
        raise


def _dask(calls: list[Any], scheduler: str | None) -> Iterator[Done]:
    import distributed
    from distributed.scheduler import KilledWorker

    dask: Any = distributed
    try:
        client = dask.Client(scheduler, timeout="10s", set_as_default=False)
    except (OSError, ValueError) as error:
        raise WorkerError(f"cannot reach the dask scheduler at {scheduler}: {error}") from error
    with client:
        futures = client.map(_job_on_cluster, *zip(*calls), pure=False)
        done = dask.as_completed(futures, loop=client.loop)
        try:
            yield from _completed(client, done, len(futures))
        except (OSError, dask.CancelledError, KilledWorker) as error:
            raise WorkerError(f"{LOST}: {error or type(error).__name__}") from error
        finally:
            if client.status == "running":
                client.cancel(futures)


def _completed(client: Any, done: Any, left: int) -> Iterator[Done]:
    """Yield outcomes as they arrive. Raise WorkerError if no worker is alive for LOST_SECONDS.

    A nanny restarts a worker that ends, so a worker counts as alive only after it has stayed, or
    an outcome has arrived.
    """
    last = time.monotonic()
    there: dict[str, float] = {}
    finished: list[Any] = []
    while left:
        finished += done.next_batch(block=False)
        for future in list(finished):
            try:
                outcome = future.result(timeout=FETCH_SECONDS)
            except TimeoutError:  # its worker died; it is submitted again
                continue
            finished.remove(future)
            left -= 1
            yield outcome
            last = time.monotonic()
        running = client.status == "running"
        now = time.monotonic()
        workers = client.scheduler_info()["workers"] if running else ()
        there = {worker: there.get(worker, now) for worker in workers}
        if there and now - min(there.values()) >= SETTLED_SECONDS:
            last = now
        elif now - last > LOST_SECONDS + (SETTLED_SECONDS if there else 0.0):
            who = "it has no workers that stay" if running else "it does not answer"
            raise WorkerError(f"{LOST}: {who}, since {now - last:.0f} s")
        time.sleep(POLL_SECONDS)


@contextlib.contextmanager
def remembered_interrupt() -> Iterator[Callable[[], None]]:
    """Remember a Ctrl-C and yield a function that raises `KeyboardInterrupt` after one.

    Python drops the exception if the signal arrives inside a finaliser (``__del__``); a check
    between two jobs still raises it. SIGTERM is treated alike.
    """
    seen = threading.Event()

    def remember(number: int, frame: FrameType | None) -> None:
        seen.set()
        signal.default_int_handler(number, frame)

    def check() -> None:
        if seen.is_set():
            raise KeyboardInterrupt

    # Only the main thread handles signals; a handler of the caller stays in place.
    usual: dict[int, Any] = {
        signal.SIGINT: signal.default_int_handler,
        signal.SIGTERM: signal.SIG_DFL,
    }
    main = threading.current_thread() is threading.main_thread()
    ours = [number for number, own in usual.items() if main and signal.getsignal(number) is own]
    for number in ours:
        signal.signal(number, remember)
    try:
        yield check
    finally:
        for number in ours:
            signal.signal(number, usual[number])


@cache
def die_with_parent(parent: int) -> None:
    """End this worker soon after its parent process has ended, for whatever reason."""

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(WATCH_SECONDS)
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()
