"""One-pass private least squares for recommendation with public contexts."""

from __future__ import annotations

import math
from dataclasses import field
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from dpb_agents import kernels as agent_kernels
from dpb_agents.common.parameters import choice, flag, integer, positive, real
from dpb_agents.common.prior import WarmStart
from dpb_agents.recommendation.lifetime_weights import LifetimeWeights
from dpb_gym import kernels, portable
from dpb_gym.errors import ActionError, AgentError, ParameterError
from dpb_gym.problems.availability import among_available
from dpb_gym.problems.base import Array, Context, Feedback, ProblemInfo
from dpb_gym.problems.rounds import LONGEST
from dpb_gym.registry import register_agent
from dpb_gym.streams import AgentStreams

if TYPE_CHECKING:
    from dpb_gym.privacy import Curator, Schedule, WeightedSum

# What is so many times less known than if all had been played alike is tried.
OVERDUE = 2.0
# Rounds before the first, in which candidates were alike as far as chance makes them.
LIKE_CHANCE = 10.0


class OnePass(WarmStart):
    """Greedy on the posterior mean of a linear predictor, given noisy sums of the records.

    A reward r in a range of length w around c has E r = c + m(level + <x, theta>), m(u) = u or
    w (sigmoid(4 u / w) - 1/2), which has slope 1 at 0 and never leaves the range. theta and
    the level have independent normal priors: theta has the mean and the precision that are told
    (`ProblemInfo.prior`) and besides, around the mean, the variance ``(norm w / 2)^2 / d`` per
    coordinate, which is also the level's, around 0. Every record enters once, at rounds that grow
    geometrically the sums are released with Gaussian noise, and until the first release the agent
    plays the prior's mean (if that is 0 the longest candidate). Without a budget sums are exact.

    Args:
        norm: Prior size of theta - `prior_mean`, in units of half the reward's range > 0.
            With features in the unit ball and rewards that never leave their range a linear
            model has norm at most 1.
        intercept: Value of the constant feature in what is released, > 0.
        first: Round of the first release, in units of the round at which the noise is as large
            as the prior's theta.
        ratio: Factor between two releases' rounds, > 1.
        anytime: Spread the releases over every horizon up to 10^9, for which a round counts
            1 / t, instead of the problem's own; so it is if the problem tells none.
        max_rounds_per_user: k: what is protected is all rounds of one user, of which the first k
            are learnt from; which rounds are hers is public. None: a single round.

    Attributes:
        theta: Posterior mean of the slopes and the level, ``(B, d + 1)``.
        releaser: Takes the raw records; the policy reads its releases only.

    Raises:
        ParameterError: If a parameter is out of range, or rewards are not bounded.
    """

    contrast: ClassVar[bool] = False
    norm: float = positive(1.0)
    intercept: float = positive(0.15)
    first: float = positive(0.07)
    ratio: float = real(1.1, 1.0, open_low=True)
    anytime: bool = flag(False)
    max_rounds_per_user: int | None = integer(None, 1)
    releaser: WeightedSum = field(init=False, repr=False)
    effect: float = real(0.0, 0.0, init=False)
    link: str = choice("logistic", ("identity", "logistic"), init=False)

    def begin(self, problem: ProblemInfo, streams: AgentStreams, curator: Curator) -> None:
        if problem.kind != "recommendation":
            raise AgentError(f"one-pass-linear plays recommendation, not {problem.kind}")
        low, high = problem.reward_range
        if not (math.isfinite(low) and math.isfinite(high)):
            raise ParameterError(f"rewards must be bounded, got the range [{low}, {high}]")
        B, d = streams.replicates, problem.dim
        self.problem = problem
        self._middle, self._range = 0.5 * (low + high), high - low
        self._mean = np.zeros(d + 1)
        known = self.prior(problem)
        self._mean[:d] = known.centre
        # the variance of a reward is at most this
        self._spread = (0.5 * self._range) ** 2
        self._size = self._variance = (0.5 * self.norm * self._range) ** 2 / d
        self._believed = np.eye(d + 1) * self._variance
        self._information = known.information()
        if self._information is not None:
            # both priors: what is told, and the size that theta - mean can have
            told = (self._information + np.eye(d) / self._variance)[None]
            kernels.linalg.inverse(told, told)
            self._believed[:d, :d] = told[0]
            self._variance = float(np.trace(told[0])) / d
        self.theta = np.repeat(self._mean[None], B, axis=0)
        self._phi, self._directions = np.empty((B, 2 * d + 1)), np.empty((B, d + 1))
        # what is not known of theta, how much less is even, what more is worth: central only
        self._doubt, self._even, self._worth = np.zeros((B, d, d)), np.zeros(B), np.zeros(B)
        self._moments, self._all = np.zeros((B, d + 3)), np.ones(B, bool)
        # noise of standard deviation 1 is so much in a coordinate of sum r v
        self._unit_noise = 1.0
        self._batches = 0
        self._open(curator)

    @among_available
    def act(self, context: Context) -> Array:
        action = np.empty(len(self.theta), np.int64)
        agent_kernels.linear_records.best_candidates(
            context.features, self.theta, self._doubt, self._even, self._worth, action
        )
        return action

    def observe(self, context: Context, action: Array, feedback: Feedback) -> None:
        observed = self._all if feedback.observed is None else feedback.observed
        bad = agent_kernels.linear_records.directions(
            context.features,
            action,
            observed,
            self.contrast,
            self.intercept,
            self._phi,
            self._directions,
            self._moments,
        )
        if bad:
            raise ActionError(
                f"candidate {action[bad - 1]} of replicate {bad - 1} is outside "
                f"0..{context.features.shape[1] - 1}"
            )
        self._learn(context, feedback.reward - self._middle, observed)
        ends, batch = self.releaser.schedule.ends, self._batches
        if batch < len(ends) and self.releaser.rounds == ends[batch]:
            self._batches += 1
            self._renew(batch)

    def _plan(self, sigma: float) -> Schedule:
        """When to release, and what batches weigh.

        Args:
            sigma: Standard deviation of a release's noise; 0: exact.
        """
        from dpb_gym.privacy import Schedule

        anytime = self.anytime or self.problem.horizon is None
        horizon = LONGEST if anytime else self.problem.longest
        if sigma == 0.0:
            # exact sums may be released often: nothing is spent
            fine = Schedule.geometric(
                horizon, self.problem.dim, portable.power(self.ratio, 0.2), 0.0
            )
            return Schedule.unweighted(fine.ends)
        # a round tells a coordinate of theta so much, roughly
        rate = 1.0 / self.problem.dim
        if self.problem.partial_feedback:
            rate /= self.problem.n_candidates or 1
        noise = sigma * self._unit_noise / rate
        first = max(self.problem.dim, self.first * noise / math.sqrt(self._variance))
        part = effective_dimension(self.problem.dim) / self.problem.dim
        return planned(
            Schedule.geometric(horizon, first, self.ratio, 1.0),
            horizon,
            noise=part * noise,
            spread=part * self._spread / rate,
            prior=self._variance,
            anytime=anytime,
        )

    def _open(self, curator: Curator) -> None:
        """Makes the releaser."""
        B, n = self.theta.shape
        half, reach, k = 0.5 * self._range, 1.0, self.max_rounds_per_user
        self._weights: LifetimeWeights | None = None
        if k is not None:
            self._weights = LifetimeWeights(B, n, k)
            reach = self._weights.reach
        self.releaser = curator.weighted_sum(
            n,
            reward=(-half, half),
            sensitivity=self._range * reach,
            schedule=self._plan,
            what="running reward sums",
        )
        m = self._phi.shape[1]
        self._state = np.zeros((B, m + n))
        self._state[:, :n] = self._mean
        self._covariance = np.zeros((B, m + n, m + n))
        self._gram, self._own = np.zeros((B, n, m)), np.zeros((B, n, n))
        self._offset = np.zeros((B, n))

    def _learn(self, context: Context, reward: Array, observed: Array) -> None:
        """Hands the round's record to the releaser; rewards are less the middle of their range."""
        self._candidates = context.features.shape[1]
        if self._weights is not None:
            self._weights.scale(context.users, observed, self._directions)
        self.releaser.add(reward, self._directions)
        bent = self._directions
        if self.link == "logistic":
            bent = np.empty_like(bent)
            agent_kernels.linear_records.bend(
                self._phi, self._state, 4.0 / self._range, self._directions, bent, self._offset
            )
        agent_kernels.linear_records.add_products(bent, self._phi, self._gram)
        agent_kernels.linear_records.add_products(bent, self._directions, self._own)

    def _likeness(self) -> tuple[Array, Array]:
        """Mean |x|^2; the variance of xbar over that of the mean of as many strangers."""
        rounds = np.maximum(1.0, self._moments[:, -1])
        *means, together, square = self._moments[:, :-1].T / rounds
        centre = sum(mean**2 for mean in means)
        ratio = self._candidates * (together - centre) / np.maximum(square - centre, 1e-9)
        ratio = (LIKE_CHANCE + rounds * ratio) / (LIKE_CHANCE - 1.0 + rounds)
        return np.where(square > 0.0, square, 1.0), ratio

    def _believe(self, square: Array, ratio: Array) -> None:
        """The prior covariance of theta, level and gamma."""
        n, m = self.theta.shape[1], self._phi.shape[1]
        precision = np.eye(n - 1) * (square / self._size)[:, None, None]
        if self._information is not None:
            precision += self._information
        kernels.linalg.inverse(precision, self._covariance[:, : n - 1, : n - 1])
        self._covariance[:, n - 1, n - 1] = self._size
        own = self.effect * np.maximum(0.0, 1.0 - 1.0 / ratio)
        self._covariance[:, range(n, m), range(n, m)] = (own**2 * self._size / square)[:, None]

    def _renew(self, batch: int) -> None:
        """Renews theta from the release that closed a batch, the first of which is 0."""
        square, ratio = self._likeness()
        if not batch:
            self._believe(square, ratio)
        weight = float(self.releaser.schedule.weights[batch])
        self._state[:, self._phi.shape[1] :] += weight * self._offset
        # exact sums count as all but exact, which keeps the filter's matrices invertible
        noise = max(self.releaser.noise_std, 1e-3 * self._range)
        agent_kernels.linear_records.filter_step(
            self._state,
            self._covariance,
            self._gram,
            self._own,
            weight,
            self._spread,
            self.releaser.value,
            noise**2,
        )
        self.theta = self._state[:, : self.theta.shape[1]].copy()
        # theta given the level, which all candidates share
        d, c = self.theta.shape[1] - 1, self._covariance
        along = c[:, d, :d, None]
        self._doubt = c[:, :d, :d] - along * along.transpose(0, 2, 1) / c[:, d, d, None, None]
        precision = np.repeat(np.eye(d)[None], len(along), axis=0)
        kernels.linalg.inverse(self._doubt, precision)
        size = self._size
        if self.norm > 1.0:
            # to a wide prior a single play would be knowledge
            size /= self.norm**2
            precision += np.eye(d) * (square * (1.0 / size - 1.0 / self._size))[:, None, None]
            kernels.linalg.inverse(precision, self._doubt)
        self._even = OVERDUE * d / np.trace(precision, axis1=1, axis2=2)
        self._worth = 0.5 * self._range / size * np.maximum(0.0, 1.0 - ratio)
        self._gram[:] = self._own[:] = self._offset[:] = 0.0


