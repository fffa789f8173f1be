"""Conditions on availability, stock, delays, and the information that agents receive."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, ClassVar

import numpy as np

from dpb_gym import validation
from dpb_gym.errors import ParameterError
from dpb_gym.problems.availability import check_offered
from dpb_gym.problems.base import Array, Field, Hidden, Problem, ProblemInfo, Round
from dpb_gym.problems.conditions.condition import Condition
from dpb_gym.problems.contexts import fixed_rows
from dpb_gym.problems.delay import Delay
from dpb_gym.problems.kinds import kind_of
from dpb_gym.problems.prior import Prior
from dpb_gym.streams import Stream


class Availability(Condition):
    """Which items (assortment) or candidates (recommendation) can be offered in a round.

    A number is the probability of each, independently. At least one (or K where slates hold
    exactly K) is always available: those with the smallest draws. An array ``(n, N)`` of 0 and 1
    with n >= T, or the path of one saved by `numpy.save`, gives the rounds row by row.
    """

    name = "available"

    def __init__(self, problem: Problem, value: Any) -> None:
        info = problem.info
        self._kind = kind_of(info.kind)
        self._count = self._kind.feature_shape(info)[0]
        self._least = (info.capacity or 1) if info.exactly else 1
        self._rows: Array | None = None
        self._chance = 0.0
        if isinstance(value, (str, os.PathLike, list, tuple, np.ndarray)):
            rows = fixed_rows("available", value, problem.horizon, (self._count,))
            self._rows = rows > 0.5
            if not np.isin(rows, (0.0, 1.0)).all():
                raise ParameterError("available must be a probability, or an array of 0 and 1")
            short = self._rows.sum(axis=1) < self._least
            if short.any():
                raise ParameterError(
                    f"available must leave at least {self._least} to be offered, round "
                    f"{int(short.argmax()) + 1} has {int(self._rows[short.argmax()].sum())}"
                )
        else:
            self._chance = validation.real("available", value, 0.0, 1.0, open_low=True)

    def info(self, info: ProblemInfo) -> ProblemInfo:
        return replace(info, masked=True)

    def fields(self) -> dict[str, Field]:
        if self._rows is not None:
            return {}
        return {"available": Field((self._count,), np.float64, Stream.AVAILABLE)}

    def round(self, round_: Round, hidden: Hidden, drawn: Mapping[str, Array], t: Array) -> Round:
        if self._rows is not None:
            mask = self._rows[t - 1]
        else:
            uniforms = drawn["available"]
            enough = np.partition(uniforms, self._least - 1, axis=1)[:, self._least - 1, None]
            mask = (uniforms < self._chance) | (uniforms <= enough)
        return round_.showing(available=mask)

    def check(self, round_: Round, action: Array) -> None:
        check_offered(round_.context, self._kind.offered(action))


class Stock(Condition):
    """Units that can be sold over the season: a number (of every item), or one for each item.

    Items that are sold out cannot be offered. Once everything is sold out, any action sells
    nothing. Regret is against the season's optimum, see `dpb_gym.problems.limited_stock`.
    """

    name = "stock"
    excludes: ClassVar[dict[str, str]] = {
        "delay": "the remaining stock would reveal responses before they arrive",
        "contamination": "contaminated customers would use up stock that the optimum keeps",
    }

    def __init__(self, problem: Problem, value: Any) -> None:
        info = problem.info
        if info.exactly:
            raise ParameterError("stock makes no sense with exactly: fewer than K items remain")
        if info.demand == "gaussian":
            raise ParameterError("stock needs a demand of 0 or 1, not demand='gaussian'")
        count = info.n_items or 1
        listed = isinstance(value, (list, tuple)) or getattr(value, "ndim", 0) == 1
        units = list(value) if listed else [value] * count
        if len(units) != count:
            allowed = "a number" if count == 1 else f"a number or {count} numbers"
            raise ParameterError(f"stock must be {allowed}, got {len(units)}")
        self._stock = tuple(validation.integer("stock", unit, 0) for unit in units)
        if not any(self._stock):
            raise ParameterError("stock must leave something to sell, got 0 of everything")

    def info(self, info: ProblemInfo) -> ProblemInfo:
        return replace(info, stock=self._stock, masked=info.n_items is not None or None)


class Returning(Condition):
    """People who return: the number of people N from whom the customer of each round is drawn.

    The person is floor(N u^3) with u uniform: the numbers of rounds of the people have a Pareto
    tail of exponent 3/2, and one in N^(1/3) rounds is of the most frequent person. What a person
    does does not depend on earlier rounds.
    """

    name = "returning"

    def __init__(self, problem: Problem, value: Any) -> None:
        self._people = validation.integer("returning", value, 1)
        if problem.info.max_interactions is not None:
            raise ParameterError("returning makes no sense here: the problem identifies its users")

    def info(self, info: ProblemInfo) -> ProblemInfo:
        return replace(info, max_interactions=info.longest)

    def fields(self) -> dict[str, Field]:
        return {"returning": Field((), np.float64, Stream.RETURNS)}

    def round(self, round_: Round, hidden: Hidden, drawn: Mapping[str, Array], t: Array) -> Round:
        u = drawn["returning"]
        return round_.showing(users=(self._people * (u * u * u)).astype(np.int64))


def delayed(info: ProblemInfo, value: Any) -> ProblemInfo:
    """Delay of a response in rounds: a number, ``"geometric=50"`` or ``"pareto=10,cap=1000"``,
    with ``,lost=0.1`` and ``,window=200``; see `Delay`.

    Rounds are unchanged: harness and environments hold responses back until they are due.
    """
    return replace(info, delay=str(Delay.parse(value)))


def unknown_horizon(info: ProblemInfo, value: Any) -> ProblemInfo:
    """True hides the horizon from agents; the episode still ends at the horizon."""
    return replace(info, horizon=None) if validation.flag("unknown_horizon", value) else info


def known(info: ProblemInfo, value: Any) -> ProblemInfo:
    """Prior information on theta given to agents: a `dpb_gym.Prior` or its `to_dict`.

    The privacy cost of a prior from a private release is charged to the ledger of every agent.
    """
    return replace(info, prior=Prior.read(value).fitting(info.dim))
