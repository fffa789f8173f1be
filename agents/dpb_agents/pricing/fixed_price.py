"""One price for all customers: learned online, or the best one in hindsight."""

from __future__ import annotations

import math
from dataclasses import field
from typing import Any, ClassVar

import numpy as np

from dpb_agents.common.parameters import Configured, choice, integer, positive, real
from dpb_agents.pricing.demand_records import MODELS
from dpb_gym import kernels, portable
from dpb_gym.agent import unsuitable
from dpb_gym.errors import ActionError, AgentError
from dpb_gym.privacy import Curator
from dpb_gym.problems.base import Array, Context, Feedback, Instance, ProblemInfo
from dpb_gym.registry import register_agent
from dpb_gym.streams import AgentStreams

RULES = ("ts", "ucb")
DEFAULT_HORIZON = 100_000  # sets the size of the price grid where the horizon is unknown
# Demand in {0, 1} is 1/2-sub-Gaussian (Hoeffding); Gaussian demand has unit noise around a
# mean that moves within [-1, 1] with the customer.
SCALES = {"logistic": 0.5, "gaussian": math.sqrt(2.0)}


@register_agent("fixed-price", supports=["pricing"])
class FixedPrice(Configured):
    """One price for all customers: a bandit over a price grid that ignores features.

    The baseline that any personalised policy must beat (erratum P7). The grid has
    ceil((T / log T)^(1/4)) equally spaced prices up to 1. At this size the gap to the best price
    costs as much as learning it (Kleinberg & Leighton 2003). Each price has the mean of the demand
    observed at it. ``ts`` draws from N(mean, s^2 / n) (Agrawal & Goyal 2013), ``ucb`` adds
    s sqrt(2 log(1 + t log^2 t) / n) (Lattimore & Szepesvari 2020, Algorithm 6). The offer is the
    price with the largest product of price and this index, after every price was tried once.

    Args:
        rule: ``"ts"`` or ``"ucb"``.
        n_prices: Size of the grid, by default as above, with T = 10^5 if T is unknown.
        price: Offer this price in [0, 1] in every round instead of learning one.
        scale: s, > 0. By default the Beta posterior for ``ts`` on logistic demand, else
            1/2 for logistic and sqrt(2) for Gaussian demand: the demand of a random customer is
            s-sub-Gaussian.
    """

    tuning_grid: ClassVar[dict[str, list[Any]]] = {
        "rule": ["ts", "ucb"],
        "n_prices": [None, 4, 10, 20],
    }

    rule: str = choice("ts", RULES)
    n_prices: int | None = integer(None, 1)
    price: float | None = real(None, 0.0, 1.0)
    scale: float | None = positive(None)

    def begin(self, problem: ProblemInfo, streams: AgentStreams, curator: Curator) -> None:
        if problem.kind != "pricing" or problem.demand is None:
            raise unsuitable("fixed-price", problem, "pricing", "demand")
        T = problem.horizon or DEFAULT_HORIZON
        if self.price is not None:
            self.prices = np.array([self.price])
        else:
            K = self.n_prices or math.ceil(math.sqrt(math.sqrt(T / portable.log(max(T, 3)))))
            self.prices = np.arange(1, K + 1) / K
        K = len(self.prices)
        self._binary = problem.demand == "logistic" and self.scale is None
        self._scale = SCALES[problem.demand] if self.scale is None else self.scale
        self._counts = np.zeros((streams.replicates, K))
        self._sums = np.zeros((streams.replicates, K))
        self._rounds = 0
        self._lanes = np.arange(streams.replicates)
        self._normals = streams.normals(K)

    def act(self, context: Context) -> Array:
        B, K = self._counts.shape
        # Every price once, because an index needs one response.
        if self._rounds < K:
            return np.full(B, self.prices[self._rounds])
        # A price whose trial was not observed counts as one with a response of 0.
        counts = np.maximum(self._counts, 1.0)
        mean = self._sums / counts
        width = self._scale / np.sqrt(counts)
        if self.rule == "ucb":
            t = self._rounds + 1
            log = portable.log(t)
            width *= math.sqrt(2.0 * portable.log(1.0 + t * log * log))
        else:
            if self._binary:
                # Mean and variance of the Beta posterior after a uniform prior.
                mean = (self._sums + 1.0) / (counts + 2.0)
                width = np.sqrt(mean * (1.0 - mean) / (counts + 3.0))
            width *= self._normals.next()
        chosen: Array = self.prices[(self.prices * (mean + width)).argmax(axis=1)]
        return chosen

    def observe(self, context: Context, action: Array, feedback: Feedback) -> None:
        assert feedback.demand is not None
        place = np.minimum(np.searchsorted(self.prices, action), len(self.prices) - 1)
        seen = np.ones(len(action), bool) if feedback.observed is None else feedback.observed
        wrong = (self.prices[place] != action) & seen
        if wrong.any():
            raise ActionError(
                f"price {action[wrong.argmax()]} of replicate {wrong.argmax()} is not on the "
                f"grid of {len(self.prices)} prices"
            )
        self._counts[self._lanes, place] += seen
        self._sums[self._lanes, place] += feedback.demand * seen
        self._rounds += 1


