"""``dpb submit``, ``dpb import`` and tasks without data: what is printed, and the exit status."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from dpb_gym import cli

SUITE = """
name: tiny-v0
replicates: 3
block: 2
checkpoints: 3
tasks:
  - {name: items, env: DPB/Recommendation-v0, env_kwargs: {dim: 3, n_arms: 12}, horizon: 30}
  - {name: films, env: DPB/MovieLensReplay-v0, env_kwargs: {data: ml-latest-small}, horizon: 30,
     requires: ml-latest-small}
agents: [random, lin-greedy]
"""


class Said:
    """One command: exit status, output and errors."""

    def __init__(self, capfd: Any, *words: str) -> None:
        self.status = cli.run(list(words))
        self.out, self.err = capfd.readouterr()


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("DPB_DATA", str(tmp_path / "no-data"))
    monkeypatch.setenv("DPB_CACHE", str(tmp_path / "no-cache"))
    (tmp_path / "tiny.yaml").write_text(SUITE)
    return tmp_path


def test_results_go_from_one_directory_to_another(folder: Path, capfd: Any) -> None:
    suite, a, b = str(folder / "tiny.yaml"), str(folder / "a"), str(folder / "b")
    said = Said(
        capfd, "run", suite, "--agents", "lin-greedy", "--out", a, "--workers", "1", "--quiet",
        "--html", str(folder / "page.html"),
    )  # fmt: skip
    assert said.status == 0
    assert "left out: task films" in said.err and "dpb data fetch ml-latest-small" in said.err
    assert "page written to" in said.out and (folder / "page.html").exists()
    assert Said(capfd, "run", suite, "--agents", "random", "--replicates", "2", "--out", b,
                "--workers", "1", "--quiet").status == 0  # fmt: skip

    archive = str(folder / "it.zip")
    said = Said(capfd, "submit", a, "--agent", "lin-greedy", "--out", archive)
    assert said.status == 0
    assert "1 row of lin-greedy" in said.out and f"dpb import {archive}" in said.out
    said = Said(capfd, "import", archive, "--into", b)
    assert said.status == 0 and "2 cells of lin-greedy added" in said.out
    said = Said(capfd, "verify", b, "--agent", "lin-greedy", "--sample", "9")
    assert said.status == 0 and "2 of 2 cells computed again" in said.out
    said = Said(capfd, "import", archive, "--into", b, "--json")
    assert said.status == 2 and "already" in said.err and said.out == ""
    said = Said(capfd, "submit", b, "--agent", "random", "--out", str(folder / "r.zip"))
    assert "random (none) on items has 2 of 3 replicates" in said.err
    said = Said(capfd, "submit", b, "--agent", "random", "--out", archive, "--json")
    assert json.loads(said.out)["agent"]["name"] == "random"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["submit", "nowhere", "--agent", "random"], "no such result directory"),
        (["import", "nowhere.zip", "--into", "x"], "no such file"),
        (["import", "notes.txt", "--into", "x"], "is a .zip archive"),
        (["run", "tiny.yaml", "--tasks", "films"], "task 'films'"),
        (["verify", "nowhere", "--agent", "random"], "no such result directory"),
    ],
)
def test_mistakes_are_one_line_and_write_nothing(
    folder: Path, capfd: Any, monkeypatch: pytest.MonkeyPatch, words: list[str], message: str
) -> None:
    monkeypatch.chdir(folder)
    said = Said(capfd, *words)
    assert said.status == 2 and message in said.err and said.err.count("\n") == 1
    assert [p.name for p in folder.iterdir()] == ["tiny.yaml"]
