"""Figures for papers and notebooks: regret curves, regret against budget, paired differences.

One colour and one mark per agent, apart for readers who see colours differently too; fainter for
an agent's smaller budgets, dashed without a guarantee. Panels are as wide as a paper's column.
"""

from __future__ import annotations

import io
import math
import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from dpb_gym import validation
from dpb_gym.errors import ParameterError, unknown_name
from dpb_gym.files import target, write_whole
from dpb_gym.report.model import Interval, LeaderboardData, Row, TaskResult
from dpb_gym.report.numerals import tick
from dpb_gym.report.views import Board, Line, Table, board, budget_order, scale_of, short

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

FORMATS: tuple[str, ...] = (".png", ".pdf", ".svg")
Scale: TypeAlias = Literal["log", "linear"]

_INK, _MUTED, _HAIR = "#1c2430", "#5b6572", "#d9dee5"
_DASHES: dict[str, Any] = {"solid": "-", "dashed": (0, (4, 2)), "dotted": (0, (1, 1.4))}
_MARKS = "osD^vPXp*<>h"
_STYLE: Any = {
    "font.size": 7,
    "text.parse_math": False,
    "figure.titlesize": 10,
    "figure.titleweight": "bold",
    "figure.constrained_layout.use": True,
    "figure.constrained_layout.h_pad": 0.03,
    "figure.constrained_layout.w_pad": 0.04,
    "figure.constrained_layout.hspace": 0.01,
    "axes.titlesize": 8.5,
    "axes.titleweight": "bold",
    "axes.titlecolor": _INK,
    "axes.labelsize": 7.5,
    "axes.labelpad": 2,
    "axes.labelcolor": _MUTED,
    "axes.edgecolor": _MUTED,
    "axes.linewidth": 0.6,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": _HAIR,
    "grid.linewidth": 0.5,
    **{f"{axis}tick.color": _MUTED for axis in "xy"},
    **{f"{axis}tick.major.size": 2.5 for axis in "xy"},
    **{f"{axis}tick.minor.size": 1.5 for axis in "xy"},
    "lines.linewidth": 1.3,
    "lines.markersize": 3.2,
    "legend.frameon": False,
    "legend.fontsize": 6.8,
    "legend.handlelength": 2.4,
    "legend.columnspacing": 1.2,
    "legend.labelspacing": 0.3,
    "legend.borderpad": 0,
    "legend.borderaxespad": 0,
    "savefig.facecolor": "white",
    "svg.hashsalt": "dpb-gym",
}
# No date and a fixed salt: the same results give the same bytes.
_METADATA: dict[str, dict[str, Any]] = {
    ".png": {},
    ".pdf": {"CreationDate": None},
    ".svg": {"Date": None},
}
# Inches: a panel as wide as a column of a paper, its height, and one line of a legend.
_WIDTH, _HEIGHT, _LINE, _TITLE = 3.45, 2.75, 0.16, 0.3
_LETTERS = 52


def plot(
    data: LeaderboardData | TaskResult,
    path: str | os.PathLike[str] | None = None,
    *,
    ax: Axes | None = None,
    agents: Iterable[str] | None = None,
    x: Scale = "log",
    y: Scale = "log",
) -> Figure:
    """Draws the cumulative pseudo-regret by round, one panel per task, with intervals as bands.

    Args:
        data: A leaderboard or one of its tasks.
        path: File to write; the suffix chooses among `FORMATS`. Folders are made.
        ax: Axes to draw a single task in, instead of a new figure.
        agents: Labels of the agents to draw; all by default.
        x: Scale of the rounds; ``"log"`` shows the last two decades of them.
        y: Scale of the regret; on ``"log"``, points at or below 0 are left out.

    Returns:
        The figure; a notebook shows it.

    Raises:
        ParameterError: `data` or a scale is of another kind, the suffix is unknown, `path` is no
            file, or `ax` is given for several tasks.
        UnknownNameError: There is no such agent.
        OSError: The file cannot be written.
    """
    validation.choice("x", x, ("log", "linear"))
    validation.choice("y", y, ("log", "linear"))
    shown, chosen = _chosen(data, agents)

    def draw(axes: Axes, panel: _Panel) -> None:
        _curves(axes, panel, x == "log", y == "log")

    panels = [
        _Panel(table, [line for line in table.ordered if chosen(line)]) for table in shown.tasks
    ]
    return _finish(shown.title, panels, draw, path, ax)


