"""Assortment of hotels for searches from Expedia's logs (Cho & Sun, section 5.2)."""

from __future__ import annotations

import functools
import itertools
import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.random import Generator

from dpb_gym import validation
from dpb_gym.errors import DataError, ParameterError, shown
from dpb_gym.problems.assortment import AssortmentProblem
from dpb_gym.problems.base import Array, Context, Field, Hidden, Round
from dpb_gym.problems.contexts import CONTEXT_NORMS, rescale, rescaled_bound
from dpb_gym.problems.fitting import Cached, choice_figures
from dpb_gym.problems.log_likelihood import fit_mnl
from dpb_gym.streams import Stream

if TYPE_CHECKING:
    from dpb_data import HotelChoices

FEATURE_SETS = ("hotel", "hotel+interactions", "outer")
NORMS = (*CONTEXT_NORMS, "bound")
# Hotel and user features that are multiplied with each other in "hotel+interactions": the effect
# of a price depends on traveller and time, that of stars on the stars of earlier stays.
INTERACTIONS = (
    ("price", "hist_price"),
    ("price", "length_of_stay"),
    ("price", "booking_window"),
    ("price", "adults"),
    ("price", "children"),
    ("price", "saturday"),
    ("star", "hist_star"),
)
_BLOCK = 256
REVENUES = ("equal", "price")
DEFAULT_CAPACITY = 10


@dataclass(frozen=True, eq=False)
class PairFeatures:
    """Features of (search, hotel) pairs, each a product of a hotel's and a search's feature.

    Attributes:
        hotels: float32 ``(n_hotels, d)``.
        searches: float32 ``(n_searches, d)``.
        names: ``"price"`` or ``"price * saturday"``, d of them.
        norm: ``"raw"``, ``"clip"``, ``"scale"`` or ``"bound"`` (already in `hotels`).
        magnitude: Bound on every feature.
    """

    hotels: Array
    searches: Array
    names: tuple[str, ...]
    norm: str
    magnitude: float

    def of(self, hotels: Array, searches: Array) -> Array:
        """Return features float32 ``(..., d)`` of rows of `hotels` with rows of `searches`."""
        features = np.multiply(hotels, searches, order="C")
        rescale(features, "raw" if self.norm == "bound" else self.norm)
        return features


def pair_features(
    data: HotelChoices,
    feature_set: str = "hotel+interactions",
    context_norm: str = "raw",
    intercept: bool = False,
) -> PairFeatures:
    """Return the features of all (search, hotel) pairs.

    Args:
        data: Encoded searches.
        feature_set: ``"hotel"``: the hotel's features (d = d2, 10 with all of Table 1).
            ``"hotel+interactions"``: these and the products in `INTERACTIONS` (d <= 30).
            ``"outer"``: all products of a hotel's and a user's feature (d = d1 d2, 180).
        context_norm: ``"raw"``, ``"clip"``, ``"scale"``, as elsewhere, or ``"bound"``: divided by
            the largest norm of any pair, which keeps utilities linear in the raw features.
        intercept: Adds a feature that is 1 (before `context_norm`) for every hotel.

    Raises:
        ParameterError: If a parameter is out of range.
        DataError: If no feature is left.
    """
    validation.choice("feature_set", feature_set, FEATURE_SETS)
    validation.choice("context_norm", context_norm, NORMS)
    hotel_names = data.hotel_features
    user_names = data.user_features
    constant = validation.flag("intercept", intercept)
    pairs: list[tuple[str, str]] = []  # "" stands for the constant 1
    if feature_set == "outer":
        pairs += itertools.product(hotel_names, user_names)
    else:
        pairs += [(hotel, "") for hotel in hotel_names]
    if feature_set == "hotel+interactions":
        for wanted in INTERACTIONS:
            every = itertools.product(hotel_names, user_names)
            pairs += [pair for pair in every if tuple(n.partition("=")[0] for n in pair) == wanted]
    pairs += [("", "")] * constant
    if not pairs:
        raise DataError(f"{data.name}: feature_set={feature_set!r} leaves no feature")
    of_hotel = {**dict(zip(hotel_names, data.hotels.T)), "": np.ones(len(data.hotels))}
    of_user = {**dict(zip(user_names, data.users.T)), "": np.ones(len(data.users))}
    hotels = np.column_stack([of_hotel[hotel] for hotel, _ in pairs]).astype(np.float32)
    searches = np.column_stack([of_user[user] for _, user in pairs]).astype(np.float32)
    names = [" * ".join(filter(None, pair)) or "intercept" for pair in pairs]
    if context_norm == "bound":
        hotels *= np.float32((1.0 - 1e-6) / largest_norm(hotels, searches))
    # The largest product of two float32 numbers is that of the largest magnitudes.
    magnitude = float((np.abs(hotels).max(axis=0) * np.abs(searches).max(axis=0)).max())
    if context_norm in CONTEXT_NORMS:
        magnitude = rescaled_bound(magnitude, context_norm, len(names))
    return PairFeatures(hotels, searches, tuple(names), context_norm, magnitude)


