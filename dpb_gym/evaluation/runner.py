"""The lockstep runner: many agents, one stream of customers.

The contexts of a replicate are drawn once and every agent acts on them; one shared
uniform decides each response. Comparisons are therefore paired, and what an agent does
does not depend, in a single bit, on which others run beside it.
"""

from __future__ import annotations

import linecache
import time
import traceback
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from dpb_gym.agent import Agent
from dpb_gym.errors import DPBError, ParameterError
from dpb_gym.evaluation.callbacks import Callback, Checkpoint
from dpb_gym.evaluation.outcome import CellResult, Failure, Timing
from dpb_gym.evaluation.spec import Cell
from dpb_gym.problems.base import Context, Instance, Problem
from dpb_gym.problems.delay import Post
from dpb_gym.registry import check_supported

PROGRESS_SECONDS = 0.2


class _Runner:
    """One cell in the middle of a run."""

    def __init__(self, cell: Cell) -> None:
        self.cell = cell
        self.agent: Agent = cell.agent.make()
        self.instance: Instance
        replicates, checkpoints = len(cell.seeds), len(cell.checkpoints)
        self.regret = np.zeros(replicates)
        self.reward = np.zeros(replicates)
        self.regrets = np.empty((checkpoints, replicates))
        self.rewards = np.empty((checkpoints, replicates))
        self.agent_seconds = 0.0
        self.response_seconds = 0.0
        self.stage = "begin"

    def note(self, at: int, t: int, tell: Callback | None) -> None:
        """Keeps regret and reward of round t as checkpoint number `at`, and tells of it."""
        self.regrets[at] = self.regret
        self.rewards[at] = self.reward
        if tell is not None:
            guarantee = self.agent.curator.guarantee
            tell(Checkpoint.of(self.cell, t, self.regret, self.reward, guarantee))


def run_block(
    problem: Problem,
    cells: Sequence[Cell],
    progress: Callable[[int], None] | None = None,
    tell: Callback | None = None,
) -> list[CellResult | Failure]:
    """Runs cells of one task and one block of replicates in lockstep, to the horizon.

    Context arrays are read-only while agents see them: an agent that writes into one
    fails, instead of changing what its companions see.

    Args:
        problem: The problem of their task.
        cells: Who takes part; they share task, seeds and checkpoints.
        progress: Called now and then with the agent rounds done so far; what it raises ends
            the block.
        tell: Called with the `Checkpoint` of every cell; it must not raise.

    Returns:
        One `CellResult` or `Failure` per cell, in order.

    Raises:
        ParameterError: If there is no cell, the checkpoints do not fit the problem, or a
            parameter of an agent is unknown or invalid.
    """
    if not cells:
        raise ParameterError("a block needs at least one cell")
    seeds, rounds = cells[0].seeds, list(cells[0].checkpoints)
    if any((c.seeds, c.checkpoints) != (seeds, cells[0].checkpoints) for c in cells):
        raise ParameterError("the cells of a block share their seeds and checkpoints")
    if rounds != sorted(set(rounds)) or rounds[0] < 1 or rounds[-1] != problem.horizon:
        raise ParameterError(
            f"checkpoints must increase within 1..{problem.horizon} and end there, got {rounds}"
        )
    instance = problem.instance(seeds)
    results: list[CellResult | Failure | None] = [None] * len(cells)
    live = []
    for i, runner in enumerate([_Runner(cell) for cell in cells]):
        try:
            _begin(runner, problem, instance)
            live.append((i, runner))
        except Exception as error:
            results[i] = _failure(runner, error, 0)
    environment_seconds = _rounds(instance, live, results, rounds, len(cells), progress, tell)
    for i, runner in live:
        try:
            results[i] = _finish(runner, problem, environment_seconds, len(cells))
        except Exception as error:
            results[i] = _failure(runner, error, problem.horizon)
    if progress is not None:
        progress(len(cells) * problem.horizon * len(seeds))
    return [result for result in results if result is not None]


def _begin(runner: _Runner, problem: Problem, instance: Instance) -> None:
    run = runner.cell.agent
    check_supported(run.spec, problem.info, run.budget)
    runner.instance = instance.fork()
    if run.spec.uses_oracle:
        runner.agent.attach(runner.instance)
    runner.agent.set_up(problem.info, run.streams(instance.seeds), run.budget)


