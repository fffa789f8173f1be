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
from dpb_gym.privacy.budget import Budget
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
# No date and a fixed salt: the same results give the same bytes.
_METADATA: dict[str, dict[str, Any]] = {
    ".png": {},
    ".pdf": {"CreationDate": None},
    ".svg": {"Date": None},
}
# Inches: a panel, its axes with the margin to the left, and one line of a legend.
_WIDTH, _HEIGHT, _LEFT, _ABOVE, _BELOW, _LINE = 3.45, 2.1, 0.62, 0.36, 0.46, 0.16
_TITLE = 0.34
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
            colour = line.colour[0]
            axes.plot(found.values, [place] * len(found.values), "|", color=colour, alpha=0.35)
            axes.plot([found.interval.low, found.interval.high], [place] * 2, color=colour, lw=2.2)
            axes.plot([found.interval.mean], [place], "o", color=colour, markersize=4.5)
        axes.set_ylim(len(panel.lines) - 0.5, -0.5)
        axes.set_yticks(range(len(panel.lines)), [_short(line.label, 26) for line in panel.lines])
        for label in axes.get_yticklabels():
            label.set_parse_math(False)
        _frame(axes, panel, f"regret minus that of {_short(against, 30)}, same customers", "")

    height = max(_HEIGHT, 0.22 * len(differences))
    return _finish("", [panel], draw, path, ax, left=1.75, height=height, legend=False)


@dataclass(frozen=True)
class _Panel:
    table: Table
    lines: list[Line]
    scale: str = ""

    @property
    def first(self) -> float:
        """Where a logarithmic axis begins: two decades before the horizon."""
        rounds = [point[0] for line in self.lines for point in line.row.curve[-2:-1]]  # type: ignore[attr-defined]
        horizon = self.table.source.horizon  # type: ignore[union-attr]
        return max(1.0, min([horizon / 100, *rounds]))

    @property
    def agents(self) -> dict[str, Line]:
        """The first line of each agent, in the order of the table."""
        found: dict[str, Line] = {}
        for line in self.lines:
            found.setdefault(line.row.agent, line)
        return found

    @property
    def budgets(self) -> list[Budget]:
        """The budgets that some agent has several of, largest first."""
        found = {line.row.budget for line in self.lines if line.row.budget is not None}
        return sorted(found, key=budget_order, reverse=True) if len(found) > 1 else []


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
    left: float = _LEFT,
    height: float = _HEIGHT,
    legend: bool = True,
) -> Figure:
    """Draws into the given axes or a new figure, and writes the file if there is to be one."""
    suffix = ""
    if path is not None:
        suffix = Path(path).suffix.lower() if isinstance(path, (str, os.PathLike)) else ""
        if isinstance(path, (str, os.PathLike)) and suffix not in FORMATS:
            raise ParameterError(f"the file must end in {', '.join(FORMATS)}, got {str(path)!r}")
        path = target(path)
    if ax is not None:
        if len(panels) != 1:
            raise ParameterError(f"ax takes one panel, there are {len(panels)}; choose a task")
        draw(ax, panels[0])
        handles, labels = _handles(panels[0]) if legend else ([], [])
        if handles:
            ax.legend(handles, labels, fontsize=7, frameon=False)
        figure: Any = ax.figure
        while hasattr(figure, "figure") and figure.figure is not figure:
            figure = figure.figure
    else:
        figure = _figure(title, panels, draw, left, height, legend)
    if path is not None:
        import matplotlib

        buffer = io.BytesIO()
        with matplotlib.rc_context({"svg.hashsalt": "dpb-gym"}):
            figure.savefig(
                buffer, format=suffix[1:], dpi=200, metadata=_METADATA[suffix], facecolor="white"
            )
        write_whole(path, buffer.getvalue())
    drawn: Figure = figure
    return drawn