def plot_frontier(
    data: LeaderboardData | TaskResult,
    path: str | os.PathLike[str] | None = None,
    *,
    ax: Axes | None = None,
    agents: Iterable[str] | None = None,
    y: Scale = "log",
) -> Figure:
    """Draws the regret at the horizon against the budget, one panel per task and scale.

    The best non-private agent is the dashed line with its interval: what privacy costs is how
    far above it a curve lies.

    Args:
        data: A leaderboard or one of its tasks.
        path: File to write, as for `plot`.
        ax: Axes to draw a single panel in, instead of a new figure.
        agents: Labels of the agents to draw; all by default.
        y: Scale of the regret; on ``"log"``, points at or below 0 are left out.

    Returns:
        The figure; a notebook shows it.

    Raises:
        ParameterError: As for `plot`; or no row has a budget.
        UnknownNameError: There is no such agent.
        OSError: The file cannot be written.
    """
    validation.choice("y", y, ("log", "linear"))
    shown, chosen = _chosen(data, agents)
    panels = []
    for table in shown.tasks:
        scales: dict[str, list[Line]] = {}
        for line in table.ordered:
            if line.row.budget is not None and chosen(line):
                scales.setdefault(scale_of(line.row.budget), []).append(line)
        panels += [_Panel(table, lines, scale) for scale, lines in sorted(scales.items())]
    if not panels:
        raise ParameterError("no row has a budget, so there is nothing to draw against it")

    def draw(axes: Axes, panel: _Panel) -> None:
        _frontier(axes, panel, y == "log")

    return _finish(shown.title, panels, draw, path, ax)


@dataclass(frozen=True)
class Difference:
    """A row's regret minus that of a baseline on the same customers.

    Attributes:
        row: The row.
        values: One difference per replicate that both have.
        interval: Their mean with its interval.
    """

    row: Row
    values: Sequence[float]
    interval: Interval


def plot_paired(
    task: TaskResult,
    against: str,
    differences: Sequence[Difference],
    path: str | os.PathLike[str] | None = None,
    *,
    ax: Axes | None = None,
) -> Figure:
    """Draws paired differences of regret: a dot per replicate, and the mean with its interval.

    Args:
        task: The task.
        against: Names the baseline.
        differences: What to draw, from top to bottom.
        path: File to write, as for `plot`.
        ax: Axes to draw in, instead of a new figure.
    """
    table = board(task).tasks[0]
    lines = {line.row.key: line for line in table.lines}
    panel = _Panel(table, [lines[difference.row.key] for difference in differences])

    def draw(axes: Axes, panel: _Panel) -> None:
        axes.axvline(0, color=_MUTED, linewidth=0.9)
        for place, (line, found) in enumerate(zip(panel.lines, differences)):
            colour, ends = line.colour[0], [found.interval.low, found.interval.high]
            axes.plot(found.values, [place] * len(found.values), "|", color=colour, alpha=0.4, ms=7)
            axes.plot(ends, [place] * 2, color=colour, linewidth=2.2)
            axes.plot([found.interval.mean], [place], "o", color=colour, markersize=4.5)
        axes.set_ylim(len(panel.lines) - 0.5, -0.5)
        axes.set_yticks(range(len(panel.lines)), [_short(line.label, 26) for line in panel.lines])
        _name(axes, panel, f"regret minus that of {_short(against, 30)}, same customers", "")

    return _finish("", [panel], draw, path, ax, height=0.65 + 0.19 * max(4, len(differences)))


@dataclass(frozen=True)
class _Panel:
    table: Table
    lines: list[Line]
    scale: str = ""

    @property
    def task(self) -> TaskResult:
        assert isinstance(self.table.source, TaskResult)
        return self.table.source

    @property
    def first(self) -> float:
        """Where a logarithmic axis begins: two decades before the horizon."""
        rounds = [point[0] for row in self.task.rows for point in row.curve[-2:-1]]
        return max(1.0, min([self.task.horizon / 100, *rounds]))

    @property
    def agents(self) -> dict[str, Line]:
        """The first line of each agent, in the order of the table."""
        found: dict[str, Line] = {}
        for line in self.lines:
            found.setdefault(line.row.agent, line)
        return found

    def handles(self) -> tuple[list[Any], list[str]]:
        """One entry per agent, then one per budget: ten entries read better than their 24 pairs."""
        from matplotlib.lines import Line2D

        budgets = {line.row.budget for line in self.lines if line.row.budget is not None}
        several = len(budgets) > 1 and not self.scale
        handles, labels = [], []
        for agent, line in self.agents.items():
            own = {x.row.budget for x in self.lines if x.row.agent == agent and x.row.budget}
            said = [f" ({short(budget)})" for budget in own] if several and len(own) == 1 else [""]
            handles.append(Line2D([], [], **_look(line)))
            labels.append(_short(agent + said[0], _LETTERS))
        if self.scale and self.table.rival is not None:
            handles.append(Line2D([], [], color=_MUTED, linestyle=_DASHES["dashed"]))
            labels.append(_short(f"{self.table.rival.label}, no privacy", _LETTERS))
        strengths = {line.row.budget: line.strength for line in self.lines}
        for budget in sorted(budgets, key=budget_order, reverse=True) if several else ():
            handles.append(Line2D([], [], color=_INK, alpha=strengths[budget], linewidth=2.2))
            labels.append(short(budget))
        return handles, labels


