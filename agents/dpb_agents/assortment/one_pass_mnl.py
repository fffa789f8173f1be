"""One-pass private Newton for assortment under the multinomial logit."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from dpb_agents import kernels as agent_kernels
from dpb_agents.assortment.choice_records import offered
from dpb_agents.common.newton_sums import Combined, OnePassNewton, Rows, SizePrior
from dpb_gym import kernels, portable, validation
from dpb_gym.agent import unsuitable
from dpb_gym.problems.base import Array, Context, Feedback, ProblemInfo
from dpb_gym.registry import register_agent
from dpb_gym.streams import AgentStreams

if TYPE_CHECKING:
    from dpb_gym.privacy import Curator

# Nodes of the prior of |theta|, which is log-normal, in standard deviations of 1/2.
DEVIATIONS = np.linspace(-2.5, 2.5, 11)
# Draws of theta that items of equal revenues are valued by: the Monte Carlo error of a mean is
# 1/8 of the standard deviation of a draw.
DRAWS = 64
# Draws are used until a coordinate of theta is so many standard deviations of its noise long:
# that ratio is 1 at t_0 and grows like t.
UNSURE = 3.0


@register_agent(
    "one-pass-mnl",
    supports=["assortment"],
    protects=("joint", "user-round"),
)
class OnePassMNL(OnePassNewton):
    """One-pass private Newton for assortment: greedy on noisy sums of curvature and response.

    Each choice enters once: its curvature H_t and its response u_t, H_t theta_t plus a score
    that is zero in the mean, at the theta that was released when the customer arrived. Scores
    are cut radially, inside the mean as well, and a public weight brings every record to the
    full sensitivity, so that nothing is biased. The running sums of both are released with
    Gaussian noise at rounds that grow geometrically, and theta is the posterior mean given all
    releases, the known noise and a prior whose size is learned.

    The offer is the best assortment under theta. Where revenues are equal and theta is not yet
    known, it is a greedy assortment for the expected revenue under the prior or the posterior.
    In rare directions, about which the records say next to nothing (the constant of an item that
    is never offered, for example), theta gets a draw from its posterior. The draw's assortment is
    rejected if it costs more than twice what it may gain. The cost of a round does not depend on t.
    Proofs: docs/one-pass.md.

    The guarantee is joint zCDP (or the given (epsilon, delta)) per user-round, or per user with
    `max_rounds_per_user`, replace-one. It covers all rounds and is spent from the first round on.
    Without a budget the sums are exact, scores are not cut, records weigh less while theta is
    unknown, and the agent is a non-private online Newton method.

    Args:
        norm: Median of the prior size of theta - prior mean.
        cut: Norm at which an item's distance from the mean item is cut, and the norm U of a
            response for which the row has its full sensitivity.
        bound: The same norm B of the curvature, in units of `cut`.
        share: Part q of the budget that pays for the response; the rest is the curvature's.

    Raises:
        ParameterError: If a parameter is out of range.
    """

    tuning_grid: ClassVar[dict[str, list[Any]]] = {
        "norm": [1.4, 2.0],
        "share": [0.75, 0.85],
        "first": [1.0, 2.2],
    }

    norm: float = 2.0
    cut: float = 0.5
    bound: float = 0.35
    share: float = 0.85
    first: float = 1.0

    def __post_init__(self) -> None:
        super().__post_init__()
        self.norm = validation.real("norm", self.norm, 0.0, open_low=True)
        self.cut = validation.real("cut", self.cut, 0.0, open_low=True)
        self.bound = validation.real("bound", self.bound, 0.0, open_low=True)
        self.share = validation.real("share", self.share, 0.0, 1.0, open_low=True, open_high=True)

    def begin(self, problem: ProblemInfo, streams: AgentStreams, curator: Curator) -> None:
        if problem.kind != "assortment" or problem.n_items is None or problem.capacity is None:
            raise unsuitable("one-pass-mnl", problem, "assortment", "n_items", "capacity")
        B, d = streams.replicates, problem.dim
        # the trace of the curvature of items that are cut, spread over d coordinates
        rate = self.cut / d
        beliefs = portable.each(portable.exp, -0.5 * DEVIATIONS**2)
        sizes = self.norm * portable.each(portable.exp, 0.5 * DEVIATIONS)
        layout = Rows(d, self.bound * self.cut, self.cut, self.share, rate, curator.private)
        prior = SizePrior(sizes, beliefs / beliefs.sum())
        self.open(problem, curator, layout, prior, signal=rate * self.norm, calm=1.0)
        kernels.linalg.cholesky(self.covariance, self.root)
        self._cut = self.cut if curator.private else math.inf
        self._exactly, self._capacity = bool(problem.exactly), problem.capacity
        self._equal = bool(problem.equal_revenues) and problem.reward_range[1] > 0.0
        self._unsure = UNSURE * max(d, self.first_release) if self._equal else 0.0
        self._normals = streams.normals(d)
        self._values = np.zeros(B)
        self._rare, self._drawn = np.zeros((B, d, d)), np.empty((B, d))

    def learn(self, estimate: Combined, late: Combined | None) -> None:
        super().learn(estimate, late)
        agent_kernels.posterior.rare_directions(self.theta, self.covariance, self.norm, self._rare)

    def _posterior(self, estimate: Combined) -> tuple[Array, ...]:
        # At distance 1, where `rate` is the typical eigenvalue, a cut response has variance cut^2
        # and the curvature has trace cut. Draws use that variance. A single theta is safer with 1.
        if self.layout.private and self.rounds < self._unsure:
            estimate = estimate._replace(uneven=self.cut * estimate.uneven)
        return super()._posterior(estimate)

    def act(self, context: Context) -> Array:
        x, revenues = context.features, context.offered_revenues
        if self.rounds < self._unsure:
            slates = np.empty((len(self.theta), self._capacity), np.int64)
            normals = np.ascontiguousarray(self._normals.take(DRAWS).swapaxes(0, 1))
            agent_kernels.slates.expected_slates(
                x, revenues, self._exactly, self.theta, self.root, normals, slates
            )
            return slates
        normals, best = self._normals.next(), self._best_slates(context, self.theta)
        if not self._rare.any():
            return best
        agent_kernels.posterior.dispersed(self.theta, self._rare, normals, self._drawn)
        slates = self._best_slates(context, self._drawn)
        agent_kernels.slates.warranted_slates(x, revenues, self.theta, self._drawn, best, slates)
        return slates

    def _best_slates(self, context: Context, theta: Array) -> Array:
        """Return the best slates ``(B, K)`` for a theta ``(B, d)``."""
        slates = np.empty((len(theta), self._capacity), np.int64)
        x, revenues = context.features, context.offered_revenues
        equal = self._equal and context.available is None
        agent_kernels.slates.optimistic_slates(
            x, revenues, equal, self._exactly, theta, self.root, 0.0, self._values, slates
        )
        return slates

    def observe(self, context: Context, action: Array, feedback: Feedback) -> None:
        assert feedback.choice is not None
        agent_kernels.newton_records.choice_rows(
            context.features,
            offered(action, feedback),
            feedback.choice,
            self.theta,
            self.covariance,
            self._cut,
            self.layout.weighting,
            self.layout.factors,
            self.rows,
        )
        self.take(context.users)
