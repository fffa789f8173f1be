"""Isolated runs: raw sums and noise are in one process, the agent's code in others.

- The **main** process has the environment, and the agent's curator with all of its releasers.
- The **policy** process has the agent. It gets contexts, its own actions, placeholders instead of
  responses, and the releases. Its actions are played.
- A **customer** process is forked from the policy process in every round, and ends with the round.
  It has the agent as the policy process has it, and the real response, which it makes into records
  for the releasers of the main process. It knows the raw data of this round only.

If contexts are protected (units ``user-round`` and ``user``), the policy process gets features of
zeros, and the customer process acts as well.

So a record depends on its own round and on releases, an action on releases and on the context of
its round. If responses alone are protected, the directions and users of records are those of the
policy process. A release happens only where both processes ask for it at the same call, with the
arguments of the policy process. Changing a releaser in the agent's processes has no effect. Actions
are bit for bit those without isolation if the policy reads nothing but releases.

Releasers of other packages than this one are refused, because they would run in the main process.
The processes share files, the network and the machine's memory: isolation separates Python objects
and is no sandbox. In simulations the seeds are public, so that an agent could recompute everything.
"""

from __future__ import annotations

import contextlib
import copy
import gc
import inspect
import io
import os
import pickle
import signal
import traceback
from collections.abc import Callable
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from multiprocessing.reduction import recv_handle, send_handle
from typing import Any

import numpy as np

from dpb_gym import checkpoint, errors
from dpb_gym.agent import Agent
from dpb_gym.audits.interference import OUTPUTS, RECORDS, Interception
from dpb_gym.audits.paired_run import releasers
from dpb_gym.errors import AgentError, DPBError, line_of
from dpb_gym.lazy import own_packages
from dpb_gym.privacy import Curator
from dpb_gym.privacy.guarantee import RESPONSES
from dpb_gym.privacy.releasers.minimiser import LossMinimiser
from dpb_gym.privacy.releasers.releaser import Releaser
from dpb_gym.problems.base import Array, Context, Feedback, ProblemInfo
from dpb_gym.problems.delay import PLACEHOLDERS
from dpb_gym.registry import AgentSpec
from dpb_gym.streams import AgentStreams

CALL, DONE, ERROR = "call", "done", "error"
WATCH_SECONDS, END_SECONDS = 0.5, 10.0
CHARGES = ("charge", "as_printed", "disclose", "seal")
ONE_THREAD = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}  # a fork copies one thread


