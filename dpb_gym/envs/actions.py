"""Action modes: Gymnasium action spaces and their conversion to a problem's actions."""

from __future__ import annotations

from abc import ABC, abstractmethod
from pkgutil import resolve_name
from typing import Any

import gymnasium
import numpy as np

from dpb_gym import kernels
from dpb_gym.errors import ActionError, ParameterError
from dpb_gym.problems.base import Array, ProblemInfo
from dpb_gym.problems.kinds import action_array, kind_of

MAX_ASSORTMENTS = 100_000


class ActionMode(ABC):
    """An action space and its conversion to a problem's actions.

    Attributes:
        space: Gymnasium space of a single action.
    """

    space: gymnasium.Space[Any]

    @abstractmethod
    def decode(self, actions: Any, replicates: int | None = None) -> Array:
        """Return the problem's actions for a batch of actions, or a single one if not `replicates`.

        Raises:
            ActionError: If an action has a wrong shape, dtype or range.
        """

    def permitted(self, available: Array) -> Array:
        """Return the permitted actions as one flat mask, in the order of sb3-contrib.

        Args:
            available: Which items or candidates can be offered ``(N,)``, bool.

        Raises:
            ParameterError: If the space has real numbers, which no mask describes.
        """
        raise ParameterError(
            f"{self.space} has no action mask: choose an action_mode or n_prices with finitely "
            "many actions"
        )

    def batch(
        self, actions: Any, replicates: int | None, integral: bool, what: str, bits: bool = False
    ) -> Array:
        """Return a well-typed array ``(replicates or 1, *space.shape)``; see `action_array`."""
        shape = self.space.shape
        assert shape is not None
        if replicates is None:
            return action_array(actions, shape, integral, what, bits)[None]
        return action_array(actions, (replicates, *shape), integral, what, bits)


class Slate(ActionMode):
    """K item indices; repeated items count once."""

    def __init__(self, n_items: int, capacity: int) -> None:
        self.space = gymnasium.spaces.MultiDiscrete([n_items] * capacity)
        self._n_items, self._capacity = n_items, capacity

    def decode(self, actions: Any, replicates: int | None = None) -> Array:
        try:
            slates = self.batch(actions, replicates, True, "slate")
        except ActionError as error:
            raise ActionError(
                f"{error}. To offer fewer items, repeat one of them or use action_mode='mask'"
            ) from None
        if _outside(slates, 0, self._n_items - 1) is not None:
            bad = slates[((slates < 0) | (slates >= self._n_items)).any(axis=1).argmax()]
            raise ActionError(f"slate {bad.tolist()} holds an item outside 0..{self._n_items - 1}")
        return slates

    def permitted(self, available: Array) -> Array:
        # each of the K places has a mask of all items
        return np.tile(available, self._capacity)


class Scores(ActionMode):
    """A score in [-1, 1] per item; the K largest are offered, lower index first on ties."""

    def __init__(self, n_items: int, capacity: int) -> None:
        self.space = gymnasium.spaces.Box(-1.0, 1.0, (n_items,), np.float32)
        self._capacity = capacity

    def decode(self, actions: Any, replicates: int | None = None) -> Array:
        scores = self.batch(actions, replicates, False, "scores")
        if not np.isfinite(scores).all():
            raise ActionError("scores must be finite, got NaN or infinity")
        slates = np.empty((len(scores), self._capacity), np.int64)
        scratch = np.empty(scores.shape[1], np.int64)
        for row, slate in zip(scores, slates):
            kernels.mnl.top_indices(row, self._capacity, -np.inf, slate, scratch)
        return slates


class Mask(ActionMode):
    """One bit per item; of more than K set bits the first K count."""

    def __init__(self, n_items: int, capacity: int) -> None:
        self.space = gymnasium.spaces.MultiBinary(n_items)
        self._capacity = capacity

    def decode(self, actions: Any, replicates: int | None = None) -> Array:
        # Some learners give their bits as floats.
        masks = self.batch(actions, replicates, False, "mask", bits=True)
        if not ((masks == 0) | (masks == 1)).all():
            raise ActionError("mask must hold 0 and 1 only")
        slates = np.full((len(masks), self._capacity), -1, np.int64)
        for mask, slate in zip(masks, slates):
            items = np.flatnonzero(mask)[: self._capacity]
            slate[: len(items)] = items
        return slates

    def permitted(self, available: Array) -> Array:
        # a bit can always be 0, and 1 if the item is available
        return np.stack([np.ones_like(available), available], axis=1).ravel()


