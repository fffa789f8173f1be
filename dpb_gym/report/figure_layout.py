"""Layout of all figures: a paper's style, panels with legends, and output files."""

from __future__ import annotations

import io
import math
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dpb_gym.errors import ParameterError
from dpb_gym.files import target, write_whole
from dpb_gym.progress_lines import progress_lines
from dpb_gym.report.comparison_groups import budget_order, short
from dpb_gym.report.number_format import tick
from dpb_gym.report.tables import Line, Table

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# Without dates and with a fixed salt, equal results give equal bytes.
FORMATS: dict[str, dict[str, Any]] = {
    ".png": {}, ".pdf": {"CreationDate": None}, ".svg": {"Date": None}
}  # fmt: skip
_INK, MUTED = "#1c2430", "#5b6572"
DASHES: dict[str, Any] = {
    "solid": "-",
    "dashed": (0, (4, 2)),
    "dotted": (0, (1, 1.4)),
    "dashdot": (0, (6, 2, 1.5, 2)),
}
_MARKS = "osD^vPXp*<>h"
STYLE = Path(__file__).parent / "paper.mplstyle"
# Inches: a panel as wide as a column of a paper, its height, and one line of a legend.
_WIDTH, _HEIGHT, _LINE, _TITLE = 3.45, 2.75, 0.16, 0.3
_LETTERS = 52


def style() -> Any:
    """Return Matplotlib's settings for a paper's figures."""
    import matplotlib

    return matplotlib.rc_params_from_file(STYLE, use_default_template=False)


@dataclass(frozen=True)
class Panel:
    """A function that draws into axes, and the labels and styles of the legend below them."""

    draw: Callable[[Axes], None]
    legend: Sequence[tuple[str, Mapping[str, Any]]] = ()

    @property
    def labels(self) -> list[str]:
        return [shorten(label, _LETTERS) for label, _ in self.legend]


def agents_of(lines: Sequence[Line]) -> dict[str, Line]:
    """Return the first line of each agent, in the given order."""
    by_agent: dict[str, Line] = {}
    for line in lines:
        by_agent.setdefault(line.row.agent, line)
    return by_agent


def legend(
    table: Table, lines: Sequence[Line], scale: str = ""
) -> list[tuple[str, dict[str, Any]]]:
    """Return legend entries, one per agent followed by one per budget."""
    budgets = {line.row.budget: line.strength for line in lines if line.row.budget is not None}
    several = len(budgets) > 1 and not scale
    entries = []
    for agent, line in agents_of(lines).items():
        own = {x.row.budget for x in lines if x.row.agent == agent and x.row.budget}
        tail = "".join(f" ({short(budget)})" for budget in own) if several and len(own) == 1 else ""
        entries.append((agent + tail, look(line)))
    if scale and table.rival is not None:
        entries.append(
            (f"{table.rival.label}, no privacy", {"color": MUTED, "linestyle": DASHES["dashed"]})
        )
    for budget in sorted(budgets, key=budget_order, reverse=True) if several else ():
        ink = {"color": _INK, "alpha": budgets[budget], "linewidth": 2.2}
        entries.append((short(budget), ink))
    return entries


def picture_format(path: str | os.PathLike[str]) -> str:
    """Return the suffix of a picture's file, a key of `FORMATS`.

    Raises:
        ParameterError: If it has another suffix.
    """
    suffix = Path(path).suffix.lower()
    if suffix not in FORMATS:
        raise ParameterError(f"the file must end in {', '.join(FORMATS)}, got {str(path)!r}")
    return suffix


@progress_lines("drawing")
def finish(
    title: str,
    panels: Sequence[Panel],
    path: str | os.PathLike[str] | None,
    ax: Axes | None = None,
    *,
    height: float = 0.0,
) -> Figure:
    """Draw panels into the given axes or a new figure, and write it to `path` if given.

    A figure with a given height has no legend.
    """
    import matplotlib

    suffix = ""
    if path is not None:
        suffix = picture_format(path) if isinstance(path, (str, os.PathLike)) else ".png"
        path = target(path)
    if ax is not None and len(panels) != 1:
        raise ParameterError(f"ax takes one panel, there are {len(panels)}; choose a task")
    with matplotlib.rc_context(style() if ax is None else {"svg.hashsalt": "dpb-gym"}):
        if ax is None:
            figure: Any = _figure(title, panels, height)
        else:
            panels[0].draw(ax)
            if not height:
                _legend(ax, panels[0], loc="best")
            figure = ax.figure
            while getattr(figure, "figure", figure) is not figure:  # a subfigure
                figure = figure.figure
        if path is not None:
            buffer = io.BytesIO()
            figure.savefig(buffer, format=suffix[1:], dpi=200, metadata=FORMATS[suffix])
            write_whole(path, buffer.getvalue())
    drawn: Figure = figure
    return drawn


