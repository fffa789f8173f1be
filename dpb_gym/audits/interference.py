"""Test of non-interference: with the releases held fixed, records change nothing else.

This is the premise of the billboard lemma. A first run records every output of the agent's
releasers. In further runs the customers of some rounds are exchanged while the releasers return
the recorded outputs. The agent's random numbers are the same, the noise and its seeds are others,
so that an agent which knows them subtracts the wrong noise. Then nothing may change bit for bit: no
action or probability, no time or argument of a release, no attribute of a releaser that a handle
shows or that the agent sets, no record of another round, and not the text of the guarantee. So a
record enters in its own round, and no record enters twice.

Each run has `LANES` replicates. Customers are exchanged in one of them, so nothing at
all may change in the others. A protected context is exchanged with all of its parts.

The records of the two worlds are also compared in every round: what enters a sum in a round may
move by the sensitivity that is charged, and no further.

Each run is played in a process of its own, so that it finds no data of another.
"""

from __future__ import annotations

import contextlib
import copy
import functools
import gc
import hashlib
import math
import multiprocessing
import os
import sys
from abc import ABC, ABCMeta, abstractmethod
from collections import deque
from collections.abc import Callable, Generator, Iterable
from itertools import combinations
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from operator import attrgetter
from types import FunctionType, MethodType
from typing import Any, NamedTuple

import numpy as np

from dpb_gym import state
from dpb_gym.agent import Agent
from dpb_gym.audits.worlds import bought, response_range
from dpb_gym.errors import AgentError, StateError
from dpb_gym.privacy.releasers.minimiser import Minimiser
from dpb_gym.privacy.releasers.record_bounds import Ball, PSDBall, RecordShape, Segment
from dpb_gym.privacy.releasers.releaser import PUBLIC, Releaser, behind
from dpb_gym.privacy.releasers.sums import Sum
from dpb_gym.problems.base import Array, Context, Feedback, Instance, Problem, Round
from dpb_gym.problems.delay import Delivery
from dpb_gym.streams import AgentStreams
from dpb_gym.suites.spec import AgentRun

CODE_BITS = 8
"""Worlds in which half of the records change. Two rounds with different words of four ones each
are separated by a world that changes only the first."""
_WORDS = np.array([np.isin(np.arange(CODE_BITS), c) for c in combinations(range(CODE_BITS), 4)])
OUTPUTS = ("release", "forget", "send")
RECORDS = ("add", "add_rounds")
MESSAGES = ("send", "send_rounds", "message")
"""Methods that take a record and return what is released of it."""
LANES = 2
"""Replicates of a run; the customers of one of them are exchanged."""
ENTERING = (*RECORDS, *MESSAGES)
REPLAYED = (*OUTPUTS, *MESSAGES, "value")
DERIVED = ("curator", "noise_std", "noise_std_max", "variances")
SHOWN = tuple(name for name in PUBLIC if name not in DERIVED)
"""Attributes of releasers that are compared: what a handle shows, but for derived numbers."""
PLAIN = frozenset(
    {int, float, bool, str, type(None), type, ABCMeta, RecordShape, Ball, PSDBall, Segment}
)
"""Types of settings that are compared as they are, because they cannot be changed in place."""
ATOMS = frozenset({int, float, bool, str, type(None)})
"""Types of values that are compared by their text."""
MOST_PARTS = 100_000
"""Parts of a value above which it is written by `state`."""
DIGEST = 64
"""Bytes of a digest."""
WRITES = "set "
STEPS = (0.5, 0.25, 0.75, 0.125, 0.375, 0.625, 0.875)
"""Differences of a customer's random number, with which a response of any kind may change."""
SLACK = 1e-6


class _Changes(NamedTuple):
    """Customers that differ from those of the first run, and how.

    Attributes:
        how: Kind of response: ``"opposite"``, ``"lowest"``, ``"highest"`` or ``"random"``.
        bit: Rounds whose code word has this bit change; None changes all rounds.
        lane: Number of the replicate whose customers are exchanged.
    """

    how: str
    bit: int | None = None
    lane: int = 0

    def __str__(self) -> str:
        where = " of the second replicate" if self.lane else ""
        return f"{'all' if self.bit is None else 'some'} responses{where} {self.how}"


