"""Customers whom the agents' models do not foresee: several types, and coin tossers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from dpb_gym import portable, validation
from dpb_gym.problems import search
from dpb_gym.problems.base import Array, Field, Hidden, Problem, Round
from dpb_gym.problems.conditions.base import Condition, needs_theta
from dpb_gym.streams import Stream

MAX_TYPES = 100


class Types(Condition):
    """Each customer is of one of a few equally likely types, which nobody sees.

    Type c answers by theta + offset_c; the offsets are Gaussian of length about
    ``spread ||theta||``, with mean zero, fixed per replicate. Assortments become a mixed logit,
    demand and rewards mixtures that are no GLM. The expected reward is the mean over the types,
    the best action is searched (`dpb_gym.problems.search`).
    """

    name = "types"

    def __init__(self, problem: Problem, value: Any) -> None:
        known = {"count": 3, "spread": 1.0}
        given = {"count": value}
        if isinstance(value, str):
            given = validation.told("types", value)
            count = given.pop("kind")
            given["count"] = int(count) if count.isdecimal() else count
        elif isinstance(value, Mapping):
            given = dict(value)
        given = validation.settings("types", given, known)
        self._count = validation.integer("types: count", given["count"], 2, MAX_TYPES)
        self._spread = validation.real("types: spread", given["spread"], 0.0, 1e3, open_low=True)
        search.check_searchable("types", problem.info)

    def hidden(self, drawn: Any, hidden: Hidden) -> Hidden:
        theta = needs_theta("types", hidden)
        offsets = portable.normals(drawn, (self._count, len(theta)))
        offsets -= offsets.sum(axis=0) / self._count
        offsets *= self._spread * np.sqrt(np.sum(theta * theta) / len(theta))
        return {"types": offsets}

    def fields(self) -> dict[str, Field]:
        return {"type": Field((), np.float64, Stream.CUSTOMERS)}

    def round(self, round_: Round, hidden: Hidden, drawn: Mapping[str, Array], t: Array) -> Round:
        # a uniform is below 1 - 2^-53, but its product may round up
        kind = np.minimum((drawn["type"] * self._count).astype(np.int64), self._count - 1)
        return round_._replace(secret={**round_.secret, "type": kind})

    def worlds(self, hidden: Hidden) -> list[Hidden]:
        theta, types = hidden["theta"], hidden["types"]
        return [{**hidden, "theta": theta + types[:, c]} for c in range(self._count)]

    def customer(self, hidden: Hidden, round_: Round) -> Hidden:
        offset = hidden["types"][np.arange(len(hidden["types"])), round_.secret["type"]]
        return {**hidden, "theta": hidden["theta"] + offset}


class Contamination(Condition):
    """With this probability a customer answers as if theta were zero: by a coin.

    A binary reward or demand is then 1 with probability 1/2, every offered item and no purchase
    are equally likely. Regret is against the truth without contamination.
    """

    name = "contamination"

    def __init__(self, problem: Problem, value: Any) -> None:
        self._chance = validation.real("contamination", value, 0.0, 1.0, open_low=True)

    def hidden(self, drawn: Any, hidden: Hidden) -> Hidden:
        needs_theta("contamination", hidden)
        return {}

    def fields(self) -> dict[str, Field]:
        return {"contaminated": Field((), np.float64, Stream.CONTAMINATION)}

    def round(self, round_: Round, hidden: Hidden, drawn: Mapping[str, Array], t: Array) -> Round:
        tossed = drawn["contaminated"] < self._chance
        return round_._replace(secret={**round_.secret, "contaminated": tossed})

    def customer(self, hidden: Hidden, round_: Round) -> Hidden:
        kept = ~round_.secret["contaminated"][:, None]
        return {**hidden, "theta": hidden["theta"] * kept}