MODES: dict[str, type[Slate | Scores | Mask]] = {"slate": Slate, "scores": Scores, "mask": Mask}


class ByIndex(ActionMode):
    """The index of an action in a table of the problem's actions."""

    def __init__(self, table: Array, what: str) -> None:
        self.table, self._what = table, what
        self.space = gymnasium.spaces.Discrete(len(table))

    def decode(self, actions: Any, replicates: int | None = None) -> Array:
        # fast path for samples of a `Discrete` space
        if replicates is None and isinstance(actions, np.int64) and 0 <= actions < len(self.table):
            return self.table[actions : actions + 1]
        index = self.batch(actions, replicates, True, self._what)
        bad = _outside(index, 0, len(self.table) - 1)
        if bad is not None:
            raise ActionError(f"{self._what} must be in 0..{len(self.table) - 1}, got {bad}")
        return self.table[index]

    def permitted(self, available: Array) -> Array:
        if self.table.ndim == 1:
            # candidates are indices into `available`; prices are not limited by it
            whole = self.table.dtype.kind == "i"
            return available[self.table] if whole else np.ones(len(self.table), bool)
        shown = self.table >= 0
        return np.asarray((available[self.table] | ~shown).all(axis=1))


class Price(ActionMode):
    """A price in [0, 1]; the space has the prices that are played."""

    def __init__(self, low: float = 0.0, high: float = 1.0) -> None:
        self.space = gymnasium.spaces.Box(low, high, (1,), np.float32)

    def decode(self, actions: Any, replicates: int | None = None) -> Array:
        prices = self.batch(actions, replicates, False, "price").reshape(-1)
        bad = _outside(prices, 0.0, 1.0)
        if bad is not None:
            raise ActionError(f"price must be in [0, 1], got {bad}")
        return prices


def _outside(values: Array, low: float, high: float) -> Any:
    """Return the first value outside [low, high], NaN included; None if there is none."""
    if values.size == 1:
        value = values.item()
        return None if low <= value <= high else value
    if values.dtype.kind == "i" and values.size <= 64:
        # builtins are faster on a slate
        numbers = values.ravel().tolist()
        if min(numbers) >= low and max(numbers) <= high:
            return None
    inside = (values >= low) & (values <= high)
    return None if inside.all() else values.flat[int(inside.argmin())]


def mode_of(info: ProblemInfo, space: Any = None) -> tuple[ActionMode, bool]:
    """Return the action mode of a space, and whether its numbers are rescaled to [-1, 1].

    Args:
        info: The problem.
        space: An action space that a model was trained on; None for the default mode.

    Raises:
        ParameterError: If no mode of the problem has this space.
    """
    kind = kind_of(info.kind)
    make = resolve_name(kind.actions) if isinstance(kind.actions, str) else kind.actions
    usual: ActionMode = make(info)
    if space is None or usual.space == space:
        return usual, False
    discrete = isinstance(space, gymnasium.spaces.Discrete)
    options: list[dict[str, Any]] = [{}]
    if "action_mode" in kind.interface:
        names = ["index"] if discrete else list(MODES)
        options += [{"action_mode": name} for name in names]
    if "n_prices" in kind.interface and discrete:
        options.append({"n_prices": int(space.n)})
    for option in options:
        try:
            mode: ActionMode = make(info, **option)
        except ParameterError:  # too many slates for an index, or too few prices
            continue
        if mode.space == space:
            return mode, False
        boxes = isinstance(mode.space, gymnasium.spaces.Box)
        if boxes and space == gymnasium.spaces.Box(-1.0, 1.0, mode.space.shape, np.float32):
            return mode, True
    raise ParameterError(
        f"the model was trained on actions {space}, and this environment has {usual.space}: train "
        "it on an environment with the same parameters"
    )
