"""Sphinx extension that generates pages from the registries.

The pages of environments, agents and the API come from the registered environments, the agents'
specs and the modules' ``__all__``, that of changes from CHANGELOG.md. They are written to
``_generated`` in the documentation's folder if they changed.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from dpb_site import agents, api, environments, leaderboards, leftovers, pictures, suites, tutorials
from dpb_site.markdown import Pages

if TYPE_CHECKING:
    from sphinx.application import Sphinx

FOLDER = "_generated"


def generate(docs: Path, out: Path) -> Pages:
    """Write the pages of everything registered.

    Args:
        docs: Folder of the hand-written pages.
        out: Folder of the generated pages.
    """
    pages = Pages(out)
    environments.write(pages)
    agents.write(pages, docs)
    api.write(pages)
    suites.write(pages)
    pages.write("changelog", [(docs.parent / "CHANGELOG.md").read_text(encoding="utf-8")])
    leftovers.write(pages, docs)
    return pages


def _generate(app: Sphinx) -> None:
    docs = Path(app.srcdir)
    pages = generate(docs, docs / FOLDER)
    tutorials.write(pages, docs)
    pages.remove_stale()
    pictures.draw(docs, docs / FOLDER)


def _copy(app: Sphinx, error: Exception | None) -> None:
    if error is None and app.builder.format == "html":
        docs, out = Path(app.srcdir), Path(app.outdir)
        leaderboards.copy_pages(docs, out)
        tutorials.copy_notebooks(docs / FOLDER, out)


def _read(app: Sphinx, name: str, source: list[str]) -> None:
    if name == "index":
        source[0] = leftovers.existing_patterns(source[0], app.env.found_docs)


def _collapse(app: Sphinx, page: str, template: str, context: dict[str, Any], tree: Any) -> None:
    """Unfold the sidebar at the current page only: all 170 pages on each were half of its size."""
    if "toctree" in context:
        whole = context["toctree"]
        context["toctree"] = lambda **options: whole(**{**options, "collapse": True})


def setup(app: Sphinx) -> dict[str, Any]:
    """Register the extension."""
    app.connect("builder-inited", _generate)
    app.connect("source-read", _read)
    app.connect("html-page-context", _collapse, priority=400)  # before the theme
    app.connect("build-finished", _copy)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
