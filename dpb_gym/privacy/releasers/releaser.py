"""Base class of the releasers, and what a releaser uses of its curator.

A releaser takes raw records and returns releases with noise.
"""

from __future__ import annotations

import copy
import copyreg
import functools
import os
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Protocol

import numpy as np
from numpy.typing import ArrayLike

from dpb_gym import state, validation
from dpb_gym.errors import AgentError, BudgetError, FixedError, ParameterError, StateError
from dpb_gym.privacy.releasers.release_schedule import Schedule
from dpb_gym.validation import FloatArray

if TYPE_CHECKING:
    from dpb_gym.privacy.budget import Budget
    from dpb_gym.privacy.events import Event
    from dpb_gym.privacy.ledger import Ledger
    from dpb_gym.privacy.noise import NoiseSource


def part_of(share: float | None) -> float:
    """Return the part of the budget that a share names; 1 if it names none.

    Raises:
        ParameterError: If the share is not in (0, 1].
    """
    return 1.0 if share is None else validation.real("share", share, 0.0, 1.0, open_low=True)


@state.register
@dataclass(frozen=True)
class Rounds:
    """State of the rounds that a harness opens; see `Curator.round`.

    Its methods alone change it: an agent that opens rounds itself cannot hide that.

    Attributes:
        of_agent: Whether an agent makes the releasers, and not a function of the library.
        attended: Whether records enter in opened rounds only. A harness sets it before an agent's
            first decision.
        newest: Number of the newest round that was opened.
        open: Number of rounds that are open.
        openings: How often rounds were opened.
    """

    evolves: ClassVar[tuple[str, ...]] = ("attended", "newest", "open", "openings")

    of_agent: bool = False
    attended: bool = False
    newest: int = 0
    open: int = 0
    openings: int = 0

    def attend(self) -> None:
        """From now on records enter in opened rounds only."""
        object.__setattr__(self, "attended", True)

    def enter(self, t: int, n: int) -> None:
        """Open rounds t to t + n - 1."""
        object.__setattr__(self, "attended", True)
        object.__setattr__(self, "newest", t + n - 1)
        object.__setattr__(self, "open", n)
        object.__setattr__(self, "openings", self.openings + 1)

    def leave(self) -> None:
        """Close the open rounds."""
        object.__setattr__(self, "open", 0)


class CuratorProtocol(Protocol):
    """What a releaser uses of its curator; `dpb_gym.privacy.Curator` documents each name."""

    budget: Budget | None
    unit: str
    relation: str
    replicates: int
    horizon: int | None
    rounds: Rounds

    @property
    def ledger(self) -> Ledger: ...

    @property
    def private(self) -> bool: ...

    @property
    def system_noise(self) -> bool: ...

    @property
    def most_rho(self) -> float: ...

    def register(self, releaser: Releaser, share: float | None) -> None: ...

    def seal(self) -> None: ...

    def admit(self, releaser: Releaser, records: int) -> None: ...


ENTRIES = ("add", "send", "message", "add_rounds", "send_rounds")
"""Methods by which records enter a releaser: one record per replicate, or those of n rounds."""


_counting = threading.Lock()
"""Held while records are counted, so that threads share the count of a round."""


def _renew() -> None:
    """Replace the lock in a forked process, where the thread that held it does not exist."""
    global _counting
    _counting = threading.Lock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_renew)

PLAIN = {bool, int, float, str, bytes, type(None)}
"""Types, without their subclasses, of which a releaser reads no records."""


def _converted(value: Any) -> Any:
    """Return everything of which records can be read as an array of NumPy's own class.

    An object of another class can have another length when it is read again.

    Raises:
        ParameterError: If it is a masked array, whose masked values are no records.
    """
    kind = type(value)
    if kind is np.ndarray or kind in PLAIN:
        return value
    if isinstance(value, np.ma.MaskedArray):
        raise ParameterError(f"records must be an array of numbers, got a masked array: {value!r}")
    if not (hasattr(value, "__array__") or hasattr(value, "__getitem__")):
        return value
    try:
        return np.asarray(value)
    except ValueError:  # rows of unequal length, which the method reports
        return value


