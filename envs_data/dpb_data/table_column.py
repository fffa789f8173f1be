"""A column of a table to read, with its allowed values."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
POSITIVE = math.nextafter(0.0, 1.0)
"""Smallest value of a column of positive numbers."""


@dataclass(frozen=True)
class Column:
    """A column to read, and its allowed values.

    Attributes:
        name: Name in the header, or for messages.
        low: Smallest value.
        high: Largest value. Infinity is always rejected.
        step: Values are multiples of it; None for any number.
        kind: ``"integer"`` (int64), ``"number"`` (float64), ``"text"`` (objects), ``"code"`` (text
            in which words such as "none" are values, not missing ones), ``"id"`` (int64
            where all are whole numbers, else text), ``"flag"`` (0 or 1, true or false),
            ``"time"`` (Unix seconds, or dates, as such) or ``"any"`` (numbers, else text).
        required: Whether every table must have it.
        nullable: Whether single values may be missing (NaN, None).
        also: One more allowed value, outside the range.
        zero_is_unknown: Whether 0 stands for an unknown value.
        hint: Text to append to messages on values.
    """

    name: str
    low: float = -math.inf
    high: float = math.inf
    step: float | None = None
    kind: str = "number"
    required: bool = True
    nullable: bool = False
    also: float | None = None
    zero_is_unknown: bool = False
    hint: str = ""

    @property
    def allowed(self) -> str:
        """Description of the allowed values."""
        whole = self.kind == "integer" or self.step == 1.0
        text = "a whole number" if whole else f"a multiple of {self.step:g}" if self.step else ""
        other = {"text": "some text", "code": "some text", "id": "some id", "flag": "0 or 1",
                 "any": "some value", "time": "Unix seconds or a date"}  # fmt: skip
        text = other.get(self.kind) or text or "a number"
        if self.low > -math.inf:
            text += f" from {self.low:.16g}" if self.low != POSITIVE else " above 0"
        if self.high < math.inf:
            text += f" to {self.high:.16g}"
        if self.also is not None:
            text += f", or exactly {self.also:g}"
        return text + (" or NULL" if self.nullable else "") + self.hint

    def wrong(self, values: Array) -> Array:
        """Return a mask of the numbers that are not allowed, NaN and infinity included."""
        good = (values >= self.low) & (values <= self.high) & np.isfinite(values)
        if self.step is not None:
            with np.errstate(invalid="ignore"):
                steps = values / self.step
                good &= steps == np.rint(steps)
        if self.also is not None:
            good |= values == self.also
        return ~good
