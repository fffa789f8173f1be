"""Reproduction of a made-up figure, from its file to all output."""

from __future__ import annotations

import base64
import json
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from pyarrow import parquet

from dpb_gym.cli import main
from dpb_gym.errors import ResultError
from dpb_gym.papers import reproduce, reproduction
from dpb_gym.papers.figure_spec import Figure
from dpb_gym.papers.reproduction import run_figure
from dpb_gym.results.result_directory import ResultDirectory
from dpb_gym.running.api import evaluate


@pytest.fixture
def only(monkeypatch: Any, figure: Figure) -> Figure:
    """Make the made-up figure the only target."""
    monkeypatch.setattr(reproduction, "load_figures", lambda target: [figure])
    return figure


def test_everything_is_written_and_agrees(only: Figure, tmp_path: Path) -> None:
    done = reproduce("made-up", tmp_path, workers=1, progress=False)
    (one,) = done.figures
    assert done.verdicts == {"fig1/below-random": one.judgements[0].verdict}
    assert len(one.curves) == 6 and not done.failures
    assert {path.name for path in one.folder.iterdir() if path.is_file()} == {
        "figure.png", "figure.html", "figure.md", "curves.parquet", "verdicts.json",
    }  # fmt: skip
    assert one.picture.read_bytes().startswith(b"\x89PNG")
    stored = json.loads((tmp_path / "fig1/verdicts.json").read_text())
    assert stored["claims"][0]["verdict"] == one.judgements[0].verdict
    assert len(stored["claims"][0]["comparisons"]) == 4
    table = parquet.read_table(tmp_path / "fig1/curves.parquet").to_pylist()
    # against the public evaluation of the same agents on the same customers
    env = {"context_norm": "clip", "n_items": 8, "capacity": 2, "dim": 2}
    result = evaluate(
        "DPB/Assortment-v0",
        {"Greedy 5": ("greedy-mnl", None, {"explore": 5}), "Random": "random"},
        horizon=60,
        replicates=4,
        env_kwargs=env,
        progress=False,
    )
    for label in ("Greedy 5", "Random"):
        expected = result.final_regret(label).mean()
        rows = [r for r in table if r["agent"] == label and r["task"] == "clip"]
        assert rows[-1]["round"] == 60
        assert rows[-1]["regret"] == pytest.approx(expected)
    gap = result.final_regret("Random").mean() - result.final_regret("Greedy 5").mean()
    (comparison,) = (
        c
        for c in one.judgements[0].comparisons
        if c.variant == {"contexts": "clip"} and "explore=5" in c.left
    )
    assert comparison.effect.mean == pytest.approx(gap)


