"""Plain text: what a reader refuses, and how messages quote it."""

from __future__ import annotations

import re

from dpb_gym.errors import DataError

_FOREIGN = (
    (rb"\A(\xff\xfe|\xfe\xff)", "UTF-16, not UTF-8"),
    (rb"\A\x1f\x8b", "gzip data: unpack it first"),
    (rb"\0", "NUL bytes"),
    (rb"\r(?!\n)[^\n]{0,20}", "a carriage return inside a line"),
)


def refuse_foreign(raw: bytes, where: str) -> None:
    """Refuses what is no plain text with ends of lines that we know."""
    for pattern, what in _FOREIGN:
        found = re.search(pattern, raw)
        if found is not None:
            line = raw.count(b"\n", 0, found.start()) + 1
            shown = shorten(raw[max(0, found.start() - 20) : found.end()])
            raise DataError(f"{where}: line {line}: expected plain text, found {what}: {shown}")


def require_newline(raw: bytes, where: str) -> None:
    """Refuses a file whose last line has no end: it was probably cut."""
    if not raw.endswith(b"\n"):
        last = raw[raw.rfind(b"\n") + 1 :]
        raise DataError(
            f"{where}: line {raw.count(bytes([10])) + 1}: expected a newline at the end of the "
            f"file, found the end after {shorten(last)}: the file was probably cut off (an intact "
            "file without a final newline loads with strict=False)"
        )


def first_line(raw: bytes, where: str) -> str:
    """The first line of a file, which must be plain text, without byte order mark and line end.

    Raises:
        DataError: The file is empty or no text.
    """
    if not raw:
        raise DataError(f"{where}: line 1: expected text, found an empty file")
    first = raw[: 1 << 16].split(b"\n", 1)[0].removesuffix(b"\r")
    refuse_foreign(first, where)
    return first.decode("utf-8", errors="replace").removeprefix("\ufeff")


def shorten(text: str | bytes, limit: int = 80) -> str:
    """Quotes a piece of a file for a message."""
    if isinstance(text, bytes):
        text = text.decode("utf-8", errors="backslashreplace")
    return repr(text if len(text) <= limit else text[:limit] + "...")
