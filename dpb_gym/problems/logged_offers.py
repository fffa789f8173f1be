"""Assortments with prices for the customers of a log of choices among priced items."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from dpb_gym import validation
from dpb_gym.errors import DataError, ParameterError, shown
from dpb_gym.problems import logged_figures
from dpb_gym.problems.assortment_pricing import AssortmentPricingProblem
from dpb_gym.problems.base import Array
from dpb_gym.problems.fitting import Bounds, check_features, fit_log, scale
from dpb_gym.problems.log_likelihood import ChoiceSets, spreads
from dpb_gym.problems.logged import (
    SMALLER,
    Logged,
    check_falls,
    effect_figures,
    fit_once,
    moved_doubt,
)

if TYPE_CHECKING:
    from dpb_data import ChoiceTable

PRICE = "price"
"""Name of the column of prices in the table."""


def _priced_sets(data: ChoiceTable, outside: Any) -> ChoiceTable:
    """Return the choice sets of a log, without the item that stands for buying nothing.

    Raises:
        ParameterError: If the log has no column of prices.
        DataError: If a price is negative, or no set is without a choice.
    """
    if PRICE not in data.feature_names:
        raise ParameterError(
            f"{data.name}: prices are missing: name their column, price=one of "
            f"{', '.join(data.feature_names)}"
        )
    sets = data if outside is None else _without(data, outside)
    if (sets.chosen >= 0).all():
        raise DataError(
            f"{data.name}: every set has a choice, which does not tell how many would buy "
            f"nothing: name the outside option, outside=one of {shown(data.item_ids.tolist())}"
        )
    check_features(sets.features, sets.feature_names, sets.starts, sets.chosen, sets.name)
    lowest = sets.features[:, sets.feature_names.index(PRICE)].min()
    if lowest < 0.0:
        raise DataError(f"{data.name}: a price is negative, {lowest:g}")
    return sets


class LoggedAssortmentPricing(Logged, AssortmentPricingProblem):
    """Assortments with prices for the choice sets of a log, with choices by a fitted logit.

    Every item has a value and a price sensitivity of its own, and effects of the features on both.
    Prices and rewards are in units of the highest price of the log. Every item can be offered in
    every round; one that is missing from a set gets its mean features.

    Args:
        data: The log, with a feature ``"price"`` in every row. Sets without a choice say how many
            customers buy nothing.
        horizon: Rounds T, at least 2.
        ridge: Weight of the squared coefficients of standardised features; values and price
            sensitivities of items have none. By default chosen by the likelihood of held-out
            customers.
        bounds: Public lowest and highest value of features, and of the price (only the highest
            counts).
        outside: Item that stands for buying nothing; its features do not count. None if the log
            has sets without a choice.
        capacity: K; by default the number of items in the log's largest offer.
        extrapolate: Whether all prices from 0 to the highest can be played. By default only those
            between the lowest and the highest of the log can.
        draws: See `Logged.set_customers`.
        part: See `Logged.set_customers`.
        log_scale: Features whose logarithm, log(1 + value), is used; not the price.

    Raises:
        DataError: If there are too few sets, no set without a choice, or choices that rise with
            the price.
        ParameterError: If the log has no column of prices, or an argument is invalid.
    """

    def __init__(
        self, data: ChoiceTable, horizon: int = 10_000, ridge: float | None = None,
        bounds: Bounds | None = None, outside: Any = None, capacity: int | None = None,
        extrapolate: bool = False, draws: int = 0, part: str = "all",
        log_scale: Sequence[str] = (),
    ) -> None:  # fmt: skip
        sets = _priced_sets(data, outside)
        at = sets.feature_names.index(PRICE)
        raw = sets.features[:, at]
        scaled, self.bounds, notes = scale(
            sets.features, sets.feature_names, bounds, sets.name, log_scale
        )
        notes = [*data.notes, *notes]
        self.item_ids, N = sets.item_ids, len(sets.item_ids)
        self.highest_price = self.bounds[PRICE][1]
        price = np.minimum(raw / self.highest_price, 1.0)
        others = [k for k in range(len(sets.feature_names)) if k != at]
        x = np.column_stack([np.eye(N)[sets.items], scaled[:, others]]).astype(np.float32)
        rows = np.column_stack([x, -price[:, None] * x]).astype(np.float32)
        about = [
            *(f"is {item}" for item in self.item_ids),
            *(sets.feature_names[k] for k in others),
        ]
        names = (*about, *(f"price, {name}" for name in about))
        width = len(about)
        spread = spreads(rows)
        spread[:N] = 0.0
        spread[width : width + N] = 0.0
        choices = ChoiceSets(rows, sets.starts, sets.chosen)
        key = ("assortment-pricing", data.digest(), ridge, str(self.bounds), str(outside))
        self.fit = fit_once(
            (*key, tuple(log_scale), *notes),
            lambda: fit_log(choices, sets.people, ridge, spread, names, notes, data.name),
        )
        self.rows, self.repairs = rows, data.notes
        self._sets = sets
        self._prices = price
        (self.elasticity,) = self.fit.effects(self._mean_elasticity)
        check_falls(
            self.elasticity, "choices", data.name,
            "Prices perhaps stand for quality, or followed demand: give what they depend on as "
            "features. Or too few prices were tried to see their effect",
        )  # fmt: skip
        most = int(np.diff(sets.starts).max()) if capacity is None else capacity
        super().__init__(horizon, N, most, len(names), theta=self.fit.coefficients)
        if not validation.flag("extrapolate", extrapolate):
            self.info = replace(self.info, price_range=(float(price.min()), float(price.max())))
        group = np.repeat(np.arange(sets.n_sets), np.diff(sets.starts))
        contexts = np.broadcast_to(_means(x, sets.items, N), (sets.n_sets, N, width)).copy()
        contexts[group, sets.items] = x
        taken = np.maximum(sets.starts[:-1] + sets.chosen, 0)
        self.set_today(np.where(sets.chosen >= 0, price[taken], 0.0), sets.people)
        shown_effect = {"the mean price elasticity": self.elasticity}
        self.doubts = (*moved_doubt(shown_effect, SMALLER), *self.fit.doubts)
        self.set_customers(data.name, contexts, sets.people, draws, part)

    def _mean_elasticity(self, coefficients: Array) -> Array:
        """Return the mean of the items' own price elasticities over the rows ``(1,)``."""
        starts = self._sets.starts
        return np.array([logged_figures.offer_elasticity(self.rows, starts, coefficients)])

    def log_values(self, thetas: Array, who: Array, shares: Array) -> Array:
        sets = self._sets
        some = np.zeros(sets.n_sets, np.bool_)
        some[who] = True
        part = ChoiceSets(self.rows, sets.starts, sets.chosen).keep(some)
        earned = self._prices[np.repeat(some, np.diff(sets.starts))]
        return np.array(
            [logged_figures.logged_slate_value(part.rows, part.starts, theta, earned, share)
             for theta, share in zip(thetas, shares)]
        )  # fmt: skip

    def summary(self) -> dict[str, Any]:
        return self.fit_summary(
            items=self.item_ids.tolist(),
            coefficients=dict(zip(self.fit.names, self.fit.coefficients.tolist())),
            price_elasticity=self.elasticity.value,
            price_elasticity_with_interval=effect_figures(self.elasticity),
            price_unit=self.highest_price,
            revenue_per_customer_in_the_log=self.today[0] * self.highest_price,
        )


