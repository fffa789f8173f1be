"""The one shape in which every rating data set reaches the rest of the project."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dpb_gym.errors import ParameterError

IntArray = NDArray[np.int64]
FloatArray = NDArray[np.float64]

_LOOKUP_SLACK = 1 << 20


@dataclass(frozen=True, eq=False, repr=False)
class RatingTable:
    """Ratings as parallel columns, with users and items renumbered from zero.

    Row k says that user ``users[k]`` gave item ``items[k]`` the rating ``ratings[k]``. Rows keep
    the order of the file. Indices follow the ascending order of the original ids; an item of the
    catalogue that nobody rated has no index. The arrays are read-only.

    Attributes:
        name: Name of the data set, or of the file or folder it came from.
        users: int64, shape (n,), in [0, n_users).
        items: int64, shape (n,), in [0, n_items).
        ratings: float64, shape (n,), in the data set's own units, within `rating_range`.
        timestamps: int64, shape (n,), Unix seconds; None where the source has none.
        rating_range: Lowest and highest possible rating.
        user_ids: int64, shape (n_users,), original ids, ascending.
        item_ids: int64, shape (n_items,), original ids, ascending.
        titles: One title per item index, or None.

    Raises:
        ParameterError: Shapes, ranges or types do not fit the above.
    """

    name: str
    users: IntArray
    items: IntArray
    ratings: FloatArray
    timestamps: IntArray | None
    rating_range: tuple[float, float]
    user_ids: IntArray
    item_ids: IntArray
    titles: list[str] | None = None

    def __post_init__(self) -> None:
        for field in ("users", "items", "user_ids", "item_ids", "timestamps"):
            value = getattr(self, field)
            if field != "timestamps" or value is not None:
                object.__setattr__(self, field, _column(field, value, np.dtype(np.int64)))
        object.__setattr__(self, "ratings", _column("ratings", self.ratings, np.dtype(np.float64)))
        n = len(self.ratings)
        if n == 0:
            raise ParameterError("a rating table needs at least one rating")
        for field in ("users", "items", "timestamps"):
            value = getattr(self, field)
            if value is not None and len(value) != n:
                raise ParameterError(f"{field} has {len(value)} rows, ratings has {n}")
        for field, ids in (("users", self.user_ids), ("items", self.item_ids)):
            index = getattr(self, field)
            if index.min() < 0 or index.max() >= len(ids):
                raise ParameterError(
                    f"{field} must lie in [0, {len(ids)}), found {index.min()}..{index.max()}"
                )
        low, high = (float(bound) for bound in self.rating_range)
        if not (np.isfinite(low) and np.isfinite(high) and low < high):
            raise ParameterError(
                f"rating_range must be two finite increasing numbers, not {self.rating_range!r}"
            )
        object.__setattr__(self, "rating_range", (low, high))
        lowest, highest = float(self.ratings.min()), float(self.ratings.max())
        if not (low <= lowest and highest <= high):  # also false for NaN
            raise ParameterError(
                f"ratings must be finite and lie in [{low:g}, {high:g}], "
                f"found {lowest:g}..{highest:g}"
            )
        if self.titles is not None and len(self.titles) != len(self.item_ids):
            raise ParameterError(
                f"titles has {len(self.titles)} entries, there are {len(self.item_ids)} items"
            )

    @classmethod
    def from_columns(
        cls,
        name: str,
        user_ids: ArrayLike,
        item_ids: ArrayLike,
        ratings: ArrayLike,
        *,
        rating_range: tuple[float, float],
        timestamps: ArrayLike | None = None,
        titles: Mapping[int, str] | None = None,
    ) -> RatingTable:
        """Builds a table from original ids, one entry per rating.

        Args:
            name: Name of the table.
            user_ids: Non-negative integers, shape (n,).
            item_ids: Non-negative integers, shape (n,).
            ratings: Numbers, shape (n,).
            rating_range: Lowest and highest possible rating.
            timestamps: Unix seconds, shape (n,), or None.
            titles: Title by original item id; every rated item needs one.

        Raises:
            ParameterError: Shapes, ranges or types do not fit.
        """
        users, known_users = renumber("user_ids", user_ids)
        items, known_items = renumber("item_ids", item_ids)
        listing = None
        if titles is not None:
            missing = [int(item) for item in known_items if int(item) not in titles]
            if missing:
                raise ParameterError(f"titles has no entry for item id {missing[0]}")
            listing = [titles[int(item)] for item in known_items]
        return cls(
            name=name,
            users=users,
            items=items,
            ratings=np.asarray(ratings),
            timestamps=None if timestamps is None else np.asarray(timestamps),
            rating_range=rating_range,
            user_ids=known_users,
            item_ids=known_items,
            titles=listing,
        )

    @property
    def n_users(self) -> int:
        """Number of users with at least one rating."""
        return len(self.user_ids)

    @property
    def n_items(self) -> int:
        """Number of items with at least one rating."""
        return len(self.item_ids)

    def __len__(self) -> int:
        return len(self.ratings)

    def __repr__(self) -> str:
        low, high = self.rating_range
        return (
            f"RatingTable({self.name!r}: {len(self):,} ratings in [{low:g}, {high:g}], "
            f"{self.n_users:,} users, {self.n_items:,} items)"
        )

    def normalised(self) -> FloatArray:
        """Returns the ratings mapped affinely from `rating_range` onto [0, 1], shape (n,)."""
        low, high = self.rating_range
        unit: FloatArray = (self.ratings - low) / (high - low)
        return unit


def renumber(field: str, ids: ArrayLike) -> tuple[IntArray, IntArray]:
    """Renumbers ids 0..k-1 in ascending order of the ids.

    Linear in the number of rows when the ids are not much larger than it, as in every public
    rating data set; sorting 32 million rows would take most of the loading time.

    Args:
        field: Name for messages.
        ids: Non-negative integers, shape (n,).

    Returns:
        The index of each row, int64 (n,), and the distinct ids, int64 (k,), ascending.

    Raises:
        ParameterError: Not a one-dimensional array of non-negative integers, or empty.
    """
    values = np.asarray(ids)
    if values.ndim != 1 or values.size == 0 or not np.issubdtype(values.dtype, np.integer):
        raise ParameterError(
            f"{field} must be a non-empty one-dimensional array of integers, "
            f"not shape {values.shape} of {values.dtype}"
        )
    if values.min() < 0:
        raise ParameterError(f"{field} must be non-negative, found {values.min()}")
    largest = int(values.max())
    if largest > 4 * values.size + _LOOKUP_SLACK:
        distinct, index = np.unique(values, return_inverse=True)
        return index.astype(np.int64, copy=False), distinct.astype(np.int64, copy=False)
    seen = np.zeros(largest + 1, dtype=np.bool_)
    seen[values] = True
    lookup = np.cumsum(seen, dtype=np.int64) - 1
    return lookup[values], np.flatnonzero(seen).astype(np.int64, copy=False)


def first_duplicate(users: IntArray, items: IntArray, n_items: int) -> tuple[int, int] | None:
    """Finds two rows in which the same user rates the same item.

    Args:
        users: User indices, shape (n,).
        items: Item indices, shape (n,), in [0, n_items).
        n_items: Number of items.

    Returns:
        The first two row numbers of one such pair, or None.
    """
    pairs = users * n_items + items
    if bool(np.all(pairs[1:] > pairs[:-1])):
        return None
    ordered = np.sort(pairs)
    repeated = np.flatnonzero(ordered[1:] == ordered[:-1])
    if repeated.size == 0:
        return None
    rows = np.flatnonzero(pairs == ordered[repeated[0]])
    return int(rows[0]), int(rows[1])


def _column(
    field: str, value: NDArray[np.generic] | Sequence[float], dtype: np.dtype[np.generic]
) -> NDArray[np.generic]:
    """Returns a read-only one-dimensional view (a copy only where the type must change)."""
    array = np.asarray(value)
    if array.ndim != 1:
        raise ParameterError(f"{field} must be one-dimensional, not of shape {array.shape}")
    wanted = np.integer if np.issubdtype(dtype, np.integer) else np.number
    if not np.issubdtype(array.dtype, wanted) or np.issubdtype(array.dtype, np.complexfloating):
        kind = "integers" if wanted is np.integer else "real numbers"
        raise ParameterError(f"{field} must hold {kind}, not {array.dtype}")
    view = array.astype(dtype, copy=False).view()
    view.setflags(write=False)
    return view
