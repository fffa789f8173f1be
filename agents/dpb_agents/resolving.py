"""Re-solving agents: bid prices of the fluid programme on top of the one-pass agents."""

from __future__ import annotations

from dataclasses import field
from typing import ClassVar

import numpy as np

from dpb_agents.assortment.one_pass_mnl import OnePassMNL
from dpb_agents.common.newton_sums import OnePassNewton
from dpb_agents.common.parameters import inside, integer
from dpb_agents.pricing.one_pass_pricing import OnePassPricing
from dpb_gym import kernels
from dpb_gym.agent import unsuitable
from dpb_gym.privacy import Curator, NonNegativeBall, Segment
from dpb_gym.problems.assortment import AssortmentProblem
from dpb_gym.problems.base import Array, Context, Feedback, Problem, ProblemInfo, Round
from dpb_gym.problems.limited_stock import AGAIN, SHADE, bid_prices
from dpb_gym.problems.pricing import PricingProblem
from dpb_gym.registry import register_agent
from dpb_gym.streams import AgentStreams

PROTECTS = ("central", "reward")
REMEMBERED = 64  # contexts


class Resolving(OnePassNewton):
    """Base of the re-solving agents, for finite stock.

    `solves` times per season the fluid programme is solved for the remaining stock and rounds, at
    the current estimate of theta, on the last contexts (Jasin & Kumar 2012; bid prices: Talluri &
    van Ryzin 1998). The dual price of a unit is subtracted from its revenue. Without a stock the
    agent is the one-pass agent.

    Sales are released by a separate running sum, so the remaining stock is known up to noise. That
    an item is sold out is visible without noise. The stored contexts are public, because the unit
    is the reward.

    Args:
        solves: Number of solutions per season, evenly spaced.
        counting: Part of the budget for the sums of sales.
    """

    retired: ClassVar[dict[str, str]] = {
        "anytime": "a season has a length, which the releases are planned for",
        "window": "a season is one market, nothing is forgotten",
        "sample": f"the last {REMEMBERED} contexts are remembered",
    }

    anytime: bool = field(default=False, init=False)
    window: int | None = field(default=None, init=False)
    solves: int = integer(20, 1)
    counting: float = inside(0.2)

    def model(self, problem: ProblemInfo) -> Problem:
        """Return the problem that the fluid programme assumes."""
        raise NotImplementedError

    def begin(self, problem: ProblemInfo, streams: AgentStreams, curator: Curator) -> None:
        self._bids: Array | None = None
        if problem.stock is not None:
            if problem.horizon is None:
                raise unsuitable(type(self).__name__, problem, problem.kind, "horizon")
            n = len(problem.stock)
            # A customer buys at most one unit.
            bound = NonNegativeBall(1.0) if n > 1 else Segment(0.0, 1.0)
            self._sales = curator.running_sum(
                n, clip=bound, share=self.counting, what="running sums of sales"
            )
            self._stock, self._season = np.array(problem.stock, np.float64), problem.horizon
            self._believed, self._seen = self.model(problem), list[Context]()
            self._bids = np.zeros((streams.replicates, n))
        super().begin(problem, streams, curator)  # type: ignore[safe-super]

    def observe(self, context: Context, action: Array, feedback: Feedback) -> None:
        super().observe(context, action, feedback)  # type: ignore[safe-super]
        if self._bids is None:
            return
        sold = np.zeros_like(self._bids)
        if feedback.choice is None:
            sold[:, 0] = feedback.demand
        else:
            lanes = np.flatnonzero(feedback.choice >= 0)
            sold[lanes, action[lanes, feedback.choice[lanes]]] = 1.0
        if sold.shape[1] > 1:
            self._sales.add(sold)
        else:
            self._sales.add(sold[:, 0], np.ones_like(sold))
        kept = [None if part is None else part.copy() for part in context[1:3]]
        self._seen = [*self._seen[1 - REMEMBERED :], Context(1, *kept)]  # type: ignore[arg-type]
        due = max(1, self._season // self.solves)
        if self.rounds % due == 0 and self.rounds < self._season:
            left = np.clip(self._stock - self._sales.value, 0.0, self._stock)
            if context.available is not None:
                left[~context.available] = 0.0
            self._solve(left / (self._season - self.rounds))

    def _solve(self, rate: Array) -> None:
        """Update the bid prices for units per round ``(B, n)``."""
        assert self._bids is not None
        count = len(self._seen)
        for b, theta in enumerate(self.theta):
            features, revenues = (
                None if self._seen[0][k] is None else np.array([seen[k][b] for seen in self._seen])
                for k in (1, 2)
            )
            assert features is not None
            rounds = Round(Context(1, features, revenues), np.zeros(count), {})
            hidden = {"theta": np.tile(theta, (count, 1))}
            self._bids[b] = bid_prices(
                self._believed, hidden, rounds, rate[b], self._bids[b], AGAIN
            )


@register_agent("resolving-mnl", supports=["assortment"], protects=PROTECTS)
class ResolvingMNL(Resolving, OnePassMNL):
    """Re-solved bid prices over one-pass-mnl, for assortment with finite stock.

    Offers the best assortment of available items under theta, with revenues less bid prices.
    See `Resolving`.
    """

    def model(self, problem: ProblemInfo) -> Problem:
        assert problem.n_items is not None and problem.capacity is not None
        return AssortmentProblem(
            n_items=problem.n_items,
            capacity=problem.capacity,
            dim=problem.dim,
            revenues=np.full(problem.n_items, problem.reward_range[1]),
        )

    def act(self, context: Context) -> Array:
        if self._bids is not None:
            assert context.revenues is not None
            net = context.revenues - SHADE * self._bids
            context = context._replace(revenues=net.astype(np.float32))
        return super().act(context)


@register_agent("resolving-pricing", supports=["pricing"], protects=PROTECTS)
class ResolvingPricing(Resolving, OnePassPricing):
    """Re-solved bid prices over one-pass-pricing, for a season with finitely many seats.

    Asks the best price for theta plus a small draw, of a unit that costs its bid price. See
    `Resolving`.
    """

    retired: ClassVar[dict[str, str]] = {**Resolving.retired, **OnePassPricing.retired}

    first: float = OnePassPricing.first

    def model(self, problem: ProblemInfo) -> Problem:
        return PricingProblem(dim=problem.dim, zeta=problem.zeta or 1.0)

    def begin(self, problem: ProblemInfo, streams: AgentStreams, curator: Curator) -> None:
        super().begin(problem, streams, curator)
        self._bets = self._bets and self._bids is None

    def _priced(self, features: Array, theta: Array, price: Array) -> None:
        if self._bids is None:
            return super()._priced(features, theta, price)
        cost = np.ascontiguousarray(self._bids[:, 0])
        kernels.demand_models.best_net_prices(
            features, theta, self._demand[1], cost, price, self._value
        )
