"""Re-solving agents: bid prices of the fluid programme on top of the one-pass agents."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import field
from typing import Any, ClassVar

import numpy as np

from dpb_agents.assortment.one_pass_mnl import OnePassMNL
from dpb_agents.pricing.one_pass_pricing import OnePassPricing
from dpb_gym.agent import unsuitable
from dpb_gym.parameters import inside, integer
from dpb_gym.play.player import Player
from dpb_gym.privacy import Curator, NonNegativeBall, Segment
from dpb_gym.problems.assortment import AssortmentProblem
from dpb_gym.problems.base import Array, Context, Feedback, Problem, ProblemInfo, Round
from dpb_gym.problems.limited_stock import AGAIN, SHADE, bid_prices
from dpb_gym.problems.pricing import PricingProblem
from dpb_gym.registry import register_agent
from dpb_gym.streams import AgentStreams

PROTECTS = ("central", "reward")
REMEMBERED = 64  # contexts
RETIRED = {
    "anytime": "a season has a length, which the releases are planned for",
    "window": "a season is one market, nothing is forgotten",
    "level": "the fluid programme assumes that features explain the demand",
    "sample": f"the last {REMEMBERED} contexts are remembered",
}


class Resolving(Player):
    """Player of a one-pass algorithm that sells a finite stock.

    `solves` times per season the fluid programme is solved for the remaining stock and rounds, at
    the current estimate of theta, on the last contexts (Jasin & Kumar 2012; bid prices: Talluri &
    van Ryzin 1998). The dual price of a unit is subtracted from its revenue. Without a stock this
    is the player of the one-pass algorithm.

    Sales are released by a separate running sum, so the remaining stock is known up to noise. That
    an item is sold out is visible without noise. The stored contexts are public, because the unit
    is the reward.
    """

    @abstractmethod
    def model(self, problem: ProblemInfo) -> Problem:
        """Return the problem that the fluid programme assumes."""

    def begin(self, problem: ProblemInfo, streams: AgentStreams, curator: Curator) -> None:
        own: Any = self.algorithm
        self._bids: Array | None = None
        if problem.stock is not None:
            if problem.horizon is None:
                raise unsuitable(self.class_name, problem, problem.kind, "horizon")
            # Without a horizon the rounds that are left are not known.
            n = len(problem.stock)
            # A customer buys at most one unit.
            bound = NonNegativeBall(1.0) if n > 1 else Segment(0.0, 1.0)
            self._sales = curator.running_sum(
                n, clip=bound, share=own.counting, what="running sums of sales"
            )
            self._stock = np.array(problem.stock, np.float64)
            self._season = problem.horizon
            self._believed = self.model(problem)
            self._remembered: list[Context] = []
            self._bids = np.zeros((streams.replicates, n))
        super().begin(problem, streams, curator)
        if self._bids is not None:
            # Sales are added and bid prices solved in `observe`, round by round.
            self.stretches = False

    @property
    def theta(self) -> Array:
        """Estimates ``(B, d)``."""
        return np.asarray(self.state.theta)

    def observe(self, context: Context, action: Array, feedback: Feedback) -> None:
        super().observe(context, action, feedback)
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
        copies = [None if part is None else part.copy() for part in context[1:3]]
        # A sample of the contexts to come, which are taken to be like the last ones.
        recent = self._remembered[1 - REMEMBERED :]
        self._remembered = [*recent, Context(1, *copies)]  # type: ignore[arg-type]
        own: Any = self.algorithm
        due = max(1, self._season // own.solves)
        if self.rounds % due == 0 and self.rounds < self._season:
            # Noise can leave less than nothing, or more than there was.
            left = np.clip(self._stock - self._sales.value, 0.0, self._stock)
            if context.available is not None:
                # That an item is sold out is visible, so it overrides the noisy sum.
                left[~context.available] = 0.0
            self._solve(left / (self._season - self.rounds))

    def _solve(self, rate: Array) -> None:
        """Update the bid prices for units per round ``(B, n)``."""
        assert self._bids is not None
        seen = self._remembered
        count = len(seen)
        for b, theta in enumerate(self.theta):
            features, revenues = (
                None if seen[0][k] is None else np.array([context[k][b] for context in seen])
                for k in (1, 2)
            )
            assert features is not None
            rounds = Round(Context(1, features, revenues), np.zeros(count), {})
            hidden = {"theta": np.tile(theta, (count, 1))}
            self._bids[b] = bid_prices(
                self._believed, hidden, rounds, rate[b], self._bids[b], AGAIN
            )


class ResolvingSlates(Resolving):
    """Offers the best assortment with revenues less bid prices."""

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


class ResolvingPrices(Resolving):
    """Asks the best price of a unit that costs its bid price."""

    def model(self, problem: ProblemInfo) -> Problem:
        return PricingProblem(dim=problem.dim, zeta=problem.zeta or 1.0)

    def _solve(self, rate: Array) -> None:
        super()._solve(rate)
        self.state.bid[:] = self._bids


@register_agent("resolving-mnl", supports=["assortment"], protects=PROTECTS)
class ResolvingMNL(OnePassMNL):
    """Re-solved bid prices over one-pass-mnl, for assortment with finite stock.

    Offers the best assortment of available items under theta, with revenues less bid prices.
    See `Resolving`.

    Args:
        solves: Number of solutions per season, evenly spaced.
        counting: Part of the budget for the sums of sales.
    """

    player: ClassVar[type[Player]] = ResolvingSlates
    retired: ClassVar[dict[str, str]] = {**RETIRED, **OnePassMNL.retired}

    first: float = 2.2
    anytime: bool = field(default=False, init=False)
    window: int | None = field(default=None, init=False)
    level: float = field(default=0.0, init=False)
    solves: int = integer(20, 1)
    counting: float = inside(0.2)


@register_agent("resolving-pricing", supports=["pricing"], protects=PROTECTS)
class ResolvingPricing(OnePassPricing):
    """Re-solved bid prices over one-pass-pricing, for a season with finitely many seats.

    Asks the best price for theta plus a small draw, of a unit that costs its bid price. See
    `Resolving`.

    Args:
        solves: Number of solutions per season, evenly spaced.
        counting: Part of the budget for the sums of sales.
    """

    player: ClassVar[type[Player]] = ResolvingPrices
    sells_stock: ClassVar[bool] = True
    retired: ClassVar[dict[str, str]] = {**RETIRED, **OnePassPricing.retired}

    anytime: bool = field(default=False, init=False)
    window: int | None = field(default=None, init=False)
    level: float = field(default=0.0, init=False)
    solves: int = integer(20, 1)
    counting: float = inside(0.2)
