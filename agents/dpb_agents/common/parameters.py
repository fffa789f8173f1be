"""Parameters of agents that say what they may be where they are declared."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, fields
from functools import partial
from typing import Any, dataclass_transform

from dpb_gym import validation
from dpb_gym.agent import Agent


def _checked(check: Callable[..., Any], default: Any, *bounds: Any, init: bool, **ends: Any) -> Any:
    known = {"check": lambda name, value: check(name, value, *bounds, **ends)}
    return field(default=default, init=init, metadata=known)


def real(
    default: float | None,
    low: float = -math.inf,
    high: float = math.inf,
    init: bool = True,
    **ends: bool,
) -> Any:
    """A number; bounds as for `validation.real`. Not `init`: a subclass may make it a parameter."""
    return _checked(validation.real, default, low, high, init=init, **ends)


def integer(default: int | None, low: int, init: bool = True) -> Any:
    """A whole number from `low` on."""
    return _checked(validation.integer, default, low, init=init)


def choice(default: str | None, options: Sequence[str], init: bool = True) -> Any:
    """One of some words."""
    return _checked(validation.choice, default, options, init=init)


def flag(default: bool) -> Any:
    """True or False."""
    return _checked(validation.flag, default, init=True)


positive = partial(real, low=0.0, open_low=True)
inside = partial(real, low=0.0, high=1.0, open_low=True, open_high=True)


@dataclass_transform(eq_default=False, kw_only_default=True, field_specifiers=(field,))
class Configured(Agent):
    """An agent whose annotated attributes are its parameters, checked when it is made.

    Subclasses are keyword-only dataclasses. One that gives a parameter another default keeps its
    check; None passes where it is the default.

    Raises:
        ParameterError: If a parameter is out of range.
    """

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        dataclass(eq=False, kw_only=True)(cls)

    def __post_init__(self) -> None:
        for own in fields(self):
            versions = (c.__dict__.get("__dataclass_fields__", {}) for c in type(self).__mro__)
            known = (v[own.name].metadata.get("check") for v in versions if own.name in v)
            check = next(filter(None, known), None)
            if check is None:
                continue
            value = getattr(self, own.name)
            if value is not None or own.default is not None:
                setattr(self, own.name, check(own.name, value))
