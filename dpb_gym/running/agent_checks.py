"""Checks of agents of other packages, before their cells run with a budget."""

from __future__ import annotations

import sys
import traceback
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import replace
from typing import Any

from dpb_gym.audits.audit_records import published_claim
from dpb_gym.audits.replay_check import ROUNDS, check_agent, shortened
from dpb_gym.errors import AgentError, DPBError
from dpb_gym.problems.base import Problem
from dpb_gym.progress_lines import progress_lines
from dpb_gym.registry import as_key
from dpb_gym.results.cell_result import CellResult, Failure
from dpb_gym.running.plan import Job
from dpb_gym.running.progress import Show
from dpb_gym.running.runner import run_block
from dpb_gym.suites.code_digest import distribution
from dpb_gym.suites.spec import Cell

OWN = "dpb-gym"
PLAYS_OTHERWISE = (
    "its play does not do what act and observe do: its regret in {rounds} rounds is another. Only "
    "act and observe are tested for raw data, so play must return the same actions, bit for bit"
)
_found: dict[Any, tuple[str, str] | None] = {}
"""Message and traceback of the agents that were checked in this process, None if they passed."""


def checked(jobs: Sequence[Job], show: Show = False) -> tuple[list[Job], list[Failure]]:
    """Return the jobs without the cells of agents that a check refuses, and these as failures.

    Every private agent that is not of this package is checked once per task, budget, set of
    parameters and code, see `check_agent`. Agents in isolated processes are not checked, because
    their code has no raw data there.

    Args:
        jobs: The jobs.
        show: Whether progress is shown on the standard error, see
            `dpb_gym.running.progress.board`; a function of rounds is not called.
    """
    private = ((j, c) for j in jobs for c in j.cells if c.agent.budget is not None)
    if not any(_needs_check(job, cell) for job, cell in private):
        return list(jobs), []
    seen = show is True or (show is None and sys.stderr.isatty())
    left: list[Job] = []
    failures: list[Failure] = []
    with progress_lines("replay check", True) if seen else nullcontext(_ignore) as say:
        for job in jobs:
            passed = []
            for cell in job.cells:
                refused = None
                if _needs_check(job, cell):
                    # results are of the code that is checked; a notebook may change it later
                    cell = cell.model_copy(update={"agent": cell.agent.sealed()})
                    refused = _refused(job, cell, say)
                if refused is None:
                    passed.append(cell)
                else:
                    failures.append(Failure(cell, "check", 0, None, *refused))
            left.append(replace(job, cells=tuple(passed)))
    return [job for job in left if job.cells], failures


def _ignore(line: str) -> None:
    """Do nothing."""


def _needs_check(job: Job, cell: Cell) -> bool:
    run = cell.agent
    if run.budget is None or run.spec.uses_oracle or job.isolate:
        return False
    maker = run.spec.maker
    own = distribution(str(getattr(maker, "__module__", None))) == OWN
    # a name of this package that was registered again, for another guarantee
    claim = published_claim(run.name)
    return not own or claim not in (None, run.spec.protects)


def _refused(job: Job, cell: Cell, say: Callable[[str], Any]) -> tuple[str, str] | None:
    """Return message and traceback of a check that fails; it runs once per process and code."""
    run = cell.agent
    task = cell.task
    words = (run.name, run.code, run.params, run.spec.protects, str(run.budget))
    key = (run.spec.maker, as_key(words), task.env, as_key(task.env_kwargs), task.horizon)
    if key not in _found:
        try:
            check_agent(run, task, job.problem, cell.seeds[0], say)
            _check_play(cell, job.problem)
            _found[key] = None
        except DPBError as error:
            text = " ".join(str(error).split())
            _found[key] = text, "".join(traceback.format_exception(error))
    refusal = _found[key]
    if refusal is None:
        return None
    return f"agent {run.title!r} is refused with a budget: {refusal[0]}", refusal[1]


def _check_play(cell: Cell, problem: Problem | None) -> None:
    """Raise AgentError if an agent's `play` differs from `act` and `observe` in a few rounds."""
    try:
        play = type(cell.agent.spec.make()).play
    except DPBError:
        return  # the run itself says what is wrong with the agent's parameters
    if distribution(play.__module__) == OWN:
        return
    task = cell.task
    rounds = min(ROUNDS, task.horizon)
    # few checkpoints, as each ends a stretch of rounds
    changes = {
        "task": task.model_copy(update={"horizon": rounds}),
        "checkpoints": tuple(sorted({max(1, rounds // 4), rounds})),
        "stop": cell.start + 2,
    }
    own = cell.model_copy(update=changes)
    for short in shortened(task, problem, rounds):
        one, other = (run_block(short, [own], stretches=way)[0] for way in (True, False))
        if isinstance(one, CellResult) and isinstance(other, CellResult):
            if (one.regret != other.regret).any():
                raise AgentError(PLAYS_OTHERWISE.format(rounds=rounds))
            return
