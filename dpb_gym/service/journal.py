"""A journal: what happened to a session since its last snapshot, one line for each event.

A line is the CRC-32 of its JSON text, the text and a line end. A process that is killed can leave a
part of a line at the end. Its event was not answered, so the part is removed.
"""

from __future__ import annotations

import json
import os
import zlib
from pathlib import Path
from typing import Any

from pydantic_core import to_json

from dpb_gym.errors import DataError


class Journal:
    """A file to which events are appended.

    Args:
        path: The file, which is created. Only its owner can read it.

    Attributes:
        events: Events that were in the file when it was opened.
        size: Length of the file.

    Raises:
        DataError: If the file cannot be opened, or a line that others follow is damaged.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o600)
            content = path.read_bytes()
            self.events, end = _read(content, path)
            if end < len(content):
                os.ftruncate(self._file, end)
        except OSError as error:
            raise self._error(error) from error
        self.size = end

    def append(self, event: dict[str, Any]) -> None:
        """Write an event, which then survives the end of this process.

        Raises:
            DataError: If it cannot be written; the end of the file may be damaged.
        """
        text = to_json(event)
        line = b"%08x %b\n" % (zlib.crc32(text), text)
        try:
            if os.write(self._file, line) < len(line):
                raise OSError("the disk is full")
        except OSError as error:
            raise self._error(error) from error
        self.size += len(line)

    def sync(self) -> None:
        """Wait until all events so far are on the disk; other threads may append meanwhile.

        Raises:
            DataError: If the file cannot be written.
        """
        try:
            os.fdatasync(self._file) if hasattr(os, "fdatasync") else os.fsync(self._file)
        except OSError as error:
            raise self._error(error) from error

    def clear(self) -> None:
        """Remove all events, which a snapshot has now.

        Raises:
            DataError: If the file cannot be written.
        """
        try:
            os.ftruncate(self._file, 0)
        except OSError as error:
            raise self._error(error) from error
        self.size = 0

    def close(self) -> None:
        """Close the file."""
        os.close(self._file)

    def _error(self, error: OSError) -> DataError:
        return DataError(f"the journal {self.path} cannot be used: {error.strerror or error}")


def _read(content: bytes, path: Path) -> tuple[list[dict[str, Any]], int]:
    """Return the events, and the length of the part of the content that has them."""
    events: list[dict[str, Any]] = []
    end = 0
    while end < len(content):
        stop = content.find(b"\n", end)
        line = content[end:stop] if stop >= 0 else b""
        event = _event(line)
        if event is None:
            if stop >= 0 and content.find(b"\n", stop + 1) >= 0:
                raise DataError(
                    f"the journal {path} is damaged at byte {end}, and events follow: restore the "
                    "file from the disk's own backup, or start a new session in another folder"
                )
            break
        events.append(event)
        end = stop + 1
    return events, end


def _event(line: bytes) -> dict[str, Any] | None:
    """Return the event of a line, None if it is damaged."""
    check, _, text = line.partition(b" ")
    try:
        if int(check, 16) != zlib.crc32(text) or len(check) != 8:
            return None
        event = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return event if isinstance(event, dict) else None
