"""Isolated runs: raw sums and noise are in one process, the agent's code in others.

- The **main** process has the environment, and the agent's curator with all of its releasers.
- The **policy** process has the agent. It gets contexts, its own actions, placeholders instead of
  responses, and the releases. Its actions are played.
- A **customer** process is forked from the policy process in every round, and ends with the round.
  It has the agent as the policy process has it, and the real response, which it makes into records
  for the releasers of the main process. It knows the raw data of this round only.

If contexts are protected (units ``user-round`` and ``user``), the policy process gets placeholders
instead of contexts, and the customer process acts as well. If responses are late too, it ends with
its action, and a second one gets context and response of the earlier round.

So a record depends on its own round and on releases, an action on releases and on the context of
its round. If responses alone are protected, the directions and users of records are those of the
policy process. A release happens only where both processes ask for it at the same call, with the
arguments of the policy process. Changing a releaser in the agent's processes has no effect. Actions
are bit for bit those without isolation if the policy reads nothing but releases.

Messages are plain state (`dpb_gym.state`): values and arrays. The main process makes every releaser
by its constructor, from arguments that it checks, and executes the methods that its class describes
(`dpb_gym.privacy.plain_plans`). It counts records, calls and bytes: in every round at most
one record of a replicate enters each releaser. Releasers of other packages than this one are
refused, because they would run in the main process.

The processes share files, the network and the machine's memory: isolation separates Python objects
and is no sandbox. In simulations the seeds are public, so that an agent could recompute everything.
"""

from __future__ import annotations

import contextlib
import gc
import inspect
import os
import signal
import socket
import struct
import traceback
from collections.abc import Callable, Iterator
from functools import partial
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from multiprocessing.reduction import recv_handle, send_handle
from types import MethodType
from typing import Any, NamedTuple

import numpy as np

from dpb_gym import errors, state, validation
from dpb_gym.agent import Agent
from dpb_gym.errors import ActionError, AgentError, DPBError, StateError, line_of, shown
from dpb_gym.privacy import Curator, forks
from dpb_gym.privacy.guarantee import NOTIONS, RESPONSES, UNITS
from dpb_gym.privacy.plain_plans import (
    PUBLIC,
    RECORD,
    RELEASERS,
    Method,
    ReleaserEntry,
    path_of,
    text,
)
from dpb_gym.privacy.releasers.releaser import Releaser, noting
from dpb_gym.problems.base import Array, Context, Feedback, ProblemInfo
from dpb_gym.problems.delay import PLACEHOLDERS
from dpb_gym.registry import AgentSpec
from dpb_gym.running.isolated_releasers import CHARGES, described, new_releaser
from dpb_gym.streams import AgentStreams

CALL = "call"
DONE = "done"
ERROR = "error"
ACT = "act"
OBSERVE = "observe"
WATCH_SECONDS = 0.5
END_SECONDS = 10.0
ANSWER_SECONDS = 600.0
"""Longest time that an agent's process may take for its next message, or to read one."""
MOST_CALLS = 64
"""Most calls of a round, in units of the releasers and one more."""
SMALL = 1 << 20
"""Most bytes of a message without arrays, and of all but the arrays of others."""
PLAN = 1 << 16
"""Most bytes of a plan per replicate, besides `SMALL`."""
ONE_THREAD = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}  # a fork copies one thread
BLANKS = {**PLACEHOLDERS, "available": True}
"""Placeholders in fields where they are not 0."""
OWN_CHARGES = "an isolated agent charges what its releasers release, and nothing of its own"


class _Held(NamedTuple):
    """A releaser of this process that the agent's processes can call.

    Attributes:
        releaser: The releaser.
        entry: What can be asked of it.
        lanes: Its replicates.
    """

    releaser: Any
    entry: ReleaserEntry
    lanes: slice


