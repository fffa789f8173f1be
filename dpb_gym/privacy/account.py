"""Lifetime privacy budgets of people, in a database that sessions and processes share.

**Unit and relation.** Two worlds differ in what one person does: the contexts and responses of all
her rounds, in all sessions that share the account (in an account of unit ``"user-rewards"``, the
responses). Who comes in which round of which session is the same in both worlds and public, as in
every user unit (`dpb_gym.privacy.guarantee.PUBLIC`). So is everything in the database.

**Filter.** Every release of a session is a mechanism that may be chosen from all earlier releases,
of other sessions too. A person with n records in a session loses at most the rho of a group of n
in it (`Composition.group`: n^2 rho of zCDP). A record is admitted if the sum of the person's rhos
stays within the limit. The admission depends on public data and on earlier releases only, so a
refusal reveals nothing. Then all releases together are rho-zCDP for each person:

* Feldman & Zrnic 2021, Individual Privacy Accounting via a Renyi Filter: adaptive releases whose
  individual Renyi losses sum up to at most B, for every sequence of outputs, have loss at most B.
  Whitehouse, Ramdas, Rogers & Wu 2023 prove the filter for (approximate) zCDP.
* Haney et al. 2023: filters and odometers remain valid if interactive mechanisms run concurrently
  with adaptively chosen parameters, as sessions at the same time do.

**Odometer.** The rho that a person has spent is a random number if sessions are chosen from earlier
releases. An (epsilon, delta) statement about it must hold at the time at which it is read. Rogers,
Roth, Ullman & Vadhan 2016 call such a bound an odometer. `Account.epsilon` rounds the spent rho up
to one of `LEVELS` fixed limits and gives each a part delta / LEVELS (union bound).
"""

from __future__ import annotations

import functools
import hashlib
import json
import math
import unicodedata
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from dpb_gym import validation
from dpb_gym.errors import BudgetError, CheckpointError, DPBError, ParameterError, shown
from dpb_gym.privacy import generations
from dpb_gym.privacy.accounting import epsilon
from dpb_gym.privacy.budget import Budget, report_delta
from dpb_gym.privacy.calibration import equivalent_rho
from dpb_gym.privacy.composition import Composition
from dpb_gym.privacy.database import Database, Transaction
from dpb_gym.privacy.events import ZCDPEvent
from dpb_gym.privacy.generations import Continuation, Saved
from dpb_gym.privacy.guarantee import NOTIONS, Guarantee, weakest
from dpb_gym.privacy.ledger import TOLERANCE

UNITS = ("user", "user-rewards")
LEVELS = 20
"""Limits that the odometer rounds up to."""
APPLICATION = 0x64706261  # "dpba"
OLD_FORMAT = b'{"format": "dpb-gym account'
LONGEST_ID = 200
SHORTEST_KEY = 16
LONGEST_KEY = 64  # bytes; BLAKE2b takes no more
LARGEST_RHO = 1e300  # of the constraint below
TABLES = {
    "dpb_account": """
        one BIGINT NOT NULL PRIMARY KEY CHECK (one = 1),
        version BIGINT NOT NULL CHECK (version = 2),
        lifetime TEXT NOT NULL,
        unit TEXT NOT NULL,
        notion TEXT NOT NULL,
        key_check TEXT NOT NULL,
        commits BIGINT NOT NULL
    """,
    "dpb_people": """
        person TEXT NOT NULL PRIMARY KEY CHECK (length(person) > 0),
        spent DOUBLE PRECISION NOT NULL CHECK (spent >= 0.0 AND spent < 1e300)
    """,
    **generations.TABLE,
    "dpb_records": """
        session TEXT NOT NULL,
        person TEXT NOT NULL,
        count BIGINT NOT NULL CHECK (count >= 1 AND count < 1000000000000),
        PRIMARY KEY (session, person)
    """,
}


