"""Read files of a folder, of a zip archive, or a single file of text."""

from __future__ import annotations

import os
import re
import stat
import zipfile
import zlib
from pathlib import Path, PurePosixPath, PureWindowsPath

from dpb_data.dataset_registry import datasets
from dpb_gym.errors import DataError, unknown_name

DATA_VARIABLE = "DPB_DATA"
# No known data set needs more, packed 10:1 at most; deflate can reach 1000:1.
MAX_UNPACKED = 4 << 30
MAX_RATIO = 200
SMALL = 64 << 20
_FOREIGN = (
    (rb"\A(\xff\xfe|\xfe\xff)", "UTF-16, not UTF-8"),
    (rb"\A\x1f\x8b", "gzip data: unpack it first"),
    (rb"\0", "NUL bytes"),
    (rb"\r(?!\n)[^\n]{0,20}", "a carriage return inside a line"),
)


class Source:
    """Members of a folder, of a zip archive, or of the folder of a single file.

    Member names omit the top folder of an archive if all members share it.

    Args:
        place: A folder, a zip archive or a file.

    Attributes:
        path: The given path.
        folder: The given folder, or the folder of the single file.
        main: Name of the single file, or None.
        is_archive: Whether the path is a zip archive.

    Raises:
        DataError: There is no such path, it cannot be read, or the archive is damaged, empty or
            unsafe.
    """

    def __init__(self, place: str | os.PathLike[str]) -> None:
        self.path = self.folder = Path(place)
        self.main: str | None = None
        self.is_archive = False
        self._members: dict[str, zipfile.ZipInfo] = {}
        try:
            if self.path.is_dir():
                return
            if not self.path.is_file():  # also rejects a pipe, which would block the reader
                raise DataError(f"{self.path}: no such file or folder")
            with self.path.open("rb") as stream:
                magic = stream.read(4)
        except OSError as error:
            raise DataError(f"{self.path}: cannot be read ({error})") from error
        self.is_archive = self.path.suffix.lower() == ".zip" or magic == b"PK\x03\x04"
        if self.is_archive:
            self._members = _listed(self.path)
        else:
            self.main, self.folder = self.path.name, self.path.parent

    def names(self) -> list[str]:
        """Return the names of the members, sorted."""
        if self.is_archive:
            return sorted(self._members)
        return sorted(entry.name for entry in self.folder.iterdir() if entry.is_file())

    def listing(self) -> str:
        """Return up to eight of the names, for messages."""
        names = self.names()
        return (", ".join(names[:8]) or "nothing") + (" ..." if len(names) > 8 else "")

    def size(self, name: str) -> int:
        """Return the size of a member in bytes."""
        if self.is_archive:
            return self._members[name].file_size
        return (self.folder / name).stat().st_size

    def where(self, name: str) -> str:
        """Return the name of a member in messages."""
        if self.is_archive:
            return f"{self.path}!{self._members[name].filename}"
        return str(self.folder / name)

    def read(self, name: str, limit: int | None = None) -> bytes:
        """Return the bytes of a member, or the first `limit`; gzip members (``.gz``) are unpacked.

        Raises:
            DataError: It cannot be read, is damaged, or unpacks to more than `MAX_UNPACKED`.
        """
        size = -1 if limit is None else limit
        try:
            if self.is_archive:
                archive = zipfile.ZipFile(self.path)
                with archive, archive.open(self._members[name]) as member:
                    return member.read(size)
            with (self.folder / name).open("rb") as stream:
                raw = stream.read(size)
            return _gunzipped(raw, whole=limit is None) if name.endswith(".gz") else raw
        except (zipfile.BadZipFile, zlib.error, EOFError) as error:
            what = f"expected intact packed data, found damage ({error})"
        except (NotImplementedError, RuntimeError, OSError) as error:  # encrypted, or unreadable
            what = f"cannot be read ({error})"
        raise DataError(f"{self.where(name)}: {what}")


def _listed(archive: Path) -> dict[str, zipfile.ZipInfo]:
    members = [m for m in safe_members(archive, str(archive)) if not m.is_dir()]
    members = [m for m in members if not m.filename.startswith("__MACOSX/")]
    if not members:
        raise DataError(f"{archive}: the zip archive holds no files")
    parts = {PurePosixPath(member.filename).parts[0] for member in members}
    nested = all("/" in member.filename for member in members)
    prefix = f"{parts.pop()}/" if len(parts) == 1 and nested else ""
    return {m.filename.removeprefix(prefix): m for m in members}