class IsolatedAgent(Agent):
    """An agent whose code runs in processes of its own; the curator is in this one.

    Args:
        spec: The agent, which must be private.

    Raises:
        AgentError: If processes cannot be forked, or the agent's process ends.
        DPBError: As raised by the agent's constructor.
    """

    def __init__(self, spec: AgentSpec) -> None:
        from joblib.externals.loky.backend.context import get_context
        from joblib.externals.loky.backend.reduction import dumps

        if not hasattr(os, "fork"):
            raise AgentError("isolated runs fork processes, which this system cannot do")
        self._link, theirs = Pipe()
        self._process = get_context("loky").Process(
            target=_policy,
            args=(theirs, os.getpid(), bytes(dumps(spec))),
            daemon=True,
            env=ONE_THREAD,
        )
        self._process.start()
        theirs.close()
        self.protects = self._received(self._link)[1]

    def close(self) -> None:
        """End the agent's processes."""
        self._link.close()
        with contextlib.suppress(ProcessLookupError):  # which has ended
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.join()

    def begin(self, problem: ProblemInfo, streams: AgentStreams, curator: Curator) -> None:
        self._streams, self._partial = streams, problem.partial_feedback
        self._hides_contexts = curator.unit not in RESPONSES
        shown = copy.copy(streams)
        shown.seeds = (0,) * streams.replicates
        shown.noise = AgentStreams(shown.seeds).noise
        _send(self._link, (problem, shown, curator.budget))
        self._releasers: list[Any] = []
        for part, what, args, options, centre in self._received(self._link)[1]:
            own = curator if part is None else curator.parts.get(part) or curator.single(part)
            args, options = _rebuilt(args), _rebuilt(options)
            if what in CHARGES:
                getattr(own, what)(*args, **options)
                continue
            if not (isinstance(what, type) and issubclass(what, Releaser)):
                raise AgentError(f"an isolated agent makes releasers, not {what!r}")
            releaser: Any = what(own, *args, **options)
            if isinstance(releaser, LossMinimiser):
                raise AgentError(
                    f"{releaser.what}: a minimiser's loss, which is the agent's code, would run "
                    "beside the raw data; use a releaser without one"
                )
            if centre is not None:
                releaser.centre = centre
            self._releasers.append(releaser)

    def act(self, context: Context) -> Array:
        self._customer, theirs = Pipe()
        _send(self._link, _blank(context, "features") if self._hides_contexts else context)
        with contextlib.suppress(OSError):  # of a process that has ended, which `_received` reports
            send_handle(self._link, theirs.fileno(), self._process.pid)
        theirs.close()
        _send(self._customer, context)
        self._own, action = self._together()
        played: Array = action if self._hides_contexts else self._own
        return played

    def observe(self, context: Context, action: Array, feedback: Feedback) -> None:
        protected = {k for k, v in feedback._asdict().items() if isinstance(v, np.ndarray)}
        if not (self._hides_contexts and self._partial):  # else it is when responses arrive
            protected -= {"observed"}
        shown = context, action, _blank(feedback, *protected)
        if self._hides_contexts:
            shown = _blank(context, "features"), self._own, shown[2]
        _send(self._link, shown)
        _send(self._customer, (context, action, feedback))
        self._together()

    def _together(self) -> tuple[Any, Any]:
        """Answer the calls of both processes until both are done; return their results."""
        while True:
            policy, customer = (self._received(link) for link in (self._link, self._customer))
            if policy[0] == customer[0] == DONE:
                return policy[1], customer[1]
            if policy[0] != customer[0] or policy[1][0] != customer[1][0]:
                raise AgentError(
                    f"with responses it asks for {_named(customer)}, without them for "
                    f"{_named(policy)}: raw data reach the plan of its releases"
                )
            (number, name), args, options = policy[1]
            if name not in (*RECORDS, *OUTPUTS, "value"):
                raise AgentError(f"{name!r} of a releaser is not for isolated agents")
            if name in (*RECORDS, "send"):
                public, chosen = args[1:], options
                _, args, options = customer[1]
                if name != "send" and not self._hides_contexts:
                    args, options = (*args[:1], *public), chosen
            releaser = self._releasers[number]
            output = (
                releaser.value if name == "value" else getattr(releaser, name)(*args, **options)
            )
            if name not in RECORDS:
                _send(self._link, output)
                _send(self._customer, output)

    def _received(self, link: Connection) -> tuple[str, Any]:
        """Return the next message of a process. Raise the error that it reports."""
        try:
            message = link.recv_bytes()
        except (EOFError, OSError):
            raise AgentError("the agent ended its process") from None
        kind, content = _Messages(message, getattr(self, "_streams", None)).load()
        if kind == ERROR:
            name, text, at, line, details = content
            known = getattr(errors, name, None)
            if not (isinstance(known, type) and issubclass(known, DPBError)):
                known = type(name, (Exception,), {})
            error = known(text)
            error.replicate, error.line = at, line
            error.add_note(details)
            raise error
        return kind, content


class _Messages(checkpoint._Unpickler):
    """Unpickler of the agent's messages: data, and classes of this package."""

    def __init__(self, message: bytes, streams: AgentStreams | None) -> None:
        super().__init__(io.BytesIO(message))
        self._streams = streams

    def persistent_load(self, name: str) -> Any:
        return self._streams

    def find_class(self, module: str, name: str) -> Any:
        data = name in checkpoint.LISTED.get(module, "").split()
        if not data and module.partition(".")[0] not in own_packages():
            raise AgentError(
                f"{module}.{name} would run beside the raw data: an isolated agent uses releasers "
                f"of {' and '.join(sorted(own_packages()))}"
            )
        return super().find_class(module, name)


def _rebuilt(value: Any) -> Any:
    """Return an argument whose objects are made by their constructors again.

    An object from another process can have any state, such as a cost that is not that of its noise.
    """
    if type(value) in (list, tuple):
        return type(value)(map(_rebuilt, value))
    if type(value) is dict:
        return {key: _rebuilt(each) for key, each in value.items()}
    kind = type(value)
    if kind.__module__.partition(".")[0] not in own_packages() or kind is AgentStreams:
        return value
    names = inspect.signature(kind).parameters
    return kind(**{name: _rebuilt(getattr(value, name)) for name in names})


def _send(link: Connection, content: Any) -> None:
    """Send a message. The receiver's end is noticed by the next `recv_bytes`, not here."""
    with contextlib.suppress(OSError):
        link.send_bytes(pickle.dumps(content, protocol=5))  # which keeps read-only arrays so


def _receive(link: Connection) -> Any:
    """Return a message of the main process."""
    return pickle.loads(link.recv_bytes())


def _named(message: tuple[str, Any]) -> str:
    if message[0] == DONE:
        return "nothing more"
    number, name = message[1][0]
    return f"{name} of releaser {number + 1}"


def _blank(batch: Any, *names: str) -> Any:
    """Return a context or feedback with placeholders in some arrays."""
    blank = {name: np.full_like(getattr(batch, name), PLACEHOLDERS.get(name, 0)) for name in names}
    for name, array in blank.items():
        array.flags.writeable = getattr(batch, name).flags.writeable
    return batch._replace(**blank)


