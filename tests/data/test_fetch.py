"""`fetch` against a local HTTP server, correct and faulty."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import http.server
import io
import os
import signal
import stat
import subprocess
import sys
import threading
import time
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from rating_files import write_fixture

import dpb_data
from dpb_data import Counts, DataSet, RatingTable, fetching
from dpb_data.fetching import unpack
from dpb_gym.errors import DataError, MissingExtraError, ParameterError, UnknownNameError


@dataclass
class Site:
    """Responses of the server: bytes by path, and faulty paths."""

    files: dict[str, bytes] = field(default_factory=dict)
    cut: set[str] = field(default_factory=set)
    stall: set[str] = field(default_factory=set)
    trickle: set[str] = field(default_factory=set)
    asked: list[str] = field(default_factory=list)
    release: threading.Event = field(default_factory=threading.Event)
    silent: bool = False
    url: str = ""


@pytest.fixture
def site() -> Iterator[Site]:
    site = Site()

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            site.asked.append(self.path)
            body = site.files.get(self.path)
            if body is None:
                self.send_error(404)
                return
            self.send_response(200)
            if not site.silent:
                self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            half = body[: len(body) // 2]
            if self.path in site.cut:
                self.wfile.write(half)
            elif self.path in site.stall:
                self.wfile.write(half)
                self.wfile.flush()
                site.release.wait(60)
            elif self.path in site.trickle:
                with contextlib.suppress(OSError):
                    for k in range(len(body)):
                        self.wfile.write(body[k : k + 1])
                        self.wfile.flush()
                        if site.release.wait(0.1):
                            break
            else:
                self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, daemon=True).start()
    site.url = f"http://127.0.0.1:{server.server_address[1]}/mirror"
    yield site
    site.release.set()
    server.shutdown()
    server.server_close()


def register(site: Site, folder: Path, **changes: object) -> DataSet:
    """Registers a small data set named "tiny" whose archive the site serves."""
    table = dpb_data.synthetic.movielens(30, 20, 200)
    archive = write_fixture(table, folder / "tiny", "ml-25m", zipped=True).read_bytes()
    with zipfile.ZipFile(io.BytesIO(archive)) as packed:
        ratings = packed.read("tiny/ratings.csv")
    site.files["/mirror/tiny.zip"] = archive
    known = {
        "name": "tiny", "description": "d", "format": "ml-csv", "terms": "t", "citation": "c",
        "homepage": "https://example.org/tiny", "urls": (f"{site.url}/tiny.zip",),
        "archive_sha256": hashlib.sha256(archive).hexdigest(),
        "files": {"ratings.csv": hashlib.sha256(ratings).hexdigest()},
        "counts": Counts(200, 30, 20, 20),
    }  # fmt: skip
    return dpb_data.register_dataset(DataSet(**{**known, **changes}))  # type: ignore[arg-type]


@pytest.fixture
def tiny(site: Site, tmp_path: Path, scratch_registry: None) -> DataSet:
    return register(site, tmp_path)


def test_fetch_then_load_by_name(site: Site, tiny: DataSet, private_places: Path) -> None:
    with pytest.raises(DataError, match="dpb data fetch tiny"):
        dpb_data.load_ratings("tiny")
    place = dpb_data.fetch("tiny", progress=False)
    assert place == private_places / "tiny" == dpb_data.path("tiny")
    assert sorted(file.name for file in place.iterdir()) == ["movies.csv", "ratings.csv"]
    assert stat.S_IMODE(place.stat().st_mode) & 0o500 == 0o500
    assert len(dpb_data.load_ratings("tiny")) == 200
    assert os.listdir(private_places) == ["tiny"]
    assert dpb_data.check("tiny").ok


def test_fetch_again_only_when_forced(site: Site, tiny: DataSet, private_places: Path) -> None:
    place = dpb_data.fetch("tiny", progress=False)
    (place / "mark").touch()
    assert dpb_data.fetch("tiny", progress=False) == place
    assert site.asked == ["/mirror/tiny.zip"] and (place / "mark").exists()
    dpb_data.fetch("tiny", progress=False, force=True)
    assert len(site.asked) == 2 and not (place / "mark").exists()
    assert os.listdir(private_places) == ["tiny"]


def test_an_existing_empty_folder_is_replaced(tiny: DataSet, private_places: Path) -> None:
    (private_places / "tiny").mkdir()
    dpb_data.fetch("tiny", progress=False)
    assert len(dpb_data.load_ratings("tiny")) == 200


def test_progress_is_drawn_on_standard_error(
    tiny: DataSet, capsys: pytest.CaptureFixture[str]
) -> None:
    dpb_data.fetch("tiny", progress=True)
    captured = capsys.readouterr()
    assert captured.out == "" and "SHA256" not in captured.err


def nothing_left(cache: Path) -> bool:
    return os.listdir(cache) == [] and not any(cache.iterdir())


def test_truncated_download(site: Site, tiny: DataSet, private_places: Path) -> None:
    site.cut.add("/mirror/tiny.zip")
    with pytest.raises(DataError, match=r"tiny\.zip: download failed .*IncompleteRead"):
        dpb_data.fetch("tiny", progress=False)
    assert nothing_left(private_places)


@pytest.mark.slow
@pytest.mark.parametrize("how", ["stall", "trickle"])
def test_endless_downloads_stop_at_the_time_limit(
    site: Site, tiny: DataSet, private_places: Path, how: str
) -> None:
    """Each byte comes in time, so no time-out of a single read would end this."""
    getattr(site, how).add("/mirror/tiny.zip")
    begun = time.monotonic()
    with pytest.raises(DataError, match=r"tiny\.zip: download failed \(not done after 0\.5 sec"):
        dpb_data.fetch("tiny", progress=False, time_limit=0.5)
    assert time.monotonic() - begun < 5.0
    assert nothing_left(private_places)


@pytest.mark.parametrize("announced", [True, False])
def test_a_download_has_a_size_limit(
    site: Site, tiny: DataSet, private_places: Path, monkeypatch: pytest.MonkeyPatch,
    announced: bool,
) -> None:  # fmt: skip
    limit = len(site.files["/mirror/tiny.zip"]) - 1
    site.silent = not announced
    monkeypatch.setattr(fetching, "MAX_DOWNLOAD", limit)
    site.files["/mirror/tiny.zip"] += bytes(8192) * (not announced)
    with pytest.raises(DataError, match=r"tiny\.zip: download failed \(more than the [\d,]+ bytes"):
        dpb_data.fetch("tiny", progress=False)
    assert nothing_left(private_places)


def test_without_pooch_the_extra_is_named(
    tiny: DataSet, private_places: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "pooch", None)
    with pytest.raises(MissingExtraError, match=r"pip install 'dpb-gym\[data\]'"):
        dpb_data.fetch("tiny", progress=False)
    assert dpb_data.cache_dir() == private_places and nothing_left(private_places)


def test_truncated_archive_with_a_matching_length(
    site: Site, tmp_path: Path, private_places: Path, scratch_registry: None
) -> None:
    register(site, tmp_path, archive_sha256=None)
    site.files["/mirror/tiny.zip"] = site.files["/mirror/tiny.zip"][:-100]
    with pytest.raises(DataError, match=r"tiny\.zip: expected a complete zip archive"):
        dpb_data.fetch("tiny", progress=False)
    assert nothing_left(private_places)


def test_wrong_check_sum(site: Site, tiny: DataSet, private_places: Path) -> None:
    raw = site.files["/mirror/tiny.zip"]
    site.files["/mirror/tiny.zip"] = raw[:50] + bytes([raw[50] ^ 1]) + raw[51:]
    with pytest.raises(DataError, match="does not match the known hash"):
        dpb_data.fetch("tiny", progress=False)
    assert nothing_left(private_places)


def test_failed_fetch_leaves_the_old_copy(site: Site, tiny: DataSet, private_places: Path) -> None:
    dpb_data.fetch("tiny", progress=False)
    site.cut.add("/mirror/tiny.zip")
    with pytest.raises(DataError):
        dpb_data.fetch("tiny", progress=False, force=True)
    assert os.listdir(private_places) == ["tiny"]
    assert dpb_data.check("tiny").ok


@pytest.mark.slow
@pytest.mark.parametrize("layout", ["{digest}  tiny.zip\n", "MD5 (tiny.zip) = {digest}\n"])
@pytest.mark.parametrize("right", [True, False])
def test_check_sum_file_beside_the_archive(
    site: Site, tmp_path: Path, private_places: Path, scratch_registry: None,
    layout: str, right: bool,
) -> None:  # fmt: skip
    register(site, tmp_path, archive_sha256=None, sidecar=".md5", files={})
    archive = site.files["/mirror/tiny.zip"] + (b"" if right else b"x")
    digest = hashlib.md5(archive).hexdigest()
    site.files["/mirror/tiny.zip.md5"] = layout.format(digest=digest).encode()
    if right:
        dpb_data.fetch("tiny", progress=False)
        assert dpb_data.load_ratings("tiny").n_users == 30
    else:
        with pytest.raises(DataError, match=digest):
            dpb_data.fetch("tiny", progress=False)
        assert nothing_left(private_places)


def test_without_any_check_sum_the_contents_decide(
    site: Site, tmp_path: Path, private_places: Path, scratch_registry: None
) -> None:
    register(site, tmp_path, archive_sha256=None, sidecar=".md5", files={})
    dpb_data.fetch("tiny", progress=False)
    assert site.asked == ["/mirror/tiny.zip.md5", "/mirror/tiny.zip"]
    assert dpb_data.check("tiny").files[0].status == "unknown"


def test_contents_that_are_not_the_published_ones(
    site: Site, half_stars: RatingTable, tmp_path: Path, private_places: Path
) -> None:
    """A mirror that serves something else under the name of a real data set."""
    place = write_fixture(half_stars, tmp_path / "ml-25m", "ml-25m", zipped=True)
    site.files["/mirror/ml-25m.zip"] = place.read_bytes()
    with pytest.raises(DataError, match="not the published ml-25m: expected 25,000,095 ratings"):
        dpb_data.fetch("ml-25m", base_url=site.url + "/", progress=False)
    assert nothing_left(private_places)


def test_not_found_names_the_address_and_the_way_by_hand(site: Site, private_places: Path) -> None:
    with pytest.raises(DataError) as caught:
        dpb_data.fetch("ml-1m", base_url=site.url, progress=False)
    for part in (f"{site.url}/ml-1m.zip", "HTTP status 404", "https://grouplens.org",
                 str(private_places / "ml-1m")):  # fmt: skip
        assert part in str(caught.value)
    assert nothing_left(private_places)


def test_second_address_serves_when_the_first_does_not(
    site: Site, tmp_path: Path, scratch_registry: None
) -> None:
    register(site, tmp_path, urls=(f"{site.url}/gone/tiny.zip", f"{site.url}/tiny.zip"))
    dpb_data.fetch("tiny", progress=False)
    assert site.asked == ["/mirror/gone/tiny.zip", "/mirror/tiny.zip"]


def test_no_server(private_places: Path) -> None:
    with pytest.raises(DataError, match=r"download failed \(ConnectionError"):
        dpb_data.fetch("ml-1m", base_url="http://127.0.0.1:9", progress=False)
    with pytest.raises(DataError, match="ml-1m could not be downloaded"):
        dpb_data.fetch("ml-1m", base_url="gopher://x", progress=False)
    assert nothing_left(private_places)


def test_what_cannot_be_fetched() -> None:
    with pytest.raises(ParameterError, match="generated"):
        dpb_data.fetch("synthetic-jester")
    with pytest.raises(UnknownNameError, match="did you mean"):
        dpb_data.fetch("ml-lm")


def test_cache_that_cannot_be_written(
    tiny: DataSet, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("DPB_CACHE", str(tmp_path / "file"))
    with pytest.raises(DataError, match=r"cannot be written.*DPB_CACHE"):
        dpb_data.fetch("tiny", progress=False)


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGINT])
def test_killed_in_the_middle(
    site: Site, tiny: DataSet, private_places: Path, how: signal.Signals
) -> None:
    """kill -9 and Ctrl-C with half of the archive on disk; then a normal fetch."""
    site.stall.add("/mirror/tiny.zip")
    code = (
        "import dpb_data as d; "
        f"d.register_dataset(d.DataSet('tiny', 'd', 'ml-csv', 't', 'c', urls=({tiny.urls[0]!r},)));"
        "d.fetch('tiny', progress=False)"
    )
    process = subprocess.Popen([sys.executable, "-c", code], stderr=subprocess.DEVNULL)
    try:
        give_up = time.monotonic() + 60
        while not site.asked and time.monotonic() < give_up:
            time.sleep(0.02)
        time.sleep(0.2)
        assert process.poll() is None, "the download should hang in the middle"
        assert list(private_places.glob(".fetch-tiny-*")), "it should have started writing"
        process.send_signal(how)
        assert process.wait(30) != 0
    finally:
        process.kill()
        process.wait()
    with pytest.raises(DataError, match="was not found"):
        dpb_data.path("tiny")
    left = os.listdir(private_places)
    assert left == [] if how is signal.SIGINT else all(name.startswith(".fetch-") for name in left)
    site.stall.clear()
    assert len(dpb_data.load_ratings(dpb_data.fetch("tiny", progress=False))) == 200
    for leftover in private_places.glob(".fetch-*"):
        os.utime(leftover, (0, 0))
    dpb_data.fetch("tiny", progress=False, force=True)
    assert os.listdir(private_places) == ["tiny"]


def test_two_at_once(tiny: DataSet, private_places: Path) -> None:
    """Both end with the same complete copy, whichever renames first."""
    failures: list[BaseException] = []

    def go() -> None:
        try:
            dpb_data.fetch("tiny", progress=False, force=True)
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=go) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    assert os.listdir(private_places) == ["tiny"] and dpb_data.check("tiny").ok


def test_concurrent_replacement_is_not_an_error(
    tiny: DataSet, private_places: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rename = Path.rename

    def beaten(self: Path, to: Path) -> Path:
        if to == private_places / "tiny":  # it was there a moment ago
            raise OSError(errno.ENOTEMPTY, "Directory not empty")
        return rename(self, to)

    monkeypatch.setattr(Path, "rename", beaten)
    assert dpb_data.fetch("tiny", progress=False, force=True) == private_places / "tiny"


def archive_of(path: Path, members: list[tuple[str | zipfile.ZipInfo, bytes]]) -> Path:
    with zipfile.ZipFile(path, "w") as packed:
        for name, content in members:
            packed.writestr(name, content)
    return path


def link(name: str) -> zipfile.ZipInfo:
    info = zipfile.ZipInfo(name)
    info.external_attr = (stat.S_IFLNK | 0o777) << 16
    return info


@pytest.mark.parametrize(
    "evil",
    ["../evil", "a/../../evil", "/evil", "C:/evil", "..\\evil", "a\\..\\evil", "\\\\host\\evil",
     "./../evil", link("a/link")],
    ids=str,
)  # fmt: skip
def test_archives_cannot_write_elsewhere(tmp_path: Path, evil: str | zipfile.ZipInfo) -> None:
    outside = tmp_path / "outside"
    target = outside / "a" / "target"
    target.mkdir(parents=True)
    archive = archive_of(tmp_path / "x.zip", [("good", b"1"), (evil, b"/etc/passwd")])
    before = sorted(outside.rglob("*"))
    with pytest.raises(DataError, match="nothing was unpacked"):
        unpack(archive, target, label="x.zip")
    assert sorted(outside.rglob("*")) == before


@pytest.mark.slow
def test_archives_with_duplicates_bombs_or_no_files_are_rejected(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(archive: Path, message: str) -> None:
        target = tmp_path / f"t{time.monotonic_ns()}"
        target.mkdir()
        with pytest.raises(DataError, match=message):
            unpack(archive, target, label="x.zip")
        assert list(target.iterdir()) == []
        with pytest.raises(DataError, match=message):
            dpb_data.load_ratings(archive)

    refused(archive_of(tmp_path / "b.zip", [("a", b"1"), ("A", b"2")]), "two members")
    refused(archive_of(tmp_path / "l.zip", [("ratings.csv", b"1"), (link("a"), b"/x")]), "a link")
    refused(archive_of(tmp_path / "c.zip", []), "holds no files")
    bomb = tmp_path / "e.zip"
    with zipfile.ZipFile(bomb, "w", zipfile.ZIP_DEFLATED) as packed:
        for name in ("ratings.csv", "b", "c"):
            packed.writestr(name, bytes(30 << 20))
    assert bomb.stat().st_size < 1 << 20
    refused(bomb, "94,371,840 bytes, more than any known")
    monkeypatch.setattr("dpb_data.data_files.MAX_UNPACKED", 1000)
    refused(archive_of(tmp_path / "d.zip", [("a", bytes(600)), ("b", bytes(600))]), "1,200 bytes")


def test_damaged_member_is_seen_while_unpacking(tmp_path: Path) -> None:
    raw = archive_of(tmp_path / "x.zip", [("d/a.txt", b"hello world" * 9)]).read_bytes()
    (tmp_path / "x.zip").write_bytes(raw.replace(b"hello", b"jello", 1))
    (tmp_path / "t").mkdir()
    with pytest.raises(DataError, match="Bad CRC"):
        unpack(tmp_path / "x.zip", tmp_path / "t", label="x.zip")


def test_flat_archives_are_taken_whole(tmp_path: Path) -> None:
    (tmp_path / "t").mkdir()
    archive = archive_of(tmp_path / "x.zip", [("a.xls", b"1"), ("b.txt", b"2")])
    assert unpack(archive, tmp_path / "t", label="x.zip") == tmp_path / "t"
    (tmp_path / "u").mkdir()
    archive = archive_of(tmp_path / "y.zip", [("top/", b""), ("top/a", b"1"), ("__MACOSX/a", b"")])
    assert unpack(archive, tmp_path / "u", label="y.zip") == tmp_path / "u" / "top"


@pytest.mark.slow
@pytest.mark.real_data("ml-latest-small")
def test_fetch_of_the_original(real: Path, site: Site, private_places: Path) -> None:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as packed:
        for file in real.iterdir():
            packed.write(file, f"ml-latest-small/{file.name}")
    site.files["/mirror/ml-latest-small.zip"] = buffer.getvalue()
    place = dpb_data.fetch("ml-latest-small", base_url=site.url, progress=False)
    assert place == private_places / "ml-latest-small"
    assert dpb_data.load_ratings("ml-latest-small").n_items == 9_724


def test_heavy_imports_are_lazy() -> None:
    assert "pooch" not in vars(fetching) and "requests" not in vars(fetching)