def safe_members(archive: Path, label: str) -> list[zipfile.ZipInfo]:
    """Return the members of an archive after checks that it is safe to unpack.

    Rejected are absolute paths, drives, ``..``, backslashes, links, two members of one name, more
    than `MAX_UNPACKED` bytes in total, and compression ratios of zip bombs.

    Args:
        archive: The archive.
        label: Its name in messages.

    Raises:
        DataError: It is damaged, truncated or unsafe.
    """
    try:
        with zipfile.ZipFile(archive) as opened:
            members = opened.infolist()
    except (zipfile.BadZipFile, NotImplementedError, ValueError) as error:
        raise DataError(
            f"{label}: expected a complete zip archive, found a damaged or truncated one ({error})"
        ) from error
    seen: set[str] = set()
    for member in members:
        # ZipInfo.filename has translated separators: check the original name
        name = member.orig_filename
        posix = PurePosixPath(name)
        windows = PureWindowsPath(name)
        link = stat.S_ISLNK(member.external_attr >> 16)
        outside = posix.is_absolute() or windows.drive or ".." in posix.parts or not posix.parts
        if link or outside or "\\" in name or "\0" in name:
            what = "a link" if link else "an unsafe path"
            raise DataError(f"{label}: {what} in the archive ({name!r}); nothing was unpacked")
        key = os.path.normcase(str(posix)).lower()
        if key in seen and not member.is_dir():
            raise DataError(f"{label}: two members named {name!r}; nothing was unpacked")
        seen.add(key)
    total = sum(member.file_size for member in members)
    packed = max(1, sum(member.compress_size for member in members))
    if total > MAX_UNPACKED or total > max(SMALL, MAX_RATIO * packed):
        raise DataError(
            f"{label}: unpacks from {packed:,} to {total:,} bytes, more than any known data set "
            "needs; nothing was unpacked"
        )
    return members


def _gunzipped(raw: bytes, *, whole: bool) -> bytes:
    unpacker = zlib.decompressobj(wbits=31)
    content = unpacker.decompress(raw, min(MAX_UNPACKED, max(SMALL, MAX_RATIO * len(raw))))
    if whole and unpacker.unconsumed_tail:
        raise EOFError("it unpacks to more than any known data set needs")
    if whole and not unpacker.eof:
        raise EOFError("the gzip data end early")
    return content


def refuse_foreign(raw: bytes, where: str) -> None:
    """Raise DataError unless the bytes are plain text with known line ends."""
    for pattern, what in _FOREIGN:
        match = re.search(pattern, raw)
        if match is not None:
            line = raw.count(b"\n", 0, match.start()) + 1
            shown = shorten(raw[max(0, match.start() - 20) : match.end()])
            raise DataError(f"{where}: line {line}: expected plain text, found {what}: {shown}")


def require_newline(raw: bytes, where: str) -> None:
    """Raise DataError if the last line has no newline: the file was probably cut off."""
    if not raw.endswith(b"\n"):
        last = raw[raw.rfind(b"\n") + 1 :]
        raise DataError(
            f"{where}: line {raw.count(bytes([10])) + 1}: expected a newline at the end of the "
            f"file, found the end after {shorten(last)}: the file was probably cut off (an intact "
            "file without a final newline loads with strict=False)"
        )


def first_line(raw: bytes, where: str) -> str:
    """Return the first line of a text file, without byte order mark and line end.

    Raises:
        DataError: The file is empty or not text.
    """
    if not raw:
        raise DataError(f"{where}: line 1: expected text, found an empty file")
    first = raw[: 1 << 16].split(b"\n", 1)[0].removesuffix(b"\r")
    refuse_foreign(first, where)
    return first.decode("utf-8", errors="replace").removeprefix("\ufeff")


def shorten(text: str | bytes, limit: int = 80) -> str:
    """Return a quoted part of a file for a message."""
    if isinstance(text, bytes):
        text = text.decode("utf-8", errors="backslashreplace")
    return repr(text if len(text) <= limit else text[:limit] + "...")


def existing_path(source: str | os.PathLike[str]) -> Path:
    """Return the argument as an existing path; a relative one may also be below ``$DPB_DATA``.

    Raises:
        UnknownNameError: Nothing is there, and it looks like a misspelt name.
        DataError: Nothing is there.
    """
    location = Path(source)
    if location.exists():
        return location
    data = os.environ.get(DATA_VARIABLE)
    if data and not location.is_absolute() and len(location.parts) > 1:
        below = Path(data).expanduser() / location
        if below.exists():
            return below
    if isinstance(source, str) and source and os.sep not in source and not location.suffix:
        names = [known.name for known in datasets()]
        raise unknown_name("data set (and no such file or folder):", source, names)
    raise DataError(f"{location}: no such file or folder, here or below ${DATA_VARIABLE}")
