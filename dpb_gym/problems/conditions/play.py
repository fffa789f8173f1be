"""Conditions of play: when responses arrive, and what agents know before it begins."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from dpb_gym import validation
from dpb_gym.problems.base import Problem, ProblemInfo
from dpb_gym.problems.conditions.base import Condition
from dpb_gym.problems.delay import Delay
from dpb_gym.problems.prior import Prior


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