class _Call(NamedTuple):
    """A call of a releaser.

    Attributes:
        key: Number of the releaser and name of the method.
        given: Digest of the arguments of each replicate.
        shown: What a handle shows of the releaser; see `_Boundary._settings`.
        output: What it returned, in the first run.
    """

    key: tuple[int, str]
    given: tuple[bytes, ...]
    shown: Any
    output: Any


class _Transcript(NamedTuple):
    """Decisions, calls of releasers, and the sums of each round's records, in one run."""

    decisions: list[tuple[bytes | None, ...]]
    calls: list[_Call]
    entered: list[dict[tuple[int, int], Array]]


class Influence(NamedTuple):
    """An effect of records that are not released, or are further apart than is charged.

    Attributes:
        text: What they reach, where, and which customers were exchanged.
        far: Whether they enter releasers only, but are too far apart.
    """

    text: str
    far: bool = False

    def __str__(self) -> str:
        return self.text


class _Found(Exception):
    """What differs from the first run."""

    def __init__(self, text: str, far: bool = False) -> None:
        super().__init__(text)
        self.far = far


CHANGES = (
    _Changes("opposite"),
    _Changes("opposite", lane=1),
    _Changes("lowest", lane=1),
    _Changes("highest"),
    *(_Changes(("opposite", "random")[bit % 2], bit) for bit in range(CODE_BITS)),
)


def interferes(
    run: AgentRun, problem: Problem, seed: int, say: Callable[[str], None] | None = None
) -> Influence | None:
    """Return the first effect of records that are not released, None if there is none.

    Args:
        run: The agent and its budget.
        problem: The problem; its horizon is played to the end.
        seed: Seed of customers and agent.
        say: Called before every run with a description.
    """
    gc.collect()  # releasers of earlier runs
    worlds = (None, *CHANGES)

    def started(number: int, first: _Transcript | None) -> Callable[[], Any]:
        changes = worlds[number]
        if say is not None:
            what = "first run" if changes is None else str(changes)
            say(f"raw data: run {number + 1} of {len(worlds)} ({what})")
        return functools.partial(_play, run, problem, seed, changes, first)

    (first,) = _apart([started(0, None)])
    if isinstance(first, Influence):
        return first
    rest = range(1, len(worlds))
    effects = _apart(started(number, first) for number in rest)
    with contextlib.closing(effects):
        for number, effect in zip(rest, effects):
            if isinstance(effect, Influence):
                return effect._replace(text=f"{effect}, {worlds[number]}")
    return None


def _apart(works: Iterable[Callable[[], Any]]) -> Generator[Any, None, None]:
    """Yield the results of functions that run in processes of their own, where forks exist.

    As many run side by side as there are cores; each is taken from `works` when it starts.
    """
    if "fork" not in multiprocessing.get_all_start_methods():
        yield from (work() for work in works)
        return
    context = multiprocessing.get_context("fork")
    most = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    running: deque[tuple[BaseProcess, Connection]] = deque()
    process: BaseProcess
    try:
        for work in works:
            ours, theirs = context.Pipe(duplex=False)
            process = context.Process(target=_send_result, args=(work, theirs))
            process.start()
            theirs.close()
            running.append((process, ours))
            if len(running) >= (most or 1):
                yield _result(*running.popleft())
        while running:
            yield _result(*running.popleft())
    finally:
        for process, ours in running:
            ours.close()
            process.terminate()
            process.join()


def _send_result(work: Callable[[], Any], link: Connection) -> None:
    gc.freeze()  # a collection would visit, and copy, all objects of the parent
    try:
        link.send((work(), None))
    except Exception as error:
        try:
            link.send((None, error))
        except Exception:  # it cannot be pickled
            link.send((None, AgentError(f"{type(error).__name__}: {error}")))


def _result(process: BaseProcess, link: Connection) -> Any:
    """Return the result that a process sends, or raise its exception."""
    try:
        value, error = link.recv()
    except EOFError:
        raise AgentError("the agent ended the process of its audit") from None
    finally:
        link.close()
        process.join()
    if error is not None:
        raise error
    return value


