"""Plans as plain data: what a releaser is made of, and which of its methods take which values.

An isolated agent's process names the class of a releaser and gives plain values. A class that can
be asked for in this way has a description: how each argument is read, and which methods can be
called. Objects among the arguments, such as bounds and mechanisms, are described by the arguments
of their constructors. So sensitivities, costs and scales of noise are computed where the raw data
are, and no number that follows from others is read.

A description stands beside its class, in the package of the class. Only classes of this
distribution are used (`own_packages`), because others would run beside the raw data.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np

from dpb_gym import validation
from dpb_gym.errors import AgentError, ParameterError, shown
from dpb_gym.lazy import AGENTS, load_plugins, of_this_distribution, own_packages
from dpb_gym.privacy.objective_perturbation import (
    LossBounds,
    ObjectivePerturbation,
    PerturbedObjectiveEvent,
)
from dpb_gym.validation import FloatArray

Given = dict[str, Any]
Reader = Callable[[str, Any], Any]
"""Returns the value of an argument of a name, or raises ParameterError."""
Check = Callable[[Any, Given, Any], None]
"""Raises an error unless arguments are possible for a releaser, given the users of the round."""

LONGEST = 10**9
"""Largest whole number that stands for rounds."""
MOST_NUMBERS = 1 << 26
"""Most numbers in an array that arguments let a releaser make: 512 MiB."""
MOST_RELEASES = 1 << 16
"""Most releases of a schedule."""
MOST_STEPS = 1 << 16
"""Most steps of an iteration."""

RECORD = "record"
DIRECTION = "direction"
PUBLIC = "public"
"""Whose argument counts. A record is that of the customer's process. A direction is too if the
unit protects contexts, otherwise it is the policy's. A public argument is the policy's."""
DTYPES = {"b": ("|b1",), "i": ("<i4", "<i8"), "f": ("<f4", "<f8")}


class ArgumentKind(NamedTuple):
    """Description of a class whose objects can be arguments.

    Attributes:
        kind: The class.
        fields: Readers of the arguments of the constructor, by name.
        attributes: Where an argument is another attribute of the object than its own name.
        make: Makes the object of its arguments; None: the constructor.
    """

    kind: type
    fields: Mapping[str, Reader]
    attributes: Mapping[str, str] = {}
    make: Callable[..., Any] | None = None


class Method(NamedTuple):
    """Description of a method of a releaser.

    Attributes:
        sources: `RECORD`, `DIRECTION` or `PUBLIC` of each argument, by name.
        check: Raises an error unless the arguments are possible for the releaser.
        records: Whether the method takes records.
        returns: Whether it returns something.
    """

    sources: Mapping[str, str]
    check: Check
    records: bool = False
    returns: bool = True


class ReleaserEntry(NamedTuple):
    """Description of a releaser.

    Attributes:
        kind: Its class.
        options: Readers of the arguments of the constructor, by name.
        methods: Its methods, by name; ``"value"`` is a property.
        size: Returns how many numbers per replicate arguments let it make.
        centre: Reader of its `centre`, which `begin` may set; None: it has none.
        check: Raises an error unless arguments belong together, given the curator.
        loss: Returns the bounds of its loss, from which a calibration is completed.
        completed: Returns the arguments with those that only this process has: problem and
            streams.
    """

    kind: type
    options: Mapping[str, Reader]
    methods: Mapping[str, Method]
    size: Callable[[Given], int]
    centre: Reader | None = None
    check: Callable[[Any, Given], None] | None = None
    loss: Callable[[Given], LossBounds] | None = None
    completed: Callable[[Given, Any, Any], Given] | None = None


ARGUMENTS: dict[str, ArgumentKind] = {}
"""Described classes of arguments, by module and name."""
RELEASERS: dict[str, ReleaserEntry] = {}
"""Described releasers, by module and name."""


def path_of(kind: type) -> str:
    """Return module and name of a class, as in plans."""
    return f"{kind.__module__}:{kind.__qualname__}"


def describe_argument(
    kind: type,
    fields: Mapping[str, Reader],
    *,
    attributes: Mapping[str, str] | None = None,
    make: Callable[..., Any] | None = None,
) -> None:
    """Describe a class whose objects can be arguments; see `ArgumentKind`."""
    ARGUMENTS[path_of(kind)] = ArgumentKind(kind, fields, attributes or {}, make)


def describe_releaser(
    kind: type,
    options: Mapping[str, Reader],
    methods: Mapping[str, Method],
    *,
    size: Callable[[Given], int] = lambda given: 1,
    **more: Any,
) -> None:
    """Describe a releaser; see `ReleaserEntry`."""
    RELEASERS[path_of(kind)] = ReleaserEntry(kind, options, methods, size, **more)


def releaser_named(path: Any) -> ReleaserEntry:
    """Return the description of a releaser of this distribution.

    Raises:
        AgentError: If there is none.
    """
    if type(path) is not str:
        raise AgentError(f"an isolated agent makes releasers, not {shown(path)}")
    if path not in RELEASERS:
        load_plugins(AGENTS, own=True)  # the agents' packages describe theirs on import
    entry = RELEASERS.get(path)
    if entry is None or not of_this_distribution(entry.kind):
        raise would_run(path)
    return entry


def would_run(path: str) -> AgentError:
    """Return the error for a class that has no description, or is of another package."""
    return AgentError(
        f"{path.replace(':', '.')} would run beside the raw data: an isolated agent uses releasers "
        f"of {' and '.join(sorted(own_packages()))}"
    )


def plain(value: Any) -> Any:
    """Return an argument as plain values, in the agent's process.

    Raises:
        AgentError: If it is an object of a class without a description.
    """
    if value is None or type(value) in (bool, int, float, str):
        return value
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, np.ndarray):
        return np.asarray(value)
    if type(value) in (list, tuple):
        return [plain(each) for each in value]

    path = path_of(type(value))
    description = ARGUMENTS.get(path)
    if description is None or description.kind is not type(value):
        raise would_run(path)
    # the name of the class and constructor arguments alone: what follows from them is computed
    parts: Given = {"is": path}
    for name in description.fields:
        part = value
        for attribute in description.attributes.get(name, name).split("."):
            part = getattr(part, attribute)
        parts[name] = plain(part)
    return parts


# ------------------------------------------------------------------ readers of arguments


def integer(low: int, high: int = LONGEST) -> Reader:
    """Return a reader of whole numbers in a range."""
    return lambda name, value: validation.integer(name, value, low, high)


def real(low: float = -math.inf, high: float = math.inf, **ends: Any) -> Reader:
    """Return a reader of finite numbers in a range."""
    return lambda name, value: validation.real(name, value, low, high, **ends)


def choice(*options: str) -> Reader:
    """Return a reader of one of some texts."""
    return lambda name, value: validation.choice(name, value, options)


def optional(reader: Reader) -> Reader:
    """Return a reader of None and of what another one reads."""
    return lambda name, value: None if value is None else reader(name, value)


def text(name: str, value: Any) -> str:
    """Return a text of at most 200 characters."""
    if len(validation.text(name, value)) > 200:
        raise ParameterError(f"{name} must have at most 200 characters, got {shown(value)}")
    return str(value)


def flag(name: str, value: Any) -> bool:
    """Return True or False."""
    return validation.flag(name, value)


def pair(name: str, value: Any) -> tuple[float, float]:
    """Return a range (lowest, highest)."""
    if type(value) not in (list, tuple) or len(value) != 2:
        raise ParameterError(f"{name} must be (lowest, highest), got {shown(value)}")
    return validation.span(name, value)


def numbers(name: str, value: Any) -> FloatArray:
    """Return a finite vector of floats."""
    return validation.array(name, value, (None,))


def rounds(name: str, value: Any) -> Any:
    """Return ascending numbers of rounds."""
    ends = np.asarray(value)
    whole = type(value) is np.ndarray and ends.ndim == 1 and ends.dtype.str == "<i8"
    if not whole or not 0 < len(ends) <= MOST_RELEASES:
        raise ParameterError(f"{name} must be a vector of whole numbers, got {shown(value)}")
    if ends[0] < 1 or (np.diff(ends) < 1).any():
        raise ParameterError(f"{name} must ascend from 1, got {shown(value)}")
    return ends


positive = real(0.0, open_low=True)
not_negative = real(0.0)
width = integer(1, MOST_NUMBERS)


def instance(*kinds: type) -> Reader:
    """Return a reader of objects of described classes."""
    names = [kind.__name__ for kind in kinds]
    known = {path_of(kind) for kind in kinds}

    def read(name: str, value: Any) -> Any:
        path = _named(value)
        if path not in known:
            raise ParameterError(f"{name} must be {' or '.join(names)}, got {shown(value)}")
        return _made(name, path, value)

    return read


def kind_of(base: type) -> Reader:
    """Return a reader of objects of described subclasses of `base`, of this distribution."""

    def read(name: str, value: Any) -> Any:
        path = _named(value)
        if path not in ARGUMENTS:
            load_plugins(AGENTS, own=True)  # the agents' packages describe theirs on import
        description = ARGUMENTS.get(path)
        known = description is not None and issubclass(description.kind, base)
        if description is None or not known or not of_this_distribution(description.kind):
            raise ParameterError(f"{name} must be a {base.__name__}, got {shown(value)}")
        return _made(name, path, value)

    return read


def _named(value: Any) -> str:
    """Return the path of the class that a plain value names, or an empty text."""
    path = value.get("is") if type(value) is dict else None
    return path if type(path) is str else ""


def _made(name: str, path: str, value: Given) -> Any:
    """Return the object of a described class that a plain value stands for."""
    description = ARGUMENTS[path]
    fields = description.fields
    if set(value) != {"is", *fields}:
        raise ParameterError(f"{path} is made of {', '.join(fields)}; got {shown(value)}")
    given = {field: fields[field](f"{name}: {field}", value[field]) for field in fields}
    return (description.make or description.kind)(**given)


def either(reader: Reader, other: Reader) -> Reader:
    """Return a reader of objects and, by `other`, of anything else."""
    return lambda name, value: (reader if type(value) is dict else other)(name, value)


# ------------------------------------------------------------------ calibrations without a cost


class Uncosted(NamedTuple):
    """A calibration of objective perturbation without its cost, see `completed`."""

    ridge: float
    sigma: float
    output_mu: float

    def completed(self, loss: LossBounds) -> ObjectivePerturbation:
        """Return the calibration for the bounds of a loss, with its true cost."""
        tolerance = loss.plan(self.ridge, self.sigma, 1.0).tolerance
        event = PerturbedObjectiveEvent(
            loss.curvature / self.ridge,
            self.sigma,
            2 * loss.gradient_bound,
            loss.dim,
            self.output_mu,
        )
        output_std = 2 * tolerance / (self.ridge * self.output_mu)
        return ObjectivePerturbation(loss.dim, self.ridge, self.sigma, tolerance, output_std, event)


describe_argument(
    ObjectivePerturbation,
    {"ridge": positive, "sigma": positive, "output_mu": positive},
    attributes={"output_mu": "event.output_mu"},
    make=Uncosted,
)


# ------------------------------------------------------------------ arguments of methods


def check_array(
    what: str, name: str, value: Any, kinds: str, *shape: int, low: Any = None, high: Any = None
) -> None:
    """Raise ParameterError unless a value is an array of this kind and shape, in the range.

    Compiled code reads arrays without looking at their type, shape or range.
    """
    # by the text of the type: byte order counts for compiled code
    known = type(value) is np.ndarray and value.dtype.str in [d for k in kinds for d in DTYPES[k]]
    if not known or value.shape != shape:
        got = shown(value)
        if type(value) is np.ndarray:
            got = f"{value.dtype} of shape {value.shape}"
        raise ParameterError(f"{what}: {name} must be an array of shape {shape}, got {got}")
    if value.dtype.kind == "f" and not np.isfinite(value).all():
        raise ParameterError(f"{what}: {name} must be finite; got NaN or infinity")
    below = low is not None and (value < low).any()
    if below or (high is not None and (value > high).any()):
        raise ParameterError(f"{what}: {name} must be in {low}..{high}, got {shown(value)}")


def check_nothing(releaser: Any, given: Given, users: Any) -> None:
    """Check nothing: there are no arguments."""


def check_due(releaser: Any, given: Given, users: Any) -> None:
    """Check the replicates that are due."""
    check_array(releaser.what, "due", given.get("due"), "b", releaser.replicates)


def check_due_or_all(releaser: Any, given: Given, users: Any) -> None:
    """Check the replicates that are due, or None for all."""
    if given.get("due") is not None:
        check_due(releaser, given, users)


def adding(sources: Mapping[str, str], check: Check) -> Method:
    """Return the description of a method that takes records and returns nothing."""
    return Method(sources, check, records=True, returns=False)


VALUE = {"value": Method({}, check_nothing)}
"""Description of the newest release."""
RELEASED = {"release": Method({"due": PUBLIC}, check_due), **VALUE}
"""Methods of releases for the replicates that are due."""
MINIMISED = {"release": Method({"due": PUBLIC}, check_due_or_all), **VALUE}
"""Methods of a minimiser, besides those that take records."""
SENT = {"send": Method({}, check_nothing, records=True)}
"""Method of messages. Its arguments are context, action and feedback, which this process has."""


def describe_messages(
    kind: type,
    *mechanisms: type,
    methods: Mapping[str, Method] = SENT,
    centre: Reader | None = None,
) -> None:
    """Describe a releaser of local messages, made of a mechanism and the streams of a process."""

    def completed(options: Given, problem: Any, streams: Any) -> Given:
        return {**options, "streams": streams}

    describe_releaser(
        kind, {"mechanism": instance(*mechanisms)}, methods, centre=centre, completed=completed
    )


NAMED: Mapping[str, Reader] = {"share": optional(real(0.0, 1.0, open_low=True)), "what": text}
"""Arguments of every releaser."""
