"""The service without HTTP: one session, its snapshot and its journal, which survive a crash.

Every request becomes an event of the journal before it is answered. An event has the request, the
system noise that was drawn for it and the admissions of the account. A new process loads the
snapshot and repeats the events with the recorded numbers. So its session equals the one that was
lost, bit for bit, and no record is released a second time with other noise.

A process owns a folder by a lock, and a session by a lock in the state directory. A copy of the
folder knows the tokens of the session up to its making. The account, or the state directory, has
the newest token, which is announced to the journal before. The token of an account changes with
each release. Without an account the state directory has the number of events that were answered.
So a copy that is older than the newest release is refused, and of two equal ones the later.
"""

from __future__ import annotations

import base64
import contextlib
import hashlib
import json
import os
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from dpb_gym import privacy
from dpb_gym.errors import (
    AgentError,
    CheckpointError,
    DataError,
    HorizonExceeded,
    ParameterError,
    shown,
)
from dpb_gym.files import read_regular, state_directory, write_whole
from dpb_gym.privacy.generations import Continuation
from dpb_gym.privacy.tape import Tape
from dpb_gym.registry import agent_spec
from dpb_gym.service.bodies import Bodies, BodyError, FieldError
from dpb_gym.service.journal import Journal
from dpb_gym.service.settings import ServiceSettings, version
from dpb_gym.serving import Session, serve

FORMAT = "dpb-gym service"
VERSION = 1
MOST_BYTES = 1 << 33
MOST_HEADER = 1 << 20
LEAST_JOURNAL = 1 << 20
"""A snapshot is written when the journal has so many bytes, and four times those of a snapshot."""
SAVE_SECONDS = 300.0
"""A snapshot is written so long after the last one, if something happened."""


class ServiceError(AgentError):
    """The agent failed on a request. Details are in the log, as they may contain data of others."""


