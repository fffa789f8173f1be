"""One-pass private least squares for recommendation with public contexts."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import field
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from dpb_agents import kernels as agent_kernels
from dpb_agents.common.parameters import choice, flag, integer, positive, real
from dpb_agents.common.prior import WarmStart
from dpb_agents.recommendation.lifetime_weights import LifetimeWeights
from dpb_gym import kernels
from dpb_gym.errors import ActionError, AgentError, ParameterError
from dpb_gym.problems.availability import among_available
from dpb_gym.problems.base import Array, Context, Feedback, ProblemInfo
from dpb_gym.problems.rounds import LONGEST
from dpb_gym.problems.stretch import Stretch
from dpb_gym.registry import register_agent
from dpb_gym.streams import AgentStreams

if TYPE_CHECKING:
    from dpb_gym.privacy import Curator, ReleaseModel, Schedule, WeightedSum


class OnePass(WarmStart):
    """Play the posterior mean of a linear predictor, given noisy sums of the records.

    A reward r in a range of length w around c has E r = c + m(level + <x, theta>), m(u) = u or
    w (sigmoid(4 u / w) - 1/2), which has slope 1 at 0 and stays in the range. theta and the level
    have independent normal priors. That of theta has the mean and precision of
    `ProblemInfo.prior`, and the variance ``(norm w / 2)^2 / d`` per coordinate around the mean.
    The level has the same variance around 0. Every record enters the sums once. The sums are
    released with Gaussian noise at rounds that grow geometrically; without a budget they are
    exact. Until the first release the agent plays the prior mean, or the longest candidate if
    that is 0.

    Args:
        norm: Prior size of theta - `prior_mean`, in units of half the reward's range, > 0.
            A linear model has norm at most 1 if features are in the unit ball and mean rewards
            stay in their range.
        intercept: Value of the constant feature in the records, > 0.
        first: Round of the first release, in units of the round at which the noise is as large
            as the prior's theta.
        ratio: Factor between two releases' rounds, > 1.
        anytime: Plan the releases for every horizon up to 10^9, in which round t counts 1 / t,
            instead of the problem's own. This is the default if the horizon is unknown.
        max_rounds_per_user: k, the most rounds of a user that are learnt from, if all rounds of
            one user are protected; user ids are public. None: a single round is protected.

    Attributes:
        theta: Posterior mean of the slopes and the level, ``(B, d + 1)``.
        releaser: Receives the raw records; the policy reads its releases only.

    Raises:
        ParameterError: If a parameter is out of range, or rewards are not bounded.
    """

    replaced = ("act", "observe", "_learn")
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
        self._prior_covariance = np.eye(d + 1) * self._variance
        self._information = known.information()
        if self._information is not None:
            both = (self._information + np.eye(d) / self._variance)[None]
            kernels.linalg.inverse(both, both)
            self._prior_covariance[:d, :d] = both[0]
            self._variance = float(np.trace(both[0])) / d
        self.theta = np.repeat(self._mean[None], B, axis=0)
        self._phi, self._directions = np.empty((B, 2 * d + 1)), np.empty((B, d + 1))
        self._moments, self._all = np.zeros((B, d + 3)), np.ones(B, bool)
        # posterior draws of theta: normals, Cholesky factors, how much rounds repeat candidates
        self._public = not self.contrast or bool(problem.fixed_arms)
        self._normals = streams.normals(d)
        self._factor = np.empty((B, d, d))
        self._repeated, self._likeness = np.zeros(B), np.ones(B)
        kernels.linalg.cholesky(
            np.repeat(self._prior_covariance[None, :d, :d], B, axis=0), self._factor
        )
        self._batches = 0
        self.stretches = self.max_rounds_per_user is None
        self._open(curator)

    @among_available
    def act(self, context: Context) -> Array:
        action = np.empty(len(self.theta), np.int64)
        normals = self._normals.next() if self._public else np.empty_like(self.theta)
        agent_kernels.linear_records.best_candidates(
            context.features, self.theta, self._factor, self._repeated, normals, action
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
        self._update_if_due()

    def _update_if_due(self) -> None:
        """Update theta after a release."""
        ends, batch = self.releaser.schedule.ends, self._batches
        if batch < len(ends) and self.releaser.rounds == ends[batch]:
            self._batches += 1
            self._update(batch)

    def play(self, rounds: Stretch) -> Array:
        scale, sums = 4.0 / self._range, (self._state, self._offset, self._gram, self._own)
        regression = True, self.link == "logistic", scale, *sums
        return self._play(rounds, regression, self.releaser.add_rounds)

    def _play(
        self, rounds: Stretch, regression: tuple[Any, ...], record: Callable[[Array, Array], None]
    ) -> Array:
        """Play a stretch in parts that end with a release.

        Args:
            rounds: The stretch.
            regression: See `kernels.linear_records.play_greedy`.
            record: Adds rewards and directions of several rounds to the releaser.
        """
        n, B = rounds.shape
        features = rounds.context.features
        directions, reward = np.empty((n, B, self.theta.shape[1])), np.empty((n, B))
        action, start = np.empty((n, B), np.int64), 0
        normals = self._normals.take(n) if self._public else np.empty_like(directions)
        while start < n:
            left = self.releaser.schedule.ends[self._batches :][:1] - self.releaser.rounds
            part = slice(start, min([n, *(start + left).tolist()]))
            agent_kernels.linear_records.play_greedy(
                (features[part], rounds.reward[part], rounds.observed[part]),
                (self.theta, self._factor, self._repeated, self._likeness, normals[part]),
                (self.contrast, self.intercept, self._middle),
                regression,
                self._moments,
                directions[part],
                reward[part],
                action[part],
            )
            record(reward[part], directions[part])
            self._update_if_due()
            start = part.stop
        return action

    def _model(self, unit_noise: float) -> ReleaseModel:
        """Return the model from which releases are planned.

        Args:
            unit_noise: See `ReleaseModel`.
        """
        from dpb_gym.privacy import ReleaseModel

        anytime = self.anytime or self.problem.horizon is None
        rate = 1.0 / self.problem.dim
        if self.problem.partial_feedback:
            rate /= self.problem.n_candidates or 1
        horizon = LONGEST if anytime else self.problem.longest
        spread = self._spread / rate
        return ReleaseModel(horizon, unit_noise, rate, spread, self._variance, anytime)

    def _plan(self, model: ReleaseModel, sigma: float) -> Schedule:
        """Return the schedule of a trusted curator's releases.

        Args:
            model: See `_model`.
            sigma: Standard deviation of a release's noise; 0 if exact.
        """
        from dpb_gym.privacy import Schedule

        d = self.problem.dim
        if sigma == 0.0:
            exact = Schedule.geometric(model.horizon, d, self.ratio, 0.0)
            return Schedule.unweighted(exact.ends)
        noise = sigma * model.unit_noise / model.rate
        first = max(d, self.first * noise / math.sqrt(self._variance))
        return model.running(Schedule.geometric(model.horizon, first, self.ratio, 1.0), sigma)

    def _open(self, curator: Curator) -> None:
        """Make the releaser."""
        B, n = self.theta.shape
        half, reach, k = 0.5 * self._range, 1.0, self.max_rounds_per_user
        self._weights: LifetimeWeights | None = None
        if k is not None:
            self._weights = LifetimeWeights(B, n, k)
            reach = self._weights.reach
        model = self._model(1.0)
        self.releaser = curator.weighted_sum(
            n,
            reward=(-half, half),
            sensitivity=self._range * reach,
            schedule=partial(self._plan, model),
            model=model,
            what="running reward sums",
        )
        m = self._phi.shape[1]
        self._state = np.zeros((B, m + n))
        self._state[:, :n] = self._mean
        self._covariance = np.zeros((B, m + n, m + n))
        self._gram, self._own = np.zeros((B, n, m)), np.zeros((B, n, n))
        self._offset = np.zeros((B, n))

    def _learn(self, context: Context, reward: Array, observed: Array) -> None:
        """Add the round's record to the releaser; `reward` is centred."""
        agent_kernels.linear_records.likeness(
            self._moments, context.features.shape[1], self._likeness
        )
        self._repeated = np.maximum(0.0, 1.0 - self._likeness) ** 2
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

    def _set_prior(self) -> None:
        """Set the prior covariance of theta, level and gamma."""
        n, m = self.theta.shape[1], self._phi.shape[1]
        square = self._moments[:, n] / np.maximum(1.0, self._moments[:, -1])
        square = np.where(square > 0.0, square, 1.0)
        precision = np.eye(n - 1) * (square / self._size)[:, None, None]
        if self._information is not None:
            precision += self._information
        kernels.linalg.inverse(precision, self._covariance[:, : n - 1, : n - 1])
        self._covariance[:, n - 1, n - 1] = self._size
        own = self.effect * (1.0 - 1.0 / np.maximum(1.0, self._likeness))
        self._covariance[:, range(n, m), range(n, m)] = (own**2 * self._size / square)[:, None]

    def _update(self, batch: int) -> None:
        """Update theta with the release that closed batch number `batch`, counted from 0."""
        if not batch:
            self._set_prior()
        schedule, m = self.releaser.schedule, self._phi.shape[1]
        weight = float(schedule.weights[batch])
        if not schedule.carry:  # the release is about this batch alone
            self._state[:, m:] = self._covariance[:, m:] = self._covariance[:, :, m:] = 0.0
        self._state[:, m:] += weight * self._offset
        # a floor for exact sums keeps the filter's matrices invertible
        noise = max(self.releaser.noise_std, 1e-3 * self._range)
        agent_kernels.linear_records.filter_step(
            self._state,
            self._covariance,
            self._gram,
            self._own,
            weight,
            self._spread + self.releaser.record_std**2,
            self.releaser.value,
            noise**2,
        )
        self.theta = self._state[:, : self.theta.shape[1]].copy()
        # the covariance of theta given the level, which all candidates share
        d, c = self.theta.shape[1] - 1, self._covariance
        along = c[:, d, :d, None]
        given = c[:, :d, :d] - along * along.transpose(0, 2, 1) / c[:, d, d, None, None]
        kernels.linalg.cholesky(given, self._factor)
        self._gram[:] = self._own[:] = self._offset[:] = 0.0


