"""`verify` confirms honest results and names the others."""

from __future__ import annotations

import json
import re
import runpy
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import dpb_gym
from dpb_gym import registry
from dpb_gym.errors import ParameterError, ResultError
from dpb_gym.exchange import verification as verify_module
from dpb_gym.exchange.verification import verify
from dpb_gym.play.player import Player
from dpb_gym.results.cell_result import CellResult
from dpb_gym.results.result_directory import ResultDirectory
from dpb_gym.suites import spec
from dpb_gym.suites.suite import Suite

CELLS = 18


def forge(path: Path, change: Any) -> CellResult:
    """Replace a cell's numbers and gives it a valid digest; returns what stood there."""
    store = ResultDirectory.open(path)
    result = next(r for r in store.results() if r.cell.agent.label == "Private")
    fields = {"regret": result.regret.copy(), "reward": result.reward.copy(),
              "guarantee": result.guarantee}  # fmt: skip
    change(fields)
    with ResultDirectory.writing(path, store.suite) as writable:
        writable.add([replace(result, **fields)])
    return result


def test_honest_results_are_confirmed(out: Path) -> None:
    lines: list[str] = []
    report = verify(out, sample=CELLS + 5, report=lines.append)
    assert report.ok and report.cells == CELLS and report.rows == report.confirmed == 6
    assert len(report.again) == CELLS == len(lines)
    assert not report.damaged and not report.differing and not report.impossible


def test_the_sample_is_what_was_asked_for(out: Path) -> None:
    assert verify(out, sample=0).again == []
    a, b = verify(out, sample=4, seed=1), verify(out, sample=4, seed=1)
    assert a.again == b.again and len(a.again) == 4
    samples = {tuple(verify(out, sample=2, seed=s).again) for s in range(6)}
    assert len(samples) > 1


def test_a_forged_number_is_named_to_the_last_bit(out: Path) -> None:
    def nudge(fields: dict[str, Any]) -> None:
        fields["regret"][1, 2] = np.nextafter(fields["regret"][1, 2], 0)

    cell = forge(out, nudge).cell
    report = verify(out, sample=CELLS)
    assert not report.ok and not report.damaged
    (line,) = report.differing
    assert line.startswith(str(cell))
    assert f"regret of replicate {cell.replicates[1]} at round {cell.checkpoints[2]}" in line


@pytest.mark.parametrize(
    ("factor", "cpu", "rounding", "differing"),
    [
        (1 + 1e-15, "Another", 1, 0),
        (1 + 1e-15, None, 0, 1),
        (1 + 1e-3, "Another", 0, 1),
        (1 + 1e-10, "Another", 0, 1),
    ],
)
def test_rounding_on_another_processor_is_distinguished(
    out: Path, factor: float, cpu: str | None, rounding: int, differing: int
) -> None:
    def scale(fields: dict[str, Any]) -> None:
        fields["regret"] *= factor

    cell = forge(out, scale).cell
    manifest = json.loads((out / "manifest.json").read_text())
    machine = manifest["runs"][0]["machine"]
    assert set(machine) == {"system", "machine", "cpu", "blas", "libc"} and all(machine.values())
    if cpu is not None:
        machine["cpu"] = cpu
        (out / "manifest.json").write_text(json.dumps(manifest))
    report = verify(out, sample=CELLS)
    assert (len(report.rounding), len(report.differing)) == (rounding, differing)
    assert report.ok == (differing == 0)
    if rounding:
        (line,) = report.rounding
        size = re.match(rf"{re.escape(str(cell))}: rounding \((\d)e-(\d+)\), another CPU", line)
        assert size is not None and size[2] in ("15", "16")
        assert f"stored Another, {machine['blas']}" in line and "; here " in line


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda f: f.update(guarantee=None), "guarantee"),
        (lambda f: f["reward"].__setitem__((0, 0), -0.0), "reward"),
    ],
)
def test_other_forgeries_are_named(out: Path, change: Any, words: str) -> None:
    forge(out, change)
    (line,) = verify(out, sample=CELLS).differing
    assert words in line


def test_damage_is_named(out: Path) -> None:
    table = out / "result.parquet"
    table.write_bytes(table.read_bytes()[:-20])
    report = verify(out, sample=0)
    assert not report.ok and len(report.damaged) == 1 and table.name in report.damaged[0]


