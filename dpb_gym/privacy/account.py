"""Lifetime privacy budgets of people, on disk, shared by sessions and processes.

**Unit and relation.** Two worlds differ in what one person does: the contexts and responses of all
her rounds, in all sessions that share the account (in an account of unit ``"user-rewards"``, the
responses). Who comes in which round of which session is the same in both worlds and public, as in
every user unit (`dpb_gym.privacy.guarantee.PUBLIC`). So is everything in the file.

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

import contextlib
import fcntl
import functools
import json
import math
import mmap
import os
import threading
import weakref
from pathlib import Path
from typing import Any

import numpy as np

from dpb_gym import validation
from dpb_gym.errors import BudgetError, ParameterError
from dpb_gym.privacy.accounting import epsilon
from dpb_gym.privacy.budget import Budget, report_delta
from dpb_gym.privacy.calibration import equivalent_rho
from dpb_gym.privacy.composition import Composition
from dpb_gym.privacy.events import ZCDPEvent
from dpb_gym.privacy.guarantee import NOTIONS, Guarantee
from dpb_gym.privacy.ledger import TOLERANCE
from dpb_gym.privacy.releasers.contributions import MOST_USERS
from dpb_gym.validation import FloatArray

FORMAT = "dpb-gym account, version 1"
UNITS = ("user", "user-rewards")
LEVELS = 20
"""Limits that the odometer rounds up to."""
HEADER, FIRST_PEOPLE, LONGEST_LOG = 4096, 2**16, 2**26
ENTRY = np.dtype([("user", "<i8"), ("spent", "<f8")])


class Account:
    """The rho that each person has spent, in a file.

    The file has 8 bytes per person. All processes see a charge at once. `commit` makes charges
    durable, and a `Session` commits before anything that depends on them leaves it. Therefore a
    crash can only lose charges of records that were lost with it.

    Args:
        path: The file; it is created if there is none. Newest charges are in ``PATH-log``.
        lifetime: Budget of each person, as `Budget` or text. It can be left out if the file
            exists.
        unit: ``"user"`` (contexts and responses are protected) or ``"user-rewards"``.

    Attributes:
        path: The file.
        lifetime: Budget of each person.
        unit: See `Guarantee`.
        limit: The largest rho of a person: the rho of `lifetime`, or the largest rho of zCDP that
            implies its epsilon and delta.

    Raises:
        BudgetError: If the file has another lifetime or unit, or there is neither a file nor a
            lifetime.
        ParameterError: If the file is no account.

    Example:
        >>> import tempfile
        >>> folder = tempfile.TemporaryDirectory()
        >>> account = Account(f"{folder.name}/people.db", lifetime="rho=1")
        >>> [account.charge(user, rho) for user, rho in ((7, 0.75), (3, 0.5), (7, 0.5))]
        [True, True, False]
        >>> account.spent(3), account.spent(7), account.spent(8)
        (0.5, 0.75, 0.0)
    """

    def __init__(
        self, path: str | Path, lifetime: Budget | str | None = None, *, unit: str = "user"
    ) -> None:
        self.path = Path(path).absolute()
        asked = Budget.parse(lifetime)
        validation.choice("unit", unit, UNITS)
        if asked is None and not self.path.exists():
            raise BudgetError(f"{self.path} does not exist: give the lifetime budget of a person")
        self._thread, self._process = threading.RLock(), -1
        self._pending: list[tuple[int, float]] = []
        with self:
            if asked is not None and not os.fstat(self._file).st_size:
                self._write({"lifetime": str(asked), "unit": unit, "notion": NOTIONS[0]})
            facts = self._facts()
            self._replay()
        kept = Budget.parse(facts["lifetime"])
        assert kept is not None
        self.lifetime, self.unit = kept, str(facts["unit"])
        if asked is not None and (asked, unit) != (self.lifetime, self.unit):
            raise BudgetError(
                f"{self.path} has the lifetime {self.lifetime} per {self.unit}, which cannot be "
                f"changed; got {asked} per {unit}"
            )
        self.limit = equivalent_rho(self.lifetime, gaussian=False)

    def __enter__(self) -> None:
        """Lock the file for all processes and threads."""
        self._thread.acquire()
        if self._process != os.getpid():  # a forked process would share its parent's lock
            self._file = os.open(self.path, os.O_RDWR | os.O_CREAT, 0o600)
            self._log = os.open(f"{self.path}-log", os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o600)
            for file in (self._file, self._log):
                weakref.finalize(self, os.close, file)
            self._process, self._spent = os.getpid(), np.empty(0)
        fcntl.flock(self._file, fcntl.LOCK_EX)

    def __exit__(self, *error: object) -> None:
        fcntl.flock(self._file, fcntl.LOCK_UN)
        self._thread.release()

    def _facts(self) -> dict[str, Any]:
        """Return the header."""
        with contextlib.suppress(ValueError, TypeError, KeyError):
            facts: dict[str, Any] = json.loads(os.pread(self._file, HEADER, 0))
            if facts.pop("format") == FORMAT:
                return facts
        raise ParameterError(f"{self.path} is no account of this version")

    def _write(self, facts: dict[str, Any]) -> None:
        os.pwrite(self._file, json.dumps({"format": FORMAT, **facts}).encode().ljust(HEADER), 0)
        os.fsync(self._file)

    def _replay(self) -> None:
        """Apply the log to the file, and empty it. Entries are totals, so twice is like once."""
        entries = np.fromfile(f"{self.path}-log", ENTRY)  # without a torn last entry
        if len(entries):
            np.maximum.at(self._rows(entries["user"].max()), entries["user"], entries["spent"])
        os.fsync(self._file)
        os.ftruncate(self._log, 0)

    def _rows(self, user: int) -> FloatArray:
        """Return the spent rho of all people, with a row of this user."""
        if user >= len(self._spent):
            have = (os.fstat(self._file).st_size - HEADER) // 8
            if user >= have:
                have = min(MOST_USERS, max(user + 1, 2 * have, FIRST_PEOPLE))
                os.ftruncate(self._file, HEADER + 8 * have)
            # of all processes, which share the pages
            self._spent = np.frombuffer(mmap.mmap(self._file, 0), "<f8", have, HEADER)
        return self._spent

    def charge(self, user: int, rho: float) -> bool:
        """Charge a person, unless the total would exceed the limit; return whether it did.

        Call `commit` before anything that depends on the record is released.

        Args:
            user: Number of the person, 0..2^26 - 1, best numbered consecutively.
            rho: Cost of the record, >= 0.

        Raises:
            ParameterError: If an argument is out of range.
        """
        user = validation.integer("user", user, 0, MOST_USERS - 1)
        rho = validation.real("rho", rho, 0.0)
        with self:
            rows = self._rows(user)
            total = float(rows[user]) + rho
            if total > self.limit * (1 + TOLERANCE):
                return False
            rows[user] = total
            self._pending.append((user, total))
        return True

    def commit(self) -> None:
        """Wait until all charges of this process are on the disk."""
        if self._pending:
            with self:
                os.write(self._log, np.array(self._pending, ENTRY).tobytes())
                os.fsync(self._log)
                self._pending = []
                if os.fstat(self._log).st_size > LONGEST_LOG:
                    self._replay()

    def spent(self, user: int) -> float:
        """Return the rho that a person has spent."""
        user = validation.integer("user", user, 0, MOST_USERS - 1)
        with self:
            return float(self._rows(user)[user])

    def epsilon(self, user: int, delta: float | None = None) -> float:
        """Return an odometer's reading: a bound on epsilon that holds whenever it is read.

        It can exceed the epsilon of the lifetime by a few percent, because it holds at all times
        together. What a person can lose in all is the lifetime.

        Args:
            user: Number of the person.
            delta: That of the lifetime by default, or 1e-5.
        """
        delta = report_delta(self.lifetime) if delta is None else delta
        delta = validation.real("delta", delta, 0.0, 1.0, open_low=True)
        level = math.ceil(LEVELS * self.spent(user) / self.limit * (1 - TOLERANCE)) / LEVELS
        if not level:
            return 0.0
        return epsilon(Composition.of(ZCDPEvent(level * self.limit)), delta / LEVELS)

    def enter(self, guarantee: Guarantee) -> None:
        """Add a session, whose guarantee is per round or per user.

        Raises:
            BudgetError: If it does not protect what the account protects, or has no rho.
        """
        one = {"user": "user-round", "user-rewards": "reward"}[self.unit]
        if not guarantee.covers(NOTIONS[-1], one, "replace-one") or guarantee.rho is None:
            raise BudgetError(
                f"{self.path} counts the rho of each {self.unit} under replace-one, which does "
                f"not follow from: {guarantee}"
            )
        with self:
            facts = self._facts()
            facts["notion"] = max(facts["notion"], guarantee.notion, key=NOTIONS.index)
            self._write(facts)

    def summary(self) -> dict[str, Any]:
        """Return what is public of the account, as plain JSON values."""
        with self:
            rows = self._rows(max(0, (os.fstat(self._file).st_size - HEADER) // 8 - 1))
            people, largest = int((rows > 0.0).sum()), float(rows.max())
            return {**self._facts(), "people": people, "largest_rho": largest}


class SessionCharges:
    """Admission of the records of one session.

    A guarantee per user covers all her rounds and is charged with her first record. A guarantee
    per round is charged with every record: her first n cost as much as a group of n.

    Args:
        account: The account.
        guarantee: Guarantee of the session.
        counts: Records of each user so far, which the session saves.

    Raises:
        BudgetError: See `Account.enter`.
    """

    def __init__(self, account: Account, guarantee: Guarantee, counts: dict[int, int]) -> None:
        account.enter(guarantee)
        assert guarantee.curve is not None
        self.account, self._curve, self._counts = account, guarantee.curve, counts
        self._once = guarantee.unit in UNITS
        self._rho = functools.cache(self._group_rho)

    def admit(self, user: int) -> bool:
        """Return whether the agent may learn from a record of this user, and charge it if so."""
        count = self._counts.get(user, 0)
        if not (self._once and count):
            if not self.account.charge(user, self._rho(count + 1) - self._rho(count)):
                return False
            self._counts[user] = count + 1
        return True

    def _group_rho(self, count: int) -> float:
        """Return the rho of a group of so many records."""
        grouped = self._curve.group(count) if count else Composition(())
        assert grouped is not None and grouped.zcdp is not None  # as for one record
        return grouped.zcdp
