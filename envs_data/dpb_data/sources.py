"""One way to read members of a folder, of a zip archive, or a lone file."""

from __future__ import annotations

import os
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from typing import BinaryIO, Protocol

from dpb_gym.errors import DataError


class Source(Protocol):
    """A place with named members, each a stream of bytes.

    `main` is the member that the user pointed at, if it was a single file.
    """

    path: Path
    main: str | None

    def names(self) -> list[str]:
        """Names of the members, sorted."""

    def size(self, name: str) -> int:
        """Size of a member in bytes."""

    def where(self, name: str) -> str:
        """How messages name a member."""

    def open(self, name: str) -> BinaryIO:
        """Opens a member for reading bytes."""


class FolderSource:
    """The files directly inside a folder; `main` set when one of them was asked for."""

    def __init__(self, folder: Path, main: str | None = None) -> None:
        self.path = folder if main is None else folder / main
        self.main = main
        self._folder = folder

    def names(self) -> list[str]:
        return sorted(entry.name for entry in self._folder.iterdir() if entry.is_file())

    def size(self, name: str) -> int:
        return (self._folder / name).stat().st_size

    def where(self, name: str) -> str:
        return str(self._folder / name)

    def open(self, name: str) -> BinaryIO:
        return open(self._folder / name, "rb")


class ZipSource:
    """The files of a zip archive; a single top folder common to all is left out of the names."""

    def __init__(self, archive: Path) -> None:
        self.path = archive
        self.main: str | None = None
        try:
            with zipfile.ZipFile(archive) as opened:
                members = [info for info in opened.infolist() if not info.is_dir()]
        except zipfile.BadZipFile as error:
            raise DataError(
                f"{archive}: expected a complete zip archive, found a damaged or truncated one "
                f"({error})"
            ) from error
        members = [m for m in members if not m.filename.startswith("__MACOSX/")]
        if not members:
            raise DataError(f"{archive}: the zip archive holds no files")
        parts = {PurePosixPath(member.filename).parts[0] for member in members}
        nested = all("/" in member.filename for member in members)
        prefix = f"{parts.pop()}/" if len(parts) == 1 and nested else ""
        self._members = {m.filename.removeprefix(prefix): m for m in members}

    def names(self) -> list[str]:
        return sorted(self._members)

    def size(self, name: str) -> int:
        return self._members[name].file_size

    def where(self, name: str) -> str:
        return f"{self.path}!{self._members[name].filename}"

    def open(self, name: str) -> BinaryIO:
        # A fresh handle per member, closed with it: readers may live side by side.
        archive = zipfile.ZipFile(self.path)
        try:
            stream = archive.open(self._members[name])
        except BaseException:
            archive.close()
            raise
        archive.close()  # zipfile keeps the file open until the member is closed
        return stream  # type: ignore[return-value]


def open_source(path: str | os.PathLike[str]) -> Source:
    """Opens a folder, a zip archive or a single file.

    Raises:
        DataError: There is no such path, it cannot be read, or the archive is damaged.
    """
    location = Path(path)
    try:
        if location.is_dir():
            return FolderSource(location)
        if not location.is_file():
            raise DataError(f"{location}: no such file or folder")
        with location.open("rb") as stream:
            magic = stream.read(4)
        if location.suffix.lower() == ".zip" or magic == b"PK\x03\x04":
            return ZipSource(location)
    except OSError as error:
        raise DataError(f"{location}: cannot be read ({error})") from error
    return FolderSource(location.parent, location.name)


@contextmanager
def member_errors(where: str) -> Iterator[None]:
    """Turns what goes wrong while reading a member's bytes into a `DataError`."""
    try:
        yield
    except (zipfile.BadZipFile, zlib.error, EOFError) as error:
        raise DataError(
            f"{where}: expected an intact member of a zip archive, found damaged data ({error})"
        ) from error
    except (NotImplementedError, RuntimeError) as error:  # encrypted, unknown compression
        raise DataError(f"{where}: this zip member cannot be read ({error})") from error
    except OSError as error:
        raise DataError(f"{where}: cannot be read ({error})") from error
