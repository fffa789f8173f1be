"""Progress of jobs in this and other processes, on a terminal, in a notebook or in a log.

Jobs report through small files, which works for every backend with a shared file system. Without
one, progress is counted in finished jobs.
"""

from __future__ import annotations

import contextlib
import shutil
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from html import escape
from pathlib import Path
from typing import Any, TypeAlias, cast

Report: TypeAlias = Callable[..., None]
"""Called with a job's rounds so far; while compiling, also with the number of kernels compiled so
far, that number with those left, and the name of the kernel that is being compiled."""
Show: TypeAlias = bool | Callable[[int, int], Any] | None
"""How progress is shown; see `board`."""

POLL_SECONDS = 0.25
LOG_SECONDS = 5.0
ASKED_SECONDS = 0.5
"""Seconds before progress is shown where it was asked for."""
UNASKED_SECONDS = 1.0
"""Seconds before progress is shown elsewhere."""


class Watch:
    """Sum of the rounds that jobs report, and their speed without compilation.

    Args:
        sizes: Agent rounds of each job.
        folder: Folder of the reports, one file per job.
    """

    def __init__(self, sizes: Sequence[int], folder: Path) -> None:
        self.sizes = list(sizes)
        self.done = [0] * len(self.sizes)
        self.finished = [False] * len(self.sizes)
        self.folder = folder
        self.compiled = [(0, 0)] * len(self.sizes)
        self.compiling: dict[int, str] = {}
        self.last, self.before = time.monotonic(), 0
        self.seconds, self.rounds = 0.0, 0

    def heartbeat(self, job: int) -> Report:
        """Return the function that a job calls with its rounds so far, in any process."""
        return partial(_write, self.folder / str(job))

    def finish(self, job: int) -> None:
        """Mark a job as done."""
        self.done[job] = self.sizes[job]
        self.finished[job] = True
        self.compiling.pop(job, None)

    def poll(self) -> int:
        """Read the heartbeats and return the rounds done by all jobs."""
        for path in self.folder.iterdir():
            job = int(path.name)
            if not self.finished[job]:
                with contextlib.suppress(OSError, ValueError):
                    rounds, compiled, needed, kernel = path.read_text("ascii").split(" ")
                    self.done[job] = max(self.done[job], min(int(rounds), self.sizes[job]))
                    self.compiled[job] = max(self.compiled[job], (int(compiled), int(needed)))
                    self.compiling[job] = kernel
        now = time.monotonic()
        done = sum(self.done)
        if self.before and not any(self.compiling.values()):
            self.seconds += now - self.last
            self.rounds += done - self.before
        self.last, self.before = now, done
        return done

    def summary(self) -> str:
        """Return one line: share done, rounds per second and the remaining time.

        The last two are known when 1% of all rounds has been played without compilation. While
        kernels are compiled, the line names one of them instead, and counts those known so far.
        """
        done = self.poll()
        total = sum(self.sizes)
        share = 100.0 * done / total if total else 100.0
        jobs = f"{sum(self.finished)}/{len(self.sizes)} jobs"
        if kernels := sorted(filter(None, self.compiling.values())):
            compiled, needed = map(sum, zip(*self.compiled))
            return (
                f"{share:3.0f}%  {jobs}, compiling {compiled + 1} of {needed} kernels: {kernels[0]}"
            )
        if self.rounds < 0.01 * total:
            return f"{share:3.0f}%  {jobs}"
        speed = self.rounds / max(self.seconds, 1e-9)
        rest = f", {duration((total - done) / speed)} left" if done < total else ""
        return f"{share:3.0f}%  {jobs}, {speed:,.0f} rounds/s{rest}"


def _write(path: Path, rounds: int, compiled: int = 0, needed: int = 0, kernel: str = "") -> None:
    with contextlib.suppress(OSError):
        path.write_text(f"{rounds} {compiled} {needed} {kernel}", encoding="ascii")


def duration(seconds: float) -> str:
    """Return a duration as text, e.g. ``"1 min 20 s"``."""
    whole = max(0, round(seconds))
    if whole < 60:
        return f"{whole} s"
    minutes, rest = divmod(whole, 60)
    if minutes < 60:
        return f"{minutes} min {rest} s"
    return f"{minutes // 60} h {minutes % 60} min"


