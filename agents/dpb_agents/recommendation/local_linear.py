"""Locally private recommendation: linear and logistic bandits on the users' messages."""

from __future__ import annotations

import math
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from dpb_agents import kernels as agent_kernels
from dpb_agents.common.local_sgd import LocalSGD
from dpb_agents.common.parameters import choice, integer, positive, real
from dpb_agents.common.prior import WarmStart
from dpb_agents.recommendation.linear import SUPPORTS
from dpb_agents.recommendation.linear_records import shifted_inverse, take_recommended
from dpb_gym import kernels
from dpb_gym.agent import unsuitable
from dpb_gym.errors import AgentError
from dpb_gym.local_privacy import LocalPrivacy, Messages
from dpb_gym.privacy import Curator
from dpb_gym.problems.availability import among_available
from dpb_gym.problems.base import Array, Context, Feedback, ProblemInfo
from dpb_gym.problems.stretch import Stretch
from dpb_gym.registry import register_agent
from dpb_gym.streams import AgentStreams

if TYPE_CHECKING:
    from dpb_gym.feedback import GaussianStatistics
    from dpb_gym.privacy import Curator

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
    """The users' side, which sends x x' and (r - centre) x as one message."""

    mechanism: GaussianStatistics
    centre = 0.0

    def send(self, context: Context, action: Array, feedback: Feedback) -> Array:
        """Return the messages of one round as rows, see `GaussianStatistics.rows`.

        Without feedback a message is noise alone, because a missing message would reveal that the
        logged candidate is another one.

        Raises:
            ActionError: If a candidate does not exist.
        """
        B = len(action)
        observed = np.ones(B, bool) if feedback.observed is None else feedback.observed
        chosen = np.empty((B, self.mechanism.dim))
        take_recommended(context.features, action, observed, chosen)
        return self.message(chosen, feedback.reward)

    def message(self, chosen: Array, reward: Array) -> Array:
        """Return the messages for clipped features ``(B, d)``, 0 for none, and rewards ``(B,)``."""
        self.ready()
        return self.mechanism.rows(chosen, reward - self.centre, self.numbers.next())


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
class LocalLinear(WarmStart):
    """Linear bandit on locally private statistics x x' and r x (LDP-LinUCB).

    Each user receives A and theta, chooses by the own features, and sends one Gaussian message
    (`dpb_gym.feedback.GaussianStatistics`). The server only adds up messages. After Zheng, Cai,
    Huang, Li & Wang (2020, arXiv:2006.00701) and Han, Zhu, Wang, Sun, Tan & Du (2021), with an
    exact sensitivity, rewards centred at the middle of their range, and a shift of the noisy Gram
    matrix, ``shift`` times the mean operator norm sigma sqrt(2 d t) of its noise.

    The guarantee is local, for the features and the reward of one user-round.

    Args:
        rule: ``"ucb"`` or ``"greedy"``.
        alpha: Width of the bonus of ``ucb``, >= 0.
        ridge: Least ridge, > 0.
        shift: Multiple of the noise's operator norm that is added to the diagonal, >= 0.
        refresh: Rounds between updates of theta.

    Raises:
        AgentError: If the rewards are not bounded.
    """

    tuning_grid: ClassVar[dict[str, Any]] = {
        "local-lin-ucb": {"shift": [0.5, 1.0, 2.0, 4.0], "alpha": [0.1, 1.0]},
        "local-lin-greedy": {"shift": [0.5, 1.0, 2.0, 4.0], "refresh": [25, 100]},
    }

    rule: str = choice("ucb", RULES)
    alpha: float = real(0.1, 0.0)
    ridge: float = positive(1.0)
    shift: float = real(4.0, 0.0)
    refresh: int = integer(25, 1)

    def begin(self, problem: ProblemInfo, streams: AgentStreams, curator: Curator) -> None:
        from dpb_gym.feedback import GaussianStatistics

        if curator.budget is None:
            raise AgentError("local-lin-ucb needs a budget; without one, take lin-ucb")
        low, high = problem.reward_range
        if not (math.isfinite(low) and math.isfinite(high)):
            raise AgentError(f"rewards must be bounded, got the range [{low}, {high}]")
        B, d = streams.replicates, problem.dim
        half = 0.5 * (high - low)
        mechanism = GaussianStatistics.for_budget(curator.budget, d, -half, half)
        self.statistics = Statistics(curator, mechanism, streams)
        self.statistics.centre = low + half
        self._noise = mechanism.sigma * math.sqrt(2 * d)
        self._sums = np.zeros((B, mechanism.width))
        self._response = np.empty((B, d))
        self._inverse = np.broadcast_to(np.eye(d), (B, d, d)) / self.ridge
        self._mean = self.prior(problem).centre
        self._trusted = np.tile(self.ridge * self._mean, (B, 1))
        self._noisy = np.zeros((B, d + 1, d + 1))
        self._spare = np.empty((B, d)), np.empty(B)
        self._rounds, self.stretches = 0, True

    @among_available
    def act(self, context: Context) -> Array:
        action = np.empty(len(self._sums), np.int64)
        alpha = self.alpha if self.rule == "ucb" else 0.0
        agent_kernels.linear.choose_optimistic(
            context.features, self._inverse, self._trusted, alpha, action
        )
        return action

    def observe(self, context: Context, action: Array, feedback: Feedback) -> None:
        self._add(self.statistics.send(context, action, feedback))

    def play(self, rounds: Stretch) -> Array:
        (n, B), (_, d), theta = rounds.shape, self._trusted.shape, np.empty_like(self._trusted)
        chosen, (weight, reward) = np.empty((n, B, d)), np.empty((2, n, B))
        action, start = np.empty((n, B), np.int64), 0
        width = np.full(B, self.alpha if self.rule == "ucb" else 0.0)
        while start < n:
            part = slice(start, min(n, start + self.refresh - self._rounds % self.refresh))
            kernels.linalg.multiply(self._inverse, self._trusted, theta)
            agent_kernels.linear.play_growing(
                (rounds.context.features[part], rounds.reward[part], rounds.observed[part]),
                (theta, theta[:0], self._inverse, width),
                (np.empty((0, B, d, d)), np.empty((0, B))),
                (np.zeros(B, np.int64), width, math.inf),
                chosen[part],
                weight[part],
                reward[part],
                action[part],
            )
            for x, r in zip(chosen[part], reward[part]):
                self._add(self.statistics.message(x, r))
            start = part.stop
        return action

    def _add(self, messages: Array) -> None:
        """Add the messages of a round and update the policy if it is due."""
        self._sums += messages
        self._rounds += 1
        if self._rounds % self.refresh == 0:
            self._update()

    def _update(self) -> None:
        shift = self.ridge + self.shift * self._noise * math.sqrt(self._rounds)
        kernels.regression_records.unfold(self._sums, self._noisy[:, :-1, :-1], self._response)
        shifted_inverse(self._noisy, shift, self._inverse, *self._spare)
        self._trusted = self._response + shift * self._mean