def _play(
    run: AgentRun, problem: Problem, seed: int, changes: _Changes | None, first: _Transcript | None
) -> _Transcript | Influence | None:
    """Return the transcript of the first run; of others how they differ from it, or None."""
    agent = run.spec.make()
    streams = AgentStreams(_seeds(seed), run.spec.name)
    if first is not None:
        other = AgentStreams(_seeds(seed + 1), run.spec.name)
        streams.seeds, streams.noise = other.seeds, other.noise
    agent.set_up(problem.info, streams, run.budget)
    agent.curator.rounds.attend()
    boundary = _Boundary(first)
    boundary.lane = 0 if changes is None else changes.lane
    curator = agent.curator
    number = 0
    for lane, one in [(None, curator), *curator.parts.items()]:
        for handle in one.releasers:
            boundary.lanes[number] = lane
            boundary.hold(behind(handle), number)
            number += 1
    try:
        _rounds(agent, problem, seed, changes, boundary)
        boundary.decide([repr(agent.curator.guarantee)], "guarantee")
        boundary.end()
    except (_Found, AgentError) as error:  # a copy of a `SingleAgent` reports errors as its own
        cause = error if isinstance(error, _Found) else error.__cause__
        if not isinstance(cause, _Found):
            raise
        return Influence(f"{cause} of round {boundary.round}", cause.far)
    return boundary.transcript if first is None else None


def _seeds(seed: int) -> list[int]:
    """Return the seeds of the replicates; those of `seed` and of `seed + 1` are disjoint."""
    return [seed + 2 * lane for lane in range(LANES)]


def _rounds(
    agent: Agent, problem: Problem, seed: int, changes: _Changes | None, boundary: _Boundary
) -> None:
    unit = agent.curator.unit
    notion = agent.curator.notion
    contexts_change = unit in ("user-round", "user")
    public = ("users",) if unit == "user" else ()
    rng = np.random.default_rng([seed, 1])
    words = _WORDS[rng.integers(len(_WORDS), size=problem.horizon + 1)]
    shift = problem.horizon + 1 + (CHANGES.index(changes) if changes is not None else 0)
    lane = 0 if changes is None else changes.lane
    customers = _Customers(problem, seed, public, shift, lane)
    delivery = Delivery(problem, _seeds(seed))
    changed = np.zeros(problem.horizon + 1, bool)
    for t in range(1, problem.horizon + 1):
        boundary.round = t
        context = told = met = customers.instance.context()
        if changes is not None:
            users = context.users if unit in ("user", "user-rewards") else None
            key = t if users is None else int(users[lane]) % len(words)
            changed[t] = True if changes.bit is None else words[key, changes.bit]
        if changed[t] and contexts_change:
            assert changes is not None
            told = customers.exchanged_context()
            context = told if changes.bit is not None else context
        boundary.exchanged = lane if changed[t] else None
        shares = agent.probabilities(context)
        action = np.asarray(agent.act(context))
        problem.check_action(action, LANES)
        # a customer who is exchanged may see other actions, unless the claim is central
        other = context is not met and notion != "central"
        decisions: list[Any] = [
            None if other and i == lane else _decision(action, shares, i) for i in range(LANES)
        ]
        boundary.decide(decisions)
        delivery.open(told)
        feedback = customers.respond(action, context is not met)
        if changed[t]:
            assert changes is not None
            own_kind = feedback.choice is not None and told.revenues is None
            if feedback.answer is not None or own_kind:  # of another package, which has no range
                changed_one = customers.other_feedback(action, feedback)
            else:
                changed_one = _other(feedback, problem, told, action, changes.how, rng)
            if contexts_change and feedback.observed is not None:
                changed_one = changed_one._replace(observed=~feedback.observed)
            feedback = with_lane_of(lane, changed_one, feedback)
        action = problem.played(action, LANES)
        delivered = delivery.deliver(action, feedback)
        origin = t if delivery.arrivals is None else int(delivery.arrivals.origin[lane])
        boundary.exchanged = lane if changed[origin] else None
        with agent.curator.round(t):
            agent.observe(*delivered)
        boundary.close_round()
        if t < problem.horizon:
            customers.advance()


def _decision(action: Array, shares: Array | None, lane: int) -> Any:
    """Return the action of a replicate, with its probabilities if the agent states them."""
    own = action[lane : lane + 1]  # an array, also of one number
    return own if shares is None else (own, shares[lane])


