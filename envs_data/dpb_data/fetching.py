"""`fetch`: downloading a data set into the cache, all or nothing."""

from __future__ import annotations

import contextlib
import logging
import os
import re
import shutil
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import Any
from urllib.parse import urlsplit

from dpb_data.checking import check_location
from dpb_data.formats import holds_ratings
from dpb_data.locating import CACHE_VARIABLE, cache_dir
from dpb_data.registry import DataSet, dataset
from dpb_data.sources import open_source
from dpb_data.unpacking import unpack
from dpb_gym.errors import DataError, ParameterError

_TIMEOUT = 30.0
_STALE_AFTER = 24 * 3600.0


def fetch(
    name: str, *, base_url: str | None = None, progress: bool = True, force: bool = False
) -> Path:
    """Downloads a data set, checks it, and puts it into the cache under its name.

    Everything happens in a hidden folder beside the final one: download, comparison with the
    check sum (a registered SHA-256, else the check-sum file beside the archive), unpacking,
    `check` of the contents. Only then is the folder renamed into place, so an interrupted or
    damaged download never looks like a data set.

    Args:
        name: Name or alias of a registered data set.
        base_url: Where to download from instead: the archive's file name is appended.
        progress: Whether to show a progress bar on standard error.
        force: Whether to download again what is already in the cache.

    Returns:
        The data set's folder in the cache.

    Raises:
        DataError: Not downloadable, wrong check sum, damaged archive, unsafe archive, or not the
            published data; the cache is as before.
        ParameterError: The data set is generated and needs no files.
        UnknownNameError: The name is not registered.
    """
    known = dataset(name)
    if known.generated or not known.urls:
        why = "is generated on the fly" if known.generated else "has no registered address"
        raise ParameterError(f"{known.name} {why}: there is nothing to download")
    cache = cache_dir()
    target = cache / known.name
    if not force and _complete(target, known):
        return target
    urls = list(known.urls)
    if base_url is not None:
        urls = [f"{base_url.rstrip('/')}/{_file_name(urls[0])}"]
    try:
        cache.mkdir(parents=True, exist_ok=True)
        _remove_stale(cache)
        # Hidden, so that no listing takes it for a data set.
        with tempfile.TemporaryDirectory(dir=cache, prefix=f".fetch-{known.name}-") as work:
            staging = Path(work)
            archive, url = _download_any(urls, known, staging, progress=progress)
            unpacked = staging / "unpacked"
            unpacked.mkdir()
            content = unpack(archive, unpacked, label=url)
            report = check_location(content, known)
            if not report.ok:
                raise DataError(
                    f"{url}: not the published {known.name}: {'; '.join(report.problems)}"
                )
            _move_into_place(content, target, staging)
    except OSError as error:
        raise DataError(
            f"{cache}: the cache cannot be written ({error}); set {CACHE_VARIABLE} to a folder "
            "that can"
        ) from error
    return target


def _complete(target: Path, known: DataSet) -> bool:
    if not target.is_dir():
        return False
    return known.kind != "ratings" or holds_ratings(open_source(target))


def _file_name(url: str) -> str:
    return urlsplit(url).path.rsplit("/", 1)[-1]


def _download_any(
    urls: list[str], known: DataSet, staging: Path, *, progress: bool
) -> tuple[Path, str]:
    """Downloads from the first address that works."""
    failures: list[str] = []
    for url in urls:
        try:
            expected = known.archive_sha256 and f"sha256:{known.archive_sha256}"
            if expected is None and known.sidecar:
                expected = _published_md5(url + known.sidecar, staging)
            return _download(url, expected, staging, progress=progress), url
        except DataError as error:
            failures.append(str(error))
    raise DataError(
        f"{known.name} could not be downloaded: {'; '.join(failures)}. By hand: get it from "
        f"{known.homepage or urls[0]} and unpack it to {cache_dir() / known.name}"
    )


def _download(url: str, expected: str | None, staging: Path, *, progress: bool) -> Path:
    """Downloads one file; `expected` is ``"algorithm:digest"`` or None."""
    import pooch

    with _quiet_pooch(), _Bar(_file_name(url)) if progress else contextlib.nullcontext() as bar:
        downloader = pooch.HTTPDownloader(
            progressbar=bar if bar is not None else False, timeout=_TIMEOUT
        )
        try:
            got = pooch.retrieve(
                url, known_hash=expected, fname=_file_name(url), path=staging,
                downloader=downloader,
            )  # fmt: skip
        except ValueError as error:  # pooch's word for a wrong hash or a malformed address
            raise DataError(f"{url}: {error}") from error
        except OSError as error:  # requests' errors derive from OSError
            status = getattr(getattr(error, "response", None), "status_code", None)
            if status is None and not type(error).__module__.startswith("requests"):
                raise
            reason = f"HTTP status {status}" if status else f"{type(error).__name__}: {error}"
            raise DataError(f"{url}: download failed ({reason})") from error
    return Path(got)


def _published_md5(url: str, staging: Path) -> str | None:
    """The check sum in a publisher's ``.md5`` file, or None if there is no such file."""
    try:
        text = _download(url, None, staging, progress=False).read_bytes()[:4096]
    except DataError:
        return None
    found = re.search(rb"\b[0-9a-fA-F]{32}\b", text)
    return f"md5:{found.group().decode().lower()}" if found else None


def _move_into_place(content: Path, target: Path, staging: Path) -> None:
    with contextlib.suppress(FileNotFoundError):
        target.rename(staging / "replaced")
    try:
        content.rename(target)
    except OSError:
        # Another process was faster; its copy went through the same checks.
        if not target.is_dir():
            raise


def _remove_stale(cache: Path) -> None:
    """Removes what killed downloads left behind a day ago or more."""
    for leftover in cache.glob(".fetch-*"):
        with contextlib.suppress(OSError):
            if time.time() - leftover.stat().st_mtime > _STALE_AFTER:
                shutil.rmtree(leftover, ignore_errors=True)


@contextlib.contextmanager
def _quiet_pooch() -> Iterator[None]:
    """Keeps pooch from advising people to paste hashes into their code."""
    import pooch

    logger = pooch.get_logger()
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        logger.setLevel(level)


class _Bar:
    """A rich progress bar with the four methods that pooch calls."""

    def __init__(self, label: str) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, DownloadColumn, Progress, TimeRemainingColumn

        self._progress: Any = Progress(
            "{task.description}", BarColumn(), DownloadColumn(), TimeRemainingColumn(),
            console=Console(stderr=True), transient=not os.isatty(2),
        )  # fmt: skip
        self._task = self._progress.add_task(label, total=None)
        self.total = 0

    def __enter__(self) -> _Bar:
        self._progress.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._progress.stop()

    def update(self, amount: int) -> None:
        """Advances by so many bytes."""
        self._progress.update(self._task, total=self.total or None, advance=amount)

    def reset(self) -> None:
        """Starts over; pooch calls it once at the end to show the exact total."""
        self._progress.reset(self._task, total=self.total or None)

    def close(self) -> None:
        """Nothing to do: leaving the context stops the bar."""