@register_agent("one-pass-linear", supports=["recommendation"], protects=("central", "reward"))
class OnePassLinear(OnePass):
    """One-pass private Newton on noisy sums of rewards; contexts and actions are public.

    See `OnePass`.

    Central privacy of one reward, or of all rewards of one user, replace-one: every
    recommendation may be seen. Contexts, which items were recommended, and in rejection replay
    which rounds were accepted, are not protected.

    A reward multiplies a public unit vector v, so its sensitivity is its range, whatever the
    features' scale (a user's vectors are scaled by `LifetimeWeights`). What theta is then follows
    from the public sums of v [x; 1; xbar]' and v v' of every batch: a Kalman filter on (theta,
    level, gamma, weighted sum) is its exact posterior for normal rewards, however the information
    is spread over batches and directions. xbar is the mean of the round's candidates and
    <xbar, gamma> what all of them have in common, their customer's taste. theta's prior size is
    for features of mean square 1. Where the same candidates are offered again and again what was
    not played is not learnt: as far as it is behind, up to half the range is added to its score.
    Reasons and proofs: docs/agents/one-pass-linear.md.

    Args:
        effect: Prior size of gamma, in units of theta's, if all of xbar is the customer's, >= 0.
        link: What a reward's mean is of the linear predictor, ``"logistic"`` or ``"identity"``.
    """

    tuning_grid: ClassVar[dict[str, list[Any]]] = {
        "effect": [2.0, 4.0],
        "first": [0.03, 0.07],
        "intercept": [0.15, 0.35],
    }

    effect: float = 4.0
    link: str = "logistic"

    def __post_init__(self) -> None:
        super().__post_init__()
        self.protects = ("central", "user-rewards" if self.max_rounds_per_user else "reward")


