"""Check of a private agent before its results are shown with a guarantee, in about a second.

The exact replay of `dpb_gym.audits.interference` on a few rounds, and two mistakes that need no
private data: a releaser that takes no records or whose releases are not read, and a declared range
of numbers that is smaller than the problem's. It is no audit: noise and sensitivity are not tested.
"""

from __future__ import annotations

import copy
import hashlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

import numpy as np

from dpb_gym.agent import Agent
from dpb_gym.audits.interference import OUTPUTS, RECORDS, Interception, interferes
from dpb_gym.audits.paired_run import releasers
from dpb_gym.envs.registration import environment
from dpb_gym.errors import AgentError, BudgetError, DPBError
from dpb_gym.privacy.releasers.record_bounds import Segment
from dpb_gym.privacy.releasers.releaser import Releaser
from dpb_gym.problems.base import Problem
from dpb_gym.problems.delay import Delivery
from dpb_gym.streams import AgentStreams
from dpb_gym.suites.spec import AgentRun, Task

ROUNDS = 200
"""Rounds of the replay."""
LEAST_ROUNDS = 2_000
MOST_ROUNDS = 10_000
"""A releaser counts as unused after the rounds of the task, within these limits."""
READINGS = (*OUTPUTS, "value")
SLACK = 1e-9
READS_RAW = (
    "it reads raw data: {influence}. Its releases are private, its actions are not. Raw responses "
    "and protected contexts go into releasers of self.curator only, and the policy reads what "
    "these release (docs/add-an-agent.md). Run it without a budget to use raw data"
)
FAILS = "it fails with other responses that customers of this problem can give:"
TOO_FAR = (
    "its records are further apart than its guarantee allows: {influence}. Declare the largest "
    "record that a round can have, or no sensitivity of your own"
)
NOT_REPRODUCIBLE = (
    "it is not reproducible: two runs with one seed differ in round {t}, so that a replay of its "
    "releases shows nothing. Draw random numbers from self.rng or the streams of begin only"
)
UNUSED = (
    "{unused} in {rounds} rounds, but the budget is charged for it. Add the responses of every "
    "round and decide by what is released, or make no such releaser"
)
CUT = (
    "{what}: declared for numbers in {given}, but rewards are in {own}, and {value} would be cut. "
    "Declare reward=self.problem.reward_range, or clip the number before you add it if you cut on "
    "purpose"
)


def check_agent(
    run: AgentRun,
    task: Task,
    problem: Problem | None = None,
    seed: int = 0,
    say: Callable[[str], None] | None = None,
) -> None:
    """Raise an error if a private agent reads raw data or does not use its releasers.

    The agent plays `ROUNDS` rounds of the task, or all if it has fewer, then again with other
    responses and the recorded releases (see `interferes`). A releaser that is not used in these
    rounds gets as many rounds as the task has, at least `LEAST_ROUNDS`. Tasks of more than
    `MOST_ROUNDS` rounds are not checked for unused releasers. Limited stock is left out, because
    what is sold out follows from responses. An agent that fails while it is checked is not
    reported: the run does so.

    Args:
        run: The agent and its budget.
        task: What it plays.
        problem: The task's problem, if it exists already.
        seed: Seed of customers and agent.
        say: Called with a line of progress.

    Raises:
        AgentError: If records reach an action, an argument or the time of a release otherwise
            than by a release, or are too far apart; if two equal runs differ; or if a releaser is
            not used.
        BudgetError: If a declared range cuts numbers that the problem has.
    """
    say = say or (lambda line: None)
    rounds = min(ROUNDS, task.horizon)
    say(f"{run.title}: {rounds} rounds")
    played = _played(run, shortened(task, problem, rounds), seed)
    if played is None:
        return
    first, short = played
    first.raise_cut()
    try:
        influence = interferes(run, short, seed, lambda line: say(f"{run.title}: {line}"))
    except Exception as error:
        raise AgentError(f"{FAILS} {type(error).__name__}: {error}") from error
    if influence is not None:
        again = _played(run, iter([short]), seed)
        pairs = zip(first.decisions, [] if again is None else again[0].decisions)
        differing = [t for t, (one, other) in enumerate(pairs, 1) if one != other]
        if differing:
            raise AgentError(NOT_REPRODUCIBLE.format(t=differing[0]))
        raise AgentError((TOO_FAR if influence.far else READS_RAW).format(influence=influence))
    rounds = max(LEAST_ROUNDS, task.horizon)
    if not first.unused or rounds > MOST_ROUNDS:
        return
    say(f"{run.title}: {rounds} rounds, in which every releaser should be used")
    longer = _played(run, shortened(task, problem, rounds), seed)
    if longer is not None and (unused := longer[0].unused):
        raise AgentError(UNUSED.format(unused=unused[0], rounds=rounds))