@local("local-glm-sgd", protects=PROTECTS)
class LocalGLM(LocalSGD):
    """Logistic bandit on locally private gradients (LDP-SGD of Han, Liang, Wang & Zhang 2021).

    In round t the customer chooses the candidate of largest <x, theta_t>, has the reward r in
    [low, high], and sends the noisy gradient (sigmoid(<x, theta_t>) - y) x, y = (r - low) /
    (high - low). The server takes a gradient step. There is no bonus, because the paper assumes
    that contexts vary enough to explore. In a round without feedback the message is noise alone.

    The guarantee is local, for the features and the reward of one user-round.

    Raises:
        AgentError: Without a budget, or if the rewards are not bounded.
    """

    tuning_grid: ClassVar[dict[str, Any]] = {
        "curvature": [0.2, 0.4, 0.8, 1.6],
        "size": [0.15, 0.3],
    }

    def begin(self, problem: ProblemInfo, streams: AgentStreams, curator: Curator) -> None:
        if problem.kind != "recommendation":
            raise unsuitable("local-glm-sgd", problem, "recommendation")
        self._low, high = problem.reward_range
        if not (math.isfinite(self._low) and math.isfinite(high)):
            raise AgentError(f"rewards must be bounded, got the range [{self._low}, {high}]")
        self._range = high - self._low
        self.open(problem, streams, curator)
        B, d = self.theta.shape
        self._chosen = np.empty((B, d))
        self._all = np.ones(B, bool)
        self._metric, self._width = np.zeros((B, d, d)), np.zeros(B)

    @among_available
    def act(self, context: Context) -> Array:
        action = np.empty(len(self.theta), np.int64)
        agent_kernels.linear.choose(context.features, self.theta, self._metric, self._width, action)
        return action

    def observe(self, context: Context, action: Array, feedback: Feedback) -> None:
        observed = self._all if feedback.observed is None else feedback.observed
        take_recommended(context.features, action, observed, self._chosen)
        self.step(self._chosen, (feedback.reward - self._low) / self._range)
