"""Figures for papers and notebooks: regret curves, regret against budget, paired differences.

Each agent has its own colour and mark, distinguishable with colour vision deficiency. Curves of
smaller budgets are fainter, those without a guarantee dashed. Panels have the width of a column.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from dpb_gym import validation
from dpb_gym.errors import ParameterError, unknown_name
from dpb_gym.report.comparison_groups import budget_order, scale_of
from dpb_gym.report.figure_layout import (
    DASHES,
    MUTED,
    Panel,
    agents_of,
    finish,
    legend,
    look,
    scale_axes,
    shorten,
)
from dpb_gym.report.leaderboard_data import Interval, LeaderboardData, Row, TaskResult
from dpb_gym.report.palette import shade
from dpb_gym.report.tables import Line, Table, board

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

Scale: TypeAlias = Literal["log", "linear"]


def plot(
    data: LeaderboardData | TaskResult,
    path: str | os.PathLike[str] | None = None,
    *,
    ax: Axes | None = None,
    agents: Iterable[str] | None = None,
    x: Scale = "log",
    y: Scale = "log",
) -> Figure:
    """Draw the cumulative pseudo-regret by round, one panel per task, with intervals as bands.

    Args:
        data: A leaderboard or one of its tasks.
        path: File to write, its format by its suffix; missing folders are created.
        ax: Axes to draw a single task in, instead of a new figure.
        agents: Labels of the agents to draw; all by default.
        x: Scale of the rounds; ``"log"`` shows the last two decades of them.
        y: Scale of the regret; on ``"log"``, points at or below 0 are left out.

    Returns:
        The figure; a notebook shows it.

    Raises:
        ParameterError: `data` or a scale is invalid, the suffix is unknown, `path` is not a
            file, or `ax` is given for several tasks.
        UnknownNameError: There is no such agent.
        OSError: The file cannot be written.
    """
    validation.choice("x", x, ("log", "linear"))
    validation.choice("y", y, ("log", "linear"))
    title, chosen = _chosen(data, agents)
    panels = [
        Panel(partial(_curves, table.task, lines, x == "log", y == "log"), legend(table, lines))
        for table, lines in chosen
    ]
    return finish(title, panels, path, ax)


def plot_frontier(
    data: LeaderboardData | TaskResult,
    path: str | os.PathLike[str] | None = None,
    *,
    ax: Axes | None = None,
    agents: Iterable[str] | None = None,
    y: Scale = "log",
) -> Figure:
    """Draw the regret at the horizon against the budget, one panel per task and scale.

    The dashed line with its interval is the best non-private agent. Arguments and errors are those
    of `plot`; a `ParameterError` is also raised if no row has a budget.
    """
    validation.choice("y", y, ("log", "linear"))
    title, chosen = _chosen(data, agents)
    panels = []
    for table, every in chosen:
        scales: dict[str, list[Line]] = {}
        for line in every:
            if line.row.budget is not None:
                scales.setdefault(scale_of(line.row.budget), []).append(line)
        panels += [
            Panel(partial(_frontier, table, lines, scale, y == "log"), legend(table, lines, scale))
            for scale, lines in sorted(scales.items())
        ]
    if not panels:
        raise ParameterError("no row has a budget, so there is nothing to draw against it")
    return finish(title, panels, path, ax)


def plot_paired(
    task: TaskResult,
    against: str,
    differences: Mapping[str, tuple[Sequence[float], Interval]],
    path: str | os.PathLike[str] | None = None,
    *,
    ax: Axes | None = None,
) -> Figure:
    """Draw paired differences of regret: one dot per replicate, and the mean with its interval.

    Args:
        task: The task.
        against: Name of the baseline.
        differences: Regret minus that of the baseline on the same customers, and the mean with
            its interval, by `key` of the row, from top to bottom.
        path: File to write, as for `plot`.
        ax: Axes to draw in, instead of a new figure.
    """
    known = {line.row.key: line for line in board(task).tasks[0].lines}
    lines = [known[key] for key in differences]

    def draw(axes: Axes) -> None:
        axes.axvline(0, color=MUTED, linewidth=0.9)
        for place, (line, (values, _)) in enumerate(zip(lines, differences.values())):
            axes.plot(values, [place] * len(values), "|", color=line.colour[0], alpha=0.4, ms=7)
        means = zip(lines, differences.values())
        _intervals(axes, [(shorten(x.label, 26), mean, x.colour[0]) for x, (_, mean) in means])
        _name(axes, task, f"regret minus that of {shorten(against, 30)}, same customers", "")

    height = 0.65 + 0.19 * max(4, len(differences))
    return finish("", [Panel(draw)], path, ax, height=height)


def plot_profiles(
    records: Iterable[Mapping[str, Any]], path: str | os.PathLike[str] | None = None
) -> Figure:
    """Draw performance profiles, one panel per track, guarantee and budget; higher is better.

    A panel holds the eight agents of largest mean share.

    Args:
        records: Records of `dpb_gym.Result.profiles`.
        path: File to write, as for `plot`.

    Raises:
        ParameterError: As for `plot`; or nothing was compared.
    """
    profiles: dict[str, dict[str, list[tuple[float, float]]]] = {}
    for one in records:
        title = ", ".join(filter(None, (one["track"], one["guarantee"], one["budget"])))
        lines = profiles.setdefault(title, {}).setdefault(one["agent"], [])
        lines.append((one["factor"], one["share"]))
    if not profiles:
        raise ParameterError("nothing to draw: no two agents were compared")

    panels = []
    for title, agents in profiles.items():
        means = {a: sum(share for _, share in at) / len(at) for a, at in agents.items()}
        drawn = {a: agents[a] for a in sorted(agents, key=lambda a: -means[a])[:8]}
        looks = [(shorten(agent, 40), {"color": shade(k)[0]}) for k, agent in enumerate(drawn)]
        panels.append(Panel(partial(_profiles, title, list(drawn.values())), looks))
    return finish("", panels, path)


def plot_intervals(
    title: str,
    bars: Sequence[tuple[str, str, Interval]],
    x: str,
    path: str | os.PathLike[str] | None = None,
) -> Figure:
    """Draw means with their intervals on one axis, from top to bottom.

    Args:
        title: Title.
        bars: As for `dpb_gym.report.advice_page`; the first is drawn as a dashed line too.
        x: Label of the axis.
        path: File to write, as for `plot`.
    """

    def draw(axes: Axes) -> None:
        axes.axvline(bars[0][2].mean, color=MUTED, linestyle=DASHES["dashed"])
        named = [(f"{label}\n{explanation}", one) for label, explanation, one in bars]
        _intervals(axes, [(shorten(label, 40), one, shade(0)[0]) for label, one in named])
        _headings(axes, shorten(title, 60), x, "")

    return finish("", [Panel(draw)], path, height=0.8 + 0.3 * len(bars))


def plot_calibration(
    name: str, bins: Sequence[tuple[float, float, int]], path: str | os.PathLike[str] | None = None
) -> Figure:
    """Draw observed against predicted probabilities; a calibrated model is on the diagonal.

    Args:
        name: Name of the data.
        bins: Predicted and observed probability, and count. Lines are 95% intervals of the observed
            shares (Wilson).
        path: File to write, as for `plot`.
    """

    def draw(axes: Axes) -> None:
        most = 0.0
        axes.plot([0, 1], [0, 1], color=MUTED, linestyle=DASHES["dashed"])
        for predicted, seen, n in bins:
            middle = (seen * n + 1.92) / (n + 3.84)
            half = 1.96 * (seen * (1 - seen) * n + 0.96) ** 0.5 / (n + 3.84)
            axes.plot([predicted] * 2, [middle - half, middle + half], color=shade(0)[0])
            axes.plot([predicted], [seen], "o", color=shade(0)[0])
            most = max(most, predicted, middle + half)
        axes.set(xlim=(0, 1.05 * most), ylim=(0, 1.05 * most))
        _headings(axes, shorten(f"{name}: held-out customers", 40), "predicted", "observed")

    return finish("", [Panel(draw)], path, height=2.8)


def _chosen(
    data: LeaderboardData | TaskResult, agents: Iterable[str] | None
) -> tuple[str, list[tuple[Table, list[Line]]]]:
    """Return the title, and each task's table with its lines of the chosen agents."""
    shown = board(data)
    known = {line.row.agent for table in shown.tasks for line in table.lines}
    wanted = known if agents is None else {agents} if isinstance(agents, str) else set(agents)
    for label in sorted(wanted - known):
        raise unknown_name("agent label", label, known)
    return shown.title, [
        (table, [line for line in table.ordered if line.row.agent in wanted])
        for table in shown.tasks
    ]


