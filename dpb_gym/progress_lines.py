"""Lines on the standard error that name the current step of a slow operation."""

from __future__ import annotations

import contextlib
import shutil
import sys
import time
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from threading import Event, Thread
from typing import Any

LISTENER: ContextVar[Callable[[str], Any] | None] = ContextVar("LISTENER", default=None)
"""Called with each step of the current operation, see `step`."""
ANNOUNCER: ContextVar[Callable[[str], Any] | None] = ContextVar("ANNOUNCER", default=None)
"""Called with each intermediate answer, see `announce`."""
TERMINAL_SECONDS = (0.5, 1.0)
"""Seconds before the first line and between lines. Imports may precede the first line."""
LOG_SECONDS = (2.0, 4.0)
"""The same where the lines go to a file."""


def step(what: str) -> None:
    """Report the next step to the registered listener, if any."""
    listener = LISTENER.get()
    if listener is not None:
        listener(what)


def announce(text: str) -> None:
    """Report an intermediate answer: a line of its own, or a step for a listening function."""
    show = ANNOUNCER.get()
    if show is not None:
        show(text)


def share_played(what: str, say: Callable[[str], Any]) -> Callable[[int, int], Any]:
    """Return a function of (rounds done, rounds in all) that reports the share as a step."""
    return lambda done, of: say(
        f"{what}, {done / of:.0%} played" if done else f"{what}, loading or compiling kernels"
    )


@contextlib.contextmanager
def progress_lines(
    name: str, progress: bool | Callable[[str], Any] | None = None
) -> Iterator[Callable[[str], Any]]:
    """Yield a function that reports the current step; steps of inner operations are reported too.

    Args:
        name: Name of the operation, the beginning of each line.
        progress: True or None for lines on standard error, one that changes on a terminal and a
            line every four seconds elsewhere; False for silence; or a function that is called with
            each step. An inner operation reports to the outer one instead of writing lines.
    """
    outer = LISTENER.get()
    if outer is not None and progress in (True, None):
        yield outer
        return
    start = time.monotonic()
    done = Event()
    current = [name]

    def say(what: str) -> None:
        current[0] = f"{name}: {what}"
        if callable(progress):
            progress(what)

    def watch() -> None:
        terminal = sys.stderr.isatty()
        width = shutil.get_terminal_size().columns - 1
        seconds, later = TERMINAL_SECONDS if terminal else LOG_SECONDS
        line = ""
        while not done.wait(seconds):
            line = f"{current[0]} ({time.monotonic() - start:.0f} s so far)"
            shown = f"\r{line[:width]:{width}}" if terminal else f"{line}\n"
            print(shown, end="", file=sys.stderr, flush=True)
            seconds = later
        if terminal and line:
            print(f"\r{'':{width}}\r", end="", file=sys.stderr, flush=True)

    def show(text: str) -> None:
        erased = f"\r{'':{shutil.get_terminal_size().columns - 1}}\r" if sys.stderr.isatty() else ""
        print(f"{erased}{name}: {text}", file=sys.stderr, flush=True)

    watching = Thread(target=watch, daemon=True)
    if progress in (True, None):
        watching.start()
    token = LISTENER.set(say)
    shown = ANNOUNCER.set(progress if callable(progress) else None if progress is False else show)
    try:
        yield say
    finally:
        LISTENER.reset(token)
        ANNOUNCER.reset(shown)
        done.set()
        if watching.ident:
            watching.join()
