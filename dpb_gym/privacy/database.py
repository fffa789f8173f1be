"""Transactions of an SQLite file or a PostgreSQL database, with the same SQL statements.

Statements have named parameters (``:name``), and at any time one transaction at most writes.
"""

from __future__ import annotations

import contextlib
import functools
import os
import re
import sqlite3
import threading
import time
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from dpb_gym.errors import DataError, ParameterError, optional_module

SECONDS = 30.0
"""Longest time that a transaction waits for those of other processes."""
HEADER_READS = 20
"""Times that the header of a file is read while another process writes the file."""
PAGE = 1024
LOG_PAGES = 4000  # of SQLite's log, which is then copied to the file
_MAGIC = b"SQLite format 3\0"
_MOST_NAMES = 500  # parameters of one statement: SQLite before 3.32 takes 999


class Transaction:
    """Statements of one transaction; all or none of them take effect.

    Attributes:
        done: Functions to call once the transaction took effect. None is called if that is unknown,
            as the connection broke.
    """

    def __init__(self, execute: Any) -> None:
        self._execute = execute
        self.done: list[Callable[[], None]] = []

    def rows(self, statement: str, **values: Any) -> list[tuple[Any, ...]]:
        """Return the rows of a query."""
        return [tuple(row) for row in self._execute(statement, values)]

    def run(self, statement: str, *values: Mapping[str, Any]) -> None:
        """Execute a statement once for each mapping of values, or once without values."""
        if values:
            self._execute(statement, list(values))
        else:
            self._execute(statement, {})

    def matching(self, query: str, keys: Sequence[str], **values: Any) -> dict[str, Any]:
        """Return the second column by the first, of a query that ends with ``column IN``."""
        matches: dict[str, Any] = {}
        for start in range(0, len(keys), _MOST_NAMES):
            named = {f"k{n}": key for n, key in enumerate(keys[start : start + _MOST_NAMES])}
            marks = ", ".join(f":{name}" for name in named)
            matches |= dict(self.rows(f"{query} ({marks})", **named, **values))
        return matches