def _played(run: AgentRun, problems: Iterator[Problem], seed: int) -> tuple[_Use, Problem] | None:
    """Return a run on the first problem on which the agent does not fail, None if there is none."""
    for problem in problems:
        with suppress(_AgentFails):
            return _Use(run, problem, seed), problem
    return None


class _AgentFails(Exception):
    """The agent, not the check, raised an exception."""


@contextmanager
def _code_of_agent() -> Iterator[None]:
    try:
        yield
    except Exception as error:
        raise _AgentFails from error


def shortened(task: Task, problem: Problem | None, rounds: int) -> Iterator[Problem]:
    """Yield the task's problem with so many rounds, and its own with the last rounds left out.

    The first exercises more of an agent whose phases are shares of the horizon. The second is for
    problems and agents that do not work with so few rounds.
    """
    kwargs = {name: value for name, value in task.env_kwargs.items() if name != "stock"}
    known = environment(task.env)
    with suppress(DPBError):
        yield known.make_problem(**kwargs, horizon=rounds)
    if rounds >= task.horizon:
        return
    if problem is None or problem.info.stock is not None:
        problem = known.make_problem(**kwargs, horizon=task.horizon)
    short = copy.copy(problem)
    short.horizon = rounds
    yield short


class _Use(Interception):
    """A run of one replicate, and what it used of its releasers.

    Args:
        run: The agent and its budget.
        problem: The problem; its horizon is played to the end.
        seed: Seed of customers and agent.

    Attributes:
        decisions: Digest of the action of every round.
    """

    def __init__(self, run: AgentRun, problem: Problem, seed: int) -> None:
        self.decisions: list[bytes] = []
        self._used: set[tuple[int, str]] = set()
        self._cut = ""
        with _code_of_agent():
            agent = run.spec.make()
            agent.set_up(problem.info, AgentStreams([seed], run.spec.name), run.budget)
        self._releasers = releasers(agent)
        for number, releaser in enumerate(self._releasers):
            self.hold(releaser, number)
        self._range = problem.info.reward_range
        self._play(agent, problem, seed)

    def _play(self, agent: Agent, problem: Problem, seed: int) -> None:
        instance = problem.instance([seed])
        delivery = Delivery(problem, [seed])
        for t in range(1, problem.horizon + 1):
            context = instance.context()
            with _code_of_agent():
                action = np.array(agent.act(context))
                feedback = instance.respond(action).feedback
            written = f"{action.dtype}{action.shape}".encode() + action.tobytes()
            self.decisions.append(hashlib.blake2b(written).digest())
            delivery.open(context)
            delivered = delivery.deliver(action, feedback)
            with _code_of_agent(), agent.curator.round(t):
                agent.observe(*delivered)
            if t < problem.horizon:
                instance.advance()

    def called(self, key: Any, method: Callable[..., Any], args: Any, options: Any) -> Any:
        """Note the call, and the first number that a declared range cuts."""
        self._used.add(key)
        number, name = key
        if name in RECORDS and (args or options) and not self._cut:
            numbers = args[0] if args else next(iter(options.values()))
            self._cut = self._cut_by(self._releasers[number], numbers)
        return method(*args, **options)

    def _cut_by(self, releaser: Releaser, numbers: Any) -> str:
        """Return how the range of a releaser cuts numbers that the problem has, or ""."""
        clip = getattr(releaser, "clip", None)
        if not isinstance(clip, Segment):
            return ""
        low, high = self._range
        # another range may be one of other numbers, such as residuals
        inside = np.isfinite([low, high]).all() and low <= clip.low and clip.high <= high
        values = np.asarray(numbers, np.float64)
        values = values[(low <= values) & (values <= high)]
        cut = values[(values < clip.low - SLACK) | (values > clip.high + SLACK)]
        if not (inside and cut.size):
            return ""
        given = f"({clip.low:g}, {clip.high:g})"
        own = f"({low:g}, {high:g})"
        return CUT.format(what=releaser.what, given=given, own=own, value=f"{cut.flat[0]:.4g}")

    def raise_cut(self) -> None:
        """Raise BudgetError if a declared range cuts numbers that the problem has."""
        if self._cut:
            raise BudgetError(self._cut)

    @property
    def unused(self) -> list[str]:
        """Releasers that took no record, or whose releases were not read."""
        return [
            f"the releaser {releaser.what!r} {lacks}"
            for number, releaser in enumerate(self._releasers)
            for lacks, names in (("takes no record", RECORDS), ("is never read", READINGS))
            if any(hasattr(type(releaser), name) for name in names)  # without a reading
            and not any((number, name) in self._used for name in names)
        ]
