"""The forecast of a reproduction counts what the reproduction would run."""

from __future__ import annotations

import json
from typing import Any

import pytest
from typer.testing import CliRunner

from dpb_gym.papers import forecast_figures, load_figures, reproduction
from dpb_gym.planning.costs import Forecast
from dpb_gym.running import runner


@pytest.fixture
def planned(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, str, str, str]]:
    """Suites, tasks, agents and budgets that are forecast, without playing them."""
    forecasts: list[tuple[str, str, str, str]] = []

    def forecast(suite: Any, plans: Any, replicates: Any, seconds: float) -> list[Forecast]:
        for plan in plans:
            runs = ((run.title, str(run.budget)) for run in plan.runs)
            forecasts.extend((suite.name, plan.task.name, *run) for run in runs)
        rows = [(plan.task.name, len(plan.runs)) for plan in plans if plan.runs]
        return [Forecast(task, 1, cells, cells, 1.0, 1, 1) for task, cells in rows]

    monkeypatch.setattr(reproduction, "forecast", forecast)
    return forecasts


def test_results_that_figures_share_are_counted_once(planned: Any) -> None:
    rows = forecast_figures("adaprivate-ts")
    assert len(planned) == len(set(planned)) == sum(row.cells for row in rows)
    suites = {figure.suite.name for figure in load_figures("adaprivate-ts")}
    assert {suite for suite, *_ in planned} <= suites
    shared = [row.task for row in rows if row.task.endswith("/synthetic")]
    assert "table1/synthetic" in shared and len(shared) > 2


@pytest.mark.parametrize("quick", [False, True])
def test_every_cell_of_a_figure_is_counted(planned: Any, quick: bool) -> None:
    (row, *_) = rows = forecast_figures("private-assortment/fig4", quick=quick)
    (figure,) = load_figures("private-assortment/fig4")
    assert [row.task for row in rows] == [f"fig4/{task.name}" for task in figure.suite.tasks]
    # 3 budgets; 11 agents on raw contexts, 8 on the others
    assert [row.cells for row in rows] == [33, 24, 24] and row.seconds > 0


def test_the_dry_run_of_a_reproduction(
    planned: Any, tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    from dpb_gym.cli.app import app

    monkeypatch.chdir(tmp_path)
    words = ["reproduce", "private-pricing/fig3", "--dry-run"]
    done = CliRunner().invoke(app, words)
    assert done.exit_code == 0 and "core-hours" in done.output
    assert not list(tmp_path.iterdir())
    forecast = json.loads(CliRunner().invoke(app, [*words, "--json"]).output)
    assert forecast["total"]["cells"] == sum(task["cells"] for task in forecast["tasks"]) > 0


def test_a_played_forecast_has_the_rounds_of_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    # a forecast stops where progress is reported, by default every 0.2 s
    monkeypatch.setattr(runner, "PROGRESS_SECONDS", 0.02)
    rows = forecast_figures("private-assortment/fig4", quick=True, seconds=0.02)
    assert [row.rounds for row in rows] == [3 * 600 * cells for cells in (33, 24, 24)]
    assert all(row.seconds > 0 and row.memory > 1 << 25 for row in rows)
