"""Studies: figures whose numbers are more than regret and reward.

The agents train in the ordinary harness; what is measured of them afterwards is kept beside
their regret, one JSON file per block of replicates, and is not computed again.
"""

from __future__ import annotations

import functools
import hashlib
import json
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from dpb_gym.agent import Agent
from dpb_gym.evaluation.outcome import CellResult, Failure
from dpb_gym.evaluation.plan import Job, TaskPlan, make_jobs
from dpb_gym.evaluation.progress import Show, board
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

Measurement = Callable[[Agent, Job, CellResult, "dict[str, Any]"], "dict[str, list[float]]"]


@dataclass(frozen=True)
class StudyReport:
    """A finished study.

    Attributes:
        curves: Regret curves with the numbers recorded.
        failures: Messages of agents that failed.
        rounds: Agent rounds computed now.
        seconds: Wall time.
    """

    curves: list[Curve]
    failures: tuple[str, ...]
    rounds: int
    seconds: float


def run_study(
    figure: Figure,
    plans: Sequence[TaskPlan],
    folder: Path,
    replicates: int | None = None,
    show: Show = False,
) -> StudyReport:
    """Trains the figure's agents and measures them; resumes from `folder`.

    Args:
        figure: A figure with a study.
        plans: Who runs on what.
        folder: Where the blocks are kept.
        replicates: Instead of the figure's.
        show: Progress; see `dpb_gym.evaluation.progress.board`.

    Raises:
        ResultError: If the folder cannot be written.
    """
    assert figure.study is not None
    make_folder(folder)
    options = figure.study.model_dump(mode="json")
    jobs = make_jobs(figure.suite, plans, replicates)
    found: list[dict[str, Any]] = []
    failures: list[str] = []
    rounds = 0
    start = time.monotonic()
    with board(jobs, show, remote=False) as watched:
        for index, job in enumerate(jobs):
            blocks, missing = [], []
            for cell in job.cells:
                path = folder / f"{_key(cell, options)}.json"
                stored = _read(path)
                if stored is None:
                    missing.append((cell, path))
                else:
                    blocks.append(stored)
            if missing:
                fresh, broken = _block(job, missing, options, watched.heartbeat(index))
                blocks += fresh
                failures += [str(failure) for failure in broken]
                rounds += len(missing) * len(job.cells[0].replicates) * job.task.horizon
            watched.finish(index)
            found += blocks
    return StudyReport(_curves(found, figure), tuple(failures), rounds, time.monotonic() - start)


def _key(cell: Cell, options: dict[str, Any]) -> str:
    text = canonical([STUDY_VERSION, cell.text, options])
    return hashlib.sha256(text.encode()).hexdigest()[:32]


def _read(path: Path) -> dict[str, Any] | None:
    """A stored block; None if there is none, or it is damaged and must be computed again."""
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
        complete = {"cell", "regret", "reward", "guarantee", "recorded"} <= set(data)
    except (OSError, ValueError, TypeError):
        return None
    return data if complete else None


def _block(
    job: Job,
    missing: Sequence[tuple[Cell, Path]],
    options: dict[str, Any],
    progress: Callable[[int], None],
) -> tuple[list[dict[str, Any]], list[Failure]]:
    """Trains the missing cells in lockstep, and measures each."""
    kept: dict[str, Agent] = {}

    def keeping(run: AgentRun) -> AgentRun:
        @functools.wraps(run.maker)  # its parameters key the streams
        def make(**_: Any) -> Agent:
            kept[run.title] = run.make()
            return kept[run.title]

        return run.model_copy(update={"maker": make})

    cells = [cell.model_copy(update={"agent": keeping(cell.agent)}) for cell, _ in missing]
    outcomes = run_block(job.task.problem(), cells, progress)
    measure = MEASUREMENTS[options["kind"]]
    blocks, failures = [], []
    for (cell, path), outcome in zip(missing, outcomes):
        if isinstance(outcome, Failure):
            failures.append(outcome)
            continue
        block = {
            "cell": cell.text,
            "regret": outcome.regret.tolist(),
            "reward": outcome.reward.tolist(),
            "guarantee": outcome.guarantee,
            "recorded": measure(kept[cell.agent.title], job, outcome, options),
        }
        write_json(path, block)
        blocks.append(block)
    return blocks, failures


def _curves(blocks: Sequence[dict[str, Any]], figure: Figure) -> list[Curve]:
    results = [
        CellResult(
            Cell.read(one["cell"]),
            np.array(one["regret"]),
            np.array(one["reward"]),
            one["guarantee"],
        )
        for one in blocks
    ]
    recorded: dict[tuple[str, str, str], dict[str, dict[int, float]]] = {}
    for block, result in zip(blocks, results):
        own = recorded.setdefault(result.cell.row, {})
        for name, values in block["recorded"].items():
            own.setdefault(name, {}).update(zip(result.cell.replicates, values))
    return [replace(c, recorded=recorded[c.series.place]) for c in figure.place(collect(results))]


def measure_ope(
    agent: Agent, job: Job, result: CellResult, options: dict[str, Any]
) -> dict[str, list[float]]:
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
    found: dict[str, list[float]] = {}

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


MEASUREMENTS: dict[str, Measurement] = {"ope": measure_ope}
