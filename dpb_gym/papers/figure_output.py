"""Output of reproduced figures: picture, HTML, Markdown, and terminal."""

from __future__ import annotations

import base64
import io
import json
import textwrap
from collections.abc import Mapping, Sequence
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from dpb_gym.files import make_folder, write_file
from dpb_gym.papers.curves import Curve, distinct, words
from dpb_gym.papers.figure_result import PICTURE, FigureResult
from dpb_gym.papers.figure_spec import Drawing, Figure
from dpb_gym.papers.verdicts import CONDITIONAL, FAILS, HOLDS, MEANING, OUTCOMES, VERDICTS
from dpb_gym.report.figure_layout import MUTED, style
from dpb_gym.report.palette import shade
from dpb_gym.report.templating import TEMPLATES, template

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from rich.console import Console

STYLES = {HOLDS: "bold green", CONDITIONAL: "bold yellow", FAILS: "bold red"}
PAGE = "figure.html"
NOTES = "figure.md"
DATA = "curves.parquet"
VERDICT_FILE = "verdicts.json"
HOME = Path(__file__).parent
WIDTH = 3.3
HEIGHT = 2.25
TITLE = 46  # characters above a panel


def write(result: FigureResult) -> None:
    """Write picture, data (Parquet), verdicts (JSON), and the pages (HTML and Markdown).

    Raises:
        ResultError: If a file cannot be written.
    """
    import pyarrow as pa
    from pyarrow import parquet

    folder = result.folder
    make_folder(folder)
    draw(result.figure, result.curves, result.picture)
    buffer = io.BytesIO()
    parquet.write_table(pa.Table.from_pylist(result.rows()), buffer)
    write_file(folder / DATA, buffer.getvalue(), durable=False)
    verdicts = json.dumps(result.to_dict(), indent=2, allow_nan=False) + "\n"
    write_file(folder / VERDICT_FILE, verdicts.encode())
    write_file(folder / NOTES, markdown(result).encode())
    page = html([result], f"Reproduction of {result.figure.target}")
    write_file(folder / PAGE, page.encode())


def html(results: Sequence[FigureResult], title: str) -> str:
    """Return a self-contained page of one or several figures, with their pictures."""
    pictures = [base64.b64encode(r.picture.read_bytes()).decode("ascii") for r in results]
    return template(HOME).render(
        title=title,
        style=(TEMPLATES / "page.css").read_text(encoding="utf-8"),
        meaning=MEANING,
        classes=(*VERDICTS, *OUTCOMES),
        shown=list(zip(results, pictures)),
    )


def markdown(result: FigureResult) -> str:
    """Return a figure as a Markdown page that links to its picture."""
    return template(HOME, "figure.md.j2").render(
        figure=result.figure,
        picture=PICTURE,
        meaning=MEANING,
        grids=list(result.grids()),
        facts=result.facts,
    )


def print_figure(result: FigureResult, console: Console | None = None) -> None:
    """Print the verdicts, the tables and the guarantees."""
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    out = console or Console(highlight=False)
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


def draw(figure: Figure, curves: Sequence[Curve], path: Path) -> None:
    """Draw cumulative regret with 95% bands to a PNG file, with a row of panels per variant."""
    import matplotlib
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure as Canvas

    drawing = figure.drawing
    shown = [c for c in curves if c.matches(drawing.where)]
    rows, columns = _panels(figure, shown)
    lines = distinct([{a: c.axes[a] for a in drawing.lines} for c in shown], ordered=True)
    width = WIDTH * len(columns) + 0.3
    height = HEIGHT * len(rows) + 1.0
    with matplotlib.rc_context(style()):
        canvas = Canvas(figsize=(width, height))
        FigureCanvasAgg(canvas)
        canvas.suptitle(figure.title, x=0.01, ha="left")
        grid = canvas.subplots(len(rows), len(columns), squeeze=False, sharex="col", sharey="row")
        handles: dict[str, Any] = {}
        for axes, (row, column) in zip(grid.flat, product(rows, columns)):
            title = textwrap.fill(words({**row, **column}), TITLE) or " "
            axes.set_title(title, loc="left")
            for line, colour in zip(lines, _colours(lines)):
                for curve in shown:
                    if _belongs(curve, {**row, **column, **line}):
                        _line(axes, curve, colour, _caption(drawing, line))
            if not axes.lines:
                axes.text(0.5, 0.5, "not run", transform=axes.transAxes, ha="center", color=MUTED)
            axes.set(xlabel="round", ylabel="cumulative regret")
            axes.label_outer()
            handles |= dict(zip(*reversed(axes.get_legend_handles_labels())))
        for axes in grid.flat:  # fixing one end of an axis stops it from growing with its curves
            axes.set(xlim=(0, None), ylim=(0, None))
        if handles:
            fit = int(width / (0.5 + 0.068 * max(map(len, handles))))
            looks: Any = {"ncols": max(1, min(len(handles), fit)), "borderaxespad": 0.6}
            canvas.legend([*handles.values()], [*handles], loc="outside lower left", **looks)
        buffer = io.BytesIO()
        canvas.savefig(buffer, format="png", dpi=120)
    write_file(path, buffer.getvalue(), durable=False)


def _panels(figure: Figure, shown: Sequence[Curve]) -> tuple[list[Any], list[Any]]:
    """Return the coordinates of the rows and of the columns of panels."""
    across = figure.drawing.columns
    variants = [
        a for a in figure.variants if a != across and any(c.axes[a] is not None for c in shown)
    ]
    # references without a value on a variant axis are drawn in every row instead
    placed = [c for c in shown if len({c.axes[a] is None for a in variants}) < 2]
    rows = distinct([{a: c.axes[a] for a in variants} for c in placed])
    ranks = {a: distinct([c.axes[a] for c in shown]) for a in variants}
    rows.sort(key=lambda row: [ranks[a].index(value) for a, value in row.items()])
    columns = [{across: v} for c in shown if (v := c.axes[across]) is not None]
    return rows or [{}], distinct(columns, ordered=True) or [{}]


def _belongs(curve: Curve, coordinates: Mapping[str, Any]) -> bool:
    own = [(curve.axes[a], v) for a, v in coordinates.items()]
    return all(a in (None, v) for a, v in own) and any(a is not None for a, _ in own)


def _caption(drawing: Drawing, line: Mapping[str, Any]) -> str:
    if not drawing.caption:
        return words(line)
    return drawing.caption.format_map({a: "–" if v is None else v for a, v in line.items()})


def _colours(lines: Sequence[Mapping[str, Any]]) -> list[Any]:
    numeric = all(isinstance(v, (int, float)) for line in lines for v in line.values())
    if not numeric or len(lines) == 1:
        return [shade(i)[0] for i in range(len(lines))]
    from matplotlib import colormaps

    return [colormaps["viridis"](float(shade)) for shade in np.linspace(0.05, 0.78, len(lines))]


def _line(axes: Axes, curve: Curve, colour: Any, label: str) -> None:
    rounds, _ = curve.with_origin
    mean, low, high = np.insert(curve.bands, 0, 0.0, axis=1)
    axes.plot(rounds, mean, color=colour, label=label)
    if np.isfinite(high).all():
        axes.fill_between(rounds, low, high, color=colour, alpha=0.16, linewidth=0)
