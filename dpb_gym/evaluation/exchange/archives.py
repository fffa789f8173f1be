"""Small archives (.tar.gz, .zip) of plain files: the same bytes each time, read with care."""

from __future__ import annotations

import gzip
import io
import os
import re
import tarfile
import zipfile
import zlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import IO

from dpb_gym.errors import ResultError

SUFFIXES = (".tar.gz", ".tgz", ".zip")
MOST_FILES = 100_000
MOST_BYTES = 1 << 30
"""An archive that unpacks to more than this is refused."""

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*(/[A-Za-z0-9][A-Za-z0-9._-]*){0,4}")


def pack(path: Path, members: Mapping[str, bytes]) -> bytes:
    """Returns an archive of `members`; the same members give the same bytes.

    Args:
        path: Where it will lie; its suffix chooses the format.
        members: Content by name, ``/`` between folders.

    Raises:
        ResultError: If the suffix is unknown.
    """
    buffer = io.BytesIO()
    if _suffix(path) == ".zip":
        with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as zipped:
            for name in sorted(members):
                info = zipfile.ZipInfo(name)
                info.compress_type = zipfile.ZIP_DEFLATED
                info.external_attr = 0o100644 << 16
                zipped.writestr(info, members[name])
        return buffer.getvalue()
    # Neither the time nor the name of the file go into the header.
    with (
        gzip.GzipFile("", "wb", fileobj=buffer, mtime=0) as zipped_stream,
        tarfile.open(fileobj=zipped_stream, mode="w", format=tarfile.USTAR_FORMAT) as tar,
    ):
        for name in sorted(members):
            entry = tarfile.TarInfo(name)
            entry.size = len(members[name])
            entry.mode = 0o644
            tar.addfile(entry, io.BytesIO(members[name]))
    return buffer.getvalue()


def unpack(path: Path) -> dict[str, bytes]:
    """Reads an archive into memory; nothing is written anywhere.

    Raises:
        ResultError: If it cannot be read, is damaged, too large, or holds anything but plain
            files under plain relative names, each once.
    """
    suffix = _suffix(path)
    try:
        with open(path, "rb") as file:
            read = _zip_members(path, file) if suffix == ".zip" else _tar_members(path, file)
            members: dict[str, bytes] = {}
            size = 0
            for name, content in read:
                if _NAME.fullmatch(name) is None:
                    raise ResultError(
                        f"{path}: refused: it holds the name {name!r:.120}; allowed are relative "
                        "names of letters, digits, dots, hyphens and underscores"
                    )
                if name in members:
                    raise ResultError(f"{path}: refused: it holds {name!r} twice")
                size += len(content)
                members[name] = content
                if len(members) > MOST_FILES or size > MOST_BYTES:
                    raise _too_large(path)
            return members
    except OSError as error:
        if isinstance(error, (gzip.BadGzipFile, EOFError)) or error.strerror is None:
            raise _damaged(path, error) from error
        raise ResultError(f"{path}: cannot read the archive: {error.strerror}") from error
    except (EOFError, zlib.error, tarfile.TarError, zipfile.BadZipFile, NotImplementedError,
            RuntimeError, ValueError) as error:  # fmt: skip
        if isinstance(error, ResultError):
            raise
        raise _damaged(path, error) from error


def _suffix(path: Path) -> str:
    for suffix in SUFFIXES:
        if path.name.lower().endswith(suffix):
            return suffix
    raise ResultError(f"{path}: an archive's name must end in {', '.join(SUFFIXES)}")


def _tar_members(path: Path, file: IO[bytes]) -> Iterator[tuple[str, bytes]]:
    with gzip.open(file) as stream:
        with tarfile.open(fileobj=_Limited(stream, path), mode="r:") as tar:
            for entry in tar:
                if not entry.isreg():
                    raise ResultError(
                        f"{path}: refused: {entry.name!r:.120} is no plain file (links, folders "
                        "and devices are not taken)"
                    )
                if entry.size > MOST_BYTES:
                    raise _too_large(path)
                content = tar.extractfile(entry)
                assert content is not None
                data = content.read()
                if len(data) != entry.size:
                    raise EOFError("the last file is cut")
                yield entry.name, data
        # The checksum of the stream stands at its end.
        while stream.read(1 << 16):
            pass


def _zip_members(path: Path, file: IO[bytes]) -> Iterator[tuple[str, bytes]]:
    with zipfile.ZipFile(file) as zipped:
        entries = zipped.infolist()
        if len(entries) > MOST_FILES or sum(entry.file_size for entry in entries) > MOST_BYTES:
            raise _too_large(path)
        for entry in entries:
            kind = (entry.external_attr >> 16) & 0o170000
            if entry.filename.endswith("/") or kind not in (0, 0o100000):
                raise ResultError(f"{path}: refused: {entry.filename!r:.120} is no plain file")
            with zipped.open(entry) as content:
                # What the directory says of the size need not be true.
                data = content.read(MOST_BYTES + 1)
            if len(data) > MOST_BYTES:
                raise _too_large(path)
            yield entry.filename, data


class _Limited(io.RawIOBase):
    """A stream that refuses to give more than a whole archive may hold."""

    def __init__(self, stream: gzip.GzipFile, path: Path) -> None:
        self._stream, self._path, self._left = stream, path, MOST_BYTES + (64 << 20)

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._stream.tell()

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        return self._stream.seek(offset, whence)

    def read(self, size: int | None = -1) -> bytes:
        wanted = self._left + 1 if size is None or size < 0 else min(size, self._left + 1)
        data = self._stream.read(wanted)
        self._left -= len(data)
        if self._left < 0:
            raise _too_large(self._path)
        return data


def _too_large(path: Path) -> ResultError:
    return ResultError(
        f"{path}: refused: it unpacks to more than {MOST_FILES:,} files or {MOST_BYTES >> 20:,} MiB"
    )


def _damaged(path: Path, error: BaseException) -> ResultError:
    return ResultError(f"{path}: damaged, or no archive of its suffix: {str(error) or 'cut off'}")