@contextlib.contextmanager
def board(jobs: Sequence[Any], show: Show) -> Iterator[Watch | None]:
    """Show progress while the context is active; yield None if nothing is shown.

    Args:
        jobs: The jobs; `title` is the name of a job, `rounds` its number of agent rounds.
        show: False for silence; True for bars on a terminal or in a notebook and log lines
            elsewhere, on the standard error; None for bars or silence; or a function of (rounds
            done, rounds in all).
    """
    shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    if callable(show):
        draw: Callable[..., None] = partial(_told, show)
    elif show is not False and hasattr(shell, "kernel"):
        draw = _notebook
    elif show is not False and sys.stderr.isatty():
        draw = _bars
    elif show:
        draw = _log
    else:
        yield None
        return
    folder = Path(tempfile.mkdtemp(prefix="dpb-progress-"))
    watched = Watch([job.rounds for job in jobs], folder)
    stop = threading.Event()
    delay = 0.0 if callable(show) else ASKED_SECONDS if show else UNASKED_SECONDS
    words = watched, [job.title for job in jobs], _polls(stop, delay)
    thread = threading.Thread(target=draw, args=words, daemon=True)
    thread.start()
    try:
        yield watched
    finally:
        stop.set()
        thread.join(timeout=5.0)
        shutil.rmtree(folder, ignore_errors=True)


def _polls(stop: threading.Event, delay: float) -> Iterator[bool]:
    """Yield at every poll, and once at the end; never in runs shorter than the delay."""
    if not delay or not stop.wait(delay):
        while not stop.wait(POLL_SECONDS):
            yield True
        yield True


def _told(
    callback: Callable[[int, int], Any], board: Watch, titles: list[str], polls: Iterator[bool]
) -> None:
    for _ in polls:
        callback(board.poll(), sum(board.sizes))


def _notebook(board: Watch, titles: list[str], polls: Iterator[bool]) -> None:
    """Show bars for all rounds and for each running job in a notebook; keep the last summary."""
    from IPython.display import display

    show = cast(Any, display)
    shown = None
    for _ in polls:
        summary = board.summary()
        lines = [(sum(board.done), sum(board.sizes), summary)]
        lines += [line for line in zip(board.done, board.sizes, titles) if 0 < line[0] < line[1]]
        bars = (
            f"<progress value='{done}' max='{size}'></progress> {escape(text)}<br>"
            for done, size, text in lines
        )
        said = {"text/plain": summary, "text/html": "".join(bars)}
        shown = shown or show(said, raw=True, display_id=True)
        shown.update(said, raw=True)


def _log(board: Watch, titles: list[str], polls: Iterator[bool]) -> None:
    """Write log lines at intervals and whenever a job is finished."""
    shown: set[int] = set()
    last = time.monotonic()
    for _ in polls:
        new = [i for i, finished in enumerate(board.finished) if finished and i not in shown]
        shown.update(new)
        if new or time.monotonic() - last >= LOG_SECONDS:
            last = time.monotonic()
            what = f"  (done: {', '.join(titles[i] for i in new)})" if new else ""
            print(f"{board.summary()}{what}", file=sys.stderr, flush=True)


def _bars(board: Watch, titles: list[str], polls: Iterator[bool]) -> None:
    """Show bars for all rounds and for each running job on a terminal."""
    if not next(polls, False):  # most runs end before rich is imported
        return
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn

    columns = TextColumn("{task.description}"), BarColumn(), TextColumn("{task.fields[said]}")
    with Progress(*columns, console=Console(stderr=True), transient=True) as bars:
        total = bars.add_task("all jobs", total=sum(board.sizes), said="")
        rows: dict[int, Any] = {}
        for _ in polls:
            said = board.summary()
            bars.update(total, completed=sum(board.done), said=said)
            for job, rounds in enumerate(board.done):
                if board.finished[job]:
                    if job in rows:
                        bars.remove_task(rows.pop(job))
                elif rounds and job not in rows:
                    rows[job] = bars.add_task(titles[job], total=board.sizes[job], said="")
                if job in rows:
                    share = f"{rounds / board.sizes[job]:4.0%}"
                    bars.update(rows[job], completed=rounds, said=share)
