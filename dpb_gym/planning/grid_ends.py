"""Values beyond the ends of a grid, so that a best point does not lie at an end."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any


def beyond(values: Iterable[Any], value: Any) -> list[float]:
    """Return the next values outside of a grid if `value` is its least or its largest number.

    The last step continues by its ratio: after 1, 10, 100 comes 1000, and before 0.3, 1, 3 comes
    0.09. If all values are in (0, 1), the distance to 1 shrinks by its ratio where the value would
    leave (0, 1): after 0.75, 0.9 comes 0.96. A single number has a step of 2 in both directions.
    Values other than numbers, and 0 and negative numbers, have nothing beyond.

    Args:
        values: The grid of one parameter, in any order.
        value: One of them.
    """
    if not _number(value) or value <= 0:
        return []
    ladder = sorted({v for v in values if _number(v)} | {value})
    nearby = []
    if value == ladder[-1]:
        nearby.append(_after(ladder))
    if value == ladder[0]:
        last = ladder[1] if len(ladder) > 1 else 2 * value
        nearby.append(value * value / last)
    if isinstance(value, int):
        nearby = [round(v) for v in nearby if round(v) >= 1]
    else:
        nearby = [float(f"{v:.2g}") for v in nearby]
    return [v for v in nearby if v not in ladder]


def _after(ladder: list[float]) -> float:
    value = ladder[-1]
    before = ladder[-2] if len(ladder) > 1 else value / 2
    if before <= 0:
        before = value / 2
    more = value * value / before
    if all(0 < v < 1 for v in ladder) and more >= 1:
        return 1 - (1 - value) ** 2 / (1 - before)
    return more


def _number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)
