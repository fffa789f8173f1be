"""Curves: rows of results with their coordinates on the axes of a figure."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Annotated, Any

import numpy as np
from pydantic import AfterValidator

from dpb_gym.errors import ResultError
from dpb_gym.privacy import Budget
from dpb_gym.problems.base import Array
from dpb_gym.report.leaderboard_data import Interval
from dpb_gym.results.metrics import limits
from dpb_gym.results.row_result import RowResult, describe_guarantee


def coordinate(value: Any) -> Any:
    """Round a number to ten digits, so that values that differ by rounding are equal."""
    return float(f"{value:.10g}") if isinstance(value, float) else value


Scalar = Annotated[str | int | float | bool, AfterValidator(coordinate)]
Selector = Mapping[str, Scalar | tuple[Scalar, ...]]


@dataclass(frozen=True)
class Curve:
    """One row of results with its coordinates on the axes of its figure.

    Attributes:
        series: All replicates of one agent at one budget on one task.
        axes: Value on each axis, or None.
    """

    series: RowResult
    axes: Mapping[str, Any]

    @property
    def label(self) -> str:
        """Agent, budget and task."""
        s = self.series
        budget = "" if s.budget == "none" else f" ({s.budget})"
        return f"{s.agent}{budget} on {s.task}"

    @property
    def guarantee(self) -> str:
        """The guarantee in one line."""
        return describe_guarantee(self.series.guarantee, self.budget)[0]

    @property
    def budget(self) -> Budget | None:
        """Requested budget."""
        return self.series.cell.agent.budget

    @property
    def horizon(self) -> int:
        """T."""
        return self.series.cell.task.horizon

    @property
    def recorded(self) -> Mapping[str, Mapping[int, float]]:
        """Numbers by name and replicate that a study recorded."""
        return self.series.recorded

    @property
    def final_regret(self) -> dict[int, float]:
        """Regret at the horizon by replicate."""
        return self.series.final_regret

    @property
    def final_reward(self) -> dict[int, float]:
        """Reward at the horizon by replicate."""
        return dict(zip(self.series.replicates.tolist(), self.series.reward[:, -1].tolist()))

    @property
    def with_origin(self) -> tuple[Array, Array]:
        """Recorded rounds ``(C + 1,)`` and regret ``(n, C + 1)``, starting at round 0."""
        s = self.series
        origin = np.zeros((len(s.regret), 1))
        return np.concatenate([[0], s.rounds]), np.concatenate([origin, s.regret], axis=1)

    @cached_property
    def bands(self) -> Array:
        """Mean cumulative regret and its interval per checkpoint ``(3, C)``."""
        return limits(self.series.regret)

    @property
    def final(self) -> Interval:
        """Mean regret at the horizon with its interval."""
        return Interval(*self.bands[:, -1].tolist())

    def matches(self, selector: Selector | None) -> bool:
        """Return whether the curve has the coordinates of a selector."""
        return all(
            self.axes[axis] in (value if isinstance(value, tuple) else (value,))
            for axis, value in (selector or {}).items()
        )

    def first(self, replicates: int) -> Curve:
        """Return the curve with the replicates below a number only."""
        s = self.series
        kept = s.replicates < replicates
        recorded = {
            name: {i: v for i, v in column.items() if i < replicates}
            for name, column in s.recorded.items()
        }
        series = replace(
            s,
            replicates=s.replicates[kept],
            regret=s.regret[kept],
            reward=s.reward[kept],
            recorded=recorded,
        )
        return Curve(series, self.axes)


def distinct(entries: Sequence[Any], *, ordered: bool = False) -> list[Any]:
    """Distinct values, or coordinates (mappings), in order of appearance; or in their own
    order if all of them are numbers."""
    unique: list[Any] = []
    for one in entries:
        if one not in unique:
            unique.append(one)

    def numbers(one: Any) -> list[Any]:
        values = one.values() if isinstance(one, Mapping) else [one]
        return [-math.inf if v is None else v for v in values]

    if ordered and all(isinstance(v, (int, float)) for one in unique for v in numbers(one)):
        unique.sort(key=numbers)
    return unique


def counterparts(curve: Curve, selector: Selector, curves: Sequence[Curve]) -> list[Curve]:
    """Return the curves that match the selector and agree with `curve` on every other axis.

    Axes on which one of the two has no value are ignored.

    Raises:
        ResultError: If two of them differ on no axis that the selector names.
    """
    matches: list[Curve] = []
    for other in curves:
        if other is curve or not other.matches(selector):
            continue
        pairs = [(v, other.axes[axis]) for axis, v in curve.axes.items() if axis not in selector]
        if all(a is None or b is None or a == b for a, b in pairs):
            matches.append(other)
    for i, first in enumerate(matches):
        for second in matches[:i]:
            if all(first.axes[axis] == second.axes[axis] for axis in selector):
                raise ResultError(
                    f"{first.label} and {second.label} are both compared with {curve.label}: "
                    f"name another axis than {', '.join(selector)}"
                )
    return matches


def words(coordinates: Mapping[str, Any]) -> str:
    """Return coordinates as text, e.g. ``"rho=0.1, contexts=clip"``."""
    return ", ".join(f"{axis}={word(v)}" for axis, v in coordinates.items() if v is not None)


def word(value: Any) -> str:
    """Return a coordinate as text."""
    return f"{value:g}" if isinstance(value, float) else str(value)
