"""Tables of logged responses: the Open Bandit Dataset, prices and purchases, items and clicks.

`dpb_gym.offline` evaluates and trains on such logs.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from dpb_data import synthetic
from dpb_data.column_reader import POSITIVE, Array, Column, take_columns
from dpb_data.data_folders import locate
from dpb_data.dataset_registry import generated
from dpb_data.rating_table import encode_features, renumber
from dpb_data.reading_questions import units_question
from dpb_data.response_columns import ResponseColumns, read_responses
from dpb_data.table_repair import Repair
from dpb_data.text_columns import unit_of_name
from dpb_gym import validation
from dpb_gym.errors import DataError, QuestionError

_USER_FEATURES = tuple(f"user_feature_{k}" for k in range(4))
LARGEST_PRICE = 1e12
_MOST_UNITS = 10_000.0
_UNITS = " (0 or 1, or units sold; of larger volumes thousands, rounded)"
_ITEM_FEATURES = tuple(f"item_feature_{k}" for k in range(4))


@dataclass(frozen=True, eq=False, repr=False)
class BanditLog:
    """Rounds of a logging policy that showed one of several items, with known propensities.

    Attributes:
        name: Name of the file.
        actions: int64 ``(n,)``, the shown item, in [0, n_items).
        positions: int64 ``(n,)``, its position on the page, from 0.
        rewards: float64 ``(n,)``, 1 for a click.
        propensities: float64 ``(n,)`` in (0, 1], probability of this item at this position.
        timestamps: int64 ``(n,)``, Unix seconds.
        users: int64 ``(n, 4)``, levels of the user's features, each numbered from 0.
        items: float64 ``(n_items, d)``, features of the items; text as one feature per level.
        item_names: d names.
        affinity: float64 ``(n, n_items)``, affinity of the user to each item, or None.
    """

    name: str
    actions: Array
    positions: Array
    rewards: Array
    propensities: Array
    timestamps: Array
    users: Array
    items: Array
    item_names: tuple[str, ...]
    affinity: Array | None = None

    def __len__(self) -> int:
        return len(self.actions)

    def __repr__(self) -> str:
        return (
            f"BanditLog({self.name!r}: {len(self):,} rounds, {len(self.items)} items, "
            f"{int(self.rewards.sum())} clicks)"
        )

    def arrays(self, position: int | None = None) -> dict[str, Any]:
        """Return arguments of `dpb_gym.offline.LoggedData.from_arrays`, all items as candidates.

        Features of a candidate are the item's, scaled to at most 1 in magnitude, a constant,
        and the user's affinity to the item if the log has it.

        Args:
            position: Only the rounds of this position on the page.

        Raises:
            DataError: If no round has this position.
        """
        rows = np.arange(len(self)) if position is None else np.flatnonzero(
            self.positions == position
        )  # fmt: skip
        if not len(rows):
            raise DataError(f"{self.name}: no round has position {position}")
        largest = np.maximum(np.abs(self.items).max(axis=0), 1e-12)
        own = np.column_stack([self.items / largest, np.ones(len(self.items))])
        parts = [np.broadcast_to(own, (len(rows), *own.shape))]
        if self.affinity is not None:
            parts.append(np.clip(self.affinity[rows, :, None], 0.0, 1.0))
        return {
            "features": np.concatenate(parts, axis=2, dtype=np.float32),
            "actions": self.actions[rows],
            "propensities": self.propensities[rows],
            "rewards": self.rewards[rows],
            "reward_range": (0.0, 1.0),
            "name": self.name,
        }


def load_open_bandit(source: str | os.PathLike[str]) -> BanditLog:
    """Load a log in the layout of the Open Bandit Dataset and check every value.

    Args:
        source: A registered or generated data set, the campaign's CSV file (``men.csv``,
            ``men.csv.gz``), or its folder, here or below ``$DPB_DATA``. The items' features are in
            ``item_context.csv`` beside the log.

    Raises:
        DataError: Missing, damaged, or of another layout; names the line or row.

    Example:
        >>> import dpb_data
        >>> dpb_data.load_open_bandit("synthetic-open-bandit")
        BanditLog('synthetic-open-bandit': 3,000 rounds, 12 items, 240 clicks)
    """
    made: BanditLog | None = generated(source, "logs")
    if made is not None:
        return made
    place = locate(source)
    if place.is_dir():
        logs = [f for f in sorted(place.glob("*.csv*")) if f.name != "item_context.csv"]
        if len(logs) != 1:
            names = ", ".join(f.name for f in logs) or "none"
            raise DataError(f"{place}: expected one campaign's CSV file, found {names}: name it")
        place = logs[0]
    return read_open_bandit(place, place.parent / "item_context.csv")


def synthetic_bandit() -> BanditLog:
    """Return the generated data set ``"synthetic-open-bandit"``."""
    return read_open_bandit(*synthetic.open_bandit(), "synthetic-open-bandit")


def read_open_bandit(log: Any, items: Any, name: str | None = None) -> BanditLog:
    """Read a log and its items from sources of `take_columns`; see `load_open_bandit`."""
    where = "items" if isinstance(items, dict) else str(items)
    _, about = take_columns(
        items,
        [Column("item_id", 0.0, 1e6, kind="integer"),
         Column(_ITEM_FEATURES[0]), *(Column(name, kind="text") for name in _ITEM_FEATURES[1:])],
    )  # fmt: skip
    n_items = len(about["item_id"])
    if not np.array_equal(np.sort(about["item_id"]), np.arange(n_items)):
        raise DataError(f"{where}: expected item_id to number the items from 0")
    order = np.argsort(about["item_id"])
    features, names = encode_features({f: about[f][order] for f in _ITEM_FEATURES}, where)
    affinities = [f"user-item_affinity_{k}" for k in range(n_items)]
    opened, read = take_columns(
        log,
        [Column("timestamp", kind="time"),
         Column("item_id", 0.0, n_items - 1.0, kind="integer"),
         Column("position", 1.0, 100.0, kind="integer"),
         Column("click", kind="flag"),
         Column("propensity_score", POSITIVE, 1.0),
         *(Column(feature, kind="id") for feature in _USER_FEATURES),
         *(Column(feature, required=False) for feature in affinities)],
    )  # fmt: skip
    missing = [a for a in affinities if a not in read]
    if missing and len(missing) < n_items:
        raise DataError(f"{opened.where}: expected the column {missing[0]} as for the other items")
    return BanditLog(
        name or opened.name,
        read["item_id"],
        read["position"] - 1,
        read["click"].astype(np.float64),
        read["propensity_score"],
        read["timestamp"],
        np.column_stack([renumber(f, read[f])[0] for f in _USER_FEATURES]),
        features,
        names,
        None if missing else np.column_stack([read[a] for a in affinities]),
    )


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class PriceTable(ResponseColumns):
    """Prices quoted to customers, and whether they bought.

    Attributes:
        price: float64 ``(n,)``, positive.
        bought: int64 ``(n,)``, 0 or 1.
    """

    price: Array
    bought: Array

    def __repr__(self) -> str:
        return (
            f"PriceTable({self.name!r}: {len(self):,} quotes from {self.price.min():g} to "
            f"{self.price.max():g}, {int(self.bought.sum()):,} bought, "
            f"{len(self.feature_names)} features)"
        )


@dataclass(frozen=True, eq=False, repr=False, kw_only=True)
class ClickTable(ResponseColumns):
    """Items shown to customers at random, and whether they clicked.

    Attributes:
        items: int64 ``(n,)``, index of the item in `item_ids`.
        item_ids: Original names or numbers of the items, ascending.
        clicked: int64 ``(n,)``, 0 or 1.
        propensity: float64 ``(n,)`` in (0, 1], probability of showing this item.
    """

    items: Array
    item_ids: Array
    clicked: Array
    propensity: Array

    def __repr__(self) -> str:
        return (
            f"ClickTable({self.name!r}: {len(self):,} rounds, {len(self.item_ids)} items, "
            f"{int(self.clicked.sum()):,} taken, {len(self.feature_names)} features)"
        )


def prices(
    source: Any,
    *,
    price: str = "price",
    bought: str = "bought",
    offered: str | int | None = None,
    features: Sequence[str] = (),
    person: str | None = None,
    name: str | None = None,
    missing: str | None = None,
    decimal: str | None = None,
    header: Sequence[str] | str | None = None,
    absent: Mapping[str, Any] | str | None = None,
    success: Any = None,
) -> PriceTable:
    """Return a table of quoted prices, such as auto loans or groceries, by column names.

    Args:
        source: A generated data set of prices, or a source of
            `dpb_data.column_reader.take_columns`.
        price: Column of prices, positive, at most `LARGEST_PRICE`.
        bought: Column of purchases: 0 or 1, yes or no; or their number, with `offered`.
        offered: Column of the number of customers who were quoted the price, or that number, if it
            is the same in every row; `bought` counts the purchases among them. A row of k customers
            is repeated k times; their responses may depend on each other. 1: every row is one
            customer, and any number above 0 is a purchase.
        features: Columns of features of the customer or product.
        person: Column of customer ids.
        name: Name of the table; by default the file's.
        missing: See `dpb_data.table_repair.Repair`.
        decimal: See `dpb_data.table_repair.Repair`.
        header: See `dpb_data.table_repair.Repair`.
        absent: See `dpb_data.table_repair.Repair`.
        success: Values of `bought` that mean a purchase, see `dpb_data.table_repair.Repair`.

    Raises:
        QuestionError: `bought` has numbers above 1, and `offered` is not given: customers who did
            not buy are not in the table. Or it has texts, and `success` is not given.
        DataError: A column is missing or a value not allowed.
        MissingExtraError: If the file is .xlsx and openpyxl is not installed.

    Example:
        >>> import dpb_data
        >>> dpb_data.prices("synthetic-loans", features=["term", "score"])
        PriceTable('synthetic-loans': 4,000 quotes from 2.5 to 12, 1,092 bought, 2 features)
    """
    made = generated(source, "prices")
    if made is not None:
        source, name = made, name or str(source)
    each = offered if isinstance(offered, (int, float)) else None
    if each is not None:
        each = validation.integer("offered", each, 1, int(_MOST_UNITS))
    own = [
        Column(price, POSITIVE, LARGEST_PRICE),
        Column(bought, 0.0, _MOST_UNITS, 1.0, hint=_UNITS),
    ]
    own += [Column(offered, 1.0, _MOST_UNITS, 1.0)] if isinstance(offered, str) else []
    repair = Repair(missing, decimal, header, absent, success=success, answers={bought})
    opened, read, shared = read_responses(source, own, features, person, name, repair)
    sold = read[bought].astype(np.int64)
    unit = repair.unit.get(price) or unit_of_name(price)
    if offered is None and (sold > 1).any():
        raise QuestionError(units_question(opened, bought, sold))
    if each == 1:
        repair.note(f"{bought}: numbers above 1 read as one purchase", int((sold > 1).sum()))
        sold = np.minimum(sold, 1)
    customers = read[offered].astype(np.int64) if isinstance(offered, str) else np.full(
        len(sold), each or 1
    )  # fmt: skip
    if (sold > customers).any():
        k = int((sold > customers).argmax())
        most = offered if isinstance(offered, str) else f"offered={offered}"
        raise DataError(
            f"{opened.at(k)}: expected {bought} to be at most {most}, found {sold[k]} of "
            f"{customers[k]}"
        )
    rows = np.repeat(np.arange(len(sold)), customers)
    place = np.arange(len(rows)) - np.repeat(np.cumsum(customers) - customers, customers)
    if len(rows) > len(sold):
        repair.note(f"{bought}: {len(sold):,} rows read as {len(rows):,} customers",
                    int((customers > 1).sum()))  # fmt: skip
        grouped = shared["people"] is None
        people = np.arange(len(sold)) if grouped else shared["people"]
        shared |= {"features": shared["features"][rows], "people": people[rows],
                   "grouped": grouped}  # fmt: skip
    answer = (place < sold[rows]).astype(np.int64)
    shared |= {"notes": tuple(repair.notes), "unit": unit}
    return PriceTable(price=read[price][rows], bought=answer, **shared)


def clicks(
    source: Any,
    *,
    item: str,
    reward: str,
    propensity: str,
    features: Sequence[str] = (),
    person: str | None = None,
    name: str | None = None,
    missing: str | None = None,
    decimal: str | None = None,
    header: Sequence[str] | str | None = None,
    absent: Mapping[str, Any] | str | None = None,
    success: Any = None,
) -> ClickTable:
    """Return a table of a recommender's log, one row per round, by column names.

    Args:
        source: See `dpb_data.column_reader.take_columns`.
        item: Column of the shown item.
        reward: Column of the response: 0 or 1, true or false.
        propensity: Column of the probability of showing the item, in (0, 1].
        features: Columns of features of the customer.
        person: Column of customer ids.
        name: Name of the table; by default the file's.
        missing: See `dpb_data.table_repair.Repair`.
        decimal: See `dpb_data.table_repair.Repair`.
        header: See `dpb_data.table_repair.Repair`.
        absent: See `dpb_data.table_repair.Repair`.
        success: Values of `reward` that mean a response, see `dpb_data.table_repair.Repair`.

    Raises:
        QuestionError: `reward` has texts, and `success` is not given.
        DataError: A column is missing or a value not allowed.

    Example:
        >>> import dpb_data
        >>> shown = {"ad": ["a", "b", "a"], "click": [0, 1, 0], "p": [0.5, 0.5, 0.5]}
        >>> dpb_data.clicks(shown, item="ad", reward="click", propensity="p")
        ClickTable('frame': 3 rounds, 2 items, 1 taken, 0 features)
    """
    own = [
        Column(item, kind="id"),
        Column(reward, 0.0, 1.0, 1.0, hint=" (0 or 1)"),
        Column(propensity, POSITIVE, 1.0),
    ]
    repair = Repair(
        missing, decimal, header, absent, {propensity}, success=success, answers={reward}
    )
    _, read, shared = read_responses(source, own, features, person, name, repair)
    items, ids = renumber(item, read[item])
    return ClickTable(
        items=items, item_ids=ids, clicked=read[reward].astype(np.int64),
        propensity=read[propensity], notes=tuple(repair.notes), **shared,
    )  # fmt: skip
