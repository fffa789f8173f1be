"""Features of (search, hotel) pairs and the choice model fitted to them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from dpb_gym import kernels, validation
from dpb_gym.errors import DataError
from dpb_gym.problems.base import Array
from dpb_gym.problems.fitting import fit_mnl
from dpb_gym.problems.norms import CONTEXT_NORMS, rescale, rescaled_bound

FEATURE_SETS = ("hotel", "hotel+interactions", "outer")
NORMS = (*CONTEXT_NORMS, "bound")
# Hotel and user features that are multiplied with each other in "hotel+interactions": what a
# price means depends on who pays it when, and how many stars one wants on those one had.
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


class Searches(Protocol):
    """What is needed of the encoded searches (`dpb_data.HotelChoices` has it)."""

    @property
    def name(self) -> str: ...
    @property
    def destination(self) -> int | None: ...
    @property
    def hotel_ids(self) -> Array: ...
    @property
    def hotels(self) -> Array: ...
    @property
    def hotel_features(self) -> tuple[str, ...]: ...
    @property
    def prices(self) -> Array: ...
    @property
    def users(self) -> Array: ...
    @property
    def user_features(self) -> tuple[str, ...]: ...
    @property
    def starts(self) -> Array: ...
    @property
    def shown(self) -> Array: ...
    @property
    def choice(self) -> Array: ...
    @property
    def dropped(self) -> dict[str, str]: ...
    @property
    def notes(self) -> tuple[str, ...]: ...


@dataclass(frozen=True, eq=False)
class PairFeatures:
    """Features of (search, hotel) pairs, each a product of a hotel's and a search's number.

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

    @property
    def dim(self) -> int:
        """Dimension d."""
        return len(self.names)

    def of(self, hotels: Array, searches: Array) -> Array:
        """Features of given pairs, float32 ``(n, d)``: the numbers that a round has."""
        return self._normalised(np.ascontiguousarray(self.hotels[hotels] * self.searches[searches]))

    def of_all(self, hotels: Array, searches: Array) -> Array:
        """Features float32 ``(B, N, d)`` of searches ``(B,)`` with hotel rows ``(N, d)``."""
        # Into an array in C order: the product alone may come out in another one, and
        # `_normalised` works in place on its rows.
        out = np.empty((len(searches), len(hotels), self.dim), np.float32)
        np.multiply(hotels[None, :, :], self.searches[searches][:, None, :], out=out)
        return self._normalised(out)

    def _normalised(self, features: Array) -> Array:
        if self.norm in ("clip", "scale"):
            rescale(features, self.norm)
        return features


