"""Generated price logs whose demand is known, for checks of `dpb_gym.advise`.

Demand is chosen so that a fit that flattens it, narrows its intervals or extrapolates fails: narrow
bands of prices, steep and flat demand, few rows, long tails, persons with several rows, units sold
to visitors, features without effect, and demand that is not of the fitted form.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr

Array = NDArray[Any]
Demand = Callable[[Array, Mapping[str, Array]], Array]
LARGE = 100_000
"""Customers over whom true earnings are computed."""


@dataclass(frozen=True)
class Truth:
    """A generated log and what is true of it.

    Attributes:
        name: Kind of the log.
        problem: ``"pricing"``, ``"assortment"`` or ``"recommendation"``.
        frame: Columns.
        settings: Arguments of `dpb_gym.advise`.
        today: Expected reward per customer of the log's own actions.
        elasticity: Mean price elasticity of the customers, or None.
        fixed: Expected reward per customer of a price, a list of items, or an item for all.
        demand: Prices: probability of buying, given prices ``(n,)`` and features.
    """

    name: str
    problem: str
    frame: dict[str, Array]
    settings: dict[str, Any]
    today: float
    elasticity: float | None
    fixed: Callable[[Any], float]
    demand: Demand | None = None


def of_prices(
    name: str, frame: dict[str, Array], settings: dict[str, Any], demand: Demand,
    price: Array, x: Mapping[str, Array],
) -> Truth:  # fmt: skip
    """Return the truth of a price log, from prices and features of many customers."""
    up, down = demand(1.001 * price, x), demand(0.999 * price, x)
    slopes = (np.log(up) - np.log(down)) / (np.log(1.001) - np.log(0.999))
    settings = {"price": "price", "features": list(x), **settings}

    def fixed(one: float) -> float:
        return one * float(np.mean(demand(np.full_like(price, one), x)))

    today = float(np.mean(price * demand(price, x)))
    return Truth(name, "pricing", frame, settings, today, float(slopes.mean()), fixed, demand)


def sigmoid(u: Array) -> Array:
    """Return 1 / (1 + exp(-u))."""
    return 1.0 / (1.0 + np.exp(-u))


def level_of(slope: float, middle: float, elasticity: float) -> float:
    """Return the level at which logit demand has an elasticity at the middle price."""
    share = 1.0 + elasticity / (slope * middle)
    return float(np.log(share / (1.0 - share)) + slope * middle)


def _made(
    name: str, n: int, price: Callable[[Any, int], Array], about: Callable[[Any, int], Any],
    demand: Demand, seed: int, **settings: Any,
) -> Truth:  # fmt: skip
    rng = np.random.default_rng(seed)
    prices, x = price(rng, n), about(rng, n)
    bought = (rng.random(n) < demand(prices, x)).astype(int)
    frame = {"price": prices, "bought": bought, **x}
    many = np.random.default_rng(10**6 + seed)
    quoted = price(many, LARGE)
    return of_prices(name, frame, {"bought": "bought", **settings}, demand, quoted,
                     about(many, LARGE))  # fmt: skip


def _nothing(rng: Any, n: int) -> dict[str, Array]:
    return {}


def _between(low: float, high: float) -> Callable[[Any, int], Array]:
    return lambda rng, n: rng.uniform(low, high, n)


def narrow(seed: int) -> Truth:
    """Return quotes within 10% of 100, with an elasticity between -1.2 and -5."""
    elasticity = -np.random.default_rng(seed).uniform(1.2, 5.0)
    slope = (1.0 - elasticity) / 100.0
    level = level_of(slope, 100.0, elasticity)
    return _made("narrow band", 5_000, _between(90, 110), _nothing,
                 lambda p, x: sigmoid(level - slope * p), seed)  # fmt: skip


def steep(seed: int) -> Truth:
    """Return quotes over a wide range, with steep demand."""
    rng = np.random.default_rng(seed)
    slope, level = rng.uniform(0.6, 1.2), rng.uniform(2.0, 4.0)

    def about(rng: Any, n: int) -> dict[str, Array]:
        return {"age": rng.uniform(18, 80, n)}

    def demand(p: Array, x: Mapping[str, Array]) -> Array:
        return sigmoid(level + 0.02 * (x["age"] - 50) - slope * p)

    return _made("steep demand", 1_500, _between(2, 9), about, demand, seed)


def few(seed: int) -> Truth:
    """Return 200 quotes."""
    rng = np.random.default_rng(seed)
    slope = rng.uniform(0.4, 0.8)
    return _made("few rows", 200, _between(2, 9), _nothing,
                 lambda p, x: sigmoid(2.5 - slope * p), seed)  # fmt: skip


def long_tail(seed: int) -> Truth:
    """Return quotes to customers whose income has a long tail; its logarithm matters."""

    def about(rng: Any, n: int) -> dict[str, Array]:
        return {"income": np.exp(rng.normal(10.0, 1.5, n))}

    return _made("long tail", 1_500, _between(5, 25), about,
                 lambda p, x: sigmoid(1.5 + 0.5 * (np.log(x["income"]) - 10.0) - 0.18 * p), seed,
                 log_scale=["income"])  # fmt: skip


def panel(seed: int) -> Truth:
    """Return 30 quotes to each of 60 households with their own level."""
    rng = np.random.default_rng(seed)
    own = rng.normal(0.0, 1.0, 60)
    who = np.repeat(np.arange(60), 30)
    price = rng.uniform(1, 5, len(who))
    bought = (rng.random(len(who)) < sigmoid(2.5 + own[who] - price)).astype(int)
    nodes, weights = np.polynomial.hermite_e.hermegauss(21)

    def demand(p: Array, x: Mapping[str, Array]) -> Array:
        mean: Array = sum(  # type: ignore[assignment]
            w * sigmoid(2.5 + z - p) for z, w in zip(nodes, weights / weights.sum())
        )
        return mean

    many = np.random.default_rng(10**6 + seed).uniform(1, 5, LARGE)
    frame = {"price": price, "bought": bought, "household": who}
    settings = {"bought": "bought", "person": "household"}
    return of_prices("panel", frame, settings, demand, many, {})


def units(seed: int) -> Truth:
    """Return daily prices, visitors and units sold."""
    rng = np.random.default_rng(seed)
    slope = rng.uniform(0.8, 1.4)
    price, visitors = rng.choice(np.linspace(2, 4, 9), 120), rng.poisson(40, 120) + 1
    sold = rng.binomial(visitors, sigmoid(2.0 - slope * price))
    many = np.random.default_rng(10**6 + seed).choice(np.linspace(2, 4, 9), LARGE)
    frame = {"price": price, "units": sold, "visitors": visitors}
    settings = {"bought": "units", "offered": "visitors"}
    return of_prices("units", frame, settings, lambda p, x: sigmoid(2.0 - slope * p), many, {})


def noise(seed: int) -> Truth:
    """Return quotes with eight features, of which six have no effect."""

    def about(rng: Any, n: int) -> dict[str, Array]:
        return {f"x{k}": rng.normal(size=n) for k in range(8)}

    def demand(p: Array, x: Mapping[str, Array]) -> Array:
        return sigmoid(2.0 + 0.6 * x["x0"] - 0.6 * x["x1"] - 0.35 * p)

    return _made("features without effect", 800, _between(3, 12), about, demand, seed)


def flexible(seed: int) -> Truth:
    """Return quotes with demand of another form: probit, or two classes of customers."""
    rng = np.random.default_rng(seed)
    share = rng.uniform(0.3, 0.7)

    def about(rng: Any, n: int) -> dict[str, Array]:
        return {"age": rng.uniform(-1, 1, n)}

    def classes(p: Array, x: Mapping[str, Array]) -> Array:
        first = sigmoid(1.5 + x["age"] - 0.5 * p)
        return share * first + (1.0 - share) * sigmoid(3.0 - x["age"] - 0.8 * p)

    def probit(p: Array, x: Mapping[str, Array]) -> Array:
        return np.asarray(ndtr(1.2 + 0.4 * x["age"] - 0.25 * p))

    form = classes if seed % 2 else probit
    return _made("another form", 1_500, _between(2, 9), about, form, seed)


def trips(seed: int, n: int = 800) -> Truth:
    """Return choices among a car, a bus and a train whose costs have a narrow or a wide range."""
    rng = np.random.default_rng(seed)
    slope, width = rng.uniform(0.3, 1.0), rng.uniform(0.5, 4.0)
    levels = np.array([0.0, rng.normal(), rng.normal()])

    def costs(rng: Any, n: int) -> Array:
        return np.asarray(6.0 + rng.uniform(-width, width, (n, 3)))

    def shares(cost: Array, offered: Array) -> Array:
        weight = np.exp(levels - slope * cost) * offered
        return np.asarray(weight / weight.sum(axis=1, keepdims=True))

    cost = costs(rng, n)
    took = (levels - slope * cost + rng.gumbel(size=cost.shape)).argmax(axis=1)
    frame = {
        "case": np.repeat(np.arange(n), 3), "alt": np.tile(["car", "bus", "train"], n),
        "cost": cost.ravel(), "chosen": (np.arange(3) == took[:, None]).astype(int).ravel(),
    }  # fmt: skip
    settings = {
        "case": "case", "item": "alt", "chosen": "chosen", "features": ["cost"], "outside": "car",
        "revenue": "cost", "capacity": 2,
    }  # fmt: skip
    many = costs(np.random.default_rng(10**6 + seed), LARGE)

    def fixed(items: Any) -> float:
        offered = np.array([1.0, *(float(name in items) for name in ("bus", "train"))])
        return float(np.mean((shares(many, offered) * many)[:, 1:].sum(axis=1)))

    today = float(np.mean((shares(many, np.ones(3)) * many)[:, 1:].sum(axis=1)))
    return Truth("choices", "assortment", frame, settings, today, None, fixed)


def clicks(seed: int, n: int = 3_000) -> Truth:
    """Return clicks on eight items of similar or different rates, shown with unequal chances."""
    rng = np.random.default_rng(seed)
    rates = np.clip(rng.normal(0.15, rng.uniform(0.0, 0.1), 8), 0.01, 0.9)
    chances = rng.dirichlet(np.full(8, 5.0))
    item = rng.choice(8, n, p=chances)
    frame = {
        "ad": np.array(list("abcdefgh"))[item], "p": chances[item],
        "click": (rng.random(n) < rates[item]).astype(int),
    }  # fmt: skip
    settings = {"item": "ad", "reward": "click", "propensity": "p", "features": []}
    names = dict(zip("abcdefgh", rates.tolist()))
    today = float(rates @ chances)
    return Truth("clicks", "recommendation", frame, settings, today, None,
                 lambda item: names[item])  # fmt: skip


GENERATED = (narrow, steep, few, long_tail, panel, units, noise, flexible, trips, clicks)
"""Generators of logs, by seed."""


def _aged(rng: Any, n: int) -> dict[str, Array]:
    return {"age": rng.uniform(-1, 1, n)}


def _other(
    name: str, about: Callable[[Any, int], Any], demand: Demand, seed: int
) -> Truth:  # fmt: skip
    return _made(name, 1_500, _between(2, 9), about, demand, seed)


def probit(seed: int) -> Truth:
    """Return quotes to customers whose limits are normal."""
    slope = np.random.default_rng(seed).uniform(0.15, 0.35)
    return _other("probit", _aged, lambda p, x: np.asarray(
        ndtr(1.2 + 0.4 * x["age"] - slope * p)), seed)  # fmt: skip


def lognormal(seed: int) -> Truth:
    """Return quotes to customers whose limits are lognormal."""
    rng = np.random.default_rng(seed)
    mean, spread = rng.uniform(1.2, 1.8), rng.uniform(0.3, 0.7)
    return _other("lognormal limits", _aged, lambda p, x: np.asarray(
        ndtr((mean + 0.2 * x["age"] - np.log(p)) / spread)), seed)  # fmt: skip


def two_classes(seed: int) -> Truth:
    """Return quotes to two classes of customers, on whom age has opposite effects."""
    share = np.random.default_rng(seed).uniform(0.3, 0.7)
    return _other("two classes", _aged, lambda p, x: (
        share * sigmoid(1.5 + x["age"] - 0.5 * p)
        + (1.0 - share) * sigmoid(3.0 - x["age"] - 0.8 * p)), seed)  # fmt: skip


def saturated(seed: int) -> Truth:
    """Return quotes to customers of whom a part never buys."""
    rng = np.random.default_rng(seed)
    share, slope = rng.uniform(0.3, 0.8), rng.uniform(0.5, 1.2)
    return _other("a part never buys", _aged, lambda p, x: (
        share * sigmoid(4.0 + x["age"] - slope * p)), seed)  # fmt: skip


def log_log(seed: int) -> Truth:
    """Return quotes with the complementary log-log link."""
    slope = np.random.default_rng(seed).uniform(0.2, 0.4)
    return _other("complementary log-log", _aged, lambda p, x: (
        1.0 - np.exp(-np.exp(0.9 + 0.4 * x["age"] - slope * p))), seed)  # fmt: skip


def stepped(seed: int) -> Truth:
    """Return quotes with a step of the demand at some price."""
    rng = np.random.default_rng(seed)
    place, height = rng.uniform(4, 7), rng.uniform(0.5, 1.5)
    return _other("a step at a price", _aged, lambda p, x: sigmoid(
        1.2 + 0.4 * x["age"] - 0.2 * p - height * sigmoid(4.0 * (p - place))), seed)  # fmt: skip


def by_age(seed: int) -> Truth:
    """Return quotes with a price effect that depends on age."""
    slope = np.random.default_rng(seed).uniform(0.3, 0.6)
    return _other("price effect by age", _aged, lambda p, x: sigmoid(
        2.0 + 0.5 * x["age"] ** 2 - slope * p * np.exp(0.6 * x["age"])), seed)  # fmt: skip


def power(seed: int) -> Truth:
    """Return quotes with a constant elasticity."""
    elasticity = np.random.default_rng(seed).uniform(0.8, 2.2)
    return _other("constant elasticity", _nothing, lambda p, x: (
        0.7 * (p / 2.0) ** -elasticity), seed)  # fmt: skip


OTHER_FORMS = (probit, lognormal, two_classes, saturated, log_log, stepped, by_age, power)
"""Generators of price logs whose demand is not logistic with a line in the price."""
