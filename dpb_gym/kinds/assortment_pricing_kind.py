"""Assortments with prices: at most K of N items, and the price of each."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Any

import gymnasium
import numpy as np

from dpb_gym import kernels, validation
from dpb_gym.envs.actions import ActionMode
from dpb_gym.errors import ActionError, ParameterError
from dpb_gym.problems.base import Array, Context, Feedback, ProblemInfo
from dpb_gym.problems.kinds import Display, Kind, RoundRow
from dpb_gym.problems.log_form import LogForm, frequent_rows, read_columns
from dpb_gym.problems.neighbours import AuditForm, Pair, World, unit_vector

PRICE = "price"
LEFT_OUT = -1.0
"""Entry of an offer for an item that is left out."""
_LEADING_BITS = 2.0**26  # of a uniform, which choose the items; the others are the price
_FACTORS = np.linspace(0.6, 1.4, 9)  # of prices that may suit all customers
_SETS = 5  # of items that may suit all customers


class ScoredPrices(ActionMode):
    """A score in [-1, 1] and a price per item; the K items of largest score are offered.

    Of equal scores the lower index comes first. The best offer always has K items, since a high
    enough price of a further item only adds revenue.
    """

    def __init__(self, info: ProblemInfo) -> None:
        n = info.n_items or 0
        low, high = info.price_range or (0.0, 1.0)
        lowest = np.stack([np.full(n, -1.0), np.full(n, low)]).astype(np.float32)
        highest = np.stack([np.ones(n), np.full(n, high)]).astype(np.float32)
        self.space = gymnasium.spaces.Box(lowest, highest, (2, n), np.float32)
        self._capacity = info.capacity or 0

    def decode(self, actions: Any, replicates: int | None = None) -> Array:
        rows = self.batch(actions, replicates, False, "scores and prices")
        scores = rows[:, 0]
        prices = rows[:, 1]
        if not np.isfinite(scores).all():
            raise ActionError("scores must be finite, got NaN or infinity")
        if not ((prices >= 0.0) & (prices <= 1.0)).all():
            raise ActionError("prices must be in [0, 1]")
        offers = np.full(prices.shape, LEFT_OUT)
        picked = np.empty(self._capacity, np.int64)
        keys = np.empty(prices.shape[1], np.int64)
        for score, price, offer in zip(scores, prices, offers):
            kernels.mnl.top_indices(score, self._capacity, -np.inf, picked, keys)
            offer[picked] = price[picked]
        return offers


class PriceLevels(ActionMode):
    """A number 0..n per item: 0 leaves it out, k is the k-th of n prices; the first K count."""

    def __init__(self, info: ProblemInfo, levels: Array) -> None:
        self.space = gymnasium.spaces.MultiDiscrete([len(levels) + 1] * (info.n_items or 0))
        self._prices = np.append(LEFT_OUT, levels)
        self._capacity = info.capacity or 0

    def decode(self, actions: Any, replicates: int | None = None) -> Array:
        index = self.batch(actions, replicates, True, "price levels")
        most = len(self._prices) - 1
        if not ((index >= 0) & (index <= most)).all():
            raise ActionError(f"price levels must be in 0..{most}, where 0 leaves an item out")
        offers = self._prices[index]
        later = np.cumsum(offers >= 0.0, axis=1) > self._capacity
        return np.where(later, LEFT_OUT, offers)

    def permitted(self, available: Array) -> Array:
        # an item can always be left out, and have a price if it is available
        levels = np.repeat(available[:, None], len(self._prices), axis=1)
        levels[:, 0] = True
        return levels.ravel()


def offer_mode(info: ProblemInfo, n_prices: int | None = None) -> ActionMode:
    """Return the mode of scores and prices, or of `n_prices` prices for each item.

    The `n_prices` are 1/n, 2/n, ..., 1; with a `ProblemInfo.price_range` they are evenly spaced.
    """
    if n_prices is None:
        return ScoredPrices(info)
    count = validation.integer("n_prices", n_prices, 2, 1000)
    levels = np.arange(1, count + 1) / count
    if info.price_range is not None:
        levels = np.linspace(*info.price_range, count)
    return PriceLevels(info, levels)


class AssortmentPricingAudit(AuditForm):
    """Customers with equal or opposite items, who buy one of them or nothing."""

    small = ("DPB/AssortmentPricing-v0", {"n_items": 5, "capacity": 4, "dim": 4})

    def response_range(self, info: ProblemInfo) -> tuple[float, float]:
        return 0.0, 1.0

    def pairs(self, info: ProblemInfo) -> list[Pair]:
        n = info.n_items or 1
        m = info.dim // 2
        signs = np.where(np.arange(n) % 2, -1.0, 1.0)[:, None]

        def same(degrees: float, buys: float) -> World:
            items = np.tile(unit_vector(m, degrees), (n, 1))
            return World(items.astype(np.float32), buys)

        def mixed(norm: float, sign: float) -> World:
            x = norm * unit_vector(m)
            return World((signs * x).astype(np.float32), 1.0, taste=sign * x)

        return [
            Pair("all items e1 or all items e2, both buy", same(0, 1), same(90, 1)),
            Pair("all items e1 or all items e2, neither buys", same(0, 0), same(90, 0)),
            Pair("all items e1 or all items -e1, both buy", same(0, 1), same(180, 1)),
            Pair("all items e1, buys or not", same(0, 1), same(0, 0)),
            Pair("items x and -x, buys x or -x", mixed(1.0, 1), mixed(1.0, -1)),
            # nearly no curvature, so that the response has the whole sensitivity
            Pair("items x and -x, norm 0.1, buys x or -x", mixed(0.1, 1), mixed(0.1, -1)),
        ]

    def answer(self, world: World, info: ProblemInfo, context: Context, action: Array) -> Feedback:
        lanes = np.arange(len(action))
        offered = action >= 0.0
        taste = np.zeros(info.dim // 2) if world.taste is None else world.taste
        liking = np.where(offered, (context.features * taste).sum(axis=2), -np.inf)
        bought = np.where(offered.any(axis=1) & bool(world.response), liking.argmax(axis=1), -1)
        reward = np.where(bought >= 0, action[lanes, np.maximum(bought, 0)], 0.0)
        return Feedback(reward, choice=bought)


class AssortmentPricingLogs(LogForm):
    """Choice sets with prices; the problem is a `LoggedAssortmentPricing`."""

    settings = ("outside", "capacity", "extrapolate")
    agents = ("one-pass-offers", "mle-offers")
    recommended = ("one-pass-offers",)
    act = "Offer"
    collect = " with prices that vary more"

    def takes(self, source: Any) -> bool:
        import dpb_data

        return isinstance(source, dpb_data.ChoiceTable)

    def read(self, source: Any, columns: Mapping[str, Any], settings: Mapping[str, Any]) -> Any:
        """Return the `dpb_data.ChoiceTable`, whose column `price` is named as such.

        Args:
            source: See `dpb_gym.from_log`.
            columns: Those of `dpb_data.choices`, and ``price``.
            settings: None has an effect.
        """
        import dpb_data

        if PRICE not in columns:
            raise ParameterError(f"name the column of prices: price=, beside {', '.join(columns)}")
        given = dict(columns)
        price = given.pop(PRICE)
        features = given.pop("features", ())
        listed = [features] if isinstance(features, str) else [*features]
        given["features"] = [name for name in listed if name != price] + [price]
        table = read_columns(dpb_data.choices, AssortmentPricing.name, source, given)
        names = tuple(PRICE if name == price else name for name in table.feature_names)
        return replace(table, feature_names=names)

    def problem(self, table: Any) -> Callable[..., Any]:
        return _logged()

    def unit(self, problem: Any, currency: str | None, reading: Any) -> tuple[str, float]:
        return currency or "units of price", problem.highest_price

    def options(self, problem: Any) -> Array:
        """Return the sets of items that are best most often, at multiples of their mean prices."""
        best = problem.rounds_under(problem.theta).best[0]
        low, high = problem.info.price_range or (0.0, 1.0)
        offers = []
        for items in frequent_rows(best >= 0.0, _SETS):
            prices = best[(best[:, items] >= 0.0).all(axis=1)][:, items].mean(axis=0)
            for factor in _FACTORS:
                offer = np.full(best.shape[1], LEFT_OUT)
                offer[items] = np.clip(factor * prices, low, high)
                offers.append(offer)
        return np.array(offers)

    def label(self, problem: Any, action: Array, currency: str | None) -> str:
        unit = f" {currency}" if currency else ""
        offered = [
            f"{problem.item_ids[i]} at {action[i] * problem.highest_price:.4g}{unit}"
            for i in np.flatnonzero(action >= 0.0)
        ]
        return f"always {', '.join(offered)}"


@functools.cache
def _logged() -> Callable[..., Any]:
    # imports SciPy, which simulations do without
    from dpb_gym.problems.fitting import Cached
    from dpb_gym.problems.logged_offers import LoggedAssortmentPricing

    return Cached(LoggedAssortmentPricing)


class AssortmentPricing(Kind):
    """Offers ``(B, N)``: a price in [0, 1] for at most K of N items, -1 for the others.

    The customer buys one item or nothing; ``choice`` is the item's index, -1 for nothing.
    """

    name = "assortment-pricing"
    response = "choice"
    interface = ("n_prices",)
    actions = staticmethod(offer_mode)
    integral = False
    called = "offers"
    nothing = -1
    refuses = MappingProxyType(
        {
            "types": "the best prices for several types of customers cannot be searched",
            "stock": "the season's optimum is known for items of given revenues only",
            "intercept": "a constant of the features would also change the price sensitivity",
        }
    )
    audit = AssortmentPricingAudit()
    logs = AssortmentPricingLogs()

    def feature_shape(self, info: ProblemInfo) -> tuple[int, ...]:
        assert info.n_items is not None
        return info.n_items, info.dim // 2

    def action_shape(self, info: ProblemInfo) -> tuple[int, ...]:
        assert info.n_items is not None
        return (info.n_items,)

    def played(self, info: ProblemInfo, action: Array) -> Array:
        """Return the offers with prices moved into `ProblemInfo.price_range`."""
        if info.price_range is None:
            return action
        low, high = info.price_range
        offered = (action >= 0.0) & (action <= 1.0)
        return np.where(offered, np.clip(action, low, high), action)

    def random(self, info: ProblemInfo, uniforms: Array, available: Array | None = None) -> Array:
        """Return K random items, or all that are available, at random prices."""
        scaled = uniforms * _LEADING_BITS
        scores = np.floor(scaled)
        low, high = info.price_range or (0.0, 1.0)
        prices = low + (scaled - scores) * (high - low)
        if available is not None:
            scores = np.where(available, scores, np.inf)
        chosen = np.argsort(scores, axis=1, kind="stable")[:, : info.capacity]
        offers = np.full(uniforms.shape, LEFT_OUT)
        np.put_along_axis(offers, chosen, np.take_along_axis(prices, chosen, axis=1), axis=1)
        return offers if available is None else np.where(available, offers, LEFT_OUT)

    def offered(self, action: Array) -> Array:
        return np.where(action >= 0.0, np.arange(action.shape[1]), -1)

    def shown(self, action: Array) -> Any:
        """Return the prices of the offered items by their numbers."""
        return {int(i): float(action[i]) for i in np.flatnonzero(action >= 0.0)}

    def feedback(
        self, info: ProblemInfo, context: Context, action: Array, response: Any
    ) -> Feedback:
        """Return the feedback for the item that was bought, or None."""
        item = -1
        earned = 0.0
        if response is not None:
            item = validation.integer("the item that was bought", response, 0)
            if item not in self.shown(action[0]):
                raise ParameterError(f"item {item} was not offered: {[*self.shown(action[0])]}")
            earned = float(action[0, item])
        seen = np.array([True])
        return Feedback(np.array([earned]), choice=np.array([item]), observed=seen)

    def stack(self, info: ProblemInfo, actions: Sequence[Any], agent: str) -> Array:
        return np.asarray(super().stack(info, actions, agent), np.float64)

    def rows(self, context: Context, action: Array | None, feedback: Feedback | None) -> Display:
        prices = np.full(len(context.features), LEFT_OUT) if action is None else action
        bought = -1 if feedback is None or feedback.choice is None else int(feedback.choice)
        rows = []
        for i, price in enumerate(prices.tolist()):
            if action is not None and price < 0.0:
                continue
            mark = "bought" if i == bought else "" if action is None else "offered"
            value = None if action is None else price
            rows.append(RoundRow(f"item {i}", value, context.features[i], mark, i == bought))
        return rows