class Database:
    """An SQLite file, or a PostgreSQL database of a SQLAlchemy URL.

    A connection is opened at the first transaction, and closed before a process forks, because
    SQLite forbids to carry one into a forked process. Both processes open another one.

    Args:
        place: Path of the file, or a URL such as ``"postgresql+psycopg://user@host/name"``.
        tables: Statements that create the tables, by name.
        application: Number in the header of SQLite files that have these tables.
        what: Name for messages, e.g. ``"account"``.
        logged: Whether SQLite writes ahead to a log, so that a transaction need not wait for the
            disk. The log lies beside the file while the file is open.

    Attributes:
        path: The file, or None for a URL.
        name: The path, or the URL without its password.

    Raises:
        ParameterError: If a URL is not one of PostgreSQL.
        MissingExtraError: If a URL is given without the extra ``[postgres]``.
    """

    def __init__(
        self,
        place: str | Path,
        tables: Mapping[str, str],
        *,
        application: int,
        what: str,
        logged: bool = True,
    ) -> None:
        self._tables = dict(tables)
        self._application = application
        self._what = what
        self._logged = logged
        # re-entrant: a transaction may ask for `exists` inside
        self._lock = threading.RLock()
        self._connection: Any = None
        self._places: list[Place] = []
        self._given = Path()
        self.path: Path | None = None
        if "://" in str(place):
            self._url = _postgres_url(str(place))
            self.name = str(self._url.render_as_string(hide_password=True))
        else:
            # SQLite's log lies beside the file itself, and not beside a link to it
            self._given = Path(place).absolute()
            self.path = self._given.resolve()
            self.name = str(self.path)
        _databases.add(self)

    def error(self, why: str) -> DataError:
        """Return an error that names the database."""
        return DataError(f"{self._what} {self.name}: {why}")

    @property
    def exists(self) -> bool:
        """Whether there is a file that is not empty, or a table in the database of a URL."""
        if self.path is not None:
            return self.path.exists() and (not self.path.is_file() or self.path.stat().st_size > 0)
        with self.transaction(write=False) as now:
            return bool(self._present(now))

    def recognised(self) -> bool:
        """Return whether the file's header is that of such a database; no file is created."""
        if self.path is None or not self.path.is_file():
            return False
        return self._application_of_file() == self._application

    def _application_of_file(self) -> int | None:
        """Return the number of the application in the header, None if the file is none of SQLite's.

        SQLite reads it, because a file that Python closes loses all locks of this process, also
        those of SQLite's connections. Another process would take itself for the last one then, and
        delete the log. An immutable file gets no lock, and no file beside it.
        """
        assert self.path is not None
        uri = f"{self.path.as_uri()}?mode=ro&immutable=1"
        for _ in range(HEADER_READS):
            try:
                with contextlib.closing(sqlite3.connect(uri, uri=True)) as file:
                    return int(file.execute("PRAGMA application_id").fetchone()[0])
            except sqlite3.Error as error:
                if "malformed" not in str(error):
                    return None
                # another process copies its log, and wrote the first page before the last one
                time.sleep(0.01)
        return None

    def create(self) -> None:
        """Create an empty file, which only its owner can read; the first transaction fills it."""
        if self.path is not None and not self.path.exists():
            try:
                # the ids of people are in the file
                os.close(os.open(self.path, os.O_RDWR | os.O_CREAT, 0o600))
            except OSError as error:
                raise self.error(f"cannot be created: {error.strerror or error}") from error

    def fill(self, now: Transaction) -> bool:
        """Create the tables if there are none; return whether it did.

        Raises:
            DataError: If there are other tables, or triggers, or tables of another form.
        """
        if self.path is None:  # of processes that create them at the same time, one waits
            now.run(f"SELECT pg_advisory_xact_lock({self._application})")
            encoding = str(now.rows("SELECT pg_encoding_to_char(encoding) FROM pg_database "
                                    "WHERE datname = current_database()")[0][0])  # fmt: skip
            if encoding != "UTF8":
                raise self.error(
                    f"stores texts as {encoding}, but ids can be any text: create a database "
                    "with ENCODING 'UTF8'"
                )
        present = self._present(now)
        if present:
            if present != self._expected():
                raise self.error("has other tables than one of this version: it is damaged or none")
            return False
        if self.path is not None and now.rows("PRAGMA application_id")[0][0]:
            raise self.error("is empty, and made by another program")
        for statement in self._statements().values():
            now.run(statement)
        if self.path is not None:
            now.run(f"PRAGMA application_id = {self._application}")
        return True

    def _statements(self) -> dict[str, str]:
        suffix = "" if self.path is None else " WITHOUT ROWID"
        return {
            name: f"CREATE TABLE {name} ({' '.join(columns.split())}){suffix}"
            for name, columns in self._tables.items()
        }

    def _expected(self) -> dict[str, str]:
        if self.path is not None:
            return self._statements()
        return {name: _columns(columns) for name, columns in self._tables.items()}

    def _present(self, now: Transaction) -> dict[str, str]:
        """Return tables, triggers and rules, with the statements that made them in SQLite.

        In a database of a URL other tables are left out, and tables have their columns.
        """
        if self.path is None:
            names = list(self._tables)
            tables = now.matching(
                "SELECT table_name, columns FROM ("
                "SELECT table_name, string_agg(column_name || ' ' || data_type, ', ' "
                "ORDER BY ordinal_position) AS columns FROM information_schema.columns "
                "WHERE table_schema = current_schema() GROUP BY table_name"
                ") AS present WHERE table_name IN",
                names,
            )
            tables |= now.matching(
                "SELECT table_name, table_type FROM information_schema.tables "
                "WHERE table_schema = current_schema() AND table_type <> 'BASE TABLE' "
                "AND table_name IN",
                names,
            )
            tables |= now.matching(
                "SELECT trigger_name, 'TRIGGER' FROM information_schema.triggers "
                "WHERE event_object_schema = current_schema() AND event_object_table IN",
                names,
            )
            tables |= now.matching(
                "SELECT rulename, 'RULE' FROM pg_rules "
                "WHERE schemaname = current_schema() AND tablename IN",
                names,
            )
        else:
            # the statements themselves, so that a changed constraint or trigger is noticed
            parts = now.rows("SELECT name, type, sql FROM sqlite_master")
            # SQLite's own tables and indexes have reserved names; it makes no trigger and no view
            own = {name for name, kind, _ in parts if kind in ("table", "index")}
            own = {name for name in own if name.startswith("sqlite_")}
            tables = {name: sql for name, _, sql in parts if name not in own}
        return tables

    def check_pages(self) -> None:
        """Check the structure of an SQLite file.

        Raises:
            DataError: If a page is damaged, a row breaks a constraint of its table, or rows are out
                of order, so that a look-up does not find one.
        """
        if self.path is not None:
            with self.transaction(write=False) as now:
                (verdict,) = now.rows("PRAGMA integrity_check(1)")[0]
            if verdict != "ok":
                raise self.error(f"is damaged: {verdict}")

    def empty_log(self) -> None:
        """Copy the log to the file, as far as other connections allow it.

        Closing does the same, but hides that the disk is full.

        Raises:
            DataError: If the file cannot be written. The log has what it had.
        """
        with self._lock:
            connection = self._connection
            if connection is None or self.path is None:
                return
            self._check_places()
            try:
                connection.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchall()
            except sqlite3.Error as error:
                raise self.error(
                    f"its log could not be copied to the file: {error}. The file and {self._log} "
                    "belong together until the account was opened and closed again"
                ) from error

    @property
    def _log(self) -> Path:
        """SQLite's log beside the file."""
        assert self.path is not None
        return self.path.with_name(f"{self.path.name}-wal")

    def close(self) -> None:
        """Close the connection; the next transaction opens the file that is there then."""
        with self._lock:
            self._disconnect()
            self._places = []

    def _disconnect(self) -> None:
        """Close the connection; the next transaction opens another one, to the same file."""
        connection = self._connection
        self._connection = None
        if connection is not None:
            connection.close()

    @contextlib.contextmanager
    def transaction(self, *, write: bool = True, durable: bool = False) -> Iterator[Transaction]:
        """Run statements as one transaction, which is rolled back after an exception.

        Args:
            write: Whether to wait until no other transaction writes, and to keep others from it.
            durable: Whether to wait until this transaction and all earlier ones are on the disk.
                Without it a transaction survives the end of this process, but perhaps not a power
                failure.

        Raises:
            DataError: If the database is damaged or cannot be used.
        """
        with self._lock:
            own = self._sqlite if self.path is not None else self._postgres
            with own(write, durable) as now:
                yield now
            for each in now.done:
                each()

    @contextlib.contextmanager
    def _sqlite(self, write: bool, durable: bool) -> Iterator[Transaction]:
        connection: sqlite3.Connection | None = None
        try:
            connection = self._opened_file()
            self._check_places()
            if self._logged:
                connection.execute(f"PRAGMA synchronous = {'FULL' if durable else 'NORMAL'}")
            # the lock from the start: a reader that turns into a writer can fail
            connection.execute("BEGIN IMMEDIATE" if write else "BEGIN")
            yield Transaction(functools.partial(_on_sqlite, connection))
            connection.execute("COMMIT")
        except (
            sqlite3.Error,
            UnicodeDecodeError,
        ) as error:  # the second: names of a damaged schema
            _roll_back(connection)
            if "locked" in str(error):
                raise self.error(
                    f"another process has written for more than {SECONDS:.0f} seconds"
                ) from error
            raise self.error(f"is damaged or cannot be used: {error}") from error
        except BaseException:
            _roll_back(connection)
            raise

    def _opened_file(self) -> sqlite3.Connection:
        if self._connection is None:
            assert self.path is not None
            self._check_header()
            connection = sqlite3.connect(
                f"{self.path.as_uri()}?mode=rw",
                uri=True,
                timeout=SECONDS,
                isolation_level=None,
                check_same_thread=False,
            )
            try:
                # a file from elsewhere must not run functions by its schema
                connection.execute("PRAGMA trusted_schema = OFF")
                # takes effect in a new file: rows are short, and each charge writes a page
                connection.execute(f"PRAGMA page_size = {PAGE}")
                connection.execute(f"PRAGMA wal_autocheckpoint = {LOG_PAGES}")
                if self._logged:
                    self._use_log(connection)
                # opens the log, which exists from then on until the last connection is closed
                connection.execute("SELECT count(*) FROM sqlite_master").fetchall()
            except BaseException:
                connection.close()
                raise
            self._connection = connection
            # a file that was open before a fork is the same one; its log is new
            now = self._places_now()
            self._places = [*(self._places or now)[:1], *now[1:]]
        opened: sqlite3.Connection = self._connection
        return opened

    def _places_now(self) -> list[Place]:
        """Return what identifies the file, its log, and the memory that its processes share.

        The file is that of the path that was given, as others open it by a link.
        """
        assert self.path is not None
        shared = self.path.with_name(f"{self.path.name}-shm")
        return [_place(path) for path in (self._given, self._log, shared)]

    def _check_places(self) -> None:
        """Raise DataError if an open file is no longer at its path: others would not see it."""
        # by device and inode, as the path of another file can be the same
        now = self._places_now()
        if now[0] != self._places[0]:
            raise self.error("was deleted, renamed or replaced while it was open")
        if now != self._places:
            raise self.error(
                "its log was deleted or replaced while it was open (FILE-wal or FILE-shm). Charges "
                "since it was opened may be lost: close it in all processes, and open it again"
            )

    def _check_header(self) -> None:
        """Raise DataError if the file is none of SQLite's, before SQLite makes files beside it."""
        assert self.path is not None
        if not self.path.is_file():
            raise self.error("is no regular file")
        if self.path.stat().st_nlink > 1:
            raise self.error("has another name, a hard link: SQLite keeps a log for each name")
        if self._application_of_file() is not None:
            return
        try:
            with open(self.path, "rb") as file:
                start = file.read(16)
        except OSError as error:
            raise self.error(f"cannot be read: {error.strerror or error}") from error
        if start.strip(b"\0") and start != _MAGIC:  # zeros: another process is creating it
            raise self.error(f"is no {self._what}: it is no SQLite file")

    def _use_log(self, connection: sqlite3.Connection) -> None:
        """Switch to the write-ahead log, once the tables are in the file itself.

        SQLite's own waiting does not apply to this switch.
        """
        (application,) = connection.execute("PRAGMA application_id").fetchone()
        if application != self._application:
            return  # new, or of something else, which `fill` tells
        until = time.monotonic() + SECONDS
        while True:
            try:
                (mode,) = connection.execute("PRAGMA journal_mode = WAL").fetchone()
            except sqlite3.OperationalError as error:
                if "locked" not in str(error) or time.monotonic() > until:
                    raise
                time.sleep(0.01)
                continue
            if mode != "wal":
                raise self.error("needs a local file system, on which processes share memory")
            return

    @contextlib.contextmanager
    def _postgres(self, write: bool, durable: bool) -> Iterator[Transaction]:
        from sqlalchemy import exc

        try:
            if self._connection is None:
                self._connection = _connect(self._url)
            with self._connection.begin():
                now = Transaction(functools.partial(_on_postgres, self._connection))
                now.run(f"SET LOCAL synchronous_commit TO {'ON' if durable else 'OFF'}")
                if write:
                    # like SQLite: one writer at a time, so that what it has read stays true
                    now.run(f"SELECT pg_advisory_xact_lock({self._application})")
                yield now
        except exc.SQLAlchemyError as error:
            self.close()
            first = str(getattr(error, "orig", error)).partition("\n")[0]
            raise self.error(f"cannot be used: {first}") from error


