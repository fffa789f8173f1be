"""Locally private recommendation: linear and logistic bandits on the users' messages."""

from __future__ import annotations

import math
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import numpy as np

from dpb_agents.common.local_sgd import Descent, descend, descent, gradient, gradient_plan
from dpb_agents.recommendation.ridge_agents import SUPPORTS
from dpb_gym import kernels
from dpb_gym.agent import unsuitable
from dpb_gym.errors import AgentError
from dpb_gym.kernels.vectors import (
    clipped,
    copy_matrix,
    dots,
    largest,
    shifted_inverse,
    times,
    upper_bounds,
)
from dpb_gym.local_privacy import LocalPrivacy, Messages
from dpb_gym.parameters import choice, integer, positive, real
from dpb_gym.play import Algorithm, Functions, Plan, jit
from dpb_gym.privacy import Curator
from dpb_gym.privacy.releasers.record_bounds import RecordShape
from dpb_gym.problems.base import Array, ProblemInfo
from dpb_gym.problems.prior import Prior
from dpb_gym.registry import register_agent
from dpb_gym.streams import AgentStreams

if TYPE_CHECKING:
    from dpb_gym.feedback import GaussianStatistics

local = partial(register_agent, supports=SUPPORTS, budget="required")
PROTECTS = ("local", "user-round")
RULES = ("greedy", "ucb")
CENTRED_UCB = [{"alpha": a, "centre": True} for a in (0.3, 1.0, 3.0)]
CENTRED_TS = [{"v": v, "centre": True} for v in (0.3, 1.0, 3.0)]


@local(
    "local-reward-lin-ucb",
    protects=("local", "reward"),
    summary="LinUCB on rewards that each user privatises (Gaussian noise).",
    agent="lin-ucb",
    mechanism="gaussian",
)
@local(
    "local-reward-lin-ts",
    protects=("local", "reward"),
    summary="Linear Thompson sampling on rewards that each user privatises (Gaussian noise).",
    agent="lin-ts",
    mechanism="gaussian",
)
class LocalRewards(LocalPrivacy):
    """A linear bandit on rewards that each user privatises; see `LocalPrivacy`."""

    tuning_grid: ClassVar[dict[str, Any]] = {
        "local-reward-lin-ucb": {
            "params": [None, *({"alpha": a} for a in (0.1, 0.3, 3.0, 10.0)), *CENTRED_UCB]
        },
        "local-reward-lin-ts": {
            "params": [None, *({"v": v} for v in (0.1, 0.3, 3.0, 10.0)), *CENTRED_TS]
        },
    }


class Statistics(Messages):
    """The users' side, which sends x x' and (r - centre) x as one message.

    Without feedback a message is noise alone, because a missing message would reveal that the
    logged candidate is another one.
    """

    evolves: ClassVar[tuple[str, ...]] = ("_total",)
    mechanism: GaussianStatistics

    def __init__(
        self, curator: Curator, mechanism: GaussianStatistics, streams: AgentStreams
    ) -> None:
        self.shape = RecordShape(mechanism.dim)
        self._total = np.zeros((streams.replicates, mechanism.width))
        super().__init__(curator, mechanism, streams)

    @property
    def sigma(self) -> float:
        """Standard deviation of the noise of a message."""
        return self.mechanism.sigma

    def send(self, records: Array, along: Array) -> Array:
        """Return the messages of centred rewards ``(B,)`` and features ``(B, d)``, 0 for none."""
        self.ready()
        return self.mechanism.rows(along, records, self.numbers.next())

    def add(self, records: Array, along: Array) -> None:
        """Send the messages of one round and add them to the sums."""
        self._total += self.send(records, along)

    def add_rounds(self, records: Array, along: Array) -> None:
        """Send the messages of several rounds, ``(n, B)`` and ``(n, B, d)``."""
        for values, vectors in zip(records, along):
            self.add(values, vectors)

    def release(self) -> Array:
        """Return the sums of all messages as matrices [G, u; u', 0], ``(B, d + 1, d + 1)``."""
        self.ready()
        B = len(self._total)
        d = self.mechanism.dim
        out = np.zeros((B, d + 1, d + 1))
        vectors = np.empty((B, d))
        kernels.regression_records.unfold(self._total, out[:, :-1, :-1], vectors)
        out[:, :-1, -1] = vectors
        out[:, -1, :-1] = vectors
        return out