class IsolatedAgent(Agent):
    """An agent whose code runs in processes of its own; the curator is in this one.

    Args:
        spec: The agent, which must be private.

    Raises:
        AgentError: If processes cannot be forked, or the agent's process ends, does not answer or
            sends what it must not.
        DPBError: As raised by the agent's constructor.
    """

    def __init__(self, spec: AgentSpec) -> None:
        from joblib.externals.loky.backend.context import get_context

        if not hasattr(os, "fork"):
            raise AgentError("isolated runs fork processes, which this system cannot do")
        self._customer: Connection | None = None
        self._held: list[_Held] = []
        self._most_bytes = SMALL
        self._link, theirs = _pipe()
        self._process = get_context("loky").Process(
            target=_policy, args=(theirs, os.getpid(), spec), daemon=True, env=ONE_THREAD
        )
        self._process.start()
        theirs.close()
        self.protects = _protects(self._received(self._link)[1])

    def close(self) -> None:
        """End the agent's processes."""
        self._end_customer()
        self._link.close()
        for kill in (os.killpg, os.kill):  # it may lead no group
            with contextlib.suppress(ProcessLookupError):
                kill(self._process.pid, signal.SIGKILL)
        self._process.join()

    def begin(self, problem: ProblemInfo, streams: AgentStreams, curator: Curator) -> None:
        self._streams, self._problem = streams, problem
        self._pool: Array | None = None
        self._hides_contexts = curator.unit not in RESPONSES
        self._held = []
        self._most_bytes = SMALL + PLAN * streams.replicates
        # then the customer of a round is not the one whose response arrives
        self._two_customers = self._hides_contexts and problem.delay is not None
        facts = problem, streams.agent, streams.configuration, curator.budget
        _send(self._link, (*facts, self._two_customers))
        plan = self._received(self._link)[1]
        if type(plan) is not list or len(plan) > MOST_CALLS * (1 + streams.replicates):
            raise AgentError(f"the plan of an isolated agent is a list, got {shown(plan)}")
        with _typed_errors():
            made = [self._planned(curator, call) for call in plan]
        self._held = [held for held in made if held is not None]
        # as many bytes as four squares of features or rows of the widest releaser
        shapes = [getattr(held.releaser, "shape", None) for held in self._held]
        widths = [shape.width for shape in shapes if shape is not None]
        self._row_bytes = 32 * streams.replicates * max((problem.dim + 2) ** 2, *widths, 1)

    def _planned(self, curator: Curator, call: Any) -> _Held | None:
        """Carry out a call of a plan; return the releaser that it makes, if it does."""
        if type(call) is not list or len(call) != 4:
            raise AgentError(f"a plan has four parts per call, got {shown(call)}")
        part, what, given, centre = call
        own = curator
        lanes = slice(None)
        if part is not None:
            part = validation.integer("part", part, 0, curator.replicates - 1)
            own = curator.parts.get(part) or curator.single(part)
            lanes = slice(part, part + 1)
        if what in CHARGES:
            texts = [text(what, each) for each in _list(given)]
            if len(texts) != (what != "seal"):
                raise AgentError(f"{what} of a curator does not take {shown(texts)}")
            getattr(own, what)(*texts)
            return None
        releaser, entry = new_releaser(own, what, given, self._problem, self._streams)
        if centre is not None:
            if entry.centre is None:
                raise AgentError(f"{releaser.what} has no centre")
            centre = entry.centre("centre", centre)
            if np.shape(centre) != np.shape(releaser.centre):
                raise AgentError(f"the centre of {releaser.what} is {shown(releaser.centre)}")
            releaser.centre = centre
        return _Held(releaser, entry, lanes)

    def act(self, context: Context) -> Array:
        shown = ACT, self._shown(context)
        self._tell(shown, (ACT, context) if self._hides_contexts else shown, new=True)
        self._own, action = map(_action, self._together())
        played: Array = action if self._hides_contexts else self._own
        return played

    def observe(self, context: Context, action: Array, feedback: Feedback) -> None:
        public: tuple[str, ...] = ()
        if not (self._hides_contexts and self._problem.partial_feedback):
            public = ("observed",)  # else it is when responses arrive
        own = self._own if self._hides_contexts else action
        shown = OBSERVE, self._shown(context), own, _blank(feedback, *public)
        whole = OBSERVE, context, action, feedback
        self._tell(shown, whole, new=self._two_customers)
        self._together(context, action, feedback)

    def _shown(self, context: Context) -> Context:
        """Return what the policy process may see of a context."""
        if not self._hides_contexts:
            return context
        public = ["t"]
        if self.curator.unit == "user":
            public.append("users")  # whose round is whose is public
        if self._problem.stock is not None:
            public.append("available")  # the guarantee is for the same items sold out
        if self._problem.fixed_arms:
            self._check_pool(context)
            public += ["features", "arms"]  # the same in every round
        hidden: Context = _blank(context, *public)
        return hidden

    def _check_pool(self, context: Context) -> None:
        """Raise AgentError unless the context offers the arms of the first round."""
        assert context.arms is not None
        order = context.arms.argsort(axis=1)[:, :, None]
        pool = np.take_along_axis(context.features, order, axis=1)
        if self._pool is None:
            self._pool = pool
        nobody = (context.arms == BLANKS["arms"]).all(axis=1)
        if not ((pool == self._pool).all(axis=(1, 2)) | nobody).all():
            raise AgentError(f"every round should offer the same arms, round {context.t} does not")

    def _tell(self, shown: Any, whole: Any, *, new: bool) -> None:
        """Send the policy process what it may see, and the customer process everything.

        Args:
            shown: Stage, context and more, for the policy process.
            whole: The same for the customer process.
            new: Whether the policy process forks a new customer process.
        """
        message = state.dumps(shown)
        _send_bytes(self._link, message)
        if new:
            self._end_customer()
            self._customer, theirs = _pipe()
            with contextlib.suppress(OSError):  # it has ended: see `_received`
                send_handle(self._link, theirs.fileno(), self._process.pid)
            theirs.close()
        assert self._customer is not None
        _send_bytes(self._customer, message if whole is shown else state.dumps(whole))
        sizes = [part.nbytes for part in whole[1] if isinstance(part, np.ndarray)]
        self._most_bytes = SMALL + self._row_bytes + 4 * sum(sizes)

    def _end_customer(self) -> None:
        if self._customer is not None:
            self._customer.close()  # which ends the process
            self._customer = None

    def _together(self, *told: Any) -> tuple[Any, Any]:
        """Answer the calls of both processes until both are done; return their results.

        Args:
            *told: Context, action and feedback whose records can enter, or nothing.
        """
        assert self._customer is not None
        entered: set[int] = set()
        most = MOST_CALLS * (1 + len(self._held))
        for _ in range(most):
            policy, customer = (self._received(link) for link in (self._link, self._customer))
            if policy[0] == customer[0] == DONE:
                return policy[1], customer[1]
            if policy[:3] != customer[:3]:
                raise AgentError(
                    f"with responses it asks for {_named(customer)}, without them for "
                    f"{_named(policy)}: raw data reach the plan of its releases"
                )
            number, name = policy[1:3]
            held = self._held[number]
            method = held.entry.methods[name]
            if method.records:
                if not told:
                    raise AgentError(
                        f"{held.releaser.what}: a record enters in observe, not in act"
                    )
                if number in entered:
                    raise AgentError(
                        f"{held.releaser.what}: a second record of one round, where its guarantee "
                        "is for one: add one record with what a round contributes"
                    )
                entered.add(number)
            with _typed_errors():
                output = self._called(held, name, policy[3], customer[3], told)
            if method.returns:
                message = state.dumps(output)
                _send_bytes(self._link, message)
                _send_bytes(self._customer, message)
        raise AgentError(f"more than {most} calls in one round")

    def _called(self, held: _Held, name: str, policy: Any, customer: Any, told: Any) -> Any:
        """Execute a method of a releaser with checked arguments, and return its output."""
        releaser = held.releaser
        method = held.entry.methods[name]
        if name == "value":
            return releaser.value
        if name == "send" and not method.sources:
            return releaser.send(*told)
        given = {}
        for argument, source in method.sources.items():
            protected = source == RECORD or (source != PUBLIC and self._hides_contexts)
            answers = customer if protected else policy
            if argument in answers:
                given[argument] = answers[argument]
        for answers in (policy, customer):
            if not answers.keys() <= method.sources.keys():
                raise AgentError(f"{name} of {releaser.what} takes {', '.join(method.sources)}")
        users = told[0].users if told else None
        method.check(releaser, given, None if users is None else users[held.lanes])
        return getattr(releaser, name)(**given)

    def _received(self, link: Connection) -> Any:
        """Return the next message of a process. Raise the error that it reports."""
        try:
            message = state.loads(link.recv_bytes(self._most_bytes), objects=False)
        except BlockingIOError:
            raise AgentError(f"the agent did not answer in {ANSWER_SECONDS:g} seconds") from None
        except StateError as error:
            raise AgentError(f"the agent sent what is no message: {error}") from None
        except (EOFError, OSError) as error:
            if "length" in str(error):
                raise AgentError(
                    f"the agent sent a message of more than {self._most_bytes} bytes"
                ) from None
            raise AgentError("the agent ended its process") from None
        kind = message[0] if type(message) is list and message else None
        kind = kind if type(kind) is str else None
        if kind == ERROR:
            raise _error(message)
        if kind == DONE and len(message) == 2:
            return message
        if kind != CALL or len(message) != 4 or type(message[3]) is not dict:
            raise AgentError(f"the agent sent what is no message: {shown(message)}")
        _, number, name, _ = message
        known = type(number) is int and 0 <= number < len(self._held)
        if not known or type(name) is not str or name not in self._held[number].entry.methods:
            raise AgentError(f"{shown(name)} of a releaser is not for isolated agents")
        return message


