"""Callbacks are told every checkpoint, cost no result, and the loggers write what was told."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import dpb_gym
from dpb_gym import cli
from dpb_gym.errors import MissingExtraError, ParameterError, UnknownNameError
from dpb_gym.evaluation import callbacks
from dpb_gym.evaluation.callbacks import Checkpoint, MLflow, TensorBoard, WandB, logger

AGENTS = {"LinUCB": "lin-ucb", "private": ("adaprivate-ts", "rho=0.5", {"batch": 10})}


def evaluate(*told: Any, **options: Any) -> dpb_gym.Result:
    return dpb_gym.evaluate(
        "DPB/Recommendation-v0", AGENTS, 40, 4, checkpoints=[5, 20, 40],
        env_kwargs={"dim": 3, "n_arms": 12}, progress=False, callbacks=told, **options,
    )  # fmt: skip


@pytest.mark.parametrize("workers", [1, 2])
def test_every_checkpoint_is_told_once_and_in_order(workers: int) -> None:
    seen: list[Checkpoint] = []
    result = evaluate(seen.append, workers=workers)
    told = {}
    for one in seen:
        for seed, regret, reward in zip(one.seeds, one.regret, one.reward):
            told[one.agent, seed, one.round] = (regret, reward)
    records = {(r["agent"], r["seed"], r["round"]): r for r in result.records()}
    assert len(seen) == 6 * workers and told.keys() == records.keys()
    for key, pair in told.items():
        assert pair == (records[key]["regret"], records[key]["reward"])
    for agent, budget, spent in (("LinUCB", "none", None), ("private", "rho=0.5", 0.5)):
        mine = [c for c in seen if c.agent == agent and 0 in c.seeds]
        assert [c.round for c in mine] == [5, 20, 40]
        assert {(c.task, c.budget) for c in mine} == {("recommendation", budget)}
        assert all(c.spent == pytest.approx(spent) for c in mine)


@pytest.mark.parametrize("workers", [1, 2])
def test_what_is_told_may_be_kept_and_changed(workers: int) -> None:
    def meddle(checkpoint: Checkpoint) -> None:
        checkpoint.regret[:] = -1.0

    plain, meddled = evaluate(), evaluate(meddle, workers=workers)
    assert plain.records() == meddled.records()


@pytest.mark.parametrize("workers", [1, 2])
def test_one_that_raises_is_left_out_and_costs_no_result(workers: int) -> None:
    calls: list[int] = []
    seen: list[Checkpoint] = []

    def broken(checkpoint: Checkpoint) -> None:
        calls.append(checkpoint.round)
        raise RuntimeError("the disk is full")

    with pytest.warns(RuntimeWarning, match="left out: RuntimeError: the disk is full"):
        result = evaluate(broken, seen.append, workers=workers)
    assert len(calls) == 1 and len(seen) == 6 * workers
    assert result.records() == evaluate().records()


def test_a_run_into_a_directory_tells_what_it_computes(tmp_path: Path) -> None:
    from dpb_gym.evaluation.api import one_task_suite
    from dpb_gym.evaluation.plan import TaskPlan, read_agents
    from dpb_gym.evaluation.run import run_plan

    suite = one_task_suite("DPB/Pricing-v0", {}, 30, 4, checkpoints=[10, 30], block=2)
    plans = [TaskPlan(suite.tasks[0], read_agents(["random"], "pricing", None))]
    for workers, count in ((2, 4), (1, 0)):
        seen: list[Checkpoint] = []
        run_plan(suite, plans, tmp_path / "out", workers=workers, callbacks=[seen.append])
        assert len(seen) == count
    kept = dpb_gym.Result.load(tmp_path / "out").final_regret("random")
    assert kept.shape == (4,)


def curve(result: dpb_gym.Result, agent: str) -> list[float]:
    rows = [r for r in result.records() if r["agent"] == agent]
    return [np.mean([r["regret"] for r in rows if r["round"] == t]) for t in (5, 20, 40)]


def test_tensorboard_reads_what_was_told(tmp_path: Path) -> None:
    pytest.importorskip("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    result = evaluate(TensorBoard(str(tmp_path)))
    run = tmp_path / "recommendation" / "private rho=0.5" / "seeds 0-3"
    events = EventAccumulator(str(run), size_guidance={"tensors": 0})
    events.Reload()
    assert sorted(events.Tags()["tensors"]) == ["regret", "reward", "spent"]
    points = events.Tensors("regret")
    assert [p.step for p in points] == [5, 20, 40]
    values = [p.tensor_proto.float_val[0] for p in points]
    assert values == pytest.approx(curve(result, "private"), rel=1e-6)


def test_wandb_keeps_what_was_told_offline(tmp_path: Path) -> None:
    pytest.importorskip("wandb")
    log = WandB("tests", mode="offline", dir=str(tmp_path))
    close, summary = log.close, {}
    log.close = lambda: (summary.update(log.run.summary), close())  # gone when it is finished
    result = evaluate(log)
    assert summary["round"] == 40
    name = "recommendation/private rho=0.5/seeds 0-3/regret"
    assert summary[name] == pytest.approx(curve(result, "private")[-1])
    assert list(tmp_path.rglob("*.wandb"))


def test_mlflow_keeps_what_was_told(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    pytest.importorskip("mlflow")
    log = MLflow((tmp_path / "store").as_uri())
    result = evaluate(log)
    (experiment,) = [e for e in log.client.search_experiments() if e.name == "dpb-gym"]
    runs = log.client.search_runs([experiment.experiment_id])
    assert {run.info.status for run in runs} == {"FINISHED"} and len(runs) == 2
    (one,) = [r for r in runs if "LinUCB" in r.data.tags["mlflow.runName"]]
    history = log.client.get_metric_history(one.info.run_id, "regret")
    assert [(m.step, m.value) for m in history] == [
        (t, pytest.approx(value)) for t, value in zip((5, 20, 40), curve(result, "LinUCB"))
    ]


def test_loggers_of_the_command_line(tmp_path: Path, capsys: Any, monkeypatch: Any) -> None:
    pytest.importorskip("tensorboard")
    words = ["run", "--env", "DPB/Pricing-v0", "--agent", "random", "--horizon", "20", "--quiet"]
    folder = tmp_path / "runs"
    words += ["--replicates", "2", "--workers", "1", "--out", str(tmp_path / "out"), "--json"]
    assert cli.run([*words, "--log", f"tensorboard={folder}"]) == 0
    assert json.loads(capsys.readouterr().out)["computed"] == 1
    assert list(folder.rglob("events.out.*"))
    with pytest.raises(UnknownNameError, match="did you mean 'tensorboard'"):
        logger("tensorbord=x")
    with pytest.raises(ParameterError, match="wandb=PLACE"):
        logger("wandb")
    monkeypatch.setattr(callbacks, "LOGGERS", {"wandb": lambda _: callbacks._import("no_such")})
    with pytest.raises(MissingExtraError, match="pip install no_such"):
        logger("wandb=x")
