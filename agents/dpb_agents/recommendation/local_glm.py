"""Locally private logistic bandit: greedy on randomised gradients (Han et al. 2021)."""

from __future__ import annotations

import math
from typing import Any, ClassVar

import numpy as np

from dpb_agents import kernels as zoo
from dpb_agents.common.local_sgd import LocalSGD
from dpb_agents.recommendation.linear import take_recommended
from dpb_gym.agent import unsuitable
from dpb_gym.errors import AgentError
from dpb_gym.privacy import Curator
from dpb_gym.problems.base import Array, Context, Feedback, ProblemInfo
from dpb_gym.problems.offers import among_available
from dpb_gym.registry import register_agent
from dpb_gym.streams import AgentStreams


@register_agent(
    "local-glm-sgd",
    supports=["recommendation"],
    protects=("local", "user-round"),
    budget="required",
)
class LocalGLM(LocalSGD):
    """Logistic bandit on locally private gradients (LDP-SGD of Han, Liang, Wang & Zhang 2021).

    Round t: the customer takes the candidate of largest <x, theta_t>, answers r in [low, high],
    and sends the gradient (sigmoid(<x, theta_t>) - y) x with noise, y = (r - low) / (high - low);
    the server moves theta against it. There is no bonus: contexts that vary explore by
    themselves, as the paper assumes. In a round without feedback she sends noise alone.

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
        zoo.linear.choose(context.features, self.theta, self._metric, self._width, action)
        return action

    def observe(self, context: Context, action: Array, feedback: Feedback) -> None:
        observed = self._all if feedback.observed is None else feedback.observed
        take_recommended(context.features, action, observed, self._chosen)
        self.step(self._chosen, (feedback.reward - self._low) / self._range)
