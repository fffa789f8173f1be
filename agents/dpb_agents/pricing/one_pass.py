"""One-pass private Newton for pricing, logistic and Gaussian demand."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from dpb_agents.common.one_pass import Design, OnePassNewton
from dpb_agents.pricing.records import MODELS
from dpb_gym import kernels, validation
from dpb_gym.agent import register_agent
from dpb_gym.errors import AgentError
from dpb_gym.problems.base import Array, Context, Feedback, ProblemInfo
from dpb_gym.streams import AgentStreams

if TYPE_CHECKING:
    from dpb_gym.privacy import Budget, Curator

# Gaussian demand has unit variance and a mean within [-1, 1]: clipped in few rounds.
GAUSSIAN_RANGE = (-3.0, 3.0)
LEAST_NORM = 0.35


@register_agent(
    "one-pass-pricing",
    supports=["pricing"],
    protects=("anticipating", "user-round"),
    partial_feedback=False,
)
class OnePassPricing(OnePassNewton):
    """One-pass private Newton for pricing: greedy on noisy sums of curvature and response.

    Each sale enters once: its curvature H_t and its response u_t = H_t theta_t - g_t at the
    theta that was released when the customer arrived. The running sums of both are released
    with Gaussian noise at rounds that grow geometrically
    (`dpb_gym.privacy.Schedule`), and theta solves the combined releases,
    shrunk by what is known of the noise; the offer is the price of largest expected revenue
    under theta, in closed form. Nothing is refitted, so the cost of a round does not depend
    on t.

    Price 1 is offered until the first release, and whenever the shrunken theta is too small
    to speak against it: without an intercept in the model it reveals as much of theta as any
    price, and a budget too small to learn from costs no more than price 1 does. Gaussian
    demand can make price 0 look best, which reveals nothing of the price coefficient;
    `explore` guards against it.

    The guarantee is anticipating zCDP (or the (epsilon, delta) that was asked for) per
    user-round, replace-one, and all-Gaussian; the argument gives joint privacy as well. It is
    the whole budget from the first round on. Without a budget the sums are exact and what
    remains is a non-private online Newton method.

    Args:
        norm: Prior size of theta: variance ``norm^2 / d`` per coordinate. By default
            (T / t_0)^(1/4) / 7 kept within [0.35, 1] for logistic demand, t_0 the round at
            which the noise is as large as a theta of norm 1: the less a budget can teach, the
            more a small theta, which means price 1, is preferred, so that a hopeless budget
            loses nothing against price 1. Without a budget, or for Gaussian demand, 1.
        reach: Largest norm of an estimate of theta.
        clip: Norm bound U of the response, in units of the largest that is possible (zeta, or
            the range to which Gaussian demand is clipped). Records that might exceed it get a
            smaller weight, in curvature and response alike.
        bound: Bound of the curvature, in units of the largest that is possible (zeta^2 / 4, or
            1 for Gaussian demand), kept by the same weights.
        share: Part of the budget that pays for the response; the rest is the curvature's.
        explore: Uniformly random prices at the start, before price 1; by default none for
            logistic demand, as many as there are rounds before the first release otherwise.
        start: Earliest first release, in rounds.
        mechanism: See `Design`.
        first: See `Design`.
        ratio: See `Design`.
        decay: See `Design`.
        every: See `Design`.

    Attributes:
        releaser: Takes the raw records; the policy reads its releases only.

    Raises:
        ParameterError: If a parameter is out of range.
    """

    def __init__(
        self,
        norm: float | None = None,
        reach: float = 1.5,
        clip: float = 0.3,
        bound: float = 0.35,
        share: float = 0.7,
        explore: int | None = None,
        start: int = 20,
        mechanism: str = "weighted",
        first: float = 0.7,
        ratio: float = 1.1,
        decay: float = 1.25,
        every: int = 100,
    ) -> None:
        design = Design(mechanism, first, ratio, decay, every)
        super().__init__(1.0 if norm is None else norm, reach, clip, share, start, design)
        self._adapt = norm is None
        self.bound = validation.real("bound", bound, 0.0, 1.0, open_low=True)
        self.explore = None if explore is None else validation.integer("explore", explore, 0)

    def begin(self, problem: ProblemInfo, streams: AgentStreams, curator: Curator) -> None:
        if problem.kind != "pricing" or problem.demand is None:
            raise AgentError(f"one-pass-pricing plays pricing problems, not {problem.kind}")
        logistic = problem.demand == "logistic"
        self._model = MODELS.index(problem.demand)
        self._zeta = 1.0 if problem.zeta is None else problem.zeta
        self._range = (0.0, 1.0) if logistic else GAUSSIAN_RANGE
        steepest = self._zeta**2 / 4 if logistic else 1.0
        self.open(
            problem,
            curator,
            bound=self.bound * steepest,
            radius=self.clip * (self._zeta if logistic else GAUSSIAN_RANGE[1]),
            # a quarter of the largest trace, spread over d coordinates
            rate=steepest / (4 * problem.dim),
        )
        explore = self.explore
        if explore is None:
            explore = 0 if logistic else self.first_release
        explore = min(explore, problem.horizon)
        self._start = np.stack([rng.random(explore) for rng in streams.agent])
        self._value = np.empty(streams.replicates)

    def choose_norm(self, horizon: int, budget: Budget | None, rate: float) -> float:
        from dpb_gym.privacy import equivalent_rho, gaussian_sigma

        if budget is None or not self._adapt or self._model != MODELS.index("logistic"):
            return self.norm
        noise = gaussian_sigma(equivalent_rho(budget), 1.0) * self.layout.unit_noise(self.norm)
        even = noise * math.sqrt(self.layout.dim) / rate
        return min(self.norm, max(LEAST_NORM, math.sqrt(math.sqrt(horizon / even)) / 7.0))

    def act(self, context: Context) -> Array:
        if self.rounds < self._start.shape[1]:
            return self._start[:, self.rounds].copy()
        price = np.ones(len(self.theta))
        if self.rounds >= self.first_release:
            kernels.pricing.best_prices(
                context.features, self.theta, self._model, self._zeta, price, self._value
            )
        return price

    def observe(self, context: Context, action: Array, feedback: Feedback) -> None:
        assert feedback.demand is not None
        kernels.one_pass.demand_rows(
            context.features,
            action,
            feedback.demand,
            self.theta,
            self._model,
            self._zeta,
            *self._range,
            self.layout.bound,
            self.layout.radius,
            self.layout.curvature_weight,
            self.layout.response_weight,
            self.rows,
            self._clipped,
        )
        self.take()