def _chosen(
    data: LeaderboardData | TaskResult, agents: Iterable[str] | None
) -> tuple[Board, Callable[[Line], bool]]:
    shown = board(data)
    if agents is None:
        return shown, lambda line: True
    wanted = {agents} if isinstance(agents, str) else set(agents)
    known = {line.row.agent for table in shown.tasks for line in table.lines}
    for label in sorted(wanted - known):
        raise unknown_name("agent label", label, known)
    return shown, lambda line: line.row.agent in wanted


def _finish(
    title: str,
    panels: Sequence[_Panel],
    draw: Callable[[Axes, _Panel], None],
    path: str | os.PathLike[str] | None,
    ax: Axes | None,
    *,
    height: float = 0.0,
) -> Figure:
    """Draws into the given axes or a new figure, and writes the file if there is to be one.

    A figure of a given height has no legend.
    """
    import matplotlib

    suffix = ""
    if path is not None:
        path = Path(path) if isinstance(path, (str, os.PathLike)) else target(path)
        suffix = path.suffix.lower()
        if suffix not in FORMATS:
            raise ParameterError(f"the file must end in {', '.join(FORMATS)}, got {str(path)!r}")
        path = target(path)
    if ax is not None and len(panels) != 1:
        raise ParameterError(f"ax takes one panel, there are {len(panels)}; choose a task")
    with matplotlib.rc_context(_STYLE if ax is None else {"svg.hashsalt": "dpb-gym"}):
        if ax is None:
            figure: Any = _figure(title, panels, draw, height)
        else:
            draw(ax, panels[0])
            if not height:
                _legend(ax, panels[0], loc="best")
            figure = ax.figure
            while hasattr(figure, "figure") and figure.figure is not figure:
                figure = figure.figure
        if path is not None:
            buffer = io.BytesIO()
            figure.savefig(buffer, format=suffix[1:], dpi=200, metadata=_METADATA[suffix])
            write_whole(path, buffer.getvalue())
    drawn: Figure = figure
    return drawn


def _figure(
    title: str, panels: Sequence[_Panel], draw: Callable[[Axes, _Panel], None], height: float
) -> Figure:
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    class Picture(Figure):
        """A figure that notebooks show without pyplot."""

        def _repr_png_(self) -> bytes:
            buffer = io.BytesIO()
            self.savefig(buffer, format="png", dpi=130)
            return buffer.getvalue()

    columns = min(3, max(1, len(panels))) if len(panels) != 4 else 2
    lines = max(1, math.ceil(len(panels) / columns))
    # Under every line of panels stands one of legends, as high as the longest.
    longest = [
        max((_rows(p.handles()[1]) for p in panels[k * columns : (k + 1) * columns]), default=0)
        for k in range(lines)
    ]
    ratios = [
        x for rows in longest for x in (height or _HEIGHT, 0.05 if height else _LINE * (rows + 0.3))
    ]
    width = _WIDTH * columns + (1.1 if height else 0.0)
    figure = Picture(figsize=(width, sum(ratios) + _TITLE * bool(title)))
    FigureCanvasAgg(figure)
    if title:
        figure.suptitle(title, x=0.01, ha="left")
    grid = figure.add_gridspec(2 * lines, columns, height_ratios=ratios)
    for index, panel in enumerate(panels):
        line, column = divmod(index, columns)
        draw(figure.add_subplot(grid[2 * line, column]), panel)
        if not height:
            below = figure.add_subplot(grid[2 * line + 1, column])
            below.axis("off")
            _legend(below, panel, loc="upper left")
    if not panels:
        figure.text(0.5, 0.4, "No tasks.", ha="center", color=_MUTED)
    figure.draw_without_rendering()
    return figure


