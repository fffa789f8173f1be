"""Shared fixtures of the data tests."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import dpb_data
from dpb_data import dataset_registry

sys.path.insert(0, str(Path(__file__).parent))  # helper modules of this folder

ROOT = Path(__file__).resolve().parents[2]
_REAL = Path(os.environ.get("DPB_DATA") or ROOT.parent / "shared" / "data").resolve()


@pytest.fixture(autouse=True)
def private_places(
    tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> Path:
    """Hide the user's data folder and cache; return an empty cache."""
    cache = tmp_path_factory.mktemp("cache")
    monkeypatch.delenv("DPB_DATA", raising=False)
    monkeypatch.setenv("DPB_CACHE", str(cache))
    return cache


@pytest.fixture
def real(request: pytest.FixtureRequest) -> Path:
    """The folder of original data sets; the test names its set with `real_data(...)`."""
    marker = request.node.get_closest_marker("real_data")
    assert marker is not None and marker.args, "mark the test with real_data('<folder>')"
    folder = _REAL / marker.args[0]
    if not folder.exists():
        pytest.skip(f"original data set {marker.args[0]} is not in {_REAL} (set DPB_DATA)")
    return folder


@pytest.fixture(scope="session")
def half_stars() -> dpb_data.RatingTable:
    return dpb_data.load_ratings("synthetic-movielens")


@pytest.fixture(scope="session")
def whole_stars() -> dpb_data.RatingTable:
    return dpb_data.synthetic.movielens(step=1.0)


@pytest.fixture(scope="session")
def jokes() -> dpb_data.RatingTable:
    return dpb_data.load_ratings("synthetic-jester")


@pytest.fixture
def scratch_registry() -> Iterator[None]:
    """Restore the registry after the test."""
    before = dict(dataset_registry._DATASETS)
    yield
    dataset_registry._DATASETS.clear()
    dataset_registry._DATASETS.update(before)
