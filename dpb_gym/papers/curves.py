"""Curves: rows of results, placed on the axes of their figure."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

from dpb_gym.evaluation import metrics
from dpb_gym.evaluation.leaderboard import Series, describe_guarantee
from dpb_gym.papers.claims import Scalar, Selector
from dpb_gym.papers.figure import Figure
from dpb_gym.papers.layout import AxisMap
from dpb_gym.report.model import Interval


@dataclass(frozen=True)
class Curve:
    """One row of results, placed on the axes of its figure.

    Attributes:
        series: All replicates of one agent at one budget on one task.
        axes: Its value on each axis; None where it has none.
        recorded: Numbers by name and replicate that a study recorded beside the regret.
    """

    series: Series
    axes: Mapping[str, Any]
    recorded: Mapping[str, Mapping[int, float]] = field(default_factory=dict)

    @cached_property
    def label(self) -> str:
        """Agent, budget and task."""
        s = self.series
        budget = "" if s.budget == "none" else f" ({s.budget})"
        return f"{s.agent}{budget} on {s.task}"

    @cached_property
    def guarantee(self) -> str:
        """What is really promised, in one line."""
        return describe_guarantee(self.series.guarantee)[0]

    @cached_property
    def bands(self) -> list[Interval]:
        """Mean cumulative regret with its interval, per checkpoint."""
        return metrics.bands(self.series.regret, resamples=500)

    @property
    def final(self) -> Interval:
        """Mean regret at the horizon with its interval."""
        return metrics.bootstrap(self.series.regret[:, -1])

    @property
    def horizon(self) -> int:
        """T."""
        return int(self.series.config["task"]["horizon"])

    def matches(self, selector: Selector | None) -> bool:
        """Whether the curve lies where the selector points."""
        return all(
            any(same(self.axes[axis], v) for v in (value if isinstance(value, tuple) else (value,)))
            for axis, value in (selector or {}).items()
        )

    def first(self, replicates: int) -> Curve:
        """The curve with the replicates of lowest numbers only."""
        s = self.series
        kept = s.replicates < replicates
        series = replace(
            s, replicates=s.replicates[kept], regret=s.regret[kept], reward=s.reward[kept]
        )
        recorded = {
            name: {i: v for i, v in column.items() if i < replicates}
            for name, column in self.recorded.items()
        }
        return replace(self, series=series, recorded=recorded)


def same(a: Any, b: Any) -> bool:
    """Equality of coordinates; numbers are equal up to rounding."""
    if isinstance(a, bool) or isinstance(b, bool) or a is None or b is None:
        return a is b
    if isinstance(a, (int, float)) and isinstance(b, (int, float)):
        return math.isclose(a, b, rel_tol=1e-9)
    return bool(a == b)


def place(series: Sequence[Series], figure: Figure) -> list[Curve]:
    """Reads the coordinates of each row from its configuration; in the suite's order."""
    agents = [agent.label for agent in figure.suite.agents]
    tasks = [task.name for task in figure.suite.tasks]

    def order(s: Series) -> tuple[int, int, float]:
        budget = s.config["budget"] or {}
        strength = budget.get("rho") or budget.get("epsilon") or 0.0
        return agents.index(s.agent), tasks.index(s.task), float(strength)

    placed = sorted(series, key=order)
    return [Curve(s, {a: _coordinate(s, path) for a, path in figure.axes.items()}) for s in placed]


def _coordinate(series: Series, path: str | AxisMap) -> Scalar | None:
    if isinstance(path, str):
        return _read(series, path)
    found = next((v for p in path.path if (v := _read(series, p)) is not None), None)
    if not path.values:
        return found
    return next((after for before, after in path.values if same(before, found)), None)


def _read(series: Series, path: str) -> Scalar | None:
    holder, _, name = path.partition(".")
    config = series.config
    if holder == "budget":
        value = series.budget if name == "label" else (config["budget"] or {}).get(name)
    elif holder == "agent":
        agent = config["agent"]
        value = agent[name] if name in ("name", "label") else agent["params"].get(name)
    else:
        task = config["task"]
        value = task[name] if name in ("horizon", "name") else task["env_kwargs"].get(name)
    return value if value is None or isinstance(value, (str, int, float, bool)) else str(value)
