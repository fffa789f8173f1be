"""Sphinx extension: writes the pages that the registries know better than any text.

Environments, agents and the API come from the catalogue, the agents' specs and the modules'
``__all__``; pages land in ``_generated`` under the documentation's folder, and only changed ones
are written again.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from dpb_site import agents, api, environments, leftovers, pictures, suites, tutorials, winners
from dpb_site.markdown import Pages

if TYPE_CHECKING:
    from sphinx.application import Sphinx

FOLDER = "_generated"


def generate(docs: Path, out: Path) -> Pages:
    """Writes every generated page about what is registered.

    Args:
        docs: The hand-written pages.
        out: Folder of the generated ones.
    """
    pages = Pages(out)
    environments.write(pages)
    agents.write(pages, docs)
    api.write(pages)
    suites.write(pages)
    leftovers.write(pages, docs)
    return pages


def _generate(app: Sphinx) -> None:
    docs = Path(app.srcdir)
    pages = generate(docs, docs / FOLDER)
    tutorials.write(pages, docs)
    pages.remove_stale()
    pictures.draw(docs, docs / FOLDER)
    winners.write(docs / FOLDER, docs)


def _copy(app: Sphinx, error: Exception | None) -> None:
    if error is None and app.builder.format == "html":
        winners.copy_pages(Path(app.srcdir), Path(app.outdir))


def _read(app: Sphinx, name: str, source: list[str]) -> None:
    if name == "index":
        source[0] = leftovers.existing_patterns(source[0], app.env.found_docs)


def setup(app: Sphinx) -> dict[str, Any]:
    """Registers the extension."""
    app.connect("builder-inited", _generate)
    app.connect("source-read", _read)
    app.connect("build-finished", _copy)
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
