"""Pricing by forced exploration: explore then commit, MLE cycles, controlled variance.

Each is greedy pricing by maximum likelihood with its own rule of when to try other prices.
"""

from __future__ import annotations

import math
from dataclasses import field
from typing import Any, ClassVar

import numpy as np

from dpb_agents.common.parameters import choice, integer, positive, real
from dpb_agents.common.prior import WarmStart
from dpb_agents.pricing.demand_records import MODELS, ExactMLE, recorded
from dpb_agents.pricing.paper_constants import Demand
from dpb_agents.pricing.private_demand_mle import PrivateMLE
from dpb_gym import kernels, portable
from dpb_gym.agent import unsuitable
from dpb_gym.privacy import Curator
from dpb_gym.problems.base import Array, Context, Feedback, ProblemInfo
from dpb_gym.registry import register_agent
from dpb_gym.streams import AgentStreams


class FittedPrices(WarmStart):
    """Random prices, then the price of largest p f(<phi, theta>), phi = [x; -p] / sqrt(d).

    theta is fitted by maximum likelihood after the random prices, and then whenever the number of
    rounds has grown by the factor `growth`: a schedule that does not depend on data.

    Args:
        explore: Random prices at the start.
        growth: Factor of rounds between two fits of theta, > 1.
        ridge: Weight of ``||theta||^2 / 2`` in the likelihood, > 0.
    """

    explore: int = integer(10, 0)
    growth: float = real(2.0, 1.0, open_low=True)
    ridge: float = positive(1.0)

    def begin(self, problem: ProblemInfo, streams: AgentStreams, curator: Curator) -> None:
        if problem.kind != "pricing" or problem.demand is None:
            raise unsuitable(type(self).__name__, problem, "pricing", "demand")
        B = streams.replicates
        self._model = MODELS.index(problem.demand)
        self._zeta = 1.0 if problem.zeta is None else problem.zeta
        self._estimator = self._fit(problem, curator)
        self._estimator.centre = prior = self.prior(problem).centre
        explore = min(self.explore, problem.longest)
        self._start = np.stack([rng.random(explore) for rng in streams.agent])
        self._rounds = 0
        self._next = max(1, explore)
        self._theta = np.tile(prior, (B, 1))
        self._updates = np.zeros(B, np.int64)
        self._value = np.empty(B)

    def _fit(self, problem: ProblemInfo, curator: Curator) -> ExactMLE | PrivateMLE:
        assert problem.demand is not None
        known = (problem.demand, problem.zeta, self.ridge)
        return ExactMLE(curator.replicates, problem.dim, problem.longest, *known)

    @property
    def updates(self) -> Array:
        """How often theta was fitted, ``(B,)``."""
        return self._updates.copy()

    def act(self, context: Context) -> Array:
        if self._rounds < self._start.shape[1]:
            return self._start[:, self._rounds].copy()
        price = np.empty(len(self._theta))
        known = (context.features, self._theta, self._model, self._zeta)
        kernels.demand_models.best_prices(*known, price, self._value)
        return price

    def observe(self, context: Context, action: Array, feedback: Feedback) -> None:
        self._estimator.add(*recorded(context, action, feedback))
        self._rounds += 1
        if self._rounds < self._next and self._rounds != self._start.shape[1]:
            return
        self._next = math.ceil(self.growth * self._rounds)
        self._theta[:] = self._estimator.release(np.ones(len(self._theta), bool))
        self._updates += 1


