"""Parameters of agents that say what they may be where they are declared."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, fields
from functools import partial
from typing import Any

from dpb_gym import validation
from dpb_gym.agent import Agent


def _checked(default: Any, check: Callable[[str, Any], Any]) -> Any:
    return field(default=default, metadata={"check": check})


def real(
    default: float | None, low: float = -math.inf, high: float = math.inf, **ends: bool
) -> Any:
    """A number; bounds as for `validation.real`."""
    return _checked(default, lambda name, value: validation.real(name, value, low, high, **ends))


def integer(default: int | None, low: int) -> Any:
    """A whole number from `low` on."""
    return _checked(default, lambda name, value: validation.integer(name, value, low))


def choice(default: str, options: Sequence[str]) -> Any:
    """One of some words."""
    return _checked(default, lambda name, value: validation.choice(name, value, options))


positive = partial(real, low=0.0, open_low=True)
inside = partial(real, low=0.0, high=1.0, open_low=True, open_high=True)


def flag(default: bool) -> Any:
    """True or False."""
    return _checked(default, validation.flag)


@dataclass(eq=False, kw_only=True)
class Configured(Agent):
    """An agent whose parameters are checked when it is made.

    A subclass that gives a parameter another default keeps its check; None passes where it is the
    default.

    Raises:
        ParameterError: If a parameter is out of range.
    """

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