class Account:
    """The rho that each person has spent, in a database.

    `charge` is one transaction, and so is `charge_all` for many people. All processes see it when
    the call returns, and it survives the end of this process. `commit` waits until all charges are
    on the disk. A `Session` commits before anything that depends on its charges leaves it.

    The account also holds the generation of each saved session (`dpb_gym.privacy.generations`) and
    the number of records of each person in each session, which decides what the next one costs.

    Args:
        place: Path of an SQLite file on a local file system, which is created if there is none.
            Or the URL of a PostgreSQL database that several machines share, such as
            ``"postgresql://user@host/name"`` (extra ``[postgres]``). A database has one account.
        lifetime: Budget of each person, as `Budget` or text. It can be left out if the account
            exists.
        unit: ``"user"`` (contexts and responses are protected) or ``"user-rewards"``.
        key: Secret of 16 to 64 bytes. The database then has BLAKE2b hashes of the user ids by
            this key instead of the ids. The account can be opened with the same key only.

    Attributes:
        path: The file, or None for a URL.
        name: "the account " and the path or the URL without its password.
        lifetime: Budget of each person.
        unit: See `Guarantee`.
        limit: The largest rho of a person: the rho of `lifetime`, or the largest rho of zCDP that
            implies its epsilon and delta.

    Raises:
        BudgetError: If the account has another lifetime or unit, or there is neither an account
            nor a lifetime. Or if the lifetime names a trust model, or its rho is 1e300 or more, or
            too small for double precision.
        DataError: If the database is damaged, has a row that no charge can have written, is no
            account, or an account of the old file format.
        ParameterError: If the URL is not one of PostgreSQL, or the key is not the account's.
        MissingExtraError: If a URL is given without the extra ``[postgres]``.

    Example:
        >>> import tempfile
        >>> folder = tempfile.TemporaryDirectory()
        >>> account = Account(f"{folder.name}/people.db", lifetime="rho=1")
        >>> [account.charge(user, rho) for user, rho in ((7, 0.75), ("Ana", 0.5), (7, 0.5))]
        [True, True, False]
        >>> account.spent("Ana"), account.spent(7), account.spent(8)
        (0.5, 0.75, 0.0)
        >>> account.close()
    """

    def __init__(
        self,
        place: str | Path,
        lifetime: Budget | str | None = None,
        *,
        unit: str = "user",
        key: bytes | None = None,
    ) -> None:
        asked = Budget.parse(lifetime)
        if asked is not None:
            _limit(asked)  # before there is a file of an account that cannot be opened
        validation.choice("unit", unit, UNITS)
        self._key = _checked_key(key)
        self._database = Database(place, TABLES, application=APPLICATION, what="account")
        self.path = self._database.path
        self.name = f"the account {self._database.name}"
        # numbers of transactions with charges, of which a power failure takes none back
        self._written = 0
        self._committed = 0
        try:
            self._refuse_old_format()
            if asked is None and not self._database.exists:
                raise BudgetError(
                    f"{self.name} does not exist: give the lifetime budget of a person"
                )
            self.lifetime, self.unit = self._opened(asked, unit)
            if asked is not None and (asked, unit) != (self.lifetime, self.unit):
                raise BudgetError(
                    f"{self.name} has the lifetime {self.lifetime} per {self.unit}, which cannot "
                    f"be changed; got {asked} per {unit}"
                )
            self.limit = _limit(self.lifetime)
            self._most = self.limit * (1 + TOLERANCE)
            self._check_rows()
        except BaseException:
            self._database.close()
            raise

    def _opened(self, asked: Budget | None, unit: str) -> tuple[Budget, str]:
        """Return lifetime and unit of the database, which is filled if it is empty."""
        self._database.create()
        with self._database.transaction(durable=True) as now:
            if self._database.fill(now):
                if asked is None:
                    raise BudgetError(f"{self.name} is empty: give the lifetime budget of a person")
                now.run(
                    "INSERT INTO dpb_account VALUES "
                    "(1, 2, :lifetime, :unit, :notion, :key_check, 0)",
                    {
                        "lifetime": str(asked),
                        "unit": unit,
                        "notion": NOTIONS[0],
                        "key_check": self._key_check(),
                    },
                )
            facts = self._facts(now)
        self._database.close()  # the next connection writes ahead to a log
        return facts["lifetime"], str(facts["unit"])

    @classmethod
    def holding(cls, path: str | Path, session: str) -> Account | None:
        """Return the account in an existing file if it holds a session, else None.

        Nothing is created, and a file that is no account is not opened as a database. An account
        with a key is never returned.

        Args:
            path: Path of a file.
            session: Id of the session.
        """
        file = Path(path)  # a URL is no path
        if not Database(file, TABLES, application=APPLICATION, what="account").recognised():
            return None
        try:
            account = cls(file)
            with account._database.transaction(write=False) as now:
                known = now.rows("SELECT 1 FROM dpb_sessions WHERE id = :id", id=session)
        except DPBError:
            return None
        if known:
            return account
        account._database.close()  # `close` would write the log to the file
        return None

    def _refuse_old_format(self) -> None:
        path = self._database.path
        # a file that Python closes loses SQLite's locks
        if path is not None and path.is_file() and not self._database.recognised():
            with open(path, "rb") as file:
                start = file.read(len(OLD_FORMAT))
            if start == OLD_FORMAT:
                raise self._database.error(
                    "has the old format. Make an account at another path and charge each person "
                    "what she has spent: numpy.fromfile(PATH, '<f8', offset=4096)[user], or the "
                    "last number of the user in PATH-log if that is larger"
                )

    def _key_check(self) -> str:
        """Return a text that differs between keys, "" without a key."""
        return "" if self._key is None else _hashed(self._key, b"check", b"")

    def _facts(self, now: Transaction) -> dict[str, Any]:
        """Return the row of the account."""
        rows = now.rows("SELECT version, lifetime, unit, notion, key_check FROM dpb_account")
        try:
            (version, lifetime, unit, notion, key_check) = rows[0]
            budget = Budget.parse(lifetime)
        except (DPBError, IndexError):
            raise self._database.error("is damaged: it has no valid lifetime") from None
        valid = version == 2 and unit in UNITS and notion in NOTIONS
        if len(rows) != 1 or not valid or budget is None or budget.trust != "curator":
            raise self._database.error("is damaged: it has no valid lifetime, unit and notion")
        if key_check != self._key_check():
            wanted = "no key" if not key_check else "the key that it was made with"
            raise ParameterError(f"{self.name} can only be opened with {wanted}")
        return {"lifetime": budget, "unit": unit, "notion": notion}

    def _check_rows(self) -> None:
        """Check every row.

        Raises:
            DataError: If there is a row that no charge can have written.
        """
        typed = self._database.path is not None
        checks = {
            "a number of commits below 0": (
                "SELECT one FROM dpb_account WHERE commits IS NULL OR NOT (commits >= 0)"
                + (" OR typeof(commits) <> 'integer'" if typed else "")
            ),
            "a person who spent less than 0, more than the lifetime, or no number": (
                "SELECT person FROM dpb_people WHERE spent IS NULL "
                "OR NOT (spent >= 0.0 AND spent <= :most)"
                + (" OR typeof(spent) <> 'real' OR typeof(person) <> 'text'" if typed else "")
            ),
            "a session without a valid generation": (
                "SELECT id FROM dpb_sessions WHERE generation IS NULL OR token IS NULL "
                "OR terms IS NULL OR NOT (generation >= 1 AND length(id) = 32)"
                + (
                    " OR typeof(generation) <> 'integer' OR typeof(id) <> 'text'"
                    " OR typeof(token) <> 'text' OR typeof(terms) <> 'text'"
                    if typed
                    else ""
                )
            ),
            "records that belong to no session or person, or are not counted from 1": (
                "SELECT person FROM dpb_records WHERE count IS NULL OR NOT (count >= 1)"
                + (" OR typeof(count) <> 'integer'" if typed else "")
                + " OR NOT EXISTS (SELECT 1 FROM dpb_sessions WHERE id = dpb_records.session)"
                " OR NOT EXISTS (SELECT 1 FROM dpb_people"
                " WHERE dpb_people.person = dpb_records.person)"
            ),
        }
        self._database.check_pages()
        with self._database.transaction(write=False) as now:
            for what, query in checks.items():
                values = {"most": self._most} if ":most" in query else {}
                if now.rows(f"{query} LIMIT 1", **values):
                    raise self._database.error(f"is damaged: it has {what}")

    def person(self, user: int | str) -> str:
        """Return what the database calls a person: her id as text, or its hash by the key.

        The number 7 and the text "7" are the same person.

        Args:
            user: An integer from 0 to 2^53, or a text of at most 200 characters without control,
                direction and zero-width characters, in Unicode's composed form (NFC), as the other
                forms look the same. All other differences, of case or spaces, are differences of
                persons.

        Raises:
            ParameterError: If it is neither.
        """
        if isinstance(user, str):
            name = validation.text("user", user)
            # two forms of one letter look the same, and would be two people with two lifetimes
            if not unicodedata.is_normalized("NFC", name):
                raise ParameterError(
                    f"user must be in Unicode's composed form, got {shown(user)}; give "
                    "unicodedata.normalize('NFC', user)"
                )
            if len(name) > LONGEST_ID:
                raise ParameterError(
                    f"user must have at most {LONGEST_ID} characters, got {shown(user)}"
                )
        elif isinstance(user, (int, np.integer)):
            name = str(validation.integer("user", user, 0))
        else:
            raise ParameterError(f"user must be an integer >= 0 or a text, got {shown(user)}")
        return name if self._key is None else _hashed(self._key, b"person", name.encode())

    def charge(self, user: int | str, rho: float) -> bool:
        """Charge a person, unless the total would exceed the limit; return whether it did.

        Call `commit` before anything that depends on the record is released.

        Args:
            user: See `person`.
            rho: Cost of the record, >= 0.

        Raises:
            ParameterError: If an argument is out of range.
            DataError: If the database is damaged or cannot be written; nobody is charged.
        """
        return self.charge_all([(user, rho)])[0]

    def charge_all(self, charges: Iterable[tuple[int | str, float]]) -> list[bool]:
        """Charge people one after the other, in one transaction.

        Args:
            charges: Users and costs, as for `charge`.

        Returns:
            Whether each was charged.

        Raises:
            ParameterError: If an argument is out of range; nobody is charged.
            DataError: If the database is damaged or cannot be written; nobody is charged.
        """
        asked = [(self.person(user), validation.real("rho", rho, 0.0)) for user, rho in charges]
        with self._database.transaction() as now:
            spent = self._spent(now, [person for person, _ in asked])
            # in the order of the calls, as one person can have several of the records
            before = dict(spent)
            admitted = [self._admit(spent, person, rho) for person, rho in asked]
            self._write_spent(now, before, spent)
            self._written += 1
        return admitted

    def _spent(self, now: Transaction, persons: Iterable[str]) -> dict[str, float]:
        """Return what people have spent; new ones are left out."""
        keys = list(dict.fromkeys(persons))
        amounts = now.matching("SELECT person, spent FROM dpb_people WHERE person IN", keys)
        for person, spent in amounts.items():
            if not (isinstance(spent, float) and 0.0 <= spent <= self._most):
                raise self._database.error(
                    f"is damaged: person {shown(person)} has spent {shown(spent)} of {self.limit:g}"
                )
        return amounts

    def _admit(self, spent: dict[str, float], person: str, rho: float) -> bool:
        """Add a cost to what a person has spent if the limit allows it; return whether it does."""
        total = spent.get(person, 0.0) + rho
        if total > self._most:
            return False
        spent[person] = total
        return True

    @staticmethod
    def _write_spent(now: Transaction, before: dict[str, float], spent: dict[str, float]) -> None:
        changed = [
            {"person": person, "spent": total}
            for person, total in spent.items()
            if total != before.get(person)
        ]
        if changed:
            now.run(
                "INSERT INTO dpb_people (person, spent) VALUES (:person, :spent) "
                "ON CONFLICT (person) DO UPDATE SET spent = excluded.spent",
                *changed,
            )

    def commit(self) -> None:
        """Wait until all charges of this object are on the disk.

        Raises:
            DataError: If the database cannot be written; the next call tries again.
        """
        if self._uncommitted:
            with self._database.transaction(durable=True) as now:
                # another thread can charge before the last line
                written = self._written
                # a change, because a transaction without one does not wait for the disk
                now.run("UPDATE dpb_account SET commits = commits + 1")
            self._committed = max(self._committed, written)

    @property
    def _uncommitted(self) -> bool:
        """Whether a power failure can take a charge of this object back."""
        return self._committed < self._written

    def close(self) -> None:
        """Commit and close the database; the next call opens it again.

        If it is closed everywhere, all charges are in the file itself.

        Raises:
            DataError: If the disk is full, or the log was deleted. The database is closed. After
                a full disk all charges are in the file and its log together, and the next `close`
                with room writes them to the file.
        """
        try:
            self.commit()
            self._database.empty_log()
        finally:
            self._database.close()

    def spent(self, user: int | str) -> float:
        """Return the rho that a person has spent."""
        person = self.person(user)
        with self._database.transaction(write=False) as now:
            return self._spent(now, [person]).get(person, 0.0)

    def epsilon(self, user: int | str, delta: float | None = None) -> float:
        """Return an odometer's reading: a bound on epsilon that holds whenever it is read.

        A bound that holds at all times together is larger than one for a fixed time. For lifetimes
        of epsilon 0.1 to 10 and delta 1e-9 to 1e-5, at their delta, the reading of a person who has
        spent everything is 7% to 22% above the epsilon of the lifetime: 12% at epsilon 3 and delta
        1e-6. For larger deltas it is more. What a person can lose in all is the lifetime.

        Args:
            user: See `person`.
            delta: That of the lifetime by default, or 1e-5.
        """
        delta = report_delta(self.lifetime) if delta is None else delta
        delta = validation.real("delta", delta, 0.0, 1.0, open_low=True)
        # rounding down by a tolerance: a person at exactly a level is not one above it
        level = math.ceil(LEVELS * self.spent(user) / self.limit * (1 - TOLERANCE)) / LEVELS
        if not level:
            return 0.0
        return epsilon(Composition.of(ZCDPEvent(level * self.limit)), delta / LEVELS)

    def enter(self, guarantee: Guarantee) -> Continuation:
        """Add a session, whose guarantee is per round or per user.

        Returns:
            The id of the session and its first generation.

        Raises:
            BudgetError: If it does not protect what the account protects, or has no rho.
        """
        self._covered(guarantee)
        with self._database.transaction(durable=True) as now:
            # the notion of an account without sessions is none of theirs
            entered = now.rows("SELECT id FROM dpb_sessions LIMIT 1")
            earlier = [self._facts(now)["notion"]] if entered else []
            notion = weakest([*earlier, guarantee.notion], self.unit)
            now.run("UPDATE dpb_account SET notion = :notion", {"notion": notion})
            return generations.enter(now, _terms(guarantee))

    def _covered(self, guarantee: Guarantee) -> None:
        one = {"user": "user-round", "user-rewards": "reward"}[self.unit]
        if not guarantee.covers(NOTIONS[-1], one, "replace-one") or guarantee.rho is None:
            raise BudgetError(
                f"{self.name} counts the rho of each {self.unit} under replace-one, which does "
                f"not follow from: {guarantee}"
            )

    def check_terms(self, own: Continuation, guarantee: Guarantee) -> None:
        """Raise CheckpointError if a session entered with a guarantee of another cost.

        The records so far were charged that cost.
        """
        with self._database.transaction(write=False) as now:
            generations.check_terms(now, self.name, own.id, _terms(guarantee))

    def advance(self, saved: Saved, guarantee: Guarantee) -> Continuation:
        """Continue a saved session, once per generation; see `dpb_gym.privacy.generations`.

        Args:
            saved: What the file says of its session.
            guarantee: Guarantee in the file; it must be the one with which the session entered.

        Raises:
            CheckpointError: If the account does not hold this session, its newest generation is
                another, or it charges for another guarantee.
        """
        self._covered(guarantee)
        with self._database.transaction(durable=True) as now:
            return generations.advance(now, self.name, saved, _terms(guarantee))

    def confirm(self, own: Continuation, content: str = "") -> str:
        """Check that a continuation is the newest of its session, and commit all charges.

        Args:
            own: The continuation.
            content: Digest of the file that is saved; see `dpb_gym.privacy.generations.check`.

        Returns:
            The token of a file that is saved now; see `dpb_gym.privacy.generations.check`.

        Raises:
            CheckpointError: If the session goes on elsewhere.
        """
        with self._database.transaction(durable=True) as now:
            written = self._written
            token = generations.check(now, self.name, own, content)
        self._committed = max(self._committed, written)
        return token

    def summary(self) -> dict[str, Any]:
        """Return what is public of the account, as plain JSON values."""
        with self._database.transaction(write=False) as now:
            facts = self._facts(now)
            people, largest = now.rows(
                "SELECT count(*), max(spent) FROM dpb_people WHERE spent > 0.0"
            )[0]
        return {
            "lifetime": str(facts["lifetime"]),
            "unit": facts["unit"],
            "notion": facts["notion"],
            "people": int(people),
            "largest_rho": float(largest or 0.0),
        }


