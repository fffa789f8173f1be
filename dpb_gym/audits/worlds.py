"""Neighbouring worlds that differ in one customer, or in all rounds of one user."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from dpb_gym.errors import ParameterError
from dpb_gym.problems.base import Array, Context, Feedback, Problem, ProblemInfo


@dataclass(frozen=True)
class World:
    """The target customer in one world: features and response.

    Attributes:
        features: Features of the shape of one replicate's ``context.features``; None keeps those
            of the environment (public contexts).
        response: Recommendation: the reward. Pricing: the demand. Assortment: 1 to buy, 0 not.
        taste: Assortment: the bought item has the largest <x, taste> among the offered ones; None
            for the first one.
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

    def of(self, problem: Problem) -> Problem:
        """Return the problem, with partial feedback if the target's reward may be unknown."""
        if self.first.logged is self.second.logged is None:
            return problem
        changed = copy.copy(problem)
        changed.info = replace(problem.info, partial_feedback=True)
        return changed


def pairs_for(problem: ProblemInfo, unit: str, partial: bool = False) -> list[Pair]:
    """Return adversarial pairs of customers; an audit uses the one with the largest effect.

    Args:
        problem: Description of the problem.
        unit: Unit of the claim.
        partial: Whether a round may have no feedback.
    """
    makers = {"assortment": _assortment, "pricing": _pricing, "recommendation": _recommendation}
    if problem.kind not in makers:
        raise ParameterError(f"audits know worlds of {', '.join(makers)}, not of {problem.kind}")
    if unit in ("reward", "user-rewards"):
        low, high = response_range(problem)
        features = None
        if problem.kind == "recommendation":
            # contexts are public: every candidate has features e1
            m = problem.n_candidates or 1
            features = np.tile(_unit(problem.dim), (m, 1)).astype(np.float32)
        name, pair = f"response {low:g} or {high:g}", (World(features, low), World(features, high))
        quiet = World(None, low)
        # with sampling, records of all other users are zero
        pairs = [Pair(name, *pair), Pair(f"{name}, all others {low:g}", *pair, (quiet,))]
        if problem.kind == "recommendation":
            across = np.tile(_unit(problem.dim, 90.0), (problem.n_candidates or 1, 1))
            others = (World(across.astype(np.float32), low),)
            pairs.append(Pair(f"{name}, all others at right angles", *pair, others))
        if problem.kind == "pricing":
            pairs.append(_without_features(problem))
        if problem.kind == "assortment":
            pairs += [_opposite_items(problem, (1, -1)), _short_items(problem)]
        return pairs
    pairs = makers[problem.kind](problem)
    if partial and problem.kind == "recommendation":
        seen, last = pairs[0].first, (problem.n_candidates or 1) - 1
        name = "reward known of the first or of the last candidate"
        pairs.append(Pair(name, replace(seen, logged=0), replace(seen, logged=last)))
    return pairs


def response_range(problem: ProblemInfo) -> tuple[float, float]:
    """Return the extreme responses of a problem; ten standard deviations if unbounded."""
    if problem.kind == "assortment" or problem.demand == "logistic":
        return 0.0, 1.0
    low, high = problem.reward_range
    return (low, high) if np.isfinite([low, high]).all() else (-10.0, 10.0)


def _unit(dim: int, degrees: float = 0.0) -> Array:
    """Return the unit vector at an angle from e1 in the plane of the first two axes."""
    vector = np.zeros(dim)
    vector[0] = np.cos(np.radians(degrees))
    if dim > 1:
        vector[1] = np.sin(np.radians(degrees))
    elif degrees > 90:
        vector[0] = -1.0
    return vector


def _recommendation(problem: ProblemInfo) -> list[Pair]:
    low, high = response_range(problem)
    m, d = problem.n_candidates or 1, problem.dim

    def world(degrees: float, reward: float) -> World:
        return World(np.tile(_unit(d, degrees), (m, 1)).astype(np.float32), reward)

    one = world(0.0, high)
    return [
        Pair(f"features {angle} degrees apart, rewards {high:g} and {other:g}", one, w)
        for angle in (90, 105, 120, 180)
        for other in (high, low)
        for w in [world(angle, other)]
    ]