class _Customers:
    """The customers of a run, and others for whom those of one replicate are exchanged.

    Args:
        problem: The problem.
        seed: Seed of the customers.
        public: Parts of a context that are not exchanged.
        shift: Difference of user ids, as the same numbers come in every instance.
        lane: Number of the replicate whose customers are exchanged.
    """

    def __init__(
        self,
        problem: Problem,
        seed: int,
        public: tuple[str, ...] = (),
        shift: int = 0,
        lane: int = 0,
    ) -> None:
        self.problem, self.public, self.shift, self.lane = problem, public, shift, lane
        self.instance = problem.instance(_seeds(seed))
        self._another = problem.instance(_seeds(seed + 1))
        self._behind = 0
        # an adapted environment has no rounds
        self._known = type(self.instance).answer is Instance.answer
        hidden = self.instance.hidden
        others = self._another.hidden
        self._hidden = {name: with_lane_of(lane, others[name], hidden[name]) for name in hidden}

    def advance(self) -> None:
        """Move to the next round."""
        self.instance.advance()
        self._behind += 1

    @property
    def another(self) -> Instance:
        """The other customers, who move when they are asked for: claims per reward need none."""
        while self._behind:
            self._another.advance()
            self._behind -= 1
        return self._another

    def exchanged_context(self) -> Context:
        """Return the context with another customer in one replicate."""
        own = self.instance.context()
        other = self.another.context()
        if other.users is not None:
            other = other._replace(users=np.where(other.users < 0, -1, other.users + self.shift))
        mixed: Context = with_lane_of(self.lane, other, own)
        return mixed._replace(**{name: getattr(own, name) for name in self.public})

    def respond(self, action: Array, exchanged: bool) -> Feedback:
        """Return the responses to the actions of these customers or of the exchanged ones."""
        if exchanged and self._known:
            return self._respond(action, self._exchanged_round())
        return self.instance.answer(action)[0]

    def other_feedback(self, action: Array, feedback: Feedback) -> Feedback:
        """Return feedback of another customer to the same actions, different if there is any."""
        other = self.another.answer(action)[0]
        for step in STEPS if self._known else ():
            if _differ(other, feedback, self.lane):
                break
            round_ = self.another.round()
            moved = round_._replace(uniform=(round_.uniform + step) % 1.0)
            checked = self.problem.check_action(action, LANES)
            other = self.problem.respond(self.another.hidden, moved, checked)[0]
        return other

    def _exchanged_round(self) -> Round:
        own = self.instance.round()
        other = self.another.round()
        lane = self.lane
        secrets = own.secret.items()
        secret = {name: with_lane_of(lane, other.secret[name], mine) for name, mine in secrets}
        uniform = with_lane_of(lane, other.uniform, own.uniform)
        return Round(self.exchanged_context(), uniform, secret)

    def _respond(self, action: Array, round_: Round) -> Feedback:
        checked = self.problem.check_action(action, LANES)
        return self.problem.respond(self._hidden, round_, checked)[0]


def _differ(one: Feedback, other: Feedback, lane: int) -> bool:
    """Return whether the feedback of a replicate differs."""
    pairs: Any = zip(one, other)
    return any(a is not None and not np.array_equal(a[lane], b[lane]) for a, b in pairs)


