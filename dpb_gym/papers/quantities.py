"""Quantities of curves: what claims compare and tables show."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from dpb_gym.errors import ResultError
from dpb_gym.evaluation.leaderboard import REPORT_DELTA, Series, read_guarantee
from dpb_gym.papers.claims import Quantity, Selector
from dpb_gym.papers.curves import Curve, same
from dpb_gym.papers.layout import PrintedCell, Table

Columns = tuple[Mapping[int, float], ...]


@dataclass(frozen=True)
class Measured:
    """A quantity of a curve: columns of numbers per replicate, and what their means become.

    Attributes:
        columns: Numbers by replicate.
        combine: ``"first"`` (the only mean), ``"ratio"`` (first over second),
            ``"difference"`` (first minus second), ``"shortfall"`` (1 minus first over
            second) or ``"constant"``.
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
            ratio = np.divide(means[0], means[1])
        return 1.0 - ratio if self.combine == "shortfall" else ratio


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
    if quantity.kind == "root-regret":
        return Measured(({i: v / math.sqrt(curve.horizon) for i, v in final.items()},))
    if quantity.kind == "reward-rate":
        return Measured(({i: v / curve.horizon for i, v in _rewards(series).items()},))
    if quantity.kind == "spent":
        return Measured((), "constant", spent(series))
    if quantity.kind == "guarantee-epsilon":
        return Measured((), "constant", true_epsilon(series))
    if quantity.kind == "recorded":
        names = [name for name in (quantity.name, quantity.over) if name]
        for name in names:
            if name not in curve.recorded:
                raise ResultError(f"{curve.label} has no {name!r}")
        columns = tuple(curve.recorded[name] for name in names)
        return Measured(columns, "ratio" if quantity.over else "first")
    reference = _reference(curve, quantity, curves).series
    if quantity.kind == "relative-regret":
        return Measured((final, reference.final_regret), "ratio")
    if quantity.kind == "relative-reward":
        return Measured((_rewards(series), _rewards(reference)), "ratio")
    if quantity.kind == "percent-of-reference":
        return Measured((_percent(_rewards(series), _rewards(reference)),))
    if quantity.kind == "normalised-score":
        return Measured((final, reference.final_regret), "shortfall")
    if quantity.kind == "regret-excess":
        return Measured((final, reference.final_regret), "difference")
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
    if not found and curve.matches(quantity.reference):
        return curve
    if len(found) != 1:
        raise ResultError(f"{curve.label} has {len(found)} references, expected one")
    return found[0]


def _rewards(series: Series) -> dict[int, float]:
    return dict(zip(series.replicates.tolist(), series.reward[:, -1].tolist()))


def _percent(of: Mapping[int, float], whole: Mapping[int, float]) -> dict[int, float]:
    if any(whole[i] <= 0.0 for i in of if i in whole):
        raise ResultError("a reference without reward: percentages of nothing are undefined")
    return {i: 100.0 * v / whole[i] for i, v in of.items() if i in whole}


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


def true_epsilon(series: Series) -> float:
    """The epsilon that really holds, at the budget's delta (1e-5 without one)."""
    if series.guarantee is None:
        return math.inf
    delta = (series.config["budget"] or {}).get("delta") or REPORT_DELTA
    return read_guarantee(series.guarantee).epsilon(delta)


def printed_in(table: Table, curve: Curve) -> PrintedCell | None:
    """What the paper prints in a curve's place of a table, None if nothing."""
    if not curve.matches(table.where):
        return None
    row = curve.axes[table.rows]
    column = None if table.columns is None else curve.axes[table.columns]
    for cell in table.printed:
        if same(cell.row, row) and (cell.column is None or same(cell.column, column)):
            return cell
    return None