def pair_features(
    data: Searches,
    feature_set: str = "hotel+interactions",
    context_norm: str = "raw",
    intercept: bool = False,
) -> PairFeatures:
    """Chooses the features of a pair.

    Args:
        data: Encoded searches.
        feature_set: ``"hotel"``: the hotel's features (d = d2, 10 with all of Table 1).
            ``"hotel+interactions"``: and the products named in `INTERACTIONS` (d <= 30).
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
    hotel_names, user_names = data.hotel_features, data.user_features
    pairs: list[tuple[int, int]] = []  # -1 stands for the constant 1
    if feature_set == "outer":
        pairs += [(i, j) for i in range(len(hotel_names)) for j in range(len(user_names))]
    else:
        pairs += [(i, -1) for i in range(len(hotel_names))]
    if feature_set == "hotel+interactions":
        for hotel, user in INTERACTIONS:
            pairs += [
                (i, j)
                for i, first in enumerate(hotel_names)
                for j, second in enumerate(user_names)
                if first.partition("=")[0] == hotel and second.partition("=")[0] == user
            ]
    if validation.flag("intercept", intercept):
        pairs.append((-1, -1))
    if not pairs:
        raise DataError(f"{data.name}: feature_set={feature_set!r} leaves no feature")
    one = (np.ones((len(data.hotels), 1)), np.ones((len(data.users), 1)))
    hotels = np.hstack([data.hotels, one[0]])[:, [i for i, _ in pairs]].astype(np.float32)
    searches = np.hstack([data.users, one[1]])[:, [j for _, j in pairs]].astype(np.float32)
    names = []
    for i, j in pairs:
        parts = [hotel_names[i]] if i >= 0 else []
        parts += [user_names[j]] if j >= 0 else []
        names.append(" * ".join(parts) or "intercept")
    if context_norm == "bound":
        hotels *= np.float32((1.0 - 1e-6) / largest_norm(hotels, searches))
    # The largest product of two float32 numbers is that of the largest magnitudes.
    magnitude = float((np.abs(hotels).max(axis=0) * np.abs(searches).max(axis=0)).max())
    if context_norm in CONTEXT_NORMS:
        magnitude = rescaled_bound(magnitude, context_norm, len(names))
    return PairFeatures(hotels, searches, tuple(names), context_norm, magnitude)


def largest_norm(hotels: Array, searches: Array) -> float:
    """Largest Euclidean norm of a row product, over all pairs of rows."""
    squares = np.square(hotels, dtype=np.float64)
    largest = 0.0
    for start in range(0, len(searches), _BLOCK):
        block = np.square(searches[start : start + _BLOCK], dtype=np.float64)
        # Not by BLAS: its bits depend on the number of threads.
        largest = max(largest, float(np.einsum("sk,ik->si", block, squares).max()))
    return float(np.sqrt(largest))


@dataclass(frozen=True, eq=False)
class HotelModel:
    """The multinomial logit fitted to the real choices: the truth of the simulation.

    Attributes:
        data: Encoded searches.
        features: Features of pairs.
        theta: Maximum-likelihood estimate ``(d,)``.
        figures: Quality of the fit; see `ExpediaProblem.summary`.
    """

    data: Searches
    features: PairFeatures
    theta: Array
    figures: Mapping[str, Any]


def fit_hotel_model(data: Searches, features: PairFeatures, ridge: float = 1.0) -> HotelModel:
    """Maximises sum_s log P(choice_s | shown_s) - ridge / 2 ||theta||^2.

    P is the multinomial logit over the hotels that search s was shown and the outside option,
    which has utility 0; choosing nothing is choosing it.

    Args:
        data: Encoded searches.
        features: Features of pairs.
        ridge: Weight of the penalty, positive.

    Raises:
        ParameterError: If `ridge` is not positive.
        DataError: If the fit fails.
    """
    ridge = validation.real("ridge", ridge, 0.0, open_low=True)
    n = len(data.users)
    offered = np.diff(data.starts)
    search = np.repeat(np.arange(n), offered)
    place = np.arange(len(data.shown)) - data.starts[search]
    rows = features.of(data.shown, search)
    theta = fit_mnl(rows, data.starts, data.choice, ridge, data.name)
    figures = _figures(data, rows, theta, search, place)
    return HotelModel(data, features, theta, figures)


def _figures(
    data: Searches, rows: Array, theta: Array, search: Array, place: Array
) -> dict[str, Any]:
    n = len(data.users)
    utility = np.empty((1, len(rows)))
    kernels.mnl.utilities(rows[None], theta[None], utility)
    u = utility[0]
    top = np.maximum(np.maximum.reduceat(u, data.starts[:-1]), 0.0)
    total = np.add.reduceat(np.exp(u - top[search]), data.starts[:-1]) + np.exp(-top)
    bought = data.choice >= 0
    chosen = np.zeros(n)
    chosen[bought] = u[data.starts[:-1][bought] + data.choice[bought]]
    # Pairs of the choice and another alternative; one half where they tie.
    others = place != data.choice[search]
    right = (chosen[search] > u) + 0.5 * (chosen[search] == u)
    hotels = others & bought[search]
    outside = (chosen[bought] > 0.0) + 0.5 * (chosen[bought] == 0.0)
    pairs = int(others.sum()) + int(bought.sum())
    likelihood = float(np.sum(chosen - top - np.log(total)))
    null = -float(np.sum(np.log1p(np.diff(data.starts))))
    return {
        "log_likelihood": likelihood,
        "null_log_likelihood": null,
        "pseudo_r2": 1.0 - likelihood / null,
        "correctly_ranked": float(right[hotels].mean()) if hotels.any() else None,
        "correctly_ranked_with_outside": float((right[others].sum() + outside.sum()) / pairs),
        "chosen_share": float(bought.mean()),
        "chosen_share_fitted": float(np.mean(1.0 - np.exp(-top) / total)),
        "utility_quartiles": [float(q) for q in np.quantile(u, (0.0, 0.25, 0.5, 0.75, 1.0))],
    }
