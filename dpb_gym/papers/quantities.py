"""Quantities of curves, which claims compare and tables show. Packages may register more."""

from __future__ import annotations

import inspect
import math
import operator
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, get_type_hints

import numpy as np
from pydantic import AfterValidator, BaseModel, Field, Strict, create_model

from dpb_gym.errors import ParameterError, ResultError, unknown_name
from dpb_gym.papers.curves import Curve
from dpb_gym.papers.pairing import Measured
from dpb_gym.privacy.budget import report_delta
from dpb_gym.results.row_result import read_guarantee
from dpb_gym.suites.schema import Spec

Column = Mapping[int, float]


def _increasing(part: tuple[float, float]) -> tuple[float, float]:
    if part[0] >= part[1]:
        raise ValueError(f"must be two increasing fractions, got {list(part)}")
    return part


Fraction = Annotated[float, Field(ge=0.0, le=1.0)]
Part = Annotated[tuple[Fraction, Fraction], Strict(False), AfterValidator(_increasing)]


@dataclass(frozen=True)
class QuantityKind:
    """A registered quantity.

    Attributes:
        name: Name in figures.
        measure: Function of a curve, its reference if any, and the options that returns `Measured`.
        reference: Whether it is relative to another curve.
        options: Model of the options.
    """

    name: str
    measure: Callable[..., Measured]
    reference: bool
    options: type[BaseModel]


QUANTITIES: dict[str, QuantityKind] = {}


def quantity(name: str) -> Callable[[Callable[..., Measured]], Callable[..., Measured]]:
    """Register a quantity under the name that figures use.

    The function takes a `Curve`. A second parameter ``reference`` makes the quantity relative to
    another curve, which the figure selects. Keyword-only parameters are options in the figure's
    file, validated against their annotations.

    Args:
        name: Name in figures.

    Raises:
        ParameterError: If another function has this name.

    Example:
        >>> @quantity("regret-per-root-horizon")
        ... def per_root(curve, *, power: float = 0.5) -> Measured:
        ...     scale = curve.horizon**power
        ...     return Measured(({i: v / scale for i, v in curve.final_regret.items()},))
        >>> QUANTITIES.pop("regret-per-root-horizon").reference
        False
    """

    def register(measure: Callable[..., Measured]) -> Callable[..., Measured]:
        taken = QUANTITIES.get(name)
        home = (measure.__module__, measure.__qualname__)
        if taken and (taken.measure.__module__, taken.measure.__qualname__) != home:
            raise ParameterError(f"quantity {name!r} is already {taken.measure.__qualname__}")
        parameters = inspect.signature(measure).parameters
        own = [p for p in parameters.values() if p.kind is p.KEYWORD_ONLY]
        hints = get_type_hints(measure, include_extras=True) if own else {}
        options: dict[str, Any] = {
            p.name: (hints.get(p.name, Any), ... if p.default is p.empty else p.default)
            for p in own
        }
        model = create_model(f"options of {name}", __base__=Spec, **options)
        QUANTITIES[name] = QuantityKind(name, measure, "reference" in parameters, model)
        return measure

    return register


def quantity_kind(name: str) -> QuantityKind:
    """Return a registered quantity.

    Raises:
        UnknownNameError: If no quantity has this name.
    """
    if name not in QUANTITIES:
        raise unknown_name("quantity", name, QUANTITIES)
    return QUANTITIES[name]


def ratio(top: Any, bottom: Any) -> Any:
    """Return top / bottom, which is not finite where bottom is zero."""
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.divide(top, bottom)


def _per(column: Column, scale: float) -> Measured:
    return Measured(({i: v / scale for i, v in column.items()},))


def _regrets(first: Curve, second: Curve, of: Callable[..., Any]) -> Measured:
    return Measured((first.final_regret, second.final_regret), of)


def constant(value: float) -> Measured:
    """Return a quantity that is not random."""
    return Measured((), lambda: value)


