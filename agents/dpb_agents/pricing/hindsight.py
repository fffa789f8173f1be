"""The best single price in hindsight: a yardstick."""

from __future__ import annotations

from dataclasses import field

import numpy as np

from dpb_agents import kernels as zoo
from dpb_agents.common.parameters import Configured, integer
from dpb_agents.pricing.records import MODELS
from dpb_gym.errors import AgentError
from dpb_gym.privacy import Curator
from dpb_gym.problems.base import Array, Context, Feedback, Instance, ProblemInfo
from dpb_gym.registry import register_agent
from dpb_gym.streams import AgentStreams


@register_agent("best-fixed-price", supports=["pricing"], uses_oracle=True)
class BestFixedPrice(Configured):
    """The price that is best for all of the customers, known beforehand.

    What ignoring the customers costs at least. It reads the hidden state and the customers
    to come, so it is no learner; its regret per round is not zero.

    Args:
        n_prices: Prices compared: a grid over [0, 1], then a grid as fine between the
            neighbours of its best.
        sample: Customers looked at, evenly spread over the horizon.

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
        model, zeta = MODELS.index(str(problem.demand)), problem.zeta or 1.0
        root = np.sqrt(len(theta))
        offset = np.zeros(len(x))
        for k in range(x.shape[1]):
            offset += x[:, k] * theta[k]
        low, high, best = 0.0, 1.0, 0.0
        for _ in range(2):
            grid = np.linspace(low, high, self.n_prices)
            value = np.empty(len(grid))
            zoo.prices.total_revenues(offset / root, theta[-1] / root, grid, model, zeta, value)
            best = float(grid[value.argmax()])
            step = grid[1] - grid[0]
            low, high = max(0.0, best - step), min(1.0, best + step)
        return best

    def act(self, context: Context) -> Array:
        return self.price.copy()

    def observe(self, context: Context, action: Array, feedback: Feedback) -> None:
        pass
