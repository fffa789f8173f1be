"""Generate tutorials: scripts with cells, executed as notebooks, with their outputs."""

from __future__ import annotations

import base64
import re
import shutil
from pathlib import Path
from typing import Any

import nbformat
from nbclient import NotebookClient

from dpb_site.markdown import Pages, fence, toctree

FOLDER = "tutorials"
# Colab opens notebooks of a repository; releases commit the site to its branch `site`.
COLAB = "https://colab.research.google.com/github/dpb-gym/dpb-gym/blob/site/notebooks"
INSTALL = """from importlib.util import find_spec

if find_spec("dpb_gym") is None:
    %pip install -q dpb-gym"""


def write(pages: Pages, docs: Path) -> None:
    """Write a page and a notebook for each script that is newer than its page.

    Raises:
        nbclient.exceptions.CellExecutionError: If a cell fails.
    """
    names = []
    for script in sorted((docs / FOLDER).glob("*.py")):
        names.append(script.stem)
        page = pages.root / FOLDER / f"{script.stem}.md"
        if page.exists() and page.stat().st_mtime > script.stat().st_mtime:
            pages.written.add(page)
            continue
        page.parent.mkdir(parents=True, exist_ok=True)
        notebook = run(read(script.read_text(encoding="utf-8")), page.parent)
        nbformat.write(installing(notebook), page.with_suffix(".ipynb"))
        pages.write(f"{FOLDER}/{script.stem}", shown(notebook, page))
    lead = "Notebooks, executed when this site is built. Each page has a notebook to download."
    pages.write(f"{FOLDER}/index", ["# Tutorials", lead, toctree(names)])


def read(text: str) -> Any:
    """Return a notebook from a script whose cells begin with ``# %%`` or ``# %% [markdown]``."""
    cells = []
    for head, body in re.findall(r"^# %%(.*)\n((?:(?!# %%).*\n?)*)", text, re.M):
        if "[markdown]" in head:
            prose = re.sub(r"^# ?", "", body, flags=re.M)
            cells.append(nbformat.v4.new_markdown_cell(prose.strip()))
        else:
            cells.append(nbformat.v4.new_code_cell(body.strip()))
    for number, cell in enumerate(cells):
        cell.id = str(number)
    return nbformat.v4.new_notebook(cells=cells)


def run(notebook: Any, folder: Path) -> Any:
    """Execute a notebook in a folder and return it with its outputs."""
    resources = {"metadata": {"path": str(folder)}}
    quiet = ["--IPKernelApp.log_level=ERROR"]  # the kernel warns about its ports
    client = NotebookClient(notebook, timeout=300, resources=resources, extra_arguments=quiet)
    client.log.setLevel("WARNING")
    return client.execute()


def shown(notebook: Any, page: Path) -> list[str]:
    """Return the paragraphs of a page, and write its pictures next to it."""
    parts: list[str] = []
    for number, cell in enumerate(notebook.cells):
        if cell.cell_type == "markdown":
            parts.append(cell.source)
            continue
        parts.append(fence("python", cell.source))
        for output in cell.outputs:
            data = output.get("data", {})
            if "image/png" in data:
                picture = page.with_name(f"{page.stem}-{number}.png")
                picture.write_bytes(base64.b64decode(data["image/png"]))
                parts.append(f"```{{image}} {picture.name}\n:alt: Figure of the cell above\n```")
            elif "text/html" in data:
                parts.append(f'```{{raw}} html\n<div class="output">{data["text/html"]}</div>\n```')
            elif text := output.get("text") or data.get("text/plain"):
                parts.append(fence("text", text))
    parts.append(
        f"{{download}}`This page as a notebook <{page.stem}.ipynb>`, or "
        f"[open it in Colab]({COLAB}/{page.stem}.ipynb)."
    )
    return parts


def copy_notebooks(root: Path, out: Path) -> None:
    """Copy the notebooks to a folder of the site whose address does not change."""
    home = out / "notebooks"
    home.mkdir(exist_ok=True)
    for notebook in (root / FOLDER).glob("*.ipynb"):
        shutil.copy(notebook, home / notebook.name)


def installing(notebook: Any) -> Any:
    """Return a copy whose first cell installs the package if it is missing, as in Colab."""
    copy = nbformat.from_dict(notebook)
    cell = nbformat.v4.new_code_cell(INSTALL)
    cell.id = "install"
    return nbformat.from_dict({**copy, "cells": [cell, *copy.cells]})
