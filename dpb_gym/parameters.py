"""Declarations of agents' parameters with their default and allowed values."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, fields
from functools import partial
from typing import Any

from dpb_gym import validation


def _checked(check: Callable[..., Any], default: Any, *bounds: Any, init: bool, **ends: Any) -> Any:
    """Return a dataclass field whose metadata has a check of the value."""
    metadata = {"check": lambda name, value: check(name, value, *bounds, **ends)}
    return field(default=default, init=init, metadata=metadata)


def real(
    default: float | None,
    low: float = -math.inf,
    high: float = math.inf,
    init: bool = True,
    **ends: bool,
) -> Any:
    """Declare a number with the bounds of `validation.real`.

    With ``init=False`` it is a class constant, which a subclass may make a parameter.
    """
    return _checked(validation.real, default, low, high, init=init, **ends)


def integer(default: int | None, low: int, init: bool = True) -> Any:
    """Declare an integer of at least `low`."""
    return _checked(validation.integer, default, low, init=init)


def choice(default: str | None, options: Sequence[str], init: bool = True) -> Any:
    """Declare a string that is one of `options`."""
    return _checked(validation.choice, default, options, init=init)


def flag(default: bool) -> Any:
    """Declare a boolean."""
    return _checked(validation.flag, default, init=True)


def optional_positive(default: float | None) -> Any:
    """Declare a number > 0, or None whatever the default is."""

    def check(name: str, value: Any) -> Any:
        return None if value is None else validation.real(name, value, 0.0, open_low=True)

    return field(default=default, metadata={"check": check})


positive = partial(real, low=0.0, open_low=True)
inside = partial(real, low=0.0, high=1.0, open_low=True, open_high=True)


def with_parameters(cls: type) -> None:
    """Turn the annotated attributes of a class into keyword-only parameters.

    Their checks, and those of its bases, become its attribute `parameter_checks`.
    """
    dataclass(eq=False, kw_only=True)(cls)
    checks: dict[str, Callable[..., Any]] = {}
    for base in reversed(cls.__bases__):
        checks |= getattr(base, "parameter_checks", {})
    # A subclass that only changes a default declares a field without a check.
    checks |= {own.name: own.metadata["check"] for own in fields(cls) if "check" in own.metadata}
    cls.parameter_checks = checks  # type: ignore[attr-defined]


def check_parameters(thing: Any) -> None:
    """Check the parameters of an instance and replace them by their checked values.

    A subclass that changes the default of a parameter inherits its check. None is valid where it
    is the default.

    Raises:
        ParameterError: If a parameter is out of range.
    """
    for own in fields(thing):
        check = thing.parameter_checks.get(own.name)
        if check is None:
            continue
        value = getattr(thing, own.name)
        if value is not None or own.default is not None:
            setattr(thing, own.name, check(own.name, value))
