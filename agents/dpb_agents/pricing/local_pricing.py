"""Locally private pricing: explore, then greedy on randomised gradients (Zhao, Jiang & Yu)."""

from __future__ import annotations

import math
from typing import Any, ClassVar, NamedTuple

import numpy as np

from dpb_agents.common.local_sgd import Descent, descend, descent, gradient, gradient_plan
from dpb_gym.agent import unsuitable
from dpb_gym.kernels.customer_prices import best_price
from dpb_gym.kernels.vectors import copy_to
from dpb_gym.parameters import integer, positive, real
from dpb_gym.play import Algorithm, Functions, Plan, jit
from dpb_gym.privacy import Curator
from dpb_gym.problems.rounds import ProblemInfo
from dpb_gym.registry import register_agent


class Known(NamedTuple):
    """Public constants.

    Attributes:
        descent: See `Descent`.
        explore: Rounds with random prices.
        growth: Factor of rounds between two updates of the theta used for prices.
    """

    descent: Descent
    explore: int
    growth: float


class State(NamedTuple):
    """State of one replicate.

    Attributes:
        theta: Newest estimate, ``(d,)``.
        step: t + t_0, ``(1,)``.
        epoch: Estimate used for prices, ``(d,)``.
        next: Round of its next update, ``(1,)``.
    """

    theta: Any
    step: Any
    epoch: Any
    next: Any


@jit
def draws(c, t):
    """One random number per round of exploration."""
    return 1 if t <= c.explore else 0


@jit
def act(c, s, t, x, z):
    """A random price, or the best one for the epoch's theta."""
    if t <= c.explore:
        return z[0, 0]
    return best_price(x, s.epoch, c.descent.logistic, c.descent.scale)


@jit
def record(c, s, t, x, price, y, z):
    """Gradient (f(<phi, theta>) - y) phi, phi = [x; -p] / sqrt(d)."""
    d = s.theta.shape[0]
    # The factor puts phi into the unit ball for features in [-1, 1] and prices in [0, 1].
    root = math.sqrt(d)
    phi = np.zeros(d)
    for j in range(d - 1):
        phi[j] = x[j] / root
    phi[d - 1] = -price / root
    # At the newest theta, which is public as well; only prices wait for the next epoch.
    return gradient(c.descent, s.theta, phi, y)


@jit
def learn(c, s, released, t):
    """Move theta against the message; a new epoch takes it for prices."""
    descend(c.descent, s.theta, s.step, released.sum)
    if t >= s.next[0]:
        copy_to(s.theta, s.epoch)
        s.next[0] = c.growth * t


@register_agent(
    "local-pricing",
    supports=["pricing"],
    protects=("local", "user-round"),
    budget="required",
)
class LocalPricing(Algorithm):
    """Personalised prices from locally private gradients (Zhao, Jiang & Yu 2024; Han et al. 2021).

    The first `explore` customers get uniformly random prices. Afterwards the price is the best
    one at theta_k, the estimate at the start of epoch k, and epochs grow by the factor `growth`.
    Every customer sends the gradient (f(<phi, theta_t>) - y) phi of their demand y with noise,
    phi = [x; -p] / sqrt(d), and the server moves theta_t against it, see
    `dpb_agents.common.local_sgd`. The papers commit after the exploration (ETC-LDP). Here learning
    continues, at no privacy cost: each customer sends once.

    The guarantee is local, for the features and the demand of one user-round.

    Args:
        prior_mean: Public prior mean of theta, ``(d,)``. It replaces `ProblemInfo.prior`; zeros
            give a cold start. None: use `ProblemInfo.prior`.
        curvature: h in units of the steepest slope of f over d, > 0.
        size: Prior standard deviation of a coordinate of theta, > 0.
        explore: Random prices at the start, >= 0.
        growth: Factor of rounds between two updates of the theta used for prices, > 1.

    Raises:
        AgentError: Without a budget.
    """

    functions = Functions(act, record, learn, draws=draws)
    tuning_grid: ClassVar[dict[str, Any]] = {
        "curvature": [0.15, 0.3],
        "size": [0.3, 0.6],
        "explore": [0, 100],
    }

    prior_mean: Any = None
    curvature: float = positive(0.3)
    size: float = positive(0.6)
    explore: int = integer(100, 0)
    growth: float = real(1.1, 1.0, open_low=True)

    def check(self, problem: ProblemInfo) -> None:
        if problem.kind != "pricing" or problem.demand is None:
            raise unsuitable("local-pricing", problem, "pricing", "demand")

    def plan(self, problem: ProblemInfo, curator: Curator) -> Plan:
        return gradient_plan(problem, curator)._replace(draws=1, dim=1, law="uniforms")

    def start(self, problem: ProblemInfo, sums: Any) -> tuple[Known, State]:
        zeta = 1.0 if problem.zeta is None else problem.zeta
        logistic = problem.demand == "logistic"
        known, step = descent(problem, sums, self.curvature, self.size, logistic, zeta)
        # A run may be shorter than the exploration.
        explore = min(self.explore, problem.longest)
        state = State(known.centre, step, known.centre, np.ones(1))
        return Known(known, explore, self.growth), state
