"""Encode searches as the features of Cho & Sun's Table 1 (section 5.2.1, appendix S.3.4)."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dpb_data.column_reader import Array
from dpb_data.dataset_registry import read_layouts
from dpb_data.expedia import SearchLog
from dpb_gym import validation
from dpb_gym.errors import DataError


@dataclass(frozen=True)
class Feature:
    """A feature of Table 1: a number, or a level if there are `labels`.

    Level k is the interval from ``cuts[k - 1]`` to below ``cuts[k]``.
    """

    name: str
    column: str
    cuts: tuple[float, ...] = ()
    labels: tuple[str, ...] = ()


HOTEL, USER, HISTORY = (
    tuple(read_layouts(part, Feature).values()) for part in ("hotel", "user", "history")
)


@dataclass(frozen=True, eq=False)
class HotelChoices:
    """Hotels, searches and choices, with the features of Table 1.

    Every feature has mean 0 and variance 1, hotel features over the hotels, user features over
    the searches. Unknown values are 0, the mean.

    Attributes:
        name: Name of the search log.
        destination: Its id, or None for all.
        hotel_ids: Original ids ``(n_hotels,)``, ascending.
        hotels: Features ``(n_hotels, d2)``.
        hotel_features: Names, ``"star=4"`` for the dummy of a level.
        prices: Mean price of each hotel in USD, geometric ``(n_hotels,)``.
        users: Features ``(n_searches, d1)``.
        user_features: Names.
        starts: Search s shows the hotels ``shown[starts[s]:starts[s + 1]]``.
        shown: Indices of hotels.
        choice: Position of the choice among the shown hotels, -1 for none ``(n_searches,)``.
        dropped: Reasons for omitted features of Table 1, by name.
        notes: Repairs of the file.
    """

    name: str
    destination: int | None
    hotel_ids: Array
    hotels: Array
    hotel_features: tuple[str, ...]
    prices: Array
    users: Array
    user_features: tuple[str, ...]
    starts: Array
    shown: Array
    choice: Array
    dropped: dict[str, str]
    notes: tuple[str, ...] = ()


def encode_searches(
    log: SearchLog,
    destination: int | str | None = None,
    choice: str = "booking",
    max_missing: float = 0.9,
) -> HotelChoices:
    """Encode the searches of one destination.

    Args:
        log: The searches.
        destination: An id, ``"all"``, or None for the most searched one (as the paper; the
            smallest id on ties).
        choice: ``"booking"``: the booked hotel, else nothing. ``"click"``: the booked hotel, else
            the clicked one (the highest on the page of several), else nothing.
        max_missing: Columns missing in a larger share of the searches are dropped.

    Raises:
        ParameterError: A parameter is out of its range.
        DataError: All features are dropped.
    """
    validation.choice("choice", choice, ("booking", "click"))
    max_missing = validation.real("max_missing", max_missing, 0.0, 1.0)
    if isinstance(destination, str):
        validation.choice("destination", destination, ("all",))
    else:
        validation.optional(validation.integer, "destination", destination, 1)
    chosen = next(iter(log.destinations)) if destination is None else destination
    log = log if isinstance(chosen, str) else log.select(chosen)
    hotel_ids, shown = np.unique(log.columns["prop_id"], return_inverse=True)
    hotels = _Encoder(log, max_missing)
    users = _Encoder(log, max_missing)
    means = {}
    for feature in HOTEL:
        if hotels.usable(feature):
            values = log.columns[feature.column]
            # prices span five orders of magnitude (per night, per stay, typing errors)
            values = np.log(values) if feature.column == "price_usd" else values
            means[feature.column] = _means(values, shown, len(hotel_ids))
            hotels.add(feature, means[feature.column])
    _add_users(users, log)
    if not hotels.names:
        raise DataError(f"{log.name}: no feature distinguishes the {len(hotel_ids)} hotels")
    log_price = means.get("price_usd", np.full(len(hotel_ids), np.nan))
    known = np.isfinite(log_price)
    middle = float(np.median(log_price[known])) if known.any() else 0.0
    return HotelChoices(
        name=log.name,
        destination=None if isinstance(chosen, str) else int(chosen),
        hotel_ids=hotel_ids,
        hotels=hotels.matrix(len(hotel_ids)),
        hotel_features=tuple(hotels.names),
        prices=np.exp(np.where(known, log_price, middle)),
        users=users.matrix(log.n_searches),
        user_features=tuple(users.names),
        starts=log.starts,
        shown=shown.astype(np.int64),
        choice=_choices(log, choice == "click"),
        dropped={**hotels.dropped, **users.dropped},
        notes=log.notes,
    )


class _Encoder:
    """Collects standardised features, and the reasons for dropped ones."""

    def __init__(self, log: SearchLog, max_missing: float) -> None:
        self._log = log
        self._max_missing = max_missing
        self.names: list[str] = []
        self.dropped: dict[str, str] = {}
        self._features: list[Array] = []

    def usable(self, feature: Feature) -> bool:
        """Return whether its column is known in enough searches; else record the reason."""
        if feature.column not in self._log.columns:
            self.dropped[feature.name] = f"the file has no column {feature.column}"
            return False
        missing = np.isnan(self._log.columns[feature.column])
        share = float(np.mean(np.logical_and.reduceat(missing, self._log.starts[:-1])))
        if share > self._max_missing or missing.all():
            self.dropped[feature.name] = (
                f"{feature.column} is missing in {share:.1%} of the searches"
            )
            return False
        return True

    def add(self, feature: Feature, values: Array) -> None:
        """Add a number (NaN becomes the mean), or dummies of all levels but the first."""
        known = np.isfinite(values)
        if feature.labels:
            level = np.searchsorted(feature.cuts, values, side="right")
            present = np.unique(level[known])
            for k, label in enumerate(feature.labels):
                dummy = Feature(f"{feature.name}={label}", feature.column)
                if k not in present:
                    self.dropped[dummy.name] = f"no {feature.column} has this level"
                elif k != present[0]:
                    self.add(dummy, np.where(known, level == k, np.nan))
            return
        filled = np.where(known, values, np.mean(values[known]) if known.any() else 0.0)
        centred = filled - np.mean(filled)
        spread = float(np.sqrt(np.mean(centred * centred)))
        # a constant column has rounding errors, not zeros
        if spread <= 1e-9 * max(1.0, float(np.abs(filled).max())):
            self.dropped[feature.name] = f"{feature.column} never varies"
            return
        self.names.append(feature.name)
        self._features.append(centred / spread)

    def matrix(self, rows: int) -> Array:
        """Return the collected features, ``(rows, d)``."""
        return np.column_stack(self._features) if self._features else np.empty((rows, 0))


def _means(values: Array, groups: Array, n: int) -> Array:
    """Return the mean of known values of each of n groups, NaN for groups without one."""
    known = np.isfinite(values)
    counts = np.bincount(groups[known], minlength=n)
    sums = np.bincount(groups[known], weights=values[known], minlength=n)
    return np.where(counts > 0, sums / np.maximum(counts, 1), np.nan)


def _add_users(users: _Encoder, log: SearchLog) -> None:
    for feature in USER:
        if users.usable(feature):
            users.add(feature, log.per_search(feature.column))
    predictors = [log.per_search(feature.column) for feature in USER]
    website = Feature("website", "site_id")
    if users.usable(website):
        sites = log.per_search("site_id")
        ids, counts = np.unique(sites[np.isfinite(sites)], return_counts=True)
        main = np.where(np.isfinite(sites), sites == ids[counts.argmax()], np.nan)
        users.add(website, main)
        predictors.append(main)
    search = np.repeat(np.arange(log.n_searches), np.diff(log.starts))
    for column in ("price_usd", "prop_starrating"):
        predictors.append(_means(log.columns[column], search, log.n_searches))
    for feature in HISTORY:
        if users.usable(feature):
            known = log.per_search(feature.column)
            users.add(feature, impute(known, np.column_stack(predictors)))


def _choices(log: SearchLog, clicks: bool) -> Array:
    """Return the position of each search's choice among its rows, -1 for none."""
    rank = np.where(log.columns["booking_bool"] == 1.0, 0.0, np.inf)
    if clicks:
        if "click_bool" not in log.columns:
            raise DataError(f"{log.name}: choice='click' needs the column click_bool")
        page = log.columns.get("position", np.ones(len(log)))
        clicked = (log.columns["click_bool"] == 1.0) & np.isinf(rank)
        rank = np.where(clicked, page, rank)
    choice = np.full(log.n_searches, -1, np.int64)
    for s, (a, b) in enumerate(zip(log.starts[:-1], log.starts[1:])):
        best = int(rank[a:b].argmin())
        if rank[a + best] < np.inf:
            choice[s] = best
    return choice


