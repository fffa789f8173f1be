"""One-pass private Newton for pricing, logistic and Gaussian demand."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from dpb_agents import kernels as agent_kernels
from dpb_agents.common.newton_sums import OnePassNewton, Rows
from dpb_agents.common.parameters import positive, real
from dpb_agents.pricing.demand_records import MODELS, recorded
from dpb_gym import kernels, portable
from dpb_gym.agent import unsuitable
from dpb_gym.problems.base import Array, Context, Feedback, ProblemInfo
from dpb_gym.registry import register_agent
from dpb_gym.streams import AgentStreams

if TYPE_CHECKING:
    from dpb_gym.privacy import Curator

# Gaussian demand has unit variance and a mean within [-1, 1]: clipped in few rounds.
GAUSSIAN_RANGE = (-3.0, 3.0)
# A budget is hopeless if the first release takes more than this part of the rounds: by twice that
# round, when theta is told, half of them are over.
HOPELESS = 0.25
# Prices drawn again for each record.
TWINS = 3
LEAST_NORM, LARGEST_NORM = 0.2, 0.85
# Part of the mean information, and of the price's, below which a direction is rare. Not for
# Gaussian demand, whose best price is linear in the features: one direction always carries little.
RARE = 0.15
# The prior size there: wide, but nothing where a budget is too small to believe in a theta that
# moves prices, and not beyond what is foreseen of the largest.
WIDER, WIDEST = 6.0, 2.5 * LARGEST_NORM
# The prior size of theta, of which nearly all belief is in the first: all but OTHERS for each of
# the others, and less by the power RELUCTANCE of how far the first is from its largest: a budget
# that teaches little needs stronger reasons to leave what is best for small theta.
SIZES = np.array([1.0, 1.6, 2.5, 4.0, 8.0])
OTHERS, RELUCTANCE = 0.0075, 20.0


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
    directions that have carried next to no information, intercept against slope say, the draw
    is whole and the prior wide, until prices have told them apart. A draw whose price costs more
    than twice what it may gain is left. What a price differs by from
    others that might have been drawn for the same customer is independent of the customer: with a
    budget it counts BOOST times more for the price's coefficient, and the direction of least
    information, where the price takes part in it, counts more in every record. Until the first
    release the price is that of the prior mean: 1 for theta = 0 and logistic demand; random for
    Gaussian demand. With a budget too small to learn from in time, and no prior mean, prices for
    logistic demand are exp(-U), U uniform: the law of least regret in the worst case.

    The guarantee is anticipating zCDP (or the (epsilon, delta) that was asked for) per
    user-round, replace-one, and all-Gaussian; the argument gives joint privacy as well. It is
    the whole budget from the first round on. Without a budget the sums are exact, nothing is
    weighted, and what remains is a non-private online Newton method. Proofs: docs/one-pass.md.

    Args:
        norm: Prior size of theta - prior mean. By default (T / (t_0 sqrt(d)))^0.4 / 7 kept
            within [0.2, 0.85] for logistic demand, t_0 the round at which the noise in one
            coordinate is as large as a theta of size 1: the less a budget can teach, the more a
            small theta, which means price 1, is preferred; that of the price's coefficient alone
            is 0.85. For Gaussian demand 0.85. Larger sizes are believed in as well if the
            responses speak for them, the less the smaller it is.
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

    norm: float | None = positive(None)
    clip: float = positive(0.3)
    bound: float = positive(0.2)
    disperse: float = real(0.1, 0.0)
    first: float = 2.4

    def begin(self, problem: ProblemInfo, streams: AgentStreams, curator: Curator) -> None:
        from dpb_gym.privacy import gaussian_sigma

        if problem.kind != "pricing" or problem.demand is None:
            raise unsuitable("one-pass-pricing", problem, "pricing", "demand")
        logistic, d = problem.demand == "logistic", problem.dim
        zeta = 1.0 if problem.zeta is None else problem.zeta
        steepest = zeta**2 / 4 if logistic else 1.0
        # a quarter of the largest trace, spread over d coordinates
        rate = steepest / (4 * d)
        response = self.clip * (zeta if logistic else GAUSSIAN_RANGE[1])
        curvature = self.bound * steepest
        widening = curvature * math.sqrt(1 + 1 / d)
        norm = LARGEST_NORM if self.norm is None else self.norm
        if self.norm is None and logistic and curator.private:
            sigma = gaussian_sigma(curator.most_rho, 1.0)
            even = sigma * (2 * response + widening) / rate
            reachable = portable.power(self.horizon(problem) / (even * math.sqrt(d)), 0.4) / 7
            norm = min(norm, max(LEAST_NORM, reachable))
        others = OTHERS * portable.power(min(1.0, norm / LARGEST_NORM), RELUCTANCE)
        # the least noise in u - H theta for a theta of this size
        share = 2 * response / (2 * response + norm * widening)
        self.open(
            problem,
            curator,
            layout=Rows(d, curvature, response, share, curator.private),
            sizes=norm * SIZES,
            beliefs=np.append(1.0 - 4.0 * others, np.full(4, others)),
            rate=rate,
            signal=rate,
            rare=RARE if logistic and self.disperse else 0.0,
            loose=min(WIDER * norm, WIDEST),
            lead=LARGEST_NORM if logistic and self.norm is None else 0.0,
            calm=self.disperse,
            earliest=10 if curator.private else 5,
        )
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
        """Best for theta plus a draw, unless that is a bad bet; blind prices tell nothing."""
        normals, price, x = self._normals.next(), np.empty(len(self.theta)), context.features
        if self.rounds < self._blind:
            uniforms = portable.each(kernels.elementary.normal_cdf, normals[:, 0])
            private = self._twins > 0  # uniform where one learns soon, or of least regret
            return portable.each(kernels.elementary.exp, -uniforms) if private else uniforms
        agent_kernels.posterior.dispersed(self.theta, self.root, normals, self._drawn)
        self._priced(x, self._drawn, price)
        if self._bets:
            self._priced(x, self.theta, self._best)
            agent_kernels.prices.warranted(
                x, self.theta, self._drawn, self._best, *self._demand, price
            )
        return price

    def _priced(self, features: Array, theta: Array, price: Array) -> None:
        """Best prices for a theta, written to `price`."""
        kernels.pricing.best_prices(features, theta, *self._demand, price, self._value)

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
        self.take()
