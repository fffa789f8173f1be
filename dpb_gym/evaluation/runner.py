"""The lockstep runner: many agents, one stream of customers.

The contexts of a replicate are drawn once and every entry acts on them; one shared
uniform decides each response. Comparisons are therefore paired, and what an entry does
does not depend, in a single bit, on which others run beside it.
"""

from __future__ import annotations

import re
import time
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from dpb_gym.agent import Agent, check_supported
from dpb_gym.errors import AgentError, DPBError, ParameterError
from dpb_gym.evaluation.entries import Entry
from dpb_gym.problems.base import Array, Context, Instance, Problem
from dpb_gym.streams import AgentStreams

PROGRESS_SECONDS = 0.2


@dataclass(frozen=True)
class Timing:
    """Where one entry's time went, the first round (compilation, caches) left out.

    Attributes:
        rounds: Agent rounds that were timed: replicates times rounds.
        agent_seconds: In the agent's `act` and `observe`.
        response_seconds: In the responses to its actions.
        environment_seconds: In the contexts and best actions, shared by all entries.
        companions: Entries that shared them, itself included.
    """

    rounds: int
    agent_seconds: float
    response_seconds: float
    environment_seconds: float
    companions: int

    @property
    def seconds(self) -> float:
        """Own time plus an equal share of what the entries shared."""
        shared = self.environment_seconds / self.companions
        return self.agent_seconds + self.response_seconds + shared


@dataclass(frozen=True)
class Lane:
    """What one entry did on a block of replicates.

    Attributes:
        entry: Who acted.
        regret: Cumulative pseudo-regret ``(B, C)`` at the checkpoints.
        reward: Cumulative realised reward ``(B, C)`` at the checkpoints.
        guarantee: `Guarantee.to_dict` of the agent at the end, None if non-private.
        clipped: Records clipped by its releasers per replicate, None if not counted.
        timing: Where the time went; no part of the result.
    """

    entry: Entry
    regret: Array
    reward: Array
    guarantee: dict[str, Any] | None
    clipped: tuple[int, ...] | None
    timing: Timing


@dataclass(frozen=True)
class Failure:
    """An entry that broke down; its companions were not harmed.

    Attributes:
        entry: Who failed.
        stage: ``"begin"``, ``"act"``, ``"action"`` (refused by the problem),
            ``"observe"`` or ``"end"``.
        round: Round of the failure, 0 before the first.
        seed: Seed of the replicate that failed, None if it is not known which one.
        message: What happened, in one line.
        details: Python traceback.
    """

    entry: Entry
    stage: str
    round: int
    seed: int | None
    message: str
    details: str

    def error(self) -> AgentError:
        """The failure as an exception."""
        return AgentError(self.message)


class _Runner:
    """One entry in the middle of a run."""

    def __init__(self, entry: Entry, replicates: int, checkpoints: int) -> None:
        self.entry = entry
        self.agent: Agent
        self.regret = np.zeros(replicates)
        self.reward = np.zeros(replicates)
        self.regrets = np.empty((checkpoints, replicates))
        self.rewards = np.empty((checkpoints, replicates))
        self.agent_seconds = 0.0
        self.response_seconds = 0.0
        self.stage = "begin"


def run_block(
    problem: Problem,
    entries: Sequence[Entry],
    seeds: Sequence[int],
    checkpoints: Sequence[int],
    progress: Callable[[int], None] | None = None,
) -> list[Lane | Failure]:
    """Runs every entry on the same replicates in lockstep, to the problem's horizon.

    Context arrays are read-only while agents see them: an agent that writes into one
    fails, instead of changing what its companions see.

    Args:
        problem: The problem.
        entries: Who takes part.
        seeds: One seed per replicate of the block.
        checkpoints: Increasing rounds to record, the last one the horizon (see
            `resolve_checkpoints`).
        progress: Called now and then with the agent rounds done so far.

    Returns:
        One `Lane` or `Failure` per entry, in order.

    Raises:
        ParameterError: If there is no entry, no seed or no valid checkpoint.
    """
    if not entries:
        raise ParameterError("a block needs at least one entry")
    rounds = list(checkpoints)
    increasing = rounds == sorted(set(rounds))
    if not rounds or not increasing or rounds[0] < 1 or rounds[-1] != problem.horizon:
        raise ParameterError(
            f"checkpoints must increase within 1..{problem.horizon} and end there, got {rounds}"
        )
    instance = problem.instance(seeds)
    seeds = instance.seeds
    runners = [_Runner(entry, len(seeds), len(rounds)) for entry in entries]
    results: list[Lane | Failure | None] = [None] * len(runners)
    live = []
    for i, runner in enumerate(runners):
        try:
            _begin(runner, problem, instance)
            live.append((i, runner))
        except Exception as error:
            results[i] = _failure(runner, error, 0, seeds)
    environment_seconds = _rounds(instance, live, results, rounds, len(entries), progress)
    timed = (problem.horizon - 1) * len(seeds)
    for i, runner in live:
        try:
            results[i] = _finish(runner, len(seeds), timed, environment_seconds, len(entries))
        except Exception as error:
            results[i] = _failure(runner, error, problem.horizon, seeds)
    if progress is not None:
        progress(len(entries) * problem.horizon * len(seeds))
    return [result for result in results if result is not None]


