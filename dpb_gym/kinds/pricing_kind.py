"""Pricing: one price for each customer, who buys or does not."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import numpy as np

from dpb_gym import kernels, validation
from dpb_gym.envs.actions import ActionMode, ByIndex, Price
from dpb_gym.errors import ParameterError, shown
from dpb_gym.kinds.price_doubts import price_doubts
from dpb_gym.problems.base import Array, Context, Feedback, Hidden, Problem, ProblemInfo, Round
from dpb_gym.problems.exhaustive_search import expected_at
from dpb_gym.problems.kinds import Display, Kind, RoundRow
from dpb_gym.problems.log_form import LogForm, read_columns
from dpb_gym.problems.neighbours import AuditForm, Pair, World

GRID = 257
SECTIONS = 3  # local maxima of the grid that are refined
GOLDEN = 0.5 * (np.sqrt(5.0) - 1.0)
_PRICES = 101


def pricing_mode(info: ProblemInfo, n_prices: int | None = None) -> ActionMode:
    """Return the mode of a continuous price, or of `n_prices` prices 1/n, 2/n, ..., 1.

    With a `ProblemInfo.price_range`, prices are in it, and the `n_prices` are evenly spaced.
    """
    offered = info.price_range
    if n_prices is None:
        return Price() if offered is None else Price(*offered)
    count = validation.integer("n_prices", n_prices, 2, 1_000_000)
    prices = np.arange(1, count + 1) / count if offered is None else np.linspace(*offered, count)
    return ByIndex(prices, "price index")


class PricingAudit(AuditForm):
    """Customers in opposite or orthogonal corners, who buy or do not."""

    small = ("DPB/Pricing-v0", {"dim": 2})

    def response_range(self, info: ProblemInfo) -> tuple[float, float]:
        return (0.0, 1.0) if info.demand == "logistic" else super().response_range(info)

    def pairs(self, info: ProblemInfo) -> list[Pair]:
        low, high = self.response_range(info)
        corner = np.ones(info.dim - 1, np.float32)
        turned = corner * np.where(np.arange(info.dim - 1) % 2, -1.0, 1.0).astype(np.float32)
        both = World(corner, high), World(-corner, high)
        neither = World(corner, low), World(-corner, low)
        pairs = [
            Pair("corner +1 or -1, both buy", *both),
            Pair("corner +1 or -1, neither buys", *neither),
            Pair("corner +1 buys, -1 does not", World(corner, high), World(-corner, low)),
            Pair("corner +1, buys or not", World(corner, high), World(corner, low)),
            Pair("corner +1 or -1 does not buy, all others do", *neither, both),
            self._without_features(info),
        ]
        if info.dim > 2:
            pairs.append(Pair("orthogonal corners, buy", World(corner, high), World(turned, high)))
        return pairs

    def response_pairs(self, info: ProblemInfo) -> list[Pair]:
        return [*super().response_pairs(info), self._without_features(info)]

    def _without_features(self, info: ProblemInfo) -> Pair:
        """Return a pair in which a record has nearly no curvature if the dimension is large."""
        low, high = self.response_range(info)
        zeros = np.zeros(info.dim - 1, np.float32)
        name = f"features 0, response {low:g} or {high:g}"
        return Pair(name, World(zeros, low), World(zeros, high))

    def answer(self, world: World, info: ProblemInfo, context: Context, action: Array) -> Feedback:
        demand = np.full(len(action), float(world.response))
        return Feedback(action * demand, demand=demand)


class PricingLogs(LogForm):
    """Quoted prices and purchases; the problem is a `LoggedPricing`."""

    settings = ("extrapolate",)
    agents = ("one-pass-pricing", "greedy-pricing", "cils-pricing", "private-pricing")
    recommended = ("one-pass-pricing", "private-pricing")
    act = "Charge"
    collect = " with prices that vary more"
    rounds_alone = 1_500_000

    def takes(self, source: Any) -> bool:
        import dpb_data

        return isinstance(source, dpb_data.PriceTable)

    def read(self, source: Any, columns: Mapping[str, Any], settings: Mapping[str, Any]) -> Any:
        import dpb_data

        return read_columns(dpb_data.prices, Pricing.name, source, columns)

    def reading(self, kind: str, source: Any, given: Mapping[str, Any]) -> Any:
        import dpb_data

        return dpb_data.read(source, kind, **given)

    def problem(self, table: Any) -> Callable[..., Any]:
        return _logged()

    def releases(self, table: Any) -> bool:
        return True

    def unit(self, problem: Any, currency: str | None, reading: Any) -> tuple[str, float]:
        column = "price" if reading is None else reading.columns["price"].strip()
        return currency or problem.currency or f"units of {column}", problem.highest_price

    def options(self, problem: Any) -> Array:
        low, high = problem.info.price_range or (0.0, 1.0)
        return np.linspace(low, high, _PRICES)

    def label(self, problem: Any, action: Array, currency: str | None) -> str:
        price = float(action) * problem.highest_price
        return f"always {price:.4g} {currency or problem.currency}".strip()

    def doubts(self, problem: Any, data: Any) -> list[str]:
        """Return doubts about the variation and the origin of the prices."""
        doubts = price_doubts(data.features, data.price)
        slope = problem.fit.coefficients[-1]
        spread = problem.fit.draws(200)[:, -1].std()
        if slope < 2.0 * spread:
            doubts.append(
                "lack of variation: the effect of the price is not distinguishable from none"
            )
        return doubts


@functools.cache
def _logged() -> Callable[..., Any]:
    # imports SciPy, which simulations do without
    from dpb_gym.problems.fitting import Cached
    from dpb_gym.problems.logged import LoggedPricing

    return Cached(LoggedPricing)


class Pricing(Kind):
    """One price in [0, 1] for each customer."""

    name = "pricing"
    response = "demand"
    interface = ("n_prices",)
    integral = False
    one_price = True
    called = "prices"
    actions = staticmethod(pricing_mode)
    refuses = MappingProxyType({"available": "a price can always be asked"})
    audit = PricingAudit()
    logs = PricingLogs()

    def feature_shape(self, info: ProblemInfo) -> tuple[int, ...]:
        return (info.dim - 1,)

    def played(self, info: ProblemInfo, action: Array) -> Array:
        """Return the prices moved into `ProblemInfo.price_range`; impossible ones are unchanged."""
        if info.price_range is None:
            return action
        low, high = info.price_range
        moved = np.empty(action.shape)
        possible = kernels.demand_models.move_into(action.ravel(), low, high, moved.ravel())
        return moved if possible else action

    def random(self, info: ProblemInfo, uniforms: Array, available: Array | None = None) -> Array:
        if info.price_range is None:
            return uniforms.copy()
        low, high = info.price_range
        return low + uniforms * (high - low)

    def sizes(self, space: Any) -> dict[str, int] | None:
        """Return no sizes for a `Box` of one price on [0, 1]."""
        box = space.shape == (1,) and np.dtype(space.dtype).kind == "f"
        return {} if box else None

    def encode(self, action: Array, space: Any) -> Any:
        return np.array([action], space.dtype)

    def rows(self, context: Context, action: Array | None, feedback: Feedback | None) -> Display:
        if action is None or feedback is None or feedback.demand is None:
            return [RoundRow("customer", None, context.features)]
        price = float(action)
        demand = float(feedback.demand)
        mark = f"price {price:.3f}, demand {demand:.3g}"
        return [RoundRow("customer", price, context.features, mark, demand > 0)]

    def feedback(
        self, info: ProblemInfo, context: Context, action: Array, response: Any
    ) -> Feedback:
        """Return the feedback for a demand: a number, or whether it was bought."""
        demand = float(response) if isinstance(response, (bool, np.bool_)) else response
        demand = validation.real("demand", demand)
        if info.demand == "logistic" and demand not in (0.0, 1.0):
            raise ParameterError(f"demand must be 0 or 1, got {shown(response)}")
        seen = np.array([True])
        return Feedback(action * demand, demand=np.array([demand]), observed=seen)

    def intercept(self, dim: int) -> tuple[slice, float]:
        return slice(-1), float(np.sqrt(dim))

    def named_dim(self, actions: int | None, features: int) -> int | None:
        """Return one coefficient per feature, and one of the price."""
        return 1 + features

    def named_features(self, info: ProblemInfo, values: Array) -> Array:
        """Return the values without the constant, which the problem adds."""
        return values[1:]

    def action_schema(self, info: ProblemInfo, one: dict[str, Any]) -> dict[str, Any]:
        return {"type": "number", "minimum": 0.0, "maximum": 1.0}

    def check_searchable(self, what: str, info: ProblemInfo) -> None:
        """Accept every problem."""

    def search(
        self, problem: Problem, worlds: Sequence[Hidden], round_: Round
    ) -> tuple[Array, Array]:
        """Return the best prices of a grid of 257, whose three largest maxima are refined."""
        B = len(round_.uniform)
        grid = np.linspace(0.0, 1.0, GRID)
        lanes = np.repeat(np.arange(B), GRID)
        values = expected_at(problem, worlds, round_, lanes)(np.tile(grid, B)).reshape(B, GRID)
        wall = np.full((B, 1), -np.inf)
        around = np.hstack([wall, values, wall])
        peak: Array = (values >= around[:, :-2]) & (values >= around[:, 2:])
        # best peaks first; other entries are valid prices, too
        order = np.argsort(-np.where(peak, values, -np.inf), axis=1, kind="stable")
        top = grid[order[:, :SECTIONS]].ravel()
        value = expected_at(problem, worlds, round_, np.repeat(np.arange(B), SECTIONS))
        low = np.maximum(top - 1.0 / (GRID - 1), 0.0)
        high = np.minimum(top + 1.0 / (GRID - 1), 1.0)
        for _ in range(40):
            left = high - GOLDEN * (high - low)
            right = low + GOLDEN * (high - low)
            better = value(left) >= value(right)
            low = np.where(better, low, left)
            high = np.where(better, right, high)
        prices = np.stack([0.5 * (low + high), top], axis=1)  # ends of [0, 1] are on the grid
        revenues = np.stack([value(prices[:, 0]), value(prices[:, 1])], axis=1)
        best = revenues.reshape(B, -1).argmax(axis=1)
        return prices.reshape(B, -1)[np.arange(B), best], revenues.reshape(B, -1)[
            np.arange(B), best
        ]
