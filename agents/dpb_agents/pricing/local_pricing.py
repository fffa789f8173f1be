"""Locally private pricing: explore, then greedy on randomised gradients (Zhao, Jiang & Yu)."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np

from dpb_agents import kernels as agent_kernels
from dpb_agents.common.local_sgd import GAUSSIAN, LOGISTIC, LocalSGD
from dpb_agents.common.parameters import integer, real
from dpb_agents.pricing.demand_records import recorded
from dpb_gym import kernels
from dpb_gym.agent import unsuitable
from dpb_gym.privacy import Curator
from dpb_gym.problems.base import Array, Context, Feedback, ProblemInfo
from dpb_gym.registry import register_agent
from dpb_gym.streams import AgentStreams


@register_agent(
    "local-pricing",
    supports=["pricing"],
    protects=("local", "user-round"),
    budget="required",
)
class LocalPricing(LocalSGD):
    """Personalised prices from locally private gradients (Zhao, Jiang & Yu 2024; Han et al. 2021).

    The first `explore` customers get uniformly random prices. Afterwards the price is the best
    one at theta_k, the estimate at the start of epoch k, and epochs grow by the factor `growth`.
    Every customer sends the gradient (f(<phi, theta_t>) - y) phi of their demand y with noise,
    phi = [x; -p] / sqrt(d), and the server moves theta_t against it. The papers commit after the
    exploration (ETC-LDP). Here learning continues, at no privacy cost: each customer sends once.

    The guarantee is local, for the features and the demand of one user-round.

    Args:
        explore: Random prices at the start, >= 0.
        growth: Factor of rounds between two updates of the theta used for prices, > 1.

    Raises:
        AgentError: Without a budget.
    """

    tuning_grid: ClassVar[dict[str, Any]] = {
        "curvature": [0.15, 0.3],
        "size": [0.3, 0.6],
        "explore": [0, 100],
    }

    curvature: float = 0.3
    size: float = 0.6
    explore: int = integer(100, 0)
    growth: float = real(1.1, 1.0, open_low=True)

    def begin(self, problem: ProblemInfo, streams: AgentStreams, curator: Curator) -> None:
        if problem.kind != "pricing" or problem.demand is None:
            raise unsuitable("local-pricing", problem, "pricing", "demand")
        self._link = LOGISTIC if problem.demand == "logistic" else GAUSSIAN
        self._zeta = 1.0 if problem.zeta is None else problem.zeta
        self.open(problem, streams, curator, self._link, self._zeta)
        explore = min(self.explore, problem.longest)
        self._start = np.stack([rng.random(explore) for rng in streams.agent])
        self._rounds, self._next = 0, 1.0
        self._epoch = self.theta
        self._phi, self._value = np.empty_like(self.theta), np.empty(len(self.theta))

    def act(self, context: Context) -> Array:
        if self._rounds < self._start.shape[1]:
            return self._start[:, self._rounds].copy()
        price = np.empty(len(self.theta))
        kernels.demand_models.best_prices(
            context.features, self._epoch, self._link, self._zeta, price, self._value
        )
        return price

    def observe(self, context: Context, action: Array, feedback: Feedback) -> None:
        features, price, demand = recorded(context, action, feedback)
        agent_kernels.demand.demand_vectors(features, price, self._phi)
        self.step(self._phi, demand)
        self._rounds += 1
        if self._rounds >= self._next:
            self._epoch, self._next = self.theta, self.growth * self._rounds
