"""Files that appear whole or not at all, with errors that say what to do."""

from __future__ import annotations

import contextlib
import json
import os
import stat
import uuid
from pathlib import Path
from typing import Any

from dpb_gym.errors import ParameterError, ResultError

TEMPORARY = ".tmp"


def write_whole(path: Path, content: bytes, *, durable: bool = True) -> None:
    """Writes a file under a temporary name in its folder, forces it to disk, and renames it.

    Args:
        path: The file; its folder exists.
        content: All of it.
        durable: False does not wait for the disk: for what may be lost with the power.

    Raises:
        OSError: If it cannot be written; what stood at `path` stands still.
    """
    temporary = path.with_name(f".{path.name[:64]}-{uuid.uuid4().hex}{TEMPORARY}")
    try:
        with open(temporary, "xb") as file:
            file.write(content)
            file.flush()
            if durable:
                os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException:
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)
        raise


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
    """Writes a file as `write_whole` does; folders are made.

    Raises:
        ResultError: If it cannot be written; what stood at `path` stands still.
    """
    make_folder(path.parent)
    try:
        write_whole(path, content, durable=durable)
    except OSError as error:
        raise unwritable(path, error) from error
    if durable:
        # A rename is only durable once the folder is; some file systems refuse, harmlessly.
        with contextlib.suppress(OSError):
            descriptor = os.open(path.parent, os.O_RDONLY)
            try:
                os.fsync(descriptor)
            finally:
                os.close(descriptor)


def write_json(path: Path, value: Any) -> None:
    """Writes indented JSON; see `write_file`."""
    write_file(path, (json.dumps(value, indent=2, allow_nan=False) + "\n").encode())


def unwritable(path: Path, error: OSError) -> ResultError:
    """The error for a file that cannot be written."""
    return ResultError(
        f"cannot write {path}: {error.strerror or error}. Results that were finished before are "
        "untouched; run the same command again when this is mended"
    )


def read_regular(path: Path, most: int) -> bytes:
    """Reads an ordinary file; never follows a link or waits for the other end of a pipe.

    Args:
        path: The file.
        most: Bytes that it may have.

    Raises:
        OSError: If it cannot be read, is a link or no ordinary file, or is larger.
    """
    flags = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)
    with open(path, "rb", opener=lambda name, mode: os.open(name, mode | flags)) as file:
        status = os.fstat(file.fileno())
        if not stat.S_ISREG(status.st_mode):
            raise OSError("not an ordinary file")
        content = file.read(most + 1)
    if len(content) > most:
        raise OSError(f"over {most >> 10:,} KiB")
    return content


def target(path: str | os.PathLike[str]) -> Path:
    """Returns `path` as a Path with its parent folder made.

    Raises:
        ParameterError: `path` is no path, names a folder, or a parent of it is a file.
    """
    if not isinstance(path, (str, os.PathLike)):
        raise ParameterError(f"path must be a file path, got {path!r}")
    result = Path(path)
    if not result.name or result.is_dir():
        raise ParameterError(f"path must name a file, got the folder {str(path)!r}")
    try:
        result.parent.mkdir(parents=True, exist_ok=True)
    except (FileExistsError, NotADirectoryError) as error:
        raise ParameterError(f"a parent of {str(path)!r} is a file, not a folder") from error
    return result
