"""Jinja templates of pages and tables, and the text of their cells."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import TYPE_CHECKING

from dpb_gym.report.comparison_groups import short
from dpb_gym.report.number_format import number

if TYPE_CHECKING:
    from jinja2 import Template
    from markupsafe import Markup

TEMPLATES = Path(__file__).parent / "templates"
_LATEX = {c: "\\" + c for c in "&%$#_{}"} | {
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "–": "--",
    "\N{MINUS SIGN}": "$-$",
}


def latex(text: str) -> Markup:
    """Escape text for LaTeX."""
    from markupsafe import Markup

    return Markup("".join(_LATEX.get(c, c) for c in text))


@functools.cache
def template(folder: Path, name: str = "page.html.j2") -> Template:
    """Return a template of a folder."""
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    environment = Environment(
        loader=FileSystemLoader(folder),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters.update(number=number, short=short, latex=latex)
    return environment.get_template(name)