def _protects(value: Any) -> tuple[str, str] | None:
    """Return the notion and unit that an agent says it protects."""
    if value is None:
        return None
    notion, unit = _list(value) if len(_list(value)) == 2 else (None, None)
    return validation.choice("notion", notion, NOTIONS), validation.choice("unit", unit, UNITS)


def _action(value: Any) -> Array:
    """Return an action that a process sent; the problem checks its shape and range."""
    if type(value) is not np.ndarray:
        raise ActionError(f"an action must be an array, got {shown(value)}")
    return value


@contextlib.contextmanager
def _typed_errors() -> Iterator[None]:
    """Raise errors of any type, such as of numbers that are too large, as AgentError."""
    try:
        yield
    except DPBError:
        raise
    except Exception as error:
        raise AgentError(f"{type(error).__name__}: {error}") from error


def _list(value: Any) -> list[Any]:
    if type(value) is not list:
        raise AgentError(f"the agent sent what is no list: {shown(value)}")
    return value


def _error(message: list[Any]) -> Exception:
    """Return the error that a process reports: of a known type, or of one of its name."""
    texts = [part if type(part) is str else "" for part in message[1:]]
    name, text, line, details = (*texts, "", "", "", "")[:4]
    known: Any = getattr(errors, name, None)
    if not (isinstance(known, type) and issubclass(known, DPBError)):
        known = type(name if name.isidentifier() else "Error", (Exception,), {})
    error = known(text)
    at = message[5] if len(message) == 6 else None
    error.replicate = at if type(at) is int and at >= 0 else None
    error.line = line
    error.add_note(details)
    return error  # type: ignore[no-any-return]


