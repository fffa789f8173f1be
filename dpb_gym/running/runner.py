"""The lockstep runner: many agents on one stream of customers.

The contexts of a replicate are drawn once for all agents, and one shared uniform number decides
each response. Comparisons are therefore paired, and an agent's numbers do not depend, in any bit,
on which other agents run.

Each agent plays a stretch of rounds before the next agent plays the same rounds, so that its data
and code stay in the processor's cache.
"""

from __future__ import annotations

import time
import traceback
from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from dpb_gym import state
from dpb_gym.agent import Agent, plays_stretches
from dpb_gym.checkpoint import restored
from dpb_gym.errors import DPBError, ParameterError, StateError, line_of
from dpb_gym.kernel_cache import spent
from dpb_gym.problems.base import Array, Context, Instance, Problem
from dpb_gym.problems.delay import Delivery
from dpb_gym.problems.folded import FoldedStretch
from dpb_gym.problems.limited_stock import StockInstance
from dpb_gym.problems.stretch import JudgedStretch
from dpb_gym.registry import AgentSpec, check_supported
from dpb_gym.results.cell_result import CellResult, Failure, Study, Timing
from dpb_gym.results.storage import warn
from dpb_gym.running.callbacks import Callback, Checkpoint
from dpb_gym.running.unfinished import JobState
from dpb_gym.suites.spec import Cell

if TYPE_CHECKING:
    from dpb_gym.running.isolation import IsolatedAgent

PROGRESS_SECONDS = 0.2


