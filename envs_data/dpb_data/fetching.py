"""Download data sets into the cache, completely or not at all, by pooch."""

from __future__ import annotations

import contextlib
import errno
import logging
import os
import re
import shutil
import tempfile
import threading
import time
import zipfile
import zlib
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from dpb_data.checking import check_location
from dpb_data.data_files import safe_members
from dpb_data.data_folders import CACHE_VARIABLE, cache_dir
from dpb_data.dataset_registry import DataSet, dataset
from dpb_data.formats import holds_ratings
from dpb_gym.errors import DataError, ParameterError, optional_module

MAX_DOWNLOAD = 1 << 30
_SILENCE = 30.0
_STALE_AFTER = 24 * 3600.0


def fetch(
    name: str,
    *,
    base_url: str | None = None,
    progress: bool = True,
    force: bool = False,
    time_limit: float = 3600.0,
) -> Path:
    """Download a data set, check it, and move it into the cache under its name.

    All steps work in a hidden folder beside the final one: download (at most 1 GiB),
    comparison with the check sum (a registered SHA-256, else the check-sum file beside the
    archive), unpacking, `check` of the contents. Then the folder is renamed, so the cache never
    contains an interrupted or damaged download.

    Args:
        name: Name or alias of a registered data set.
        base_url: Address to download from instead; the archive's file name is appended.
        progress: Whether to show a progress bar on standard error.
        force: Whether to download again if the data set is in the cache.
        time_limit: Largest number of seconds for the download of one file.

    Returns:
        The data set's folder in the cache.

    Raises:
        DataError: Not downloadable, too large or too slow, wrong check sum, damaged archive,
            unsafe archive, or not the published data; the cache does not change.
        MissingExtraError: pooch is not installed.
        ParameterError: The data set is generated and needs no files.
        UnknownNameError: The name is not registered.
    """
    known = dataset(name)
    if known.generated or not known.urls:
        why = "is generated on the fly" if known.generated else "has no registered address"
        raise ParameterError(f"{known.name} {why}: there is nothing to download")
    cache = cache_dir()
    target = cache / known.name
    if not force and target.is_dir() and (known.kind != "ratings" or holds_ratings(target)):
        return target
    urls = list(known.urls)
    if base_url is not None:
        urls = [f"{base_url.rstrip('/')}/{_file_name(urls[0])}"]
    try:
        cache.mkdir(parents=True, exist_ok=True)
        _remove_stale(cache)
        # hidden, so that no listing shows it as a data set
        with tempfile.TemporaryDirectory(dir=cache, prefix=f".fetch-{known.name}-") as work:
            archive, url = _download_any(urls, known, Path(work), progress, time_limit)
            content = unpack(archive, Path(work) / "unpacked", label=url)
            report = check_location(content, known)
            if not report.ok:
                raise DataError(
                    f"{url}: not the published {known.name}: {'; '.join(report.problems)}"
                )
            with contextlib.suppress(FileNotFoundError):
                target.rename(Path(work) / "replaced")
            try:
                content.rename(target)
            except OSError as error:
                # another process was faster; its copy passed the same checks
                if error.errno not in (errno.EEXIST, errno.ENOTEMPTY):
                    raise
    except OSError as error:
        raise DataError(
            f"{cache}: the cache cannot be written ({error}); set {CACHE_VARIABLE} to a folder "
            "that can"
        ) from error
    return target


def unpack(archive: Path, target: Path, *, label: str) -> Path:
    """Unpack an untrusted zip archive with `pooch.Unzip`.

    Args:
        archive: The archive; `dpb_data.data_files.safe_members` rejects unsafe ones.
        target: Folder to create.
        label: Name of the archive in messages.

    Returns:
        `target`, or the only folder in it if the archive has one top folder.

    Raises:
        DataError: The archive is damaged, truncated or unsafe.
    """
    safe_members(archive, label)
    try:
        _pooch().Unzip(extract_dir=str(target))(str(archive), "download", None)
    except (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, RuntimeError) as error:
        raise DataError(
            f"{label}: expected a complete zip archive, found a damaged or truncated one ({error})"
        ) from error
    entries = [entry for entry in target.iterdir() if entry.name != "__MACOSX"]
    if not entries:
        raise DataError(f"{label}: the zip archive holds no files")
    return entries[0] if len(entries) == 1 and entries[0].is_dir() else target


def _pooch() -> Any:
    hint = " (or unpack the data set by hand to $DPB_DATA/<name>)"
    pooch = optional_module("pooch", "downloading data sets", "data", hint)
    pooch.get_logger().setLevel(logging.ERROR)  # silence its advice to paste hashes into the code
    return pooch


