"""Best actions by exhaustive search, where no closed form exists."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from itertools import combinations
from math import comb

import numpy as np

from dpb_gym.problems.base import Array, Hidden, Problem, ProblemInfo, Round
from dpb_gym.problems.kinds import kind_of

MAX_SLATES = 20_000


def best_action(problem: Problem, worlds: Sequence[Hidden], round_: Round) -> tuple[Array, Array]:
    """Return an action of largest mean expected reward over the worlds, and that reward ``(B,)``.

    All candidates and slates are evaluated by ``problem.respond``, without unavailable ones.
    Prices are searched on a grid of 257, whose three largest local maxima are refined by
    golden-section search.
    """
    return kind_of(problem.kind).search(problem, worlds, round_)


def check_searchable(what: str, info: ProblemInfo) -> None:
    """Raise `ParameterError` for problems whose best actions cannot be searched."""
    kind_of(info.kind).check_searchable(what, info)


def expected(problem: Problem, worlds: Sequence[Hidden], round_: Round, action: Array) -> Array:
    """Return the mean expected reward of actions over equally likely worlds, ``(B,)``."""
    total: Array = sum(problem.respond(world, round_, action)[1] for world in worlds)  # type: ignore[assignment]
    return total / len(worlds)


def _rows(value: Array, lanes: Array) -> Array:
    """Return the rows of the given lanes; a view if all are the same lane."""
    if lanes.strides[0] == 0:
        return np.broadcast_to(value[lanes[0]], (len(lanes), *value.shape[1:]))
    return value[lanes]


def expected_at(
    problem: Problem, worlds: Sequence[Hidden], round_: Round, lanes: Array
) -> Callable[[Array], Array]:
    """Return a function for the expected rewards of actions ``(R, ...)``, row r in lanes[r]."""
    known = [{k: _rows(v, lanes) for k, v in world.items()} for world in worlds]
    return functools.partial(expected, problem, known, round_.each(lambda v: _rows(v, lanes)))


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
