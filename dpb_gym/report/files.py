"""Files appear whole or not at all."""

from __future__ import annotations

import os
import uuid
from pathlib import Path

from dpb_gym.errors import ParameterError


def as_path(path: object) -> Path:
    """Returns `path` as a Path.

    Raises:
        ParameterError: `path` is no path.
    """
    if not isinstance(path, (str, os.PathLike)):
        raise ParameterError(f"path must be a file path, got {path!r}")
    return Path(path)


def target(path: str | os.PathLike[str]) -> Path:
    """Returns `path` as a Path with its parent folder made.

    Raises:
        ParameterError: `path` is no path, names a folder, or a parent of it is a file.
    """
    result = as_path(path)
    if not result.name or result.is_dir():
        raise ParameterError(f"path must name a file, got the folder {str(path)!r}")
    try:
        result.parent.mkdir(parents=True, exist_ok=True)
    except (FileExistsError, NotADirectoryError) as error:
        raise ParameterError(f"a parent of {str(path)!r} is a file, not a folder") from error
    return result


def write_whole(path: Path, content: bytes) -> None:
    """Writes to a temporary name in the same folder, then renames.

    Raises:
        OSError: The file cannot be written; what stood at `path` stands still.
    """
    temporary = path.with_name(f".{path.name[:64]}-{uuid.uuid4().hex}.tmp")
    try:
        with open(temporary, "xb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