def _pipe() -> tuple[Connection, Connection]:
    """Return both ends of a connection; the first waits for at most `ANSWER_SECONDS`."""
    own, theirs = Pipe()
    limit_answers(own)
    return own, theirs


def limit_answers(link: Connection) -> None:
    """Let a connection wait for at most `ANSWER_SECONDS`."""
    seconds = struct.pack("ll", int(ANSWER_SECONDS), int(1e6 * (ANSWER_SECONDS % 1.0)))
    with socket.socket(fileno=os.dup(link.fileno())) as end:
        for option in (socket.SO_RCVTIMEO, socket.SO_SNDTIMEO):
            end.setsockopt(socket.SOL_SOCKET, option, seconds)


def _send(link: Connection, content: Any) -> None:
    _send_bytes(link, state.dumps(content))


def _send_bytes(link: Connection, message: bytes) -> None:
    """Send a message. The receiver's end is noticed by the next `recv_bytes`, not here."""
    with contextlib.suppress(OSError):
        link.send_bytes(message)


def _receive(link: Connection) -> Any:
    """Return a message of the main process."""
    return state.loads(link.recv_bytes())


def _named(message: Any) -> str:
    if message[0] == DONE:
        return "nothing more"
    return f"{message[2]} of releaser {message[1] + 1}"