def _begin(runner: _Runner, problem: Problem, instance: Instance) -> None:
    entry = runner.entry
    check_supported(entry.spec, problem.info, entry.budget)
    runner.agent = entry.make()
    if entry.spec.uses_oracle:
        runner.agent.attach(instance)
    runner.agent.begin(problem.info, AgentStreams(instance.seeds), entry.budget)


def _rounds(
    instance: Instance,
    live: list[tuple[int, _Runner]],
    results: list[Lane | Failure | None],
    checkpoints: list[int],
    companions: int,
    progress: Callable[[int], None] | None,
) -> float:
    """Plays all rounds; removes entries that fail from `live`. Returns the shared seconds."""
    clock = time.perf_counter
    horizon = instance.problem.horizon
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
        instance.oracle()
        shared += clock() - start
        failed = []
        for i, runner in live:
            try:
                runner.stage = "act"
                agent = runner.agent
                t0 = clock()
                action = agent.act(context)
                t1 = clock()
                runner.stage = "action"
                outcome = instance.respond(action)
                runner.regret += outcome.regret
                runner.reward += outcome.feedback.reward
                runner.stage = "observe"
                t2 = clock()
                agent.observe(context, action, outcome.feedback)
                runner.agent_seconds += clock() - t2 + t1 - t0
                runner.response_seconds += t2 - t1
            except Exception as error:
                results[i] = _failure(runner, error, t, instance.seeds)
                failed.append(i)
        if failed:
            live[:] = [(i, runner) for i, runner in live if i not in failed]
        if t == 1:
            shared = 0.0
            for _, runner in live:
                runner.agent_seconds = runner.response_seconds = 0.0
        if t == checkpoints[at]:
            for _, runner in live:
                runner.regrets[at] = runner.regret
                runner.rewards[at] = runner.reward
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


def _finish(
    runner: _Runner, replicates: int, timed: int, environment_seconds: float, companions: int
) -> Lane:
    runner.stage = "end"
    guarantee = runner.agent.guarantee
    promised = guarantee is not None and guarantee.private
    timing = Timing(
        timed, runner.agent_seconds, runner.response_seconds, environment_seconds, companions
    )
    return Lane(
        runner.entry,
        np.ascontiguousarray(runner.regrets.T),
        np.ascontiguousarray(runner.rewards.T),
        guarantee.to_dict() if promised and guarantee is not None else None,
        _clipped(runner.agent, replicates),
        timing,
    )


def _clipped(agent: Agent, replicates: int) -> tuple[int, ...] | None:
    counts = getattr(agent, "clipped_count", None)
    if counts is None:
        return None
    array = np.asarray(counts)
    if array.shape != (replicates,) or array.dtype.kind not in "iu":
        raise AgentError(f"clipped_count must be {replicates} integers, got {counts!r}")
    return tuple(int(count) for count in array)


def _failure(runner: _Runner, error: Exception, t: int, seeds: Sequence[int]) -> Failure:
    text = str(error) or type(error).__name__
    seed = seeds[0] if len(seeds) == 1 else None
    if isinstance(error, DPBError):
        found = re.search(r"\breplicate (\d+)\b", text)
        if found is not None and int(found[1]) < len(seeds):
            seed = seeds[int(found[1])]
            text = text.replace(found[0], f"seed {seed}")
    if not isinstance(error, DPBError):
        text = f"{type(error).__name__}: {text}"
    where = (
        f"replicate with seed {seed}"
        if seed is not None
        else (f"replicates with seeds {min(seeds)} to {max(seeds)}")
    )
    when = "before the first round" if t == 0 else f"in round {t} ({runner.stage})"
    message = f"agent {runner.entry.title!r} failed {when}, {where}: {' '.join(text.split())}"
    return Failure(
        runner.entry, runner.stage, t, seed, message, "".join(traceback.format_exception(error))
    )
