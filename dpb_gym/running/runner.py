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
from collections.abc import Callable, Sequence
from contextlib import ExitStack, closing
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from dpb_gym.agent import Agent, plays_stretches
from dpb_gym.errors import DPBError, ParameterError, line_of
from dpb_gym.kernel_cache import spent
from dpb_gym.problems.base import Array, Context, Instance, Problem
from dpb_gym.problems.delay import Delivery
from dpb_gym.problems.folded import FoldedStretch
from dpb_gym.problems.limited_stock import StockInstance
from dpb_gym.problems.stretch import JudgedStretch
from dpb_gym.registry import AgentSpec, check_supported
from dpb_gym.results.cell_result import CellResult, Failure, Study, Timing
from dpb_gym.running.callbacks import Callback, Checkpoint
from dpb_gym.suites.spec import Cell

if TYPE_CHECKING:
    from dpb_gym.running.isolation import IsolatedAgent

PROGRESS_SECONDS = 0.2


class _Runner:
    """State of one cell during a run; `failure` is set if it has failed."""

    def __init__(self, cell: Cell, number: int, agent: Agent, instance: Instance) -> None:
        self.cell, self.number, self.agent = cell, number, agent
        self.instance = instance.fork() if isinstance(instance, StockInstance) else instance
        self.failure: Failure | None = None
        shape = len(cell.checkpoints), len(cell.seeds)
        self.regret, self.reward = np.zeros((2, shape[1]))
        self.regrets, self.rewards = np.empty((2, *shape))
        self.agent_seconds = self.response_seconds = 0.0
        self.stage, self.t = "begin", 0
        run, info = cell.agent, instance.problem.info
        try:
            check_supported(run.spec, info, run.budget is not None)
            if run.spec.uses_oracle:
                agent.attach(self.instance)
            agent.set_up(info, run.spec.streams(instance.seeds, run.budget), run.budget)
            agent.curator.rounds.attended = True
        except Exception as error:
            self.failure = _failure(self, error)

    def play(
        self, contexts: Sequence[Context], shared: Instance, delivery: Delivery | None
    ) -> None:
        """Play the `coming` rounds of the shared instance; `judge` adds up their regret."""
        clock, agent, instance = time.perf_counter, self.agent, self.instance
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
            own, answered = clock() - t2 + t1 - t0, t2 - t1
            if spent.wall != compiled:  # compilation takes longer than a round
                extra, compiled = spent.wall - compiled, spent.wall
                rest = own + answered - extra
                own, answered = max(0.0, own - extra), max(0.0, min(answered, rest))
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
        self.regret = np.add.accumulate(np.vstack((self.regret, regrets)))[-1]
        self.reward = np.add.accumulate(np.vstack((self.reward, rewards)))[-1]

    def note(self, at: int, t: int, notify: Callback | None) -> None:
        """Record regret and reward of round t as checkpoint number `at`, and call the callback."""
        self.regrets[at], self.rewards[at] = self.regret, self.reward
        if notify is not None:
            guarantee = self.agent.curator.guarantee
            notify(Checkpoint.of(self.cell, t, self.regret, self.reward, guarantee))

    def result(
        self, shared: float, companions: int, busy: float, study: Study | None
    ) -> CellResult:
        """Return the numbers of the whole run and its guarantee.

        `busy` is the share of wall time during which the processor worked.
        """
        self.stage, problem = "end", self.instance.problem
        guarantee, info = self.agent.curator.guarantee, problem.info
        if guarantee is not None and info.rating_uses is not None and info.person_uses is not None:
            guarantee = replace(guarantee, uses=(info.rating_uses, info.person_uses))
        timed = (problem.horizon - 1) * len(self.cell.replicates)
        found = CellResult(
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
        return found if study is None else replace(found, recorded=study(self.agent, found))


def run_block(
    problem: Problem,
    cells: Sequence[Cell],
    progress: Callable[[int], None] | None = None,
    notify: Callback | None = None,
    study: Study | None = None,
    *,
    stretches: bool = True,
    isolate: bool = False,
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
    with ExitStack() as running:
        agents: list[Agent] = [
            running.enter_context(closing(_isolated(run.spec)))
            if isolate and run.budget is not None
            else run.spec.make()
            for run in (cell.agent for cell in cells)
        ]
        runners = [_Runner(c, i, a, instance) for i, (c, a) in enumerate(zip(cells, agents))]
        began = time.thread_time() - spent.processor, time.perf_counter() - spent.wall
        shared = _rounds(instance, runners, rounds, progress, notify, stretches)
        # Reading the processor time in every round would cost 1 to 3% of a round.
        used = time.thread_time() - spent.processor - began[0]
        passed = time.perf_counter() - spent.wall - began[1]
        busy = min(1.0, used / passed) if used and not isolate else 1.0
        found: list[CellResult | Failure] = []
        for runner in runners:
            try:
                found.append(runner.failure or runner.result(shared, len(cells), busy, study))
            except Exception as error:
                found.append(_failure(runner, error))
        if progress is not None:
            progress(len(cells) * problem.horizon * len(seeds))
        return found


def _isolated(spec: AgentSpec) -> IsolatedAgent:
    from dpb_gym.running.isolation import IsolatedAgent

    return IsolatedAgent(spec)


def _rounds(
    instance: Instance,
    runners: Sequence[_Runner],
    checkpoints: Sequence[int],
    progress: Callable[[int], None] | None,
    notify: Callback | None,
    stretches: bool,
) -> float:
    """Play all rounds with all cells that do not fail. Return the shared seconds."""
    clock, shared, t, at = time.perf_counter, 0.0, 0, 0
    last_report = clock() - spent.wall
    late = instance.problem.info.delay is not None
    delivery = Delivery(instance.problem, instance.seeds) if late else None
    live = [runner for runner in runners if runner.failure is None]
    while live and t < instance.problem.horizon:
        start = clock() - spent.wall
        if t:
            instance.advance()
        # the first round is not timed, and delayed responses are delivered round by round
        most = checkpoints[at] - t if t and delivery is None else 1
        quick = set()
        if stretches and delivery is None:
            quick = {r.number for r in live if r.agent.stretches and plays_stretches(r.agent)}
        contexts, rounds = [], instance.move(most) if len(quick) == len(live) else None
        if rounds is None:
            contexts = instance.coming(most)
            rounds = instance.stretch(len(contexts), len(contexts) - 1) if quick else None
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
        t += len(rounds.best) if rounds is not None else len(contexts)
        if t == checkpoints[at]:
            for runner in live:
                runner.note(at, t, notify)
            at += 1
        if progress is not None and start - last_report > PROGRESS_SECONDS:
            last_report = start
            progress(t * instance.replicates * len(runners))
    return shared


def _failure(runner: _Runner, error: Exception) -> Failure:
    cell, t, text = runner.cell, runner.t, str(error) or type(error).__name__
    at = None
    if isinstance(error, DPBError):
        at, t = error.replicate, error.round or t
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