def _figure(title: str, panels: Sequence[Panel], height: float) -> Figure:
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    class Picture(Figure):
        """A figure that notebooks show without pyplot."""

        def _repr_png_(self) -> bytes:
            buffer = io.BytesIO()
            self.savefig(buffer, format="png", dpi=130)
            return buffer.getvalue()

    columns = min(3, max(1, len(panels))) if len(panels) != 4 else 2
    # Below every row of panels is a row of legends, as high as the longest of them.
    ratios: list[float] = []
    for k in range(0, max(1, len(panels)), columns):
        rows = max((_rows(panel.labels) for panel in panels[k : k + columns]), default=0)
        ratios += [height or _HEIGHT, 0.05 if height else _LINE * (rows + 0.3)]
    width = _WIDTH * columns + (1.1 if height else 0.0)
    figure = Picture(figsize=(width, sum(ratios) + _TITLE * bool(title)))
    FigureCanvasAgg(figure)
    if title:
        figure.suptitle(title, x=0.01, ha="left")
    grid = figure.add_gridspec(len(ratios), columns, height_ratios=ratios)
    for index, panel in enumerate(panels):
        line, column = divmod(index, columns)
        panel.draw(figure.add_subplot(grid[2 * line, column]))
        if not height:
            below = figure.add_subplot(grid[2 * line + 1, column])
            below.axis("off")
            _legend(below, panel, loc="upper left")
    if not panels:
        figure.text(0.5, 0.4, "No tasks.", ha="center", color=MUTED)
    figure.draw_without_rendering()
    return figure


def _legend(axes: Any, panel: Panel, loc: str) -> None:
    from matplotlib.lines import Line2D

    # Labels are set afterwards: matplotlib drops those that begin with an underscore.
    handles = [Line2D([], [], **looks) for _, looks in panel.legend]
    names = ["x"] * len(handles)
    legend = axes.legend(handles, names, loc=loc, ncols=_columns(panel.labels))
    legend.set_in_layout(False)  # a long label would squeeze the panel above it
    for text, label in zip(legend.get_texts(), panel.labels):
        text.set_parse_math(False)
        text.set_text(label)


def look(line: Line) -> dict[str, Any]:
    return {
        "color": line.colour[0],
        "linestyle": DASHES[line.stroke],
        "marker": "" if line.number is None else _MARKS[line.number % len(_MARKS)],
    }


def scale_axes(axes: Axes, log_x: bool, log_y: bool) -> None:
    from matplotlib.ticker import FuncFormatter, NullFormatter

    def few(value: float, _: object) -> str:
        """Label only 2 and 5 times a power of ten."""
        lead = value / 10 ** math.floor(math.log10(value) + 1e-9)
        return tick(value) if round(lead, 6) in (2, 5) else ""

    for log, axis in ((log_x, "x"), (log_y, "y")):
        of = getattr(axes, f"{axis}axis")
        if log:
            getattr(axes, f"set_{axis}scale")("log")
            low, high = getattr(axes, f"get_{axis}lim")()
            between = axis == "y" and high < 100 * low
            of.set_minor_formatter(FuncFormatter(few) if between else NullFormatter())
        of.set_major_formatter(FuncFormatter(lambda value, _: tick(value)))


def shorten(label: str, letters: int) -> str:
    return label if len(label) <= letters else label[: letters - 1] + "…"


def _columns(labels: Sequence[str]) -> int:
    """Return how many columns of the widest label fit below the panel."""
    widest = 6 + max(map(len, labels), default=0)
    return max(1, min(3, len(labels), (_LETTERS + 2) // widest))


def _rows(labels: Sequence[str]) -> int:
    return math.ceil(len(labels) / _columns(labels))
