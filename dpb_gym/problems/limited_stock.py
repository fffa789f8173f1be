"""Limited stock: instances whose items sell out, and the value of a season's optimum.

The regret of an action is the difference of the best action's revenue in this round to its own,
both net of the future value of the units sold. Dynamic programming gives the exact value of a
unit: the optimum knows the parameters and the customers, not their purchases. Where the table would
be too large, the value is the bid price of the fluid bound, the same in every round: by weak
duality ``sum_t max_a (r_a - lambda sold_a) + lambda stock`` bounds the revenue of any policy, for
every lambda >= 0 (Gallego & van Ryzin 1994; Talluri & van Ryzin 1998).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from dpb_gym.problems.availability import check_offered
from dpb_gym.problems.base import Instance, Problem
from dpb_gym.problems.rounds import Array, Context, Feedback, Hidden, Round

LARGEST_TABLE = 200_000
SAMPLE = 512
STEPS = 200
# Re-solving of the oracle's bid prices: times per season, thinning of the sample, and steps.
RENEWALS = 20
FEWER = 8
AGAIN = 40
SHADE = 1.0 - 1e-3  # factor on the policy's bid prices, so that it offers items at break-even


def has_exact_optimum(stock: Sequence[int], horizon: int) -> bool:
    """Return whether the table of the dynamic programme is small enough to compute it."""
    states = math.prod(min(count, horizon) + 1 for count in stock)
    return states * horizon <= LARGEST_TABLE


def priced(round_: Round, cost: Array) -> Round:
    """Return the round with a cost ``cost[:, i]`` for every sale of item i, ``(B, n)``."""
    context = round_.context
    if context.revenues is None:
        return round_.hiding(cost=np.ascontiguousarray(cost[:, 0]))
    return round_.showing(revenues=context.revenues - cost)


def units(problem: Problem, hidden: Hidden, round_: Round, action: Array, count: int) -> Array:
    """Return the expected sales ``(B, count)`` of actions without repeated items."""
    B = len(action)
    sold = np.zeros((B, count))
    if round_.context.revenues is None:
        cost = action[:, None] - 1.0  # price minus cost is 1
        sold[:, 0] = problem.respond(hidden, priced(round_, cost), action)[1]
        return sold
    lanes = np.arange(B)
    for items in np.maximum(action, 0).T:
        only = np.zeros((B, count))
        only[lanes, items] = 1.0
        sold[lanes, items] = problem.respond(hidden, round_.showing(revenues=only), action)[1]
    return sold


def bid_prices(
    problem: Problem,
    hidden: Hidden,
    rounds: Round,
    rate: Array,
    start: Array | None = None,
    steps: int | None = None,
) -> Array:
    """Return approximately optimal bid prices of the fluid bound.

    They minimise max_a E[revenue - <lambda, sold>] + <lambda, rate> over lambda >= 0; the result
    is the best iterate of AdaGrad (Duchi, Hazan & Singer 2011).

    Args:
        problem: Problem of the customers.
        hidden: Its hidden state, or an estimate, in every row ``(M, ...)``.
        rounds: M rounds to average over.
        rate: Units per round that can be sold, ``(n,)``.
        start: Initial prices ``(n,)``; 0 by default.
        steps: Number of steps; `STEPS` by default.

    Returns:
        Prices ``(n,)``, at most the largest revenue.
    """
    prices = np.zeros(len(rate)) if start is None else start
    best = prices
    squares = np.zeros(len(rate))
    least = np.inf
    count = len(rounds.uniform)
    most = problem.info.reward_range[1]
    for _ in range(steps or STEPS):
        action, value = problem.best_action(hidden, priced(rounds, np.tile(prices, (count, 1))))
        sold = units(problem, hidden, rounds, action, len(rate)).sum(axis=0) / count
        bound = float(value.sum()) / count + sum((prices * rate).tolist())
        if bound < least:
            least = bound
            best = prices
        slope = rate - sold
        if not (slope < 0.0).any() and not prices.any():
            break  # no item sells out
        squares += slope * slope
        step = slope / np.sqrt(np.maximum(squares, 1e-300))
        prices = np.clip(prices - 0.1 * most * step, 0.0, most)
    return best


class UnitValues:
    """Future value of a unit of each item, for B replicates, computed on first use.

    Attributes:
        exact: Whether values are from dynamic programming, else bid prices of the fluid bound.
    """

    def __init__(self, customers: Instance, stock: Array) -> None:
        self._customers, self._stock = customers, np.minimum(stock, customers.problem.horizon)
        self.exact = has_exact_optimum(stock.tolist(), customers.problem.horizon)
        self._values: list[Array | None] = [None] * customers.replicates
        self._samples: list[tuple[Hidden, Round]] = [({}, None)] * customers.replicates  # type: ignore[list-item]
        self._strides = np.ones(len(stock), np.int64)
        for i in range(len(stock) - 1, 0, -1) if self.exact else ():
            self._strides[i - 1] = self._strides[i] * (self._stock[i] + 1)

    def clear(self, i: int) -> None:
        """Discard the values of replicate i, which was restarted."""
        self._values[i] = None

    def of(self, t: Array, left: Array) -> Array:
        """Return values ``(B, n)`` in rounds t ``(B,)``, with ``left`` units ``(B, n)`` before."""
        values = np.zeros(left.shape)
        for i in range(len(left)):
            unit_values = self._values[i]
            if unit_values is None:
                unit_values = self._values[i] = self._table(i) if self.exact else self._prices(i)
            values[i] = self._differences(unit_values[t[i]], left[i]) if self.exact else unit_values
        return values

    def _differences(self, value: Array, left: Array) -> Array:
        left = np.minimum(left, self._stock)
        state = int((left * self._strides).sum())
        return np.where(left > 0, value[state] - value[state - self._strides * (left > 0)], 0.0)

    def _rounds(self, i: int, wanted: Iterable[int]) -> tuple[Hidden, Round]:
        """Return rounds of replicate i as one batch, and its hidden state in every row."""
        customers = self._customers
        source = Instance(customers.problem, [customers.seeds[i]], [customers.episodes[i]])
        rounds = []
        for t in wanted:
            while source.t[0] < t:
                source.advance()
            rounds.append(source.round().each(np.copy))  # the instance reuses its block
        contexts, uniforms, secrets = zip(*rounds)
        secret = {name: np.concatenate([s[name] for s in secrets]) for name in secrets[0]}
        hidden = {name: np.repeat(v, len(rounds), axis=0) for name, v in source.hidden.items()}
        return hidden, Round(Context.join(1, contexts), np.concatenate(uniforms), secret)

    def _prices(self, i: int) -> Array:
        """Return bid prices of replicate i, computed on rounds spread over its season."""
        problem = self._customers.problem
        T = self._customers.problem.horizon
        wanted = sorted({1 + k * T // SAMPLE for k in range(SAMPLE)})
        hidden, rounds = self._rounds(i, wanted)
        few = np.arange(0, len(wanted), FEWER)
        self._samples[i] = {name: value[few] for name, value in hidden.items()}, _taken(rounds, few)
        return bid_prices(problem, hidden, rounds, self._stock / T)

    def resolved(self, i: int, t: int, left: Array, start: Array) -> Array:
        """Return bid prices of replicate i re-solved for the stock left before round t."""
        problem = self._customers.problem
        T = self._customers.problem.horizon
        hidden, rounds = self._samples[i]
        count = len(rounds.uniform)
        coming = np.arange(min(count * (t - 1) // T, count // 2), count)
        hidden = {name: value[coming] for name, value in hidden.items()}
        return bid_prices(problem, hidden, _taken(rounds, coming), left / (T - t + 1), start, AGAIN)

    def _table(self, i: int) -> Array:
        """Return the value ``(T + 1, states)`` of the stock after each round of replicate i."""
        problem = self._customers.problem
        T = problem.horizon
        sides = self._stock + 1
        states = int(np.prod(sides))
        left = np.indices(sides.tolist()).reshape(len(sides), states).T
        has = left > 0
        below = np.arange(states)[:, None] - np.where(has, self._strides, 0)
        hidden, rounds = self._rounds(i, range(1, T + 1))
        hidden = {name: np.repeat(v[:1], states, axis=0) for name, v in hidden.items()}
        value = np.zeros((T + 1, states))
        for t in range(T, 0, -1):
            round_ = _taken(rounds, np.full(states, t - 1))
            after = value[t]
            cost = np.where(has, after[:, None] - after[below], 0.0)
            offered = masked(round_, has)
            gains = problem.best_action(hidden, priced(offered, cost))[1]
            value[t - 1] = after + np.where(on_sale(offered, has), gains, 0.0)
        return value


def _taken(rounds: Round, chosen: Array) -> Round:
    """Return the chosen rounds of a batch."""
    return rounds.each(lambda v: v[chosen])


def masked(round_: Round, has: Array) -> Round:
    """Return the round with items out of stock (``has`` False, ``(B, n)``) unavailable."""
    context = round_.context
    if context.revenues is None:
        return round_
    available = has if context.available is None else has & context.available
    return round_.showing(available=available)


def on_sale(round_: Round, has: Array) -> Array:
    """Return whether anything can be sold, ``(B,)``."""
    available = round_.context.available
    return np.asarray((has if available is None else available).any(axis=1))


_SAVED = ("left", "_before", "_at", "_bids", "_resolved", "_lost")
"""Attributes of a `StockInstance` that its rounds change."""


class StockInstance(Instance):
    """Instance with limited stock.

    Sold units are unavailable from the next round on. `respond` may be called again in a round; the
    last response counts. Where everything is sold out, any action is accepted and sells nothing,
    so all seasons last to the horizon. Forks share customers and unit values.

    Attributes:
        left: Units of each item after the last response, ``(B, n)``.
    """

    def __init__(self, customers: Instance, values: UnitValues | None = None) -> None:
        self.customers, self.problem = customers, customers.problem
        self.seeds, self.episodes, self.t = customers.seeds, customers.episodes, customers.t
        self.hidden, self.replicates = customers.hidden, customers.replicates
        self.alone = customers.alone
        self._stock = np.array(self.problem.info.stock)
        self._unit_values = UnitValues(customers, self._stock) if values is None else values
        self.left: Array = np.tile(self._stock, (self.replicates, 1))
        self._before, self._at = self.left.copy(), self.t.copy()
        self._now: Round | None = None
        self._bids = np.zeros(self.left.shape)
        self._resolved = np.zeros(self.replicates, np.int64)
        self._lost = np.zeros(self.replicates)

    def fork(self) -> StockInstance:
        """Return an instance with the same customers and a separate stock, for another agent."""
        return StockInstance(self.customers, self._unit_values)

    def saved(self) -> dict[str, Any] | None:
        customers = self.customers.saved()
        own = {name: getattr(self, name) for name in _SAVED}
        return None if customers is None else {"customers": customers, **own}

    def restore(self, saved: Mapping[str, Any]) -> None:
        if int(self.t[0]) != saved["customers"]["round"]:  # forks share customers
            self.customers.restore(saved["customers"])
        for name in _SAVED:
            getattr(self, name)[...] = saved[name]
        self._now = None

    def restart(self, i: int, seed: int, episode: int) -> None:
        self.customers.restart(i, seed, episode)
        self._unit_values.clear(i)
        self.left[i] = self._before[i] = self._stock
        self._at[i], self._resolved[i], self._now = 1, 0, None

    def advance(self, lanes: Array | None = None) -> None:
        self.customers.advance(lanes)

    def coming(self, most: int) -> list[Context]:
        return [self.context()]  # the next round depends on what is sold in this one

    def round(self) -> Round:
        moved = self._at != self.t
        if moved.any():
            self._before[moved] = self.left[moved]
            self._at, self._now = self.t.copy(), None
        if self._now is None:
            self._now = masked(self.customers.round(), self._before > 0)
        return self._now

    def oracle(self) -> tuple[Array, Array]:
        """Return the season's best action and its expected reward.

        Where the optimum is too large to compute, the action is by bid prices that are re-solved
        `RENEWALS` times for the remaining stock.
        """
        round_ = self.round()
        cost = self._unit_values.of(self.t, self._before)
        if not self._unit_values.exact:
            every = max(1, self.problem.horizon // RENEWALS)
            for i in np.flatnonzero(((self.t - 1) % every == 0) & (self._resolved != self.t)):
                start = self._bids[i] if self._resolved[i] else cost[i]
                now = int(i), int(self.t[i]), self._before[i]
                self._bids[i] = self._unit_values.resolved(*now, start)
                self._resolved[i] = self.t[i]
            cost = SHADE * self._bids
        action = self.problem.best_action(self.hidden, priced(round_, cost))[0]
        return action, self._serve(action)[1]

    def _serve(self, action: Array) -> tuple[Feedback, Array, Round, Array]:
        """Return feedback, expected reward, the round played, and where anything is on sale."""
        round_ = self.round()
        open_ = on_sale(round_, self._before > 0)
        context = round_.context
        if context.available is not None and not open_.all():
            every = context.available | ~open_[:, None]
            round_ = round_.showing(available=every)
        check_offered(round_.context, action)
        feedback, expected = self.problem.respond(self.hidden, round_, action)
        if not open_.all():
            feedback = feedback.where(open_)
            expected = np.where(open_, expected, 0.0)
        return feedback, expected, round_, open_

    def regret(self, expected: Array, observed: Array | None, best: Array | None = None) -> Array:
        """Return the regret of the last action, relative to the season's optimum.

        In expectation the regrets of all rounds add up to the value of the optimum, or of its
        fluid bound, minus the revenue. Against the bound, unsold units count at their bid price
        in the last round.
        """
        return self._lost

    def answer(self, action: Any) -> tuple[Feedback, Array]:
        action = self.problem.check_action(action, self.replicates)
        feedback, expected, served, open_ = self._serve(action)
        self.left = self._before - self._sold(action, feedback)
        problem = self.problem
        value = self._unit_values.of(self.t, self._before)
        own = np.where(open_, problem.respond(self.hidden, priced(served, value), action)[1], 0.0)
        benchmark_round = self.round() if self._unit_values.exact else self.customers.round()
        best = problem.best_action(self.hidden, priced(benchmark_round, value))[1]
        if self._unit_values.exact:
            best = np.where(open_, best, 0.0)
        regret = np.maximum(best - own, 0.0)
        if not self._unit_values.exact:
            unsold = np.zeros(self.replicates)
            for k in range(value.shape[1]):
                unsold += value[:, k] * self.left[:, k]
            regret += np.where(self.t == problem.horizon, unsold, 0.0)
        self._lost = regret
        return feedback, expected

    def _sold(self, action: Array, feedback: Feedback) -> Array:
        """Return the units sold of each item, ``(B, n)``."""
        sold = np.zeros_like(self._before)
        if feedback.choice is None:
            assert feedback.demand is not None
            sold[:, 0] = feedback.demand
            return sold
        lanes = np.flatnonzero(feedback.choice >= 0)
        sold[lanes, action[lanes, feedback.choice[lanes]]] = 1
        return sold
