"""Atomic writing of files, reading of regular files, and texts from templates."""

from __future__ import annotations

import contextlib
import functools
import os
import stat
import sys
import uuid
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dpb_gym.errors import ParameterError, ResultError

if TYPE_CHECKING:
    from jinja2 import Template

TEMPORARY = ".tmp"


@functools.cache
def text_template(path: Path, **options: Any) -> Template:
    """Return the Jinja template in a file; it is compiled once.

    Args:
        path: The file.
        options: Options of `jinja2.Template`.
    """
    from jinja2 import Template

    made: Template = Template(path.read_text("utf-8"), **options)
    return made


def write_whole(path: Path, content: bytes, *, durable: bool = True) -> None:
    """Write a file atomically: to a temporary name in its folder, synced, then renamed.

    Args:
        path: The file; its folder must exist.
        content: Content of the file.
        durable: Whether to wait for the disk; False may lose the file in a power failure.

    Raises:
        OSError: If it cannot be written; an existing file is unchanged.
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


def state_directory() -> Path:
    """Return the folder of this user's state.

    Linux and others: ``$XDG_STATE_HOME/dpb-gym``, or ``~/.local/state/dpb-gym``. macOS:
    ``~/Library/Application Support/dpb-gym``. Windows: ``%LOCALAPPDATA%\\dpb-gym``.
    """
    home = Path.home()
    if sys.platform == "win32":
        base = Path(os.environ.get("LOCALAPPDATA", home / "AppData" / "Local"))
    elif sys.platform == "darwin":
        base = home / "Library" / "Application Support"
    else:
        base = Path(os.environ.get("XDG_STATE_HOME", ""))
        if not base.is_absolute():  # relative paths are to be ignored, by the standard
            base = home / ".local" / "state"
    return base / "dpb-gym"


def make_folder(path: Path) -> None:
    """Create a folder and its parents.

    Raises:
        ResultError: If it cannot be created.
    """
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise unwritable(path, error) from error


def write_file(path: Path, content: bytes, *, durable: bool = True) -> None:
    """Write a file by `write_whole` and create its folder if needed.

    Raises:
        ResultError: If it cannot be written; an existing file is unchanged.
    """
    make_folder(path.parent)
    try:
        write_whole(path, content, durable=durable)
    except OSError as error:
        raise unwritable(path, error) from error
    if durable:
        # A rename is durable once its folder is synced, which some file systems do not support.
        with contextlib.suppress(OSError):
            descriptor = os.open(path.parent, os.O_RDONLY)
            try:
                os.fsync(descriptor)
            finally:
                os.close(descriptor)


def unwritable(path: Path, error: OSError) -> ResultError:
    """Return the error for a file that cannot be written."""
    return ResultError(
        f"cannot write {path}: {error.strerror or error}. Results that were finished before are "
        "untouched; run the same command again when this is mended"
    )


def read_regular(path: Path, most: int) -> bytes:
    """Return the content of a regular file, without following links or blocking on pipes.

    Args:
        path: The file.
        most: Maximum size in bytes.

    Raises:
        OSError: If it cannot be read, is a link or no regular file, or is larger.
    """
    flags = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0)
    with open(path, "rb", opener=lambda name, mode: os.open(name, mode | flags)) as file:
        status = os.fstat(file.fileno())
        if not stat.S_ISREG(status.st_mode):
            raise OSError("not an ordinary file")
        # before it is read, because a sparse file of any size is easily made
        if status.st_size > most:
            raise OSError(f"over {most >> 10:,} KiB")
        content = file.read(status.st_size + 1)  # which is allocated at once
    if len(content) > most:  # it has grown
        raise OSError(f"over {most >> 10:,} KiB")
    return content


def check_target(path: str | os.PathLike[str]) -> Path:
    """Return `path` as a Path if a file can have it; nothing is created.

    Raises:
        ParameterError: If `path` is no path or names a folder, or a parent is a file.
    """
    if not isinstance(path, (str, os.PathLike)):
        raise ParameterError(f"path must be a file path, got {path!r}")
    result = Path(path)
    if not result.name or result.is_dir():
        raise ParameterError(f"path must name a file, got the folder {str(path)!r}")
    if any(parent.is_file() for parent in result.parents):
        raise ParameterError(f"a parent of {str(path)!r} is a file, not a folder")
    return result


def target(path: str | os.PathLike[str]) -> Path:
    """Return `path` as a Path and create its parent folder.

    Raises:
        ParameterError: See `check_target`.
    """
    result = check_target(path)
    try:
        result.parent.mkdir(parents=True, exist_ok=True)
    except (FileExistsError, NotADirectoryError) as error:
        raise ParameterError(f"a parent of {str(path)!r} is a file, not a folder") from error
    return result


def write_text(path: str | os.PathLike[str], text: str) -> Path:
    """Write a text file as UTF-8, without the letters that it lacks, and return its path.

    Raises:
        ParameterError: See `target`.
        OSError: If it cannot be written; an existing file is unchanged.
    """
    destination = target(path)
    write_whole(destination, text.encode("utf-8", errors="replace"))
    return destination