def largest_norm(hotels: Array, searches: Array) -> float:
    """Return the largest Euclidean norm of a row product, over all pairs of rows."""
    squares = np.square(hotels, dtype=np.float64)
    largest = 0.0
    for start in range(0, len(searches), _BLOCK):
        block = np.square(searches[start : start + _BLOCK], dtype=np.float64)
        # Not by BLAS: its bits depend on the number of threads.
        largest = max(largest, float(np.einsum("sk,ik->si", block, squares).max()))
    return float(np.sqrt(largest))


class HotelModel:
    """Multinomial logit fitted to the real choices: the true model of the simulation.

    Maximises sum_s log P(choice_s | shown_s) - ridge / 2 ||theta||^2. P is the multinomial logit
    over the hotels shown in search s and the outside option (no choice), which has utility 0.

    Args:
        data: Encoded searches.
        features: Features of pairs.
        ridge: Weight of the penalty, positive.

    Attributes:
        theta: Maximum-likelihood estimate ``(d,)``.
        figures: Quality of the fit; see `ExpediaProblem.summary`.

    Raises:
        ParameterError: If `ridge` is not positive.
        DataError: If the fit fails.
    """

    def __init__(self, data: HotelChoices, features: PairFeatures, ridge: float = 1.0) -> None:
        ridge = validation.real("ridge", ridge, 0.0, open_low=True)
        search = np.repeat(np.arange(len(data.users)), np.diff(data.starts))
        rows = features.of(features.hotels[data.shown], features.searches[search])
        self.data, self.features = data, features
        self.theta = fit_mnl(rows, data.starts, data.choice, ridge, data.name)
        self.figures = choice_figures(rows, data.starts, data.choice, self.theta)


@functools.lru_cache(maxsize=4)
def _choices(source: str, repair: Any, destination: Any, choice: str, max_missing: float) -> Any:
    import dpb_data

    log = dpb_data.load_searches(source, repair=repair)
    return dpb_data.encode_searches(log, destination, choice, max_missing)


@Cached
def _model(
    encoding: tuple[Any, ...], feature_set: str, context_norm: str, intercept: bool, ridge: float
) -> HotelModel:
    data = _choices(*encoding)
    return HotelModel(data, pair_features(data, feature_set, context_norm, intercept), ridge)


