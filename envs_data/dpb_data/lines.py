"""Line-by-line checking of MovieLens rating files: slow, exact, and only run on bad files.

The fast reader knows that a file is wrong; this module says where and how.
"""

from __future__ import annotations

import math
import re
from typing import BinaryIO

from dpb_data.formats import MAX_LINE, RatingFormat, shorten

MAX_ID = 2**31 - 1
# MovieLens went on line in 1995. A ten-digit timestamp that lost its last digit falls before 1976,
# so this bound also catches a file cut inside its last timestamp.
FIRST_TIMESTAMP = 788_918_400  # 1995-01-01
LAST_TIMESTAMP = 4_102_444_800  # 2100-01-01

_BLANKS = b" \t"  # what the fast reader trims
_INTEGER = re.compile(rb"-?[0-9]+")
_NUMBER = re.compile(rb"-?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?")


def first_problem(stream: BinaryIO, fmt: RatingFormat, *, strict: bool) -> str | None:
    """Reads a ratings file up to its first bad line.

    Args:
        stream: The file, from its start.
        fmt: Its format.
        strict: Whether a missing final newline and implausible timestamps are problems.

    Returns:
        ``"line N: expected ..., found ..."``, or None when every line is good.
    """
    number = 0
    raw = b"\n"
    delimiter = fmt.delimiter.encode()
    header = None if fmt.header is None else fmt.header.encode()
    while line := stream.readline(MAX_LINE):
        number, raw = number + 1, line
        text = line.removesuffix(b"\n").removesuffix(b"\r")
        if number == 1:
            text = text.removeprefix(b"\xef\xbb\xbf")
            if header is not None:
                if text != header:
                    return f"line 1: expected the header {fmt.header!r}, found {shorten(text)}"
                continue
        problem = _line_problem(text, fmt, delimiter, header, strict=strict)
        if problem is not None:
            return f"line {number}: {problem}"
    if number == 0 or (number == 1 and header is not None):
        found = "an empty file" if number == 0 else "nothing after the header"
        return f"line {number + 1}: expected {fmt.columns!r}, found {found}"
    if strict and not raw.endswith(b"\n"):
        return (
            f"line {number}: expected a newline at the end of the file, found the end after "
            f"{shorten(raw)}: the file was probably cut off (an intact file without a final "
            "newline loads with strict=False)"
        )
    return None


def _line_problem(
    text: bytes, fmt: RatingFormat, delimiter: bytes, header: bytes | None, *, strict: bool
) -> str | None:
    """Says what is wrong with one line, or returns None."""
    if b"\0" in text:
        return f"expected plain text, found NUL bytes: {shorten(text)}"
    if not text:
        return f"expected {fmt.columns!r}, found an empty line"
    if header is not None and text == header:
        return "expected a rating, found the header again (were two files joined?)"
    if b"\r" in text:
        return f"expected one rating per line, found a carriage return inside: {shorten(text)}"
    fields = text.split(delimiter)
    if len(fields) != 4:
        return (
            f"expected 4 fields separated by {fmt.delimiter!r} ({fmt.columns}), "
            f"found {len(fields)}: {shorten(text)}"
        )
    for name, value in (("userId", fields[0]), ("movieId", fields[1])):
        if not _INTEGER.fullmatch(value.strip(_BLANKS)) or not 0 < int(value) <= MAX_ID:
            return (
                f"expected {name} to be a whole number from 1 to {MAX_ID}, found {shorten(value)}"
            )
    problem = _rating_problem(fields[2].strip(_BLANKS), fmt)
    if problem is not None:
        return problem
    stamp = fields[3].strip(_BLANKS)
    if not _INTEGER.fullmatch(stamp) or not -(2**63) <= int(stamp) < 2**63:
        return f"expected timestamp to be a whole number of seconds, found {shorten(fields[3])}"
    if strict and not FIRST_TIMESTAMP <= int(stamp) <= LAST_TIMESTAMP:
        return (
            "expected timestamp in Unix seconds between 1995 and 2100 "
            f"({FIRST_TIMESTAMP} to {LAST_TIMESTAMP}), found {shorten(stamp)} (cut off?)"
        )
    return None


def _rating_problem(value: bytes, fmt: RatingFormat) -> str | None:
    pattern = _INTEGER if fmt.step == 1.0 else _NUMBER
    rating = float(value) if pattern.fullmatch(value) else math.nan
    low, high = fmt.rating_range
    on_grid = fmt.step is None or (rating / fmt.step).is_integer()
    if low <= rating <= high and on_grid:
        return None
    return f"expected rating to be {fmt.allowed}, found {shorten(value)}"
