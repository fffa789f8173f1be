"""Best actions by exhaustive search, where no closed form exists."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from itertools import combinations
from math import comb

import numpy as np

from dpb_gym.errors import ParameterError
from dpb_gym.problems.base import Array, Hidden, Problem, ProblemInfo, Round

MAX_SLATES = 20_000
GRID = 257
SECTIONS = 3  # local maxima of the grid that are refined
GOLDEN = 0.5 * (np.sqrt(5.0) - 1.0)


def best_action(problem: Problem, worlds: Sequence[Hidden], round_: Round) -> tuple[Array, Array]:
    """Return an action of largest mean expected reward over the worlds, and that reward ``(B,)``.

    All candidates and slates are evaluated by ``problem.respond``, without unavailable ones.
    Prices are searched on a grid of 257, whose three largest local maxima are refined by
    golden-section search.
    """
    return SEARCHES[problem.kind](problem, worlds, round_)


def check_searchable(what: str, info: ProblemInfo) -> None:
    """Raise `ParameterError` for problems whose best actions cannot be searched."""
    if info.kind not in SEARCHES:
        raise ParameterError(f"{what}: best actions of {info.kind} problems cannot be searched")
    count = count_slates(info) if info.kind == "assortment" else 0
    if count > MAX_SLATES:
        raise ParameterError(
            f"{what}: the best of {count} slates is found by trying them all, at most {MAX_SLATES} "
            "are allowed: use fewer items or a smaller capacity"
        )


def expected(problem: Problem, worlds: Sequence[Hidden], round_: Round, action: Array) -> Array:
    """Return the mean expected reward of actions over equally likely worlds, ``(B,)``."""
    total: Array = sum(problem.respond(world, round_, action)[1] for world in worlds)  # type: ignore[assignment]
    return total / len(worlds)


def _rows(value: Array, lanes: Array) -> Array:
    """Return the rows of the given lanes; a view if all are the same lane."""
    if lanes.strides[0] == 0:
        return np.broadcast_to(value[lanes[0]], (len(lanes), *value.shape[1:]))
    return value[lanes]


def _at(
    problem: Problem, worlds: Sequence[Hidden], round_: Round, lanes: Array
) -> Callable[[Array], Array]:
    """Return a function for the expected rewards of actions ``(R, ...)``, row r in lanes[r]."""
    known = [{k: _rows(v, lanes) for k, v in world.items()} for world in worlds]
    return functools.partial(expected, problem, known, round_.each(lambda v: _rows(v, lanes)))


def _candidates(problem: Problem, worlds: Sequence[Hidden], round_: Round) -> tuple[Array, Array]:
    B, m = round_.context.features.shape[:2]
    values = np.empty((B, m))
    for k in range(m):
        values[:, k] = expected(problem, worlds, round_, np.full(B, k))
    if round_.context.available is not None:
        values[~round_.context.available] = -np.inf
    best = values.argmax(axis=1)
    return best, values[np.arange(B), best]


@functools.lru_cache(maxsize=8)
def slates(n_items: int, capacity: int, least: int) -> Array:
    """Return all slates of at least `least` items, by size, then lexicographically; -1 padded."""
    sizes = range(least, capacity + 1)
    rows = [(*c, *[-1] * (capacity - k)) for k in sizes for c in combinations(range(n_items), k)]
    return np.array(rows, np.int64)


def count_slates(info: ProblemInfo) -> int:
    """Return the number of slates of one item or more, or of exactly K."""
    assert info.n_items is not None and info.capacity is not None
    first = info.capacity if info.exactly else 1
    return sum(comb(info.n_items, k) for k in range(first, info.capacity + 1))


def _slates(problem: Problem, worlds: Sequence[Hidden], round_: Round) -> tuple[Array, Array]:
    info = problem.info
    assert info.n_items is not None and info.capacity is not None
    every = slates(info.n_items, info.capacity, info.capacity if info.exactly else 0)
    B, available = len(round_.uniform), round_.context.available
    best, values = np.empty((B, info.capacity), np.int64), np.empty(B)
    for b in range(B):
        tried = every
        if available is not None:
            tried = every[(available[b][every] | (every < 0)).all(axis=1)]
        lanes = np.broadcast_to(np.int64(b), len(tried))
        found = _at(problem, worlds, round_, lanes)(tried)
        best[b], values[b] = tried[found.argmax()], found.max()
    return best, values


def _prices(problem: Problem, worlds: Sequence[Hidden], round_: Round) -> tuple[Array, Array]:
    B = len(round_.uniform)
    grid = np.linspace(0.0, 1.0, GRID)
    lanes = np.repeat(np.arange(B), GRID)
    values = _at(problem, worlds, round_, lanes)(np.tile(grid, B)).reshape(B, GRID)
    wall = np.full((B, 1), -np.inf)
    around = np.hstack([wall, values, wall])
    peak: Array = (values >= around[:, :-2]) & (values >= around[:, 2:])
    # best peaks first; other entries are valid prices, too
    order = np.argsort(-np.where(peak, values, -np.inf), axis=1, kind="stable")
    top = grid[order[:, :SECTIONS]].ravel()
    value = _at(problem, worlds, round_, np.repeat(np.arange(B), SECTIONS))
    low = np.maximum(top - 1.0 / (GRID - 1), 0.0)
    high = np.minimum(top + 1.0 / (GRID - 1), 1.0)
    for _ in range(40):
        left, right = high - GOLDEN * (high - low), low + GOLDEN * (high - low)
        better = value(left) >= value(right)
        low, high = np.where(better, low, left), np.where(better, right, high)
    prices = np.stack([0.5 * (low + high), top], axis=1)  # ends of [0, 1] are on the grid
    found = np.stack([value(prices[:, 0]), value(prices[:, 1])], axis=1)
    best = found.reshape(B, -1).argmax(axis=1)
    return prices.reshape(B, -1)[np.arange(B), best], found.reshape(B, -1)[np.arange(B), best]


SEARCHES = {"recommendation": _candidates, "assortment": _slates, "pricing": _prices}
