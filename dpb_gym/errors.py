"""Error types of dpb-gym, and helpers for error messages.

Each derives from `DPBError` and from the built-in type that fits, so both
``except DPBError`` and ``except ValueError`` work.
"""

from __future__ import annotations

import difflib
import linecache
import traceback
from collections.abc import Iterable
from importlib import import_module
from pathlib import Path
from typing import Any, Self


class DPBError(Exception):
    """Base of all errors raised on purpose by dpb-gym.

    Attributes:
        replicate: Replicate of a batch that caused the error; None if unknown.
        round: Round that caused it, if several were played at once; None otherwise.
    """

    replicate: int | None = None
    round: int | None = None

    def at(self, replicate: int) -> Self:
        """Set the replicate that caused the error and return the error."""
        self.replicate = int(replicate)
        return self


class ParameterError(DPBError, ValueError):
    """A parameter is outside its documented range, shape or type."""


class UnknownParameterError(ParameterError, TypeError):
    """A keyword argument is unknown; also a TypeError, as tools that probe for arguments expect."""


class ActionError(DPBError, ValueError):
    """An action has a wrong shape, dtype or range."""


class UnknownNameError(DPBError, KeyError, ValueError):
    """An id or name is not registered; the message offers close matches."""

    def __str__(self) -> str:  # KeyError would print the repr
        return str(self.args[0]) if self.args else ""


class BudgetError(DPBError, ValueError):
    """A privacy budget or guarantee parameter is invalid."""


class FixedError(DPBError, AttributeError):
    """An attribute of a releaser is set that is fixed, or fixed by now."""


class BudgetExceeded(DPBError, RuntimeError):
    """A charge would spend more than the budget; nothing was released."""


class HorizonExceeded(DPBError, RuntimeError):
    """More records or rounds than the declared horizon; nothing was released."""


class DataError(DPBError, ValueError):
    """A data file is missing, damaged, truncated or of another format."""


class QuestionError(DataError):
    """A table can be read in several ways, and an argument must say which.

    Attributes:
        questions: The open questions, see `dpb_data.Question`.
    """

    def __init__(self, *questions: Any) -> None:
        super().__init__("\n".join(map(str, questions)))
        self.questions = questions

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), self.questions


class ResultError(DPBError, ValueError):
    """A result directory, shard or manifest is damaged or of another suite."""


class SuiteError(DPBError, ValueError):
    """A suite file is invalid."""


class AgentError(DPBError, ValueError):
    """An agent is misregistered, unsupported on a problem, or broke its protocol."""


class EarlyError(AgentError, AttributeError):
    """A policy uses its curator before `begin`."""


class CheckpointError(DPBError, RuntimeError):
    """A checkpoint is damaged, of another version, or was loaded before."""


class StateError(DPBError, ValueError):
    """State cannot be written, or bytes are no state: damaged, too large or of unknown classes."""


class MissingExtraError(DPBError, ImportError):
    """An optional dependency is needed; the message names the extra to install."""


def optional_module(name: str, purpose: str, extra: str, hint: str = "") -> Any:
    """Import a module of an optional dependency.

    Args:
        name: The module.
        purpose: What needs it, for the message.
        extra: The extra that installs it.
        hint: Text to append to the message.

    Raises:
        MissingExtraError: If it is not installed.
    """
    try:
        return import_module(name)
    except ImportError:
        package = name.partition(".")[0]
        raise MissingExtraError(
            f"{purpose} needs {package}: pip install 'dpb-gym[{extra}]'{hint}"
        ) from None


FEW = 12
"""Maximum number of names that a message lists; of more, it shows close matches only."""


def shown(value: object) -> str:
    """Return the repr of `value` for a message, at most 120 characters; never raise."""
    try:
        text = repr(value)
    except Exception:  # a repr that fails, or an integer of more than 4300 digits
        text = f"a {type(value).__name__}"
    return text if len(text) <= 120 else f"{text[:117]}..."


def did_you_mean(name: object, options: Iterable[str]) -> str:
    """Return the question whether one of at most three similar names was meant, "" without any."""
    close = difflib.get_close_matches(shown(name).strip("'"), list(options), n=3, cutoff=0.5)
    return f"did you mean {' or '.join(map(repr, close))}?" if close else ""


def unknown_parameter(
    owner: str, name: object, options: Iterable[str], takes: str
) -> UnknownParameterError:
    """Return an `UnknownParameterError` that offers close matches.

    The message has Python's own phrase for an unexpected keyword argument, which tools search for.

    Args:
        owner: What has no such parameter, e.g. ``"agent 'lin-ucb'"``.
        name: The name that was given.
        options: The parameters.
        takes: What is accepted, e.g. ``"it takes alpha, ridge"``.
    """
    close = did_you_mean(name, options)
    hint = f" ({close})" if close else ""
    return UnknownParameterError(
        f"{owner} got an unexpected keyword argument {shown(name)}{hint}; {takes}"
    )


def unknown_name(what: str, name: object, known: Iterable[str]) -> UnknownNameError:
    """Return an `UnknownNameError` that offers close matches.

    Args:
        what: Kind of the name, e.g. ``"agent"``.
        name: The name that was not found.
        known: The registered names.
    """
    options = sorted(known)
    close = did_you_mean(name, options)
    hint = f"; {close}" if close else ""
    count = len(options)
    listing = f" Known: {', '.join(options[:FEW]) or 'none'}"
    if count > FEW:
        listing = f" {count} are known" if close else f"{listing}, ... ({count} in all)"
    return UnknownNameError(f"unknown {what} {shown(name)}{hint or '.'}{listing}")


def line_of(error: BaseException, module: str | None) -> str:
    """Return the line of a module's code that caused an error, "" for errors of this package."""
    known = getattr(error, "line", None)  # of an error of another process
    if known is not None:
        return str(known)
    while error.__cause__ is not None:
        error = error.__cause__
    own = [
        (frame.f_code.co_filename, number)
        for frame, number in traceback.walk_tb(error.__traceback__)
        if frame.f_globals.get("__name__") == module
    ]
    if isinstance(error, DPBError) or not own:
        return ""
    file, number = own[-1]
    source = linecache.getline(file, number).strip()
    return f" [{Path(file).name}, line {number}{f': {source}' if source else ''}]"