def _number_of_rounds(what: str, columns: list[Any]) -> int:
    """Return the number of rounds in the arrays ``(n, ...)`` of records.

    Raises:
        ParameterError: If one is no array, or they are of different lengths.
    """
    given = [column for column in columns if column is not None]
    arrays = all(isinstance(column, np.ndarray) and column.ndim for column in given)
    lengths = {len(column) for column in given} if arrays else set()
    if len(lengths) != 1:
        raise ParameterError(
            f"{what}: the records of several rounds are arrays, all with the rounds as first axis; "
            f"got {[np.shape(column) if arrays else type(column).__name__ for column in given]}"
        )
    return int(lengths.pop())


def _counted(method: Callable[..., Any], name: str) -> Callable[..., Any]:
    """Return a method of `ENTRIES` that lets the curator admit its records first.

    A call by another method of `ENTRIES` of the same releaser is a part of that entry.
    """

    many = name.endswith("_rounds")

    @functools.wraps(method)
    def entering(releaser: Releaser, *args: Any, **options: Any) -> Any:
        thread = threading.get_ident()
        if releaser._entering == thread:
            return method(releaser, *args, **options)

        # before they are counted, because a conversion can run code of the caller
        args = tuple([_converted(value) for value in args])
        if options:
            options = {key: _converted(value) for key, value in options.items()}
        records = 1
        if many:
            records = _number_of_rounds(releaser.what, [*args, *options.values()])
        with _counting:
            if releaser._entering:
                raise _busy(releaser)
            releaser.curator.admit(releaser, records)
            releaser._entering = thread
        try:
            return method(releaser, *args, **options)
        finally:
            releaser._entering = 0

    return entering


def _busy(releaser: Releaser) -> BudgetError:
    return BudgetError(
        f"{releaser.what}: a record is entering; add the next one when that call has returned"
    )


class Made(NamedTuple):
    """A releaser and the arguments that made it, see `noting`.

    Attributes:
        curator: Its curator.
        releaser: The releaser.
        args: Further arguments by place.
        options: Arguments by name.
    """

    curator: Any
    releaser: Releaser
    args: tuple[Any, ...]
    options: dict[str, Any]


_notes: list[list[Any]] = []


@contextmanager
def noting() -> Iterator[list[Any]]:
    """Yield a list to which every releaser that is made inside is added, as `Made`.

    So a plan can be described to another process, which makes the same releasers.
    """
    calls: list[Any] = []
    _notes.append(calls)
    try:
        yield calls
    finally:
        _notes.remove(calls)


def _noted(initialise: Callable[..., None]) -> Callable[..., None]:
    """Return a constructor that notes its arguments, unless it was called by that of a subclass."""

    @functools.wraps(initialise)
    def noted(releaser: Releaser, curator: Any, *args: Any, **options: Any) -> None:
        for calls in _notes:
            if not any(isinstance(call, Made) and call.releaser is releaser for call in calls):
                calls.append(Made(curator, releaser, args, options))
        initialise(releaser, curator, *args, **options)

    return noted


