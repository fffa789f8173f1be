"""Three ways from rewards to theta: exact, with public contexts, with private contexts."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from dpb_agents.common.one_pass import EVENNESS, Design, open_sums
from dpb_agents.common.weighted_sums import Estimate, Releases
from dpb_agents.recommendation.one_pass_filter import RewardFilter
from dpb_agents.recommendation.one_pass_schedule import planned
from dpb_gym import kernels
from dpb_gym.errors import ActionError
from dpb_gym.privacy import RunningSum, Segment, Sum
from dpb_gym.problems.base import Array, Context, Feedback, ProblemInfo

if TYPE_CHECKING:
    from dpb_agents.recommendation.one_pass_users import LifetimeWeights
    from dpb_gym.privacy import Bound, Curator, Schedule

# Share of the chosen features' mean that is subtracted from what rewards multiply.
CENTRING = 0.5


@dataclass(frozen=True)
class Setting:
    """What all learners need to know.

    Attributes:
        problem: The problem.
        replicates: Number of replicates B.
        norm: Prior size of theta in units of half the reward's range.
        intercept: Value of the constant feature in what is released.
        start: Earliest first release, in rounds.
        design: How sums are released.
        plan: Whether the releases' precisions are optimised (`planned`).
    """

    problem: ProblemInfo
    replicates: int
    norm: float
    intercept: float
    start: int
    design: Design
    plan: bool

    @property
    def middle(self) -> float:
        """Middle of the reward's range."""
        low, high = self.problem.reward_range
        return 0.5 * (low + high)

    @property
    def half(self) -> float:
        """Half of the reward's range; its square bounds the variance of a reward."""
        low, high = self.problem.reward_range
        return 0.5 * (high - low)

    def prior(self, half: float) -> Array:
        """Prior variances of theta and of the level, ``(d + 1,)``; the level is uniform."""
        d = self.problem.dim
        return np.append(np.full(d, (self.norm * half) ** 2 / d), half**2 / 3.0)

    @property
    def rate(self) -> float:
        """Information of one round about a coordinate of theta, roughly."""
        rate = 1.0 / self.problem.dim
        if self.problem.partial_feedback:
            assert self.problem.n_candidates is not None
            rate /= self.problem.n_candidates
        return rate

    def open(
        self,
        width: int,
        sensitivity: float,
        curator: Curator,
        *,
        unit_noise: float,
        half: float,
        what: str,
        clip: Bound | None = None,
    ) -> tuple[Sum, Releases]:
        """Makes the releaser and the policy's side of it; see `open_sums`."""
        prior, rate, horizon = float(self.prior(half)[0]), self.rate, self.problem.horizon

        def plan(std: float) -> Schedule:
            first = max(self.start, self.design.first * std / (rate * math.sqrt(prior)))
            return planned(
                horizon,
                first,
                self.design.ratio,
                noise=std / rate,
                spread=half**2 / rate,
                prior=prior,
            )

        return open_sums(
            self.design,
            curator,
            width=width,
            horizon=horizon,
            start=self.start,
            sensitivity=sensitivity,
            what=what,
            unit_noise=unit_noise,
            spread=half**2 * rate,
            signal=rate * math.sqrt(prior),
            clip=clip,
            plan=plan if self.plan else None,
        )


class Learner(ABC):
    """Keeps theta ``(B, d + 1)``: the slopes, then the level. Base of the three learners."""

    theta: Array
    releaser: Sum

    @abstractmethod
    def learn(self, context: Context, action: Array, feedback: Feedback, observed: Array) -> None:
        """Takes one round; `observed` is False where it yields no record."""


