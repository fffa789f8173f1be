"""Files that appear whole or not at all, with errors that say what to do."""

from __future__ import annotations

import contextlib
import json
import os
import warnings
from pathlib import Path
from typing import Any

from dpb_gym.errors import ResultError
from dpb_gym.files import write_whole


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


def _sync_folder(folder: Path) -> None:
    # A rename is only durable once the folder is; some file systems refuse, harmlessly.
    with contextlib.suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def warn(message: str) -> None:
    """Warns whoever called what called this."""
    warnings.warn(message, RuntimeWarning, stacklevel=3)
