"""Text between the marks ``<!-- NAME -->`` and ``<!-- /NAME -->`` of a page, and tables."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from pathlib import Path


def block(text: str, name: str) -> str:
    """Return the text between the marks of this name.

    Raises:
        SystemExit: If there are none.
    """
    match = _pattern(name).search(text)
    if match is None:
        raise SystemExit(f"no marks <!-- {name} --> and <!-- /{name} -->")
    return match[3].strip("\n")


def put(path: Path, name: str, text: str) -> None:
    """Replace the text between the marks of this name in a file."""
    page = path.read_text(encoding="utf-8")
    block(page, name)
    path.write_text(replaced(page, name, lambda _, __: text), encoding="utf-8")


def replaced(page: str, name: str, make: Callable[[str, str], str]) -> str:
    """Return the page with every block of this name written again.

    Args:
        page: Text of the page.
        name: Name of the marks.
        make: Function of the words after the name in the first mark, ``""`` without any, and of
            the block's text. It returns the new text.
    """

    def new(match: re.Match[str]) -> str:
        made = make((match[2] or "").strip(), match[3].strip("\n"))
        return f"{match[1]}\n{made}\n<!-- /{name} -->"

    return _pattern(name).sub(new, page)


def table(rows: Sequence[Sequence[str]]) -> str:
    """Return a table in Markdown whose first row is its head."""
    lines = [rows[0], ["---"] * len(rows[0]), *rows[1:]]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _pattern(name: str) -> re.Pattern[str]:
    return re.compile(rf"(<!-- {name}( [^>\n]*?)? -->)\n(.*?)<!-- /{name} -->", re.DOTALL)