def with_lane_of(lane: int, other: Any, own: Any) -> Any:
    """Return arrays, contexts or feedback with one replicate of `other`, the rest of `own`.

    Every part with a replicate axis is exchanged, whatever its name is.
    """
    if isinstance(own, np.ndarray) and own.ndim:
        mixed = np.array(own)
        mixed[lane] = other[lane]
        mixed.flags.writeable = own.flags.writeable
        return mixed
    if isinstance(own, tuple):
        return type(own)(*(with_lane_of(lane, *pair) for pair in zip(other, own)))
    return own


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
        for name in self.names(releaser):
            if hasattr(releaser, name):
                setattr(releaser, name, self._taking((number, name), releaser))
        members = self.members(releaser, number)
        if hasattr(kind, "value"):
            members["value"] = property(self._reading(number, releaser, kind.value.fget))
        if members:
            members["__reduce_ex__"] = lambda it, _: (object.__new__, (kind,), vars(it))
            releaser.__class__ = type(kind.__name__, (kind,), members)

    def names(self, releaser: Releaser) -> tuple[str, ...]:
        """Return the names of the methods that are taken."""
        return (*RECORDS, *OUTPUTS)

    def members(self, releaser: Releaser, number: int) -> dict[str, Any]:
        """Return further members of the class of a releaser that is held."""
        return {}

    def _taking(self, key: tuple[int, str], releaser: Releaser) -> MethodType:
        name = key[1]
        method = getattr(releaser, name)
        usual = getattr(type(releaser), name)

        def call(it: Releaser, *args: Any, **options: Any) -> Any:
            if it is not releaser:
                return usual(it, *args, **options)
            if self._inside:  # the releaser itself calls
                return method(*args, **options)
            self._inside = True
            try:
                return self.called(key, method, args, options)
            finally:
                self._inside = False

        call.__name__ = name
        return MethodType(call, releaser)  # copies of the releaser get methods of their own

    def _reading(
        self, number: int, releaser: Releaser, usual: Callable[[Releaser], Any]
    ) -> Callable[[Releaser], Any]:
        key = number, "value"
        method = functools.partial(usual, releaser)

        def read(_: Releaser) -> Any:
            if self._inside:
                return method()
            self._inside = True
            try:
                return self.called(key, method, (), {})
            finally:
                self._inside = False

        return read