def _columns(statement: str) -> str:
    """Return names and types of the columns of a table, as PostgreSQL has them."""
    columns = re.findall(r"^\s*(\w+) (TEXT|BIGINT|DOUBLE PRECISION)\b", statement, re.MULTILINE)
    return ", ".join(f"{name} {kind.lower()}" for name, kind in columns)


Place = tuple[int, int] | None
"""Device and inode of a file, None if there is none."""


def _place(path: Path) -> Place:
    """Return what identifies the file at a path, None if there is none."""
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_dev, status.st_ino


def _on_sqlite(connection: sqlite3.Connection, statement: str, values: Any) -> Any:
    if isinstance(values, list):
        return connection.executemany(statement, values)
    return connection.execute(statement, values)


def _on_postgres(connection: Any, statement: str, values: Any) -> Any:
    return connection.execute(_text(statement), values)


@functools.lru_cache(maxsize=1000)
def _text(statement: str) -> Any:
    from sqlalchemy import text

    return text(statement)


def _roll_back(connection: sqlite3.Connection | None) -> None:
    if connection is not None and connection.in_transaction:
        with contextlib.suppress(sqlite3.Error):
            connection.execute("ROLLBACK")


def _postgres_url(place: str) -> Any:
    """Return the SQLAlchemy URL of a PostgreSQL database."""
    sqlalchemy: Any = optional_module("sqlalchemy", "an account in PostgreSQL", "postgres")
    try:
        url = sqlalchemy.make_url(place)
    except sqlalchemy.exc.ArgumentError:
        raise ParameterError("this URL cannot be read; write postgresql://user@host/name") from None
    if url.get_backend_name() != "postgresql":
        raise ParameterError(
            f"a URL must be one of PostgreSQL, postgresql://user@host/name, got "
            f"{url.render_as_string(hide_password=True)}; SQLite takes the path of a file"
        )
    # SQLAlchemy's default driver is another library than the extra installs
    if url.drivername == "postgresql":
        url = url.set(drivername="postgresql+psycopg")
    return url


def _connect(url: Any) -> Any:
    from sqlalchemy import create_engine, pool

    optional_module("psycopg", "an account in PostgreSQL", "postgres")
    # no pool: the connection is closed before a fork
    # texts in any database, so that `fill` can read its encoding
    texts = {"client_encoding": "utf8"}
    engine = create_engine(
        url, poolclass=pool.NullPool, isolation_level="READ COMMITTED", connect_args=texts
    )
    return engine.connect()


_databases: weakref.WeakSet[Database] = weakref.WeakSet()
_held: list[Database] = []


def _before_fork() -> None:
    """Close all connections, and hold their locks so that no transaction is open in a fork."""
    for database in list(_databases):
        database._lock.acquire()
        _held.append(database)
        database._disconnect()


def _after_fork() -> None:
    while _held:
        _held.pop()._lock.release()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        before=_before_fork, after_in_parent=_after_fork, after_in_child=_after_fork
    )
