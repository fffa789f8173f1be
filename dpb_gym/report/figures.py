"""Figures for papers and notebooks: regret curves, regret against budget, paired differences.

One colour and one mark per agent, apart for readers who see colours differently too; fainter for
an agent's smaller budgets, dashed without a guarantee. Panels are as wide as a paper's column.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from dpb_gym import validation
from dpb_gym.errors import ParameterError, unknown_name
from dpb_gym.report.canvas import DASHES, MUTED, Blank, Panel, finish, look, scale_axes, shorten
from dpb_gym.report.groups import budget_order, scale_of, short
from dpb_gym.report.model import Interval, LeaderboardData, Row, TaskResult
from dpb_gym.report.palette import shade
from dpb_gym.report.views import Board, Line, board

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

    def draw(axes: Axes, panel: Panel) -> None:
        _curves(axes, panel, x == "log", y == "log")

    panels = [
        Panel(table, [line for line in table.ordered if chosen(line)]) for table in shown.tasks
    ]
    return finish(shown.title, panels, draw, path, ax)


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
        panels += [Panel(table, lines, scale) for scale, lines in sorted(scales.items())]
    if not panels:
        raise ParameterError("no row has a budget, so there is nothing to draw against it")

    def draw(axes: Axes, panel: Panel) -> None:
        _frontier(axes, panel, y == "log")

    return finish(shown.title, panels, draw, path, ax)


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
    panel = Panel(table, [lines[difference.row.key] for difference in differences])

    def draw(axes: Axes, panel: Panel) -> None:
        axes.axvline(0, color=MUTED, linewidth=0.9)
        for place, (line, found) in enumerate(zip(panel.lines, differences)):
            colour, ends = line.colour[0], [found.interval.low, found.interval.high]
            axes.plot(found.values, [place] * len(found.values), "|", color=colour, alpha=0.4, ms=7)
            axes.plot(ends, [place] * 2, color=colour, linewidth=2.2)
            axes.plot([found.interval.mean], [place], "o", color=colour, markersize=4.5)
        axes.set_ylim(len(panel.lines) - 0.5, -0.5)
        axes.set_yticks(range(len(panel.lines)), [shorten(line.label, 26) for line in panel.lines])
        _name(axes, panel, f"regret minus that of {shorten(against, 30)}, same customers", "")

    return finish("", [panel], draw, path, ax, height=0.65 + 0.19 * max(4, len(differences)))


@dataclass(frozen=True)
class _Profile(Blank):
    title: str
    lines: Mapping[str, Sequence[tuple[float, float]]]

    def handles(self) -> tuple[list[Any], list[str]]:
        from matplotlib.lines import Line2D

        drawn = [Line2D([], [], color=shade(k)[0]) for k in range(len(self.lines))]
        return drawn, [shorten(agent, 40) for agent in self.lines]


def plot_profiles(
    records: Iterable[Mapping[str, Any]],
    path: str | os.PathLike[str] | None = None,
    *,
    ax: Axes | None = None,
    most: int = 8,
) -> Figure:
    """Draws performance profiles, one panel per track, guarantee and budget; higher is better.

    Args:
        records: What `dpb_gym.Result.profiles` returns.
        path: File to write, as for `plot`.
        ax: Axes to draw a single panel in, instead of a new figure.
        most: Agents per panel, those of largest mean share.

    Raises:
        ParameterError: As for `plot`; or nothing was compared.
    """
    found: dict[str, dict[str, list[tuple[float, float]]]] = {}
    for one in records:
        title = ", ".join(filter(None, (one["track"], one["guarantee"], one["budget"])))
        lines = found.setdefault(title, {}).setdefault(one["agent"], [])
        lines.append((one["factor"], one["share"]))
    if not found:
        raise ParameterError("nothing to draw: no two agents were compared")

    def reached(item: tuple[str, list[tuple[float, float]]]) -> float:
        return -sum(share for _, share in item[1]) / len(item[1])

    panels = [
        _Profile(title, dict(sorted(lines.items(), key=reached)[:most]))
        for title, lines in found.items()
    ]

    def draw(axes: Axes, panel: _Profile) -> None:
        for k, points in enumerate(panel.lines.values()):
            axes.step(*zip(*points), where="post", color=shade(k)[0])
        axes.set_xlabel("factor of the least regret")
        axes.set_ylabel("share of runs within")
        axes.set_ylim(-0.02, 1.02)
        axes.set_title(shorten(panel.title, 60), loc="left", parse_math=False)
        scale_axes(axes, True, False)

    return finish("", panels, draw, path, ax)


def plot_kept(
    task: TaskResult,
    parts: Mapping[str, Mapping[tuple[str, str], Interval]],
    y: str,
    path: str | os.PathLike[str] | None = None,
) -> Figure:
    """Draws what each agent keeps of a non-private one's earnings, one panel per part of the run.

    Args:
        task: The task.
        parts: Percent with its interval by label and budget, by the name of the part.
        y: What 100% is.
        path: File to write, as for `plot`.
    """
    (table,) = board(task).tasks
    panels = [Panel(table, [x for x in table.ordered if x.row.private], part) for part in parts]

    def draw(axes: Axes, panel: Panel) -> None:
        budgets = sorted({x.row.budget for x in panel.lines if x.row.budget}, key=budget_order)
        axes.axhline(100, color=MUTED, linestyle=DASHES["dashed"])
        for agent, line in panel.agents.items():
            kept = [parts[panel.scale].get((agent, str(budget))) for budget in budgets]
            found = [(k, one) for k, one in enumerate(kept) if one is not None]
            ends = [
                [one.mean - one.low for _, one in found], [one.high - one.mean for _, one in found]
            ]  # fmt: skip
            at, mean = [k for k, _ in found], [one.mean for _, one in found]
            axes.errorbar(at, mean, ends, capsize=1.8, elinewidth=0.8, **look(line))
        axes.set_xticks(range(len(budgets)), [short(budget) for budget in budgets])
        _name(axes, panel, panel.scale, y)

    return finish("", panels, draw, path, None)


def plot_calibration(
    name: str,
    bins: Sequence[tuple[float, float, int]],
    path: str | os.PathLike[str] | None = None,
) -> Figure:
    """Draws observed against predicted chances; on the diagonal a model is right.

    Args:
        name: Of the data.
        bins: Predicted and observed chance, and count. Lines are 95% intervals of the observed
            shares (Wilson).
        path: File to write, as for `plot`.
    """

    def draw(axes: Axes, _: Blank) -> None:
        most = 0.0
        axes.plot([0, 1], [0, 1], color=MUTED, linestyle=DASHES["dashed"])
        for predicted, seen, n in bins:
            middle = (seen * n + 1.92) / (n + 3.84)
            half = 1.96 * (seen * (1 - seen) * n + 0.96) ** 0.5 / (n + 3.84)
            axes.plot([predicted] * 2, [middle - half, middle + half], color=shade(0)[0])
            axes.plot([predicted], [seen], "o", color=shade(0)[0])
            most = max(most, predicted, middle + half)
        axes.set(
            xlim=(0, 1.05 * most), ylim=(0, 1.05 * most), xlabel="predicted", ylabel="observed"
        )
        axes.set_title(shorten(f"{name}: held-out customers", 40), loc="left", parse_math=False)

    return finish("", [Blank()], draw, path, None, height=2.8)


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


def _name(axes: Axes, panel: Panel, x: str, y: str) -> None:
    count = panel.task.replicates
    said = f"T = {panel.task.horizon:,}, {count} replicate{'s'[: count > 1]}"
    axes.set_title(shorten(panel.task.task, 30), loc="left", parse_math=False)
    axes.set_title(said, loc="right", size=7, color=MUTED, weight="normal")
    axes.set_xlabel(x)
    axes.set_ylabel(y)


def _curves(axes: Axes, panel: Panel, log_x: bool, log_y: bool) -> None:
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
        axes.plot(t, mean, alpha=line.strength, markevery=marked, **look(line))
    _name(axes, panel, "round", "cumulative pseudo-regret")
    if drawn:
        scale_axes(axes, log_x, log_y)
    else:
        axes.text(0.5, 0.5, "No curve.", ha="center", color=MUTED, transform=axes.transAxes)


def _frontier(axes: Axes, panel: Panel, log_y: bool) -> None:
    from matplotlib.ticker import FixedLocator, NullLocator

    def floor(loss: Interval) -> float:
        return max(loss.low, 1e-3 * loss.mean) if log_y else loss.low

    rival = panel.table.rival
    if rival is not None and (rival.row.loss.mean > 0 or not log_y):
        axes.axhspan(
            floor(rival.row.loss), rival.row.loss.high, color=MUTED, alpha=0.15, linewidth=0
        )
        axes.axhline(rival.row.loss.mean, color=MUTED, linestyle=DASHES["dashed"])
    ordered = sorted(panel.lines, key=lambda line: budget_order(line.row.budget))
    for agent, first in panel.agents.items():
        mine = [x for x in ordered if x.row.agent == agent and (x.row.loss.mean > 0 or not log_y)]
        mean = [line.row.loss.mean for line in mine]
        below = [max(0.0, line.row.loss.mean - floor(line.row.loss)) for line in mine]
        above = [max(0.0, line.row.loss.high - line.row.loss.mean) for line in mine]
        at = [line.row.budget.limit for line in mine if line.row.budget is not None]
        axes.errorbar(at, mean, (below, above), capsize=1.8, elinewidth=0.8, **look(first))
    _name(axes, panel, panel.scale, "regret at the horizon")
    scale_axes(axes, True, log_y)
    values = sorted({line.row.budget.limit for line in ordered if line.row.budget is not None})
    axes.xaxis.set_major_locator(FixedLocator(values))
    axes.xaxis.set_minor_locator(NullLocator())