def _file_name(url: str) -> str:
    return urlsplit(url).path.rsplit("/", 1)[-1]


def _download_any(
    urls: list[str], known: DataSet, staging: Path, progress: bool, time_limit: float
) -> tuple[Path, str]:
    """Download from the first address that works."""
    failures: list[str] = []
    for url in urls:
        expected = known.archive_sha256 and f"sha256:{known.archive_sha256}"
        try:
            if expected is None and known.sidecar:
                expected = _published_md5(url + known.sidecar, staging, time_limit)
            return _download(url, expected, staging, progress, time_limit), url
        except DataError as error:
            failures.append(str(error))
    raise DataError(
        f"{known.name} could not be downloaded: {'; '.join(failures)}. By hand: get it from "
        f"{known.homepage or urls[0]} and unpack it to {cache_dir() / known.name}"
    )


def _download(
    url: str, expected: str | None, staging: Path, progress: bool, time_limit: float,
    size_limit: int | None = None,
) -> Path:  # fmt: skip
    """Download one file; `expected` is ``"algorithm:digest"`` or None."""
    pooch = _pooch()
    watch = _Watch(_file_name(url), size_limit or MAX_DOWNLOAD, progress)
    downloader = pooch.HTTPDownloader(progressbar=watch, timeout=_SILENCE)
    failures: list[BaseException] = []

    def go() -> None:
        try:
            pooch.retrieve(url, expected, _file_name(url), staging, downloader=downloader)
        except BaseException as error:
            failures.append(error)

    # a slow server can block a read forever, so the time limit is checked in this thread
    worker = threading.Thread(target=go, daemon=True)
    with watch.bar:
        worker.start()
        worker.join(time_limit)
    watch.stopped = True
    if worker.is_alive():
        raise DataError(f"{url}: download failed (not done after {time_limit:g} seconds)")
    for error in failures:
        status = getattr(getattr(error, "response", None), "status_code", None)
        if isinstance(error, DataError):
            reason = f"download failed ({error})"
        elif isinstance(error, ValueError) and status is None:  # a wrong hash or address
            reason = str(error)
        elif status or type(error).__module__.startswith("requests"):
            cause = f"HTTP status {status}" if status else f"{type(error).__name__}: {error}"
            reason = f"download failed ({cause})"
        else:
            raise error
        raise DataError(f"{url}: {reason}") from error
    return staging / _file_name(url)


def _published_md5(url: str, staging: Path, time_limit: float) -> str | None:
    """Return the check sum in a publisher's ``.md5`` file, or None without such a file."""
    try:
        text = _download(url, None, staging, False, time_limit, 1 << 16).read_bytes()
    except DataError:
        return None
    match = re.search(rb"\b[0-9a-fA-F]{32}\b", text)
    return f"md5:{match.group().decode().lower()}" if match else None


def _remove_stale(cache: Path) -> None:
    """Remove folders of killed downloads that are a day old or older."""
    for leftover in cache.glob(".fetch-*"):
        with contextlib.suppress(OSError):
            if time.time() - leftover.stat().st_mtime > _STALE_AFTER:
                shutil.rmtree(leftover, ignore_errors=True)


class _Watch:
    """Progress callback of pooch: show a progress bar and stop a download that is too large.

    Attributes:
        total: Announced size in bytes, set by pooch.
        stopped: Whether the download ends at its next chunk.
        bar: Progress bar, shown while its context is entered.
    """

    def __init__(self, label: str, limit: int, shown: bool) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, DownloadColumn, Progress, TimeRemainingColumn

        self.bar = Progress(
            "{task.description}", BarColumn(), DownloadColumn(), TimeRemainingColumn(),
            console=Console(stderr=True), transient=not os.isatty(2), disable=not shown,
        )  # fmt: skip
        self._task = self.bar.add_task(label, total=None)
        self._limit = limit
        self._done = self.total = 0
        self.stopped = False

    def update(self, amount: int) -> None:
        """Add bytes to the count; raise DataError beyond the limit."""
        self._done += amount
        if self.stopped or max(self.total, self._done - amount) > self._limit:
            raise DataError(f"more than the {self._limit:,} bytes that any known data set needs")
        self.bar.update(self._task, total=self.total or None, completed=self._done)

    def reset(self) -> None:
        """Reset the count; pooch calls it at the end to show the exact total."""
        self._done = 0

    def close(self) -> None:
        """Do nothing: leaving the context stops the bar."""