def effective_dimension(d: int) -> float:
    """How many directions d features amount to, (sum l)^2 / sum l^2 of their eigenvalues l.

    They are not known: here the i-th falls like 1 / sqrt(i), between even ones (d) and 1 / i.
    """
    return math.fsum(i**-0.5 for i in range(1, d + 1)) ** 2 / math.fsum(
        1.0 / i for i in range(1, d + 1)
    )


def planned(
    start: Schedule, horizon: int, *, noise: float, spread: float, prior: float, anytime: bool
) -> Schedule:
    """Release weights that minimise a model of the greedy policy's regret.

    With b_j^2 = 1 / sum_{i >= j} a_i^2 the releases 1..k determine a coordinate of theta up to the
    variance v_k = noise^2 / P_k + spread / t_k, P_k = sum_{i <= k} a_i^2 (sum_{j <= i} b_j n_j)^2,
    and a greedy policy earns about rho_k = (prior / (prior + v_k))^(1/2) of what can be earned.
    The a_i maximise the sum of rho_k over all rounds, by a fixed-point iteration
    a_i <- lambda_i q_i, q_i = a_i sum_{j <= i} b_j n_j, lambda_i = sum_{k >= i} d rho_k / d P_k.
    Everything in it is public.

    Args:
        start: When to release, and where to begin.
        horizon: T.
        noise: Standard deviation of one release's noise in a coordinate of the sum, in units of
            one round's information about a coordinate of theta.
        spread: Variance of one round's own randomness in the same units.
        prior: Prior variance of a coordinate of theta.
        anytime: Round t counts 1 / t.
    """
    from dpb_gym.privacy import Schedule

    ends, sizes, scales = start.ends, start.sizes, start.scales.copy()
    # at least one round: a release may fall on the very last one
    rounds = np.maximum(np.diff(ends, append=horizon), 1) / (ends if anytime else 1)
    for _ in range(100):  # enough for six digits of the model's regret
        weights = 1.0 / np.sqrt(np.cumsum(scales[::-1] ** 2)[::-1])
        signal = scales * np.cumsum(weights * sizes)
        precision = np.cumsum(signal**2)
        variance = noise**2 / precision + spread / ends
        share = np.sqrt(prior / (prior + variance))
        gain = share / (prior + variance) * (noise / precision) ** 2 * rounds
        scales = np.cumsum(gain[::-1])[::-1] * signal
        # late releases may count for nothing; their noise must stay finite
        scales = np.maximum(scales / scales.max(), 1e-6)
    return Schedule(ends, 1.0 / np.sqrt(np.cumsum(scales[::-1] ** 2)[::-1]), scales)