class Releaser(ABC):
    """Base class of the mechanisms. A policy sees their releases, never the records.

    The constructor registers a plan with the curator: everything that will ever be released. When
    `begin` is over, or earlier if a scale is read, the curator seals: it calibrates the plans of
    all its releasers together, charges each plan once (`cost`) and sets its noise (`open`).
    Without a budget `open` gets no rho, and the same calls release exact values.

    A new mechanism is a subclass with `cost`, `open`, methods that take records and methods that
    return releases. Every such method calls `ready` first. The methods that take records are named
    in `ENTRIES`; the curator counts the records of every round that enter by them.

    Args:
        curator: Provides budget, ledger and noise.
        share: Its part of the budget in (0, 1]. None: an equal part of what the other releasers'
            shares leave.
        what: Name of the released quantity in the ledger.

    Attributes:
        basis: What the cost rests on, see `Guarantee`.
        proviso: A clause of the guarantee, see `Guarantee.provisos`.
        rho: Nominal zCDP to which the plan is calibrated; None before, and if it is exact.
        evolves: Names of the attributes that records and releases change, of this class and not
            of its bases; "x+" for an array whose later axes grow. In a loaded checkpoint all other
            attributes must be as `begin` makes them.
    """

    evolves: ClassVar[tuple[str, ...]] = ("entered_in", "entered", "_entering")
    basis = "computed"
    proviso = ""
    trusts: tuple[str, ...] = ("curator",)
    """Trust models in which the releaser works, by name."""
    shuffled = False
    """Whether a shuffler stands between customers and releases."""
    counts_users: ClassVar[bool] = False
    """Whether the cost covers all records of a user, where users are protected."""
    rho: float | None = None
    entered_in: int = 0
    """Number of the opening of the curator in which the newest record entered; see `Curator`."""
    entered: int = 0
    """Records per replicate that entered in that opening."""
    _entering: int = 0
    """Thread whose record is entering, or 0."""

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        state.register_plain(cls)  # as an attribute of checkpoints
        if "__init__" in vars(cls):
            cls.__init__ = _noted(vars(cls)["__init__"])  # type: ignore[method-assign]
        for name in ENTRIES:
            if callable(method := vars(cls).get(name)):
                setattr(cls, name, _counted(method, name))

    @_noted
    def __init__(self, curator: CuratorProtocol, *, share: float | None, what: str) -> None:
        self.curator = curator
        self.what = what
        self.replicates = curator.replicates
        self.opened = False
        self.part = part_of(share)
        curator.register(self, share)

    @property
    def per_round(self) -> int:
        """Number of records of one round per replicate that the plan is charged for."""
        return 1

    def memory(self, rounds: int | None = None) -> int:
        """Return the bytes of stored records, for forecasts; 0 if they do not grow with rounds.

        Args:
            rounds: Return their peak by the end of this round, or an upper bound where records are
                dropped in a round that depends on releases. None: return what is allocated now.
        """
        return 0

    @abstractmethod
    def cost(self, rho: float) -> Event:
        """Return the accounting event of the whole plan, calibrated to `rho` (nominal) zCDP."""

    @abstractmethod
    def open(self, rho: float | None, noise: NoiseSource) -> None:
        """Set the scale of the noise to that of ``cost(rho)``, or to 0 if rho is None."""

    @property
    def parts(self) -> tuple[object, ...]:
        """Objects on whose code the cost rests, besides the class of the releaser."""
        return ()

    def plain_options(self, given: dict[str, Any]) -> dict[str, Any]:
        """Return the arguments that made this releaser, without functions among them.

        Args:
            given: The arguments behind the curator, by name.
        """
        return given

    def ready(self) -> None:
        """Seal the curator's plans if that has not happened yet.

        Raises:
            BudgetError: If sealing failed before. Then nothing can be released.
        """
        if not self.opened:
            self.curator.seal()
        if not self.opened:
            raise BudgetError(f"{self.what}: its curator refused the plans; nothing is released")


PUBLIC = (
    "basis", "batch", "batches", "calls", "centre", "clip", "cumulative", "curator",
    "dim", "every", "gain", "grid", "horizon", "law", "levels", "max_calls", "mechanism",
    "message_bytes", "model", "noise_std", "noise_std_max", "plan", "proviso", "pure", "record_std",
    "releases", "replicates", "rho", "rounds", "sampling", "schedule", "sensitivity", "shape",
    "sigma", "steps", "trust", "variances", "what",
)  # fmt: skip
METHODS = (
    "add_rounds", "cost", "exact_sums", "forget", "noise_matrix", "ready",
)  # fmt: skip
"""What a handle shows of its releaser besides `add`, `release` and `value`."""
SETTABLE = ("centre",)
"""What may be set through a handle in begin."""


MUTABLE = (np.ndarray, list, Schedule)
"""Types of which a handle shows copies."""