class ExactLearner(Learner):
    """Ridge regression on [x; 1], renewed every round by rank-one updates; not private."""

    def __init__(self, setting: Setting, curator: Curator) -> None:
        B, d, half = setting.replicates, setting.problem.dim, setting.half
        self._setting = setting
        self.releaser = RunningSum(curator, d + 1, reward=(-half, half), what="reward sums")
        # directions are [x; 1] / sqrt(2): in the unit ball like those of the private twin
        diagonal = np.diag(2.0 * setting.prior(half) / half**2)
        self._inverse = np.repeat(diagonal[None], B, axis=0)
        self.theta = np.zeros((B, d + 1))
        self._phi = np.empty((B, d + 1))
        self._unused = np.empty((B, d + 1))
        self._no_centre = np.zeros((B, d))
        self._ones, self._growth = np.ones(B), np.empty(B)

    def learn(self, context: Context, action: Array, feedback: Feedback, observed: Array) -> None:
        setting = self._setting
        bad = kernels.one_pass_linear.centred_directions(
            context.features, action, observed, self._no_centre, 1.0, self._phi, self._unused
        )
        refuse(bad, context, action)
        self._phi *= math.sqrt(0.5)
        self.releaser.add(feedback.reward - setting.middle, self._phi)
        kernels.linalg.sherman_morrison(self._inverse, self._phi, self._ones, self._growth)
        if self.releaser.rounds >= setting.start:
            kernels.one_pass_linear.symmetric_times(self._inverse, self.releaser.value, self.theta)


class PublicLearner(Learner):
    """Rewards are private, contexts and actions public: noise on reward sums only.

    A reward, less the middle of its range, multiplies a public vector z of norm at most 1:
    [x - m / 2; intercept], m the mean of what was chosen lately, scaled to norm 1, so that
    short features cost no precision and the rewards' level hardly enters. What theta is then
    follows from the public sums of z [x; 1]' and z z' (`RewardFilter`).

    Args:
        setting: See `Setting`.
        curator: Whose budget it uses.
        users: Scales z where all rewards of a user are protected.
    """

    def __init__(
        self,
        setting: Setting,
        curator: Curator,
        users: LifetimeWeights | None = None,
    ) -> None:
        B, d, half = setting.replicates, setting.problem.dim, setting.half
        self._setting, self._users = setting, users
        sensitivity = 2.0 * half * (1.0 if users is None else users.reach)
        self.releaser, releases = setting.open(
            d + 1,
            sensitivity,
            curator,
            unit_noise=1.0,
            half=half,
            what="running reward sums",
            clip=Segment(-half, half),
        )
        self._schedule = releases.schedule
        self._filter = RewardFilter(
            B,
            setting.prior(half),
            d + 1,
            half**2,
            independent=setting.design.mechanism == "weighted",
        )
        self.theta = np.zeros((B, d + 1))
        self._phi = np.empty((B, d + 1))
        self._directions = np.empty((B, d + 1))
        self._centre = np.zeros((B, d))
        self._total = np.zeros((B, d + 1))
        self._batch = 0

    def learn(self, context: Context, action: Array, feedback: Feedback, observed: Array) -> None:
        setting = self._setting
        bad = kernels.one_pass_linear.centred_directions(
            context.features,
            action,
            observed,
            self._centre,
            setting.intercept,
            self._phi,
            self._directions,
        )
        refuse(bad, context, action)
        if self._users is not None:
            self._users.scale(context.users, observed, self._directions)
        self.releaser.add(feedback.reward - setting.middle, self._directions)
        kernels.one_pass_linear.add_public(
            self._phi, self._directions, self._filter.gram, self._filter.own
        )
        self._total += self._phi
        ends = self._schedule.ends
        if self._batch < len(ends) and self.releaser.rounds == int(ends[self._batch]):
            self._renew()

    def _renew(self) -> None:
        weight = float(self._schedule.weights[self._batch])
        self.theta = self._filter.take(self.releaser.value, weight, self.releaser.noise_std)
        # the first batch was chosen without theta: its mean says nothing of later ones
        if self._batch:
            count = np.maximum(self._total[:, -1:], 1.0)
            self._centre = CENTRING * self._total[:, :-1] / count
        self._total[:] = 0.0
        self._batch += 1


