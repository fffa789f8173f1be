"""The common table of all rating data sets, and helpers for tables."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dpb_gym import validation
from dpb_gym.errors import DataError, ParameterError

MAX_LEVELS = 50
IntArray = NDArray[np.int64]
FloatArray = NDArray[np.float64]
_INTEGERS = ("iu", "integers")
_IDS = ("iuU", "integers or text")
_KINDS = {
    "users": _INTEGERS, "items": _INTEGERS, "ratings": ("iuf", "real numbers"),
    "timestamps": _INTEGERS, "user_ids": _IDS, "item_ids": _IDS,
}  # fmt: skip


@dataclass(frozen=True, eq=False, repr=False)
class RatingTable:
    """Ratings as parallel columns, with users and items renumbered from zero.

    In row k user ``users[k]`` gave item ``items[k]`` the rating ``ratings[k]``. Rows have the order
    of the file. Indices follow the ascending order of the original ids; items without ratings have
    no index. The arrays are read-only.

    Attributes:
        name: Name of the data set, file or folder.
        users: int64, shape (n,), in [0, n_users).
        items: int64, shape (n,), in [0, n_items).
        ratings: float64, shape (n,), in the data set's own units, within `rating_range`.
        timestamps: int64, shape (n,), Unix seconds, or None.
        rating_range: Lowest and highest possible rating.
        user_ids: int64 or text, shape (n_users,), original ids, ascending.
        item_ids: int64 or text, shape (n_items,), original ids, ascending.
        titles: One title per item index, or None.

    Raises:
        ParameterError: Shapes, ranges or types are not as above.
    """

    name: str
    users: IntArray
    items: IntArray
    ratings: FloatArray
    timestamps: IntArray | None
    rating_range: tuple[float, float]
    user_ids: NDArray[Any]
    item_ids: NDArray[Any]
    titles: list[str] | None = None

    def __post_init__(self) -> None:
        for field in _KINDS:
            if getattr(self, field) is not None:
                object.__setattr__(self, field, _column(field, getattr(self, field)))
        n = len(self.ratings)
        bounds = {"users": self.n_users, "items": self.n_items}
        if n == 0:
            raise ParameterError("a rating table needs at least one rating")
        for field in ("users", "items", "timestamps"):
            rows = getattr(self, field)
            below = bounds.get(field)
            if rows is not None and len(rows) != n:
                raise ParameterError(f"{field} has {len(rows)} rows, ratings has {n}")
            if below is not None and (rows.min() < 0 or rows.max() >= below):
                raise ParameterError(
                    f"{field} must lie in [0, {below}), found {rows.min()}..{rows.max()}"
                )
        low, high = validation.span("rating_range", self.rating_range)
        object.__setattr__(self, "rating_range", (low, high))
        lowest = float(self.ratings.min())
        highest = float(self.ratings.max())
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
        titles: Mapping[Any, str] | None = None,
    ) -> RatingTable:
        """Return a table from original ids, one entry per rating.

        Args:
            name: Name of the table.
            user_ids: Non-negative integers or text, shape (n,).
            item_ids: Non-negative integers or text, shape (n,).
            ratings: Numbers, shape (n,).
            rating_range: Lowest and highest possible rating.
            timestamps: Unix seconds, shape (n,), or None.
            titles: Title by original item id; every rated item needs one.

        Raises:
            ParameterError: Shapes, ranges or types are wrong.
        """
        users, known_users = renumber("user_ids", user_ids)
        items, known_items = renumber("item_ids", item_ids)
        listing = None
        if titles is not None:
            missing = [item for item in known_items.tolist() if item not in titles]
            if missing:
                raise ParameterError(f"titles has no entry for item id {missing[0]}")
            listing = [titles[item] for item in known_items.tolist()]
        stamps = None if timestamps is None else np.asarray(timestamps)
        return cls(
            name, users, items, np.asarray(ratings), stamps, rating_range, known_users,
            known_items, listing,
        )  # fmt: skip

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
        """Return the ratings mapped affinely from `rating_range` onto [0, 1], shape (n,)."""
        low, high = self.rating_range
        unit: FloatArray = (self.ratings - low) / (high - low)
        return unit

    def digest(self) -> str:
        """Return a hexadecimal digest of the ratings and their range; names do not count."""
        return digest_of(self.users, self.items, self.ratings, np.array(self.rating_range))


def frozen(values: NDArray[Any]) -> NDArray[Any]:
    """Return the array, made contiguous and read-only."""
    values = np.ascontiguousarray(values)
    values.flags.writeable = False
    return values


def digest_of(*parts: NDArray[Any] | Sequence[str] | None) -> str:
    """Return a hexadecimal digest of arrays and texts, in this order."""
    digest = hashlib.sha256()
    for part in parts:
        if isinstance(part, np.ndarray) and part.dtype.kind in "iuf":
            plain = np.ascontiguousarray(part, dtype="<f8" if part.dtype.kind == "f" else "<i8")
            digest.update(plain.tobytes())
        else:
            digest.update("\0".join(map(str, () if part is None else part)).encode())
    return digest.hexdigest()[:32]


def renumber(field: str, ids: ArrayLike) -> tuple[IntArray, NDArray[Any]]:
    """Renumber ids 0..k-1 in ascending order of the ids.

    Args:
        field: Name for messages.
        ids: Non-negative integers or text, shape (n,).

    Returns:
        The index of each row, int64 (n,), and the distinct ids, int64 or text (k,), ascending.

    Raises:
        ParameterError: Not a one-dimensional array of non-negative integers or text, or empty.
    """
    import pyarrow as pa

    values = np.asarray(ids)
    text = values.dtype.kind in "UO" and all(isinstance(v, str) for v in values.flat)
    if values.ndim != 1 or values.size == 0 or not (text or values.dtype.kind in "iu"):
        raise ParameterError(
            f"{field} must be a non-empty one-dimensional array of integers or text, "
            f"not shape {values.shape} of {values.dtype}"
        )
    if not text and values.min() < 0:
        raise ParameterError(f"{field} must be non-negative, found {values.min()}")
    # by hash: sorting 32 million rows would take most of the loading time
    encoded = pa.array(values if text else values.astype(np.int64)).dictionary_encode()
    distinct = encoded.dictionary.to_numpy(zero_copy_only=False)
    order = np.argsort(distinct, kind="stable")
    rank = np.empty(len(order), np.int64)
    rank[order] = np.arange(len(order))
    known = distinct[order].astype(str if text else np.int64)
    return rank[encoded.indices.to_numpy()], known


def first_duplicate(users: IntArray, items: IntArray, n_items: int) -> tuple[int, int] | None:
    """Return two rows in which the same user rates the same item.

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
    order = np.argsort(pairs, kind="stable")
    again = np.flatnonzero(np.diff(pairs[order]) == 0)
    return (int(order[again[0]]), int(order[again[0] + 1])) if len(again) else None


