"""One-pass private Newton for assortment under the multinomial logit."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from dpb_agents import kernels as zoo
from dpb_agents.common.one_pass import Design, OnePassNewton
from dpb_gym.agent import register_agent
from dpb_gym.errors import AgentError
from dpb_gym.problems.base import Array, Context, Feedback, ProblemInfo
from dpb_gym.streams import AgentStreams

if TYPE_CHECKING:
    from dpb_gym.privacy import Curator

# A typical trace of one choice's curvature; it is below 1 for features in the unit ball.
CURVATURE_RATE = 0.6


@register_agent(
    "one-pass-mnl",
    supports=["assortment"],
    protects=("joint", "user-round"),
    partial_feedback=False,
)
class OnePassMNL(OnePassNewton):
    """One-pass private Newton for assortment: greedy on noisy sums of curvature and response.

    Each choice enters once: its curvature H_t and its response u_t = H_t theta_t - g_t at the
    theta that was released when the customer arrived, features moved into the unit ball. The
    running sums of both are released with Gaussian noise at rounds that grow geometrically
    (`dpb_gym.privacy.Schedule`), and theta solves the combined releases,
    shrunk by what is known of the noise. The offer is the best assortment under theta, whatever
    the revenues; until the first release that is theta = 0, or, if all revenues are equal and
    theta = 0 tells nothing, a uniformly random set. Nothing is refitted, so the cost of a
    round does not depend on t.

    The guarantee is joint zCDP (or the (epsilon, delta) that was asked for) per user-round,
    replace-one, and all-Gaussian; it is the whole budget from the first round on. Without a
    budget the sums are exact and what remains is a non-private online Newton method.

    Args:
        norm: Prior size of theta: variance ``norm^2 / d`` per coordinate.
        reach: Largest norm of an estimate of theta.
        clip: Norm bound U of the response. Nearly all responses of a small d are cut to it,
            which scales theta but hardly turns it.
        share: Part of the budget that pays for the response; the rest is the curvature's.
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
        norm: float = 1.5,
        reach: float = 3.0,
        clip: float = 0.6,
        share: float = 0.7,
        start: int = 10,
        mechanism: str = "weighted",
        first: float = 0.7,
        ratio: float = 1.1,
        decay: float = 1.25,
        every: int = 100,
    ) -> None:
        super().__init__(
            norm, reach, clip, share, start, Design(mechanism, first, ratio, decay, every)
        )

    def begin(self, problem: ProblemInfo, streams: AgentStreams, curator: Curator) -> None:
        if problem.kind != "assortment" or problem.n_items is None or problem.capacity is None:
            raise AgentError(f"one-pass-mnl plays assortment problems, not {problem.kind}")
        rate = CURVATURE_RATE / problem.dim
        self.open(problem, curator, bound=1.0, radius=self.clip, rate=rate)
        B, N, d = streams.replicates, problem.n_items, problem.dim
        self._shape = (N, problem.capacity)
        self._equal = bool(problem.equal_revenues) and problem.reward_range[1] > 0.0
        self._uniforms = streams.uniforms(problem.capacity)
        self._utility = np.empty((B, N))
        self._no_root = np.zeros((B, d, d))

    def act(self, context: Context) -> Array:
        N, K = self._shape
        slates = np.empty((len(self.theta), K), np.int64)
        if self._equal and self.rounds < self.first_release:
            zoo.slates.random_slates(self._uniforms.next(), N, slates)
            return slates
        assert context.revenues is not None
        zoo.slates.optimistic_slates(
            context.features,
            context.revenues,
            self._equal,
            self.theta,
            self._no_root,
            0.0,
            self._utility,
            slates,
        )
        return slates

    def observe(self, context: Context, action: Array, feedback: Feedback) -> None:
        from dpb_gym.kernels import one_pass

        assert feedback.choice is not None
        one_pass.choice_rows(
            context.features,
            action,
            feedback.choice,
            self.theta,
            self.layout.radius,
            self.layout.curvature_weight,
            self.layout.response_weight,
            self.rows,
            self._clipped,
        )
        self.take()