class SessionCharges:
    """Admission of the records of one session.

    A guarantee per user covers all her rounds and is charged with her first record. A guarantee
    per round is charged with every record: her first n cost as much as a group of n. The account
    counts the records.

    Every admission and every `commit` checks that no other continuation of the session has gone on.

    Args:
        account: The account.
        guarantee: Guarantee of the session.
        own: Continuation of a session that entered before; None: a new session enters.

    Attributes:
        account: The account.
        own: Id and generation of the session.
        charged: Number of records that the account has charged for the session.

    Raises:
        BudgetError: See `Account.enter`.
        CheckpointError: See `Account.check_terms`.
    """

    def __init__(
        self, account: Account, guarantee: Guarantee, own: Continuation | None = None
    ) -> None:
        self.account = account
        self.charged = 0
        if own is None:
            own = account.enter(guarantee)
        else:
            account.check_terms(own, guarantee)
            self.charged = self._charged_by_account(own)
        self.own = own
        assert guarantee.curve is not None
        self._curve = guarantee.curve
        self._once = guarantee.unit in UNITS
        self._rho = functools.cache(self._group_rho)

    def admit(self, user: int | str) -> bool:
        """Return whether the agent may learn from a record of this user, and charge it if so."""
        return self.admit_all([user])[0]

    def admit_all(self, users: Iterable[int | str]) -> list[bool]:
        """Admit records one after the other, in one transaction; see `admit`.

        Raises:
            CheckpointError: If the session goes on elsewhere; nobody is charged.
            DataError: If the database is damaged or cannot be written; nobody is charged.
        """
        return self.admit_persons([self.account.person(user) for user in users])

    def admit_persons(self, persons: Sequence[str]) -> list[bool]:
        """Admit records of people that `Account.person` names; see `admit_all`."""
        account = self.account
        with account._database.transaction() as now:
            generations.check(now, account.name, self.own, rotate=False)
            spent = account._spent(now, persons)
            before = dict(spent)
            counts = now.matching(
                "SELECT person, count FROM dpb_records WHERE session = :session AND person IN",
                list(dict.fromkeys(persons)),
                session=self.own.id,
            )
            # rows that do not change are not written: a database page per row
            counted = dict(counts)
            admitted = [self._admit(spent, counts, person) for person in persons]
            account._write_spent(now, before, spent)
            changed = [
                {"session": self.own.id, "person": person, "count": count}
                for person, count in counts.items()
                if count != counted.get(person)
            ]
            if changed:
                now.run(
                    "INSERT INTO dpb_records (session, person, count) "
                    "VALUES (:session, :person, :count) "
                    "ON CONFLICT (session, person) DO UPDATE SET count = excluded.count",
                    *changed,
                )
            account._written += 1
            new = sum(row["count"] - counted.get(row["person"], 0) for row in changed)
            now.done.append(lambda: setattr(self, "charged", self.charged + new))
        return admitted

    def check_charged(self, charged: int) -> None:
        """Check that the account still has the charges of a session that continues.

        A power failure can take them back, and leave the session's files.

        Args:
            charged: What `charged` was when the session learned from its newest record.

        Raises:
            CheckpointError: If it has fewer; the session can release nothing.
        """
        stored = self._charged_by_account(self.own)
        if stored < charged:
            raise CheckpointError(
                f"{self.account.name} has {stored} charges of this session, which has learned from "
                f"{charged} records: it lost the newest ones in a crash, or is an older copy. "
                "Serve a new session, as this one would release records without a charge"
            )

    def _charged_by_account(self, own: Continuation) -> int:
        with self.account._database.transaction(write=False) as now:
            counts = "SELECT coalesce(sum(count), 0) FROM dpb_records WHERE session = :session"
            return int(now.rows(counts, session=own.id)[0][0])

    def _admit(self, spent: dict[str, float], counts: dict[str, int], person: str) -> bool:
        count = counts.get(person, 0)
        if not (isinstance(count, int) and count >= 0):
            raise self.account._database.error(f"is damaged: {shown(count)} records of a person")
        if self._once and count:
            return True
        if not self.account._admit(spent, person, self._rho(count + 1) - self._rho(count)):
            return False
        counts[person] = count + 1
        return True

    def commit(self) -> None:
        """Wait until all charges are on the disk, and check the generation; see `Account.confirm`.

        Call it before a decision that depends on a release of the session.
        """
        self.account.confirm(self.own)

    def _group_rho(self, count: int) -> float:
        """Return the rho of a group of so many records."""
        grouped = self._curve.group(count) if count else Composition(())
        assert grouped is not None and grouped.zcdp is not None  # as for one record
        return grouped.zcdp


