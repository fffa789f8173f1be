"""The registry, and the search order of `path`."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from rating_files import write_fixture

import dpb_data
from dpb_data import DataSet, RatingTable
from dpb_gym.errors import DataError, ParameterError, UnknownNameError

NAMES = [
    "ml-latest-small", "ml-100k", "ml-1m", "ml-10m", "ml-20m", "ml-25m", "ml-32m",
    "jester-1", "jester-2", "jester-3", "synthetic-movielens", "synthetic-jester",
    "expedia-personalized-sort", "synthetic-expedia", "kuairec", "synthetic-kuairec",
    "synthetic-mode-canada", "synthetic-open-bandit", "synthetic-loans",
]  # fmt: skip


def test_what_is_registered() -> None:
    assert [known.name for known in dpb_data.datasets()] == NAMES
    for known in dpb_data.datasets():
        assert known.description and known.terms and known.citation
        assert known.generated or known.homepage
        if known.kind == "ratings":
            assert known.generated or known.counts.ratings
            assert known.generated or known.format in dpb_data.FORMATS
        assert all(url.startswith("https://") for url in known.urls)
        assert all(len(digest) == 64 for digest in known.files.values())
        assert json.loads(json.dumps(known.to_dict()))["name"] == known.name
    assert (
        sum(d.counts.ratings for d in dpb_data.datasets() if "jester-" in d.name[:7]) == 4_136_360
    )


def test_lookup_by_alias_and_close_match() -> None:
    assert dpb_data.dataset("jester-data-1") is dpb_data.dataset("jester-1")
    assert dpb_data.dataset("ml-10M100K").name == "ml-10m"
    with pytest.raises(UnknownNameError, match="did you mean 'ml-latest-small'"):
        dpb_data.dataset("ml-latest-smal")


@pytest.mark.parametrize("name", ["ml-1m", "jester-data-1", "", "a/b", "..", ".hidden", " x"])
def test_names_that_cannot_be_registered(scratch_registry: None, name: str) -> None:
    with pytest.raises(ParameterError):
        dpb_data.register_dataset(DataSet(name, "d", "ml-csv", "t", "c"))
    assert [known.name for known in dpb_data.datasets()] == NAMES


def test_other_kinds_of_data_are_not_ratings(
    scratch_registry: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    dpb_data.register_dataset(DataSet("searches", "d", "other", "t", "c", kind="searches"))
    monkeypatch.setenv("DPB_DATA", str(tmp_path))
    (tmp_path / "searches").mkdir()
    assert dpb_data.path("searches") == tmp_path / "searches"
    with pytest.raises(DataError, match="'searches' holds searches, expected one of ratings: ml-"):
        dpb_data.load_ratings("searches")


def test_order_of_places(
    tmp_path: Path, private_places: Path, half_stars: RatingTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(DataError) as caught:
        dpb_data.path("ml-25m")
    for part in ("$DPB_DATA (not set)", str(private_places / "ml-25m"), "dpb data fetch ml-25m"):
        assert part in str(caught.value)

    cached = write_fixture(half_stars, private_places / "ml-25m", "ml-25m")
    assert dpb_data.path("ml-25m") == cached
    monkeypatch.setenv("DPB_DATA", str(tmp_path))
    assert dpb_data.path("ml-25m") == cached
    (tmp_path / "ml-25m").mkdir()  # an empty folder does not hide the cache
    assert dpb_data.path("ml-25m") == cached
    archive = write_fixture(half_stars, tmp_path / "ml-25m", "ml-25m", zipped=True)
    assert dpb_data.path("ml-25m") == archive
    explicit = write_fixture(half_stars, tmp_path / "mine" / "ml-25m", "ml-25m")
    assert dpb_data.path("ml-25m", folder=tmp_path / "mine") == explicit
    assert dpb_data.path("ml-25m", folder=explicit) == explicit
    assert dpb_data.path("ml-25m", folder=archive) == archive


def test_relative_places_and_links(
    tmp_path: Path, half_stars: RatingTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = write_fixture(half_stars, tmp_path / "elsewhere" / "sample", "ml-25m")
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "ml-25m").symlink_to(real)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("DPB_DATA", "data")
    assert dpb_data.path("ml-25m") == tmp_path / "data" / "ml-25m"
    # the link has the name of the data set, its target has not
    assert len(dpb_data.load_ratings(real)) == 12_000
    with pytest.raises(DataError, match="not the complete ml-25m"):
        dpb_data.load_ratings(tmp_path / "data" / "ml-25m")
    monkeypatch.chdir(real)
    assert dpb_data.load_ratings(".").name == "sample"


def test_an_explicit_folder_is_the_only_place(
    tmp_path: Path, private_places: Path, half_stars: RatingTable
) -> None:
    write_fixture(half_stars, private_places / "ml-25m", "ml-25m")
    with pytest.raises(DataError, match="was not found") as caught:
        dpb_data.path("ml-25m", folder=tmp_path)
    assert str(tmp_path) in str(caught.value) and str(private_places) not in str(caught.value)


def test_a_folder_without_ratings_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DPB_DATA", str(tmp_path))
    (tmp_path / "ml-1m").mkdir()
    with pytest.raises(DataError, match="there, but holds no ratings"):
        dpb_data.path("ml-1m")


def test_a_name_wins_over_a_folder_of_that_name(
    tmp_path: Path, half_stars: RatingTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_fixture(half_stars, tmp_path / "ml-25m", "ml-25m")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(DataError, match="was not found"):
        dpb_data.load_ratings("ml-25m", strict=False)
    assert len(dpb_data.load_ratings("./ml-25m", strict=False)) == 12_000
    assert len(dpb_data.load_ratings(Path("ml-25m"), strict=False)) == 12_000


def test_generated_sets_have_no_path() -> None:
    with pytest.raises(DataError, match="generated on the fly"):
        dpb_data.path("synthetic-jester")
    assert dpb_data.load_ratings("synthetic-jester").name == "synthetic-jester"


def test_cache_dir_without_the_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("DPB_CACHE")
    assert dpb_data.cache_dir().name == "dpb-gym"


def test_import_is_light() -> None:
    heavy = ["pyarrow", "pooch", "requests", "rich", "pandas", "scipy", "numba", "matplotlib"]
    code = f"import sys, dpb_data; print([m for m in {heavy} if m in sys.modules])"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    # count only imports that dpb_gym itself does not need
    base = subprocess.run(
        [sys.executable, "-c", code.replace("dpb_data", "dpb_gym.errors")],
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    assert run.stdout == base.stdout