def _assortment(problem: ProblemInfo) -> list[Pair]:
    n, d = problem.n_items or 1, problem.dim
    signs = np.where(np.arange(n) % 2, -1.0, 1.0)[:, None]

    def same(degrees: float, buys: float) -> World:
        return World(np.tile(_unit(d, degrees), (n, 1)).astype(np.float32), buys)

    def mixed(degrees: float, buys: float) -> World:
        v = _unit(d, degrees)
        return World((signs * v).astype(np.float32), 1.0, taste=buys * v)

    driven = (mixed(0, 1), mixed(150, 1))
    pairs = [
        Pair("all items e1 or all items e2, both buy", same(0, 1), same(90, 1)),
        Pair("all items e1 or all items e2, neither buys", same(0, 0), same(90, 0)),
        Pair("all items e1 or all items -e1, both buy", same(0, 1), same(180, 1)),
        Pair("all items e1, buys or not", same(0, 1), same(0, 0)),
        Pair("items x and -x at 150 degrees, buys -x as nobody else", mixed(0, -1), mixed(150, -1)),
    ]
    return [*pairs, replace(pairs[-1], others=driven), _short_items(problem)]


def _opposite_items(problem: ProblemInfo, pattern: Sequence[int], norm: float = 1.0) -> Pair:
    """Return a pair that buys x or -x; item i has the features ``pattern[i % len(pattern)] x``."""
    x = norm * _unit(problem.dim)
    items = (np.resize(pattern, problem.n_items or 1)[:, None] * x).astype(np.float32)
    name = "items x and -x" if norm == 1.0 else f"items x, -x and 0, norm {norm:g}"
    return Pair(f"{name}, buys x or -x", World(items, 1.0, x), World(items, 1.0, -x))


def _short_items(problem: ProblemInfo) -> Pair:
    """Return a pair in which a record has nearly no curvature, so that the response has all."""
    return _opposite_items(problem, (1, -1, 0, 0), 0.3)


def _without_features(problem: ProblemInfo) -> Pair:
    """Return a pair in which a record has nearly no curvature if the dimension is large."""
    low, high = response_range(problem)
    zeros = np.zeros(problem.dim - 1, np.float32)
    return Pair(f"features 0, response {low:g} or {high:g}", World(zeros, low), World(zeros, high))


def _pricing(problem: ProblemInfo) -> list[Pair]:
    low, high = response_range(problem)
    corner = np.ones(problem.dim - 1, np.float32)
    turned = corner * np.where(np.arange(problem.dim - 1) % 2, -1.0, 1.0).astype(np.float32)
    both = World(corner, high), World(-corner, high)
    neither = World(corner, low), World(-corner, low)
    pairs = [
        Pair("corner +1 or -1, both buy", *both),
        Pair("corner +1 or -1, neither buys", *neither),
        Pair("corner +1 buys, -1 does not", World(corner, high), World(-corner, low)),
        Pair("corner +1, buys or not", World(corner, high), World(corner, low)),
        Pair("corner +1 or -1 does not buy, all others do", *neither, both),
        _without_features(problem),
    ]
    if problem.dim > 2:
        pairs.append(Pair("orthogonal corners, buy", World(corner, high), World(turned, high)))
    return pairs


def answer(world: World, problem: ProblemInfo, context: Context, action: Array) -> Feedback:
    """Return the target's response to every replicate's action."""
    B = len(action)
    value = np.full(B, float(world.response))
    if problem.kind == "recommendation":
        if not problem.partial_feedback:
            return Feedback(value)
        seen = np.full(B, True) if world.logged is None else np.asarray(action) == world.logged
        return Feedback(np.where(seen, value, 0.0), observed=seen)
    if problem.kind == "pricing":
        return Feedback(action * value, demand=value)
    choice = np.full(B, -1)
    if world.response:
        taste = np.zeros(problem.dim) if world.taste is None else world.taste
        liking = (context.features * taste).sum(axis=2)
        here = np.where(action >= 0, liking[np.arange(B)[:, None], np.maximum(action, 0)], -np.inf)
        choice = np.where((action >= 0).any(axis=1), here.argmax(axis=1), -1)
    return bought(context, action, choice)


def bought(context: Context, slates: Array, choice: Array) -> Feedback:
    """Return the feedback of customers who chose these slate positions, -1 for nothing."""
    assert context.revenues is not None
    lanes = np.arange(len(slates))
    item = slates[lanes, np.maximum(choice, 0)]
    revenue = context.revenues[lanes, np.maximum(item, 0)].astype(np.float64)
    return Feedback(np.where(choice >= 0, revenue, 0.0), choice=choice)


def check_pair(pair: Pair, shape: tuple[int, ...]) -> None:
    """Raise `ParameterError` unless the worlds' features have the problem's shape."""
    for world in (pair.first, pair.second, *pair.others):
        if world.features is not None and np.shape(world.features) != shape:
            raise ParameterError(
                f"features of a world must have shape {shape}, got {np.shape(world.features)}"
            )
