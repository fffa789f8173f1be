"""Locally private stochastic gradients of generalised linear models (Han et al. 2021).

theta moves by gradients g_t = (f(<v_t, theta_t>) - y_t) v_t that users randomise. Every user gets
the public theta_t and computes the gradient of their own loss. They clip it to the largest norm
that it can have at theta_t for ||v|| <= 1 and send it with Gaussian noise. The server moves
``theta_{t+1} = theta_t - g_t / (h (t + t_0))``, within a ball, where h is the expected curvature.
With ``t_0 = (noise of g / (size h))^2`` this is the posterior mean under a Gaussian prior of
standard deviation `size` per coordinate, if the loss is a parabola of curvature h.

Relation: replace-one, one user-round. Sensitivity: twice the largest norm of a gradient, which is
sigmoid(scale ||theta_t||) for logistic responses and 3 + ||theta_t|| for Gaussian ones, clipped to
[-3, 3]; noise scale sqrt(2 / rho) times that norm.
"""

from __future__ import annotations

import math
from functools import partial
from typing import Any, ClassVar, NamedTuple

import numpy as np

from dpb_gym.errors import AgentError
from dpb_gym.kernels.vectors import dot, sigmoid, squared_norm
from dpb_gym.local_privacy import Messages
from dpb_gym.play import Plan, jit
from dpb_gym.privacy import Curator
from dpb_gym.privacy.releasers.record_bounds import RecordShape
from dpb_gym.problems.base import Array, ProblemInfo
from dpb_gym.problems.prior import Prior
from dpb_gym.streams import AgentStreams

# Gaussian demand has unit variance and a mean within [-1, 1]: clipped beyond two deviations.
GAUSSIAN_LIMIT = 3.0
# Radius of theta's ball, in prior deviations of its norm.
FARTHEST = 4.0


class Gradients(Messages):
    """Messages of the users: each sends one gradient, in the unit ball, plus N(0, sigma^2 I)."""

    evolves: ClassVar[tuple[str, ...]] = ("_sent",)

    def __init__(self, curator: Curator, mechanism: Any, streams: AgentStreams) -> None:
        self.shape = RecordShape(mechanism.dim)
        self._sent = np.zeros((streams.replicates, mechanism.dim))
        super().__init__(curator, mechanism, streams)

    @property
    def sigma(self) -> float:
        """Standard deviation of the noise of a message, per coordinate."""
        return float(self.mechanism.sigma)  # type: ignore[attr-defined]

    def send(self, records: Array) -> Array:
        """Return the messages ``(B, d)`` for gradients ``(B, d)`` in the unit ball."""
        self.ready()
        sent = self.mechanism.privatise(records, self.numbers.next())  # type: ignore[attr-defined]
        return np.asarray(sent, np.float64)

    def add(self, records: Array) -> None:
        """Send the gradients of one round, which `release` returns."""
        self._sent = self.send(records)

    def add_rounds(self, records: Array) -> None:
        """Send the gradients of several rounds ``(n, B, d)``, of which the last is released."""
        for rows in records:
            self.add(rows)

    def release(self) -> Array:
        """Return the newest messages ``(B, d)``."""
        self.ready()
        return self._sent


class Descent(NamedTuple):
    """Public constants of the descent.

    Attributes:
        logistic: Whether responses are logistic.
        scale: Scale of the logistic link.
        h: Expected curvature.
        farthest: Radius of the ball.
        centre: Its centre, ``(d,)``.
    """

    logistic: bool
    scale: float
    h: float
    farthest: float
    centre: Any


@jit
def largest_gradient(c, theta):
    """Largest norm of a gradient at theta for ||v|| <= 1."""
    # |f - y| is largest for v along theta and the opposite response.
    norm = math.sqrt(squared_norm(theta))
    return sigmoid(c.scale * norm) if c.logistic else GAUSSIAN_LIMIT + norm


@jit
def gradient(c, theta, v, y):
    """(f(<v, theta>) - y) v, in units of its largest norm."""
    z = dot(v, theta)
    if c.logistic:
        gap = sigmoid(c.scale * z) - min(1.0, max(0.0, y))
    else:
        gap = z - min(GAUSSIAN_LIMIT, max(-GAUSSIAN_LIMIT, y))
    # The mechanism takes vectors of the unit ball: in these units noise is as small as possible.
    most = largest_gradient(c, theta)
    out = np.zeros(v.shape[0])
    for j in range(v.shape[0]):
        out[j] = gap * v[j] / most
    return out


@jit
def descend(c, theta, step, message):
    """theta <- theta - g / (h (t + t_0)), within the ball; `step` is t + t_0, ``(1,)``."""
    d = theta.shape[0]
    # The server knows theta, hence the unit of the message.
    most = largest_gradient(c, theta)
    step[0] += 1
    square = 0.0
    away = np.zeros(d)
    for j in range(d):
        away[j] = theta[j] - c.centre[j] - most * message[j] / (c.h * step[0])
        square += away[j] * away[j]
    shorter = min(1.0, c.farthest / max(math.sqrt(square), 1e-300))
    for j in range(d):
        theta[j] = c.centre[j] + away[j] * shorter


def gradient_plan(problem: ProblemInfo, curator: Curator) -> Plan:
    """Return the plan of one message per round.

    Raises:
        AgentError: Without a budget.
    """
    from dpb_gym.feedback import GaussianContexts

    if curator.budget is None:
        raise AgentError("locally private gradients need a budget; take a non-private agent")
    mechanism = GaussianContexts.for_budget(curator.budget, 1, problem.dim)
    return Plan(partial(Gradients, curator, mechanism))


def descent(
    problem: ProblemInfo,
    sums: Gradients,
    curvature: float,
    size: float,
    logistic: bool = True,
    scale: float = 1.0,
) -> tuple[Descent, Array]:
    """Return the constants of the descent, and t_0 as ``(1,)``.

    Args:
        problem: Public facts.
        sums: Releaser of the messages.
        curvature: h in units of the steepest slope of f over d, > 0.
        size: Prior standard deviation of a coordinate of theta, > 0.
        logistic: Whether responses are logistic; otherwise Gaussian.
        scale: Scale of the logistic link.
    """
    d = problem.dim
    steepest = 0.25 * scale if logistic else 1.0
    # With one observed round in n_candidates the mean loss is flatter by that factor.
    seen = problem.n_candidates or 1 if problem.partial_feedback else 1
    h = curvature * steepest / (d * seen)
    # Messages are in units of the largest gradient, which is this number at theta = 0.
    noise = sums.sigma * (0.5 if logistic else GAUSSIAN_LIMIT)
    prior = (problem.prior or Prior((0.0,) * d)).fitting(d)
    known = Descent(logistic, scale, h, FARTHEST * size * math.sqrt(d), prior.centre)
    return known, np.full(1, (noise / (size * h)) ** 2)