_PLAIN: dict[str, Callable[..., Measured]] = {
    # at the horizon: cumulative, per round, over sqrt(T)
    "final-regret": lambda curve: Measured((curve.final_regret,)),
    "final-reward": lambda curve: Measured((curve.final_reward,)),
    "average-regret": lambda curve: _per(curve.final_regret, curve.horizon),
    "root-regret": lambda curve: _per(curve.final_regret, math.sqrt(curve.horizon)),
    # means over those of the reference
    "relative-regret": lambda curve, reference: _regrets(curve, reference, ratio),
    "relative-reward": lambda curve, reference: Measured(
        (curve.final_reward, reference.final_reward), ratio
    ),
    # the reference's regret minus the curve's, and the opposite
    "regret-drop": lambda curve, reference: _regrets(reference, curve, operator.sub),
    "regret-excess": lambda curve, reference: _regrets(curve, reference, operator.sub),
    # the reference is random play: random is 0, the oracle 1
    "normalised-score": lambda curve, reference: _regrets(
        curve, reference, lambda own, other: 1.0 - ratio(own, other)
    ),
}
for _name, _measure in _PLAIN.items():
    quantity(_name)(_measure)


@quantity("percent-of-reference")
def percent_of_reference(curve: Curve, reference: Curve) -> Measured:
    """Return 100 times the reward over the reference's, per replicate, as papers print it."""
    whole = reference.final_reward
    shared = {i: v for i, v in curve.final_reward.items() if i in whole}
    if any(whole[i] <= 0.0 for i in shared):
        raise ResultError("a reference without reward: percentages of nothing are undefined")
    return Measured(({i: 100.0 * v / whole[i] for i, v in shared.items()},))


@quantity("reward-rate")
def reward_rate(curve: Curve, *, part: Part = (0.0, 1.0), over: Part | None = None) -> Measured:
    """Return reward per round over a part of the horizon, or its ratio to that of another part."""
    parts = [part] if over is None else [part, over]
    columns = tuple(slopes(curve, one, reward=True) for one in parts)
    return Measured(columns) if over is None else Measured(columns, ratio)


@quantity("slope-ratio")
def slope_ratio(curve: Curve, *, early: Part = (0.1, 0.3), late: Part = (0.8, 1.0)) -> Measured:
    """Return regret per round late over early in the horizon; below 1, growth is sublinear."""
    return Measured((slopes(curve, late), slopes(curve, early)), ratio)


def slopes(curve: Curve, part: tuple[float, float], *, reward: bool = False) -> dict[int, float]:
    """Return regret (or reward) per round over a part of the horizon, between near checkpoints."""
    rounds, regret = curve.with_origin
    if reward:
        regret = np.pad(curve.series.reward, ((0, 0), (1, 0)))
    low, high = (int(np.abs(rounds - share * rounds[-1]).argmin()) for share in part)
    if low == high:
        raise ResultError(f"no two checkpoints lie near {part} of the horizon")
    slope = (regret[:, high] - regret[:, low]) / (rounds[high] - rounds[low])
    return dict(zip(curve.series.replicates.tolist(), slope.tolist()))


@quantity("recorded")
def recorded(
    curve: Curve, *, name: Annotated[str, Field(min_length=1)], over: str = ""
) -> Measured:
    """Return the number that a study recorded as `name`, or the ratio of its mean to `over`'s."""
    names = [one for one in (name, over) if one]
    for one in names:
        if one not in curve.recorded:
            raise ResultError(f"{curve.label} has no {one!r}")
    columns = tuple(curve.recorded[one] for one in names)
    return Measured(columns, ratio) if over else Measured(columns)


@quantity("spent")
def spent(curve: Curve) -> Measured:
    """Return cost over requested budget, in the budget's unit; infinite without either."""
    budget = curve.budget
    guarantee = curve.series.guarantee
    if budget is None or guarantee is None:
        return constant(math.inf)
    read = read_guarantee(guarantee)
    if budget.rho is not None:
        return constant(math.inf if read.rho is None else read.rho / budget.rho)
    assert budget.epsilon is not None and budget.delta is not None
    return constant(read.epsilon(budget.delta) / budget.epsilon)


@quantity("guarantee-epsilon")
def guarantee_epsilon(curve: Curve) -> Measured:
    """Return the epsilon of the guarantee at the budget's delta (1e-5 without one)."""
    if curve.series.guarantee is None:
        return constant(math.inf)
    return constant(read_guarantee(curve.series.guarantee).epsilon(report_delta(curve.budget)))
