"""Numbers as text, with the same number of decimals in all of a column."""

from __future__ import annotations

import math
from collections.abc import Iterable

MINUS = "\N{MINUS SIGN}"


def decimals(values: Iterable[float]) -> int | None:
    """Return the decimals of a column at which its smallest number keeps three digits.

    Args:
        values: Finite numbers of the column.

    Returns:
        0 to 3, or None if magnitudes differ so much that each number needs its own format.
    """
    sizes = [abs(value) for value in values if value != 0]
    if not sizes:
        return 0
    smallest, largest = min(sizes), max(sizes)
    if largest >= 1e7 or largest < 1e-2:
        return None
    return min(3, max(0, 2 - math.floor(math.log10(max(smallest, 1e-2)))))


def number(value: float | None, places: int | None = None) -> str:
    """Return a number as text with thousands separators.

    Args:
        value: A finite number, or None for a dash.
        places: Decimals; None chooses by magnitude, with exponents for extreme values.

    >>> number(12345.6), number(0.25, 2), number(1.5e12), number(None)
    ('12,346', '0.25', '1.50e12', '–')
    """
    if value is None:
        return "–"
    size = abs(value)
    if places is None and size != 0 and (size >= 1e7 or size < 1e-3):
        mantissa, exponent = f"{size:.2e}".split("e")
        text = f"{mantissa}e{int(exponent)}"
    else:
        if places is None:
            places = 0 if size == 0 or size >= 1000 else max(0, 2 - math.floor(math.log10(size)))
        text = f"{size:,.{places}f}"
    negative = value < 0 and any(digit in text for digit in "123456789")
    return f"{MINUS}{text}" if negative else text


def tick(value: float) -> str:
    """Return the text of an axis mark, without trailing zeros.

    >>> tick(2500.0), tick(-0.5), tick(2.5e15)
    ('2,500', '−0.5', '2.5e15')
    """
    size = abs(value)
    if size != 0 and (size >= 1e6 or size < 1e-3):
        mantissa, exponent = f"{size:.5e}".split("e")
        text = f"{mantissa.rstrip('0').rstrip('.')}e{int(exponent)}"
    else:
        text = f"{float(f'{size:.10g}'):,.6f}".rstrip("0").rstrip(".")
    return f"{MINUS}{text}" if value < 0 else text