class _Runner:
    """State of one cell during a run; `failure` is set if it has failed."""

    def __init__(
        self,
        cell: Cell,
        number: int,
        agent: Agent,
        instance: Instance,
        saved: Mapping[str, Any] | None = None,
    ) -> None:
        self.cell, self.number, self.agent = cell, number, agent
        self.instance = instance.fork() if isinstance(instance, StockInstance) else instance
        self.failure: Failure | None = None
        shape = len(cell.checkpoints), len(cell.seeds)
        self.regret, self.reward = np.zeros((2, shape[1]))
        self.regrets, self.rewards = np.empty((2, *shape))
        self.agent_seconds = self.response_seconds = 0.0
        self.stage, self.t = "begin", 0
        run = cell.agent
        info = instance.problem.info
        if saved is not None:
            self._restore(saved)
            return
        try:
            check_supported(run.spec, info, run.budget is not None)
            if run.spec.uses_oracle:
                agent.attach(self.instance)
            agent.set_up(info, run.spec.streams(instance.seeds, run.budget), run.budget)
            agent.curator.rounds.attend()
        except Exception as error:
            self.failure = _failure(self, error)

    def saved(self) -> dict[str, Any]:
        """Return the cell's state between two rounds as plain state.

        Raises:
            StateError: If the agent has attributes that are no data.
        """
        agent = vars(self.agent)
        oracle = {name: value for name, value in agent.items() if value is self.instance}
        for name in oracle:
            agent[name] = None
        try:
            payload = state.dumps(self.agent)
        finally:
            agent.update(oracle)
        return {
            "number": self.number,
            "sums": [self.regret, self.reward],
            "noted": [self.regrets, self.rewards],
            "seconds": [self.agent_seconds, self.response_seconds],
            "stock": self.instance.saved() if isinstance(self.instance, StockInstance) else None,
            "oracle": list(oracle),
            "agent": np.frombuffer(payload, np.uint8),
        }

    def _restore(self, saved: Mapping[str, Any]) -> None:
        """Continue from what `saved` returned, with an agent that was restored from it."""
        self.regret, self.reward = saved["sums"]
        self.regrets, self.rewards = saved["noted"]
        self.agent_seconds, self.response_seconds = saved["seconds"]
        if saved["stock"] is not None:
            self.instance.restore(saved["stock"])
        vars(self.agent).update(dict.fromkeys(saved["oracle"], self.instance))

    def play(
        self, contexts: Sequence[Context], shared: Instance, delivery: Delivery | None
    ) -> None:
        """Play the `coming` rounds of the shared instance; `judge` adds up their regret."""
        clock = time.perf_counter
        agent = self.agent
        instance = self.instance
        compiled = spent.wall
        expected, rewards = np.empty((2, len(contexts), len(self.regret)))
        observed = None
        for at, context in enumerate(contexts):
            self.t, self.stage = context.t, "act"
            if instance is not shared:  # with limited stock, rounds depend on the agent's actions
                (context,) = instance.coming(1)
            elif len(contexts) > 1:
                instance.show(at)
            t0 = clock()
            action = agent.act(context)
            t1 = clock()
            self.stage = "action"
            feedback, expected[at] = instance.answer(action)
            rewards[at] = feedback.reward
            if feedback.observed is not None:
                observed = np.ones(rewards.shape, bool) if observed is None else observed
                observed[at] = feedback.observed
            self.stage = "observe"
            t2 = clock()
            action = instance.problem.played(action, instance.replicates)
            delivered = context, action, feedback
            if delivery is not None:
                delivered = delivery.deliver(action, feedback, self.number)
            with agent.curator.round(context.t):
                agent.observe(*delivered)
            own = clock() - t2 + t1 - t0
            answered = t2 - t1
            if spent.wall != compiled:  # compilation takes longer than a round
                extra = spent.wall - compiled
                compiled = spent.wall
                rest = own + answered - extra
                own = max(0.0, own - extra)
                answered = max(0.0, min(answered, rest))
            self.agent_seconds += own
            self.response_seconds += answered
        self.played = expected, observed, rewards

    def play_stretch(self, rounds: JudgedStretch | FoldedStretch) -> None:
        """Play rounds in compiled code, as `play` does one by one."""
        view: Any = rounds.view()
        self.t, self.stage = view.context.t, "play"
        start = time.perf_counter() - spent.wall
        with self.agent.curator.round(self.t, len(rounds.best)):
            actions = self.agent.play(view)
        self.agent_seconds += time.perf_counter() - spent.wall - start
        self.played = rounds.outcome(view, actions, type(self.agent).__name__)

    def judge(self, best: Array | None) -> None:
        """Add the regret and reward of the rounds played last."""
        expected, observed, rewards = self.played
        regrets = self.instance.regret(expected, observed, best).reshape(rewards.shape)
        # in the order of the rounds
        self.regret = np.add.accumulate(np.concatenate((self.regret[None], regrets)))[-1]
        self.reward = np.add.accumulate(np.concatenate((self.reward[None], rewards)))[-1]

    def note(self, at: int, t: int, notify: Callback | None) -> None:
        """Record regret and reward of round t as checkpoint number `at`, and call the callback."""
        self.regrets[at], self.rewards[at] = self.regret, self.reward
        if notify is not None:
            self.show(at, t, notify)

    def show(self, at: int, t: int, notify: Callback) -> None:
        """Call the callback with regret and reward of round t, checkpoint number `at`."""
        guarantee = self.agent.curator.guarantee
        notify(Checkpoint.of(self.cell, t, self.regrets[at], self.rewards[at], guarantee))

    def result(
        self, shared: float, companions: int, busy: float, study: Study | None
    ) -> CellResult:
        """Return the numbers of the whole run and its guarantee.

        `busy` is the share of wall time during which the processor worked.
        """
        self.stage, problem = "end", self.instance.problem
        guarantee = self.agent.curator.guarantee
        info = problem.info
        if guarantee is not None and info.rating_uses is not None and info.person_uses is not None:
            guarantee = replace(guarantee, uses=(info.rating_uses, info.person_uses))
        timed = (problem.horizon - 1) * len(self.cell.replicates)
        outcome = CellResult(
            self.cell,
            np.ascontiguousarray(self.regrets.T),
            np.ascontiguousarray(self.rewards.T),
            guarantee.to_dict() if guarantee is not None and guarantee.private else None,
            Timing(
                timed,
                self.agent_seconds * busy,
                self.response_seconds * busy,
                shared * busy,
                companions,
            ),
        )
        return outcome if study is None else replace(outcome, recorded=study(self.agent, outcome))


