"""Regret curves as a static figure."""

from __future__ import annotations

import io
import math
import os
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dpb_gym.errors import ParameterError
from dpb_gym.files import write_whole
from dpb_gym.report.files import as_path, target
from dpb_gym.report.grouping import budget_order, groups, strength, stroke
from dpb_gym.report.model import NO_BUDGET, LeaderboardData, TaskResult
from dpb_gym.report.palette import colours

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

FORMATS: tuple[str, ...] = (".png", ".pdf", ".svg")

_INK, _MUTED, _HAIR = "#1c2430", "#5b6572", "#d9dee5"
_DASHES: dict[str, Any] = {"solid": "-", "dashed": (0, (4, 2)), "dotted": (0, (1, 1.4))}
# No date and a fixed salt: the same results give the same bytes.
_METADATA: dict[str, dict[str, Any]] = {
    ".png": {},
    ".pdf": {"CreationDate": None},
    ".svg": {"Date": None},
}


def plot(
    data: LeaderboardData | TaskResult,
    path: str | os.PathLike[str],
    *,
    log_x: bool = False,
    log_y: bool = False,
) -> Path:
    """Draws the cumulative pseudo-regret of every agent, one panel per task.

    One colour per agent, fainter for its smaller budgets, dashed for agents without a guarantee;
    bands are the curves' intervals.

    Args:
        data: A leaderboard or one of its tasks.
        path: File to write; the suffix chooses among `FORMATS`. Folders are made.
        log_x: Logarithmic rounds.
        log_y: Logarithmic regret; points at or below 0 are left out.

    Returns:
        The path written.

    Raises:
        ParameterError: `data` is of another type, the suffix is unknown, or `path` is no file.
        OSError: The file cannot be written.
    """
    if not isinstance(data, (LeaderboardData, TaskResult)):
        raise ParameterError(
            f"data must be a LeaderboardData or a TaskResult, got {type(data).__name__}"
        )
    suffix = as_path(path).suffix.lower()
    if suffix not in FORMATS:
        raise ParameterError(f"the file must end in {', '.join(FORMATS)}, got {str(path)!r}")
    destination = target(path)

    import matplotlib
    from matplotlib.backends.backend_agg import FigureCanvasAgg

    figure = _figure(data, log_x=log_x, log_y=log_y)
    FigureCanvasAgg(figure)
    buffer = io.BytesIO()
    with matplotlib.rc_context({"svg.hashsalt": "dpb-gym"}):
        figure.savefig(
            buffer, format=suffix[1:], dpi=160, metadata=_METADATA[suffix], facecolor="white"
        )
    write_whole(destination, buffer.getvalue())
    return destination


def _figure(data: LeaderboardData | TaskResult, *, log_x: bool, log_y: bool) -> Figure:
    from matplotlib.figure import Figure

    tasks = data.tasks if isinstance(data, LeaderboardData) else (data,)
    columns = min(3, max(1, len(tasks))) if len(tasks) != 4 else 2
    shades = {label: pair[0] for label, pair in colours(tasks).items()}
    legends = [_entries(task) for task in tasks]
    # A line of panels is as high as its longest legend asks; everything in inches from the top.
    strips = [
        _PANEL + _LINE * max(_lines(entries) for entries in legends[k : k + columns])
        for k in range(0, len(tasks), columns)
    ]
    width, height = max(4.4 * columns, 6.0), 0.45 + (sum(strips) if strips else 1.0)
    figure = Figure(figsize=(width, height))
    title = data.title if isinstance(data, LeaderboardData) else ""
    _plain(figure.text(0.16 / width, 1 - 0.14 / height, title, va="top", size=12, weight="bold"))
    if not tasks:
        _plain(figure.text(0.5, 0.4, "No tasks.", ha="center"), _MUTED)
    cell = width / columns
    for index, task in enumerate(tasks):
        line, column = divmod(index, columns)
        top = 0.45 + sum(strips[:line])
        axes = figure.add_axes(
            (
                (column * cell + 0.72) / width,
                1 - (top + 0.4 + 2.6) / height,
                (cell - 0.95) / width,
                2.6 / height,
            )
        )
        _panel(axes, task, shades, log_x=log_x, log_y=log_y)
        corner = ((column * cell + 0.16) / width, 1 - (top + 3.52) / height)
        _legend(figure, corner, legends[index], shades)
    return figure


# Inches: a panel with its titles and labels, and one line of a legend.
_PANEL, _LINE = 3.85, 0.185
_LETTERS = 58


def _plain(text: Any, colour: str = _INK) -> None:
    text.set_parse_math(False)
    text.set_color(colour)


