"""One-pass private least squares for recommendation: rewards private, contexts public."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from dpb_agents.common.one_pass import Design, open_sums
from dpb_agents.common.weighted_sums import PublicSums, Sums
from dpb_gym import validation
from dpb_gym.agent import Agent, register_agent
from dpb_gym.errors import ActionError, AgentError, ParameterError
from dpb_gym.problems.base import Array, Context, Feedback, ProblemInfo
from dpb_gym.streams import AgentStreams

if TYPE_CHECKING:
    from dpb_gym.privacy import Budget, Ledger


@register_agent("one-pass-linear", supports=["recommendation"], budget="optional")
class OnePassLinear(Agent):
    """One-pass private least squares: greedy on optimally combined noisy reward sums.

    Each round's reward, less the middle of its range, times the chosen candidate's features
    (moved into the unit ball, with a constant feature for the rewards' level) is added to a
    running sum that is released with Gaussian noise at rounds that grow geometrically
    (`dpb_gym.privacy.Schedule`). The features are public, so the same weighted
    sums of x x' are exact. theta is the posterior mean of the combined releases under a
    Gaussian prior and the known noise variance; the agent plays the largest <x, theta>.

    Protected is the **reward** of one round, against whoever sees all recommendations; the
    contexts, which items were recommended, and in rejection replay which rounds were
    accepted, count as public and are **not** protected. Without a budget the sums are exact.

    Args:
        norm: Prior size of theta in units of half the reward's range: theta has prior
            variance ``(norm range / 2)^2 / d`` per coordinate. With features in the unit ball
            and rewards that never leave their range, a linear model has norm at most 1.
        intercept: Value of the constant feature; 0 for no intercept, which saves a factor
            ``sqrt(1 + intercept^2)`` of noise and is sound only if rewards are known to lie
            around the middle of their range: otherwise their level is taken for a preference.
        start: Earliest first release, in rounds.
        mechanism: See `Design`.
        first: See `Design`.
        ratio: See `Design`.
        decay: See `Design`.
        every: See `Design`.

    Attributes:
        ledger: What was released, None without a budget.
        releaser: Takes the raw rewards; the policy reads its releases only.

    Raises:
        ParameterError: If a parameter is out of range, or the problem's rewards are not
            bounded.
    """

    def __init__(
        self,
        norm: float = 1.0,
        intercept: float = 0.25,
        start: int = 20,
        mechanism: str = "weighted",
        first: float = 0.45,
        ratio: float = 1.1,
        decay: float = 1.25,
        every: int = 100,
    ) -> None:
        self.norm = validation.real("norm", norm, 0.0, open_low=True)
        self.intercept = validation.real("intercept", intercept, 0.0)
        self.start = validation.integer("start", start, 1)
        self.design = Design(mechanism, first, ratio, decay, every)
        self.ledger: Ledger | None = None
        self.releaser: Sums

    def begin(
        self, problem: ProblemInfo, streams: AgentStreams, budget: Budget | None = None
    ) -> None:
        from dpb_gym.privacy import Ledger, NoiseSource, Segment

        if problem.kind != "recommendation":
            raise AgentError(f"one-pass-linear plays recommendation, not {problem.kind}")
        low, high = problem.reward_range
        if not (math.isfinite(low) and math.isfinite(high)):
            raise ParameterError(f"rewards must be bounded, got the range [{low}, {high}]")
        B, d = streams.replicates, problem.dim
        self._middle, half = 0.5 * (low + high), 0.5 * (high - low)
        self._stretch = 1.0 + self.intercept**2
        variance = (self.norm * half) ** 2 / d * self._stretch
        self._prior = np.full(d + 1, variance)
        # variance of a level that is uniform on the range
        if self.intercept > 0.0:
            self._prior[d] = (half / self.intercept) ** 2 / 3.0 * self._stretch
        # the variance of a reward with mean in the middle of its range is at most half^2
        self._spread = half**2
        # a candidate's features have squared norm 1 at most, spread over d coordinates
        rate = 1.0 / (d * self._stretch)
        if problem.partial_feedback:
            assert problem.n_candidates is not None
            rate /= problem.n_candidates
        self.ledger = None if budget is None else Ledger(budget, notion="central", unit="reward")
        self.releaser, self._releases = open_sums(
            self.design,
            width=d + 1,
            horizon=problem.horizon,
            replicates=B,
            start=self.start,
            sensitivity=2.0 * half,
            budget=budget,
            ledger=self.ledger,
            noise=NoiseSource(streams.noise),
            what="running reward sums",
            unit_noise=1.0,
            spread=self._spread * rate,
            signal=rate * math.sqrt(variance),
            clip=Segment(low - self._middle, high - self._middle),
        )
        self.guarantee = None if self.ledger is None else self.ledger.guarantee
        self._theta = np.zeros((B, d + 1))
        self._directions = np.empty((B, d + 1))
        self._grams = PublicSums(self._releases, B, (d + 1) * (d + 2) // 2)
        self._all = np.ones(B, bool)
        self._rounds = 0

    @property
    def clipped_count(self) -> Array:
        """Rewards outside their declared range so far, ``(B,)``."""
        return self.releaser.clipped_count

    def act(self, context: Context) -> Array:
        from dpb_gym.kernels import one_pass_linear

        action = np.empty(len(self._theta), np.int64)
        one_pass_linear.best_candidates(context.features, self._theta, action)
        return action

    def observe(self, context: Context, action: Array, feedback: Feedback) -> None:
        from dpb_gym.kernels import one_pass_linear

        observed = self._all if feedback.observed is None else feedback.observed
        bad = one_pass_linear.directions(
            context.features, action, observed, self.intercept, self._directions
        )
        if bad:
            raise ActionError(
                f"candidate {action[bad - 1]} of replicate {bad - 1} is outside "
                f"0..{context.features.shape[1] - 1}"
            )
        self.releaser.add(feedback.reward - self._middle, self._directions)
        one_pass_linear.add_outer_halves(self._directions, self._grams.pending)
        self._rounds += 1
        if self._releases.due(self._rounds):
            self._update()

    def _update(self) -> None:
        from dpb_gym.kernels import one_pass, one_pass_linear

        d = self._theta.shape[1]
        estimate = self._releases.take(self.releaser.release(), self.releaser.noise_std)
        information = np.empty((len(self._theta), d, d))
        one_pass.unpack(self._grams.combined(), 1.0, information)
        spread = self._spread * estimate.uneven
        # keeps exact sums of few directions solvable
        least = 1e-10 * spread * estimate.rounds
        covariance = np.empty_like(information)
        one_pass_linear.posterior_systems(
            information, self._prior, spread, estimate.std**2 + least, covariance
        )
        solution = np.linalg.solve(covariance, estimate.sums[:, :, None])[:, :, 0]
        self._theta = np.empty((len(solution), d))
        one_pass_linear.posterior_means(
            information, self._prior, np.ascontiguousarray(solution), self._theta
        )