def run_block(
    problem: Problem,
    cells: Sequence[Cell],
    progress: Callable[[int], None] | None = None,
    notify: Callback | None = None,
    study: Study | None = None,
    *,
    stretches: bool = True,
    isolate: bool = False,
    states: JobState | None = None,
) -> list[CellResult | Failure]:
    """Run cells of one task and one block of replicates in lockstep, to the horizon.

    Context arrays are read-only for agents: an agent that writes into one fails.

    Args:
        problem: The problem of their task.
        cells: The cells; they share task, seeds and checkpoints.
        progress: Called at intervals with the agent rounds done so far; an exception ends the
            block.
        notify: Called with the `Checkpoint` of every cell; it must not raise.
        study: Measures every agent after its run.
        stretches: Whether agents may play several rounds at once (`Agent.play`).
        isolate: Whether the code of agents with a budget runs in other processes, see
            `dpb_gym.running.isolation`. Times then include the processes' messages.
        states: Saves the block's state at intervals. Cells that it has the state of, all or none
            of the block's, continue from there.

    Returns:
        One `CellResult` or `Failure` per cell, in order.

    Raises:
        ParameterError: If there is no cell, the checkpoints do not fit the problem, or a
            parameter of an agent is unknown or invalid.
    """
    if not cells:
        raise ParameterError("a block needs at least one cell")
    seeds = cells[0].seeds
    rounds = list(cells[0].checkpoints)
    if any((c.seeds, c.checkpoints) != (seeds, cells[0].checkpoints) for c in cells):
        raise ParameterError("the cells of a block share their seeds and checkpoints")
    if rounds != sorted(set(rounds)) or rounds[0] < 1 or rounds[-1] != problem.horizon:
        raise ParameterError(
            f"checkpoints must increase within 1..{problem.horizon} and end there, got {rounds}"
        )
    with ExitStack() as running:
        block = None if states is None else _resumed(problem, cells, states)
        if block is not None:
            block.replay(notify)
        else:
            instance = problem.instance(seeds)
            agents: list[Agent] = [
                running.enter_context(closing(_isolated(run.spec)))
                if isolate and run.budget is not None
                else run.spec.make()
                for run in (cell.agent for cell in cells)
            ]
            block = _Block(
                instance,
                [_Runner(c, i, a, instance) for i, (c, a) in enumerate(zip(cells, agents))],
                Delivery(problem, seeds) if problem.info.delay is not None else None,
            )
        runners = block.runners
        shared = _rounds(block, rounds, progress, notify, stretches, states)
        used, passed = block.times
        busy = min(1.0, used / passed) if used and not isolate else 1.0
        outcomes: list[CellResult | Failure] = []
        for runner in runners:
            try:
                outcomes.append(runner.failure or runner.result(shared, len(cells), busy, study))
            except Exception as error:
                outcomes.append(_failure(runner, error))
        if progress is not None:
            progress(len(cells) * problem.horizon * len(seeds))
        return outcomes


class _Block:
    """State of a block of cells between two rounds.

    Attributes:
        instance: The customers, in round `t` if any round was played.
        runners: The cells.
        delivery: Delayed responses; None without a delay.
        t: Rounds played.
        shared: Seconds spent for all agents.
    """

    def __init__(
        self, instance: Instance, runners: Sequence[_Runner], delivery: Delivery | None
    ) -> None:
        self.instance, self.runners, self.delivery = instance, runners, delivery
        self.t, self.shared = 0, 0.0
        self._earlier = 0.0, 0.0
        self._began = time.thread_time() - spent.processor, time.perf_counter() - spent.wall
        self._left_out: set[str] = set()

    @property
    def times(self) -> tuple[float, float]:
        """Processor and wall seconds without compilation, also those before a resumption."""
        # Reading the processor time in every round would cost 1 to 3% of a round.
        used = time.thread_time() - spent.processor - self._began[0]
        passed = time.perf_counter() - spent.wall - self._began[1]
        return used + self._earlier[0], passed + self._earlier[1]

    def saved(self) -> dict[str, Any] | None:
        """Return the state of the cells that can be saved; None if there are none."""
        customers = self.instance.saved()
        if customers is None:
            return None
        cells = {}
        for runner in self.runners:
            key = runner.cell.key
            if runner.failure is not None or key in self._left_out:
                continue
            try:
                cells[key] = runner.saved()
            except StateError as error:
                self._left_out.add(key)
                warn(f"{runner.cell.agent.title}: begins again if it is interrupted: {error}")
        if not cells:
            return None
        return {
            "round": self.t,
            "customers": customers,
            "delivery": None if self.delivery is None else self.delivery.saved(),
            "cells": cells,
            "shared": self.shared,
            "times": list(self.times),
        }

    @classmethod
    def resume(cls, problem: Problem, cells: Sequence[Cell], saved: Mapping[str, Any]) -> _Block:
        """Return the block that `saved` describes, with the given cells of it.

        Raises:
            DPBError: If the state does not fit the problem or an agent's plan.
        """
        instance = problem.instance(cells[0].seeds)
        instance.restore(saved["customers"])
        states = [saved["cells"][cell.key] for cell in cells]
        runners = []
        for number, (cell, own) in enumerate(zip(cells, states)):
            agent = restored(own["agent"].tobytes())
            assert isinstance(agent, Agent)
            runners.append(_Runner(cell, number, agent, instance, own))
        delivery = None
        if saved["delivery"] is not None:
            delivery = Delivery(problem, instance.seeds)
            delivery.restore(saved["delivery"], [own["number"] for own in states])
        made = cls(instance, runners, delivery)
        made.t, made.shared, made._earlier = saved["round"], saved["shared"], saved["times"]
        return made

    def replay(self, notify: Callback | None) -> None:
        """Call the callback with the checkpoints before a resumption."""
        for runner in self.runners if notify is not None else ():
            for at, t in enumerate(runner.cell.checkpoints):
                if t <= self.t and notify is not None:
                    runner.show(at, t, notify)


