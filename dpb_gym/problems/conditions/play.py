"""Conditions of play: what runs out, when responses arrive, what agents know before it begins."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, ClassVar

from dpb_gym import validation
from dpb_gym.errors import ParameterError
from dpb_gym.problems.base import Problem, ProblemInfo
from dpb_gym.problems.conditions.base import Condition
from dpb_gym.problems.delay import Delay
from dpb_gym.problems.prior import Prior


class Stock(Condition):
    """Units that can be sold over the season: a number (of every item), or one for each item.

    What is sold out cannot be offered; once nothing is on sale any action sells nothing. Regret
    is what is lost of the season's optimum, see `dpb_gym.problems.season`.
    """

    name = "stock"
    excludes: ClassVar[dict[str, str]] = {
        "delay": "what is sold out would tell of responses before they arrive",
        "contamination": "tossed coins would use up stock that the optimum keeps",
    }

    @classmethod
    def refused(cls, kind: str) -> str:
        if kind == "recommendation":
            return "a recommendation uses nothing up"
        return "" if kind in ("assortment", "pricing") else "it sells no items"

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
            raise ParameterError(f"stock must be a number or {count} numbers, got {len(units)}")
        self._stock = tuple(validation.integer("stock", unit, 0) for unit in units)
        if not any(self._stock):
            raise ParameterError("stock must leave something to sell, got 0 of everything")

    def info(self, info: ProblemInfo) -> ProblemInfo:
        return replace(info, stock=self._stock, masked=info.n_items is not None or None)


class Delayed(Condition):
    """Rounds after its own in which a response arrives: a number, ``"geometric=50"`` or
    ``"pareto=10,cap=1000"``, with ``,lost=0.1`` and ``,window=200``; see `Delay`.

    The rounds stay as they are: harness and environments keep back what is not due.
    """

    name = "delay"
    told_only = True

    def __init__(self, problem: Problem, value: Any) -> None:
        self._delay = Delay.parse(value)

    def info(self, info: ProblemInfo) -> ProblemInfo:
        return replace(info, delay=str(self._delay))


class UnknownHorizon(Condition):
    """True: agents are not told the horizon, at which the episode ends all the same."""

    name = "unknown_horizon"
    told_only = True

    def __init__(self, problem: Problem, value: Any) -> None:
        self._hidden = validation.flag("unknown_horizon", value)

    def info(self, info: ProblemInfo) -> ProblemInfo:
        return replace(info, horizon=None) if self._hidden else info


class Known(Condition):
    """What agents are told of theta: a `dpb_gym.Prior` or its `to_dict`.

    One from a private release carries its cost, which comes on the ledger of every agent.
    """

    name = "prior"
    told_only = True

    def __init__(self, problem: Problem, value: Any) -> None:
        self._prior = Prior.read(value)

    def info(self, info: ProblemInfo) -> ProblemInfo:
        return replace(info, prior=self._prior.fitting(info.dim))
