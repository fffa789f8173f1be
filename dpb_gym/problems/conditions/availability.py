"""Items and candidates that are not always on offer."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from dpb_gym import validation
from dpb_gym.errors import ParameterError
from dpb_gym.problems.base import Array, Field, Hidden, Problem, ProblemInfo, Round
from dpb_gym.problems.conditions.base import Condition
from dpb_gym.problems.kinds import kind_of
from dpb_gym.problems.oblivious import fixed_rows
from dpb_gym.problems.offers import check_offered
from dpb_gym.streams import Stream


class Availability(Condition):
    """Which items (assortment) or candidates (recommendation) can be offered in a round.

    A number is the probability of each, independently; whoever is left without enough of them
    (one, or K where slates hold exactly K) gets those that came closest. An array ``(n, N)`` of
    0 and 1 with n >= T, or the path of one saved by `numpy.save`, is followed row by row.
    """

    name = "available"

    @classmethod
    def refused(cls, kind: str) -> str:
        if kind in ("assortment", "recommendation"):
            return ""
        return "a price can always be asked" if kind == "pricing" else "it has no list of items"

    def __init__(self, problem: Problem, value: Any) -> None:
        info = problem.info
        self._count = kind_of(info.kind).feature_shape(info)[0]
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
            luck = drawn["available"]
            enough = np.partition(luck, self._least - 1, axis=1)[:, self._least - 1, None]
            mask = (luck < self._chance) | (luck <= enough)
        return round_._replace(context=round_.context._replace(available=mask))

    def check(self, round_: Round, action: Array) -> None:
        check_offered(round_.context, action)