@dataclass(frozen=True)
class _Entry:
    """A line of a legend: an agent and its budgets, the largest drawn at full strength."""

    label: str
    agent: str
    stroke: str


def _entries(task: TaskResult) -> list[_Entry]:
    """One entry per agent in the order of the table."""
    found: dict[str, _Entry] = {}
    for _, rows in groups(task.rows):
        for row in rows:
            found.setdefault(row.agent, _Entry(row.agent, row.agent, stroke(row)))
    for agent, entry in found.items():
        budgets = [row.budget for row in task.rows if row.agent == agent]
        if budgets != [NO_BUDGET]:
            listed = ", ".join(sorted(budgets, key=budget_order, reverse=True))
            found[agent] = replace(entry, label=f"{agent}  {listed}")
    return list(found.values())


def _panel(
    axes: Axes, task: TaskResult, shades: dict[str, str], *, log_x: bool, log_y: bool
) -> None:
    from matplotlib.ticker import FuncFormatter

    from dpb_gym.report.numerals import tick

    alpha = strength(task)
    drawn = False
    for _, rows in reversed(groups(task.rows)):
        for row in reversed(rows):
            points = [p for p in row.curve if (p[0] > 0 or not log_x) and (p[1] > 0 or not log_y)]
            if not points:
                continue
            t, mean, low, high = zip(*points)
            if log_y:
                low = tuple(max(value, 1e-3 * centre) for value, centre in zip(low, mean))
            colour = shades[row.agent]
            axes.fill_between(t, low, high, color=colour, alpha=0.16 * alpha[row.key], linewidth=0)
            axes.plot(
                t,
                mean,
                color=colour,
                alpha=alpha[row.key],
                linewidth=1.5,
                linestyle=_DASHES[stroke(row)],
                marker="o" if len(points) == 1 else None,
                markersize=4,
            )
            drawn = True
    axes.set_title(task.task, loc="left", size=10, weight="bold", color=_INK, parse_math=False)
    counted = f"T = {task.horizon:,}, {task.replicates} replicate{'s'[: task.replicates > 1]}"
    axes.set_title(counted, loc="right", size=8, color=_MUTED)
    axes.set_xlabel("round", size=8.5, color=_MUTED)
    axes.set_ylabel("cumulative pseudo-regret", size=8.5, color=_MUTED)
    if not drawn:
        axes.text(0.5, 0.5, "No curve.", ha="center", color=_MUTED, transform=axes.transAxes)
        axes.set_xticks([])
        axes.set_yticks([])
    else:
        if log_x:
            axes.set_xscale("log")
        if log_y:
            axes.set_yscale("log")
        formatter = FuncFormatter(lambda value, _: tick(value))
        for scale, axis in ((log_x, axes.xaxis), (log_y, axes.yaxis)):
            if not scale:
                axis.set_major_formatter(formatter)
    axes.tick_params(labelsize=8, colors=_MUTED, length=0)
    axes.grid(True, color=_HAIR, linewidth=0.6)
    axes.set_axisbelow(True)
    for side in ("top", "right", "left"):
        axes.spines[side].set_visible(False)
    axes.spines["bottom"].set_color(_HAIR)


def _short(label: str) -> str:
    return label if len(label) <= _LETTERS else label[: _LETTERS - 1] + "…"


def _legend_columns(entries: list[_Entry]) -> int:
    """Two columns where they fit below the panel."""
    if len(entries) < 2:
        return 1
    half = math.ceil(len(entries) / 2)
    sides = (entries[:half], entries[half:])
    letters = sum(max(len(_short(entry.label)) for entry in side) for side in sides)
    return 2 if letters <= _LETTERS else 1


def _lines(entries: list[_Entry]) -> int:
    return math.ceil(len(entries) / _legend_columns(entries))


def _legend(
    figure: Figure, corner: tuple[float, float], entries: list[_Entry], shades: dict[str, str]
) -> None:
    from matplotlib.lines import Line2D

    if not entries:
        return
    handles = [
        Line2D([], [], color=shades[entry.agent], linewidth=1.8, linestyle=_DASHES[entry.stroke])
        for entry in entries
    ]
    # Labels are set afterwards: matplotlib drops those that begin with an underscore.
    legend = figure.legend(
        handles,
        ["x"] * len(handles),
        loc="upper left",
        bbox_to_anchor=corner,
        ncols=_legend_columns(entries),
        frameon=False,
        fontsize=7.5,
        handlelength=2.4,
        columnspacing=1.4,
        labelspacing=0.35,
        borderpad=0,
        borderaxespad=0,
    )
    for text, entry in zip(legend.get_texts(), entries):
        _plain(text)
        text.set_text(_short(entry.label))
