"""Checks of single fields, and intervals: what the data of a leaderboard are made of."""

from __future__ import annotations

import math
import numbers
import unicodedata
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from dpb_gym.errors import ParameterError

NO_BUDGET = "none"
_UNPRINTED = ("Cc", "Cs", "Zl", "Zp")
# They reorder whatever stands beside a label.
_DIRECTIONS = frozenset("\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")


def text(value: object, what: str, *, empty: bool = False, lines: bool = False) -> str:
    """Returns `value` if it is printable text that can be written to a file."""
    if not isinstance(value, str):
        raise ParameterError(f"{what} must be a string, got {type(value).__name__}")
    if not empty and not value.strip():
        raise ParameterError(f"{what} must not be empty")
    checked = value.replace("\n", "").replace("\t", "") if lines else value
    if any(unicodedata.category(c) in _UNPRINTED or c in _DIRECTIONS for c in checked):
        raise ParameterError(
            f"{what} must hold no control, surrogate or direction characters, got {value!r}"
        )
    return value


def number(value: object, what: str) -> float:
    """Returns `value` as a float if it is a finite number."""
    if isinstance(value, bool) or not isinstance(value, numbers.Real):
        raise ParameterError(f"{what} must be a number, got {value!r}")
    result = float(value)
    if not math.isfinite(result):
        raise ParameterError(f"{what} must be finite, got {result}; a missing value is None")
    return result


def count(value: object, what: str, *, least: int) -> int:
    """Returns `value` as an int if it is a whole number of at least `least`."""
    if isinstance(value, bool) or not isinstance(value, numbers.Integral) or int(value) < least:
        raise ParameterError(f"{what} must be an integer of at least {least}, got {value!r}")
    return int(value)


def mapping(value: object, what: str) -> dict[str, Any]:
    """Returns `value` as a dict if it maps printable texts."""
    if not isinstance(value, Mapping) or not all(isinstance(k, str) for k in value):
        raise ParameterError(f"{what} must map strings to values, got {value!r}")
    for key in value:
        text(key, f"a key of {what}")
    return dict(value)


def instances(values: object, kind: type, what: str) -> tuple[Any, ...]:
    """Returns `values` as a tuple if all are of one type."""
    if isinstance(values, str) or not isinstance(values, Iterable):
        raise ParameterError(f"{what} must be a sequence of {kind.__name__}, got {values!r}")
    result = tuple(values)
    for value in result:
        if not isinstance(value, kind):
            raise ParameterError(f"{what} must hold {kind.__name__}, got {type(value).__name__}")
    return result


@dataclass(frozen=True)
class Interval:
    """An estimate with a confidence interval.

    Attributes:
        mean: The estimate.
        low: Lower end of the interval.
        high: Upper end, at least `low`.

    Raises:
        ParameterError: A value is not finite, or `low` exceeds `high`.
    """

    mean: float
    low: float
    high: float

    def __post_init__(self) -> None:
        for name in ("mean", "low", "high"):
            object.__setattr__(self, name, number(getattr(self, name), f"Interval.{name}"))
        if self.low > self.high:
            raise ParameterError(f"Interval.low {self.low} exceeds Interval.high {self.high}")


def check_interval(value: object, what: str, *, optional: bool) -> None:
    """Raises unless `value` is an `Interval`, or None where that is allowed."""
    if isinstance(value, Interval) or (optional and value is None):
        return
    allowed = "an Interval or None" if optional else "an Interval"
    raise ParameterError(f"{what} must be {allowed}, got {value!r}")


def probabilities(value: object) -> dict[str, float]:
    """Returns `value` as a dict if it maps texts to numbers in [0, 1]."""
    result = {}
    for key, probability in mapping(value, "Row.improvement").items():
        probability = number(probability, f"Row.improvement[{key!r}]")
        if not 0 <= probability <= 1:
            raise ParameterError(f"Row.improvement[{key!r}] must be in [0, 1], got {probability}")
        result[key] = probability
    return result


def row_key(agent: str, budget: str) -> str:
    """Names a row: the label, and the budget where there is one."""
    return agent if budget == NO_BUDGET else f"{agent} ({budget})"