def _figure(
    title: str,
    panels: Sequence[_Panel],
    draw: Callable[[Axes, _Panel], None],
    left: float,
    tall: float,
    legend: bool,
) -> Figure:
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    class Picture(Figure):
        """A figure that notebooks show without pyplot."""

        def _repr_png_(self) -> bytes:
            buffer = io.BytesIO()
            self.savefig(buffer, format="png", dpi=130, facecolor="white")
            return buffer.getvalue()

    columns = min(3, max(1, len(panels))) if len(panels) != 4 else 2
    entries = [_handles(panel) if legend else ([], []) for panel in panels]
    # A line of panels is as high as its longest legend asks; everything in inches from the top.
    strips = [
        _ABOVE + tall + _BELOW + 0.1 + _LINE * max(_rows(e[1]) for e in entries[k : k + columns])
        for k in range(0, len(panels), columns)
    ]
    cell = _WIDTH + left - _LEFT
    head = _TITLE if title else 0.06
    width, height = max(cell * columns, 3.0), head + (sum(strips) if strips else 0.7)
    figure = Picture(figsize=(width, height))
    FigureCanvasAgg(figure)
    if title:
        _plain(figure.text(0.1 / width, 1 - 0.1 / height, title, va="top", size=10, weight="bold"))
    if not panels:
        _plain(figure.text(0.5, 0.3, "No tasks.", ha="center"), _MUTED)
    for index, panel in enumerate(panels):
        line, column = divmod(index, columns)
        top = head + sum(strips[:line])
        box = (column * cell + left, top + _ABOVE + tall, cell - left - 0.14, tall)
        axes = figure.add_axes(
            (box[0] / width, 1 - box[1] / height, box[2] / width, box[3] / height)
        )
        draw(axes, panel)
        handles, labels = entries[index]
        if handles:
            corner = (column * cell + 0.12) / width, 1 - (box[1] + _BELOW) / height
            _legend(figure, handles, labels, corner)
    return figure


def _plain(text: Any, colour: str = _INK) -> None:
    text.set_parse_math(False)
    text.set_color(colour)


def _frame(axes: Axes, panel: _Panel, x: str, y: str) -> None:
    task = panel.table.source
    assert isinstance(task, TaskResult)
    title = axes.set_title(_short(task.task, 30), loc="left", size=8.5, weight="bold")
    _plain(title)
    counted = f"T = {task.horizon:,}, {task.replicates} replicate{'s'[: task.replicates > 1]}"
    axes.set_title(counted, loc="right", size=7, color=_MUTED)
    axes.set_xlabel(x, size=7.5, color=_MUTED, labelpad=2)
    axes.set_ylabel(y, size=7.5, color=_MUTED, labelpad=2)
    axes.tick_params(labelsize=7, colors=_MUTED, length=2.5, width=0.6)
    axes.tick_params(which="minor", length=1.5, width=0.5, colors=_MUTED, labelsize=7)
    axes.grid(True, color=_HAIR, linewidth=0.5)
    axes.set_axisbelow(True)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    for side in ("bottom", "left"):
        axes.spines[side].set_color(_MUTED)
        axes.spines[side].set_linewidth(0.6)


def _look(line: Line) -> dict[str, Any]:
    return {
        "color": line.colour[0],
        "linestyle": _DASHES[line.stroke],
        "linewidth": 1.3,
        "marker": "" if line.number is None else _MARKS[line.number % len(_MARKS)],
        "markersize": 3.2,
    }


def _curves(axes: Axes, panel: _Panel, log_x: bool, log_y: bool) -> None:
    drawn = False
    for line in reversed(panel.lines):
        row = line.row
        assert isinstance(row, Row)
        first = panel.first if log_x else 0
        points = [p for p in row.curve if p[0] >= first and (p[1] > 0 or not log_y)]
        if not points:
            continue
        t, mean, low, high = zip(*points)
        if log_y:
            low = tuple(max(value, 1e-3 * centre) for value, centre in zip(low, mean))
        axes.fill_between(
            t, low, high, color=line.colour[0], alpha=0.16 * line.strength, linewidth=0
        )
        every = max(1, len(points) // 5)
        look = _look(line) | {"markevery": list(range(len(points) - 1, -1, -every))[::-1]}
        axes.plot(t, mean, alpha=line.strength, **look)
        drawn = True
    _frame(axes, panel, "round", "cumulative pseudo-regret")
    if not drawn:
        axes.text(0.5, 0.5, "No curve.", ha="center", color=_MUTED, transform=axes.transAxes)
        axes.set_xticks([])
        axes.set_yticks([])
        return
    _scale(axes, log_x, log_y)


def _scale(axes: Axes, log_x: bool, log_y: bool) -> None:
    from matplotlib.ticker import FuncFormatter

    formatter = FuncFormatter(lambda value, _: tick(value))
    if log_x:
        axes.set_xscale("log")
    axes.xaxis.set_major_formatter(formatter)
    if log_y:
        axes.set_yscale("log")
        _few_minor(axes)
    axes.yaxis.set_major_formatter(formatter)


def _frontier(axes: Axes, panel: _Panel, log_y: bool) -> None:
    from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

    rival = panel.table.rival
    if rival is not None and (rival.loss.mean > 0 or not log_y):
        low = max(rival.loss.low, 1e-3 * rival.loss.mean) if log_y else rival.loss.low
        axes.axhspan(low, rival.loss.high, color=_MUTED, alpha=0.15, linewidth=0)
        axes.axhline(rival.loss.mean, color=_MUTED, linestyle=(0, (4, 2)), linewidth=1.2)
    values = sorted({line.row.budget.limit for line in panel.lines if line.row.budget})
    for agent, first in panel.agents.items():
        points = [
            (line.row.budget.limit, line.loss)
            for line in sorted(panel.lines, key=lambda line: budget_order(line.row.budget))
            if line.row.agent == agent and line.row.budget and (line.loss.mean > 0 or not log_y)
        ]
        if not points:
            continue
        at = [budget for budget, _ in points]
        mean = [loss.mean for _, loss in points]
        below = [
            loss.mean - (max(loss.low, 1e-3 * loss.mean) if log_y else loss.low)
            for _, loss in points
        ]
        above = [loss.high - loss.mean for _, loss in points]
        errors = [[max(0.0, d) for d in below], [max(0.0, d) for d in above]]
        axes.errorbar(at, mean, yerr=errors, capsize=1.8, elinewidth=0.8, **_look(first))
    _frame(axes, panel, panel.scale, "regret at the horizon")
    axes.set_xscale("log")
    axes.xaxis.set_major_locator(FixedLocator(values))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: tick(value)))
    axes.xaxis.set_minor_locator(NullLocator())
    if log_y:
        axes.set_yscale("log")
        axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: tick(value)))
        _few_minor(axes)


