"""Test of non-interference: with the releases held fixed, records change nothing else.

This is the premise of the billboard lemma. A first run records every output of the agent's
releasers. In further runs the customers of some rounds are exchanged while the releasers return
the recorded outputs. The agent's random numbers are the same, the noise and its seeds are others,
so that an agent which knows them subtracts the wrong noise. Then nothing may change bit for bit: no
action or probability, no time or argument of a release, no record of another round, and not the
text of the guarantee. So a record enters in its own round, and no record enters twice.

Each run is played by one replicate in a process of its own, so that it finds no data of another.
"""

from __future__ import annotations

import copy
import gc
import hashlib
import multiprocessing
import pickle
from abc import ABC, abstractmethod
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from functools import partial
from itertools import combinations
from types import MethodType
from typing import Any, NamedTuple

import numpy as np

from dpb_gym.agent import Agent
from dpb_gym.audits.paired_run import releasers
from dpb_gym.audits.worlds import bought, response_range
from dpb_gym.errors import AgentError
from dpb_gym.privacy.releasers.releaser import Releaser
from dpb_gym.problems.base import Array, Context, Feedback, Problem
from dpb_gym.problems.delay import Delivery
from dpb_gym.streams import AgentStreams
from dpb_gym.suites.spec import AgentRun

CODE_BITS = 8
"""Worlds in which half of the records change. Two rounds with different words of four ones each
are separated by a world that changes only the first."""
_WORDS = np.array([np.isin(np.arange(CODE_BITS), c) for c in combinations(range(CODE_BITS), 4)])
_waiting: list[Callable[[], Any]] = []  # a forked process inherits what it is to do
OUTPUTS = ("release", "forget", "send")
RECORDS = ("add", "add_rounds")


class _Changes(NamedTuple):
    """Customers that differ from those of the first run, and how.

    Attributes:
        how: Kind of response: ``"opposite"``, ``"lowest"``, ``"highest"`` or ``"random"``.
        bit: Rounds whose code word has this bit change; None changes all rounds.
    """

    how: str
    bit: int | None = None

    def __str__(self) -> str:
        return f"{'all' if self.bit is None else 'some'} responses {self.how}"


class _Transcript(NamedTuple):
    """Decisions and calls of releasers in one run."""

    decisions: list[bytes]
    calls: list[tuple[Any, bytes, Any]]


class _Found(Exception):
    """What differs from the first run."""


CHANGES = (
    *(_Changes(how) for how in ("opposite", "lowest", "highest")),
    *(_Changes(("opposite", "random")[bit % 2], bit) for bit in range(CODE_BITS)),
)


def interferes(
    run: AgentRun, problem: Problem, seed: int, say: Callable[[str], None] | None = None
) -> str | None:
    """Return the first effect of records that are not released, None if there is none.

    Args:
        run: The agent and its budget.
        problem: The problem; its horizon is played to the end.
        seed: Seed of customers and agent.
        say: Called before every run with a description.
    """
    first: _Transcript | None = None
    gc.collect()  # releasers of earlier runs
    for number, changes in enumerate((None, *CHANGES), start=1):
        if say is not None:
            what = "first run" if changes is None else str(changes)
            say(f"raw data: run {number} of {1 + len(CHANGES)} ({what})")
        found = _apart(partial(_play, run, problem, seed, changes, first))
        if isinstance(found, str):
            return f"{found}, {changes}"
        first = first or found
    return None


def _apart(work: Callable[[], Any]) -> Any:
    """Return the result of a function that runs in a process of its own, where forks exist."""
    if "fork" not in multiprocessing.get_all_start_methods():
        return work()
    _waiting.append(work)
    try:
        with ProcessPoolExecutor(1, multiprocessing.get_context("fork")) as pool:
            return pool.submit(_work).result()
    except BrokenProcessPool:
        raise AgentError("the agent ended the process of its audit") from None
    finally:
        _waiting.pop()


def _work() -> Any:
    return _waiting[-1]()


def _play(
    run: AgentRun, problem: Problem, seed: int, changes: _Changes | None, first: _Transcript | None
) -> _Transcript | str:
    """Return the transcript of a run, or how it differs from the first one."""
    agent = run.spec.make()
    streams = AgentStreams([seed], run.spec.name)
    if first is not None:
        other = AgentStreams([seed + 1], run.spec.name)
        streams.seeds, streams.noise = other.seeds, other.noise
    agent.set_up(problem.info, streams, run.budget)
    boundary = _Boundary(first)
    for number, releaser in enumerate(releasers(agent)):
        boundary.hold(releaser, number)
    try:
        _rounds(agent, problem, seed, changes, boundary)
        boundary.decide(repr(agent.curator.guarantee), "guarantee")
        boundary.end()
    except (_Found, AgentError) as error:  # a copy of a `SingleAgent` reports errors as its own
        found = error if isinstance(error, _Found) else error.__cause__
        if not isinstance(found, _Found):
            raise
        return f"{found} of round {boundary.round}"
    return boundary.transcript