def _resumed(problem: Problem, cells: Sequence[Cell], states: JobState) -> _Block | None:
    """Return the saved block of these cells; None if there is none, or it cannot be read."""
    if not states.of(cells):
        return None
    try:
        return _Block.resume(problem, cells, states.saved)
    except Exception as error:  # also of an agent's `begin`
        warn(f"{states.name} cannot be continued, its job begins again: {error}")
        return None


def _isolated(spec: AgentSpec) -> IsolatedAgent:
    from dpb_gym.running.isolation import IsolatedAgent

    return IsolatedAgent(spec)


def _rounds(
    block: _Block,
    checkpoints: Sequence[int],
    progress: Callable[[int], None] | None,
    notify: Callback | None,
    stretches: bool,
    states: JobState | None,
) -> float:
    """Play all rounds with all cells that do not fail. Return the shared seconds."""
    instance = block.instance
    runners = block.runners
    delivery = block.delivery
    clock = time.perf_counter
    shared = block.shared
    t = block.t
    at = bisect_right(checkpoints, t)
    last_report = clock() - spent.wall
    pace = 1 << 62
    live = [runner for runner in runners if runner.failure is None]
    while live and t < instance.problem.horizon:
        start = began = clock() - spent.wall
        if t:
            instance.advance()
        # the first round is not timed, and delayed responses are delivered round by round
        most = min(pace, checkpoints[at] - t) if t and delivery is None else 1
        quick = set()
        if stretches and delivery is None:
            quick = {r.number for r in live if r.agent.stretches and plays_stretches(r.agent)}
        contexts: list[Context] = []
        if len(quick) == len(live):
            rounds = instance.move(most)
        else:
            rounds = instance.stretch(most) if quick else None
        if rounds is None or len(quick) < len(live):
            # agents of both kinds play the same rounds, as many as both forms can hold
            contexts = instance.coming(most if rounds is None else len(rounds.best))
            if rounds is not None and len(contexts) < len(rounds.best):
                rounds = instance.stretch(len(contexts), len(contexts) - 1)
        if delivery is not None:
            delivery.open(contexts[0])
        shared += clock() - spent.wall - start
        for runner in live:
            try:
                if rounds is not None and runner.number in quick:
                    runner.play_stretch(rounds)
                else:
                    runner.play(contexts, instance, delivery)
            except Exception as error:
                runner.failure = _failure(runner, error)
        if len(contexts) > 1:  # the last agent may have failed in an earlier one
            instance.show(-1)
        live = [runner for runner in live if runner.failure is None]
        start = clock() - spent.wall
        best: Array | None = None
        if live:  # computed once for all agents
            best = instance.best if rounds is None else rounds.best
        shared += clock() - spent.wall - start
        for runner in live:
            runner.judge(best)
        if t == 0:
            shared = 0.0
            for runner in live:
                runner.agent_seconds = runner.response_seconds = 0.0
        played = len(rounds.best) if rounds is not None else len(contexts)
        t += played
        if t == checkpoints[at]:
            for runner in live:
                runner.note(at, t, notify)
            at += 1
        if progress is not None and start - last_report > PROGRESS_SECONDS:
            last_report = start
            progress(t * instance.replicates * len(runners))
        if states is not None and t < instance.problem.horizon:
            pace = states.most(played, clock() - spent.wall - began)
            block.t, block.shared = t, shared
            states.save(block.saved)
    return shared


def _failure(runner: _Runner, error: Exception) -> Failure:
    cell = runner.cell
    t = runner.t
    text = str(error) or type(error).__name__
    at = None
    if isinstance(error, DPBError):
        at = error.replicate
        t = error.round or t
    seed = cell.seeds[0] if len(cell.seeds) == 1 else None
    if at is not None and at < len(cell.seeds):
        seed = cell.seeds[at]
        text = text.replace(f"replicate {at}", f"seed {seed}")
    if not isinstance(error, DPBError):
        text = f"{type(error).__name__}: {text}"
    where = f"replicates with seeds {cell.seeds[0]} to {cell.seeds[-1]}"
    if seed is not None:
        where = f"replicate with seed {seed}"
    when = "before the first round" if t == 0 else f"in round {t} ({runner.stage})"
    message = f"agent {cell.agent.title!r} failed {when}, {where}: {' '.join(text.split())}"
    details = "".join(traceback.format_exception(error))
    line = line_of(error, getattr(cell.agent.spec.maker, "__module__", None))
    return Failure(cell, runner.stage, t, seed, message + line, details)
