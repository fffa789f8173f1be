"""Every format, written by `rating_files` and by hand, read back value for value."""

from __future__ import annotations

import csv
import zipfile
from pathlib import Path

import numpy as np
import pytest
from rating_files import write_fixture

import dpb_data
from dpb_data import RatingTable
from dpb_data.formats import FORMAT_ALIASES
from dpb_gym.errors import DataError, ParameterError, UnknownNameError

TEXT_FORMATS = ["ml-100k", "ml-1m", "ml-10m", *sorted(FORMAT_ALIASES)]


def assert_same(loaded: RatingTable, expected: RatingTable) -> None:
    for column in ("users", "items", "ratings", "user_ids", "item_ids"):
        assert np.array_equal(getattr(loaded, column), getattr(expected, column)), column
        assert getattr(loaded, column).dtype == getattr(expected, column).dtype
    assert loaded.rating_range == expected.rating_range
    assert loaded.titles == expected.titles
    assert (loaded.timestamps is None) == (expected.timestamps is None)
    if expected.timestamps is not None:
        assert np.array_equal(loaded.timestamps, expected.timestamps)


@pytest.fixture
def table_for(
    half_stars: RatingTable, whole_stars: RatingTable, jokes: RatingTable
) -> dict[str, RatingTable]:
    whole = dict.fromkeys(["ml-100k", "ml-1m"], whole_stars)
    return {**dict.fromkeys(TEXT_FORMATS, half_stars), **whole, "jester-csv": jokes}


@pytest.mark.parametrize("zipped", [False, True], ids=["folder", "zip"])
@pytest.mark.parametrize("format", [*TEXT_FORMATS, "jester-csv"])
def test_round_trip(
    tmp_path: Path, table_for: dict[str, RatingTable], format: str, zipped: bool
) -> None:
    table = table_for[format]
    place = write_fixture(table, tmp_path / "mine", format, zipped=zipped)
    assert_same(dpb_data.load_ratings(place), table)
    assert_same(dpb_data.load_ratings(str(place), format=format), table)
    assert dpb_data.load_ratings(place).name == "mine"


@pytest.mark.parametrize("format", [*TEXT_FORMATS, "jester-csv"])
def test_the_ratings_file_itself_and_an_archive_inside_a_folder(
    tmp_path: Path, table_for: dict[str, RatingTable], format: str
) -> None:
    table = table_for[format]
    folder = write_fixture(table, tmp_path / "mine", format)
    member = folder / dpb_data.FORMATS[FORMAT_ALIASES.get(format, format)].file
    assert_same(dpb_data.load_ratings(member), table)
    write_fixture(table, tmp_path / "outer" / "inner", format, zipped=True)
    assert_same(dpb_data.load_ratings(tmp_path / "outer"), table)


def test_row_order_is_the_files(tmp_path: Path, half_stars: RatingTable) -> None:
    order = np.random.default_rng(3).permutation(len(half_stars))
    shuffled = RatingTable.from_columns(
        "s",
        half_stars.user_ids[half_stars.users][order],
        half_stars.item_ids[half_stars.items][order],
        half_stars.ratings[order],
        rating_range=half_stars.rating_range,
    )
    folder = write_fixture(shuffled, tmp_path / "s", "ml-10m")
    assert np.array_equal(dpb_data.load_ratings(folder).ratings, shuffled.ratings)


def test_loader_agrees_with_the_csv_module(tmp_path: Path, half_stars: RatingTable) -> None:
    """An independent reader of the same bytes: Python's csv, one row at a time."""
    folder = write_fixture(half_stars, tmp_path / "m", "ml-latest-small")
    assert b"\r\n" in (folder / "ratings.csv").read_bytes()
    table = dpb_data.load_ratings(folder)
    with open(folder / "ratings.csv", newline="", encoding="utf-8") as stream:
        rows = list(csv.DictReader(stream))
    with open(folder / "movies.csv", newline="", encoding="utf-8") as stream:
        titles = {int(row["movieId"]): row["title"] for row in csv.DictReader(stream)}
    assert table.user_ids[table.users].tolist() == [int(row["userId"]) for row in rows]
    assert table.item_ids[table.items].tolist() == [int(row["movieId"]) for row in rows]
    assert table.ratings.tolist() == [float(row["rating"]) for row in rows]
    assert table.timestamps is not None
    assert table.timestamps.tolist() == [int(row["timestamp"]) for row in rows]
    assert table.titles == [titles[item] for item in table.item_ids.tolist()]
    assert any("," in title for title in table.titles) and any('"' in t for t in table.titles)


