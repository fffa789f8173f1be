"""Action modes: the Gymnasium space of each, and the way from its samples to a problem's
actions, for a whole batch at once."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from itertools import combinations
from math import comb
from typing import Any

import gymnasium
import numpy as np

from dpb_gym import kernels, validation
from dpb_gym.errors import ActionError, ParameterError
from dpb_gym.problems.assortment import AssortmentProblem
from dpb_gym.problems.base import Array, Problem, action_array

ASSORTMENT_MODES = ("slate", "scores", "mask", "index")
MAX_ASSORTMENTS = 100_000


class ActionMode(ABC):
    """One way of writing actions.

    Attributes:
        space: Gymnasium space of a single action.
        idle: A valid problem action, for replicates whose action is to be ignored.
    """

    space: gymnasium.Space[Any]
    idle: Array

    @abstractmethod
    def decode(self, actions: Any, replicates: int) -> Array:
        """Turns a batch of actions into the problem's; raises `ActionError`."""


class Slate(ActionMode):
    """K item indices; repeated items collapse, so that fewer than K may be offered."""

    def __init__(self, n_items: int, capacity: int) -> None:
        self.space = gymnasium.spaces.MultiDiscrete([n_items] * capacity)
        self.idle = np.zeros(capacity, np.int64)
        self._n_items = n_items

    def decode(self, actions: Any, replicates: int) -> Array:
        slates = action_array(actions, (replicates, len(self.idle)), True, "slate")
        bad = ((slates < 0) | (slates >= self._n_items)).any(axis=1)
        if bad.any():
            i = int(bad.argmax())
            raise ActionError(
                f"slate {slates[i].tolist()} holds an item outside 0..{self._n_items - 1}"
            )
        return slates


class Scores(ActionMode):
    """A score in [-1, 1] per item; the K largest are offered, lower index first on ties."""

    def __init__(self, n_items: int, capacity: int) -> None:
        self.space = gymnasium.spaces.Box(-1.0, 1.0, (n_items,), np.float32)
        self.idle = np.arange(capacity)
        self._n_items = n_items

    def decode(self, actions: Any, replicates: int) -> Array:
        scores = action_array(actions, (replicates, self._n_items), False, "scores")
        if np.isnan(scores).any():
            raise ActionError("scores must not be NaN")
        if not np.isfinite(scores).all():
            raise ActionError("scores must be finite")
        slates = np.empty((replicates, len(self.idle)), np.int64)
        scratch = np.empty(len(self.idle))
        for i in range(replicates):
            kernels.mnl.top_indices(scores[i], len(self.idle), -np.inf, slates[i], scratch)
        return slates


class Mask(ActionMode):
    """One bit per item; of more than K set bits the first K count."""

    def __init__(self, n_items: int, capacity: int) -> None:
        self.space = gymnasium.spaces.MultiBinary(n_items)
        self.idle = np.arange(capacity)
        self._n_items = n_items

    def decode(self, actions: Any, replicates: int) -> Array:
        mask = np.asarray(actions)
        if mask.shape != (replicates, self._n_items):
            raise ActionError(
                f"mask must have shape {(replicates, self._n_items)}, got {mask.shape}"
            )
        # Some learners give their bits as floats.
        if mask.dtype.kind not in "iubf" or not np.isin(mask, (0, 1)).all():
            raise ActionError("mask must hold 0 and 1 only")
        slates = np.full((replicates, len(self.idle)), -1, np.int64)
        for i in range(replicates):
            items = np.flatnonzero(mask[i])[: len(self.idle)]
            slates[i, : len(items)] = items
        return slates


class Index(ActionMode):
    """A number for each assortment of 1..K items, by size, then lexicographically."""

    def __init__(self, n_items: int, capacity: int) -> None:
        count = sum(comb(n_items, k) for k in range(1, capacity + 1))
        if count > MAX_ASSORTMENTS:
            raise ParameterError(
                f"action_mode='index' would need {count} assortments, at most {MAX_ASSORTMENTS} "
                "are allowed; use fewer items, a smaller capacity or another action_mode"
            )
        self.table = np.full((count, capacity), -1, np.int64)
        row = 0
        for size in range(1, capacity + 1):
            for items in combinations(range(n_items), size):
                self.table[row, :size] = items
                row += 1
        self.space = gymnasium.spaces.Discrete(count)
        self.idle = self.table[0]

    def decode(self, actions: Any, replicates: int) -> Array:
        return self.table[_indices(actions, replicates, len(self.table), "assortment index")]


class Price(ActionMode):
    """A price in [0, 1]."""

    def __init__(self) -> None:
        self.space = gymnasium.spaces.Box(0.0, 1.0, (1,), np.float32)
        self.idle = np.array(0.0)

    def decode(self, actions: Any, replicates: int) -> Array:
        prices = action_array(actions, (replicates, 1), False, "price")[:, 0]
        bad = ~((prices >= 0.0) & (prices <= 1.0))
        if bad.any():
            raise ActionError(f"price must be in [0, 1], got {prices[int(bad.argmax())]}")
        return np.ascontiguousarray(prices)


class PriceGrid(ActionMode):
    """One of `n_prices` prices 1/n, 2/n, ..., 1."""

    def __init__(self, n_prices: int) -> None:
        count = validation.integer("n_prices", n_prices, 2, 1_000_000)
        self.prices = np.arange(1, count + 1) / count
        self.space = gymnasium.spaces.Discrete(count)
        self.idle = np.array(0.0)

    def decode(self, actions: Any, replicates: int) -> Array:
        return self.prices[_indices(actions, replicates, len(self.prices), "price index")]


class Candidate(ActionMode):
    """The index of one of the candidates."""

    def __init__(self, n_candidates: int) -> None:
        self.space = gymnasium.spaces.Discrete(n_candidates)
        self.idle = np.array(0)
        self._count = n_candidates

    def decode(self, actions: Any, replicates: int) -> Array:
        return _indices(actions, replicates, self._count, "candidate index")


def _indices(actions: Any, replicates: int, count: int, what: str) -> Array:
    index = action_array(actions, (replicates,), True, what)
    bad = (index < 0) | (index >= count)
    if bad.any():
        raise ActionError(f"{what} must be in 0..{count - 1}, got {index[int(bad.argmax())]}")
    return index


def make_action_mode(
    problem: Problem, action_mode: str | None = None, n_prices: int | None = None
) -> ActionMode:
    """Makes the action mode of an environment.

    Args:
        problem: The problem acted on.
        action_mode: Assortment only: ``"slate"`` (default), ``"scores"``, ``"mask"`` or
            ``"index"``.
        n_prices: Pricing only: number of grid prices; a continuous price by default.

    Raises:
        ParameterError: If the mode does not apply or is unknown.
    """
    info = problem.info
    if action_mode is not None and info.kind != "assortment":
        raise ParameterError(f"action_mode applies to assortment problems, not to {info.kind}")
    if n_prices is not None and info.kind != "pricing":
        raise ParameterError(f"n_prices applies to pricing problems, not to {info.kind}")
    if isinstance(problem, AssortmentProblem):
        mode = validation.choice("action_mode", action_mode or "slate", ASSORTMENT_MODES)
        modes: dict[str, Callable[[int, int], ActionMode]]
        modes = {"slate": Slate, "scores": Scores, "mask": Mask, "index": Index}
        return modes[mode](problem.n_items, problem.capacity)
    if info.kind == "pricing":
        return Price() if n_prices is None else PriceGrid(n_prices)
    assert info.n_candidates is not None
    return Candidate(info.n_candidates)
