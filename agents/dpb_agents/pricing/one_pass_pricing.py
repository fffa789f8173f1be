"""One-pass private Newton for pricing, logistic and Gaussian demand."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from dpb_agents import kernels as agent_kernels
from dpb_agents.common.newton_sums import OnePassNewton, Rows, SizePrior
from dpb_agents.common.parameters import positive, real
from dpb_agents.pricing.demand_records import MODELS, recorded
from dpb_gym import kernels, portable
from dpb_gym.agent import unsuitable
from dpb_gym.problems.base import Array, Context, Feedback, ProblemInfo
from dpb_gym.registry import register_agent
from dpb_gym.streams import AgentStreams

if TYPE_CHECKING:
    from dpb_gym.privacy import Curator

# Gaussian demand has unit variance and a mean within [-1, 1]: clipped beyond two deviations.
GAUSSIAN_RANGE = (-3.0, 3.0)
# A budget is hopeless if twice the round of the first release is beyond half of the rounds.
HOPELESS = 0.25
# Prices that are drawn again for each record; 1, 3 and 7 are within 10%.
TWINS = 3
# Candidate sizes of theta in units of `norm`, and the probability of each but the first: 1% in
# all that demand is steeper than foreseen.
SIZES, OTHERS = np.array([1.0, 1.6, 2.5, 4.0, 8.0]), 0.0025
# A direction is rare below this part of the mean information; the prior size there, in units of
# `norm`. Both trade an intercept against customers that drift (docs/one-pass.md, "Constants").
RARE, WIDE = 0.15, 2.5


@register_agent("one-pass-pricing", supports=["pricing"], protects=("anticipating", "user-round"))
class OnePassPricing(OnePassNewton):
    """One-pass private Newton for pricing: noisy sums of curvature and response.

    Each sale enters once: its curvature H_t and its response u_t, H_t theta_t plus a score that
    is zero in the mean, at the theta that was released when the customer arrived. A public
    weight brings every record to the full sensitivity without bias. The running sums of both
    are released with Gaussian noise at rounds that grow geometrically, and theta is the
    posterior mean given all releases, the known noise and a prior whose size is learned.

    The price is best for theta plus a small draw from its posterior, so that prices never stop
    to differ: the factor `disperse` costs about disperse^2 of what not knowing theta costs. In
    rare directions, which carry next to no information (intercept against slope, for example),
    the draw is whole and the prior wide until prices have explored them. A draw is rejected if
    its price costs more than twice what it may gain.

    With a budget, logistic records count more in two ways. The gap between the price and others
    drawn for the same customer is independent of the customer, and counts more for the price's
    coefficient. The direction of least information counts more if the price takes part in it.

    Until the first release the price is that of the prior mean: 1 for theta = 0 and logistic
    demand, random for Gaussian demand. If the budget is too small to learn in time and there is no
    prior mean, prices for logistic demand are exp(-U), U uniform, which minimises the worst-case
    regret.

    The guarantee is anticipating zCDP (or the given (epsilon, delta)) per user-round, or per user
    with `max_rounds_per_user`, replace-one; the same argument gives joint privacy. It covers all
    rounds and is spent from the first round on. Without a budget the sums are exact, records have
    no weights, and the agent is a non-private online Newton method. Proofs: docs/one-pass.md.

    Args:
        norm: Prior size of theta - prior mean. Sizes up to 8 times as large have a small prior
            probability each.
        clip: Norm U of a response for which the row has its full sensitivity, in units of the
            largest that is possible (zeta, or the range to which Gaussian demand is clipped).
        bound: The same norm B of the curvature, in units of zeta^2 / 4, or 1 for Gaussian
            demand.
        disperse: Size of the draw, in units of the posterior; with 0 prices are greedy, in rare
            directions too.

    Raises:
        ParameterError: If a parameter is out of range.
    """

    retired: ClassVar[dict[str, str]] = {"rare": "it is 0.15, and disperse=0 plays greedily"}
    tuning_grid: ClassVar[dict[str, list[Any]]] = {
        "clip": [0.3, 0.45],
        "disperse": [0.05, 0.1],
        "first": [1.6, 2.4],
    }

    notion: ClassVar[str] = "anticipating"
    norm: float = positive(0.85)
    clip: float = positive(0.3)
    bound: float = positive(0.2)
    disperse: float = real(0.1, 0.0)
    first: float = 2.4

    def first_exact(self, problem: ProblemInfo) -> int:
        """Return d: a record informs about one direction."""
        return problem.dim

    def begin(self, problem: ProblemInfo, streams: AgentStreams, curator: Curator) -> None:
        if problem.kind != "pricing" or problem.demand is None:
            raise unsuitable("one-pass-pricing", problem, "pricing", "demand")
        logistic, d = problem.demand == "logistic", problem.dim
        zeta = 1.0 if problem.zeta is None else problem.zeta
        steepest = zeta**2 / 4 if logistic else 1.0
        # a quarter of the largest trace, spread over d coordinates
        rate = steepest / (4 * d)
        response = self.clip * (zeta if logistic else GAUSSIAN_RANGE[1])
        curvature = self.bound * steepest
        # the share of least noise in u - H theta for |theta| = norm
        share = 2 * response / (2 * response + self.norm * curvature * math.sqrt(1 + 1 / d))
        layout = Rows(d, curvature, response, share, rate, curator.private)
        others = len(SIZES) - 1
        prior = SizePrior(
            self.norm * SIZES,
            np.append(1.0 - others * OTHERS, np.full(others, OTHERS)),
            # the best price is linear in theta for Gaussian demand: one direction carries little
            rare=RARE if logistic and self.disperse else 0.0,
            wide=WIDE * self.norm,
        )
        self.open(problem, curator, layout, prior, signal=rate, calm=self.disperse)
        self._blind, self._bets = self.first_release, logistic and self.disperse > 0.0
        if logistic:
            horizon = self.horizon(problem)
            self._blind = horizon if self._blind > HOPELESS * horizon and curator.private else 0
        if self._centre.any():
            self._blind = 0
        self._twins = TWINS if logistic and curator.private else 0
        bounds = (0.0, 1.0) if logistic else GAUSSIAN_RANGE
        self._demand = MODELS.index(problem.demand), zeta
        self._public = *self._demand, *bounds, self.layout.weighting, self.layout.factors
        self._normals = streams.normals(d)
        self._drawn = np.empty_like(self.theta)
        self._best, self._value = np.empty((2, streams.replicates))

    def act(self, context: Context) -> Array:
        """Return the price that is best for theta plus a draw, or a blind or a safe price."""
        normals, price, x = self._normals.next(), np.empty(len(self.theta)), context.features
        if self.rounds < self._blind:
            uniforms = portable.each(kernels.elementary.normal_cdf, normals[:, 0])
            hopeless = self._twins > 0  # otherwise Gaussian demand before the first release
            return portable.each(kernels.elementary.exp, -uniforms) if hopeless else uniforms
        agent_kernels.posterior.dispersed(self.theta, self.root, normals, self._drawn)
        self._priced(x, self._drawn, price)
        if self._bets:
            self._priced(x, self.theta, self._best)
            agent_kernels.prices.warranted(
                x, self.theta, self._drawn, self._best, *self._demand, price
            )
        return price

    def _priced(self, features: Array, theta: Array, price: Array) -> None:
        """Write the best prices for a theta to `price`."""
        kernels.demand_models.best_prices(features, theta, *self._demand, price, self._value)

    def observe(self, context: Context, action: Array, feedback: Feedback) -> None:
        prices = np.array([action, *(self.act(context) for _ in range(self._twins))])
        features, prices, demand = recorded(context, prices, feedback)
        agent_kernels.newton_records.demand_rows(
            features,
            prices,
            demand,
            self.theta,
            self.covariance,
            self.weak,
            *self._public,
            self.rows,
        )
        self.take(context.users)
