"""Generations of saved sessions: each is continued once.

A session has an id, and a number that grows with each continuation of a saved file, its generation.
A table holds the newest generation of each session, outside of the files. To load a file sets the
table from the file's generation n to n + 1, in one transaction. The table refuses a file whose
generation is not its newest: a copy, an older file, or one that was renamed or restored. A random
token of the table is in the newest file too, so that an older file with another number is refused.

The same table is part of an account (`Account`) and, without an account, of a file in a state
directory of the user (`Lease`). A generation can be continued twice if the table is restored or
copied together with the file. Neither can notice that.
"""

from __future__ import annotations

import hashlib
import os
import secrets
import uuid
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from dpb_gym.errors import CheckpointError
from dpb_gym.files import state_directory
from dpb_gym.privacy.database import Database, Transaction

TABLE = {
    "dpb_sessions": """
        id TEXT NOT NULL PRIMARY KEY CHECK (length(id) = 32),
        generation BIGINT NOT NULL CHECK (generation >= 1),
        token TEXT NOT NULL,
        terms TEXT NOT NULL
    """
}
APPLICATION = 0x6470626C  # "dpbl"


@dataclass
class Continuation:
    """The right to go on with a session, held by one object in memory.

    Attributes:
        id: The session, 32 hexadecimal digits.
        generation: Number of this continuation, from 1.
        announce: Called with each token before the table has it, so that a program that is killed
            can show that it is this continuation; see `dpb_gym.service`. Then `check` draws
            another token only where `rotate` asks for it, and else counts: ``TOKEN.1``.
    """

    id: str
    generation: int = 1
    # Values of the table's `token` that this object wrote, or perhaps wrote, last. A copy of the
    # process writes others. A crash of PostgreSQL can take the last ones back, with their charges.
    tokens: set[str] = field(default_factory=set, repr=False)
    announce: Callable[[str], None] | None = field(default=None, repr=False)

    @classmethod
    def after_kill(cls, id: str, generation: int, announced: Iterable[str]) -> Continuation:
        """Return the continuation of a program that was killed, at any count of its tokens."""
        return cls(id, generation, {_uncounted(token) + ANY_COUNT for token in announced})

    def wrote(self, token: str) -> bool:
        """Return whether this object wrote, or perhaps wrote, a token last."""
        return token in self.tokens or _uncounted(token) + ANY_COUNT in self.tokens


ANY_COUNT = ".*"


def _uncounted(token: str) -> str:
    return token.partition(".")[0]


class Holder(Protocol):
    """What holds the generations of sessions: `Account` or `Lease`."""

    def confirm(self, own: Continuation, content: str = "") -> str: ...


def enter(now: Transaction, terms: str = "") -> Continuation:
    """Add a new session to the table and return its first continuation."""
    token = secrets.token_hex(8)
    own = Continuation(uuid.uuid4().hex, 1, {token})
    now.run(
        "INSERT INTO dpb_sessions (id, generation, token, terms) VALUES (:id, 1, :token, :terms)",
        {"id": own.id, "token": token, "terms": terms},
    )
    return own


@dataclass(frozen=True)
class Saved:
    """What a file says of its session.

    Attributes:
        id: The session.
        generation: The continuation that saved the file.
        token: What `check` returned to it.
    """

    id: str
    generation: int
    token: str = field(repr=False)


def advance(now: Transaction, name: str, saved: Saved, terms: str) -> Continuation:
    """Continue a saved session and return its next generation.

    Args:
        now: A transaction that writes.
        name: Name of the holder, for messages.
        saved: What the file says.
        terms: What the continuation would be charged; it must equal what was stored.

    Raises:
        CheckpointError: If the session is unknown, continued before, or its terms differ.
    """
    rows = now.rows("SELECT generation, token FROM dpb_sessions WHERE id = :id", id=saved.id)
    if not rows:
        raise CheckpointError(
            f"{name} has no record of this session, so nothing shows that the file was not "
            "continued elsewhere. It was saved by another user or on another machine, or the "
            "record was deleted. Give the account or the state directory that the session had"
        )
    newest, token = rows[0]
    if (newest, token) != (saved.generation, saved.token):
        raise CheckpointError(
            f"this session was loaded before: the file has generation {saved.generation}, and "
            f"{name} has {newest}. Two continuations would release the same customers' data twice "
            "under one budget. Load the file that the newest continuation saved, if there is one"
        )
    check_terms(now, name, saved.id, terms)
    after = secrets.token_hex(8)
    own = Continuation(saved.id, saved.generation + 1, {after})
    now.run(
        "UPDATE dpb_sessions SET generation = :generation, token = :token WHERE id = :id",
        {"id": own.id, "generation": own.generation, "token": after},
    )
    return own