class ExpediaProblem(AssortmentProblem):
    """Assortments of K of N hotels for searches drawn from the log with replacement.

    Semi-synthetic: features are real; choices are simulated from the multinomial logit fitted to
    the real choices. All N hotels can be offered in every round (as in the paper; the log itself
    shows 5 to 38 of them), so N is fixed. theta is the same in all replicates; searches and
    responses are drawn per replicate. Recently fitted models are cached.

    Args:
        data: Name of a data set of searches or a path. The default is generated by this package
            in Expedia's layout; results on it say nothing about real travellers.
        destination: An id, ``"all"``, or None for the most searched one (as in the paper).
        repair: ``"drop-last-search"`` accepts a file truncated in its last line and drops
            that line's search; None rejects it. See `dpb_data.load_searches`.
        choice: ``"booking"`` or ``"click"``; see `dpb_data.encode_searches`.
        max_missing: Columns missing in a larger share of searches are dropped, in [0, 1].
        feature_set: ``"hotel"``, ``"hotel+interactions"`` or ``"outer"``; see `pair_features`.
        intercept: Whether to add a feature for a common utility of all hotels.
        ridge: Penalty of the fit, positive.
        horizon: Rounds T, at least 2.
        n_items: N, the hotels shown most often (ties by id); all of the destination by default.
        capacity: K in 1..N; min(10, N) by default (the paper does not state its K).
        revenues: ``"equal"`` (all 1, as in the paper) or ``"price"``: mean price of the hotel,
            divided by the largest.
        context_norm: ``"raw"``, ``"clip"``, ``"scale"`` or ``"bound"``. The model is fitted to
            the features after it.

    Attributes:
        model: The fitted model.
        item_ids: Original ids of the hotels, in the order of the items.

    Raises:
        DataError: If the data are missing or damaged.
        ParameterError: If a parameter is out of range.
    """

    def __init__(
        self, data: str = "synthetic-expedia", destination: int | str | None = None,
        repair: str | None = None, choice: str = "booking", max_missing: float = 0.9,
        feature_set: str = "hotel+interactions", intercept: bool = False, ridge: float = 1.0,
        horizon: int = 100_000, n_items: int | None = None, capacity: int | None = None,
        revenues: str = "equal", context_norm: str = "raw",
    ) -> None:  # fmt: skip
        if not isinstance(data, (str, os.PathLike)):
            raise ParameterError(
                f"data must be the name of a data set or a path, got {shown(data)}"
            )
        encoding = (os.fspath(data), repair, destination, choice, max_missing)
        self.model = _model(encoding, feature_set, context_norm, intercept, ridge)
        log = self.model.data
        features = self.model.features
        known = len(log.hotel_ids)
        count = known if n_items is None else validation.integer("n_items", n_items, 1, known)
        shown_most = np.argsort(-np.bincount(log.shown, minlength=known), kind="stable")
        offered = np.sort(shown_most[:count])
        validation.choice("revenues", revenues, REVENUES)
        prices = log.prices[offered]
        super().__init__(
            horizon=horizon,
            n_items=count,
            capacity=min(DEFAULT_CAPACITY, count) if capacity is None else capacity,
            dim=len(features.names),
            revenues="equal" if revenues == "equal" else prices / prices.max(),
            theta=self.model.theta,
        )
        self.data_name = log.name
        self.context_norm = features.norm
        self.feature_bound = features.magnitude
        self.item_ids = log.hotel_ids[offered]
        self._hotels = np.ascontiguousarray(features.hotels[offered])

    def draw_hidden(self, rng: Generator) -> Hidden:
        return {"theta": self.model.theta}

    def fields(self) -> dict[str, Field]:
        return {"search": Field((), np.float64, Stream.FEATURES)}

    def make_round(self, hidden: Hidden, drawn: Mapping[str, Array], t: Array) -> Round:
        n = len(self.model.features.searches)
        search = np.minimum((drawn["search"] * n).astype(np.int64), n - 1)
        searches = self.model.features.searches[search]
        features = self.model.features.of(self._hotels[None], searches[:, None])
        context = Context(int(t[0]), features, revenues=self.fixed_revenues(len(t)))
        return Round(context, drawn["response"], {"search": search})

    def summary(self) -> dict[str, Any]:
        """Return figures of data and fit as JSON values; for people, never for agents.

        Returns:
            ``data``, ``destination`` (None: all), ``searches``, ``hotels`` in the log, ``items``
            offered, ``dim``, ``user_features`` and ``hotel_features`` (counts);
            ``log_likelihood`` of the real choices and that of the null model, in which the
            hotels shown and the outside option are equally likely; ``pseudo_r2`` = 1 - their
            ratio (McFadden); ``correctly_ranked``: share of pairs (hotel chosen, hotel not
            chosen) of a search in which the chosen one has the higher utility;
            ``correctly_ranked_with_outside``: the same with the outside option as one more
            alternative; ``chosen_share``: share of searches with a choice, and as fitted;
            ``utility_quartiles`` over the pairs of the log; ``utilities``: theta by feature;
            ``dropped``: features that were dropped, and why; ``notes``.
        """
        data = self.model.data
        notes = list(data.notes)
        share = self.model.figures["chosen_share"]
        if share in (0.0, 1.0):
            which = "no search has" if share == 0.0 else "every search has"
            notes.append(f"{which} a choice: the outside option's weight cannot be estimated")
        return {
            "data": data.name,
            "destination": data.destination,
            "searches": len(data.users),
            "hotels": len(data.hotel_ids),
            "items": self.n_items,
            "dim": self.dim,
            "user_features": len(data.user_features),
            "hotel_features": len(data.hotel_features),
            **self.model.figures,
            "utilities": dict(zip(self.model.features.names, self.model.theta.tolist())),
            "dropped": dict(data.dropped),
            "notes": notes,
        }
