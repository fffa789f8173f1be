"""Real-world conditions that can be added to any problem; see docs/conditions.md."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from numpy.random import Generator

from dpb_gym.errors import ParameterError
from dpb_gym.problems import exhaustive_search
from dpb_gym.problems.base import Field, Instance, Problem
from dpb_gym.problems.conditions import protocol, response_model
from dpb_gym.problems.conditions.condition import Condition
from dpb_gym.problems.limited_stock import StockInstance
from dpb_gym.problems.rounds import Array, Feedback, Hidden, ProblemInfo, Round
from dpb_gym.streams import Stream, generator

_ORDER = (
    *(response_model.Features, response_model.Intercept, response_model.Drift),
    *(response_model.Types, response_model.Contamination),
    *(protocol.Availability, protocol.Stock, protocol.Returning),
)
ROUND_CONDITIONS: dict[str, type[Condition]] = {condition.name: condition for condition in _ORDER}
"""Conditions that change rounds, in the order in which they are applied."""
INFO_CONDITIONS: dict[str, Callable[[ProblemInfo, Any], ProblemInfo]] = {
    "delay": protocol.delayed,
    "unknown_horizon": protocol.unknown_horizon,
    "prior": protocol.known,
}
"""Conditions that change only the `ProblemInfo`, so that they apply to any problem."""
CONDITIONS: dict[str, Callable[..., Any]] = {**ROUND_CONDITIONS, **INFO_CONDITIONS}
"""Every condition by its keyword argument."""


def applicable(kind: str) -> dict[str, None]:
    """Return the keyword arguments of all conditions applicable to a kind, each None (off)."""
    return dict.fromkeys(
        name
        for name in CONDITIONS
        if name in INFO_CONDITIONS or not ROUND_CONDITIONS[name].refused(kind)
    )


def with_conditions(problem: Problem, given: Mapping[str, Any]) -> Problem:
    """Return the problem with the given conditions, or `problem` itself if all are None.

    Raises:
        ParameterError: If a value is not allowed or makes no sense for the problem.
    """
    active = {name: value for name, value in given.items() if value is not None}
    of_rounds = {name: value for name, value in active.items() if name in ROUND_CONDITIONS}
    for name in of_rounds:
        for other, reason in ROUND_CONDITIONS[name].excludes.items():
            if other in active:
                raise ParameterError(f"{name} makes no sense with {other}: {reason}")
    # a shallow copy shares the data
    made = Conditioned(problem, of_rounds) if of_rounds else copy.copy(problem)
    for name in active.keys() - of_rounds.keys():
        made.info = INFO_CONDITIONS[name](made.info, active[name])
    return made if active else problem


class Conditioned(Problem):
    """A problem with conditions.

    Args:
        inner: The problem. It must implement the hooks of `Problem`.
        given: Values of the conditions by name, none of them None.

    Attributes:
        inner: The problem without conditions.
        conditions: The conditions, in the order in which they are applied.

    Raises:
        ParameterError: If a value is not allowed or makes no sense for the problem.
    """

    def __init__(self, inner: Problem, given: Mapping[str, Any]) -> None:
        if type(inner).instance is not Problem.instance:
            raise ParameterError(
                f"{', '.join(given)}: the rounds of {inner!r} are made elsewhere, conditions "
                "cannot be applied to them"
            )
        self.inner, self.horizon, self.dim = inner, inner.horizon, inner.dim
        self.feature_bound, self.info = inner.feature_bound, inner.info
        self.conditions: list[Condition] = []
        for name, condition in ROUND_CONDITIONS.items():
            if name in given:
                if reason := condition.refused(inner.kind):
                    raise ParameterError(f"{name} makes no sense for {inner.kind}: {reason}")
                self.conditions.append(condition(inner, given[name]))
                self.info = self.conditions[-1].info(self.info)
        self.feature_bound *= max((c.stretch for c in self.conditions), default=1.0)
        self._checking, self._changing_truth, self._changing_customer, self._scaling = (
            [c for c in self.conditions if getattr(type(c), of) is not getattr(Condition, of)]
            for of in ("check", "truth", "customer", "reward_factor")
        )
        if self._scaling and self.info.stock is not None:
            names = ", ".join(condition.name for condition in self._scaling)
            raise ParameterError(f"{names} makes no sense with stock: it changes a unit's value")
        self.draw_hidden(generator(0, Stream.HIDDEN))  # raises if a condition does not fit

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
        for condition in self._changing_truth:
            hidden = condition.truth(hidden, round_)
        return hidden

    def _worlds(self, truth: Hidden) -> list[Hidden]:
        worlds = [world for condition in self.conditions for world in condition.worlds(truth)]
        return worlds or [truth]

    def _scaled(self, round_: Round, rewards: Array) -> Array:
        for condition in self._scaling:
            rewards = rewards * condition.reward_factor(round_)
        return rewards

    def respond(self, hidden: Hidden, round_: Round, action: Array) -> tuple[Feedback, Array]:
        for condition in self._checking:
            condition.check(round_, action)
        round_ = _with_true_features(round_) if round_.secret else round_
        customer = truth = self._truth(hidden, round_) if self._changing_truth else hidden
        for condition in self._changing_customer:
            customer = condition.customer(customer, round_)
        feedback, expected = self.inner.respond(customer, round_, action)
        if customer is not truth:
            expected = exhaustive_search.expected(self.inner, self._worlds(truth), round_, action)
        if self._scaling:
            feedback = feedback._replace(reward=self._scaled(round_, feedback.reward))
        return feedback, self._scaled(round_, expected)

    def best_action(self, hidden: Hidden, round_: Round) -> tuple[Array, Array]:
        round_ = _with_true_features(round_)
        worlds = self._worlds(self._truth(hidden, round_))
        if len(worlds) > 1 or not (
            self.inner.respects_availability or round_.context.available is None
        ):
            action, value = exhaustive_search.best_action(self.inner, worlds, round_)
        else:
            action, value = self.inner.best_action(worlds[0], round_)
        return action, self._scaled(round_, value)

    def summary(self) -> dict[str, Any]:
        return self.inner.summary()


def _with_true_features(round_: Round) -> Round:
    """Return the round with the features that determine the customer's response."""
    features = round_.secret.get("features")
    return round_ if features is None else round_.showing(features=features)
