"""Files that appear whole or not at all."""

from __future__ import annotations

import contextlib
import os
import stat
import uuid
from pathlib import Path

from dpb_gym.errors import ParameterError

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