class _Boundary(Interception):
    """Records what crosses the boundary of releasers in a first run, and compares in the others.

    Args:
        first: Transcript of the first run, None in the first run.

    Attributes:
        round: Number of the round.
        exchanged: Number of the replicate with an exchanged customer, whose record enters; None
            if there is none.
        lane: Number of the replicate whose customers are exchanged.
        lanes: The replicate of each releaser; None if it has all.
    """

    def __init__(self, first: _Transcript | None) -> None:
        self.first = first
        self.transcript = _Transcript([], [], [])
        self._calls = self._rounds = self._decisions = 0
        self.round = 0
        self.lane = 0
        self.exchanged: int | None = None
        self.lanes: dict[int, int | None] = {}
        self._held: dict[int, Releaser] = {}
        self._shown: dict[int, Callable[[Any], tuple[Any, ...]]] = {}
        self._entered: dict[tuple[int, int], Any] = {}
        self._bounds: dict[tuple[int, int], tuple[str, float]] = {}
        self._minimisers: set[int] = set()

    # ---------------------------------------------------------------- what is taken

    def names(self, releaser: Releaser) -> tuple[str, ...]:
        kind = type(releaser)
        public = [name for name in dir(kind) if not name.startswith("_")]
        methods = [name for name in public if isinstance(getattr(kind, name), FunctionType)]
        return tuple({*super().names(releaser), *methods} - {"ready"})

    def members(self, releaser: Releaser, number: int) -> dict[str, Any]:
        self._held[number] = releaser
        # one call reads all, because they are compared at every release
        self._shown[number] = attrgetter(*_shown_names(releaser))
        if isinstance(releaser, Sum) and not releaser.clips_users:
            if releaser.numbers is None:
                self._measure(releaser, number)
            else:
                self._measure_directions(releaser, number)
        if isinstance(releaser, Minimiser):
            self._minimisers.add(number)
            if releaser.has_loss:
                self._measure_loss(releaser, number)

        def write(it: Releaser, name: str, value: Any) -> None:
            if not self._inside and it is releaser and not _writes_itself(it):
                self._call((number, WRITES + name), (_digest(value),), None, None)
            object.__setattr__(it, name, value)

        return {"__setattr__": write}

    def _measure(self, releaser: Any, number: int) -> None:
        """Note what every record adds to a sum."""
        if getattr(releaser, "pure", False) or releaser.curator.relation != "replace-one":
            return  # private for any two records; agents promise replace-one
        most = Sum.per_round.fget(releaser)  # type: ignore[attr-defined]
        apart = most * releaser.sensitivity / releaser.records_per_unit
        apart += most * releaser.grid * math.sqrt(releaser.shape.width)
        self._bounds[number, 0] = releaser.what, apart

        def measured(name: str) -> MethodType:
            usual = getattr(type(releaser), name)

            def take(it: Any, records: Any, along: Any, into: Array) -> None:
                if it is not releaser:
                    usual(it, records, along, into)
                    return
                own = np.zeros(into.shape)
                usual(it, records, along, own)
                into += own
                self._enter((number, 0), own)

            take.__name__ = name
            return MethodType(take, releaser)  # copies of the releaser get methods of their own

        for name in ("_take", "_take_rounds"):
            setattr(releaser, name, measured(name))

    def _measure_directions(self, releaser: Any, number: int) -> None:
        """Note the directions of numbers, which are public and which no message hides."""
        usual = type(releaser)._send
        self._bounds[number, 0] = f"public directions of {releaser.what}", 0.0

        def send(it: Any, records: Any, along: Any) -> None:
            usual(it, records, along)
            if it is releaser:
                self._enter((number, 0), it._along.copy())

        send.__name__ = "_send"
        releaser._send = MethodType(send, releaser)

    def _measure_loss(self, releaser: Any, number: int) -> None:
        """Note the gradients that every record adds to a loss, at some parameters."""
        usual = type(releaser)._store
        bound = releaser._bounds["gradient_bound"]
        points = _points(releaser.dim)
        if bound is not None:
            for j in range(len(points)):
                self._bounds[number, j] = releaser.what, 2.0 * bound

        def store(it: Any, new: list[Array]) -> None:
            usual(it, new)
            if it is not releaser or bound is None:
                return
            for j, theta in enumerate(points):
                lanes = range(it.replicates)
                gradients = [it.loss(theta, *(x[:, lane] for x in new))[1] for lane in lanes]
                self._enter((number, j), np.array(gradients))

        store.__name__ = "_store"
        releaser._store = MethodType(store, releaser)

    def _enter(self, key: tuple[int, int], own: Array) -> None:
        self._entered[key] = self._entered[key] + own if key in self._entered else own

    # ---------------------------------------------------------------- what is compared

    def called(self, key: Any, method: Callable[..., Any], args: Any, options: Any) -> Any:
        number, name = key
        if not args and not options:
            given = _nothing_given()
        elif name in ENTERING and self.lanes[number] is None:
            axis = 1 if name.endswith("_rounds") else 0
            parts = (_lane_of((args, options), lane, axis) for lane in range(LANES))
            given = tuple(map(_digest, parts))
        else:
            given = (_digest_of_call(args, options),)
        shown: Any = None
        if name in REPLAYED:
            shown = self._settings(number)
        return self._call(key, given, shown, method(*args, **options))

    def _settings(self, number: int) -> Any:
        """Return what a handle shows of a releaser: plain values, and a digest of others."""
        releaser: Any = self._held[number]
        values = self._shown[number](releaser)
        has_loss = number in self._minimisers and releaser.has_loss
        if not has_loss and PLAIN.issuperset(map(type, values)):
            return values
        plain = [each if type(each) in PLAIN else None for each in values]
        others = [each for each in values if type(each) not in PLAIN and not callable(each)]
        digest = _digest(others) if others else b""
        if has_loss:
            digest += _digest(_probed(releaser))
        return plain, digest

    def _call(self, key: tuple[int, str], given: tuple[bytes, ...], shown: Any, output: Any) -> Any:
        """Note a call of the first run, or compare one with it."""
        replayed = key[1] in REPLAYED
        if self.first is None:
            stored = _copy(output) if replayed else None
            self.transcript.calls.append(_Call(key, given, shown, stored))
            return output

        # later runs keep nothing, as Python visits all that is kept again and again
        number = self._calls
        calls = self.first.calls
        self._calls += 1
        if number >= len(calls) or calls[number].key != key:
            raise _Found("records reach the plan of the releases")
        then = calls[number]
        if shown != then.shown:
            raise _Found("records reach an attribute of a releaser")
        if given != then.given:
            self._differs(key, given, then.given)
        if not replayed:
            return output
        return _copy(then.output)

    def _differs(
        self, key: tuple[int, str], given: tuple[bytes, ...], then: tuple[bytes, ...]
    ) -> None:
        """Raise `_Found` unless the arguments of a call may differ from those of the first run."""
        number, name = key
        if name.startswith(WRITES):
            raise _Found(f"records reach {name.removeprefix(WRITES)!r}, set on a releaser")
        if name in REPLAYED and name not in MESSAGES:
            raise _Found("records reach the arguments of a release")
        own = self.lanes[number]
        lanes = range(len(given)) if own is None else [own]
        differing = {lane for lane, now, before in zip(lanes, given, then) if now != before}
        if self.exchanged is None:
            raise _Found("records of other rounds reach the record")
        if differing != {self.exchanged}:
            raise _Found("records of another replicate reach the record")

    def close_round(self) -> None:
        """Compare what has entered the sums in this round."""
        rows, self._entered = self._entered, {}
        if self.first is None:
            self.transcript.entered.append(rows)
            return
        then = self.first.entered[self._rounds]
        self._rounds += 1
        for key in sorted({*rows, *then}):
            now = rows.get(key)
            before = then.get(key)
            if now is not None and before is not None and now.tobytes() == before.tobytes():
                continue  # a distance of 0, as in most rounds of most replicates
            what, most = self._bounds[key]
            gap = np.asarray((0.0 if now is None else now) - (0.0 if before is None else before))
            apart = math.sqrt(float((gap * gap).sum(axis=1).max()))
            if apart > most * (1.0 + SLACK):
                raise _Found(
                    f"{what}: two records are {apart:.3g} apart, but {most:.3g} is charged", True
                )

    def decide(self, decision: list[Any], what: str = "action") -> None:
        """Record what is decided for each replicate; None where a customer may see another."""
        decided = tuple([None if each is None else _digest(each) for each in decision])
        if self.first is None:
            self.transcript.decisions.append(decided)
            return
        then = self.first.decisions[self._decisions]
        self._decisions += 1
        if decided == then:
            return
        for lane, (now, before) in enumerate(zip(decided, then)):
            if now is not None and now != before:
                beside = len(then) > 1 and lane != self.lane
                raise _Found(f"records{' of another replicate' if beside else ''} reach the {what}")

    def end(self) -> None:
        """Check that every release of the first run was asked for."""
        if self.first is not None and self._calls < len(self.first.calls):
            raise _Found("records reach the plan of the releases")


