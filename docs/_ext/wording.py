"""Fail if tracked texts have words that the style excludes: python docs/_ext/wording.py.

Use the field's terms: baseline for yardstick, untrusted for a stranger's, agents for the zoo. Pages
are also checked for lines of one word inside a paragraph, and for tables that are split or uneven,
Python files for variables called "found", which say where a result comes from and not what it is.

Limits: words with a meaning that the style allows are excluded in the phrases of the other meaning
only. "found" may be a search's result and "nobody" a trust model, for example.
"""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
SUFFIXES = {".py", ".md", ".yaml", ".yml", ".css", ".js", ".j2"}
WORDS = re.compile(
    r"\b(the house|as house|in[- ]house|(?<!-)zoo|yardsticks?|who(m|se)?ever|anew|hearths?"
    r"|riddles?|senseless|nobody['’]s|strangers?['’]?s?|told apart|of one['’]s own|foretold?"
    r"|calm(s|ed|er|est|ly|ing|ness)?|deals?|dealt|laid|as it is now|(?<!can )any more"
    r"|(?<!that is )no longer (?!at its path|matters)"
    r"|kept (in a cache|in the cache|cached)|found to be|worth of (an?|the) (agent|policy|action)"
    r"|papers['’] room|give(s|n)? (its|their|our) word)\b"
    r"|^\s*(\"\"\"|# )(Whom|Tells whom|Nobody|Whoever|Hands|Deals)\b",
    re.IGNORECASE,
)
NAMES = {"found", "calm"}
WITH_EXAMPLES = {Path(__file__), ROOT / "tests/docs/test_wording.py"}
WIDTH = 120
"""Most characters of a line of a page."""
FENCE = re.compile(r"\s*(```|~~~)")
BLOCK = re.compile(r"\s*([|#<>:]|```|!\[|[-*+] |\d+\. |$)|\[\^?[^\]]+\]:")
WORD = re.compile(r"\s*[^\s|#<`]+\s*")


def main() -> int:
    listed = subprocess.run(
        ["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    hits = 0
    for name in listed.stdout.splitlines():
        path = ROOT / name
        if path.suffix not in SUFFIXES or path in WITH_EXAMPLES or not path.is_file():
            continue
        text = path.read_text(encoding="utf-8")
        problems = list(words(text))
        if path.suffix == ".md":
            problems += layout(text)
        if path.suffix == ".py":
            problems += names(text)
        for number, problem in problems:
            print(f"{name}:{number}: {problem}", file=sys.stderr)
            hits += 1
    return min(hits, 1)


def words(text: str) -> Iterator[tuple[int, str]]:
    """Yield the number of each line with an excluded word, and the word."""
    for number, line in enumerate(text.splitlines(), 1):
        for match in WORDS.finditer(line):
            yield number, f"{match[0].strip()!r} in {line.strip()[:90]!r}"


def names(text: str) -> Iterator[tuple[int, str]]:
    """Yield the number of each line of Python that names a variable by an excluded word."""
    if not any(name in text for name in NAMES):  # most files, whose syntax trees take seconds
        return
    for node in ast.walk(ast.parse(text)):
        for field in ("id", "arg", "name"):
            name = getattr(node, field, None)
            if name in NAMES and hasattr(node, "lineno"):
                yield node.lineno, f"a variable called {name!r}: say what it is"


def layout(text: str) -> Iterator[tuple[int, str]]:
    """Yield the number of each line that breaks a paragraph or a table of a page.

    A line of one word is wrong inside a paragraph, and at its end if it fits on the line before.
    """
    # settings before the text are replaced by as many empty lines
    text = re.sub(r"\A---\n.*?\n---\n", lambda m: "\n" * m[0].count("\n"), text, flags=re.DOTALL)
    lines = text.splitlines()
    fenced = False
    cells = 0
    for number, line in enumerate(lines, 1):
        if FENCE.match(line):
            fenced = not fenced
        if fenced or FENCE.match(line):
            cells = 0
            continue
        before = lines[number - 2] if number > 1 else ""
        after = lines[number] if number < len(lines) else ""
        if line.startswith("|"):
            if not cells:
                cells = _cells(line)
                if not re.fullmatch(r"\|?([\s:]*-+[\s:]*\|?)+", after):
                    yield number, "a table without a line of dashes below its head"
                if before.strip() and not before.startswith(("#", "<!--")):
                    yield number, "a table directly below a paragraph"
            elif _cells(line) != cells:
                yield number, f"a row of {_cells(line)} cells in a table of {cells}"
            continue
        if cells and line.strip() and not line.startswith("<!--"):
            yield number, "text directly below a table"
        cells = 0
        # A definition's term is one line above a line that starts with a colon.
        alone = WORD.fullmatch(line) and not BLOCK.match(line) and not after.startswith(":")
        if alone and not BLOCK.fullmatch(before) and not before.startswith(("#", "|", "<", ":")):
            if not BLOCK.match(after):
                yield number, f"a line of one word in a paragraph: {line.strip()!r}"
            elif len(before.rstrip()) + 1 + len(line.strip()) <= WIDTH:
                yield number, f"a line of one word that fits on the line before: {line.strip()!r}"


def _cells(line: str) -> int:
    """Return the number of cells of a row; bars in code and escaped bars separate none."""
    bare = re.sub(r"`[^`]*`", "", line.strip()).replace("\\|", "")
    return bare.strip("|").count("|") + 1


if __name__ == "__main__":
    sys.exit(main())