def _blank(batch: Any, *public: str) -> Any:
    """Return a context or feedback with placeholders in all fields but the public ones.

    Raises:
        AgentError: If another field is neither None nor an array of plain values.
    """
    blank = {}
    for name, value in batch._asdict().items():
        if name in public or value is None:
            continue
        if not isinstance(value, np.ndarray) or value.dtype.kind not in "biufc":
            raise AgentError(
                f"{name} is protected and cannot be replaced by a placeholder: {shown(value)}"
            )
        blank[name] = np.full_like(value, BLANKS.get(name, 0))
        blank[name].flags.writeable = value.flags.writeable
    return batch._replace(**blank)


# ------------------------------------------------------------------ the agent's processes


def _policy(link: Connection, main: int, spec: AgentSpec) -> None:
    """Run the agent until the main process closes the link or ends."""
    os.setsid()  # its customer processes end with it, and Ctrl-C is left to the main process

    def watch(*_: Any) -> None:
        if os.getppid() != main:
            os.killpg(0, signal.SIGKILL)

    signal.signal(signal.SIGALRM, watch)
    signal.setitimer(signal.ITIMER_REAL, WATCH_SECONDS, WATCH_SECONDS)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # no zombies
    try:
        _serve(link, spec)
    except EOFError:
        pass
    except Exception as error:
        _send(link, _described(error, spec.maker))
        link.poll(END_SECONDS)  # the customer process may still have calls
    finally:
        os.killpg(0, signal.SIGKILL)


def _serve(link: Connection, spec: AgentSpec) -> None:
    agent = spec.make()
    _send(link, [DONE, None if agent.protects is None else list(agent.protects)])
    problem, generators, configuration, budget, two_customers = _receive(link)
    streams = AgentStreams((0,) * len(generators), configuration)  # without the seeds
    streams.agent = generators
    plan, releasers = _plan(agent, lambda: agent.set_up(problem, streams, budget))
    _send(link, [DONE, plan])
    calls = _Calls(link)
    for number, releaser in enumerate(releasers):
        calls.take(releaser, number)
    charges = agent.curator.charges
    gc.collect()
    gc.freeze()  # a collection in a forked process would copy memory
    while True:
        message = _receive(link)
        if message[0] == ACT or two_customers:
            handle = recv_handle(link)
            if not forks.fork_simulation():  # its curator's noise is not used
                link.close()
                _customer(agent, charges, calls, Connection(handle), spec)
            os.close(handle)
        _stage(agent, charges, link, message)


def _customer(agent: Agent, charges: Any, calls: _Calls, link: Connection, spec: AgentSpec) -> None:
    """Run the agent on raw data of one customer until the main process closes the link."""
    calls.link = link
    try:
        while True:
            _stage(agent, charges, link, _receive(link))
    except EOFError:
        pass
    except Exception as error:
        _send(link, _described(error, spec.maker))
    finally:
        os._exit(0)


def _stage(agent: Agent, charges: Any, link: Connection, message: Any) -> None:
    """Let the agent act or observe, and send the result.

    Raises:
        AgentError: If the agent's own curator has other `Curator.charges` then. The guarantee is
            that of the main process, which would not know of them.
    """
    stage, *given = message
    result = None
    if stage == ACT:
        result = np.asarray(agent.act(*given))
    else:
        agent.observe(*given)
    if agent.curator.charges != charges:
        raise AgentError(OWN_CHARGES)
    _send(link, [DONE, result])