def _copy(output: Any) -> Any:
    """Return a deep copy of a release."""
    # most are arrays of numbers, whose own copy takes a tenth of the time
    if type(output) is np.ndarray and not output.dtype.hasobject:
        return output.copy()
    return copy.deepcopy(output)


def _shown_names(releaser: Releaser) -> list[str]:
    """Return what `_Boundary._settings` reads, for a frozen dataclass its class and fields."""
    names: list[str] = []
    for name in SHOWN:
        if not hasattr(releaser, name):
            continue
        value = getattr(releaser, name)
        kind: Any = type(value)
        fields = () if kind in PLAIN else state.frozen_fields(kind) or ()
        if fields and all(type(getattr(value, field)) in ATOMS for field in fields):
            names += [f"{name}.__class__", *(f"{name}.{field}" for field in fields)]
        else:
            names.append(name)
    return names


def _points(dim: int) -> Array:
    """Return parameters at which losses are compared."""
    return np.outer([0.0, 1.0, -3.0], np.cos(np.arange(dim)))


def _probed(releaser: Any) -> list[Any]:
    """Return a loss at fixed records, which is the same unless the function reads raw data."""
    losses: list[Any] = []
    # a loss could read raw data with several records only, or with as many as there are
    for count in sorted({1, 2, 3, max(1, releaser.count)}):
        for fill in (0.0, 0.5):
            shapes = [(x.dtype, (count, *x.shape[2:])) for x in releaser._columns]
            parts = [np.full(shape, fill).astype(dtype) for dtype, shape in shapes]
            for theta in _points(releaser.dim) if parts else ():
                with contextlib.suppress(Exception):  # of a loss that is not for such records
                    losses.append(releaser.loss(theta, *parts))
    return losses


def _writes_itself(releaser: Releaser) -> bool:
    """Return whether the caller's caller is a method of the releaser."""
    frame = sys._getframe(2)
    names = frame.f_code.co_varnames[: frame.f_code.co_argcount]
    return bool(names) and frame.f_locals.get(names[0]) is releaser


@functools.cache
def _nothing_given() -> tuple[bytes, ...]:
    """Return the digest of a call without arguments, as every read of a running sum is."""
    return (_digest(((), {})),)


