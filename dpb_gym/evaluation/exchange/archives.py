"""Small zip archives of plain files: the same bytes each time, read with care."""

from __future__ import annotations

import io
import zipfile
import zlib
from collections.abc import Mapping
from pathlib import Path

from dpb_gym.errors import ResultError


def pack(members: Mapping[str, bytes]) -> bytes:
    """Returns a zip archive of `members`; the same members give the same bytes."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as zipped:
        for name in sorted(members):
            info = zipfile.ZipInfo(name)
            info.compress_type = zipfile.ZIP_DEFLATED
            info.external_attr = 0o100644 << 16
            zipped.writestr(info, members[name])
    return buffer.getvalue()


def check_name(path: Path) -> None:
    """Raises `ResultError` if a file's name is not that of a zip archive."""
    if path.suffix.lower() != ".zip":
        raise ResultError(f"{path}: a submission is a .zip archive")


def unpack(path: Path, sizes: Mapping[str, int]) -> dict[str, bytes]:
    """Reads an archive into memory; nothing is written anywhere.

    Args:
        path: The archive.
        sizes: The names that it must hold, each once, and no other; the bytes that each may have.

    Raises:
        ResultError: If it cannot be read, is damaged, too large, or holds anything else.
    """
    check_name(path)
    try:
        if not path.is_file():
            raise ResultError(f"{path}: no such file")
        with zipfile.ZipFile(path) as zipped:
            entries = zipped.infolist()
            found = sorted(entry.filename for entry in entries)
            if found != sorted(sizes):
                raise ResultError(
                    f"{path}: refused: a submission holds {' and '.join(sizes)} and nothing "
                    f"else; this holds {', '.join(map(repr, found[:5])) or 'nothing':.200}"
                )
            members = {}
            for entry in entries:
                with zipped.open(entry) as content:
                    # What the directory says of the size need not be true.
                    data = content.read(sizes[entry.filename] + 1)
                if len(data) > sizes[entry.filename]:
                    most = f"{sizes[entry.filename] >> 10:,} KiB"
                    raise ResultError(f"{path}: refused: {entry.filename} is over {most} unpacked")
                members[entry.filename] = data
            return members
    except OSError as error:
        raise ResultError(f"{path}: cannot read the archive: {error.strerror}") from error
    except (EOFError, zlib.error, zipfile.BadZipFile, NotImplementedError, RuntimeError,
            ValueError, OverflowError) as error:  # fmt: skip
        if isinstance(error, ResultError):
            raise
        raise ResultError(
            f"{path}: damaged, or no archive: {str(error) or 'cut off':.300}"
        ) from error
