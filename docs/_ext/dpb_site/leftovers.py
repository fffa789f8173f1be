"""Complete tables of contents: list pages without an entry, drop patterns without a page."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

from sphinx.util.matching import patfilter

from dpb_site.markdown import Pages, toctree

_PATTERN = re.compile(r"^[\w/*-]*\*[\w/*-]*$", re.M)


def write(pages: Pages, docs: Path) -> None:
    """Write the page that lists the hand-written pages without an entry in the index."""
    index = (docs / "index.md").read_text(encoding="utf-8")
    named = {line.strip() for line in index.splitlines()} | {"index"}
    for pattern in _PATTERN.findall(index):
        named |= {_name(p, docs) for p in docs.glob(f"{pattern}.md")}
    for page in docs.glob("*.md"):
        named |= {_name(p, docs) for p in _listed(page, docs)}
    written = [p for p in docs.rglob("*.md") if not p.relative_to(docs).as_posix().startswith("_")]
    unlisted = sorted(name for name in (_name(p, docs) for p in written) if name not in named)
    text = "Further pages." if unlisted else "The table of contents lists all pages."
    pages.write("more/index", ["# More", text, toctree(f"/{name}" for name in unlisted)])


def existing_patterns(source: str, names: Iterable[str]) -> str:
    """Remove patterns of toctrees that match no document, as Sphinx warns about them."""
    known = list(names)
    return _PATTERN.sub(lambda m: m[0] if patfilter(known, m[0]) else "", source)


def _listed(page: Path, docs: Path) -> list[Path]:
    """Return the pages matched by the patterns of a page's toctrees."""
    text = page.read_text(encoding="utf-8")
    blocks = re.findall(r"^```\{toctree\}\n(.*?)^```", text, re.M | re.S)
    return [p for block in blocks for m in _PATTERN.findall(block) for p in docs.glob(f"{m}.md")]


def _name(page: Path, docs: Path) -> str:
    return page.relative_to(docs).with_suffix("").as_posix()
