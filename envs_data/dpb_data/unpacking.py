"""Unpacking archives from the network without trusting them."""

from __future__ import annotations

import os
import shutil
import stat
import zipfile
import zlib
from pathlib import Path, PurePosixPath, PureWindowsPath

from dpb_gym.errors import DataError

MAX_UNPACKED = 8 << 30


def unpack(archive: Path, target: Path, *, label: str) -> Path:
    """Unpacks a zip archive into an empty folder.

    Every name is checked before anything is written: no absolute path, no drive, no ``..``, no
    backslash, no link, no two members for one name, and no more than 8 GiB in all. The check sum
    of each member is checked while it is written.

    Args:
        archive: The archive.
        target: An existing empty folder.
        label: How messages name the archive.

    Returns:
        `target`, or the only folder in it when the archive holds one top folder.

    Raises:
        DataError: The archive is damaged, truncated or unsafe.
    """
    try:
        with zipfile.ZipFile(archive) as opened:
            members = opened.infolist()
            _require_safe(members, label)
            for member in members:
                destination = target.joinpath(*PurePosixPath(member.filename).parts)
                if member.is_dir():
                    destination.mkdir(parents=True, exist_ok=True)
                    continue
                destination.parent.mkdir(parents=True, exist_ok=True)
                with opened.open(member) as source, destination.open("xb") as sink:
                    shutil.copyfileobj(source, sink, 1 << 20)
    except (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, RuntimeError) as error:
        raise DataError(
            f"{label}: expected a complete zip archive, found a damaged or truncated one ({error})"
        ) from error
    entries = [entry for entry in target.iterdir() if entry.name != "__MACOSX"]
    if not entries:
        raise DataError(f"{label}: the zip archive holds no files")
    return entries[0] if len(entries) == 1 and entries[0].is_dir() else target


def _require_safe(members: list[zipfile.ZipInfo], label: str) -> None:
    seen: set[str] = set()
    for member in members:
        # ZipInfo.filename has separators already translated; the original name is what counts.
        name = member.orig_filename
        posix, windows = PurePosixPath(name), PureWindowsPath(name)
        link = stat.S_ISLNK(member.external_attr >> 16)
        if (
            not posix.parts
            or posix.is_absolute()
            or windows.drive
            or "\\" in name
            or "\0" in name
            or ".." in posix.parts
            or link
        ):
            what = "a link" if link else "an unsafe path"
            raise DataError(f"{label}: {what} in the archive ({name!r}); nothing was unpacked")
        key = os.path.normcase(str(posix)).lower()
        if key in seen and not member.is_dir():
            raise DataError(f"{label}: two members named {name!r}; nothing was unpacked")
        seen.add(key)
    total = sum(member.file_size for member in members)
    if total > MAX_UNPACKED:
        raise DataError(
            f"{label}: unpacks to {total:,} bytes, more than the {MAX_UNPACKED:,} that any known "
            "data set needs; nothing was unpacked"
        )
