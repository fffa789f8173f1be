"""Elements of MyST Markdown, and the folder of generated pages."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path


class Pages:
    """Generated pages. Unchanged pages are not written, so that rebuilding is fast.

    Args:
        root: Folder of the pages.
    """

    def __init__(self, root: Path) -> None:
        self.root = root
        self.written: set[Path] = set()

    def write(self, name: str, parts: Iterable[str]) -> None:
        """Write the page `name` (without suffix) from paragraphs."""
        path = self.root / f"{name}.md"
        text = "\n\n".join(part.strip("\n") for part in parts if part) + "\n"
        self.written.add(path)
        if path.exists() and path.read_text(encoding="utf-8") == text:
            return
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")

    def remove_stale(self) -> None:
        """Remove pages that were not written in this build."""
        for path in self.root.rglob("*.md"):
            if path not in self.written:
                path.unlink()


def table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a pipe table, with escaped bars in cells."""
    lines = [columns, ["---"] * len(columns), *rows]
    return "\n".join("| " + " | ".join(_cell(c) for c in line) + " |" for line in lines)


def _cell(text: str) -> str:
    return str(text).replace("|", "\\|").replace("\n", " ")


def definitions(entries: Iterable[tuple[str, str]]) -> str:
    """Return a definition list of (term, text) pairs."""
    blocks = []
    for term, text in entries:
        first, *rest = text.split("\n")
        blocks.append(
            "\n".join([term, f": {first}", *(f"  {line}" if line else "" for line in rest)])
        )
    return "\n\n".join(blocks)


def fence(language: str, code: str) -> str:
    """Return a code block."""
    return f"```{language}\n{code.strip(chr(10))}\n```"


def toctree(entries: Iterable[str], *options: str) -> str:
    """Return a toctree of documents, addressed from the root of the documentation."""
    return "\n".join(["```{toctree}", *(f":{o}:" for o in options), "", *entries, "```"])


def slug(name: str) -> str:
    """Return the file name of a page: ``DPB/Pricing-v0`` becomes ``DPB-Pricing-v0``."""
    return name.replace("/", "-").replace(":", "-")
