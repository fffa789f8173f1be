"""A kind of problems in one file: menus, items that are offered at chosen prices.

A menu is a row of N prices, -1 for items that are left out, with at most K items. The utility of
item i at the price p is <x_i, a> - p <x_i, b>, theta = (a, b); a customer buys one item or nothing.
"""

import gymnasium
import numpy as np

import dpb_data
import dpb_gym
from dpb_gym.envs.actions import ActionMode
from dpb_gym.errors import ActionError
from dpb_gym.problems import Context, Feedback, Kind, Problem, ProblemInfo
from dpb_gym.problems.fitting import fit_log
from dpb_gym.problems.kinds import RoundRow
from dpb_gym.problems.log_form import LogForm
from dpb_gym.problems.log_likelihood import ChoiceSets
from dpb_gym.problems.logged import Logged
from dpb_gym.problems.neighbours import AuditForm, Pair, World
from dpb_gym.problems.rounds import Field, Round, uniform
from dpb_gym.streams import Stream


def demand(features, theta):
    """Return the items' values <x, a> and price slopes <x, b>, ``(B, N)`` each."""
    return [np.einsum("bnm,bm->bn", features, part) for part in np.split(theta, 2, axis=1)]


def choice_chances(features, theta, menus):
    """Return the chance of each item to be bought ``(B, N)``; the rest is that of nothing."""
    value, slope = demand(features, theta)
    weight = np.where(menus >= 0, np.exp(np.minimum(value - menus * slope, 500.0)), 0.0)
    return weight / (1.0 + weight.sum(axis=1, keepdims=True))


def best_menus(features, theta, capacity, available=None):
    """Return the best menus and their expected revenue, by Dinkelbach's iteration (1967)."""
    value, slope = demand(features, theta)
    revenue = np.zeros(len(features))
    for _ in range(12):
        price = np.where(slope > 0, revenue[:, None] + 1 / np.maximum(slope, 1e-9), 1.0).clip(0, 1)
        gain = (price - revenue[:, None]) * np.exp(np.minimum(value - price * slope, 500.0))
        gain = gain if available is None else np.where(available, gain, 0.0)
        rank = np.argsort(np.argsort(-gain, axis=1, kind="stable"), axis=1)
        menus = np.where((rank < capacity) & (gain > 0), price, -1.0)
        revenue = (choice_chances(features, theta, menus) * menus).sum(axis=1)
    return menus, revenue


def sold(menus, bought):
    """Return the feedback of customers who bought these items, -1 for nothing."""
    paid = np.take_along_axis(menus, np.maximum(bought, 0)[:, None], axis=1)[:, 0]
    return Feedback(np.where(bought >= 0, paid, 0.0), choice=bought)


class PriceRow(ActionMode):
    """A price per item, or a negative number; the first K items with a price are offered."""

    def __init__(self, info):
        self.space = gymnasium.spaces.Box(-1.0, 1.0, (info.n_items,), np.float32)
        self.capacity = info.capacity

    def decode(self, actions, replicates=None):
        rows = self.batch(actions, replicates, False, "menu")
        if not (np.abs(rows) <= 1.0).all():
            raise ActionError("prices of a menu must be in [-1, 1], negative to leave an item out")
        return np.where((rows >= 0) & (np.cumsum(rows >= 0, axis=1) <= self.capacity), rows, -1.0)


