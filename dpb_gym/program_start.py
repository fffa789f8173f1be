"""Ctrl-C while the program ``dpb`` imports its modules, before its own handling of errors."""

from __future__ import annotations

import os
import signal
import sys
import threading
from itertools import pairwise
from pathlib import Path

INTERRUPTED = 130
"""Exit status after Ctrl-C."""


def is_program() -> bool:
    """Return whether this process is ``dpb`` or ``python -m dpb_gym``."""
    return Path(sys.argv[0]).stem == "dpb" or ("-m", "dpb_gym") in pairwise(sys.orig_argv)


def exit_on_interruption() -> None:
    """Exit without a traceback at Ctrl-C, if this process is the program.

    Other programs and a changed handler are left alone. Nothing is open yet, so nothing is lost.
    """
    if is_program() and _replaces(signal.default_int_handler):
        signal.signal(signal.SIGINT, _exit)


def raise_on_interruption() -> None:
    """Restore Python's handler, which raises KeyboardInterrupt."""
    if _replaces(_exit):
        signal.signal(signal.SIGINT, signal.default_int_handler)


def _replaces(handler: object) -> bool:
    main = threading.current_thread() is threading.main_thread()
    return main and signal.getsignal(signal.SIGINT) is handler


def _exit(*_: object) -> None:
    os.write(2, b"dpb: interrupted\n")
    os._exit(INTERRUPTED)
