"""Files that appear whole or not at all, and a lock per result directory."""

from __future__ import annotations

import contextlib
import json
import os
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from dpb_gym.errors import ResultError
from dpb_gym.files import TEMPORARY, write_whole


def make_folder(path: Path) -> None:
    """Makes a folder and its parents.

    Raises:
        ResultError: If that is impossible.
    """
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise unwritable(path, error) from error


def write_file(path: Path, content: bytes, *, durable: bool = True) -> None:
    """Writes a file under a temporary name, forces it to disk, and renames it.

    Args:
        path: The file; folders are made.
        content: All of it.
        durable: False does not wait for the disk: for what may be lost with the power.

    Raises:
        ResultError: If it cannot be written; what stood at `path` stands still.
    """
    make_folder(path.parent)
    try:
        write_whole(path, content, durable=durable)
    except OSError as error:
        raise unwritable(path, error) from error
    if durable:
        _sync_folder(path.parent)


def write_json(path: Path, value: Any, *, durable: bool = True) -> None:
    """Writes indented JSON; see `write_file`."""
    text = json.dumps(value, indent=2, allow_nan=False) + "\n"
    write_file(path, text.encode(), durable=durable)


def unwritable(path: Path, error: OSError) -> ResultError:
    """The error for a file that cannot be written."""
    return ResultError(
        f"cannot write {path}: {error.strerror or error}. Results that were finished before are "
        "untouched; run the same command again when this is mended"
    )


def remove_temporaries(folder: Path) -> None:
    """Removes what writers that were killed left behind."""
    for path in folder.rglob(f".*{TEMPORARY}"):
        with contextlib.suppress(OSError):
            path.unlink()


def _sync_folder(folder: Path) -> None:
    # A rename is only durable once the folder is; some file systems refuse, harmlessly.
    with contextlib.suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


@contextlib.contextmanager
def exclusive(folder: Path) -> Iterator[None]:
    """Holds the folder's lock; the system releases it however the process ends.

    Raises:
        ResultError: If another process holds it, or the folder is not writable.
    """
    make_folder(folder)
    path = folder / ".lock"
    try:
        file = open(path, "a+", encoding="utf-8")  # noqa: SIM115 - closed below
    except OSError as error:
        raise unwritable(path, error) from error
    with file:
        if not _try_lock(file):
            file.seek(0)
            holder = file.read().strip() or "another process"
            raise ResultError(
                f"{folder} is in use by {holder}. Wait for it, or give another directory"
            )
        file.seek(0)
        file.truncate()
        file.write(f"process {os.getpid()} on {socket.gethostname()}")
        file.flush()
        yield


def _try_lock(file: Any) -> bool:
    """Takes the lock unless another process has it."""
    try:
        import fcntl
    except ImportError:  # Windows
        import msvcrt

        try:
            msvcrt.locking(file.fileno(), msvcrt.LK_NBLCK, 1)  # type: ignore[attr-defined]
        except OSError:
            return False
        return True
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        # No locks on this file system: shards are still written whole, and equal cells
        # have equal bytes, so two runs can at worst do work twice.
        return True
    return True
