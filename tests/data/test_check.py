"""`check`: correct results, as text and JSON."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest
from rating_files import write_fixture

import dpb_data
from dpb_data import Counts, DataSet, RatingTable
from dpb_gym.errors import DataError, UnknownNameError


@pytest.fixture
def folder(tmp_path: Path, half_stars: RatingTable, scratch_registry: None) -> Path:
    place = write_fixture(half_stars, tmp_path / "mine", "ml-25m")
    digests = {f.name: hashlib.sha256(f.read_bytes()).hexdigest() for f in place.iterdir()}
    digests["README.txt"] = "0" * 64
    dpb_data.register_dataset(
        DataSet(
            "mine", "d", "ml-csv", "t", "c", files=digests, counts=Counts(12_000, 300, 200, 200)
        )
    )
    return place


def test_good(folder: Path) -> None:
    report = dpb_data.check(folder)
    assert report.ok and report.dataset == "mine" and report.format == "ml-csv"
    assert {file.name: file.status for file in report.files} == {
        "movies.csv": "ok", "ratings.csv": "ok", "README.txt": "absent",
    }  # fmt: skip
    assert report.counts == report.expected == Counts(12_000, 300, 200, 200)
    text = str(report)
    assert text.startswith("mine: ok") and "12,000 ratings (published: 12,000)" in text


def test_changed_rating_is_found_by_its_check_sum(folder: Path) -> None:
    path = folder / "ratings.csv"
    raw = path.read_bytes()
    old = raw.split(b"\n")[5]
    new = old.replace(b",3.", b",4.") if b",3." in old else old.replace(b".0,", b".5,")
    new = new if new != old else old.replace(b".5,", b".0,")
    path.write_bytes(raw.replace(old, new, 1))
    report = dpb_data.check(folder)
    assert not report.ok and "NOT ok" in str(report)
    assert [f.name for f in report.files if f.status == "bad"] == ["ratings.csv"]
    assert any("check sum" in problem for problem in report.problems)


def test_truncation_is_reported_not_raised(folder: Path) -> None:
    path = folder / "ratings.csv"
    path.write_bytes(path.read_bytes()[:-3])
    report = dpb_data.check(folder)
    assert report.counts is None and not report.ok
    assert any("line 12001: expected" in problem for problem in report.problems)
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join(lines[:-1]))
    report = dpb_data.check(folder)
    assert any("expected 12,000 ratings, found 11,999" in problem for problem in report.problems)


def test_unregistered_folder_and_single_file(tmp_path: Path, half_stars: RatingTable) -> None:
    place = write_fixture(half_stars, tmp_path / "own", "ml-10m")
    report = dpb_data.check(place)
    assert report.ok and report.dataset is None and report.expected is None
    assert {file.status for file in report.files} == {"unknown"}
    assert any("no verified check sum" in note for note in report.notes)
    single = dpb_data.check(place / "ratings.dat")
    assert [file.name for file in single.files] == ["ratings.dat"] and single.ok
    assert single.files[0].size == (place / "ratings.dat").stat().st_size


def test_check_sums_that_an_archive_brings_along(tmp_path: Path, half_stars: RatingTable) -> None:
    place = write_fixture(half_stars, tmp_path / "own", "ml-25m")
    lines = [
        f"{hashlib.md5((place / name).read_bytes()).hexdigest()}  {name}\n"
        for name in ("movies.csv", "ratings.csv")
    ]
    (place / "checksums.txt").write_text("".join(lines))
    report = dpb_data.check(place)
    assert {f.name: f.status for f in report.files}["ratings.csv"] == "ok" and report.ok
    (place / "checksums.txt").write_text("".join(["0" * 32 + lines[0][32:], lines[1]]))
    report = dpb_data.check(place)
    assert {f.name: f.status for f in report.files}["movies.csv"] == "bad" and not report.ok


def test_zip_members(tmp_path: Path, half_stars: RatingTable) -> None:
    archive = write_fixture(half_stars, tmp_path / "own", "ml-25m", zipped=True)
    assert [f.name for f in dpb_data.check(archive).files] == ["movies.csv", "ratings.csv"]
    raw = archive.read_bytes()
    archive.write_bytes(raw[:200] + bytes([raw[200] ^ 0x10]) + raw[201:])
    report = dpb_data.check(archive)
    assert not report.ok and any(file.status == "bad" for file in report.files)
    archive.write_bytes(raw[: len(raw) // 2])
    report = dpb_data.check(archive)
    assert not report.ok and report.files == () and "zip" in report.problems[0]


@pytest.mark.parametrize("name", ["synthetic-movielens", "synthetic-jester"])
def test_generated(name: str) -> None:
    report = dpb_data.check(name)
    assert report.ok and report.format == "generated" and "no files" in str(report)


def test_nothing_to_check(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="dpb data fetch ml-1m"):
        dpb_data.check("ml-1m")
    with pytest.raises(UnknownNameError, match="did you mean"):
        dpb_data.check("ml-10")
    with pytest.raises(DataError, match="no such file"):
        dpb_data.check(tmp_path / "x")
    report = dpb_data.check(tmp_path)
    assert not report.ok and "found nothing" in report.problems[0]