class DecisionService:
    """A session that decides for requests, and continues after a crash.

    Not thread-safe: one thread makes all calls, except `sync`.

    Args:
        settings: The configuration.
        session: File of a session that `Session.save` wrote, to begin with it; None: a new one.
        warm: See `dpb_gym.serve`.
        log: Called with messages for the operator, which may contain customers' data.

    Attributes:
        settings: The configuration.
        bodies: Reads requests.
        session: The session.
        failed: Why the service answers nothing until it is started again; None: it answers.

    Raises:
        CheckpointError: If another process serves the folder or the session, the session goes on
            elsewhere, or the configuration is not the session's.
        DataError: If a file is damaged or cannot be written.
        AgentError: If the agent cannot serve.
    """

    def __init__(
        self,
        settings: ServiceSettings,
        *,
        session: str | os.PathLike[str] | None = None,
        warm: bool = True,
        log: Callable[[str], None] = print,
    ) -> None:
        self.settings = settings
        self.failed: str | None = None
        self._closed = False
        self._process = os.getpid()
        self._log = log
        self._locks = contextlib.ExitStack()
        spec = agent_spec(settings.agent)
        if not (spec.partial_feedback and spec.delayed_feedback):
            raise AgentError(
                f"agent {spec.name!r} needs every response in its own round, which a service "
                "cannot promise; dpb list agents names others"
            )
        budget = privacy.Budget.parse(settings.budget)
        if budget is not None and budget.trust != "curator":
            raise AgentError(
                f"with {budget} no server sees a customer's data, which a service does: customers' "
                "devices decide, see Session.device. Or give a budget without @"
            )
        self._state_dir = None if settings.state_dir is None else settings.place(settings.state_dir)
        self._info = settings.info(fixed_arms=spec.fixed_arms)
        people = settings.account is not None
        self.bodies = Bodies(self._info, settings.actions(), settings.features(), people)
        folder = settings.directory
        try:
            folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        except OSError as error:
            raise DataError(f"the folder {folder} cannot be created: {error.strerror}") from error
        self._snapshot = folder / "snapshot"
        try:
            self._lock(folder / "lock", f"the folder {folder}")
            self._account = self._opened_account()
            self._journal = Journal(folder / "journal")
            self._events = 0
            self._answerable = 0
            self._counting = threading.Lock()
            self._mark: int | None = None
            if self._snapshot.exists():
                if session is not None:
                    raise CheckpointError(
                        f"{folder} has a session already; give another folder for {session}"
                    )
                self._continue()
            elif self._journal.events:
                raise DataError(f"{folder} has a journal without its snapshot, which was removed")
            else:
                self._start(session, warm)
            guarantee = self.session.guarantee
            self._guarantee = "no privacy" if guarantee is None else str(guarantee)
            self.save()
        except BaseException:
            self._locks.close()
            raise

    def _lock(self, path: Path, what: str) -> None:
        """Hold a lock until the end of this process, or raise CheckpointError."""
        lock = FileLock(path)
        try:
            lock.acquire(timeout=0)
        except Timeout:
            raise CheckpointError(
                f"another process serves {what}. One process owns a session, as two would spend "
                "its budget twice: start one worker, and give a second session its own folder"
            ) from None
        self._locks.callback(lock.release)

    def _opened_account(self) -> privacy.Account | None:
        given = self.settings.account
        if given is None:
            return None
        place = given.place if "://" in given.place else self.settings.place(given.place)
        key = None
        if given.key_file is not None:
            path = self.settings.place(given.key_file)
            try:
                key = path.read_bytes()
            except OSError as error:
                raise DataError(f"{path}: cannot be read: {error.strerror or error}") from error
        account = privacy.Account(place, given.lifetime, unit=given.unit, key=key)
        self._locks.callback(account.close)
        return account

    def _start(self, saved: str | os.PathLike[str] | None, warm: bool) -> None:
        """Serve a new session, or continue one that `Session.save` wrote."""
        settings = self.settings
        if saved is None:
            self.session = serve(
                settings.agent,
                settings.budget,
                self._info,
                noise=settings.noise,
                seed=settings.seed,
                warm=warm,
                account=self._account,
                state_dir=self._state_dir,
                list_price=settings.list_price,
                max_spread=settings.max_spread,
                **settings.parameters,
            )
        else:
            # a copy first: the file can be continued once, and not after a wrong configuration
            self._check_facts(Session.load(saved, rehearsal=True), saved)
            self.session = Session.load(saved, account=self._account, state_dir=self._state_dir)
        self._own = self.session.continuation()
        self._announced(new=True)

    def _check_facts(self, session: Session, source: Any) -> None:
        """Raise CheckpointError if a session is not the one that is configured."""
        facts = session.facts
        budget = privacy.Budget.parse(self.settings.budget)
        expected = {
            "agent": self.settings.agent,
            "budget": privacy.Budget.text(budget),
        }
        if budget is not None:
            expected["generator"] = self.settings.noise
        for name, value in expected.items():
            if facts.get(name) != value:
                raise CheckpointError(
                    f"{source}: the session has {name} {shown(facts.get(name))}, the configuration "
                    f"{shown(value)}"
                )
        if session.problem != self._info:
            raise CheckpointError(
                f"{source}: the session has the problem {session.problem.to_dict()}, the "
                f"configuration {self._info.to_dict()}"
            )

    def _announced(self, *, new: bool) -> None:
        """Write each token of the session to the journal before account or state directory.

        Args:
            new: Whether the session has no number of answered events yet.

        Raises:
            CheckpointError: If another process serves the session, or its number is lost.
        """
        if self._own is None:
            return
        if self._account is None:
            folder = state_directory() if self._state_dir is None else self._state_dir
            path = folder / f"{self._own.id}.events"
            if not new and not path.exists():
                raise CheckpointError(
                    f"the state directory {folder} has lost its record of this session; give "
                    "state_dir, the one that it had"
                )
            self._lock(folder / f"{self._own.id}.lock", f"this session, {self._own.id}")
            self._mark = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
            self._locks.callback(os.close, self._mark)
        self._own.announce = self._announce

    def _announce(self, token: str) -> None:
        self._journal.append({"token": token})
        self._journal.sync()

    def _continue(self) -> None:
        """Load the snapshot and repeat the events of the journal."""
        header, content = _read_snapshot(self._snapshot)
        terms = self.settings.terms()
        if header["terms"] != terms:
            raise CheckpointError(
                f"{self._snapshot}: its session was started with {header['terms']}, the "
                f"configuration says {terms}. A session keeps agent, budget and problem; give "
                "another folder for a new session, which spends a budget of its own"
            )
        events = self._journal.events
        self._journal.events = []
        self._own = None
        if header["session"] is not None:
            tokens = {event["token"] for event in events if "token" in event}
            own = header["session"]
            announced = tokens.union(own["tokens"])
            self._own = Continuation.after_kill(own["id"], own["generation"], announced)
        self.session = Session.restored(
            content,
            self._own,
            self._snapshot,
            account=self._account,
            state_dir=self._state_dir,
        )
        self._announced(new=False)
        self._events = header["events"]
        for event in events:
            if "n" in event and event["n"] > self._events:
                self._repeat(event, header["written_by"])
        answered = 0 if self._mark is None else int(os.pread(self._mark, 32, 0) or b"0")
        if answered > self._events:
            raise CheckpointError(
                f"{self._snapshot.parent} has {self._events} events, and {answered} were answered: "
                "it is an older copy, which would release the same customers' data twice. The "
                "session can go on with the newest files only"
            )
        self.session.confirm()

    def _repeat(self, event: dict[str, Any], written_by: str) -> None:
        """Apply an event of the journal, which must have the result that was answered."""
        if event["n"] != self._events + 1:
            raise DataError(f"the journal lacks event {self._events + 1}")
        try:
            if "drop" in event:
                self.session.drop(event["drop"])
            elif "observe" in event:
                decision, response = event["observe"]
                answer = tuple(response) if isinstance(response, list) else response
                self.session.observe(decision, answer)
            else:
                tape = Tape(base64.b64decode(event["tape"]))
                result = self._attempt(self.bodies.arguments(event["decide"]), tape)
                for dropped in event.get("dropped", ()):
                    self.session.drop(dropped)
                known = {name: event.get(name) for name in result}
                if json.loads(json.dumps(result)) != known:
                    raise CheckpointError(f"it is {result}, and it was {known}")
        except Exception as error:
            raise CheckpointError(
                f"event {event['n']} of the journal is not repeated by this version, "
                f"{version()}: {error}. Start the version {written_by}, which wrote it, "
                "end it with SIGTERM, and start this one again"
            ) from error
        self._events += 1

    def _attempt(self, arguments: dict[str, Any], tape: Tape) -> dict[str, Any]:
        """Decide; return number and action, or the kind of error that the agent failed with.

        Raises:
            CheckpointError: If the session goes on elsewhere.
            DataError: If the account cannot be written.
            HorizonExceeded: If the horizon is over.
        """
        try:
            with tape:
                number, action = self.session.decide(**arguments)
        except (CheckpointError, DataError, HorizonExceeded, OSError):
            raise
        except Exception as error:  # of the agent: the session goes on, without this response
            self._log(f"the agent failed: {type(error).__name__}: {error}")
            return {"error": type(error).__name__}
        return {"decision": number, "action": self.bodies.answer(action)}

    def decide(self, body: Any) -> list[dict[str, Any]]:
        """Decide for each row of a body of ``/decide``.

        Returns:
            ``{"decision": number, "action": action}`` for each row.

        Raises:
            BodyError: If a row is wrong; nothing was decided.
            HorizonExceeded: If the horizon leaves fewer decisions; nothing was decided.
            ServiceError: If the agent fails.
            CheckpointError: If the service has failed, see `failed`.
            DataError: Likewise.
        """
        self._check()
        rows = body if isinstance(body, list) else [body]
        parsed = self.bodies.decide(body)
        horizon = self._info.horizon
        if horizon is not None and self.session.decisions + len(rows) > horizon:
            raise HorizonExceeded(
                f"the session was planned for {horizon:,} decisions and has made "
                f"{self.session.decisions:,}: start a new session"
            )
        return [self._decided(row, arguments) for row, arguments in zip(rows, parsed)]

    def _decided(self, row: dict[str, Any], arguments: dict[str, Any]) -> dict[str, Any]:
        for _ in range(2):  # after a response that the agent failed on it can decide
            tape = Tape()
            try:
                result = self._attempt(arguments, tape)
            except (CheckpointError, DataError, OSError) as error:
                raise self._fail(error) from error
            event = {"n": self._events + 1, "decide": row, "tape": _text(tape), **result}
            if self.session.n_pending > self.settings.most_pending:
                event["dropped"] = self.session.drop_oldest(self.settings.most_pending)
            self._write(event)
            if "error" in result:
                continue
            if self.bodies.excludes(arguments, result["action"]):
                self.session.drop(result["decision"])
                self._write({"n": self._events + 1, "drop": result["decision"]})
                self._log(f"the agent chose an excluded action: {result}")
                break
            return result
        raise ServiceError("the agent failed, the log says how; the decision was not made")

    def observe(self, body: Any) -> None:
        """Record the response of each row of a body of ``/observe``.

        Raises:
            BodyError: If a row is wrong, such as a decision that was never made or was answered;
                no response was recorded.
            CheckpointError: If the service has failed, see `failed`.
            DataError: Likewise.
        """
        self._check()
        rows = self.bodies.observe(body)
        if len(rows) > 1:
            errors = [
                error
                for number, (decision, response) in enumerate(rows)
                if (error := self._refused(number, decision, response)) is not None
            ]
            if errors:
                raise BodyError(errors)
        for number, (decision, response) in enumerate(rows):
            try:
                self.session.observe(decision, response)
            except ParameterError as error:
                raise BodyError([_field_error(number, decision, error)]) from None
            self._write({"n": self._events + 1, "observe": [decision, response]})

    def _refused(self, number: int, decision: int, response: Any) -> FieldError | None:
        """Return why the session would refuse a response, None if it would not."""
        try:
            self.session.check_response(decision, response)
        except ParameterError as error:
            return _field_error(number, decision, error)
        return None

    def _check(self) -> None:
        if self.failed is not None:
            raise CheckpointError(self.failed)
        if self._closed or os.getpid() != self._process:
            raise CheckpointError("the service was closed, or this process was forked from its own")

    def _write(self, event: dict[str, Any]) -> None:
        try:
            self._journal.append(event)
        except DataError as error:  # the session in memory has more than the journal
            raise self._fail(error) from error
        self._events += 1

    def _fail(self, error: BaseException) -> CheckpointError:
        """Stop answering, because the files may lack what happened in memory."""
        self.failed = "the service has stopped, the log says why: start it again"
        self._log(f"the service has stopped: {error}")
        return CheckpointError(self.failed)

    @property
    def synced(self) -> bool:
        """Whether all events are on the disk and counted, so that they can be answered."""
        return self._answerable >= self._events

    def sync(self) -> None:
        """Wait until all events so far are on the disk. Another thread may call it.

        Raises:
            CheckpointError: If they cannot be written; the service has failed.
        """
        until = self._events
        try:
            self._journal.sync()
            self._count(until)
        except (DataError, OSError) as error:
            raise self._fail(error) from error

    def _count(self, events: int) -> None:
        """Note that so many events may be answered; the journal or the snapshot has them."""
        with self._counting:  # a snapshot may count while another thread syncs
            self._answerable = max(self._answerable, events)
            if self._mark is not None:
                os.pwrite(self._mark, b"%020d" % self._answerable, 0)

    def save_if_due(self) -> None:
        """Write a snapshot if the journal is long, or the last one old; see `save`."""
        long = self._journal.size > max(LEAST_JOURNAL, 4 * self._saved_bytes)
        old = time.monotonic() - self._saved_at > SAVE_SECONDS and self._events > self._saved_events
        if self.failed is None and (long or old):
            self.save()

    def save(self) -> None:
        """Write a snapshot and empty the journal.

        Raises:
            CheckpointError: If it cannot be written, or the session goes on elsewhere; the service
                has failed, and the files are as after the last event.
        """
        self._check()
        try:
            self.session.confirm()
            content = self.session.snapshot()
            own = self._own
            header = {
                "format": FORMAT,
                "version": VERSION,
                "written_by": version(),
                "events": self._events,
                "terms": self.settings.terms(),
                "session": None
                if own is None
                else {"id": own.id, "generation": own.generation, "tokens": sorted(own.tokens)},
                "bytes": len(content),
                "sha256": hashlib.sha256(content).hexdigest(),
            }
            write_whole(self._snapshot, json.dumps(header).encode() + b"\n" + content)
            os.chmod(self._snapshot, 0o600)
            _sync_folder(self._snapshot.parent)
            self._count(self._events)
            self._journal.clear()
        except (AgentError, CheckpointError, DataError, OSError) as error:
            raise self._fail(error) from error
        self._saved_bytes = len(content)
        self._saved_events = self._events
        self._saved_at = time.monotonic()

    @property
    def guarantee(self) -> str:
        """The session's guarantee as text."""
        return self._guarantee

    def status(self) -> dict[str, Any]:
        """Return numbers that are public: counts of decisions, and what was written when."""
        return {
            "status": "ok" if self.failed is None else "failed",
            "agent": self.settings.agent,
            "guarantee": self.guarantee,
            "decisions": self.session.decisions,
            "pending": self.session.n_pending,
            "horizon": self._info.horizon,
            "journal_bytes": self._journal.size,
            "snapshot_seconds": round(time.monotonic() - self._saved_at, 3),
            "version": version(),
        }

    def close(self) -> None:
        """Write a snapshot and free the folder and the session; a second call does nothing."""
        if self._closed:
            return
        try:
            if self.failed is None:
                self.save()
        finally:
            self._closed = True
            self._journal.close()
            self._locks.close()