def _rounds(
    agent: Agent, problem: Problem, seed: int, changes: _Changes | None, boundary: _Boundary
) -> None:
    unit, notion = agent.curator.unit, agent.curator.notion
    contexts_change = unit in ("user-round", "user")
    rng = np.random.default_rng([seed, 1])
    words = _WORDS[rng.integers(len(_WORDS), size=problem.horizon + 1)]
    instance, another = problem.instance([seed]), problem.instance([seed + 1])
    delivery = Delivery(problem, [seed])
    changed = np.zeros(problem.horizon + 1, bool)
    for t in range(1, problem.horizon + 1):
        boundary.round = t
        context = told = met = instance.context()
        if changes is not None:
            users = context.users if unit in ("user", "user-rewards") else None
            key = t if users is None else int(users[0]) % len(words)
            changed[t] = True if changes.bit is None else words[key, changes.bit]
        if changes is not None and contexts_change and changed[t]:
            told = context._replace(features=another.context().features)
            context = told if changes.bit is not None else context
        boundary.changed = bool(changed[t])
        decision = agent.probabilities(context), np.asarray(action := agent.act(context))
        # a customer who is exchanged may see other actions, unless the claim is central
        other = context is not met and notion != "central"
        boundary.decide(None if other else decision)
        delivery.open(told)
        feedback = instance.respond(action).feedback
        if changes is not None and changed[t]:
            feedback = _other(feedback, problem, told, action, changes.how, rng)
            if contexts_change and feedback.observed is not None:
                feedback = feedback._replace(observed=~feedback.observed)
        action = instance.problem.played(action, instance.replicates)
        delivered = delivery.deliver(action, feedback)
        origin = t if delivery.arrivals is None else int(delivery.arrivals.origin[0])
        boundary.changed = bool(changed[origin])
        agent.observe(*delivered)
        if t < problem.horizon:
            instance.advance()
            another.advance()


class Interception(ABC):
    """Takes the calls of the methods of releasers that take records or return releases."""

    _inside = False

    @abstractmethod
    def called(self, key: Any, method: Callable[..., Any], args: Any, options: Any) -> Any:
        """Return the output of a call from outside of the releasers.

        Args:
            key: Number of the releaser and name of the method.
            method: The method.
            args: Its arguments.
            options: Its keyword arguments.
        """

    def hold(self, releaser: Releaser, number: int) -> None:
        """Take the calls of a releaser, but not those of its copies."""
        kind = type(releaser)
        for name in (*RECORDS, *OUTPUTS):
            if hasattr(releaser, name):
                setattr(releaser, name, self._taking((number, name), releaser))
        if hasattr(kind, "value"):
            value = kind.value.fget
            read = self._taken((number, "value"), lambda: value(releaser))
            members = {
                "value": property(lambda _: read()),
                "__reduce_ex__": lambda it, _: (object.__new__, (kind,), vars(it)),
            }
            releaser.__class__ = type(kind.__name__, (kind,), members)

    def _taking(self, key: tuple[int, str], releaser: Releaser) -> MethodType:
        name = key[1]
        taken, usual = self._taken(key, getattr(releaser, name)), getattr(type(releaser), name)

        def call(it: Releaser, *args: Any, **options: Any) -> Any:
            return taken(*args, **options) if it is releaser else usual(it, *args, **options)

        call.__name__ = name
        return MethodType(call, releaser)  # copies of the releaser get methods of their own

    def _taken(self, key: tuple[int, str], method: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **options: Any) -> Any:
            if self._inside:  # the releaser itself calls
                return method(*args, **options)
            self._inside = True
            try:
                return self.called(key, method, args, options)
            finally:
                self._inside = False

        return call


class _Boundary(Interception):
    """Records the outputs of releasers in a first run, and returns them in the others.

    Args:
        first: Transcript of the first run, None in the first run.
    """

    def __init__(self, first: _Transcript | None) -> None:
        self.first, self.transcript = first, _Transcript([], [])
        self.round, self.changed = 0, False

    def called(self, key: Any, method: Callable[..., Any], args: Any, options: Any) -> Any:
        given = _digest((args, options))
        output = method(*args, **options)
        return self._call(key, given, None if key[1] in RECORDS else output)

    def _call(self, key: tuple[int, str], given: bytes, output: Any) -> Any:
        calls = self.transcript.calls
        calls.append((key, given, copy.deepcopy(output) if self.first is None else None))
        if self.first is None:
            return output
        if len(calls) > len(self.first.calls) or self.first.calls[len(calls) - 1][0] != key:
            raise _Found("records reach the plan of the releases")
        _, expected, released = self.first.calls[len(calls) - 1]
        if given != expected:
            if key[1] not in (*RECORDS, "send"):
                raise _Found("records reach the arguments of a release")
            if not self.changed:
                raise _Found("records of other rounds reach the record")
        return copy.deepcopy(released)

    def decide(self, decision: Any, what: str = "action") -> None:
        """Record action and probabilities; None where the changed customer may see others."""
        decisions = self.transcript.decisions
        decisions.append(_digest(decision))
        if self.first is None or decision is None:
            return
        if self.first.decisions[len(decisions) - 1] != decisions[-1]:
            raise _Found(f"records reach the {what}")

    def end(self) -> None:
        """Check that every release of the first run was asked for."""
        if self.first is not None and len(self.transcript.calls) < len(self.first.calls):
            raise _Found("records reach the plan of the releases")


def _digest(value: Any) -> bytes:
    return hashlib.blake2b(pickle.dumps(value), digest_size=16).digest()


def _other(
    feedback: Feedback,
    problem: Problem,
    context: Context,
    action: Array,
    how: str,
    rng: np.random.Generator,
) -> Feedback:
    """Return another response that is possible for the action."""
    shown, choice = np.asarray(action), feedback.choice
    low, high = response_range(problem.info)
    numbers = feedback.reward if feedback.demand is None else feedback.demand
    if choice is not None:
        low, high, numbers = -1, (shown >= 0).sum(axis=1) - 1, choice
    changed = {
        "opposite": low + high - numbers,
        "lowest": low + 0 * numbers,
        "highest": high + 0 * numbers,
        "random": low + rng.random(numbers.shape) * (high - low),
    }[how]
    if choice is not None:
        other = bought(context, shown, np.rint(changed).astype(choice.dtype))
        return feedback._replace(reward=other.reward, choice=other.choice)
    if feedback.demand is None:
        return feedback._replace(reward=changed)
    return feedback._replace(reward=shown * changed, demand=changed)
