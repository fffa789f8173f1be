"""Progress over jobs, in this process and in others, on a terminal, in a notebook or in a log.

Jobs report through small files, because that works for every backend that shares a file
system; where it does not, progress is by finished jobs.
"""

from __future__ import annotations

import contextlib
import shutil
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from html import escape
from pathlib import Path
from typing import Any, Protocol, TypeAlias, cast

Report: TypeAlias = Callable[[int], None]
Show: TypeAlias = bool | Callable[[int, int], Any]
POLL_SECONDS = 0.25
LOG_SECONDS = 10.0


class Piece(Protocol):
    """What is shown of a job: its title, and how many agent rounds it has."""

    @property
    def rounds(self) -> int: ...
    @property
    def title(self) -> str: ...


class Heartbeat:
    """Picklable reporter of one job: keeps the number of rounds done in a file.

    Args:
        path: The file; None reports nowhere.
        report: Called instead, in the same process.
    """

    def __init__(self, path: str | None, report: Report | None = None) -> None:
        self.path = path
        self.report = report

    def __call__(self, rounds: int) -> None:
        """Reports the rounds done by this job so far."""
        if self.report is not None:
            self.report(rounds)
        elif self.path is not None:
            with contextlib.suppress(OSError):
                Path(self.path).write_text(str(rounds), encoding="ascii")


class Watch:
    """Adds up what the jobs report.

    Args:
        sizes: Agent rounds of each job.
        folder: Where the heartbeats lie, None if every job runs in this process.
    """

    def __init__(self, sizes: Sequence[int], folder: str | None) -> None:
        self.sizes = list(sizes)
        self.done = [0] * len(self.sizes)
        self.finished = [False] * len(self.sizes)
        self.folder = folder
        self.started = time.monotonic()

    def heartbeat(self, job: int) -> Heartbeat:
        """The reporter of a job."""
        if self.folder is not None:
            return Heartbeat(str(Path(self.folder) / str(job)))

        def report(rounds: int) -> None:
            self.done[job] = min(rounds, self.sizes[job])

        return Heartbeat(None, report)

    def finish(self, job: int) -> None:
        """Marks a job as done."""
        self.done[job] = self.sizes[job]
        self.finished[job] = True

    def poll(self) -> int:
        """Reads the heartbeats and returns the rounds done by all jobs."""
        if self.folder is not None:
            for job, finished in enumerate(self.finished):
                if finished:
                    continue
                with contextlib.suppress(OSError, ValueError):
                    text = (Path(self.folder) / str(job)).read_text(encoding="ascii")
                    if not self.finished[job]:
                        self.done[job] = min(int(text), self.sizes[job])
        return sum(self.done)

    def summary(self) -> str:
        """One line: share, rounds per second, time left."""
        done, total = self.poll(), sum(self.sizes)
        elapsed = time.monotonic() - self.started
        speed = done / elapsed if elapsed > 0 else 0.0
        left = (total - done) / speed if speed > 0 else float("nan")
        share = 100.0 * done / total if total else 100.0
        jobs = f"{sum(self.finished)}/{len(self.sizes)} jobs"
        rest = "" if done == total or speed == 0 else f", {duration(left)} left"
        return f"{share:3.0f}%  {jobs}, {speed:,.0f} rounds/s{rest}"


def duration(seconds: float) -> str:
    """A duration in words, e.g. ``"1 min 20 s"``."""
    whole = max(0, round(seconds))
    if whole < 60:
        return f"{whole} s"
    minutes, rest = divmod(whole, 60)
    if minutes < 60:
        return f"{minutes} min {rest} s"
    return f"{minutes // 60} h {minutes % 60} min"


@contextlib.contextmanager
def board(
    jobs: Sequence[Piece],
    show: Show,
    *,
    remote: bool,
    delay: float = 2.0,
) -> Iterator[Watch]:
    """Shows progress while its block runs.

    Args:
        jobs: The jobs.
        show: False for silence; True for bars on a terminal or in a notebook and log lines
            elsewhere, on the standard error; or a function of (rounds done, rounds in all).
        remote: Whether jobs run in other processes.
        delay: Seconds before anything is shown: short runs stay silent.
    """
    folder = tempfile.mkdtemp(prefix="dpb-progress-") if remote and show else None
    watched = Watch([job.rounds for job in jobs], folder)
    titles = [job.title for job in jobs]
    stop = threading.Event()
    thread = None
    if show:
        target = _choose(show)
        thread = threading.Thread(target=target, args=(watched, titles, stop, delay))
        thread.daemon = True
        thread.start()
    try:
        yield watched
    finally:
        stop.set()
        if thread is not None:
            thread.join(timeout=5.0)
        if folder is not None:
            shutil.rmtree(folder, ignore_errors=True)


