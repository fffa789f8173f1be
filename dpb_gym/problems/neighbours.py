"""Neighbouring worlds that differ in one customer, and what an audit needs to know of a kind."""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, ClassVar, TypeVar

import numpy as np

from dpb_gym.problems.rounds import Array, Context, Feedback, ProblemInfo

AnyProblem = TypeVar("AnyProblem")


@dataclass(frozen=True)
class World:
    """The target customer in one world: features and response.

    Attributes:
        features: Features of the shape of one replicate's ``context.features``; None keeps those
            of the environment (public contexts).
        response: Recommendation: the reward. Pricing: the demand. Kinds with a choice of items: 1
            to buy, 0 not. Other kinds: see their `AuditForm`.
        taste: Choice of items: the bought item has the largest <x, taste> among the offered ones;
            None for the first one.
        logged: Recommendation: the only candidate with a known reward, as in a rejection replay;
            None if all rewards are known.
    """

    features: Array | None
    response: float
    taste: Array | None = None
    logged: int | None = None


@dataclass(frozen=True)
class Pair:
    """Two neighbouring worlds.

    Attributes:
        name: Description of the pair.
        first: The target in the first world.
        second: The target in the second world.
        others: Customers of the other rounds, in turn; empty for those of the environment, with
            fixed potential outcomes.
    """

    name: str
    first: World
    second: World
    others: tuple[World, ...] = ()

    def at(self, t: int, target: bool) -> tuple[World, World] | None:
        """Return the customers of round t in both worlds, or None for the environment's own."""
        if target:
            return self.first, self.second
        return (self.others[t % len(self.others)],) * 2 if self.others else None

    def of(self, problem: AnyProblem) -> AnyProblem:
        """Return the problem, with partial feedback if the target's reward may be unknown."""
        if self.first.logged is self.second.logged is None:
            return problem
        changed: Any = copy.copy(problem)
        changed.info = replace(changed.info, partial_feedback=True)
        return changed  # type: ignore[no-any-return]


class AuditForm(ABC):
    """Adversarial customers of a kind, and their responses, for audits of agents.

    Attributes:
        small: Environment id and parameters of a problem at which a few hundred rounds exercise
            all of an agent's code.
    """

    small: ClassVar[tuple[str, Mapping[str, Any]]]

    @abstractmethod
    def pairs(self, info: ProblemInfo) -> list[Pair]:
        """Return pairs of customers whose contexts and responses differ."""

    @abstractmethod
    def answer(self, world: World, info: ProblemInfo, context: Context, action: Array) -> Feedback:
        """Return the target's response to every replicate's action ``(B, ...)``."""

    def partial_pairs(self, info: ProblemInfo) -> list[Pair]:
        """Return further pairs for agents that may play rounds without feedback."""
        return []

    def response_pairs(self, info: ProblemInfo) -> list[Pair]:
        """Return pairs of customers with one public context and two responses."""
        return extreme_pairs(self.response_range(info))

    def response_range(self, info: ProblemInfo) -> tuple[float, float]:
        """Return the extreme responses; by default rewards."""
        return reward_range(info)

    def numbers(self, context: Context, action: Array) -> Array:
        """Return the actions of one round as numbers ``(B, q)``, which an attacker observes."""
        return np.array(action, dtype=np.float64).reshape(len(action), -1)


def reward_range(info: ProblemInfo) -> tuple[float, float]:
    """Return the extreme rewards; ten standard deviations where they are unbounded."""
    low, high = info.reward_range
    return (low, high) if np.isfinite([low, high]).all() else (-10.0, 10.0)


def extreme_pairs(responses: tuple[float, float], features: Array | None = None) -> list[Pair]:
    """Return pairs with the lowest and the highest response, alone and among low ones.

    With sampling, the records of all other users are then zero.

    Args:
        responses: The lowest and the highest response.
        features: Features of the target; None for those of the environment.
    """
    low, high = responses
    name = f"response {low:g} or {high:g}"
    worlds = World(features, low), World(features, high)
    quiet = World(None, low)
    return [Pair(name, *worlds), Pair(f"{name}, all others {low:g}", *worlds, (quiet,))]


def unit_vector(dim: int, degrees: float = 0.0) -> Array:
    """Return the unit vector at an angle from e1 in the plane of the first two axes."""
    vector = np.zeros(dim)
    vector[0] = np.cos(np.radians(degrees))
    if dim > 1:
        vector[1] = np.sin(np.radians(degrees))
    elif degrees > 90:
        vector[0] = -1.0
    return vector


def bought(context: Context, slates: Array, choice: Array) -> Feedback:
    """Return the feedback of customers who chose these slate positions, -1 for nothing."""
    assert context.revenues is not None
    lanes = np.arange(len(slates))
    item = slates[lanes, np.maximum(choice, 0)]
    revenue = context.revenues[lanes, np.maximum(item, 0)].astype(np.float64)
    return Feedback(np.where(choice >= 0, revenue, 0.0), choice=choice)
