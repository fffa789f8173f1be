"""Tapes: numbers that a session gets from outside, recorded so that it can be repeated.

A session is a function of its calls, but for system noise and for admissions by an account. A
service that crashes repeats its calls. Other noise on the same records would be a second release
of them. So a tape records these numbers, and the repetition takes them from the tape.
"""

from __future__ import annotations

from collections.abc import Callable
from contextvars import ContextVar
from typing import Any

import numpy as np

from dpb_gym.errors import CheckpointError
from dpb_gym.validation import FloatArray

NONE: FloatArray = np.empty(0)
_running: ContextVar[Tape | None] = ContextVar("dpb_gym_tape", default=None)


class Tape:
    """Numbers in the order in which they are asked for; a context manager.

    What is asked for in its block is recorded or repeated.

    Args:
        recorded: Bytes of an earlier tape, which is repeated; None: a new tape records.

    Raises:
        CheckpointError: At the end of its block, if numbers are left over.
    """

    def __init__(self, recorded: bytes | None = None) -> None:
        self.repeats = recorded is not None
        self._recorded = np.frombuffer(recorded, "<f8") if recorded else NONE
        self._taken = 0
        self._parts: list[bytes] = []

    def __bytes__(self) -> bytes:
        """Return the numbers that were recorded, as float64, least significant byte first."""
        return b"".join(self._parts)

    def __enter__(self) -> Tape:
        self._token = _running.set(self)
        return self

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        _running.reset(self._token)
        left = len(self._recorded) - self._taken
        if error is None and left > 0:
            raise CheckpointError(f"{left} recorded numbers are left over")

    def next(self, count: int, draw: Callable[[], Any]) -> FloatArray:
        """Return the next numbers; see `external`."""
        if not self.repeats:
            drawn = np.asarray(draw(), np.float64).reshape(count)
            self._parts.append(drawn.astype("<f8").tobytes())
            return drawn
        start = self._taken
        self._taken += count
        if self._taken > len(self._recorded):
            raise CheckpointError("more numbers are needed than were recorded")
        return self._recorded[start : self._taken].astype(np.float64)


def external(count: int, draw: Callable[[], Any]) -> FloatArray:
    """Return numbers from outside, or those of the tape that runs.

    Args:
        count: How many.
        draw: Returns `count` numbers, in any shape.

    Returns:
        A float64 array ``(count,)``.

    Raises:
        CheckpointError: If a tape that is repeated has no more numbers.
    """
    tape = _running.get()
    if tape is None:
        return np.asarray(draw(), np.float64).reshape(count)
    return tape.next(count, draw)


def repeating() -> bool:
    """Return whether a tape is repeated now, so that nothing is released or charged again."""
    tape = _running.get()
    return tape is not None and tape.repeats