def test_what_cannot_be_computed_again_is_named(
    out: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(verify_module, "ALGORITHM_VERSION", spec.ALGORITHM_VERSION + 1)
    report = verify(out, sample=1)
    assert not report.ok and "algorithm version" in report.impossible[0]
    monkeypatch.undo()
    made = dpb_gym.evaluate(
        "DPB/Pricing-v0", {"f": lambda: dpb_gym.make_agent("random")}, 20, 1
    )  # fmt: skip
    report = verify(made.save(tmp_path / "factory"), sample=1)
    assert not report.ok and "made by a function" in report.impossible[0]


def test_changed_data_and_versions_are_named(
    out: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    replay = dpb_gym.evaluate("DPB/MovieLensReplay-v0", "lin-ts", 20, 1, env_kwargs={"dim": 4})
    path = replay.save(tmp_path / "replay")
    assert verify(path).ok
    monkeypatch.setattr(spec.Task, "data_digest", lambda self: "other")
    report = verify(path)
    assert "the data are not those" in report.impossible[0]
    monkeypatch.undo()
    monkeypatch.setattr(verify_module, "code_hash", lambda maker: "other")
    assert verify(path).ok, "other code with the same numbers is right"
    monkeypatch.setattr(Player, "act", lambda self, context: np.zeros(1, np.int64))
    assert "the agent's code here is not the code" in verify(path).differing[0]


def test_verify_rejects_directories_without_results(out: Path, tmp_path: Path) -> None:
    with pytest.raises(ResultError, match="no such"):
        verify(tmp_path / "none")
    with pytest.raises(ParameterError, match="sample"):
        verify(out, sample=-1)
    with ResultDirectory.writing(tmp_path / "empty", ResultDirectory.open(out).suite, {}):
        pass
    with pytest.raises(ResultError, match="no results"):
        verify(tmp_path / "empty")


class BestInHindsight(dpb_gym.Agent):
    """Play the first candidate round by round, and the best reward of a whole stretch."""

    def begin(self, problem: Any, streams: Any, curator: Any) -> None:
        self.stretches = True

    def act(self, context: Any) -> Any:
        return np.zeros(len(context.features), np.int64)

    def observe(self, context: Any, action: Any, feedback: Any) -> None:
        pass

    def play(self, rounds: Any) -> Any:
        assert not hasattr(rounds, "expected") and not hasattr(rounds, "best")
        return rounds.reward.argmax(axis=2)


def test_rewards_of_other_candidates_cannot_be_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(registry, "_REGISTRY", dict(registry._REGISTRY))
    dpb_gym.register_agent("hindsight", supports=["recommendation"])(BestInHindsight)
    env, out = "DPB/Recommendation-v0", tmp_path / "out"
    result = dpb_gym.evaluate(env, ["hindsight", "lin-ucb", "oracle"], 60, 2, out=out, workers=1)
    assert result.final_reward("hindsight").mean() > result.final_reward("lin-ucb").mean()
    report = verify(out, sample=3)
    assert len(report.differing) == 1 and "hindsight" in str(report.differing)


def test_constants_are_means_over_the_reserved_seeds(
    suite: Suite, tmp_path: Path, capsys: Any
) -> None:
    script = Path(__file__).parents[3] / "benchmarks" / "normalise.py"
    module = runpy.run_path(str(script))
    measure, normalise = module["measure"], module["main"]
    task = suite.tasks[1]
    constants = measure(task, suite.normalisation_seed, 7, block=3)
    direct = dpb_gym.evaluate(
        task.env, ["random", "oracle"], task.horizon, 7, seed=suite.normalisation_seed,
        env_kwargs=task.env_kwargs,
    )  # fmt: skip
    for name in ("random", "oracle"):
        rewards = direct.final_reward(name)
        assert constants[name] == pytest.approx(rewards.mean())
        assert constants[f"{name}_se"] == pytest.approx(rewards.std(ddof=1) / 7**0.5)
    path = tmp_path / "s.yaml"
    path.write_text(suite.to_yaml())
    assert normalise([str(path), "--replicates", "2"]) == 0
    assert capsys.readouterr().out.count("normalisation: {random: ") == 2
    assert normalise(["no-such-suite"]) == 2
    assert "unknown suite" in capsys.readouterr().err