def encode_features(
    columns: Mapping[str, NDArray[Any]], label: str
) -> tuple[NDArray[Any], tuple[str, ...]]:
    """Encode columns as features: numbers unchanged, text as one 0/1 feature per level but one.

    Args:
        columns: Finite numbers or text ``(n,)`` by name, at least one.
        label: Name of the table in messages.

    Returns:
        Features ``(n, d)`` and their names, ``"fuel=gasoline"`` for a level.

    Raises:
        DataError: Text has one level, or more than 50.
    """
    features: list[NDArray[Any]] = []
    names: list[str] = []
    for name, values in columns.items():
        if values.dtype.kind in "iuf":
            features.append(values.astype(np.float64))
            names.append(name)
            continue
        levels = sorted({str(value) for value in {*values.tolist()}})
        if len(levels) == 1:
            raise DataError(f"{label}: {name} is {levels[0]!r} in every row: leave it out")
        if len(levels) > MAX_LEVELS:
            raise DataError(
                f"{label}: {name} is text with {len(levels)} values, more than {MAX_LEVELS}: leave "
                "it out, or group them"
            )
        features += [(values == level).astype(np.float64) for level in levels[1:]]
        names += [f"{name}={level}" for level in levels[1:]]
    return np.ascontiguousarray(np.column_stack(features)), tuple(names)


def _column(field: str, value: NDArray[Any] | Sequence[Any]) -> NDArray[Any]:
    """Return a read-only one-dimensional view, or a copy if the type must change."""
    array = np.asarray(value)
    kinds, wanted = _KINDS[field]
    if array.ndim != 1:
        raise ParameterError(f"{field} must be one-dimensional, not of shape {array.shape}")
    if array.dtype.kind not in kinds:
        raise ParameterError(f"{field} must hold {wanted}, not {array.dtype}")
    if array.dtype.kind != "U":
        array = array.astype(np.float64 if "f" in kinds else np.int64, copy=False)
    view = array.view()
    view.setflags(write=False)
    return view
