"""Callbacks are called at every checkpoint and never affect results."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import dpb_gym
from dpb_gym.running.callbacks import Checkpoint

AGENTS = {"LinUCB": "lin-ucb", "private": ("adaprivate-ts", "rho=0.5", {"batch": 10})}


def evaluate(*told: Any, **options: Any) -> dpb_gym.Result:
    return dpb_gym.evaluate(
        "DPB/Recommendation-v0", AGENTS, 40, 4, checkpoints=[5, 20, 40],
        env_kwargs={"dim": 3, "n_arms": 12}, progress=False, callbacks=told, **options,
    )  # fmt: skip


@pytest.mark.parametrize("workers", [1, 2])
def test_every_checkpoint_is_reported_once_in_order(workers: int) -> None:
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
def test_checkpoints_are_independent_copies(workers: int) -> None:
    def meddle(checkpoint: Checkpoint) -> None:
        checkpoint.regret[:] = -1.0

    plain, meddled = evaluate(), evaluate(meddle, workers=workers)
    assert plain.records() == meddled.records()


@pytest.mark.parametrize("workers", [1, 2])
def test_a_callback_that_raises_is_removed(workers: int) -> None:
    calls: list[int] = []
    seen: list[Checkpoint] = []

    def broken(checkpoint: Checkpoint) -> None:
        calls.append(checkpoint.round)
        raise RuntimeError("the disk is full")

    with pytest.warns(RuntimeWarning, match="left out: RuntimeError: the disk is full"):
        result = evaluate(broken, seen.append, workers=workers)
    assert len(calls) == 1 and len(seen) == 6 * workers
    assert result.records() == evaluate().records()


def test_a_run_into_a_directory_reports_computed_cells(tmp_path: Path) -> None:
    from dpb_gym.running.api import plan_task
    from dpb_gym.running.execution import run_plan

    suite, plan = plan_task("DPB/Pricing-v0", "random", 30, 4, checkpoints=[10, 30], block=2)
    for workers, count in ((2, 4), (1, 0)):
        seen: list[Checkpoint] = []
        run_plan(suite, [plan], tmp_path / "out", workers=workers, callbacks=[seen.append])
        assert len(seen) == count
    kept = dpb_gym.Result.load(tmp_path / "out").final_regret("random")
    assert kept.shape == (4,)