class Handle:
    """What an agent gets of a releaser: its records, its releases and its public plan.

    The releaser is no attribute of the handle, so its raw sums and its noise are not either. Code
    of the library reads it by `behind`. The handle does not keep out code that looks for
    objects in memory; isolated runs do (`dpb_gym.running.isolation`).

    Args:
        releaser: The releaser.
    """

    __slots__ = ("_releaser",)

    def __init__(self, releaser: Releaser) -> None:
        _STATE.__set__(self, releaser)

    def add(self, *args: Any, **options: Any) -> None:
        """Add one record per replicate; see the `add` of the releaser."""
        _open(self).add(*args, **options)

    def release(self, *args: Any, **options: Any) -> FloatArray:
        """Return a release; see the `release` of the releaser."""
        return _usable(self).release(*args, **options)  # type: ignore[no-any-return]

    @property
    def value(self) -> FloatArray:
        """Newest release."""
        return _raw(self).value  # type: ignore[no-any-return]

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(
            f"the handle of a {type(_raw(self)).__name__} has no {name!r}: raw state is the "
            "curator's"
        )

    def __setattr__(self, name: str, value: Any) -> None:
        """Set an attribute of `SETTABLE` in begin; all others are fixed."""
        if name not in SETTABLE or not hasattr(_raw(self), name):
            raise FixedError(f"{name!r} of a releaser is fixed by the arguments that made it")
        setattr(_raw(self), name, value)


# a slot whose descriptor is no attribute of the class
_STATE: Any = vars(Handle)["_releaser"]
_raw: Callable[[Handle], Any] = _STATE.__get__
del Handle._releaser  # type: ignore[attr-defined]


def _usable(handle: Handle) -> Any:
    """Return the releaser of a handle, or raise AgentError if its curator was handed over."""
    releaser = _raw(handle)
    why = getattr(releaser.curator, "handed_over", None)
    if why:
        raise AgentError(f"these releasers were handed over: {why}")
    return releaser


def _open(handle: Handle) -> Any:
    """Return the releaser of a handle, or raise BudgetError if a record is entering.

    Without this a record could add further ones while it is read, as parts of its own entry.
    """
    releaser = _usable(handle)
    if getattr(releaser, "_entering", 0):
        raise _busy(releaser)
    return releaser


def _shown(name: str) -> property:
    def show(handle: Handle) -> Any:
        value = getattr(_raw(handle), name)
        if type(value) in PLAIN:  # read in every round, in a tenth of the time of the next line
            return value
        return copy.deepcopy(value) if isinstance(value, MUTABLE) else value

    return property(show)


def _passed_on(name: str) -> Callable[..., Any]:
    usable = _open if name in ENTRIES else _usable
    return lambda handle, *args, **options: getattr(usable(handle), name)(*args, **options)


for _name in PUBLIC:
    setattr(Handle, _name, _shown(_name))
for _name in METHODS:
    setattr(Handle, _name, _passed_on(_name))


def behind(handle: Any) -> Any:
    """Return the releaser of a handle, for the curator, audits and tests."""
    return _raw(handle) if isinstance(handle, Handle) else handle


class WithoutAxis(Handle):
    """A handle of one replicate without the replicate axis.

    Records, directions, values and releases lose their leading axis of length 1.
    """

    __slots__ = ()

    def add(self, *parts: ArrayLike | None, users: ArrayLike | None = None, **named: Any) -> None:
        """Add one record; see the `add` of the releaser."""
        if users is not None:
            named["users"] = np.atleast_1d(users)
        if named.get("along") is not None:
            named["along"] = np.asarray(named["along"], dtype=np.float64)[None]
        arrays = [None if x is None else np.asarray(x, dtype=np.float64)[None] for x in parts]
        _open(self).add(*arrays, **named)

    def release(self) -> FloatArray:
        """Return a release; see the `release` of the releaser."""
        return np.asarray(super().release()[0])

    @property
    def value(self) -> FloatArray:
        """Newest release."""
        return np.asarray(super().value[0])


def _set(handle: Handle, attributes: dict[str, Any]) -> None:
    """Give a handle that was read from a file its releaser."""
    releaser = attributes.get("releaser")
    if len(attributes) != 1 or not isinstance(releaser, Releaser):
        raise StateError("the handle of a releaser has a releaser, and nothing else")
    _STATE.__set__(handle, releaser)


for _kind in (Handle, WithoutAxis):
    copyreg.pickle(_kind, lambda handle: (type(handle), (_raw(handle),)))
    state.register(_kind, out=lambda handle: {"releaser": _raw(handle)}, into=_set)