# ------------------------------------------------------------------ the agent's processes


def _policy(link: Connection, main: int, made: bytes) -> None:
    """Run the agent until the main process closes the link or ends."""
    os.setsid()  # its customer processes end with it, and Ctrl-C is left to the main process

    def watch(*_: Any) -> None:
        if os.getppid() != main:
            os.killpg(0, signal.SIGKILL)

    signal.signal(signal.SIGALRM, watch)
    signal.setitimer(signal.ITIMER_REAL, WATCH_SECONDS, WATCH_SECONDS)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # no zombies
    maker = None
    try:
        spec = pickle.loads(made)
        maker = spec.maker
        _serve(link, spec)
    except EOFError:
        pass
    except Exception as error:
        _send(link, (ERROR, _described(error, maker)))
        link.poll(END_SECONDS)  # the customer process may still have calls
    finally:
        os.killpg(0, signal.SIGKILL)


def _serve(link: Connection, spec: AgentSpec) -> None:
    agent = spec.make()
    _send(link, (DONE, agent.protects))
    problem, streams, budget = _receive(link)
    plan = _plan(agent, lambda: agent.set_up(problem, streams, budget))
    message = io.BytesIO()
    pickler = pickle.Pickler(message, protocol=5)
    pickler.persistent_id = lambda value: "streams" if value is streams else None  # type: ignore[method-assign]
    pickler.dump((DONE, plan))
    link.send_bytes(message.getvalue())
    calls = _Calls(link)
    for number, releaser in enumerate(releasers(agent)):
        calls.hold(releaser, number)
    gc.collect()
    gc.freeze()  # a collection in a forked process would copy memory
    while True:
        context = _receive(link)
        handle = recv_handle(link)
        if not os.fork():
            link.close()
            calls.link = Connection(handle)
            try:
                _round(agent, calls.link, _receive(calls.link))
            except Exception as error:
                _send(calls.link, (ERROR, _described(error, spec.maker)))
            finally:
                os._exit(0)
        os.close(handle)
        _round(agent, link, context)


def _round(agent: Agent, link: Connection, context: Context) -> None:
    _send(link, (DONE, agent.act(context)))
    context, action, feedback = _receive(link)
    agent.observe(context, action, feedback)
    _send(link, (DONE, None))


def _plan(agent: Agent, set_up: Callable[[], None]) -> list[Any]:
    """Set up the agent; return the calls with which it made releasers and charged its curator."""
    calls: list[Any] = []
    inside = False

    def noted(cls: type[Releaser], curator: Any = None, *args: Any, **options: Any) -> Releaser:
        made: Releaser = object.__new__(cls)
        calls.append((curator, made, args, options))
        return made

    def charging(name: str) -> Callable[..., Any]:
        method = vars(Curator)[name]

        def charged(curator: Curator, *args: Any, **options: Any) -> None:
            nonlocal inside
            outer, inside = not inside, True
            if outer:
                calls.append((curator, name, args, options))
            try:
                method(curator, *args, **options)
            finally:
                inside = not outer

        return charged

    usual = {name: vars(Curator)[name] for name in CHARGES}
    Releaser.__new__ = noted  # type: ignore[assignment,method-assign]
    for name in CHARGES:
        setattr(Curator, name, charging(name))
    try:
        set_up()
    finally:
        del Releaser.__new__
        for name, method in usual.items():
            setattr(Curator, name, method)
    parts: dict[int, int | None] = {id(part): i for i, part in agent.curator.parts.items()}
    parts[id(agent.curator)] = None
    plan = []
    what: Any
    for curator, what, args, options in calls:
        if id(curator) not in parts:  # of an agent without a budget inside of this one
            continue
        kind, centre = what, getattr(what, "centre", None)
        if not isinstance(what, str):
            kind = type(what)
            if callable(options.get("schedule")):
                options["schedule"] = what.schedule
        plan.append((parts[id(curator)], kind, args, options, centre))
    return plan


class _Calls(Interception):
    """Calls of releasers, passed on to the main process.

    The agent's own releasers get the calls too, so that their plans and counts advance. Their
    noise is another one, and nothing that they release is used.

    Args:
        link: Connection to the main process.
    """

    def __init__(self, link: Connection) -> None:
        self.link = link

    def called(self, key: Any, method: Callable[..., Any], args: Any, options: Any) -> Any:
        method(*args, **options)
        _send(self.link, (CALL, (key, args, options)))
        return None if key[1] in RECORDS else _receive(self.link)


def _described(error: Exception, maker: Any) -> tuple[str, str, int | None, str, str]:
    """Return name and text of an error, its replicate, the agent's line, and the traceback."""
    at = error.replicate if isinstance(error, DPBError) else None
    line = line_of(error, getattr(maker, "__module__", None))
    return type(error).__name__, str(error), at, line, traceback.format_exc()
