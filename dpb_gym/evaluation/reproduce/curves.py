"""Curves with coordinates, and the quantities that claims compare."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from dpb_gym.errors import ResultError
from dpb_gym.evaluation import metrics
from dpb_gym.evaluation.leaderboard import Series, describe_guarantee, read_guarantee
from dpb_gym.evaluation.reproduce.figure import Figure, Quantity, Scalar, Selector
from dpb_gym.report.model import Interval

Columns = tuple[Mapping[int, float], ...]


@dataclass(frozen=True)
class Curve:
    """One row of results, placed on the axes of its figure.

    Attributes:
        series: All replicates of one agent at one budget on one task.
        axes: Its value on each axis; None where it has none.
    """

    series: Series
    axes: Mapping[str, Any]

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


def _coordinate(series: Series, path: str) -> Scalar | None:
    holder, _, name = path.partition(".")
    config = series.config
    if holder == "budget":
        value = series.budget if name == "label" else (config["budget"] or {}).get(name)
    elif holder == "agent":
        agent = config["agent"]
        value = agent[name] if name in ("name", "label") else agent["params"].get(name)
    else:
        task = config["task"]
        value = task["horizon"] if name == "horizon" else task["env_kwargs"].get(name)
    return value if value is None or isinstance(value, (str, int, float, bool)) else str(value)


@dataclass(frozen=True)
class Measured:
    """A quantity of a curve: columns of numbers per replicate, and what their means become.

    Attributes:
        columns: Numbers by replicate.
        combine: ``"first"`` (the only mean), ``"ratio"`` (first over second),
            ``"difference"`` (first minus second) or ``"constant"``.
        constant: The value where nothing is random.
    """

    columns: Columns
    combine: str = "first"
    constant: float = 0.0

    def of(self, means: Sequence[Any]) -> Any:
        """The quantity, from the means of its columns (arrays of resamples, or numbers)."""
        if self.combine == "constant":
            return self.constant
        if self.combine == "first":
            return means[0]
        if self.combine == "difference":
            return means[0] - means[1]
        with np.errstate(divide="ignore", invalid="ignore"):
            return np.divide(means[0], means[1])


def measure(curve: Curve, quantity: Quantity, curves: Sequence[Curve]) -> Measured:
    """The quantity of one curve.

    Raises:
        ResultError: If its reference is not exactly one curve.
    """
    series = curve.series
    final = series.final_regret
    if quantity.kind == "final-regret":
        return Measured((final,))
    if quantity.kind == "average-regret":
        return Measured(({i: v / curve.horizon for i, v in final.items()},))
    if quantity.kind == "final-reward":
        return Measured((_rewards(series),))
    if quantity.kind == "slope-ratio":
        late, early = slopes(series, quantity.late), slopes(series, quantity.early)
        return Measured((late, early), "ratio")
    if quantity.kind == "spent":
        return Measured((), "constant", spent(series))
    reference = _reference(curve, quantity, curves).series
    if quantity.kind == "relative-regret":
        return Measured((final, reference.final_regret), "ratio")
    if quantity.kind == "relative-reward":
        return Measured((_rewards(series), _rewards(reference)), "ratio")
    return Measured((reference.final_regret, final), "difference")


def counterparts(curve: Curve, selector: Selector, curves: Sequence[Curve]) -> list[Curve]:
    """The curves that match the selector and agree with `curve` on every other axis.

    An axis on which one of the two has no value does not count.

    Raises:
        ResultError: If two of them differ on no axis that the selector names.
    """
    found: list[Curve] = []
    for other in curves:
        if other is curve or not other.matches(selector):
            continue
        rest = [axis for axis in curve.axes if axis not in selector]
        pairs = [(curve.axes[axis], other.axes[axis]) for axis in rest]
        if all(a is None or b is None or same(a, b) for a, b in pairs):
            found.append(other)
    for i, first in enumerate(found):
        for second in found[:i]:
            if all(same(first.axes[axis], second.axes[axis]) for axis in selector):
                raise ResultError(
                    f"{first.label} and {second.label} are both compared with {curve.label}: "
                    f"name another axis than {', '.join(selector)}"
                )
    return found


def _reference(curve: Curve, quantity: Quantity, curves: Sequence[Curve]) -> Curve:
    assert quantity.reference is not None
    found = counterparts(curve, quantity.reference, curves)
    if len(found) != 1:
        raise ResultError(f"{curve.label} has {len(found)} references, expected one")
    return found[0]


def _rewards(series: Series) -> dict[int, float]:
    return dict(zip(series.replicates.tolist(), series.reward[:, -1].tolist()))


def slopes(series: Series, part: tuple[float, float]) -> dict[int, float]:
    """Regret per round over a part of the horizon, between the nearest checkpoints."""
    rounds = np.concatenate([[0], series.rounds])
    regret = np.concatenate([np.zeros((len(series.regret), 1)), series.regret], axis=1)
    low, high = (int(np.abs(rounds - share * rounds[-1]).argmin()) for share in part)
    if low == high:
        raise ResultError(f"no two checkpoints lie near {part} of the horizon")
    slope = (regret[:, high] - regret[:, low]) / (rounds[high] - rounds[low])
    return dict(zip(series.replicates.tolist(), slope.tolist()))


def spent(series: Series) -> float:
    """True cost over the budget asked for, in the budget's currency; infinite without one."""
    budget, guarantee = series.config["budget"], series.guarantee
    if budget is None or guarantee is None:
        return math.inf
    read = read_guarantee(guarantee)
    if budget.get("rho") is not None:
        return math.inf if read.rho is None else read.rho / float(budget["rho"])
    return read.epsilon(budget["delta"]) / float(budget["epsilon"])
