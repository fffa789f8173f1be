"""The views of figures as text: HTML, Markdown, and on the terminal."""

from __future__ import annotations

import base64
import functools
import io
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from dpb_gym.evaluation.filesystem import make_folder, write_file, write_json
from dpb_gym.papers.drawing import draw
from dpb_gym.papers.results import PICTURE, FigureResult
from dpb_gym.papers.verdicts import CONDITIONAL, FAILS, HOLDS, MEANING, OUTCOMES, VERDICTS

if TYPE_CHECKING:
    from jinja2 import Template
    from rich.console import Console

STYLES = {HOLDS: "bold green", CONDITIONAL: "bold yellow", FAILS: "bold red"}


PAGE, NOTES, DATA, VERDICT_FILE = "figure.html", "figure.md", "curves.parquet", "verdicts.json"


def write(result: FigureResult) -> None:
    """Writes picture, data (Parquet), verdicts (JSON), and the pages (HTML and Markdown).

    Raises:
        ResultError: If one cannot be written.
    """
    import pyarrow as pa
    from pyarrow import parquet

    folder = result.folder
    make_folder(folder)
    draw(result.figure, result.curves, result.picture)
    buffer = io.BytesIO()
    parquet.write_table(pa.Table.from_pylist(result.rows()), buffer)
    write_file(folder / DATA, buffer.getvalue(), durable=False)
    write_json(folder / VERDICT_FILE, result.to_dict())
    write_file(folder / NOTES, markdown(result).encode())
    page = html([result], f"Reproduction of {result.figure.target}")
    write_file(folder / PAGE, page.encode())


def html(results: Sequence[FigureResult], title: str) -> str:
    """One self-contained page for one figure or several, the pictures inside."""
    pictures = [base64.b64encode(r.picture.read_bytes()).decode("ascii") for r in results]
    return _template().render(
        title=title,
        meaning=MEANING,
        classes=(*VERDICTS, *OUTCOMES),
        shown=list(zip(results, pictures)),
    )


@functools.cache
def _template() -> Template:
    import jinja2

    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(Path(__file__).parent),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=jinja2.StrictUndefined,
    )
    return environment.get_template("page.html.j2")


def markdown(result: FigureResult) -> str:
    """A whole figure as a Markdown page beside its picture."""
    figure = result.figure
    parts = [f"# {figure.target}: {figure.title}", figure.description, *figure.remarks]
    parts += [f"![{figure.title}]({PICTURE})", MEANING]
    for grid in result.grids():
        lines = [grid.head, ["---"] * len(grid.head), *grid.rows]
        table = "\n".join("| " + " | ".join(map(_cell, line)) + " |" for line in lines)
        parts += [f"## {grid.title}", grid.note, table]
    run = [f"{key}: {value}" for key, value in result.facts.items()]
    for heading, items in (("Constants", figure.constants), ("Run", run)):
        parts += [f"## {heading}", "\n".join(f"- {item}" for item in items)] if items else []
    return "\n\n".join(part for part in parts if part) + "\n"


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


def print_figure(result: FigureResult, console: Console | None = None) -> None:
    """Prints the verdicts, the tables and the true guarantees."""
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    out = console or Console(highlight=False)
    if console is None and not out.is_terminal:
        out = Console(highlight=False, width=160)
    out.print(Text(f"{result.figure.target}: {result.figure.title}", style="bold"))
    for note in result.figure.remarks:
        out.print(Text(note, style="yellow"))
    for grid in (one for one in result.grids() if not one.folded):
        table = Table(box=box.SIMPLE_HEAD, pad_edge=False, show_edge=False, padding=(0, 1))
        for column in grid.head:
            table.add_column(column, overflow="fold", no_wrap=column == "verdict")
        for row in grid.rows:
            table.add_row(*(Text(cell, style=STYLES.get(cell, "")) for cell in row))
        out.print(Text(f"{grid.title} ({grid.note})" if grid.note else grid.title, style="bold"))
        out.print(table)