def test_files_bigger_than_one_block(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Blocks of a few hundred bytes cut lines and separators everywhere."""
    table = dpb_data.synthetic.movielens(40, 30, 600)
    expected = {
        format: dpb_data.load_ratings(write_fixture(table, tmp_path / format / "x", format))
        for format in ("ml-10m", "ml-csv")
    }
    for block in (101, 257, 1000):
        monkeypatch.setattr("dpb_data.column_reader.BLOCK", block)
        for format, whole in expected.items():
            assert_same(dpb_data.load_ratings(tmp_path / format / "x"), whole)


def test_items_of_the_catalogue_without_ratings_get_no_index(tmp_path: Path) -> None:
    (tmp_path / "ratings.csv").write_text(
        "userId,movieId,rating,timestamp\n5,30,4.0,964982703\n5,10,0.5,964982703\n"
    )
    (tmp_path / "movies.csv").write_text(
        'movieId,title,genres\n10,"Ten, The",Drama\n20,Twenty,Drama\n30,Thirty,Drama\n'
    )
    table = dpb_data.load_ratings(tmp_path)
    assert table.n_items == 2 and table.titles == ["Ten, The", "Thirty"]
    assert dpb_data.check(tmp_path).counts == dpb_data.Counts(2, 1, 2, 3)


def test_no_titles_file_means_no_titles(tmp_path: Path, half_stars: RatingTable) -> None:
    folder = write_fixture(half_stars, tmp_path / "m", "ml-25m")
    (folder / "movies.csv").unlink()
    assert dpb_data.load_ratings(folder).titles is None


def test_utf8_byte_order_mark_is_skipped(tmp_path: Path) -> None:
    (tmp_path / "ratings.csv").write_bytes(
        b"\xef\xbb\xbfuserId,movieId,rating,timestamp\n5,30,4.0,964982703\n"
    )
    assert len(dpb_data.load_ratings(tmp_path)) == 1


def test_dat_files_without_a_hint_need_a_format(tmp_path: Path) -> None:
    """1M and 10M share a layout; guessing would silently change the scale."""
    (tmp_path / "ratings.dat").write_text("1::2::4::964982703\n")
    with pytest.raises(DataError, match=r"format='ml-1m' or format='ml-10m'"):
        dpb_data.load_ratings(tmp_path)
    assert dpb_data.load_ratings(tmp_path, format="ml-1m").rating_range == (1.0, 5.0)
    assert dpb_data.load_ratings(tmp_path, format="ml-10m").rating_range == (0.5, 5.0)


def test_ambiguous_and_empty_folders(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"expected u\.data, ratings\.dat.*found nothing"):
        dpb_data.load_ratings(tmp_path)
    (tmp_path / "a.csv").write_text("x\n")
    (tmp_path / "b.csv").write_text("x\n")
    with pytest.raises(DataError, match=r"found a\.csv, b\.csv"):
        dpb_data.load_ratings(tmp_path)


def test_unknown_sources(tmp_path: Path) -> None:
    with pytest.raises(UnknownNameError, match="did you mean 'ml-25m'"):
        dpb_data.load_ratings("ml-25")
    with pytest.raises(DataError, match="no such file or folder"):
        dpb_data.load_ratings(tmp_path / "nothing")
    with pytest.raises(UnknownNameError, match="rating format"):
        dpb_data.load_ratings(tmp_path, format="ml-3m")
    with pytest.raises(ParameterError, match="generated"):
        dpb_data.load_ratings("synthetic-jester", format="ml-1m")


def test_archive_extras_do_not_confuse(tmp_path: Path, half_stars: RatingTable) -> None:
    """Archives packed on a Mac carry a second folder of resource forks."""
    archive = write_fixture(half_stars, tmp_path / "m", "ml-25m", zipped=True)
    with zipfile.ZipFile(archive, "a") as packed:
        packed.writestr("__MACOSX/m/._ratings.csv", b"junk")
    assert_same(dpb_data.load_ratings(archive), half_stars)