@register_agent("best-fixed-price", supports=["pricing"], uses_oracle=True)
class BestFixedPrice(Configured):
    """The best single price for all customers, computed from the hidden state.

    Its regret is the smallest that a policy without features can have, and is not zero. It uses
    the hidden state and the future customers, so it is not a learner.

    Args:
        n_prices: Number of prices compared: a grid over [0, 1], then a second grid of the same
            size between the neighbours of the best one.
        sample: Number of customers used, evenly spread over the horizon.

    Raises:
        AgentError: From `begin`, if no running environment was attached.
    """

    n_prices: int = integer(101, 3)
    sample: int = integer(20_000, 1)
    _instance: Instance | None = field(default=None, init=False)

    def attach(self, instance: Instance) -> None:
        self._instance = instance

    def begin(self, problem: ProblemInfo, streams: AgentStreams, curator: Curator) -> None:
        if problem.kind != "pricing":
            raise AgentError(f"best-fixed-price plays pricing problems, not {problem.kind}")
        if self._instance is None:
            raise AgentError("best-fixed-price must be attached to a running environment first")
        source = self._instance
        # A second instance of the same seeds, as the running one must not move.
        ahead = Instance(source.problem, source.seeds, source.episodes)
        horizon = source.problem.horizon
        stride = max(1, horizon // self.sample)
        rows = []
        for t in range(horizon):
            if t % stride == 0:
                rows.append(ahead.context().features.copy())
            if t < horizon - 1:
                ahead.advance()
        features = np.array(rows)
        theta = ahead.hidden["theta"]
        self.price = np.array(
            [self._best(features[:, b], theta[b], problem) for b in range(streams.replicates)]
        )

    def _best(self, x: Array, theta: Array, problem: ProblemInfo) -> float:
        model = MODELS.index(str(problem.demand))
        zeta = problem.zeta or 1.0
        root = np.sqrt(len(theta))
        offset = np.zeros(len(x))
        # Added in a fixed order: products by BLAS have other bits on other processors.
        for k in range(x.shape[1]):
            offset += x[:, k] * theta[k]
        low = 0.0
        high = 1.0
        best = 0.0
        for _ in range(2):
            grid = np.linspace(low, high, self.n_prices)
            value = np.empty(len(grid))
            kernels.price_search.total_revenues(
                offset / root, theta[-1] / root, grid, model, zeta, value
            )
            best = float(grid[value.argmax()])
            step = grid[1] - grid[0]
            low = max(0.0, best - step)
            high = min(1.0, best + step)
        return best

    def act(self, context: Context) -> Array:
        return self.price.copy()

    def observe(self, context: Context, action: Array, feedback: Feedback) -> None:
        pass