def _few_minor(axes: Axes) -> None:
    """Marks between powers of ten are named where there are few of these."""
    from matplotlib.ticker import FuncFormatter, NullFormatter

    low, high = axes.get_ylim()
    axes.yaxis.set_minor_formatter(FuncFormatter(_few) if high < 100 * low else NullFormatter())


def _few(value: float, _: object) -> str:
    """Names 2 and 5 times a power of ten only."""
    lead = value / 10 ** math.floor(math.log10(value) + 1e-9)
    return tick(value) if round(lead, 6) in (2, 5) else ""


def _handles(panel: _Panel) -> tuple[list[Any], list[str]]:
    """One entry per agent, then one per budget: ten entries read better than their 24 pairs."""
    from matplotlib.lines import Line2D

    handles, labels = [], []
    for agent, line in panel.agents.items():
        handles.append(Line2D([], [], **_look(line)))
        budgets = {x.row.budget for x in panel.lines if x.row.agent == agent and x.row.budget}
        said = (
            f" ({short(next(filter(None, budgets)))})"
            if len(budgets) == 1 and panel.budgets
            else ""
        )
        labels.append(_short(agent + said, _LETTERS))
    if panel.scale:
        if panel.table.rival is not None:
            handles.append(Line2D([], [], color=_MUTED, linestyle=(0, (4, 2)), linewidth=1.2))
            labels.append(_short(f"{panel.table.rival.label}, no privacy", _LETTERS))
        return handles, labels
    strengths = {line.row.budget: line.strength for line in panel.lines}
    for budget in panel.budgets:
        handles.append(Line2D([], [], color=_INK, alpha=strengths[budget], linewidth=2.2))
        labels.append(short(budget))
    return handles, labels


def _short(label: str, letters: int) -> str:
    return label if len(label) <= letters else label[: letters - 1] + "…"


def _columns(labels: Sequence[str]) -> int:
    """As many columns as fit below the panel."""
    for count in (3, 2):
        half = math.ceil(len(labels) / count)
        columns = [labels[k : k + half] for k in range(0, len(labels), half)]
        if len(labels) >= count and sum(6 + max(map(len, c)) for c in columns) <= _LETTERS + 12:
            return count
    return 1


def _rows(labels: Sequence[str]) -> int:
    return math.ceil(len(labels) / _columns(labels)) if labels else 0


def _legend(
    figure: Figure, handles: list[Any], labels: list[str], corner: tuple[float, float]
) -> None:
    # Labels are set afterwards: matplotlib drops those that begin with an underscore.
    legend = figure.legend(
        handles,
        ["x"] * len(handles),
        loc="upper left",
        bbox_to_anchor=corner,
        ncols=_columns(labels),
        frameon=False,
        fontsize=6.8,
        handlelength=2.4,
        columnspacing=1.2,
        labelspacing=0.3,
        borderpad=0,
        borderaxespad=0,
    )
    for text, label in zip(legend.get_texts(), labels):
        _plain(text)
        text.set_text(label)
