"""Assortment of hotels for searches from Expedia's logs (Cho & Sun, section 5.2)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from dpb_gym import validation
from dpb_gym.problems.assortment import AssortmentProblem
from dpb_gym.problems.base import Array, Context, Field, Hidden, Round
from dpb_gym.problems.expedia_model import HotelModel
from dpb_gym.streams import Stream

REVENUES = ("equal", "price")
DEFAULT_CAPACITY = 10


class ExpediaProblem(AssortmentProblem):
    """Every round a search arrives, drawn from the log with replacement; K of N hotels are shown.

    Semi-synthetic: features are real, the customer's choice is simulated from the multinomial
    logit that was fitted to the real choices. All N hotels can be offered in every round (as the
    paper; the log itself shows 5 to 38 of them), so N is fixed. theta is the same in all
    replicates; each replicate draws its searches and responses from streams of its own.

    Args:
        model: Fitted model.
        horizon: Rounds T, at least 2.
        n_items: N: the hotels shown most often (ties by id); all by default.
        capacity: K in 1..N; min(10, N) by default (the paper does not give its own).
        revenues: ``"equal"`` (all 1, as the paper) or ``"price"``: mean price of the hotel,
            divided by the largest.

    Raises:
        ParameterError: If a parameter is out of range.
    """

    def __init__(
        self,
        model: HotelModel,
        horizon: int = 100_000,
        n_items: int | None = None,
        capacity: int | None = None,
        revenues: str = "equal",
    ) -> None:
        data, features = model.data, model.features
        known = len(data.hotel_ids)
        count = known if n_items is None else validation.integer("n_items", n_items, 1, known)
        shown = np.bincount(data.shown, minlength=known)
        offered = np.sort(np.argsort(-shown, kind="stable")[:count])
        validation.choice("revenues", revenues, REVENUES)
        prices = data.prices[offered]
        super().__init__(
            horizon=horizon,
            n_items=count,
            capacity=min(DEFAULT_CAPACITY, count) if capacity is None else capacity,
            dim=features.dim,
            revenues="equal" if revenues == "equal" else prices / prices.max(),
            theta=model.theta,
        )
        self.data_name = data.name
        self.model = model
        self.context_norm = features.norm
        self.feature_bound = features.magnitude
        self.item_ids = data.hotel_ids[offered]
        """Original ids of the hotels, in the order of the items."""
        self._hotels = np.ascontiguousarray(features.hotels[offered])

    def draw_hidden(self, rng: np.random.Generator) -> Hidden:
        return {"theta": self.model.theta}

    def fields(self) -> dict[str, Field]:
        return {"search": Field((), np.float64, Stream.FEATURES)}

    def make_round(self, hidden: Hidden, drawn: Mapping[str, Array], t: Array) -> Round:
        n = len(self.model.features.searches)
        search = np.minimum((drawn["search"] * n).astype(np.int64), n - 1)
        features = self.model.features.of_all(self._hotels, search)
        B = len(search)
        if len(self._revenue_rows) < B:
            self._revenue_rows = np.tile(self.revenues, (B, 1))
        context = Context(int(t[0]), features, revenues=self._revenue_rows[:B])
        return Round(context, drawn["response"], {"search": search})

    def summary(self) -> dict[str, Any]:
        """What the problem stands on, ready for JSON; for people, never for agents.

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
            ``dropped``: why features are not there; ``notes``.
        """
        data = self.model.data
        notes = list(data.notes)
        share = self.model.figures["chosen_share"]
        if share in (0.0, 1.0):
            which = "no search has" if share == 0.0 else "every search has"
            notes.append(f"{which} a choice: the data do not tell the outside option's weight")
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