def _name(axes: Axes, task: TaskResult, x: str, y: str) -> None:
    facts = f"T = {task.horizon:,}, {task.replicates} replicate{'s'[: task.replicates > 1]}"
    axes.set_title(facts, loc="right", size=7, color=MUTED, weight="normal")
    _headings(axes, shorten(task.task, 30), x, y)


def _headings(axes: Axes, title: str, x: str, y: str) -> None:
    axes.set_title(title, loc="left", parse_math=False)
    axes.set(xlabel=x, ylabel=y)


def _intervals(axes: Axes, bars: Sequence[tuple[str, Interval, str]]) -> None:
    """Draw means with their intervals from top to bottom, each with its label and colour."""
    for k, (_, one, colour) in enumerate(bars):
        if one.bounded:
            axes.plot([one.low, one.high], [k, k], color=colour, linewidth=2.2)
        axes.plot([one.mean], [k], "o", color=colour, markersize=4.5)
    axes.set_ylim(len(bars) - 0.5, -0.5)
    axes.set_yticks(range(len(bars)), [label for label, _, _ in bars])


def _floor(value: Interval, log: bool) -> float:
    return max(value.low, 1e-3 * value.mean) if log else value.low


def _curves(task: TaskResult, lines: list[Line], log_x: bool, log_y: bool, axes: Axes) -> None:
    # A logarithmic axis begins two decades before the horizon.
    rounds = [point[0] for row in task.rows for point in row.curve[-2:-1]]
    first = max(1.0, min([task.horizon / 100, *rounds])) if log_x else 0
    before = len(axes.lines)
    for line in reversed(lines):
        row = line.row
        assert isinstance(row, Row)
        points = [p for p in row.curve if p[0] >= first and (p[1] > 0 or not log_y)]
        if not points:
            continue
        t, mean, low, high = zip(*points)
        if log_y:
            low = tuple(max(value, 1e-3 * centre) for value, centre in zip(low, mean))
        faint = 0.16 * line.strength
        if all(map(math.isfinite, high)):
            axes.fill_between(t, low, high, color=line.colour[0], alpha=faint, linewidth=0)
        marked = list(range(len(points) - 1, -1, -max(1, len(points) // 5)))[::-1]
        axes.plot(t, mean, alpha=line.strength, markevery=marked, **look(line))
    _name(axes, task, "round", "cumulative pseudo-regret")
    if len(axes.lines) > before:
        scale_axes(axes, log_x, log_y)
    else:
        axes.text(0.5, 0.5, "No curve.", ha="center", color=MUTED, transform=axes.transAxes)


def _frontier(table: Table, lines: list[Line], scale: str, log_y: bool, axes: Axes) -> None:
    from matplotlib.ticker import FixedLocator, NullLocator

    best = None if table.rival is None else table.rival.row.loss
    if best is not None and (best.mean > 0 or not log_y):
        if best.bounded:
            axes.axhspan(_floor(best, log_y), best.high, color=MUTED, alpha=0.15, linewidth=0)
        axes.axhline(best.mean, color=MUTED, linestyle=DASHES["dashed"])
    budgets = sorted({line.row.budget for line in lines if line.row.budget}, key=budget_order)
    for agent, first in agents_of(lines).items():
        mine = {x.row.budget: x.row.loss for x in lines if x.row.agent == agent}
        drawn = [b for b in budgets if b in mine and (mine[b].mean > 0 or not log_y)]
        losses = [mine[budget] for budget in drawn]
        below = [
            max(0.0, one.mean - _floor(one, log_y)) if one.bounded else math.nan for one in losses
        ]
        ends = below, [max(0.0, one.high - one.mean) if one.bounded else math.nan for one in losses]
        at, mean = [budget.limit for budget in drawn], [one.mean for one in losses]
        axes.errorbar(at, mean, ends, capsize=1.8, elinewidth=0.8, **look(first))
    _name(axes, table.task, scale, "regret at the horizon")
    scale_axes(axes, True, log_y)
    axes.xaxis.set_major_locator(FixedLocator([budget.limit for budget in budgets]))
    axes.xaxis.set_minor_locator(NullLocator())


def _profiles(title: str, lines: list[list[tuple[float, float]]], axes: Axes) -> None:
    for k, points in enumerate(lines):
        axes.step(*zip(*points), where="post", color=shade(k)[0])
    axes.set_ylim(-0.02, 1.02)
    _headings(axes, shorten(title, 60), "factor of the least regret", "share of runs within")
    scale_axes(axes, True, False)