class _Page(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.sources: list[str] = []
        self.open: list[str] = []

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        self.sources += [v for k, v in attrs if k in ("src", "href") and v]
        if tag not in ("meta", "img", "br", "link"):
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def test_pages_are_self_contained_and_say_the_same(only: Figure, tmp_path: Path) -> None:
    done = reproduce("made-up", tmp_path, workers=1, progress=False)
    text = done.page.read_text()
    page = _Page()
    page.feed(text)
    assert not page.open
    assert [s[:22] for s in page.sources] == ["data:image/png;base64,"]
    picture = base64.b64decode(page.sources[0][22:])
    assert picture == (tmp_path / "fig1/figure.png").read_bytes()
    notes = (tmp_path / "fig1/figure.md").read_text()
    for written in (text, notes):
        assert done.figures[0].judgements[0].verdict in written
        assert "non-private" in written
    assert notes.count("\n| ") >= 1 + 6 + 4
    widths = [line.count(" | ") for line in re.findall(r"^\| .*\|$", notes, re.M)]
    assert set(widths) == {2, 3, 4, 6}


def test_existing_cells_are_not_computed_again(only: Figure, tmp_path: Path) -> None:
    first = reproduce("made-up", tmp_path, workers=1, progress=False)
    assert first.figures[0].rounds == 2 * 3 * 4 * 60
    (folder,) = {path.parent for path in tmp_path.rglob("result.parquet")}
    stored = ResultDirectory.open(folder)
    kept = {result.cell.key: result.digest for result in stored.results()}
    del stored.entries[min(kept)]
    stored.save()
    again = reproduce("made-up", tmp_path, workers=1, progress=False)
    assert again.figures[0].rounds == 2 * 60
    assert again.verdicts == first.verdicts
    assert {r.cell.key: r.digest for r in ResultDirectory.open(folder).results()} == kept


def test_fewer_replicates_than_are_stored(only: Figure, tmp_path: Path) -> None:
    """The judgement uses the requested replicates, not all stored ones."""
    reproduce("made-up", tmp_path, workers=1, progress=False)
    two = reproduce("made-up", tmp_path, replicates=2, workers=1, progress=False)
    assert {len(c.series.replicates) for c in two.figures[0].curves} == {2}
    assert {c.replicates for c in two.figures[0].judgements[0].comparisons} == {2}
    assert two.figures[0].facts["replicates"].startswith("2,")


def test_quick_and_full_versions_have_separate_folders(only: Figure, tmp_path: Path) -> None:
    seen: list[tuple[int, int]] = []
    quick = reproduce(
        "made-up", tmp_path, quick=True, workers=1, progress=lambda a, b: seen.append((a, b))
    )
    assert (tmp_path / "fig1-quick/figure.png").exists()
    assert "prove nothing" in quick.figures[0].figure.notes[0]
    assert seen and seen[-1][0] <= seen[-1][1] == 2 * 3 * 2 * 20
    full = reproduce("made-up", tmp_path, replicates=2, workers=1, progress=False)
    assert full.figures[0].curves[0].horizon == 60
    with pytest.raises(ResultError, match="another directory"):
        reproduce("made-up", tmp_path, workers=1, progress=False, env_kwargs={"n_items": 9})


def test_a_failing_agent_leaves_its_claims_undecided(
    figure_data: dict[str, Any], tmp_path: Path
) -> None:
    """dpmnl at paper calibration divides by zero at K = 1; cells of other agents are kept."""
    for task in figure_data["suite"]["tasks"]:
        task["env_kwargs"]["capacity"] = 1
    figure_data["suite"]["agents"].append(
        {
            "name": "dpmnl",
            "label": "DPMNL",
            "params": {"calibration": "paper"},
            "budgets": ["rho=1"],
        }
    )
    other = {**figure_data["claims"][0], "id": "dpmnl-too", "where": {"agent": "dpmnl"}}
    figure_data["claims"].append(other)
    reproduced = run_figure(Figure.model_validate(figure_data), tmp_path, workers=1)
    assert len(reproduced.failures) == 4 and "divides by zero" in reproduced.failures[0]
    assert reproduced.judgements[0].comparisons
    assert reproduced.judgements[1].verdict == "UNDECIDED"
    assert "failed" in reproduced.facts


def test_the_same_for_any_number_of_workers(only: Figure, tmp_path: Path) -> None:
    one = reproduce("made-up", tmp_path / "a", workers=1, progress=False).figures[0]
    two = reproduce("made-up", tmp_path / "b", workers=2, progress=False).figures[0]
    for a, b in zip(one.curves, two.curves):
        assert a.label == b.label
        np.testing.assert_array_equal(a.series.regret, b.series.regret)
    assert one.judgements == two.judgements


def test_several_figures_share_a_page(
    monkeypatch: Any, capsys: Any, figure: Figure, tmp_path: Path
) -> None:
    second = figure.model_copy(update={"figure": "fig2", "title": "Another <figure> & more"})
    monkeypatch.setattr(reproduction, "load_figures", lambda target: [figure, second])
    done = reproduce("made-up", tmp_path, replicates=2, workers=1, progress=False)
    assert done.page == tmp_path / "index.html"
    text = done.page.read_text()
    page = _Page()
    page.feed(text)
    assert len(page.sources) == 2 and not page.open
    assert "Another &lt;figure&gt; &amp; more" in text
    assert set(done.verdicts) == {"fig1/below-random", "fig2/below-random"}
    done.table()
    printed = capsys.readouterr().out
    assert "made-up/fig1" in printed and "Another <figure> & more" in printed


# ------------------------------------------------------------------ the command


def command(monkeypatch: Any, *words: str) -> int:
    monkeypatch.setattr("sys.argv", ["dpb", "reproduce", *words])
    with pytest.raises(SystemExit) as stopped:
        main()
    return int(stopped.value.code or 0)


def test_the_command_on_a_real_figure(monkeypatch: Any, capsys: Any, tmp_path: Path) -> None:
    monkeypatch.setenv("COLUMNS", "200")
    arguments = ["private-assortment/fig4", "--quick", "--out", str(tmp_path), "--quiet"]
    assert command(monkeypatch, *arguments, "--workers", "1", "--replicates", "2") == 0
    printed = capsys.readouterr().out
    assert "falls as rho grows" in printed and "rho=9 per user-round" in printed
    assert "prove nothing" in printed
    assert (tmp_path / "fig4-quick/figure.png").exists()


def test_the_command_reports_errors_in_one_line(monkeypatch: Any, capsys: Any) -> None:
    assert command(monkeypatch, "private-pricng") == 2
    error = capsys.readouterr().err
    assert "unknown paper or figure" in error and error.count("\n") == 1
    assert command(monkeypatch, "private-assortment/fig4", "--set", "n_items") == 2
    assert "KEY=VALUE" in capsys.readouterr().err