class Known(NamedTuple):
    """Public constants of the linear bandit.

    Attributes:
        alpha: Width of the bonus.
        ridge: Least ridge.
        shift: Multiple of the noise's operator norm that is added to the diagonal.
        noise: That norm after one round.
        middle: Subtracted from rewards.
        mean: Prior mean of theta, ``(d,)``.
        ties: Whether equal scores are decided at random.
    """

    alpha: float
    ridge: float
    shift: float
    noise: float
    middle: float
    mean: Any
    ties: bool


class State(NamedTuple):
    """State of one replicate: A^-1 ``(d, d)``, and b ``(d,)`` with the pull of the prior mean."""

    A: Any
    b: Any


@jit
def act(c, s, t, x, z):
    """Candidate of the largest <x, theta> + alpha ||x||_{A^-1}, theta = A^-1 b."""
    u = z[0, 0] if c.ties else 0.0
    return largest(upper_bounds(x, times(s.A, s.b), s.A, c.alpha), u)


@jit
def record(c, s, t, x, k, reward, z):
    """The user's reward and features, of which the message is made."""
    return reward - c.middle, clipped(x[k])


@jit
def learn(c, s, released, t):
    """A <- G + shift I and b <- u + shift m."""
    d = s.b.shape[0]
    # Noises of t messages add up, so their operator norm grows like sqrt(t).
    shift = c.ridge + c.shift * c.noise * math.sqrt(t)
    A, _ = shifted_inverse(released.sum[:d, :d].copy(), shift)
    copy_matrix(A, s.A)
    for j in range(d):
        # The whole shift pulls to the prior mean, so that theta is that mean while noise dominates.
        s.b[j] = released.sum[j, d] + shift * c.mean[j]


def rewards_range(problem: ProblemInfo) -> tuple[float, float]:
    """Return the range of the rewards.

    Raises:
        AgentError: If they are not bounded.
    """
    low, high = problem.reward_range
    if not (math.isfinite(low) and math.isfinite(high)):
        raise AgentError(f"rewards must be bounded, got the range [{low}, {high}]")
    return low, high


def centre_of(problem: ProblemInfo) -> Array:
    """Return the prior mean of theta, ``(d,)``."""
    centre: Array = (problem.prior or Prior((0.0,) * problem.dim)).fitting(problem.dim).centre
    return centre


@local(
    "local-lin-ucb",
    protects=PROTECTS,
    summary="LinUCB on locally private statistics x x' and r x (LDP-LinUCB).",
    rule="ucb",
)
@local(
    "local-lin-greedy",
    protects=PROTECTS,
    summary="Greedy play on locally private statistics x x' and r x.",
    rule="greedy",
)
class LocalLinear(Algorithm):
    """Linear bandit on locally private statistics x x' and r x (LDP-LinUCB).

    Each user receives A and theta, chooses by the own features, and sends one Gaussian message
    (`dpb_gym.feedback.GaussianStatistics`). The server only adds up messages. After Zheng, Cai,
    Huang, Li & Wang (2020, arXiv:2006.00701) and Han, Zhu, Wang, Sun, Tan & Du (2021), with an
    exact sensitivity, rewards centred at the middle of their range, and a shift of the noisy Gram
    matrix, ``shift`` times the mean operator norm sigma sqrt(2 d t) of its noise.

    The guarantee is local, for the features and the reward of one user-round.

    Args:
        prior_mean: Public prior mean of theta, ``(d,)``. It replaces `ProblemInfo.prior`; zeros
            give a cold start. None: use `ProblemInfo.prior`.
        rule: ``"ucb"`` or ``"greedy"``.
        alpha: Width of the bonus of ``ucb``, >= 0.
        ridge: Least ridge, > 0.
        shift: Multiple of the noise's operator norm that is added to the diagonal, >= 0.
        refresh: Rounds between updates of theta.

    Raises:
        AgentError: If the rewards are not bounded.
    """

    functions = Functions(act, record, learn)
    tuning_grid: ClassVar[dict[str, Any]] = {
        "local-lin-ucb": {"shift": [0.5, 1.0, 2.0, 4.0], "alpha": [0.1, 1.0]},
        "local-lin-greedy": {"shift": [0.5, 1.0, 2.0, 4.0], "refresh": [25, 100]},
    }

    prior_mean: Any = None
    rule: str = choice("ucb", RULES)
    alpha: float = real(0.1, 0.0)
    ridge: float = positive(1.0)
    shift: float = real(4.0, 0.0)
    refresh: int = integer(25, 1)

    def check(self, problem: ProblemInfo) -> None:
        if problem.kind != "recommendation":
            raise unsuitable(type(self).__name__, problem, "recommendation")

    def plan(self, problem: ProblemInfo, curator: Curator) -> Plan:
        from dpb_gym.feedback import GaussianStatistics

        if curator.budget is None:
            raise AgentError("local-lin-ucb needs a budget; without one, take lin-ucb")
        low, high = rewards_range(problem)
        # Centring minimises the largest |r|, which the sensitivity of r x depends on.
        half = 0.5 * (high - low)
        mechanism = GaussianStatistics.for_budget(curator.budget, problem.dim, -half, half)
        # Scores are equal in the first rounds: a rule by position would prefer some of the arms.
        ties = int(problem.fixed_arms)
        return Plan(
            partial(Statistics, curator, mechanism),
            directed=True,
            every=self.refresh,
            draws=ties,
            dim=ties,
            law="uniforms",
        )

    def start(self, problem: ProblemInfo, sums: Any) -> tuple[Known, State]:
        d = problem.dim
        low, high = rewards_range(problem)
        known = Known(
            alpha=self.alpha if self.rule == "ucb" else 0.0,
            ridge=self.ridge,
            shift=self.shift,
            # Isometric noise has an operator norm of at most sigma sqrt(2 d) on average.
            noise=sums.sigma * math.sqrt(2 * d),
            middle=low + 0.5 * (high - low),
            mean=centre_of(problem),
            ties=problem.fixed_arms,
        )
        return known, State(np.eye(d) / self.ridge, self.ridge * known.mean)