def _legend(axes: Any, panel: _Panel, loc: str) -> None:
    # Labels are set afterwards: matplotlib drops those that begin with an underscore.
    handles, labels = panel.handles()
    legend = axes.legend(handles, ["x"] * len(handles), loc=loc, ncols=_columns(labels))
    for text, label in zip(legend.get_texts(), labels):
        text.set_parse_math(False)
        text.set_text(label)


def _name(axes: Axes, panel: _Panel, x: str, y: str) -> None:
    count = panel.task.replicates
    said = f"T = {panel.task.horizon:,}, {count} replicate{'s'[: count > 1]}"
    axes.set_title(_short(panel.task.task, 30), loc="left", parse_math=False)
    axes.set_title(said, loc="right", size=7, color=_MUTED, weight="normal")
    axes.set_xlabel(x)
    axes.set_ylabel(y)


def _look(line: Line) -> dict[str, Any]:
    return {
        "color": line.colour[0],
        "linestyle": _DASHES[line.stroke],
        "marker": "" if line.number is None else _MARKS[line.number % len(_MARKS)],
    }


def _curves(axes: Axes, panel: _Panel, log_x: bool, log_y: bool) -> None:
    drawn, first = False, panel.first if log_x else 0
    for line in reversed(panel.lines):
        row = line.row
        assert isinstance(row, Row)
        points = [p for p in row.curve if p[0] >= first and (p[1] > 0 or not log_y)]
        if not points:
            continue
        drawn = True
        t, mean, low, high = zip(*points)
        if log_y:
            low = tuple(max(value, 1e-3 * centre) for value, centre in zip(low, mean))
        shade = 0.16 * line.strength
        axes.fill_between(t, low, high, color=line.colour[0], alpha=shade, linewidth=0)
        marked = list(range(len(points) - 1, -1, -max(1, len(points) // 5)))[::-1]
        axes.plot(t, mean, alpha=line.strength, markevery=marked, **_look(line))
    _name(axes, panel, "round", "cumulative pseudo-regret")
    if drawn:
        _scale(axes, log_x, log_y)
    else:
        axes.text(0.5, 0.5, "No curve.", ha="center", color=_MUTED, transform=axes.transAxes)


def _frontier(axes: Axes, panel: _Panel, log_y: bool) -> None:
    from matplotlib.ticker import FixedLocator, NullLocator

    def floor(loss: Interval) -> float:
        return max(loss.low, 1e-3 * loss.mean) if log_y else loss.low

    rival = panel.table.rival
    if rival is not None and (rival.row.loss.mean > 0 or not log_y):
        axes.axhspan(
            floor(rival.row.loss), rival.row.loss.high, color=_MUTED, alpha=0.15, linewidth=0
        )
        axes.axhline(rival.row.loss.mean, color=_MUTED, linestyle=_DASHES["dashed"])
    ordered = sorted(panel.lines, key=lambda line: budget_order(line.row.budget))
    for agent, first in panel.agents.items():
        mine = [x for x in ordered if x.row.agent == agent and (x.row.loss.mean > 0 or not log_y)]
        mean = [line.row.loss.mean for line in mine]
        below = [max(0.0, line.row.loss.mean - floor(line.row.loss)) for line in mine]
        above = [max(0.0, line.row.loss.high - line.row.loss.mean) for line in mine]
        at = [line.row.budget.limit for line in mine if line.row.budget is not None]
        axes.errorbar(at, mean, (below, above), capsize=1.8, elinewidth=0.8, **_look(first))
    _name(axes, panel, panel.scale, "regret at the horizon")
    _scale(axes, True, log_y)
    values = sorted({line.row.budget.limit for line in ordered if line.row.budget is not None})
    axes.xaxis.set_major_locator(FixedLocator(values))
    axes.xaxis.set_minor_locator(NullLocator())


def _scale(axes: Axes, log_x: bool, log_y: bool) -> None:
    from matplotlib.ticker import FuncFormatter, NullFormatter

    def few(value: float, _: object) -> str:
        """Names 2 and 5 times a power of ten only."""
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


def _short(label: str, letters: int) -> str:
    return label if len(label) <= letters else label[: letters - 1] + "…"


def _columns(labels: Sequence[str]) -> int:
    """As many columns as fit below the panel."""
    for count in (3, 2):
        half = math.ceil(len(labels) / count)
        columns = [labels[k : k + half] for k in range(0, len(labels), half or 1)]
        if len(labels) >= count and sum(6 + max(map(len, c)) for c in columns) <= _LETTERS + 12:
            return count
    return 1


def _rows(labels: Sequence[str]) -> int:
    return math.ceil(len(labels) / _columns(labels))
