"""Files that appear whole or not at all, with errors that say what to do."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from dpb_gym.errors import ResultError
from dpb_gym.files import TEMPORARY, read_regular, write_whole


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


def refuse_links(*paths: Path) -> None:
    """What is written to a folder stays there.

    Raises:
        ResultError: If one of the paths is a link.
    """
    for path in paths:
        if path.is_symlink():
            raise ResultError(f"{path} is a link; a result directory holds its own files")


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
def locked(folder: Path, name: str, owner: str) -> Iterator[None]:
    """Holds a folder's lock; the system releases it however the process ends.

    Args:
        folder: The folder.
        name: Of the lock's file.
        owner: Of the file that says, after a first word, who holds it.

    Raises:
        ResultError: If another process holds it, or the folder is not writable.
    """
    import filelock

    path = folder / name
    lock = filelock.FileLock(path, timeout=0)
    try:
        lock.acquire()
    except filelock.Timeout:
        with contextlib.suppress(OSError):
            holder = (
                read_regular(folder / owner, 1 << 12).decode(errors="replace").partition(" ")[2]
            )
            raise ResultError(
                f"{folder} is in use by {holder or 'another process'}. Wait for it, or give "
                "another directory"
            ) from None
        raise ResultError(f"{folder} is in use. Wait, or give another directory") from None
    except OSError as error:
        raise unwritable(path, error) from error
    try:
        yield
    finally:
        lock.release()


def set_aside(folder: Path, path: Path, *, copy: bool = False) -> Path:
    """Moves, or copies, a file into a folder under a name that is free, and returns it.

    Raises:
        ResultError: If that is impossible.
    """
    target = folder / path.name
    number = 1
    while target.exists():
        number += 1
        target = folder / f"{path.name}.{number}"
    try:
        target.parent.mkdir(exist_ok=True)
        if copy:
            if path.exists():
                shutil.copyfile(path, target)
        else:
            os.replace(path, target)
    except OSError as error:
        raise unwritable(target, error) from error
    return target


def warn(message: str) -> None:
    """Warns whoever called what called this."""
    warnings.warn(message, RuntimeWarning, stacklevel=3)
