"""Conditions of the real world, laid on top of any problem; see docs/conditions.md."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from numpy.random import Generator

from dpb_gym.errors import ParameterError
from dpb_gym.problems import exhaustive_search
from dpb_gym.problems.assortment import AssortmentProblem
from dpb_gym.problems.base import Field, Instance, Problem
from dpb_gym.problems.conditions.base import Condition
from dpb_gym.problems.conditions.protocol import (
    Availability,
    Stock,
    delayed,
    known,
    unknown_horizon,
)
from dpb_gym.problems.conditions.response_model import (
    Contamination,
    Drift,
    Features,
    Intercept,
    Types,
)
from dpb_gym.problems.limited_stock import StockInstance
from dpb_gym.problems.rounds import Array, Feedback, Hidden, ProblemInfo, Round
from dpb_gym.streams import Stream, generator

_ORDER = (Features, Intercept, Drift, Types, Contamination, Availability, Stock)
LAID: dict[str, type[Condition]] = {condition.name: condition for condition in _ORDER}
"""Conditions that change rounds, in the order in which they are laid on."""
TOLD: dict[str, Callable[[ProblemInfo, Any], ProblemInfo]] = {
    "delay": delayed,
    "unknown_horizon": unknown_horizon,
    "prior": known,
}
"""Those that change only what is told, so that any problem can have them."""
CONDITIONS: dict[str, Callable[..., Any]] = {**LAID, **TOLD}
"""Every condition by its keyword argument."""


def applicable(kind: str) -> dict[str, None]:
    """Keyword arguments of the conditions that problems of the kind can have, all off."""
    return dict.fromkeys(n for n in CONDITIONS if n in TOLD or not LAID[n].refused(kind))


def with_conditions(problem: Problem, given: Mapping[str, Any]) -> Problem:
    """The problem under the given conditions, itself if all are None.

    Raises:
        ParameterError: If a value is not allowed or makes no sense for the problem.
    """
    wanted = {name: value for name, value in given.items() if value is not None}
    laid = {name: value for name, value in wanted.items() if name in LAID}
    for name in laid:
        for other, reason in LAID[name].excludes.items():
            if other in wanted:
                raise ParameterError(f"{name} makes no sense with {other}: {reason}")
    made = Conditioned(problem, laid) if laid else copy.copy(problem)  # data are shared
    for name in wanted.keys() - laid.keys():
        made.info = TOLD[name](made.info, wanted[name])
    return made if wanted else problem


class Conditioned(Problem):
    """A problem under conditions.

    Args:
        inner: The problem. It must make its rounds by the hooks of `Problem`.
        given: Values of the conditions by name, none of them None.

    Attributes:
        inner: The problem without conditions.
        conditions: What is laid on it.

    Raises:
        ParameterError: If a value is not allowed or makes no sense for the problem.
    """

    def __init__(self, inner: Problem, given: Mapping[str, Any]) -> None:
        if type(inner).instance is not Problem.instance:
            raise ParameterError(
                f"{', '.join(given)}: the rounds of {inner!r} are made elsewhere, conditions "
                "cannot be laid on them"
            )
        self.inner, self.horizon, self.dim = inner, inner.horizon, inner.dim
        self.feature_bound, self.info = inner.feature_bound, inner.info
        self.conditions: list[Condition] = []
        for name, condition in LAID.items():
            if name in given:
                if reason := condition.refused(inner.kind):
                    raise ParameterError(f"{name} makes no sense for {inner.kind}: {reason}")
                self.conditions.append(condition(inner, given[name]))
                self.info = self.conditions[-1].info(self.info)
        self.feature_bound *= max((c.stretch for c in self.conditions), default=1.0)
        self._knows_masks = isinstance(inner, AssortmentProblem)  # by `Context.offered_revenues`
        self._checking, self._moving, self._answering = (
            [c for c in self.conditions if getattr(type(c), of) is not getattr(Condition, of)]
            for of in ("check", "truth", "customer")
        )
        self.draw_hidden(generator(0, Stream.HIDDEN))  # a rehearsal: tells what does not fit

    def instance(self, seeds: Sequence[int], episodes: Sequence[int] | None = None) -> Instance:
        customers = super().instance(seeds, episodes)
        return customers if self.info.stock is None else StockInstance(customers)

    def draw_hidden(self, rng: Generator) -> Hidden:
        hidden = self.inner.draw_hidden(rng)
        for condition in self.conditions:
            hidden = {**hidden, **condition.hidden(rng, hidden)}
        return hidden

    def fields(self) -> dict[str, Field]:
        fields = self.inner.fields()
        for condition in self.conditions:
            fields |= condition.fields()
        return fields

    def make_round(self, hidden: Hidden, drawn: Mapping[str, Array], t: Array) -> Round:
        made = self.inner.make_round(hidden, drawn, t)
        for condition in self.conditions:
            made = condition.round(made, hidden, drawn, t)
        return made

    def _truth(self, hidden: Hidden, round_: Round) -> Hidden:
        for condition in self._moving:
            hidden = condition.truth(hidden, round_)
        return hidden

    def _worlds(self, truth: Hidden) -> list[Hidden]:
        found = [world for condition in self.conditions for world in condition.worlds(truth)]
        return found or [truth]

    def respond(self, hidden: Hidden, round_: Round, action: Array) -> tuple[Feedback, Array]:
        for condition in self._checking:
            condition.check(round_, action)
        round_ = _real(round_) if round_.secret else round_
        customer = truth = self._truth(hidden, round_) if self._moving else hidden
        for condition in self._answering:
            customer = condition.customer(customer, round_)
        feedback, expected = self.inner.respond(customer, round_, action)
        if customer is not truth:
            expected = exhaustive_search.expected(self.inner, self._worlds(truth), round_, action)
        return feedback, expected

    def best_action(self, hidden: Hidden, round_: Round) -> tuple[Array, Array]:
        round_ = _real(round_)
        worlds = self._worlds(self._truth(hidden, round_))
        if len(worlds) > 1 or not (self._knows_masks or round_.context.available is None):
            return exhaustive_search.best_action(self.inner, worlds, round_)
        return self.inner.best_action(worlds[0], round_)

    def summary(self) -> dict[str, Any]:
        return self.inner.summary()


def _real(round_: Round) -> Round:
    """The round with the features to which the customer answers."""
    features = round_.secret.get("features")
    return round_ if features is None else round_.showing(features=features)
