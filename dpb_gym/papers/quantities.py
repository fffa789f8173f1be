"""Quantities of curves: what claims compare and tables show. A package may register its own."""

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
from dpb_gym.results.row_result import REPORT_DELTA, read_guarantee
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
        name: What figures call it.
        measure: From a curve (and its reference), and the options, to `Measured`.
        reference: Whether it is relative to another curve.
        options: Model of the options.
    """

    name: str
    measure: Callable[..., Measured]
    reference: bool
    options: type[BaseModel]


QUANTITIES: dict[str, QuantityKind] = {}


def quantity(name: str) -> Callable[[Callable[..., Measured]], Callable[..., Measured]]:
    """Registers a quantity that figures can name.

    The function takes the `Curve`; a second parameter called ``reference`` makes the quantity
    relative to another curve, which the figure then has to pick. Keyword-only parameters are its
    options in the figure's file, checked against their annotations.

    Args:
        name: What figures call it.

    Raises:
        ParameterError: If another function has the name.

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
    """A registered quantity.

    Raises:
        UnknownNameError: If there is none of that name.
    """
    if name not in QUANTITIES:
        raise unknown_name("quantity", name, QUANTITIES)
    return QUANTITIES[name]


def ratio(top: Any, bottom: Any) -> Any:
    """top / bottom; not finite where the bottom is zero."""
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.divide(top, bottom)


def _per(column: Column, scale: float) -> Measured:
    return Measured(({i: v / scale for i, v in column.items()},))


def _regrets(first: Curve, second: Curve, of: Callable[..., Any]) -> Measured:
    return Measured((first.final_regret, second.final_regret), of)


def constant(value: float) -> Measured:
    """A quantity in which nothing is random."""
    return Measured((), lambda: value)


_PLAIN: dict[str, Callable[..., Measured]] = {
    # at the horizon: cumulative, per round, over sqrt(T)
    "final-regret": lambda curve: Measured((curve.final_regret,)),
    "final-reward": lambda curve: Measured((curve.final_reward,)),
    "average-regret": lambda curve: _per(curve.final_regret, curve.horizon),
    "reward-rate": lambda curve: _per(curve.final_reward, curve.horizon),
    "root-regret": lambda curve: _per(curve.final_regret, math.sqrt(curve.horizon)),
    # means over those of the reference
    "relative-regret": lambda curve, reference: _regrets(curve, reference, ratio),
    "relative-reward": lambda curve, reference: Measured(
        (curve.final_reward, reference.final_reward), ratio
    ),
    # the reference's regret minus the curve's, and the other way round
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
    """100 times the reward over the reference's, replicate by replicate, as papers print it."""
    whole = reference.final_reward
    shared = {i: v for i, v in curve.final_reward.items() if i in whole}
    if any(whole[i] <= 0.0 for i in shared):
        raise ResultError("a reference without reward: percentages of nothing are undefined")
    return Measured(({i: 100.0 * v / whole[i] for i, v in shared.items()},))


@quantity("slope-ratio")
def slope_ratio(curve: Curve, *, early: Part = (0.1, 0.3), late: Part = (0.8, 1.0)) -> Measured:
    """Regret per round late over early in the horizon: below 1 is sublinear growth."""
    return Measured((slopes(curve, late), slopes(curve, early)), ratio)


def slopes(curve: Curve, part: tuple[float, float]) -> dict[int, float]:
    """Regret per round over a part of the horizon, between the nearest checkpoints."""
    rounds, regret = curve.with_origin
    low, high = (int(np.abs(rounds - share * rounds[-1]).argmin()) for share in part)
    if low == high:
        raise ResultError(f"no two checkpoints lie near {part} of the horizon")
    slope = (regret[:, high] - regret[:, low]) / (rounds[high] - rounds[low])
    return dict(zip(curve.series.replicates.tolist(), slope.tolist()))


@quantity("recorded")
def recorded(
    curve: Curve, *, name: Annotated[str, Field(min_length=1)], over: str = ""
) -> Measured:
    """The number that a study recorded as `name`; its mean over that of `over`, if given."""
    names = [one for one in (name, over) if one]
    for one in names:
        if one not in curve.recorded:
            raise ResultError(f"{curve.label} has no {one!r}")
    columns = tuple(curve.recorded[one] for one in names)
    return Measured(columns, ratio) if over else Measured(columns)


@quantity("spent")
def spent(curve: Curve) -> Measured:
    """True cost over the budget asked for, in its own currency; infinite without either."""
    budget, guarantee = curve.budget, curve.series.guarantee
    if budget is None or guarantee is None:
        return constant(math.inf)
    read = read_guarantee(guarantee)
    if budget.rho is not None:
        return constant(math.inf if read.rho is None else read.rho / budget.rho)
    assert budget.epsilon is not None and budget.delta is not None
    return constant(read.epsilon(budget.delta) / budget.epsilon)


@quantity("guarantee-epsilon")
def guarantee_epsilon(curve: Curve) -> Measured:
    """The epsilon that really holds, at the budget's delta (1e-5 without one)."""
    if curve.series.guarantee is None:
        return constant(math.inf)
    delta = (curve.budget.delta if curve.budget else None) or REPORT_DELTA
    return constant(read_guarantee(curve.series.guarantee).epsilon(delta))