@register_agent(
    "explore-commit-pricing",
    supports=["pricing"],
    protects=("anticipating", "user-round"),
    needs_horizon=True,
)
class ExploreCommit(FittedPrices):
    """Explore then commit: random prices, one maximum-likelihood fit, then greedy prices.

    With a budget, the fit is one release of objective perturbation, which takes the whole budget
    (anticipating, per user-round, replace-one). Responses after the random start are not used.

    Args:
        explore: Number of random prices; by default ceil(sqrt(d T)), or with a budget
            ceil((d T)^(2/3)), as private estimates need more; both at most T / 4.
        demand_bound: With a budget, Gaussian demand is clipped to [-B_Y, B_Y], > 0.
    """

    # enough records to move theta far
    audit_params: ClassVar[dict[str, Any]] = {"explore": 1024}
    audit_horizon = 1026
    tuning_grid: ClassVar[dict[str, list[Any]]] = {
        "explore": [None, 100, 200, 400, 800, 1600, 3200, 6400]
    }

    explore: int = integer(None, 0)
    growth: float = field(default=2.0, init=False)
    demand_bound: float = positive(3.0)

    def __post_init__(self) -> None:
        super().__post_init__()
        self._explore = self.explore

    def _fit(self, problem: ProblemInfo, curator: Curator) -> ExactMLE | PrivateMLE:
        T, d = problem.longest, problem.dim
        assert problem.demand is not None
        if self._explore is None:
            power = 2 / 3 if curator.private else 1 / 2
            self.explore = max(1, min(math.ceil(portable.power(d * T, power)), T // 4))
        if not curator.private:
            return super()._fit(problem, curator)
        demand = Demand.of(problem.demand, problem.zeta, self.demand_bound)
        return PrivateMLE(curator, d, max(1, min(self.explore, T)), demand)

    def observe(self, context: Context, action: Array, feedback: Feedback) -> None:
        if self._rounds < max(1, self._start.shape[1]):
            super().observe(context, action, feedback)


@register_agent("mle-cycle-pricing", supports=["pricing"])
class MLECycle(FittedPrices):
    """MLE-cycle: episodes of doubling length, each with random prices first and then a fit.

    After Broder & Rusmevichientong (2012) and Javanmard & Nazerzadeh (2019), with features.

    Args:
        first: Length of the first episode, >= 2.
        tests: Random prices at the start of an episode: ``"sqrt"`` (the square root of its
            length, rounded up) or ``"dim"`` (d of them).
    """

    tuning_grid: ClassVar[dict[str, list[Any]]] = {
        "first": [16, 64],
        "tests": ["sqrt", "dim"],
        "ridge": [1.0, 4.0],
    }

    explore: int = field(default=0, init=False)
    growth: float = field(default=2.0, init=False)
    first: int = integer(16, 2)
    tests: str = choice("sqrt", ("sqrt", "dim"))

    def begin(self, problem: ProblemInfo, streams: AgentStreams, curator: Curator) -> None:
        super().begin(problem, streams, curator)
        self._uniforms = streams.uniforms()
        self._dim, self._horizon = problem.dim, problem.longest
        self._open(0, self.first)

    def _open(self, start: int, length: int) -> None:
        count = math.ceil(math.sqrt(length)) if self.tests == "sqrt" else self._dim
        self._end, self._length = start + length, length
        self._next = self._exploit = start + min(count, length)

    def act(self, context: Context) -> Array:
        if self._rounds >= self._end:
            self._open(self._end, 2 * self._length)
        if self._rounds < self._exploit:
            return self._uniforms.next().copy()
        return super().act(context)

    def observe(self, context: Context, action: Array, feedback: Feedback) -> None:
        super().observe(context, action, feedback)
        if self._rounds >= self._exploit:
            self._next = self._horizon + 1  # one fit per episode


@register_agent("cils-pricing", supports=["pricing"])
class ControlledVariance(FittedPrices):
    """Constrained iterated least squares (Keskin & Zeevi 2014), by maximum likelihood.

    The greedy price, moved to at least k t^(-1/4) away from the mean of past prices, so that
    learning never stops. Controlled variance pricing (den Boer & Zwart) has the same rule. For
    Gaussian demand the fit is least squares.

    Args:
        width: k, >= 0; 0 is iterated least squares.
    """

    tuning_grid: ClassVar[dict[str, list[Any]]] = {
        "width": [0.03, 0.1],
        "explore": [0, 10],
        "ridge": [1.0, 4.0],
    }

    width: float = real(0.1, 0.0, 1.0)
    growth: float = 1.25

    def begin(self, problem: ProblemInfo, streams: AgentStreams, curator: Curator) -> None:
        super().begin(problem, streams, curator)
        self._total, self._count = np.zeros(streams.replicates), np.zeros(streams.replicates)

    def act(self, context: Context) -> Array:
        price = super().act(context)
        if self._rounds < max(1, self._start.shape[1]):
            return price
        mean = self._total / np.maximum(self._count, 1.0)
        least = self.width / math.sqrt(math.sqrt(self._rounds + 1))
        near = np.abs(price - mean) < least
        up = np.where(price >= mean, 1.0, -1.0)
        up = np.where((mean + up * least > 1.0) | (mean + up * least < 0.0), -up, up)
        moved: Array = np.where(near, np.clip(mean + up * least, 0.0, 1.0), price)
        return moved

    def observe(self, context: Context, action: Array, feedback: Feedback) -> None:
        super().observe(context, action, feedback)
        self._total += recorded(context, action, feedback)[1]
        self._count += 1.0 if feedback.observed is None else feedback.observed