def _choose(show: Show) -> Callable[..., None]:
    if callable(show):
        callback = show

        def call(board: Watch, titles: list[str], stop: threading.Event, delay: float) -> None:
            total = sum(board.sizes)
            while not stop.wait(POLL_SECONDS):
                callback(board.poll(), total)
            callback(board.poll(), total)

        return call
    if in_notebook():
        return _notebook
    return _bars if sys.stderr.isatty() else _log


def in_notebook() -> bool:
    """Whether this process is the kernel of a notebook."""
    shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    return hasattr(shell, "kernel")


def show_by_default(progress: Show | None) -> Show:
    """What `board` is to show: by default bars, where there is a terminal or a notebook."""
    return sys.stderr.isatty() or in_notebook() if progress is None else progress


class _Bars:
    """What a notebook shows while jobs run: one bar for all rounds and one per running job."""

    def __init__(self, watched: Watch, titles: Sequence[str]) -> None:
        self.watched, self.titles = watched, titles

    def __repr__(self) -> str:
        return self.watched.summary()

    def _repr_html_(self) -> str:
        summary, watched = self.watched.summary(), self.watched
        lines = [(sum(watched.done), sum(watched.sizes), summary)]
        for done, size, title in zip(watched.done, watched.sizes, self.titles):
            if 0 < done < size:
                lines.append((done, size, title))
        bars = (
            f"<progress value='{done}' max='{size}'></progress> {escape(text)}<br>"
            for done, size, text in lines
        )
        return "".join(bars)


def _notebook(board: Watch, titles: list[str], stop: threading.Event, delay: float) -> None:
    """Bars in the output of a notebook's cell; the last summary stays."""
    if stop.wait(delay):
        return
    from IPython.display import display

    bars, show = _Bars(board, titles), cast(Any, display)
    shown = show(bars, display_id=True)
    while not stop.wait(POLL_SECONDS):
        shown.update(bars)
    shown.update(bars)


def _log(board: Watch, titles: list[str], stop: threading.Event, delay: float) -> None:
    """Lines for logs: now and then, and whenever a job is finished."""
    shown: set[int] = set()
    last = time.monotonic()
    waiting = not stop.wait(delay)
    while waiting:
        new = [i for i, finished in enumerate(board.finished) if finished and i not in shown]
        shown.update(new)
        if new or time.monotonic() - last >= LOG_SECONDS:
            last = time.monotonic()
            what = f"  (done: {', '.join(titles[i] for i in new)})" if new else ""
            print(f"{board.summary()}{what}", file=sys.stderr, flush=True)
        waiting = not stop.wait(POLL_SECONDS)


def _bars(board: Watch, titles: list[str], stop: threading.Event, delay: float) -> None:
    """One bar for all rounds and one per running job."""
    if stop.wait(delay):
        return
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        Progress,
        TaskProgressColumn,
        TextColumn,
        TimeRemainingColumn,
    )

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TaskProgressColumn(),
        TextColumn("{task.fields[speed]}"),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True) as bars:
        total = bars.add_task("all jobs", total=sum(board.sizes), speed="")
        rows: dict[int, Any] = {}
        while not stop.wait(POLL_SECONDS):
            done = board.poll()
            elapsed = time.monotonic() - board.started
            bars.update(total, completed=done, speed=f"{done / elapsed:,.0f} rounds/s")
            for job, rounds in enumerate(board.done):
                if board.finished[job]:
                    if job in rows:
                        bars.remove_task(rows.pop(job))
                elif rounds and job not in rows:
                    rows[job] = bars.add_task(titles[job], total=board.sizes[job], speed="")
                if job in rows:
                    bars.update(rows[job], completed=rounds)
