"""What a run cost, and what a larger one would."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from dpb_gym.errors import ParameterError, ResultError
from dpb_gym.evaluation.costs import costs
from dpb_gym.evaluation.plan import plan_suite
from dpb_gym.evaluation.run import run_plan
from dpb_gym.evaluation.suite import Suite


@pytest.fixture
def out(suite: Suite, tmp_path: Path) -> Path:
    run_plan(suite, plan_suite(suite), tmp_path / "out", workers=1)
    return tmp_path / "out"


def test_rounds_seconds_and_bytes_are_those_of_the_files(out: Path) -> None:
    found = costs(out)
    rows = json.loads((out / "manifest.json").read_text())["rows"]
    timings = [block["timing"] for row in rows for block in row["blocks"]]
    assert found.rounds == sum(t["rounds"] for t in timings)
    size = (out / "result.parquet").stat().st_size
    assert found.bytes == pytest.approx(size, abs=len(found.agents))
    assert sum(row.cells for row in found.agents) == len(timings)
    seconds = sum(
        t["agent_seconds"] + t["response_seconds"] + t["environment_seconds"] / t["companions"]
        for t in timings
    )
    assert found.seconds == pytest.approx(seconds)
    assert {(row.task, row.agent) for row in found.agents} == {
        ("offers", "random"),
        ("offers", "Oracle"),
        ("items", "random"),
        ("items", "Oracle"),
        ("items", "Private"),
    }
    private = next(row for row in found.agents if row.agent == "Private")
    assert private.rounds == 2 * 5 * 59  # two budgets, the first round is not timed
    assert private.rounds_per_second * private.seconds == pytest.approx(private.rounds)


def test_bytes_extrapolate(suite: Suite, out: Path, tmp_path: Path) -> None:
    """Ten times the replicates: the table's size is foretold."""
    larger = tmp_path / "larger"
    run_plan(suite, plan_suite(suite), larger, replicates=50, workers=1)
    small, large = costs(out), costs(larger)
    foretold = small.at(large.rounds)[1]
    # What a file costs once is in it too.
    assert large.bytes < foretold < 4 * large.bytes


def test_time_and_bytes_are_proportional(out: Path) -> None:
    found = costs(out)
    assert found.at(found.rounds) == pytest.approx((found.seconds, found.bytes))
    assert found.at(1e9, 64)[0] == pytest.approx(found.seconds * 1e9 / found.rounds / 64)


@pytest.mark.parametrize(
    ("arguments", "name"),
    [((0.0, 1), "rounds"), ((float("nan"), 1), "rounds"), ((1e9, 0), "cores")],
)
def test_bad_arguments(out: Path, arguments: Any, name: str) -> None:
    with pytest.raises(ParameterError, match=name):
        costs(out).at(*arguments)


def test_without_timings_there_is_nothing_to_say(out: Path) -> None:
    file = out / "manifest.json"
    manifest = json.loads(file.read_text())
    for row in manifest["rows"]:
        for block in row["blocks"]:
            block["timing"] = None
    file.write_text(json.dumps(manifest))
    with pytest.raises(ResultError, match="no timings"):
        costs(out)


def test_the_command(out: Path) -> None:
    from dpb_gym.cli.app import app

    runner = CliRunner()
    done = runner.invoke(app, ["cost", str(out), "--rounds", "1e9", "--cores", "64"])
    assert done.exit_code == 0
    assert "1,000,000,000 agent rounds of this mix" in done.output
    assert "on 64 cores" in done.output and "rounds/s/core" in done.output
    done = runner.invoke(app, ["cost", str(out), "--rounds", "1e6", "--json"])
    found = json.loads(done.output)
    assert found["total"]["rounds"] == 1e6
    assert found["total"]["seconds"] == pytest.approx(costs(out).at(1e6)[0])
    assert len(found["agents"]) == 5
