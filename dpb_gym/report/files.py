"""Where drawings go."""

from __future__ import annotations

import os
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