def _field_error(row: int, decision: int, error: ParameterError) -> FieldError:
    """Return why a session refused a response, with the field that it is about."""
    field = "decision" if str(error).startswith(f"decision {decision} ") else "response"
    return FieldError(row, field, str(error))


def _text(tape: Tape) -> str:
    drawn = bytes(tape)
    return base64.b64encode(drawn).decode() if drawn else ""


def _sync_folder(folder: Path) -> None:
    """Make the rename of a file in a folder durable; some file systems do not support it."""
    with contextlib.suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def _read_snapshot(path: Path) -> tuple[dict[str, Any], bytes]:
    """Return header and content of a snapshot.

    Raises:
        DataError: If it is damaged, or of a newer version.
    """
    try:
        data = read_regular(path, MOST_BYTES)
    except OSError as error:
        raise DataError(f"{path}: cannot be read: {error}") from error
    line, _, content = data.partition(b"\n")
    try:
        header = json.loads(line if len(line) <= MOST_HEADER else b"")
        known = header["format"] == FORMAT and type(header["version"]) is int
        if not known or not _has_types(header):
            raise ValueError("no header")
    except (ValueError, TypeError, KeyError, RecursionError):
        raise DataError(f"{path} is no snapshot of a service") from None
    if header["version"] != VERSION:
        raise DataError(
            f"{path}: version {header['version']} of the format, written by dpb-gym "
            f"{header['written_by']}; this version, {version()}, reads version {VERSION}"
        )
    expected = (header["bytes"], header["sha256"])
    if (len(content), hashlib.sha256(content).hexdigest()) != expected:
        raise DataError(f"{path} is damaged: {len(content)} bytes of {header['bytes']}")
    return header, content


def _has_types(header: dict[str, Any]) -> bool:
    """Return whether what a header says has the right types."""
    own = header["session"]
    texts = all(isinstance(header[name], str) for name in ("terms", "written_by", "sha256"))
    counts = all(type(header[name]) is int for name in ("events", "bytes"))
    if own is not None:
        texts = texts and isinstance(own["id"], str)
        texts = texts and all(isinstance(token, str) for token in own["tokens"])
        counts = counts and type(own["generation"]) is int
    return texts and counts and header["events"] >= 0
