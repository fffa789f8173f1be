"""Files with the state of unfinished jobs, so that an interrupted run loses a minute at most.

A job that runs longer than `SAVE_SECONDS` writes its state at such intervals: the round, the
environment's stream, and every agent as in a checkpoint (`dpb_gym.checkpoint`). The same command
continues from there, with the same bits, and the file is removed when the job's cells are stored.
Agents continue in the same process or in another one, on the same customers and with the same
noise, so that no second release exists.

The file is a line with a SHA-256 hash and plain state (`dpb_gym.state`). It is read only with the
same versions of Python and of the packages that can change a number. Jobs whose state is no data
begin again: isolated ones, environments of other packages, and agents whose attributes cannot be
saved.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from dpb_gym import state
from dpb_gym.checkpoint import MOST_BYTES
from dpb_gym.errors import DPBError
from dpb_gym.results.storage import UNFINISHED, DamagedResult, Storage, warn
from dpb_gym.suites import provenance
from dpb_gym.suites.spec import Cell
from dpb_gym.validation import slug

SAVE_SECONDS = 30.0
"""Seconds between two saves of a job."""
LARGEST_SHARE = 0.05
"""Largest share of a job's time that saving may take; large states are saved less often."""
STRETCH_SHARE = 0.25
"""Largest share of the interval that agents may play before the next look at the clock."""


def state_file(cell: Cell) -> str:
    """Return the name of the file with the state of a cell's job."""
    return f"{UNFINISHED}/{slug(cell.task.name)}-r{cell.start:04d}-{cell.stop - 1:04d}.state"


class JobState:
    """The state of one job in a result directory.

    Args:
        place: The result directory.
        cell: One of the job's cells.
        seconds: Time between two saves.

    Attributes:
        saved: State of cells by key, the round and the streams; empty without a readable file.
    """

    def __init__(self, place: Storage, cell: Cell, seconds: float) -> None:
        self.place, self.name = place, state_file(cell)
        self._seconds = self._wait = seconds
        self._last = time.monotonic()
        self._off = False
        self.saved: dict[str, Any] = self._read()

    def _read(self) -> dict[str, Any]:
        try:
            content = self.place.read(self.name, MOST_BYTES)
        except FileNotFoundError:
            return {}
        except DamagedResult as error:
            warn(f"{error}; its job begins again")
            return {}
        line, _, payload = content.partition(b"\n")
        try:
            if hashlib.sha256(payload).hexdigest().encode() != line:
                raise DamagedResult(f"{self.place.at(self.name)} is damaged")
            snapshot: dict[str, Any] = state.loads(payload)
        except DPBError as error:
            warn(f"{error}; its job begins again")
            return {}
        if snapshot["versions"] != provenance.versions():
            warn(f"{self.place.at(self.name)} is of other versions; its job begins again")
            return {}
        return snapshot

    def of(self, cells: Sequence[Cell]) -> tuple[Cell, ...]:
        """Return the cells whose state was saved."""
        return tuple(cell for cell in cells if cell.key in self.saved.get("cells", {}))

    def most(self, rounds: int, seconds: float) -> int:
        """Return how many rounds to play before the next look at the clock.

        Args:
            rounds: Rounds played last.
            seconds: Time that they took.
        """
        if self._off:
            return 1 << 62
        return max(1, int(STRETCH_SHARE * self._seconds * rounds / max(seconds, 1e-9)))

    def save(self, collected: Callable[[], Mapping[str, Any] | None]) -> None:
        """Write the state if the interval has passed.

        A state that is no data, or cannot be written, is not saved again; a warning says so.

        Args:
            collected: Returns the state; None if it cannot be saved.

        Raises:
            ResultError: If the place was deleted or taken over by another run.
        """
        start = time.monotonic()
        if self._off or start - self._last < self._wait:
            return
        self.place.check()
        try:
            snapshot = collected()
            if snapshot is not None:
                payload = state.dumps({"versions": provenance.versions(), **snapshot})
                digest = hashlib.sha256(payload).hexdigest().encode()
                self.place.write(self.name, digest + b"\n" + payload)
        except DPBError as error:
            warn(f"{self.name} is not saved, so that its job would begin again: {error}")
            snapshot = None
        self._off = snapshot is None
        self._last = time.monotonic()
        self._wait = max(self._seconds, (self._last - start) / LARGEST_SHARE)

    def remove(self) -> None:
        """Remove the file, after the job's cells were stored."""
        self.place.remove(self.name)
