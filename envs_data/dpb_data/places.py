"""Where data lie, and reading what lies there: a folder, a zip archive or a lone file."""

from __future__ import annotations

import os
import stat
import sys
import zipfile
import zlib
from pathlib import Path, PurePosixPath, PureWindowsPath

from dpb_data.registry import LOADERS, DataSet, dataset, datasets, find_dataset
from dpb_gym.errors import DataError, unknown_name

DATA_VARIABLE = "DPB_DATA"
CACHE_VARIABLE = "DPB_CACHE"
# No known data set needs more, packed 10:1 at most; deflate can reach 1000:1.
MAX_UNPACKED = 4 << 30
MAX_RATIO = 200
_SMALL = 64 << 20


class Source:
    """Named members of a folder, of a zip archive, or of a lone file's folder.

    A single top folder that all members of an archive share is left out of their names.

    Args:
        place: A folder, a zip archive or a file.

    Attributes:
        path: The place.
        main: The member that was pointed at, if the place is a lone file.
        is_archive: Whether the place is a zip archive.

    Raises:
        DataError: There is no such place, it cannot be read, or the archive is damaged, empty or
            a bomb.
    """

    def __init__(self, place: str | os.PathLike[str]) -> None:
        self.path = Path(place)
        self.main: str | None = None
        self.is_archive = False
        self._members: dict[str, zipfile.ZipInfo] = {}
        try:
            if not self.path.is_dir():
                if not self.path.is_file():
                    raise DataError(f"{self.path}: no such file or folder")
                with self.path.open("rb") as stream:
                    magic = stream.read(4)
                self.is_archive = self.path.suffix.lower() == ".zip" or magic == b"PK\x03\x04"
                if self.is_archive:
                    self._members = _listed(self.path)
                else:
                    self.main = self.path.name
        except OSError as error:
            raise DataError(f"{self.path}: cannot be read ({error})") from error
        self.folder = self.path if self.main is None else self.path.parent

    def names(self) -> list[str]:
        """Names of the members, sorted."""
        if self.is_archive:
            return sorted(self._members)
        return sorted(entry.name for entry in self.folder.iterdir() if entry.is_file())

    def listing(self) -> str:
        """Some of the names, for messages."""
        names = self.names()
        return (", ".join(names[:8]) or "nothing") + (" ..." if len(names) > 8 else "")

    def size(self, name: str) -> int:
        """Size of a member in bytes."""
        return self._members[name].file_size if self.is_archive else self._file(name).stat().st_size

    def where(self, name: str) -> str:
        """How messages name a member."""
        if self.is_archive:
            return f"{self.path}!{self._members[name].filename}"
        return str(self._file(name))

    def read(self, name: str, limit: int | None = None) -> bytes:
        """The bytes of a member, or only the first `limit`; gzip members (``.gz``) unpacked.

        Raises:
            DataError: It cannot be read, or is damaged, or unpacks to more than `MAX_UNPACKED`.
        """
        where = self.where(name)
        size = -1 if limit is None else limit
        try:
            if self.is_archive:
                archive = zipfile.ZipFile(self.path)
                with archive, archive.open(self._members[name]) as member:
                    return member.read(size)
            with self._file(name).open("rb") as stream:
                raw = stream.read(size)
            return _gunzipped(raw, whole=limit is None) if name.endswith(".gz") else raw
        except (zipfile.BadZipFile, zlib.error, EOFError) as error:
            raise DataError(
                f"{where}: expected intact packed data, found damage ({error})"
            ) from error
        except (NotImplementedError, RuntimeError) as error:  # encrypted, unknown compression
            raise DataError(f"{where}: this zip member cannot be read ({error})") from error
        except OSError as error:
            raise DataError(f"{where}: cannot be read ({error})") from error

    def _file(self, name: str) -> Path:
        return self.folder / name


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
    """The members of an archive that is safe to unpack.

    Refused are absolute paths, drives, ``..``, backslashes, links, two members of one name, more
    than `MAX_UNPACKED` bytes in all, and sizes that only a bomb packs so small.

    Args:
        archive: The archive.
        label: How messages name it.

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
        # ZipInfo.filename has separators already translated; the original name is what counts.
        name = member.orig_filename
        posix, windows = PurePosixPath(name), PureWindowsPath(name)
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
    if total > MAX_UNPACKED or total > max(_SMALL, MAX_RATIO * packed):
        raise DataError(
            f"{label}: unpacks from {packed:,} to {total:,} bytes, more than any known data set "
            "needs; nothing was unpacked"
        )
    return members


def _gunzipped(raw: bytes, *, whole: bool) -> bytes:
    unpacker = zlib.decompressobj(wbits=31)
    content = unpacker.decompress(raw, min(MAX_UNPACKED, max(_SMALL, MAX_RATIO * len(raw))))
    if whole and unpacker.unconsumed_tail:
        raise EOFError("it unpacks to more than any known data set needs")
    if whole and not unpacker.eof:
        raise EOFError("the gzip data end early")
    return content


def cache_dir() -> Path:
    """The download cache: ``$DPB_CACHE`` if set, else the system's cache folder for dpb-gym."""
    chosen = os.environ.get(CACHE_VARIABLE)
    if chosen:
        return Path(chosen).expanduser().absolute()
    home = Path.home()
    if sys.platform == "darwin":
        return home / "Library" / "Caches" / "dpb-gym"
    if sys.platform == "win32":
        local = os.environ.get("LOCALAPPDATA")
        return (Path(local) if local else home / "AppData" / "Local") / "dpb-gym"
    return Path(os.environ.get("XDG_CACHE_HOME") or home / ".cache") / "dpb-gym"