def _rounds(
    instance: Instance,
    live: list[tuple[int, _Runner]],
    results: list[CellResult | Failure | None],
    checkpoints: list[int],
    companions: int,
    progress: Callable[[int], None] | None,
    tell: Callback | None,
) -> float:
    """Plays all rounds; removes cells that fail from `live`. Returns the shared seconds."""
    clock = time.perf_counter
    horizon = instance.problem.horizon
    post = Post(instance.problem, instance.seeds)
    shared = 0.0
    last_report = clock()
    at = 0
    for t in range(1, horizon + 1):
        if not live:
            break
        start = clock()
        if t > 1:
            instance.advance()
        context = _read_only(instance.context())
        if instance.left is None:
            instance.oracle()
        post.open(context)
        shared += clock() - start
        failed = []
        for i, runner in live:
            try:
                runner.stage = "act"
                agent = runner.agent
                own = context
                if runner.instance is not instance:  # what is left is the agent's own doing
                    own = _read_only(runner.instance.context())
                    post.open(own)
                t0 = clock()
                action = agent.act(own)
                t1 = clock()
                runner.stage = "action"
                outcome = runner.instance.respond(action)
                runner.regret += outcome.regret
                runner.reward += outcome.feedback.reward
                runner.stage = "observe"
                t2 = clock()
                agent.observe(*post.deliver(action, outcome.feedback, i))
                runner.agent_seconds += clock() - t2 + t1 - t0
                runner.response_seconds += t2 - t1
            except Exception as error:
                results[i] = _failure(runner, error, t)
                failed.append(i)
        if failed:
            live[:] = [(i, runner) for i, runner in live if i not in failed]
        if t == 1:
            shared = 0.0
            for _, runner in live:
                runner.agent_seconds = runner.response_seconds = 0.0
        if t == checkpoints[at]:
            for _, runner in live:
                runner.note(at, t, tell)
            at += 1
        if progress is not None and start - last_report > PROGRESS_SECONDS:
            last_report = start
            progress(t * instance.replicates * companions)
    return shared


def _read_only(context: Context) -> Context:
    context.features.flags.writeable = False
    for array in context[2:]:
        if array is not None:
            array.flags.writeable = False
    return context


def _finish(runner: _Runner, problem: Problem, shared: float, companions: int) -> CellResult:
    runner.stage, info = "end", problem.info
    guarantee = runner.agent.curator.guarantee
    promised = guarantee is not None and guarantee.private
    if guarantee is not None and info.rating_uses is not None and info.person_uses is not None:
        guarantee = replace(guarantee, uses=(info.rating_uses, info.person_uses))
    timed = (problem.horizon - 1) * len(runner.cell.replicates)
    return CellResult(
        runner.cell,
        np.ascontiguousarray(runner.regrets.T),
        np.ascontiguousarray(runner.rewards.T),
        guarantee.to_dict() if promised and guarantee is not None else None,
        Timing(timed, runner.agent_seconds, runner.response_seconds, shared, companions),
    )


def _failure(runner: _Runner, error: Exception, t: int) -> Failure:
    cell, text = runner.cell, str(error) or type(error).__name__
    at = error.replicate if isinstance(error, DPBError) else None
    seed = cell.seeds[0] if len(cell.seeds) == 1 else None
    if at is not None and at < len(cell.seeds):
        seed = cell.seeds[at]
        text = text.replace(f"replicate {at}", f"seed {seed}")
    if not isinstance(error, DPBError):
        text = f"{type(error).__name__}: {text}"
    where = (
        f"replicate with seed {seed}"
        if seed is not None
        else f"replicates with seeds {cell.seeds[0]} to {cell.seeds[-1]}"
    )
    when = "before the first round" if t == 0 else f"in round {t} ({runner.stage})"
    message = f"agent {cell.agent.title!r} failed {when}, {where}: {' '.join(text.split())}"
    details = "".join(traceback.format_exception(error))
    return Failure(cell, runner.stage, t, seed, message + _line(error, cell), details)


def _line(error: BaseException, cell: Cell) -> str:
    """The line of the agent's own code that broke down, empty for errors raised on purpose."""
    while error.__cause__ is not None:
        error = error.__cause__
    module = getattr(cell.agent.maker, "__module__", None)
    own = [
        (frame.f_code.co_filename, number)
        for frame, number in traceback.walk_tb(error.__traceback__)
        if frame.f_globals.get("__name__") == module
    ]
    if isinstance(error, DPBError) or not own:
        return ""
    file, number = own[-1]
    source = linecache.getline(file, number).strip()
    return f" [{Path(file).name}, line {number}{f': {source}' if source else ''}]"