def check_terms(now: Transaction, name: str, session: str, terms: str) -> None:
    """Raise CheckpointError if what a session is charged is not what it entered with."""
    stored = now.rows("SELECT terms FROM dpb_sessions WHERE id = :id", id=session)
    if not stored:
        raise CheckpointError(f"{name} has no record of this session: another account charges it")
    if stored[0][0] != terms:
        raise CheckpointError(f"the guarantee in the file is not the one that {name} charges for")


def check(
    now: Transaction, name: str, own: Continuation, content: str = "", *, rotate: bool = True
) -> str:
    """Check that a continuation is the newest, and that no copy in memory has used it.

    Each check writes another token. A copy of the process, such as a restored image of a machine,
    knows older tokens only. And a database that lost its newest transactions in a crash has one.

    Args:
        now: A transaction that writes.
        name: Name of the holder, for messages.
        own: The continuation.
        content: Digest of the file that is saved, see `digest_of_file`; the token ends with it, so
            that no other file can have this token.
        rotate: Whether to draw another token although it is announced, which takes a write to the
            disk. Nothing may be released after a check without it.

    Returns:
        The token, which a file that is saved now must have.

    Raises:
        CheckpointError: If another continuation or a copy went on; nothing may be released.
    """
    rows = now.rows("SELECT generation, token FROM dpb_sessions WHERE id = :id", id=own.id)
    generation, token = rows[0] if rows else (None, "")
    token = str(token)  # a damaged table can have bytes
    if not own.wrote(token):  # each continuation has others
        raise CheckpointError(
            f"this session goes on elsewhere: {name} has generation {generation} of it, and this "
            f"one is a copy of generation {own.generation}. Or {name} lost the newest charges in a "
            "crash. This session can release nothing; continue with the other, or serve a new one"
        )
    if own.announce is not None and not rotate:
        count = int(token.partition(".")[2] or 0)
        after = f"{_uncounted(token)}.{count + 1}"
    else:
        after = secrets.token_hex(8) + content
        if own.announce is not None:
            own.announce(after)
    own.tokens = {token, after}  # either, if it stays unknown whether this transaction is committed
    now.done.append(lambda: setattr(own, "tokens", {after}))
    now.run("UPDATE dpb_sessions SET token = :token WHERE id = :id", {"id": own.id, "token": after})
    return after


def digest_of_file(key: str, digest: str) -> str:
    """Return what the table has of a saved file: the hash of its digest, with a key of the file.

    The digest alone would tell who guesses the content, with raw responses, whether it is right.

    Args:
        key: A random text in the file's header.
        digest: SHA-256 of the file's content.
    """
    return hashlib.sha256(f"{key} {digest}".encode()).hexdigest()


class Lease:
    """Generations of the sessions of one user on this machine, in a state directory.

    Args:
        folder: The state directory; None: `state_directory`. It is created by the first `enter`.

    Attributes:
        name: Name for messages.
    """

    def __init__(self, folder: str | os.PathLike[str] | None = None) -> None:
        self._folder = (state_directory() if folder is None else Path(folder)).absolute()
        self.name = f"the state directory {self._folder}"

    def enter(self) -> Continuation:
        """Add a new session.

        Raises:
            CheckpointError: If the state directory cannot be written.
            DataError: If its file is damaged.
        """
        try:
            self._folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        except OSError as error:
            raise CheckpointError(
                f"{self.name} cannot be created: {error.strerror or error}. Give state_dir=..., a "
                "folder of this machine that is not copied with the checkpoint"
            ) from error
        database = self._database()
        database.create()
        with database.transaction(durable=True) as now:
            database.fill(now)
            own = enter(now)
        database.close()
        return own

    def advance(self, saved: Saved) -> Continuation:
        """Continue a saved session; creates nothing.

        Raises:
            CheckpointError: See `advance` of this module.
            DataError: If the file of the state directory is damaged.
        """
        database = self._database()
        if not database.exists:
            raise CheckpointError(
                f"{self.name} has no record of any session. It was deleted, or the checkpoint was "
                "saved by another user or on another machine. Give state_dir=..., the one that "
                "the session had"
            )
        with database.transaction(durable=True) as now:
            database.fill(now)
            own = advance(now, self.name, saved, "")
        database.close()
        return own

    def confirm(self, own: Continuation, content: str = "") -> str:
        """Check that a continuation is the newest, and return the token of its file; see `check`.

        Raises:
            CheckpointError: If the session goes on elsewhere, or its record is lost.
        """
        database = self._database()
        if not database.exists:
            raise CheckpointError(f"{self.name} has lost its record of this session")
        with database.transaction(durable=True) as now:
            token = check(now, self.name, own, content)
        database.close()
        return token

    def _database(self) -> Database:
        return Database(
            self._folder / "generations.db",
            TABLE,
            application=APPLICATION,
            what="state file",
            logged=False,
        )