def path(name: str, *, folder: str | os.PathLike[str] | None = None) -> Path:
    """Finds a registered data set on this machine.

    Looked at in this order: `folder` and nothing else, if given; ``$DPB_DATA``; the cache. In
    each, ``<name>`` or one of the data set's other names, as a folder or a zip archive; `folder`
    may also be the data set's own folder or archive.

    Args:
        name: Name or alias of a registered data set.
        folder: Where to look instead of the usual places.

    Returns:
        The absolute path of a folder, archive or file that `load_ratings` accepts.

    Raises:
        DataError: It is nowhere; the message lists every place and the command that fetches it.
        UnknownNameError: The name is not registered.
    """
    known = dataset(name)
    if known.generated:
        raise DataError(
            f"{known.name} is generated on the fly and has no files: "
            f"{LOADERS[known.kind]}({known.name!r})"
        )
    looked: list[str] = []
    parents = [cache_dir()] if folder is None else [Path(folder)]
    if folder is None and os.environ.get(DATA_VARIABLE):
        parents.insert(0, Path(os.environ[DATA_VARIABLE]))
    elif folder is None:
        looked.append(f"${DATA_VARIABLE} (not set)")
    for parent in (parent.expanduser().absolute() for parent in parents):
        found = _inside(parent, known, looked)
        if found is not None:
            return found
        if folder is not None:
            if parent.is_file() or (parent.is_dir() and _holds(parent, known)):
                return parent
            looked.append(f"{parent} itself")
    how = (
        f"Download it with: dpb data fetch {known.name}"
        if known.urls
        else f"Get it from {known.homepage} and unpack it to one of these places"
    )
    raise DataError(
        f"data set {known.name!r} was not found. Looked at: {'; '.join(looked)}. {how} "
        f"(terms: {known.terms})"
    )


def _inside(parent: Path, known: DataSet, looked: list[str]) -> Path | None:
    """Looks for the data set under one parent folder; notes each place in `looked`."""
    for label in (known.name, *known.aliases):
        if (parent / label).is_dir():
            if _holds(parent / label, known):
                return parent / label
            looked.append(f"{parent / label} (there, but holds no ratings)")
        if (parent / f"{label}.zip").is_file():
            return parent / f"{label}.zip"
    others = f" or {', '.join(known.aliases)}" if known.aliases else ""
    looked.append(f"{parent / known.name}{others}")
    return None


def _holds(folder: Path, known: DataSet) -> bool:
    """Whether a folder holds what the data set's loader looks for."""
    from dpb_data.formats import holds_ratings

    return known.kind != "ratings" or holds_ratings(folder)


def existing_path(source: str | os.PathLike[str]) -> Path:
    """Takes the argument as a path; a relative one may also lie below ``$DPB_DATA``.

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


def find(source: str | os.PathLike[str]) -> Path | None:
    """Says where a data set lies that may be named or given by path; None if it is generated.

    Args:
        source: As for `load_ratings` and `load_searches`.

    Raises:
        DataError: It is not here; the message says where it was looked for.
        UnknownNameError: A bare word that is neither a data set nor a path.
    """
    known = find_dataset(source)
    if known is None:
        return existing_path(source)
    return None if known.generated else path(known.name)


def of_kind(source: object, kind: str) -> DataSet | None:
    """The registered data set that `source` names, None if it names none.

    Raises:
        DataError: It is not of this kind.
    """
    known = find_dataset(source)
    if known is not None and known.kind != kind:
        names = ", ".join(d.name for d in datasets() if d.kind == kind)
        raise DataError(
            f"the data set {known.name!r} holds {known.kind}, expected one of {kind}: {names}"
        )
    return known
