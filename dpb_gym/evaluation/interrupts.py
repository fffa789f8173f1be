"""Ctrl-C that is not lost."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Callable, Iterator
from types import FrameType


@contextlib.contextmanager
def remembered_interrupt() -> Iterator[Callable[[], None]]:
    """Remembers a Ctrl-C, and gives a function that raises `KeyboardInterrupt` after one.

    Python drops the exception when the signal happens to arrive inside a finaliser
    (``__del__``); whoever asks between two jobs still learns of it.
    """
    seen = threading.Event()

    def remember(number: int, frame: FrameType | None) -> None:
        seen.set()
        signal.default_int_handler(number, frame)

    def check() -> None:
        if seen.is_set():
            raise KeyboardInterrupt

    # Signals are the main thread's, and a handler of the caller's own stays in place.
    ours = (
        threading.current_thread() is threading.main_thread()
        and signal.getsignal(signal.SIGINT) is signal.default_int_handler
    )
    if ours:
        signal.signal(signal.SIGINT, remember)
    try:
        yield check
    finally:
        if ours:
            signal.signal(signal.SIGINT, signal.default_int_handler)
