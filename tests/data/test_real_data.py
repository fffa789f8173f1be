"""The original files: published counts, independent readings, and the pitfalls seen in them."""

from __future__ import annotations

import csv
import io
import zipfile
from pathlib import Path

import numpy as np
import pytest

import dpb_data
from dpb_gym.errors import DataError


@pytest.mark.slow
@pytest.mark.real_data("ml-latest-small")
def test_latest_small(real: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DPB_DATA", str(real.parent))
    assert dpb_data.path("ml-latest-small") == real
    table = dpb_data.load_ratings("ml-latest-small")
    assert (len(table), table.n_users, table.n_items) == (100_836, 610, 9_724)
    assert dpb_data.check("ml-latest-small").counts == dpb_data.Counts(100_836, 610, 9_724, 9_742)
    with open(real / "ratings.csv", newline="", encoding="utf-8") as stream:
        rows = list(csv.DictReader(stream))
    assert table.ratings.tolist() == [float(row["rating"]) for row in rows]
    assert table.item_ids[table.items].tolist() == [int(row["movieId"]) for row in rows]
    # Ids have gaps and go up to 193609: they must be renumbered, not used as indices.
    assert table.item_ids.max() == 193_609 and table.items.max() == 9_723
    assert table.titles is not None
    assert (
        table.titles[int(np.searchsorted(table.item_ids, 11))] == "American President, The (1995)"
    )
    city = "City of Lost Children, The (Cité des enfants perdus, La) (1995)"
    assert table.titles[int(np.searchsorted(table.item_ids, 29))] == city


@pytest.mark.real_data("ml-latest-small")
def test_latest_small_is_verified_byte_for_byte(real: Path) -> None:
    report = dpb_data.check(real)
    assert report.ok and {file.status for file in report.files} == {"ok"}


@pytest.mark.real_data("ml-100k")
def test_100k(real: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DPB_DATA", str(real.parent))
    table = dpb_data.load_ratings("ml-100k")
    assert (len(table), table.n_users, table.n_items) == (100_000, 943, 1_682)
    assert table.rating_range == (1.0, 5.0) and set(table.ratings) == {1.0, 2.0, 3.0, 4.0, 5.0}
    raw = np.loadtxt(real / "u.data", dtype=np.int64)
    assert np.array_equal(table.user_ids[table.users], raw[:, 0])
    assert np.array_equal(table.ratings, raw[:, 2]) and np.array_equal(table.timestamps, raw[:, 3])
    assert table.titles is not None and table.titles[542] == "Misérables, Les (1995)"
    assert table.titles[266] == "unknown"
    report = dpb_data.check("ml-100k")
    assert report.ok and {file.status for file in report.files} <= {"ok", "unknown"}


@pytest.mark.real_data("ml-1m-shape")
def test_1m_shape(real: Path) -> None:
    """Real `::` titles with colons, commas and Latin-1; a hand-edited ratings file, cut short."""
    with pytest.raises(DataError, match=r"ratings\.dat: line 19: expected a newline"):
        dpb_data.load_ratings(real)
    table = dpb_data.load_ratings(real, strict=False)
    assert (len(table), table.n_users, table.n_items) == (19, 4, 14)
    assert table.rating_range == (1.0, 5.0) and table.ratings[0] == 5.0
    assert table.titles is not None
    assert table.titles[table.item_ids.tolist().index(1193)].startswith("One Flew Over the Cuckoo")
    from dpb_data.data_files import Source
    from dpb_data.formats import FORMATS, read_titles

    titles = read_titles(Source(real), FORMATS["ml-1m"], strict=True)
    assert len(titles) == 3_883 and max(titles) == 3_952
    assert titles[73] == "Misérables, Les (1995)"
    assert any(title.count(":") for title in titles.values())
    with pytest.raises(DataError, match="expected 4 fields separated by"):
        dpb_data.load_ratings(real / "ratings.dat", format="ml-100k")


@pytest.mark.real_data("ml-25m-head")
def test_25m_head_is_refused(real: Path, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"ratings\.truncated\.csv: line 10001: .*cut off"):
        dpb_data.load_ratings(real)
    with pytest.raises(DataError, match="line 10001"):
        dpb_data.load_ratings(real / "ratings.truncated.csv")
    assert not dpb_data.check(real).ok
    assert len(dpb_data.load_ratings(real, strict=False)) == 10_000
    # With the line closed and the name of the release, the counts differ.
    (tmp_path / "ml-25m").mkdir()
    content = (real / "ratings.truncated.csv").read_bytes()
    (tmp_path / "ml-25m" / "ratings.csv").write_bytes(content + b"\n")
    with pytest.raises(DataError, match="expected 25,000,095 ratings, found 10,000"):
        dpb_data.load_ratings(tmp_path / "ml-25m")
    # One digit less, even with the line closed, is a date before MovieLens.
    (tmp_path / "ml-25m" / "ratings.csv").write_bytes(content[:-1] + b"\n")
    with pytest.raises(DataError, match=r"line 10001: expected timestamp .*'153720865'"):
        dpb_data.load_ratings(tmp_path / "ml-25m")


@pytest.mark.real_data("jester-data-1")
@pytest.mark.slow
def test_jester(real: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DPB_DATA", str(real.parent))
    assert dpb_data.path("jester-1") == real
    table = dpb_data.load_ratings("jester-1")
    assert (len(table), table.n_users, table.n_items) == (1_810_455, 24_983, 100)
    per_user = np.bincount(table.users)
    assert int((per_user == 100).sum()) == 7_200 and per_user.min() == 36
    with zipfile.ZipFile(real / "jester-data-1.zip") as archive:
        raw = archive.read("jester-data-1.csv")
    matrix = np.loadtxt(io.BytesIO(raw), delimiter=",")
    # The first row is a user, not a header.
    first = matrix[0, 1:][matrix[0, 1:] != 99]
    assert table.user_ids[0] == 1 and np.array_equal(table.ratings[table.users == 0], first)
    assert np.array_equal(table.ratings, matrix[:, 1:][matrix[:, 1:] != 99])
    assert np.array_equal(per_user, matrix[:, 0])
    report = dpb_data.check("jester-1")
    assert report.ok and [file.status for file in report.files] == ["ok"]


@pytest.mark.real_data("jester-data-1")
def test_jester_cut_anywhere(real: Path, tmp_path: Path) -> None:
    with zipfile.ZipFile(real / "jester-data-1.zip") as archive:
        raw = archive.read("jester-data-1.csv")
    path = tmp_path / "jester-data-1" / "jester-data-1.csv"
    path.parent.mkdir()
    end = raw.rindex(b"\n", 0, 200_000) + 1
    for cut in (end - 1, end - 2, end - 50, 150_001):
        path.write_bytes(raw[:cut])
        with pytest.raises(DataError, match=r"jester-data-1\.csv: line \d+: expected"):
            dpb_data.load_ratings(path)
    path.write_bytes(raw[:end])
    with pytest.raises(DataError, match="expected 1,810,455 ratings, found"):
        dpb_data.load_ratings(path.parent)


@pytest.mark.real_data("expedia")
def test_searches_are_not_taken_for_ratings(real: Path) -> None:
    with pytest.raises(DataError, match="one single"):
        dpb_data.load_ratings(real)
    for file in real.glob("*.csv"):
        with pytest.raises(DataError, match="line 1: expected the first line of one of"):
            dpb_data.load_ratings(file)