class PrivateLearner(Learner):
    """Contexts and rewards are private: noise on the sums of x x' and of the rewards times x.

    One row holds both, the half of x x' times w_H and the reward (scaled to [-1/2, 1/2]) times
    x times w_u, x including the constant feature. With h = w_H^2, u = w_u^2 and c = <x, y> two
    rows differ by at most, squared, 2 h (1 - c^2) + u (1 + |c|) / 2: the worst for the rewards
    is x = -y or x = y, where x x' = y y'. That is at most u if h <= u / 8: up to there the
    curvature costs nothing.

    Args:
        setting: See `Setting`.
        curvature: h / u.
        curator: Whose budget it uses.
        most: Most rounds of a user that enter, where all rounds of a user are protected.
    """

    def __init__(
        self,
        setting: Setting,
        curvature: float,
        curator: Curator,
        most: int | None = None,
    ) -> None:
        B, n = setting.replicates, setting.problem.dim + 1
        self._setting = setting
        self._weights = joint_weights(curvature)
        self._stretch = 1.0 + setting.intercept**2
        self._prior = setting.prior(0.5) * self._stretch
        self._prior[-1] /= setting.intercept**2
        bent = 0.5 * (1.0 + 1.0 / n) * self._prior[:-1].sum() / self._weights[0] ** 2
        self._unit_noise = math.sqrt(1.0 / self._weights[1] ** 2 + bent)
        self.releaser, self._releases = setting.open(
            n * (n + 1) // 2 + n,
            float(most or 1),
            curator,
            unit_noise=self._unit_noise * math.sqrt(self._stretch),
            half=0.5,
            what="running sums of curvature and response",
        )
        self.theta = np.zeros((B, n))
        self._rows = np.empty((B, n * (n + 1) // 2 + n))

    def learn(self, context: Context, action: Array, feedback: Feedback, observed: Array) -> None:
        setting = self._setting
        bad = kernels.one_pass_linear.joint_rows(
            context.features,
            action,
            feedback.reward,
            observed,
            setting.middle,
            2.0 * setting.half,
            setting.intercept,
            self._weights,
            self._rows,
        )
        refuse(bad, context, action)
        self.releaser.add(self._rows)
        if self._releases.due(self.releaser.rounds):
            self._renew(self._releases.take(self.releaser.value, self.releaser.noise_std))

    def _renew(self, estimate: Estimate) -> None:
        B, n = self.theta.shape
        information = np.empty((B, n, n))
        std = estimate.std / float(self._weights[0])
        kernels.one_pass.unpack(estimate.sums, 1.0 / self._weights[0], information)
        slopes = np.ascontiguousarray(information[:, :-1, :-1])
        kernels.one_pass.flatten(slopes, std, EVENNESS)
        level = np.maximum(np.trace(slopes, axis1=1, axis2=2) / (n - 1), 0.0)
        # Cauchy-Schwarz bounds a mean feature's square by this
        own = level * np.maximum(information[:, -1, -1], 0.0)
        cross = information[:, -1, :-1] * (own / (own + 0.5 * std**2))[:, None]
        information[:, :-1, :-1] = slopes
        information[:, -1, :-1] = information[:, :-1, -1] = cross
        values, vectors = np.linalg.eigh(information)
        kernels.one_pass_linear.rebuild(
            np.maximum(values, 0.0), np.ascontiguousarray(vectors), information
        )
        covariance = np.empty_like(information)
        noise = (estimate.std * self._unit_noise) ** 2
        spread = 0.25 * estimate.uneven
        kernels.one_pass_linear.posterior_systems(
            information, self._prior, spread, noise, covariance
        )
        response = estimate.sums[:, -n:] / float(self._weights[1])
        solution = np.linalg.solve(covariance, response[:, :, None])[:, :, 0]
        theta = np.empty((B, n))
        kernels.one_pass_linear.posterior_means(
            information, self._prior, np.ascontiguousarray(solution), theta
        )
        self.theta = theta


def joint_weights(curvature: float) -> Array:
    """(w_H, w_u) with w_H^2 = curvature w_u^2 and sensitivity 1; see `PrivateLearner`."""
    most = 1.0
    if curvature > 0.125:
        most = 2.0 * curvature + 0.5 + 1.0 / (32.0 * curvature)
    return np.array([math.sqrt(curvature / most), math.sqrt(1.0 / most)])


def refuse(bad: int, context: Context, action: Array) -> None:
    """Raises `ActionError` if a kernel found a candidate out of range."""
    if bad:
        raise ActionError(
            f"candidate {action[bad - 1]} of replicate {bad - 1} is outside "
            f"0..{context.features.shape[1] - 1}"
        )