class KnownGLM(NamedTuple):
    """Public constants of the logistic bandit.

    Attributes:
        descent: See `Descent`.
        low: Lowest reward.
        width: Width of the rewards' range.
        ties: Whether equal scores are decided at random.
    """

    descent: Descent
    low: float
    width: float
    ties: bool


class StateGLM(NamedTuple):
    """State of one replicate: theta ``(d,)`` and step = t + t_0, ``(1,)``."""

    theta: Any
    step: Any


@jit
def act_glm(c, s, t, x, z):
    """Candidate of the largest <x, theta>."""
    return largest(dots(x, s.theta), z[0, 0] if c.ties else 0.0)


@jit
def record_glm(c, s, t, x, k, reward, z):
    """Gradient (sigmoid(<x, theta>) - y) x."""
    return gradient(c.descent, s.theta, clipped(x[k]), (reward - c.low) / c.width)


@jit
def learn_glm(c, s, released, t):
    """Move theta against the message."""
    descend(c.descent, s.theta, s.step, released.sum)


@local("local-glm-sgd", protects=PROTECTS)
class LocalGLM(Algorithm):
    """Logistic bandit on locally private gradients (LDP-SGD of Han, Liang, Wang & Zhang 2021).

    In round t the customer chooses the candidate of largest <x, theta_t>, has the reward r in
    [low, high], and sends the noisy gradient (sigmoid(<x, theta_t>) - y) x, y = (r - low) /
    (high - low). The server takes a gradient step, see `dpb_agents.common.local_sgd`. There is no
    bonus, because the paper assumes that contexts vary enough to explore. In a round without
    feedback the message is noise alone.

    The guarantee is local, for the features and the reward of one user-round.

    Args:
        prior_mean: Public prior mean of theta, ``(d,)``. It replaces `ProblemInfo.prior`; zeros
            give a cold start. None: use `ProblemInfo.prior`.
        curvature: h in units of the steepest slope of the sigmoid over d, > 0.
        size: Prior standard deviation of a coordinate of theta, > 0.

    Raises:
        AgentError: Without a budget, or if the rewards are not bounded.
    """

    functions = Functions(act_glm, record_glm, learn_glm)
    tuning_grid: ClassVar[dict[str, Any]] = {
        "curvature": [0.2, 0.4, 0.8, 1.6],
        "size": [0.15, 0.3],
    }

    prior_mean: Any = None
    curvature: float = positive(0.8)
    size: float = positive(0.3)

    def check(self, problem: ProblemInfo) -> None:
        if problem.kind != "recommendation":
            raise unsuitable("local-glm-sgd", problem, "recommendation")

    def plan(self, problem: ProblemInfo, curator: Curator) -> Plan:
        rewards_range(problem)
        ties = int(problem.fixed_arms)
        return gradient_plan(problem, curator)._replace(draws=ties, dim=ties, law="uniforms")

    def start(self, problem: ProblemInfo, sums: Any) -> tuple[KnownGLM, StateGLM]:
        low, high = rewards_range(problem)
        known, step = descent(problem, sums, self.curvature, self.size)
        state = StateGLM(known.centre, step)
        return KnownGLM(known, low, high - low, problem.fixed_arms), state
