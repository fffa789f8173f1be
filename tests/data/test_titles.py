"""Titles: commas, quotes, colons, Latin-1, and what can go wrong with them."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import dpb_data
from dpb_gym.errors import DataError

CSV_RATINGS = "userId,movieId,rating,timestamp\n1,10,4.0,964982703\n1,20,0.5,964982703\n"
DAT_RATINGS = "1::10::4::964982703\n1::20::1::964982703\n"
TAB_RATINGS = DAT_RATINGS.replace("::", "\t")
PIPES = "||http://example.org/|" + "|".join("0" * 19)


def csv_folder(folder: Path, movies: bytes) -> Path:
    (folder / "ratings.csv").write_text(CSV_RATINGS)
    (folder / "movies.csv").write_bytes(movies)
    return folder


def dat_folder(folder: Path, movies: bytes) -> Path:
    (folder / "ratings.dat").write_text(DAT_RATINGS)
    (folder / "movies.dat").write_bytes(movies)
    return folder


def item_folder(folder: Path, items: bytes) -> Path:
    (folder / "u.data").write_text(TAB_RATINGS)
    (folder / "u.item").write_bytes(items)
    return folder


def test_commas_and_quotes_in_csv_titles(tmp_path: Path) -> None:
    movies = 'movieId,title,genres\r\n10,"American President, The (1995)",Drama|Romance\r\n'
    movies += '20,"""Great"" Café, Le (1978)",(no genres listed)\r\n'
    table = dpb_data.load_ratings(csv_folder(tmp_path, movies.encode()))
    assert table.titles == ["American President, The (1995)", '"Great" Café, Le (1978)']


@pytest.mark.parametrize(("format", "encoding"), [("ml-1m", "latin-1"), ("ml-10m", "utf-8")])
def test_colons_in_titles_and_the_releases_encodings(
    tmp_path: Path, format: str, encoding: str
) -> None:
    movies = (
        "10::2001: A Space Odyssey (1968)::Drama\n20::Misérables :: Les (1995)::Drama|Musical\n"
    )
    folder = dat_folder(tmp_path, movies.encode(encoding))
    table = dpb_data.load_ratings(folder, format=format)
    assert table.titles == ["2001: A Space Odyssey (1968)", "Misérables :: Les (1995)"]


def test_latin1_bytes_that_look_like_line_ends_do_not_split(tmp_path: Path) -> None:
    """0x85 is a line end for str.splitlines, but part of a title in real files."""
    items = f"10|A\x85B\x1cC (1995)|01-Jan-1995{PIPES}\n20|unknown|{PIPES}\n".encode("latin-1")
    table = dpb_data.load_ratings(item_folder(tmp_path, items))
    assert table.titles == ["A\x85B\x1cC (1995)", "unknown"]


def test_reencoded_latin1_is_refused_or_read_right(tmp_path: Path) -> None:
    movies = "10::Ten::Drama\n20::Misérables, Les (1995)::Drama\n".encode()
    folder = dat_folder(tmp_path, movies)
    with pytest.raises(DataError, match=r"movies\.dat: line 2: expected Latin-1.*found UTF-8"):
        dpb_data.load_ratings(folder, format="ml-1m")
    table = dpb_data.load_ratings(folder, format="ml-1m", strict=False)
    assert table.titles == ["Ten", "Misérables, Les (1995)"]


@pytest.mark.parametrize(
    ("movies", "expected"),
    [
        (
            b"movieId,title,genres\n10,Ten,D\n20,Caf\xe9,D\n",
            "line 3: expected utf-8.*0xe9 in position 6",
        ),
        (b"id,name\n10,Ten\n", "line 1: expected the header 'movieId,title,genres'"),
        (
            b"movieId,title,genres\n10,Ten, The,D\n20,T,D\n",
            "line 2: .*3 .*'10,Ten, The,D'",
        ),
        (b"movieId,title,genres\n10,Ten,D\n20,Twenty\n", "line 3: .*3 .*'20,Twenty'"),
        (
            b'movieId,title,genres\n10,Ten,D\n20,"Twenty\n',
            "line 3: .*3 .*'20,\"Twenty'",
        ),
        (
            b"movieId,title,genres\nx,Ten,D\n",
            "line 2: expected .* movieId a whole number .*'x,Ten,D'",
        ),
        (
            b"movieId,title,genres\n10,Ten,D\n10,Ten,D\n",
            "line 3: .*movieId .*that comes once",
        ),
        (b"movieId,title,genres\n10,Ten,D\n20,Twenty,Dra", "line 3: expected a newline"),
        (b"movieId,title,genres\n10,Ten,D\n", "expected a title for every rated item, .* item 20"),
        (b"", "line 1: expected item titles, found an empty file"),
    ],
)
def test_bad_csv_titles(tmp_path: Path, movies: bytes, expected: str) -> None:
    with pytest.raises(DataError, match=r"movies\.csv: ") as caught:
        dpb_data.load_ratings(csv_folder(tmp_path, movies))
    assert re.search(expected, str(caught.value)), caught.value


def test_bad_dat_and_item_titles(tmp_path: Path) -> None:
    folder = dat_folder(tmp_path, b"10::Ten::Drama\n20:Twenty:Drama\n")
    with pytest.raises(DataError, match=r"movies\.dat: line 2: expected 'movieId::title::genres'"):
        dpb_data.load_ratings(folder, format="ml-1m")
    (folder / "ratings.dat").unlink()
    with pytest.raises(DataError, match=r"u\.item: line 1: expected 24 fields"):
        dpb_data.load_ratings(item_folder(tmp_path, b"10|Ten\n"))


def test_untitled_items_are_empty_when_not_strict(tmp_path: Path) -> None:
    folder = csv_folder(tmp_path, b"movieId,title,genres\n10,Ten,D")
    assert dpb_data.load_ratings(folder, strict=False).titles == ["Ten", ""]