class MenuAudit(AuditForm):
    """Customers with opposite items, who buy the first offered item or nothing."""

    small = ("Shop/Menu-v0", {"n_items": 2, "capacity": 2, "dim": 2})

    def pairs(self, info):
        items = np.resize(np.float32([[1.0], [-1.0]]), (info.n_items, info.dim // 2))
        others = {"buys nothing": World(items, 0.0), "has items -x": World(-items, 1.0)}
        return [Pair(f"buys, or {name}", World(items, 1.0), one) for name, one in others.items()]

    def answer(self, world, info, context, action):
        buys = (action >= 0).any(axis=1) & bool(world.response)
        return sold(action, np.where(buys, (action >= 0).argmax(axis=1), -1))


class MenuLogs(LogForm):
    """Tables with the columns case, item, chosen and price."""

    agents = ("menu-sums", "random")
    act = "Offer"

    def read(self, source, columns, settings):
        return dpb_data.choices(source, **{**columns, "features": ["price"]})

    def problem(self, table):
        return LoggedMenus

    def label(self, problem, action, currency):
        offer = zip(problem.item_ids, action * problem.highest)
        return "always " + ", ".join(f"{item} at {p:.3g}" for item, p in offer if p >= 0)


class Menus(Kind):
    name = "menu"
    response = "choice"  # the bought item, -1 for nothing
    integral = False
    nothing = -1
    actions = PriceRow
    refuses = {"types": "no search", "stock": "no optimum", "intercept": "it changes the slopes"}  # noqa: RUF012
    audit = MenuAudit()
    logs = MenuLogs()

    def feature_shape(self, info):
        return info.n_items, info.dim // 2

    def action_shape(self, info):
        return (info.n_items,)

    def random(self, info, uniforms, available=None):
        order = uniforms if available is None else np.where(available, uniforms, 2.0)
        offered = np.argsort(np.argsort(order, axis=1), axis=1) < info.capacity
        return np.where(offered & (order < 2.0), uniforms * 997.0 % 1.0, -1.0)

    def offered(self, action):
        return np.where(action >= 0, np.arange(action.shape[1]), -1)

    def rows(self, context, action, feedback):
        prices = np.zeros(len(context.features)) if action is None else np.maximum(action, 0.0)
        rows = [RoundRow(f"item {i}", p, context.features[i]) for i, p in enumerate(prices)]
        if feedback is not None and feedback.choice >= 0:
            rows[feedback.choice] = rows[feedback.choice]._replace(mark="bought", success=True)
        return rows


class MenuProblem(Problem):
    feature_bound = 1.0
    respects_availability = True

    def __init__(self, horizon=1000, n_items=8, capacity=3, dim=4, theta=None):
        self.horizon = horizon
        self.dim = dim
        self.theta = theta
        self.info = ProblemInfo("menu", horizon, dim, (0, 1), n_items=n_items, capacity=capacity)

    def draw_hidden(self, rng):
        theta = rng.random(self.dim) + np.repeat([0.0, 3.0], self.dim // 2)
        return {"theta": theta if self.theta is None else self.theta}

    def fields(self):
        shape = (self.info.n_items, self.dim // 2)
        return {"features": Field(shape, np.float32, Stream.FEATURES, self.draw_features)}

    draw_features = staticmethod(uniform)

    def make_round(self, hidden, drawn, t):
        return Round(Context(int(t[0]), drawn["features"]), drawn["response"], {})

    def respond(self, hidden, round_, action):
        if (action > 1.0).any() or ((action >= 0).sum(axis=1) > self.info.capacity).any():
            raise ActionError(f"menus have at most {self.info.capacity} prices up to 1")
        chances = choice_chances(round_.context.features, hidden["theta"], action)
        reached = round_.uniform[:, None] < np.cumsum(chances, axis=1)
        bought = np.where(reached.any(axis=1), reached.argmax(axis=1), -1)
        return sold(action, bought), (chances * action).sum(axis=1)

    def best_action(self, hidden, round_):
        seen = round_.context
        return best_menus(seen.features, hidden["theta"], self.info.capacity, seen.available)


class LoggedMenus(Logged, MenuProblem):
    """Menus with a value and a price slope per item, fitted to a log."""

    def __init__(self, data, horizon=10_000, ridge=None, bounds=None, draws=0, part="all"):
        n = len(data.item_ids)
        self.item_ids = data.item_ids
        self.highest = float(data.features.max())
        price = data.features[:, :1] / self.highest
        own = np.eye(n)[data.items]
        self.rows = np.hstack([own, -price * own]).astype(np.float32)
        names = [f"{what} of {item}" for what in ("value", "slope") for item in data.item_ids]
        sets = ChoiceSets(self.rows, data.starts, data.chosen)
        self.fit = fit_log(sets, data.people, ridge, np.zeros(2 * n), names, data.notes, data.name)
        super().__init__(horizon, n, int(np.diff(data.starts).max()), 2 * n, self.fit.coefficients)
        self.own_actions = np.full((data.n_sets, n), -1.0)
        group = np.repeat(np.arange(data.n_sets), np.diff(data.starts))
        self.own_actions[group, data.items] = price[:, 0]
        taken = price[np.maximum(data.starts[:-1] + data.chosen, 0), 0]
        self.set_today(np.where(data.chosen >= 0, taken, 0.0), data.people)
        contexts = np.broadcast_to(np.eye(n, dtype=np.float32), (data.n_sets, n, n)).copy()
        self.set_customers(data.name, contexts, data.people, draws, part)


dpb_gym.register_kind(Menus())
dpb_gym.register_environment("Shop/Menu-v0", MenuProblem, kind="menu", summary="Priced items")


if __name__ == "__main__":
    dpb_gym.evaluate("Shop/Menu-v0", ["random", "oracle"], horizon=200, replicates=2).table()
