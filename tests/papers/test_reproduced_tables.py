"""Reproduction of tables: shared results, smaller samples, missing data, studies."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from rich.console import Console

from dpb_gym.cli import main
from dpb_gym.errors import DataError
from dpb_gym.papers import reproduce, reproduction
from dpb_gym.papers.figure_spec import Figure
from dpb_gym.papers.reproduction import run_figure

TABLE = {
    "id": "regrets",
    "title": "Regret at T",
    "quantity": "final-regret",
    "rows": "agent",
    "columns": "contexts",
    "where": {"explore": 5},
    "printed": {"greedy-mnl": {"raw": [3.0, 1.0]}},
}


def test_tables_and_samples_are_written_everywhere(
    figure_data: dict[str, Any], tmp_path: Path
) -> None:
    figure_data |= {"tables": [TABLE], "samples": [2, 9]}
    figure = Figure.model_validate(figure_data)
    reproduced = run_figure(figure, tmp_path, workers=1)
    few = run_figure(figure, tmp_path, replicates=2, workers=1)
    (judgement,) = reproduced.judgements
    assert list(judgement.samples) == [2]
    assert judgement.samples[2].comparisons == few.judgements[0].comparisons
    assert few.judgements[0].samples == {}
    (curve,) = (
        c for c in reproduced.curves if c.axes["explore"] == 5 and c.axes["contexts"] == "raw"
    )
    mean, sd = curve.series.regret[:, -1].mean(), curve.series.regret[:, -1].std(ddof=1)
    said = f"{mean:.1f} ± {sd:.1f} [3.0 ± 1.0]"
    wide = Console(file=io.StringIO(), width=400)
    reproduction.Reproduction("made-up", tmp_path, (reproduced,), tmp_path).table(wide)
    run_figure(figure, tmp_path, workers=1)
    printed = wide.file.getvalue()  # type: ignore[attr-defined]
    page, notes = ((tmp_path / f"figure.{kind}").read_text() for kind in ("html", "md"))
    for text in (printed, page, notes):
        assert said in text and "ith the first 2 replicates: " in text
    data = json.loads((tmp_path / "verdicts.json").read_text())
    cell = next(c for c in data["tables"][0]["cells"] if c["contexts"] == "raw")
    assert cell["mean"] == pytest.approx(mean) and cell["printed"] == 3.0
    claim = data["claims"][0]
    assert claim["samples"]["2"]["verdict"] == judgement.samples[2].verdict
    assert claim["comparisons"][0]["p_value"] is not None


def test_shared_results_are_computed_once(
    figure_data: dict[str, Any], tmp_path: Path, monkeypatch: Any
) -> None:
    figure_data["results"] = "common"
    first = Figure.model_validate(figure_data)
    second = Figure.model_validate({**figure_data, "figure": "fig2"})
    monkeypatch.setattr(reproduction, "load_figures", lambda target: [first, second])
    done = reproduce("made-up", tmp_path, workers=1, progress=False)
    assert [one.rounds for one in done.figures] == [2 * 3 * 4 * 60, 0]
    assert (tmp_path / "results-common/manifest.json").exists()
    assert not (tmp_path / "fig1/results").exists()
    assert done.verdicts["fig1/below-random"] == done.verdicts["fig2/below-random"]


# ------------------------------------------------------------------ data that are not here


def missing(figure_data: dict[str, Any], *tasks: int) -> Figure:
    for task in tasks:
        figure_data["suite"]["tasks"][task]["requires"] = "ml-25m"
    return Figure.model_validate(figure_data)


@pytest.fixture
def no_data(monkeypatch: Any, tmp_path: Path) -> None:
    monkeypatch.delenv("DPB_DATA", raising=False)
    monkeypatch.setenv("DPB_CACHE", str(tmp_path / "cache"))


def test_tasks_without_data_are_left_out(
    figure_data: dict[str, Any], tmp_path: Path, no_data: None
) -> None:
    reproduced = run_figure(missing(figure_data, 0), tmp_path, workers=1)
    assert {c.axes["contexts"] for c in reproduced.curves} == {"clip"} and not reproduced.skipped
    assert "ml-25m" in reproduced.facts["left out"]


def test_figures_without_data_are_skipped(
    figure_data: dict[str, Any], tmp_path: Path, monkeypatch: Any, no_data: None, capsys: Any
) -> None:
    whole = Figure.model_validate(json.loads(json.dumps(figure_data)))
    gone = missing({**json.loads(json.dumps(figure_data)), "figure": "fig2"}, 0, 1)
    monkeypatch.setattr(reproduction, "load_figures", lambda target: [whole, gone])
    words = ["reproduce", "made-up", "--out", str(tmp_path / "out"), "--workers", "1", "--quiet"]
    monkeypatch.setattr("sys.argv", ["dpb", *words])
    with pytest.raises(SystemExit) as stopped:
        main()
    assert not stopped.value.code
    out, err = capsys.readouterr()
    assert "fig2: skipped" in err and "dpb data fetch ml-25m" in err
    assert "Greedy is below random" in out
    assert "fig2" not in (tmp_path / "out/index.html").read_text()
    monkeypatch.setattr(reproduction, "load_figures", lambda target: [gone])
    with pytest.raises(DataError, match="fig2: data set 'ml-25m' was not found"):
        reproduce("made-up/fig2", tmp_path / "out", workers=1, progress=False)


# ------------------------------------------------------------------ studies


@pytest.fixture
def study(figure_data: dict[str, Any]) -> dict[str, Any]:
    env = {"dim": 3, "n_arms": 10, "n_candidates": 3}
    figure_data["suite"] |= {
        "tasks": [
            {"name": "small", "env": "DPB/Recommendation-v0", "horizon": 80, "env_kwargs": env}
        ],
        "agents": [
            {"name": "lin-ucb", "label": "LinUCB"},
            {
                "name": "adaprivate-ts",
                "label": "Private",
                "params": {"batch": 10},
                "budgets": ["eps=5,delta=1e-5"],
            },
        ],
    }
    figure_data |= {
        "axes": {"agent": "agent.label"},
        "variants": [],
        "drawing": {"columns": "agent", "lines": ["agent"]},
        "study": {"kind": "ope", "rounds": 60, "samples": 5},
        "quick": {"horizon": 20, "replicates": 2},
        "claims": [
            {
                "id": "below-oracle",
                "text": "A policy is worth less than the best candidates.",
                "quantity": {"kind": "recorded", "name": "true-value", "over": "oracle-value"},
                "value": 1.0,
                "expect": "below",
            }
        ],
    }
    return figure_data


def test_a_study_measures_the_trained_agents(study: dict[str, Any], tmp_path: Path) -> None:
    """Regret as in the harness, values between worst and best, and resumed without computing."""
    from dpb_gym import evaluate
    from dpb_gym.privacy import Budget

    study["suite"] |= {"replicates": 16, "block": 4}
    figure = Figure.model_validate(study)
    reproduced = run_figure(figure, tmp_path, workers=1)
    assert reproduced.judgements[0].verdict == "HOLDS" and reproduced.rounds == 2 * 16 * 80
    result = evaluate(
        "DPB/Recommendation-v0",
        {
            "LinUCB": "lin-ucb",
            "Private": ("adaprivate-ts", Budget.approx(5, 1e-5), {"batch": 10}),
        },
        horizon=80,
        replicates=16,
        env_kwargs=study["suite"]["tasks"][0]["env_kwargs"],
        progress=False,
    )
    for curve in reproduced.curves:
        label = curve.series.agent
        assert curve.series.regret[:, -1] == pytest.approx(result.final_regret(label))
        assert set(curve.recorded["true-value"]) == set(range(16))
        for i in range(16):
            record = {name: column[i] for name, column in curve.recorded.items()}
            assert 0 < record["true-value"] <= record["oracle-value"] + 1e-9
            assert record["ips-error"] >= 0 and 0 < record["ess"] <= 1
            naive = curve.series.reward[i, -1] / 80
            assert record["naive-error"] == pytest.approx(abs(naive - record["true-value"]))
    # a uniform log: the same customers, so the same oracle for both agents
    one, other = (curve.recorded["oracle-value"] for curve in reproduced.curves)
    assert one == other
    again = run_figure(figure, tmp_path, workers=1)
    assert again.rounds == 0
    for before, after in zip(reproduced.curves, again.curves):
        assert before.recorded == after.recorded
        assert np.array_equal(before.series.regret, after.series.regret)
    manifest = tmp_path / "measured/manifest.json"
    told = json.loads(manifest.read_text())
    told["rows"][0]["blocks"][0]["recorded"]["ess"][0] += 1.0
    manifest.write_text(json.dumps(told))
    with pytest.warns(RuntimeWarning, match="digest"):
        mended = run_figure(figure, tmp_path, workers=1)
    assert mended.rounds == 4 * 80
    assert [c.recorded for c in mended.curves] == [c.recorded for c in reproduced.curves]
    assert "recorded" in json.loads((tmp_path / "verdicts.json").read_text())["curves"][0]


def test_a_failing_agent_of_a_study(study: dict[str, Any], tmp_path: Path) -> None:
    study["suite"]["agents"][1]["name"] = "adaprivate-user-ts"  # the problem names no users
    reproduced = run_figure(Figure.model_validate(study), tmp_path, workers=1)
    assert len(reproduced.failures) == 2 and "max_rounds_per_user" in reproduced.failures[0]
    assert [curve.series.agent for curve in reproduced.curves] == ["LinUCB"]


def test_the_quick_version_of_a_study_is_small(study: dict[str, Any], tmp_path: Path) -> None:
    quick = Figure.model_validate(study).quick_version()
    assert quick.study is not None and quick.study.rounds == 20
    seen: list[tuple[int, int]] = []
    run_figure(quick, tmp_path, workers=1, show=lambda done, of: seen.append((done, of)))
    assert seen and all(done <= of == 2 * 2 * 20 for done, of in seen)