def _without(sets: ChoiceTable, outside: Any) -> ChoiceTable:
    """Return choice sets without the item that stands for buying nothing, leave out empty ones."""
    matches = np.flatnonzero(sets.item_ids.astype(str) == str(outside))
    if len(matches) == 0:
        raise ParameterError(
            f"outside must be one of {shown(sets.item_ids.tolist())}, got {shown(outside)}"
        )
    sizes = np.diff(sets.starts)
    group = np.repeat(np.arange(sets.n_sets), sizes)
    kept = sets.items != matches[0]
    left = np.bincount(group[kept], minlength=sets.n_sets)
    usable = left > 0
    row_of = np.full(sets.n_sets, len(sets.items))
    row_of[group[~kept]] = np.flatnonzero(~kept)
    taken = sets.starts[:-1] + sets.chosen
    none = (sets.chosen < 0) | (taken == row_of)
    chosen = np.where(none, -1, sets.chosen - (row_of < taken))
    return replace(
        sets,
        starts=np.append(0, np.cumsum(left[usable])).astype(np.int64),
        items=sets.items[kept] - (sets.items[kept] > matches[0]),
        item_ids=np.delete(sets.item_ids, matches[0]),
        features=sets.features[kept],
        chosen=chosen[usable],
        people=None if sets.people is None else sets.people[usable],
    )


def _means(x: Array, items: Array, count: int) -> Array:
    """Return the mean features of every item, float32 ``(N, m)``."""
    total = np.zeros((count, x.shape[1]))
    np.add.at(total, items, x)
    means: Array = (total / np.bincount(items, minlength=count)[:, None]).astype(np.float32)
    return means