@register_agent("one-pass-linear", supports=["recommendation"], protects=("central", "reward"))
class OnePassLinear(OnePass):
    """One-pass private Newton on noisy sums of rewards; contexts and actions are public.

    See `OnePass`.

    The guarantee is central privacy of one reward, or of all rewards of one user, replace-one.
    Contexts, recommended items and, in rejection replay, the accepted rounds are not protected.

    A reward multiplies a public unit vector v, so its sensitivity is its range for features of any
    length (`LifetimeWeights` scales the vectors of a user). The sums of v [x; 1; xbar]' and v v' of
    every batch are public. A Kalman filter on (theta, level, gamma, weighted sum) is then the exact
    posterior for normal rewards. xbar is the mean of the round's candidates, and <xbar, gamma> the
    customer's taste, which all of them share. theta's prior size is for features of mean square 1.

    Where rounds repeat their candidates, a greedy policy never learns what it does not play, so
    the agent plays theta + (1 - ratio)_+^2 (draw - theta) with a draw from its posterior. The ratio
    is 0 for candidates that are the same in all rounds and 1 for independent ones.
    docs/agents/one-pass-linear.md has the derivations.

    Args:
        effect: Prior size of gamma, in units of theta's, if all of xbar is the customer's, >= 0.
        link: Mean reward as a function of the linear predictor, ``"logistic"`` or ``"identity"``.
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