def _plan(agent: Agent, set_up: Callable[[], None]) -> tuple[list[Any], list[Releaser]]:
    """Set up the agent; return the calls with which it made releasers, and these.

    A call is a list: replicate of the curator, or None; name of a method of `CHARGES`, or path of
    the class; arguments; and the centre that `begin` set, or None.
    """
    inside = False

    def charging(name: str) -> Callable[..., Any]:
        method = vars(Curator)[name]

        def charged(curator: Curator, *args: Any, **options: Any) -> None:
            nonlocal inside
            outer = not inside
            inside = True
            if outer:
                calls.append((curator, name, args, options))
            try:
                method(curator, *args, **options)
            finally:
                inside = not outer

        return charged

    watched = (*CHARGES, "charge")
    usual = {name: vars(Curator)[name] for name in watched}
    for name in watched:
        setattr(Curator, name, charging(name))
    try:
        with noting() as calls:
            set_up()
    finally:
        for name, method in usual.items():
            setattr(Curator, name, method)
    parts: dict[int, int | None] = {id(part): i for i, part in agent.curator.parts.items()}
    parts[id(agent.curator)] = None
    plan: list[Any] = []
    releasers: list[Releaser] = []
    what: Any
    for curator, what, args, options in calls:
        if id(curator) not in parts:  # of an agent without a budget inside of this one
            continue
        part = parts[id(curator)]
        if isinstance(what, str):
            if what not in CHARGES:
                raise AgentError(OWN_CHARGES)
            plan.append([part, what, [*args, *options.values()], None])
            continue
        given = described(what, type(what), args, options)
        plan.append([part, path_of(type(what)), given, getattr(what, "centre", None)])
        releasers.append(what)
    return plan, releasers


class _Calls:
    """Calls of releasers, passed on to the main process.

    The agent's own releasers get the calls too, so that their plans and counts advance. Their
    noise is another one, and nothing that they release is used.

    Args:
        link: Connection to the main process.
    """

    def __init__(self, link: Connection) -> None:
        self.link = link
        self._inside = False

    def take(self, releaser: Releaser, number: int) -> None:
        """Take the calls of the methods of `RELEASERS`, but not those of copies of the releaser."""
        kind = type(releaser)
        for name, method in RELEASERS[path_of(kind)].methods.items():
            if name != "value":
                setattr(releaser, name, self._passing(releaser, number, name, method))
                continue
            own = partial(kind.value.fget, releaser)  # type: ignore[attr-defined]
            read = self._taken(number, name, method, [], own)
            members = {
                "value": property(_reading(read)),
                "__reduce_ex__": lambda it, _: (object.__new__, (kind,), vars(it)),
            }
            releaser.__class__ = type(kind.__name__, (kind,), members)

    def _passing(self, releaser: Releaser, number: int, name: str, method: Method) -> MethodType:
        own = getattr(releaser, name)
        usual = getattr(type(releaser), name)
        taken = self._taken(number, name, method, list(inspect.signature(own).parameters), own)

        def call(it: Releaser, *args: Any, **options: Any) -> Any:
            return taken(*args, **options) if it is releaser else usual(it, *args, **options)

        call.__name__ = name
        return MethodType(call, releaser)  # copies of the releaser get methods of their own

    def _taken(
        self, number: int, name: str, method: Method, names: list[str], own: Callable[..., Any]
    ) -> Callable[..., Any]:
        def call(*args: Any, **options: Any) -> Any:
            if self._inside:  # the releaser itself calls
                return own(*args, **options)
            self._inside = True
            try:
                own(*args, **options)
            finally:
                self._inside = False
            given = {**dict(zip(names, args)), **options} if method.sources else {}
            arguments = {argument: _plain(value) for argument, value in given.items()}
            _send(self.link, [CALL, number, name, arguments])
            return _receive(self.link) if method.returns else None

        return call


def _reading(read: Callable[[], Any]) -> Callable[[Any], Any]:
    """Return a getter of a property that calls `read`."""
    return lambda _: read()


def _plain(value: Any) -> Any:
    """Return an argument of a releaser as a value or an array."""
    if value is None or type(value) in (bool, int, float):
        return value
    return np.asarray(value)


def _described(error: Exception, maker: Any) -> list[Any]:
    """Return name and text of an error, the agent's line, the traceback, and its replicate."""
    at = error.replicate if isinstance(error, DPBError) else None
    line = line_of(error, getattr(maker, "__module__", None))
    texts = type(error).__name__, str(error), line, traceback.format_exc()
    return [ERROR, *(text.encode("utf-8", "replace").decode() for text in texts), at]