def _lane_of(value: Any, lane: int, axis: int) -> Any:
    """Return the part of a call's arguments that one replicate gives."""
    if isinstance(value, np.ndarray) and value.ndim > axis and value.shape[axis] == LANES:
        return value.take(lane, axis)
    if isinstance(value, list) and len(value) == LANES and axis == 0:
        return value[lane]
    if isinstance(value, (tuple, list)):
        return [_lane_of(each, lane, axis) for each in value]
    if isinstance(value, dict):
        return {name: _lane_of(each, lane, axis) for name, each in value.items()}
    return value


def _digest_of_call(args: tuple[Any, ...], options: dict[str, Any]) -> bytes:
    """Return `_digest` of the arguments of a call; in half of the time if they are arrays."""
    parts = [_signature(len(args), tuple(options))]
    for each in (*args, *options.values()):
        if type(each) is not np.ndarray or each.dtype.hasobject:
            return _digest((args, options))
        parts += _form(each.dtype, each.shape), each.tobytes()
    return _hashed(parts)


def _digest(value: Any) -> bytes:
    """Return a digest of plain values and arrays; of functions, with what they hold."""
    parts = _parts(value)
    if parts is None:
        try:
            parts = [state.dumps(value)]
        except StateError:
            from joblib.externals.loky.backend.reduction import dumps

            parts = [bytes(dumps(value))]
    return _hashed(parts)


def _hashed(parts: list[bytes]) -> bytes:
    """Return the joined parts if they are short, or else a digest of them."""
    text = b"\0".join(parts)
    # a digest is longer than every text that stands for itself
    return text if len(text) < DIGEST else hashlib.blake2b(text, digest_size=DIGEST).digest()


def _parts(value: Any) -> list[bytes] | None:
    """Return plain values and arrays, which are the most, as bytes; None for all others.

    A loop, because calls take most of the time of a short value.
    """
    parts: list[bytes] = []
    rest = [value]
    while rest:
        each = rest.pop()
        kind: Any = type(each)
        if kind is np.ndarray:
            if each.dtype.hasobject:
                return None
            parts.append(_form(each.dtype, each.shape))
            parts.append(each.tobytes())
        elif kind is tuple:
            parts.append(b"tuple%d" % len(each))
            rest.extend(each)
        elif kind is list:
            parts.append(b"list%d" % len(each))
            rest.extend(each)
        elif kind is dict:
            parts.append(b"dict%d" % len(each))
            rest.extend(each)
            rest.extend(each.values())
        elif kind in ATOMS:
            parts.append(f"{kind.__name__}{each!r}".encode())
        elif isinstance(each, np.generic) and not each.dtype.hasobject:
            parts.append(_form(each.dtype, None))
            parts.append(each.tobytes())
        elif (names := state.frozen_fields(kind)) is not None:
            parts.append(state.name_of(kind).encode())
            rest.extend(getattr(each, name) for name in names)
        else:
            return None
        if len(parts) > MOST_PARTS:  # also of a list that contains itself
            return None
    return parts


@functools.lru_cache(1024)
def _signature(count: int, names: tuple[str, ...]) -> bytes:
    """Return the number and names of arguments as bytes."""
    return f"{count} arrays {names}".encode()


@functools.lru_cache(1024)
def _form(dtype: np.dtype[Any], shape: tuple[int, ...] | None) -> bytes:
    """Return type and shape of an array as bytes; None for a scalar of NumPy."""
    return f"{dtype.descr}{shape}".encode()


def _other(
    feedback: Feedback,
    problem: Problem,
    context: Context,
    action: Array,
    how: str,
    rng: np.random.Generator,
) -> Feedback:
    """Return another response that is possible for the action."""
    shown = np.asarray(action)
    choice = feedback.choice
    low, high = response_range(problem.info)
    numbers = feedback.reward if feedback.demand is None else feedback.demand
    if choice is not None:
        low = -1
        high = (shown >= 0).sum(axis=1) - 1
        numbers = choice
    if how == "opposite":
        changed = low + high - numbers
    elif how == "random":
        changed = low + rng.random(numbers.shape) * (high - low)
    else:
        changed = (low if how == "lowest" else high) + 0 * numbers
    if choice is not None:
        other = bought(context, shown, np.rint(changed).astype(choice.dtype))
        return feedback._replace(reward=other.reward, choice=other.choice)
    if feedback.demand is None:
        return feedback._replace(reward=changed)
    return feedback._replace(reward=shown * changed, demand=changed)
