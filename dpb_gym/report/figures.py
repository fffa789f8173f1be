"""Regret curves as a static figure."""

from __future__ import annotations

import io
import math
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dpb_gym.errors import ParameterError
from dpb_gym.report.files import target, write_whole
from dpb_gym.report.grouping import display, groups, strength
from dpb_gym.report.model import LeaderboardData, Row, TaskResult
from dpb_gym.report.palette import colours

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

FORMATS: tuple[str, ...] = (".png", ".pdf", ".svg")

_INK, _MUTED, _HAIR = "#1c2430", "#5b6572", "#d9dee5"
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
    suffix = Path(path).suffix.lower() if isinstance(path, (str, os.PathLike)) else ""
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
    lines = max(1, math.ceil(len(tasks) / columns))
    shades = {label: pair[0] for label, pair in colours(tasks).items()}
    entries = _entries(tasks)
    legend_columns = max(1, min(len(entries), columns if columns > 1 else 2, 4))
    legend_lines = math.ceil(len(entries) / legend_columns)
    width = max(4.2 * columns, 6.4)
    top, bottom = 0.45, 0.35 + 0.2 * legend_lines
    height = 3.5 * lines + top + bottom
    figure = Figure(figsize=(width, height), layout="constrained")
    figure.get_layout_engine().set(  # type: ignore[union-attr]
        rect=(0, bottom / height, 1, 1 - (top + bottom) / height), w_pad=0.08, h_pad=0.08
    )
    title = f"{data.title}  " if isinstance(data, LeaderboardData) else ""
    _plain(figure.text(0.012, 1 - 0.14 / height, title, va="top", size=12, weight="semibold"))
    if not tasks:
        _plain(figure.text(0.5, 0.5, "No tasks.", ha="center", color=_MUTED))
        return figure
    for index, task in enumerate(tasks):
        axes = figure.add_subplot(lines, columns, index + 1)
        _panel(axes, task, shades, log_x=log_x, log_y=log_y)
    _legend(figure, entries, shades, legend_columns)
    return figure


def _plain(text: Any, colour: str = _INK) -> None:
    text.set_parse_math(False)
    text.set_color(colour)


def _entries(tasks: tuple[TaskResult, ...]) -> list[tuple[str, Row, float]]:
    """One legend entry per row key over all tasks, in the order of the tables."""
    found: dict[str, tuple[str, Row, float]] = {}
    for task in tasks:
        alpha = strength(task)
        for _, rows in groups(task.rows):
            for row in rows:
                found.setdefault(row.key, (display(row), row, alpha[row.key]))
    return sorted(found.values(), key=lambda entry: not entry[1].private)


def _panel(
    axes: Axes, task: TaskResult, shades: dict[str, str], *, log_x: bool, log_y: bool
) -> None:
    from matplotlib.ticker import FuncFormatter

    from dpb_gym.report.numerals import number

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
                linestyle="-" if row.private else (0, (4, 2)),
                marker="o" if len(points) == 1 else None,
                markersize=4,
            )
            drawn = True
    axes.set_title(task.task, loc="left", size=10, weight="semibold", color=_INK, parse_math=False)
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
        formatter = FuncFormatter(lambda value, _: number(value))
        for scale, axis in ((log_x, axes.xaxis), (log_y, axes.yaxis)):
            if not scale:
                axis.set_major_formatter(formatter)
    axes.tick_params(labelsize=8, colors=_MUTED, length=0)
    axes.grid(True, color=_HAIR, linewidth=0.6)
    axes.set_axisbelow(True)
    for side in ("top", "right", "left"):
        axes.spines[side].set_visible(False)
    axes.spines["bottom"].set_color(_HAIR)


def _legend(
    figure: Figure, entries: list[tuple[str, Row, float]], shades: dict[str, str], columns: int
) -> None:
    from matplotlib.lines import Line2D

    if not entries:
        return
    handles = [
        Line2D([], [], color=shades[row.agent], alpha=alpha, linewidth=2,
               linestyle="-" if row.private else (0, (4, 2)))
        for _, row, alpha in entries
    ]
    # Labels are set afterwards: matplotlib drops those that begin with an underscore.
    legend = figure.legend(
        handles, ["x"] * len(handles), loc="lower left", ncols=columns, frameon=False,
        fontsize=8.5, handlelength=2.6, columnspacing=2.4, borderaxespad=0.6,
    )
    for text, (label, _, _) in zip(legend.get_texts(), entries):
        _plain(text)
        text.set_text(label if len(label) <= 48 else label[:47] + "…")
