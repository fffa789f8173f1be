"""Locally private stochastic gradients of generalised linear models (Han et al. 2021)."""

from __future__ import annotations

import numpy as np

from dpb_agents import kernels as agent_kernels
from dpb_agents.common.parameters import positive
from dpb_agents.common.prior import WarmStart
from dpb_gym.errors import AgentError
from dpb_gym.local_privacy import Messages
from dpb_gym.privacy import Curator
from dpb_gym.problems.base import Array, ProblemInfo
from dpb_gym.streams import AgentStreams

LOGISTIC, GAUSSIAN = 0, 1
GAUSSIAN_LIMIT = 3.0
FARTHEST = 4.0


class Gradients(Messages):
    """Messages of the users: each sends one gradient, in the unit ball, plus N(0, sigma^2 I)."""

    def send(self, gradient: Array, reach: Array) -> Array:
        """Return messages ``(B, d)`` for gradients ``(B, d)`` of norm at most `reach` ``(B,)``."""
        self.ready()
        sent = self.mechanism.privatise(gradient / reach[:, None], self.numbers.next())  # type: ignore[attr-defined]
        return np.asarray(reach[:, None] * sent)


class LocalSGD(WarmStart):
    """theta by stochastic gradients g_t = (f(<v_t, theta_t>) - y_t) v_t that users randomise.

    Every user gets the public theta_t and computes the gradient of their own loss. They clip it to
    the largest norm that it can have at theta_t for ||v|| <= 1 and send it with Gaussian noise.
    The server moves ``theta_{t+1} = theta_t - g_t / (h (t + t_0))``, within a ball, where h is the
    expected curvature. With ``t_0 = (noise of g / (size h))^2`` this is the posterior mean under a
    Gaussian prior of standard deviation `size` per coordinate, if the loss is a parabola of
    curvature h.

    Relation: replace-one, one user-round. Sensitivity: twice the largest norm of a gradient,
    which is sigmoid(scale ||theta_t||) for logistic responses and 3 + ||theta_t|| for Gaussian
    ones, clipped to [-3, 3]; noise scale sqrt(2 / rho) times that norm.

    Args:
        curvature: h in units of the steepest slope of f over d, > 0.
        size: Prior standard deviation of a coordinate of theta, > 0.
    """

    curvature: float = positive(0.8)
    size: float = positive(0.3)

    def open(
        self,
        problem: ProblemInfo,
        streams: AgentStreams,
        curator: Curator,
        model: int = LOGISTIC,
        scale: float = 1.0,
    ) -> None:
        """Create the messages for new replicates; `scale` is that of the logistic link.

        Raises:
            AgentError: Without a budget.
        """
        from dpb_gym.feedback import GaussianContexts

        if curator.budget is None:
            raise AgentError("locally private gradients need a budget; take a non-private agent")
        B, d = streams.replicates, problem.dim
        mechanism = GaussianContexts.for_budget(curator.budget, 1, d)
        self.gradients = Gradients(curator, mechanism, streams)
        self._model, self._scale = model, scale
        self._centre = self.prior(problem).centre
        self.theta = np.tile(self._centre, (B, 1))
        self._gradient, self._reach = np.empty((B, d)), np.empty(B)
        steepest = 0.25 * scale if model == LOGISTIC else 1.0
        # With one observed round in n_candidates the mean loss is flatter by that factor.
        seen = problem.n_candidates or 1 if problem.partial_feedback else 1
        self._h = self.curvature * steepest / (d * seen)
        noise = mechanism.sigma * (0.5 if model == LOGISTIC else GAUSSIAN_LIMIT)
        self._t = (noise / (self.size * self._h)) ** 2
        self._farthest = FARTHEST * self.size * np.sqrt(d)

    def step(self, vectors: Array, response: Array) -> None:
        """Send one user's message per replicate and move theta, for v ``(B, d)``, y ``(B,)``."""
        model, made = (self._model, self._scale, GAUSSIAN_LIMIT), (self._gradient, self._reach)
        agent_kernels.demand.negative_scores(vectors, response, self.theta, *model, *made)
        sent = self.gradients.send(self._gradient, self._reach)
        self._t += 1
        away = self.theta - self._centre - sent / (self._h * self._t)
        length = np.sqrt((away * away).sum(axis=1, keepdims=True))
        self.theta = self._centre + away * np.minimum(
            1.0, self._farthest / np.maximum(length, 1e-300)
        )