def _limit(lifetime: Budget) -> float:
    """Return the largest rho of a person.

    Raises:
        BudgetError: If no account can have this lifetime.
    """
    if lifetime.trust != "curator":
        raise BudgetError(
            f"a lifetime is charged by sessions of every trust model and names none; got "
            f"{lifetime}, give {lifetime.amount}"
        )
    # of any zCDP mechanism, because sessions of all agents share the account
    limit = equivalent_rho(lifetime, gaussian=False)
    if limit >= LARGEST_RHO:
        raise BudgetError(f"the rho of a lifetime must be below {LARGEST_RHO:g}, got {lifetime}")
    return limit


def _checked_key(key: Any) -> bytes | None:
    if key is None:
        return None
    if not isinstance(key, bytes) or not SHORTEST_KEY <= len(key) <= LONGEST_KEY:
        raise ParameterError(
            f"key must be {SHORTEST_KEY} to {LONGEST_KEY} secret bytes, such as "
            "secrets.token_bytes(32) kept in a file of its own"  # never shown: it is a secret
        )
    return key


def _hashed(key: bytes, use: bytes, content: bytes) -> str:
    """Return the keyed BLAKE2b hash of a text, of 128 bits, as 32 hexadecimal digits."""
    return hashlib.blake2b(content, digest_size=16, key=key, person=use).hexdigest()


def _terms(guarantee: Guarantee) -> str:
    """Return what decides the cost of records, as text."""
    # provisos and texts do not change what a record costs
    facts = guarantee.to_dict()
    return json.dumps([facts["unit"], facts["relation"], facts["curve"]], sort_keys=True)