def predict(
    features: Array, response: Array, queries: Array, max_depth: int = 4, min_leaf: int = 10
) -> Array:
    """Return predictions of an unpruned CART regression tree (Breiman et al. 1984).

    Each node uses the split with the smallest sum of squared errors. Thresholds are midpoints of
    neighbouring values; ties go to the lower column and threshold. A leaf predicts its mean.

    Args:
        features: Finite, ``(n, p)``.
        response: Finite, ``(n,)``, n at least 1.
        queries: Features ``(m, p)`` to predict for.
        max_depth: Largest number of splits on a path.
        min_leaf: Smallest number of observations in a leaf.

    Returns:
        Predictions ``(m,)``.
    """
    split = best_split(features, response, min_leaf) if max_depth > 0 else None
    if split is None:
        return np.full(len(queries), float(np.mean(response)))
    feature, threshold = split
    out = np.empty(len(queries))
    for side in (np.less_equal, np.greater):
        rows = side(features[:, feature], threshold)
        asked = side(queries[:, feature], threshold)
        below = (features[rows], response[rows], queries[asked])
        out[asked] = predict(*below, max_depth - 1, min_leaf)
    return out


def best_split(features: Array, response: Array, min_leaf: int) -> tuple[int, float] | None:
    """Return column and threshold of the best split, or None if none lowers the squared error."""
    n = len(response)
    centred = response - np.mean(response)
    total = float(np.sum(centred * centred))
    # the gain of a split is sum_L^2 / n_L + sum_R^2 / n_R, and sum_R = -sum_L.
    best = 1e-12 * total
    split = None
    for feature in range(features.shape[1]):
        order = np.argsort(features[:, feature], kind="stable")
        values = features[order, feature]
        sums = np.cumsum(centred[order])[:-1]
        sizes = np.arange(1, n)
        allowed = (values[1:] > values[:-1]) & (sizes >= min_leaf) & (n - sizes >= min_leaf)
        if not allowed.any():
            continue
        gain = np.where(allowed, sums * sums * (1.0 / sizes + 1.0 / (n - sizes)), -1.0)
        at = int(gain.argmax())
        if gain[at] > best:
            best = float(gain[at])
            split = (feature, float(0.5 * (values[at] + values[at + 1])))
    return split


def impute(values: Array, features: Array) -> Array:
    """Return `values` ``(n,)`` with NaN replaced by predictions of a tree on the other entries.

    NaN entries of the predictors `features` ``(n, p)`` become their column's median (0 for a
    column without values). If all entries are NaN, `values` is returned unchanged.
    """
    known = np.isfinite(values)
    if known.all() or not known.any():
        return values
    filled = np.array(features, dtype=np.float64)
    for column in filled.T:
        present = column[np.isfinite(column)]
        column[~np.isfinite(column)] = np.median(present) if len(present) else 0.0
    return np.where(known, values, predict(filled[known], values[known], filled))
