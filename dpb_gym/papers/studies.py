"""Studies: figures whose numbers are more than regret and reward.

The agents train in the ordinary harness; what is measured of them afterwards is kept beside
their regret, one JSON file per block of replicates, and is not computed again.
"""

from __future__ import annotations

import functools
import hashlib
import json
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from dpb_gym.agent import Agent
from dpb_gym.evaluation.outcome import CellResult, Failure
from dpb_gym.evaluation.plan import Job, TaskPlan, make_jobs
from dpb_gym.evaluation.progress import Report, Show, board
from dpb_gym.evaluation.run import RunReport
from dpb_gym.evaluation.runner import run_block
from dpb_gym.evaluation.schema import canonical, plain
from dpb_gym.evaluation.series import collect
from dpb_gym.evaluation.spec import AgentRun, Cell
from dpb_gym.files import make_folder, write_json
from dpb_gym.papers.curves import Curve

if TYPE_CHECKING:
    from dpb_gym.papers.figure import Figure

STUDY_VERSION = 1
"""Raised when a measurement changes."""

Recorded = dict[str, list[float]]
Block = tuple[CellResult, Recorded]


def run_study(
    figure: Figure,
    plans: Sequence[TaskPlan],
    folder: Path,
    replicates: int | None = None,
    show: Show = False,
) -> tuple[list[Curve], RunReport]:
    """Trains the figure's agents and measures them; resumes from the blocks in `folder`.

    Returns:
        Regret curves with the numbers recorded, and how the run went.

    Raises:
        ResultError: If the folder cannot be written.
    """
    assert figure.study is not None
    make_folder(folder)
    options = figure.study.model_dump(mode="json")
    jobs = make_jobs(figure.suite, plans, replicates)
    keys = {c.text: _key(c.text, options) for job in jobs for c in job.cells}
    paths = {text: folder / f"{key}.json" for text, key in keys.items()}
    found: list[Block] = []
    failures: list[Failure] = []
    computed = rounds = 0
    start = time.monotonic()
    with board(jobs, show, remote=False) as watched:
        for index, job in enumerate(jobs):
            stored = [_read(paths[cell.text]) for cell in job.cells]
            found += [block for block in stored if block is not None]
            missing = [cell for cell, block in zip(job.cells, stored) if block is None]
            beat = None if watched is None else watched.heartbeat(index)
            for outcome in _train(job, missing, options, beat):
                if isinstance(outcome, Failure):
                    failures.append(outcome)
                else:
                    found.append(outcome)
                    computed += 1
                    _write(paths[outcome[0].cell.text], *outcome)
            rounds += len(missing) * len(job.cells[0].replicates) * job.task.horizon
            if watched is not None:
                watched.finish(index)
    seconds = time.monotonic() - start
    report = RunReport(folder, tuple(keys.values()), computed, tuple(failures), rounds, seconds)
    return _curves(found, figure), report


def _key(text: str, options: dict[str, Any]) -> str:
    told = canonical([STUDY_VERSION, text, options])
    return hashlib.sha256(told.encode()).hexdigest()[:32]


def _write(path: Path, result: CellResult, recorded: Recorded) -> None:
    curves = {"regret": result.regret.tolist(), "reward": result.reward.tolist()}
    told = {"guarantee": result.guarantee, "recorded": recorded}
    write_json(path, {"cell": result.cell.text, **curves, **told})


def _read(path: Path) -> Block | None:
    """A stored block; None if there is none, or it is damaged and must be computed again."""
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
        curves = np.array(data["regret"]), np.array(data["reward"])
        return CellResult(Cell.read(data["cell"]), *curves, data["guarantee"]), data["recorded"]
    except (OSError, ValueError, TypeError, KeyError):
        return None


def _train(
    job: Job, cells: Sequence[Cell], options: dict[str, Any], progress: Report | None
) -> Iterator[Block | Failure]:
    """Trains the cells in lockstep, and measures each."""
    kept: dict[str, Agent] = {}

    def keeping(run: AgentRun) -> AgentRun:
        @functools.wraps(run.spec.maker)  # its parameters key the streams
        def make(**_: Any) -> Agent:
            kept[run.title] = run.spec.make()
            return kept[run.title]

        return run.model_copy(update={"spec": replace(run.spec, maker=make)})

    watched = [cell.model_copy(update={"agent": keeping(cell.agent)}) for cell in cells]
    outcomes = run_block(job.task.problem(), watched, progress) if cells else []
    for cell, outcome in zip(cells, outcomes):
        if isinstance(outcome, Failure):
            yield outcome
        else:
            recorded = measure_ope(kept[cell.agent.title], job, outcome, options)
            yield CellResult(cell, outcome.regret, outcome.reward, outcome.guarantee), recorded


def _curves(blocks: Sequence[Block], figure: Figure) -> list[Curve]:
    numbers: dict[tuple[str, str, str], dict[str, dict[int, float]]] = {}
    for result, recorded in blocks:
        own = numbers.setdefault(result.cell.row, {})
        for name, values in recorded.items():
            own.setdefault(name, {}).update(zip(result.cell.replicates, values))
    placed = figure.place(collect(result for result, _ in blocks))
    return [replace(c, recorded=numbers[c.series.place]) for c in placed]


def measure_ope(agent: Agent, job: Job, result: CellResult, options: dict[str, Any]) -> Recorded:
    """Off-policy estimates of the trained agent, frozen, from a uniform log of later rounds.

    Returns:
        Per replicate: ``true-value`` of the frozen policy on the log's contexts,
        ``oracle-value`` of the best candidates there, ``random-value``, the absolute errors
        ``naive-error`` (mean reward earned while learning), ``ips-error``, ``snips-error``,
        ``dr-error``, the same in standard errors (``ips-z``, ``snips-z``, ``dr-z``), and
        ``ess`` (effective sample size over rounds).
    """
    from dpb_gym import offline
    from dpb_gym.envs.catalogue import make_problem

    task, seeds = job.task, job.cells[0].seeds
    rounds = int(options["rounds"])
    kwargs = {**task.env_kwargs, "horizon": task.horizon + rounds}
    logs = offline.collect(make_problem(task.env, **kwargs), rounds, seeds, skip=task.horizon)
    policies = offline.probabilities(agent, logs, samples=int(options["samples"]))
    found: Recorded = {}

    def record(name: str, value: float) -> None:
        found.setdefault(name, []).append(float(value))

    for b, (log, policy) in enumerate(zip(logs, policies)):
        assert log.expected is not None
        value = float((policy * log.expected).sum(axis=1).mean())
        record("true-value", value)
        record("oracle-value", log.expected.max(axis=1).mean())
        record("random-value", log.expected.mean())
        record("naive-error", abs(result.reward[b, -1] / task.horizon - value))
        estimates = offline.evaluate_offline(
            policy, log, estimators=("ips", "snips", "dr"), resamples=0
        )
        for name in ("ips", "snips", "dr"):
            error = abs(estimates[name].value - value)
            record(f"{name}-error", error)
            # equal rewards in a very short log have no spread
            record(f"{name}-z", error / max(estimates[name].std_error, 1e-12))
        record("ess", estimates.effective_sample_size / rounds)
    return {name: plain(values, name) for name, values in found.items()}
