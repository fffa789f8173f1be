"""Data given by a path that is relative to the data folder."""

from __future__ import annotations

from pathlib import Path

import pytest

import dpb_data
from dpb_gym.errors import DataError, UnknownNameError


@pytest.fixture
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "data"
    (folder / "hotels").mkdir(parents=True)
    monkeypatch.setenv("DPB_DATA", str(folder))
    monkeypatch.setenv("DPB_CACHE", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    return folder


@pytest.mark.slow
def test_relative_paths_are_looked_for_here_and_then_in_the_data_folder(data: Path) -> None:
    file = data / "hotels" / "part.csv"
    with pytest.raises(DataError, match=r"here or below \$DPB_DATA"):
        dpb_data.find("hotels/part.csv")
    from dpb_data.expedia_synthetic import searches_csv

    file.write_bytes(searches_csv(seed=3))
    assert dpb_data.find("hotels/part.csv") == file
    log = dpb_data.load_searches("hotels/part.csv")
    assert log.digest() == dpb_data.load_searches(file).digest() and log.name == "part"
    Path("hotels").mkdir()
    Path("hotels/part.csv").write_bytes(searches_csv(seed=4))
    assert dpb_data.find("hotels/part.csv") == Path("hotels/part.csv")
    assert dpb_data.load_searches("hotels/part.csv").digest() != log.digest()


def test_names_are_found_in_the_data_folder(data: Path) -> None:
    assert dpb_data.find("synthetic-expedia") is None
    with pytest.raises(DataError, match="dpb data fetch ml-latest-small"):
        dpb_data.find("ml-latest-small")
    with pytest.raises(UnknownNameError, match="ml-latest-small"):
        dpb_data.find("ml-latest-smal")
    # a single word is a name, never a subfolder of the data folder
    (data / "stuff").mkdir()
    with pytest.raises(UnknownNameError):
        dpb_data.find("stuff")
