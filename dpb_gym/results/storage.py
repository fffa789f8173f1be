"""Storage of a result directory: a folder, or a prefix of an object store (fsspec).

Names are relative, with ``/``. Writes are atomic: a file is renamed, an object is put. One run at a
time holds the lock. The operating system releases the lock of a folder when a process ends; object
stores have no locks, see `ObjectStorage`.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import threading
import time
import uuid
import warnings
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import Any

from dpb_gym.errors import MissingExtraError, ParameterError, ResultError, shown
from dpb_gym.files import TEMPORARY, make_folder, read_regular, unwritable, write_file

MANIFEST, TABLE, CELLS, ASIDE = "manifest.json", "result.parquet", "cells", "set-aside"
UNFINISHED = "unfinished"
LOCK, OWNER, PULSE = ".lock", ".owner", ".pulse"
OWN_NAMES = (MANIFEST, TABLE, CELLS, UNFINISHED, ASIDE, LOCK, OWNER)
STORES = ("s3", "s3a", "gs", "gcs", "az", "abfs", "memory")
LEASE_SECONDS, PULSE_SECONDS, MOST_NOTE = 30.0, 5.0, 1 << 12


class DamagedResult(ResultError):
    """Raised if a table or the file of a cell is truncated, altered or misplaced."""


class UnreachableError(ResultError):
    """Raised if an object store fails or does not answer."""


def storage_of(path: str | os.PathLike[str] | Storage) -> Storage:
    """Return the storage of a path, of an address such as ``s3://bucket/prefix``, or of itself.

    Raises:
        ParameterError: If it is neither, or of a store without atomic writes.
    """
    if isinstance(path, Storage):
        return path
    if not isinstance(path, (str, os.PathLike)) or "\0" in (text := str(path)):
        raise ParameterError(f"a result directory is a path or an address, got {shown(path)}")
    protocol, mark, rest = text.partition("://")
    if not mark:
        return Storage(Path(path))
    if protocol in ("file", "local"):
        return Storage(Path(rest))
    if protocol not in STORES or not rest.strip("/"):
        raise ParameterError(
            f"results are kept in a folder or at BUCKET/PREFIX of {', '.join(STORES)} "
            f"(s3://BUCKET/PREFIX); got {shown(path)}"
        )
    return ObjectStorage(text.rstrip("/"))


class Storage:
    """A local folder, or one on a shared file system.

    Attributes:
        path: The folder, or the address.
        shared: Whether other processes see it.
        readers: Number of concurrent reads.
        token: Token of the run that holds the lock through this object.
        repair: Advice for a damaged manifest, for messages.
    """

    path: Path | str
    shared = True
    readers = 1
    token = ""
    repair = "dpb run writes it again"

    def __init__(self, path: Path) -> None:
        self.path = self._folder = path

    def __str__(self) -> str:
        return str(self.path)

    def at(self, name: str) -> str:
        """Return the full path of a name."""
        return str(self._folder / name)

    def names(self) -> list[str] | None:
        """Return the names at the top level without lock files; None if the place does not exist.

        Raises `ResultError` for a file in its place, or a link where a run writes.
        """
        if self._folder.exists() and not self._folder.is_dir():
            raise ResultError(f"{self} is a file; results need a directory")
        if not self._folder.is_dir():
            return None
        ours = [self._folder / name for name in OWN_NAMES]
        inner = [path for name in (CELLS, UNFINISHED) for path in (self._folder / name).glob("*")]
        for path in (*ours, *inner):
            if path.is_symlink():
                raise ResultError(f"{path} is a link; a result directory holds its own files")
        here = [path.name for path in self._folder.iterdir()]
        return [n for n in here if n not in (LOCK, OWNER) and not n.endswith(TEMPORARY)]

    def cells(self) -> list[str]:
        """Return the files of single cells, in order."""
        paths = (self._folder / CELLS).glob("*/*.parquet")
        return sorted(path.relative_to(self._folder).as_posix() for path in paths)

    def read(self, name: str, most: int) -> bytes:
        """Read a file; raise `DamagedResult` if it is not regular or exceeds `most` bytes."""
        try:
            return read_regular(self._folder / name, most)
        except FileNotFoundError:
            raise
        except OSError as error:
            raise DamagedResult(f"{self.at(name)} cannot be read ({error})") from error

    def write(self, name: str, content: bytes) -> None:
        """Write a file atomically; raise `ResultError` if that fails."""
        write_file(self._folder / name, content)

    def remove(self, name: str) -> None:
        """Remove a file, as far as possible."""
        with contextlib.suppress(OSError):
            (self._folder / name).unlink()

    def set_aside(self, name: str, *, copy: bool = False) -> str:
        """Move or copy a file to the folder of unused files, and return its new path."""
        first = f"{ASIDE}/{name.rpartition('/')[2]}"
        targets = (first if number == 1 else f"{first}.{number}" for number in count(1))
        return self.at(next(target for target in targets if self._moved(name, target, copy)))

    def _moved(self, name: str, target: str, copy: bool) -> bool:
        """Move or copy a file unless the target exists; return whether it was free."""
        old, new = self._folder / name, self._folder / target
        if os.path.lexists(new):
            return False
        try:
            new.parent.mkdir(exist_ok=True)
            if not copy:
                os.replace(old, new)
            elif old.exists():
                shutil.copyfile(old, new)
        except OSError as error:
            raise unwritable(new, error) from error
        return True

    def remove_cells(self) -> None:
        """Remove the files of single cells, and empty folders, as far as possible."""
        if (self._folder / CELLS).is_dir():  # opening a pipe of this name would block
            shutil.rmtree(self._folder / CELLS, ignore_errors=True)
        with contextlib.suppress(OSError):
            (self._folder / UNFINISHED).rmdir()

    def unfinished(self) -> list[str]:
        """Return the files with the state of unfinished jobs, in order."""
        paths = (self._folder / UNFINISHED).glob("*.state")
        return sorted(path.relative_to(self._folder).as_posix() for path in paths)

    @contextlib.contextmanager
    def held(self) -> Iterator[str]:
        """Hold the lock, create the place if it does not exist, and yield the `token`.

        Raises:
            ResultError: If another process holds the lock, or it cannot be written.
        """
        import filelock

        make_folder(self._folder)
        self.names()
        lock = filelock.FileLock(self._folder / LOCK, timeout=0)
        try:
            lock.acquire()
        except filelock.Timeout:
            raise self._busy(self._note(OWNER).partition(" ")[2]) from None
        except OSError as error:
            raise unwritable(self._folder / LOCK, error) from error
        try:
            for path in self._folder.rglob(f".*{TEMPORARY}"):  # left by killed writers
                with contextlib.suppress(OSError):
                    path.unlink()
            self.token = uuid.uuid4().hex
            said = f"{self.token} {_this_process()}"
            write_file(self._folder / OWNER, said.encode(), durable=False)
            yield self.token
        finally:
            with contextlib.suppress(OSError):
                (self._folder / OWNER).unlink()
            lock.release()

    def check(self) -> None:
        """Raise `ResultError` if the place was deleted or taken over by another run."""
        holders = self._holders()
        if self.token not in holders:
            what = "belongs to another run now" if holders else "was deleted or moved"
            raise ResultError(f"{self} {what} while this run was writing to it")

    def _holders(self) -> list[str]:
        return self._note(OWNER).split()[:1]

    def _note(self, name: str) -> str:
        with contextlib.suppress(FileNotFoundError, DamagedResult):
            return self.read(name, MOST_NOTE).decode(errors="replace")
        return ""

    def _busy(self, who: str) -> ResultError:
        who = who or "another process"
        return ResultError(f"{self} is in use by {who}. Wait for it, or give another directory")


class ObjectStorage(Storage):
    """Objects below one address; credentials come from the environment.

    A run puts an owner object and continues only if a listing then shows no other owner. Of two
    concurrent runs at least one gives up, because listings are consistent after a put (S3, Google
    and Azure guarantee it). A run that finds another owner waits for its heartbeat, and removes
    the owner object after `LEASE_SECONDS` without one. Before every write the run's owner object
    must still exist. Remaining case: a run that is suspended for longer than the lease between
    that check and the end of its write may write at the same time as its successor. Cells are
    equal whichever run writes them, and a table that does not fit the manifest is recomputed.
    """

    path: str
    readers = 16

    def __init__(self, path: str) -> None:
        self.path = path
        self.shared = not path.startswith("memory:")

    def at(self, name: str) -> str:
        return f"{self.path}/{name}" if name else self.path

    def _ask(self, what: str, name: str, *arguments: Any, **options: Any) -> Any:
        """Call a method of the store."""
        try:
            from fsspec.core import url_to_fs

            store = url_to_fs(self.path, use_listings_cache=False)[0]
            return getattr(store, what)(self.at(name), *arguments, **options)
        except FileNotFoundError:
            raise
        except ImportError as error:
            raise MissingExtraError(
                f"{self} needs a package ({error}); the extra [cloud] brings that of S3: "
                "pip install 'dpb-gym[cloud]'"
            ) from None
        except Exception as error:  # stores raise different errors
            said = " ".join(str(error).split()) or type(error).__name__
            raise UnreachableError(
                f"{self.at(name)}: the store says: {said:.300}. Are the address, the credentials "
                "and the network right? Results that were finished before are untouched"
            ) from error

    def _listed(self, what: str, name: str) -> list[str]:
        try:
            paths = self._ask(what, name, detail=False)
        except FileNotFoundError:
            return []
        start = len(self._ask("_strip_protocol", "")) + 1
        return sorted(path[start:].rstrip("/") for path in paths if len(path) > start)

    def names(self) -> list[str] | None:
        names = self._listed("ls", "")
        return [name for name in names if not name.startswith((OWNER, PULSE))] if names else None

    def cells(self) -> list[str]:
        names = self._listed("find", CELLS)
        return [name for name in names if name.endswith(".parquet") and name.count("/") == 2]

    def read(self, name: str, most: int) -> bytes:
        size = int(self._ask("info", name)["size"] or 0)
        content = b""
        if 0 < size <= most:  # a store may send more than `size`; an empty range is an error
            content = self._ask("cat_file", name, start=0, end=most + 1)
        if max(size, len(content)) > most:
            raise DamagedResult(f"{self.at(name)} cannot be read (over {most >> 10:,} KiB)")
        return content

    def write(self, name: str, content: bytes) -> None:
        try:
            self._ask("pipe_file", name, content)
        except FileNotFoundError as error:
            raise UnreachableError(f"cannot write {self.at(name)}: no such bucket") from error

    def remove(self, name: str) -> None:
        with contextlib.suppress(FileNotFoundError, UnreachableError):
            self._ask("rm_file", name)

    def _moved(self, name: str, target: str, copy: bool) -> bool:
        if self._ask("exists", target):
            return False
        with contextlib.suppress(FileNotFoundError):
            self._ask("copy" if copy else "mv", name, self.at(target))
        return True

    def remove_cells(self) -> None:
        with contextlib.suppress(FileNotFoundError, UnreachableError):
            self._ask("rm", CELLS, recursive=True)

    def unfinished(self) -> list[str]:
        return [name for name in self._listed("find", UNFINISHED) if name.endswith(".state")]

    @contextlib.contextmanager
    def held(self) -> Iterator[str]:
        self._remove_dead()
        token, stop = uuid.uuid4().hex, threading.Event()
        self.token = token
        pulse = threading.Thread(target=self._beat, args=(token, stop), daemon=True)
        try:
            self.write(OWNER + token, _this_process().encode())
            if others := [holder for holder in self._holders() if holder != token]:
                raise self._busy(self._note(OWNER + others[0]))
            pulse.start()
            yield token
        finally:
            stop.set()
            if pulse.is_alive():
                pulse.join()
            self._remove(token)

    def _holders(self) -> list[str]:
        names = self._listed("ls", "")
        return [name.removeprefix(OWNER) for name in names if name.startswith(OWNER)]

    def _beat(self, token: str, stop: threading.Event) -> None:
        for beat in count():
            if stop.wait(PULSE_SECONDS if beat else 0):
                return
            with contextlib.suppress(ResultError):
                self.write(PULSE + token, str(beat).encode())

    def _remove_dead(self) -> None:
        """Remove owners without a heartbeat; raise ResultError if one has a heartbeat."""
        before = {token: self._note(PULSE + token) for token in self._holders()}
        if before:
            warn(f"{self} is held, or a run was killed: waiting {LEASE_SECONDS:g} s for its pulse")
        end = time.monotonic() + LEASE_SECONDS
        while before and time.monotonic() < end:
            time.sleep(PULSE_SECONDS / 2)
            for token, last in before.items():
                if self._note(PULSE + token) != last:
                    raise self._busy(self._note(OWNER + token))
        for token in before:
            self._remove(token)

    def _remove(self, token: str) -> None:
        for name in (OWNER + token, PULSE + token):
            self.remove(name)


def _this_process() -> str:
    return f"process {os.getpid()} on {socket.gethostname()}"


def warn(message: str) -> None:
    """Emit a RuntimeWarning at the caller's caller."""
    warnings.warn(message, RuntimeWarning, stacklevel=3)
