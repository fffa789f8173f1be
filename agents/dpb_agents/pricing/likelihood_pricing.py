"""Pricing by maximum likelihood: greedy, optimistic, Thompson sampling and forced exploration.

A customer buys with probability f(<phi, theta>), phi = [x; -p] / sqrt(d). theta is fitted to all
records by maximum likelihood, at rounds that differ between the agents, and so does the price: the
best one for theta, or one that explores.
"""

from __future__ import annotations

import math
from dataclasses import field
from typing import Any, ClassVar, NamedTuple

import numpy as np

from dpb_agents.pricing.demand_records import DemandFit, ExactMLE
from dpb_agents.pricing.paper_constants import Demand
from dpb_agents.pricing.private_demand_mle import PrivateMLE
from dpb_gym import portable
from dpb_gym.agent import unsuitable
from dpb_gym.kernels.customer_prices import best_price, optimistic_price
from dpb_gym.kernels.vectors import (
    add_outer,
    cholesky,
    copy_matrix,
    copy_to,
    inverse,
    log,
    normal_cdf,
    signed_logdet,
)
from dpb_gym.parameters import choice, integer, positive, real
from dpb_gym.play import Algorithm, Functions, Plan, jit
from dpb_gym.privacy import Curator
from dpb_gym.problems.prior import Prior
from dpb_gym.problems.rounds import ProblemInfo
from dpb_gym.registry import register_agent

# Largest loss of the searched price's index against the best one's.
SEARCH_TOLERANCE = 1e-7


class Known(NamedTuple):
    """Public constants.

    Attributes:
        logistic: Whether demand is logistic.
        zeta: Slope of the link; 1 for Gaussian demand.
        explore: Random prices at the start.
        growth: Factor of rounds, or of det V, between two fits.
        gamma: Width of an optimistic bonus.
        scale: Width of a draw of theta.
        width: Least distance to the mean price in round 1.
        first: Length of the first episode.
        tests: Random prices at the start of an episode; 0: the square root of its length.
        ridge: Shift of V.
        constant: Last feature of every customer; 0: there is none.
    """

    logistic: bool
    zeta: float
    explore: int
    growth: float
    gamma: float
    scale: float
    width: float
    first: int
    tests: int
    ridge: float
    constant: float


class State(NamedTuple):
    """State of one replicate.

    Attributes:
        theta: The last fit, ``(d,)``.
        next: Round of the next fit, ``(1,)``.
        gram: Sum of phi phi', ``(d, d)``.
        sign: Sign of det V at the last fit, V = gram + ridge I, ``(1,)``.
        logdet: Logarithm of its absolute value, ``(1,)``.
        inverse: V^-1 then, ``(d, d)``.
        root: Its Cholesky factor.
        total: Sum of prices, ``(1,)``.
        count: Their number, ``(1,)``.
    """

    theta: Any
    next: Any
    gram: Any
    sign: Any
    logdet: Any
    inverse: Any
    root: Any
    total: Any
    count: Any


@jit
def features(c, x):
    """The features x, and the constant if there is one."""
    m = x.shape[0]
    out = np.zeros(m + int(c.constant > 0.0))
    for j in range(m):
        out[j] = x[j]
    if c.constant > 0.0:
        out[m] = c.constant
    return out


@jit
def draws(c, t):
    """Return 1 for the random prices at the start."""
    return int(t <= c.explore)


@jit
def act_greedy(c, s, t, x, z):
    """Random price at the start, then the best one for theta."""
    if t <= c.explore:
        return z[0, 0]
    return best_price(features(c, x), s.theta, c.logistic, c.zeta)


@jit
def record(c, s, t, x, price, y, z):
    """The row [x, p, y]."""
    x = features(c, x)
    m = x.shape[0]
    row = np.zeros(m + 2)
    for j in range(m):
        row[j] = x[j]
    row[m] = price
    row[m + 1] = y
    return row


@jit
def due_by_rounds(c, s, t):
    """After the random prices, and whenever rounds have grown by `growth`."""
    return t >= s.next[0] or t == c.explore


@jit
def learn(c, s, released, t):
    """Take the fit."""
    copy_to(released.sum, s.theta)
    s.next[0] = math.ceil(c.growth * t)


GREEDY = Functions(act_greedy, record, learn, due=due_by_rounds, draws=draws)


@jit
def due_once(c, s, t):
    """After the random prices."""
    return t == max(1, c.explore)


COMMIT = GREEDY._replace(due=due_once)


@jit
def act_optimistic(c, s, t, x, z):
    """Price of the largest p f(<phi, theta>) + gamma ||phi||_{V^-1}."""
    if t <= c.explore:
        return z[0, 0]
    x = features(c, x)
    return optimistic_price(x, s.theta, s.inverse, c.logistic, c.zeta, c.gamma, SEARCH_TOLERANCE)


@jit
def see_vector(c, s, t, x, price):
    """Add phi phi'."""
    x = features(c, x)
    m = x.shape[0]
    phi = np.zeros(m + 1)
    root = math.sqrt(m + 1.0)
    for j in range(m):
        phi[j] = x[j] / root
    phi[m] = -price / root
    add_outer(s.gram, 1.0, phi)


@jit
def due_by_growth(c, s, t):
    """After the random prices, and whenever det V has grown by `growth`."""
    if t < c.explore:
        return False
    if t == c.explore:
        return True
    sign, logdet = signed_logdet(shifted(c, s))
    above = sign * (logdet - s.logdet[0] - log(c.growth)) > 0.0
    return sign > s.sign[0] or (sign == s.sign[0] and above)


@jit
def shifted(c, s):
    """V = gram + ridge I."""
    d = s.theta.shape[0]
    V = np.zeros((d, d))
    copy_matrix(s.gram, V)
    for j in range(d):
        V[j, j] += c.ridge
    return V


@jit
def learn_metric(c, s, released, t):
    """Take the fit, and V."""
    copy_to(released.sum, s.theta)
    V = shifted(c, s)
    sign, logdet = signed_logdet(V)
    s.sign[0] = sign
    s.logdet[0] = logdet
    copy_matrix(inverse(V), s.inverse)
    copy_matrix(cholesky(s.inverse), s.root)


UCB = Functions(act_optimistic, record, learn_metric, see_vector, due_by_growth, draws)


@jit
def act_thompson(c, s, t, x, z):
    """Best price for theta + scale root z."""
    if t <= c.explore:
        # The random numbers are normal, because theta is drawn; a price needs a uniform one.
        return normal_cdf(z[0, 0])
    d = s.theta.shape[0]
    draw = np.zeros(d)
    for j in range(d):
        draw[j] = s.theta[j]
        for k in range(d):
            draw[j] += c.scale * z[0, k] * s.root[j, k]
    return best_price(x, draw, c.logistic, c.zeta)


TS = Functions(act_thompson, record, learn_metric, see_vector, due_by_growth)


@jit
def episode(c, t):
    """Rounds before the episode of round t, and its random prices."""
    start = 0
    length = c.first
    while start + length < t:
        start += length
        length *= 2
    # The square root of each length adds up to about sqrt(T) random prices.
    tests = c.tests if c.tests > 0 else math.ceil(math.sqrt(length))
    return start, min(tests, length)


@jit
def cycle_draws(c, t):
    """Return 1 for the random prices of an episode."""
    start, tests = episode(c, t)
    return int(t - start <= tests)


@jit
def act_cycle(c, s, t, x, z):
    """Random price at the start of an episode, then the best one for theta."""
    start, tests = episode(c, t)
    if t - start <= tests:
        return z[0, 0]
    return best_price(x, s.theta, c.logistic, c.zeta)


@jit
def due_by_episode(c, s, t):
    """After the random prices of an episode."""
    start, tests = episode(c, t)
    return t - start == tests


CYCLE = Functions(act_cycle, record, learn, due=due_by_episode, draws=cycle_draws)


@jit
def act_apart(c, s, t, x, z):
    """Greedy price, moved to at least width t^(-1/4) away from the mean of past prices."""
    price = act_greedy(c, s, t, x, z)
    if t <= max(1, c.explore):
        return price
    mean = s.total[0] / max(s.count[0], 1.0)
    # Squared distances of order t^(-1/2) add up to sqrt(T), like their cost and information.
    least = c.width / math.sqrt(math.sqrt(t))
    if abs(price - mean) >= least:
        return price
    # Away from the mean on the greedy price's side, unless that leaves [0, 1].
    up = 1.0 if price >= mean else -1.0
    if mean + up * least > 1.0 or mean + up * least < 0.0:
        up = -up
    return min(max(mean + up * least, 0.0), 1.0)


@jit
def see_price(c, s, t, x, price):
    """Add the price to the sum of prices."""
    s.total[0] += price
    s.count[0] += 1.0


APART = GREEDY._replace(act=act_apart, see=see_price)


class Likelihood(Algorithm):
    """Base of the agents: parameters of the fit, and the sums.

    Args:
        prior_mean: Public prior mean of theta, ``(d,)``, which theta is shrunk towards. It replaces
            `ProblemInfo.prior`; zeros give a cold start. None: use `ProblemInfo.prior`.
        explore: Random prices at the start.
        growth: Factor of rounds or of det V between two fits, > 1.
        ridge: Weight of ``||theta||^2 / 2`` in the likelihood and shift of V, > 0.
    """

    law: ClassVar[str] = "uniforms"
    constant: float = real(0.0, 0.0, init=False)

    prior_mean: Any = None
    explore: int = integer(10, 0)
    growth: float = real(2.0, 1.0, open_low=True)
    ridge: float = positive(1.0)

    def check(self, problem: ProblemInfo) -> None:
        if problem.kind != "pricing" or problem.demand is None:
            raise unsuitable(type(self).__name__, problem, "pricing", "demand")

    def random_prices(self, problem: ProblemInfo, private: bool) -> int:
        """Return the number of random prices at the start."""
        return min(self.explore, problem.longest)

    def estimator(self, problem: ProblemInfo, curator: Curator) -> Any:
        """Return the releaser of theta."""
        known = (problem.demand, problem.zeta, self.ridge)
        dim = self.dim(problem)
        return ExactMLE(curator.replicates, dim, problem.longest, *known)

    def dim(self, problem: ProblemInfo) -> int:
        """Return the dimension of theta, with the coefficient of the constant if there is one."""
        return problem.dim + int(self.constant > 0.0)

    def centre(self, problem: ProblemInfo) -> Any:
        """Return the prior mean of theta; that of the constant's coefficient is 0."""
        mean = (problem.prior or Prior((0.0,) * problem.dim)).fitting(problem.dim).centre
        # The price has the last coordinate, after the features and the constant.
        return np.insert(mean, -1, 0.0) if self.constant else mean

    def constants(self, problem: ProblemInfo) -> dict[str, Any]:
        """Return constants of the agent besides those of the fit."""
        return {}

    def plan(self, problem: ProblemInfo, curator: Curator) -> Plan:
        fit = self.estimator(problem, curator)
        fit.centre = self.centre(problem)
        dim = 1 if self.law == "uniforms" else problem.dim
        return Plan(
            DemandFit(fit, self.dim(problem), self.records(problem, curator.private)),
            draws=1,
            dim=dim,
            law=self.law,
        )

    def records(self, problem: ProblemInfo, private: bool) -> int | None:
        """Return the number of rounds whose records enter; None for all."""
        return None

    def start(self, problem: ProblemInfo, sums: Any) -> tuple[Known, State]:
        d = self.dim(problem)
        explore = self.random_prices(problem, sums.private)
        logistic = problem.demand == "logistic"
        defaults: dict[str, Any] = dict(gamma=0.0, scale=0.0, width=0.0, first=1, tests=1)
        known = Known(
            logistic=logistic,
            zeta=1.0 if problem.zeta is None else problem.zeta,
            explore=explore,
            growth=self.growth,
            ridge=self.ridge,
            constant=self.constant,
            **{**defaults, **self.constants(problem)},
        )
        eye = np.eye(d)
        return known, State(
            theta=self.centre(problem),
            next=np.full(1, max(1, explore)),
            gram=np.zeros((d, d)),
            sign=np.ones(1),
            # V is ridge I before the first record.
            logdet=np.full(1, d * portable.log(self.ridge)),
            inverse=eye / self.ridge,
            root=eye / math.sqrt(self.ridge),
            total=np.zeros(1),
            count=np.zeros(1),
        )


@register_agent(
    "greedy-pricing",
    supports=["pricing"],
    summary="The best price under maximum likelihood, without privacy.",
    rule="greedy",
    growth=1.25,
)
@register_agent(
    "glm-ucb-pricing",
    supports=["pricing"],
    summary="GLM-UCB: maximum likelihood with an optimistic bonus, without privacy.",
    rule="ucb",
)
class GLMPricing(Likelihood):
    """Maximum-likelihood pricing without privacy: greedy, or optimistic (GLM-UCB).

    ``glm-ucb-pricing`` is CSW's Algorithm 1 on exact releases, hence private pricing without
    noise.

    Args:
        rule: ``"greedy"`` or ``"ucb"``; see above.
        explore: Random prices at the start (CSW: 10).
        gamma: Width of the bonus of ``ucb``, >= 0 (CSW: 1).
        growth: Factor of rounds (greedy) or of det V (ucb; CSW: 2) between two fits, > 1.
        constant: Last feature of every customer, >= 0, for demand with an intercept that features
            do not show. 0: there is none.
    """

    tuning_grid: ClassVar[dict[str, Any]] = {
        "greedy-pricing": {"explore": [0, 10], "growth": [1.1, 1.25], "ridge": [1.0, 4.0]},
        "glm-ucb-pricing": {"explore": [0, 10], "gamma": [0.1, 1.0], "ridge": [1.0, 4.0]},
    }

    rule: str = choice("greedy", ("greedy", "ucb"))
    gamma: float = real(1.0, 0.0)
    constant: float = real(0.0, 0.0)

    @property
    def functions(self) -> Functions:  # type: ignore[override]
        """The functions of the rule."""
        return UCB if self.rule == "ucb" else GREEDY

    def constants(self, problem: ProblemInfo) -> dict[str, Any]:
        return dict(gamma=self.gamma)


@register_agent("ts-pricing", supports=["pricing"])
class ThompsonPricing(Likelihood):
    """Thompson sampling: the best price under a normal draw around the estimate.

    theta~ is normal with mean theta and covariance ``scale^2 V^-1``. V is ridge I plus the sum of
    phi phi' at the last update, which comes when det V has grown by `growth`. This is TS-GLM
    (Abeille & Lazaric 2017, arXiv:1611.06534) with lazy updates. A scale of 1/2 is the
    sub-Gaussian constant of 0-1 demand over the steepest slope of the link, zeta/4 = 1 at zeta = 4.

    Args:
        scale: Width of the draw, > 0; by default sub-Gaussian constant over steepest slope.
    """

    functions = TS
    law: ClassVar[str] = "normals"
    tuning_grid: ClassVar[dict[str, list[Any]]] = {
        "scale": [None, 0.1],
        "explore": [0, 10],
        "ridge": [1.0, 4.0],
    }

    scale: float | None = positive(None)
    growth: float = 1.5

    def constants(self, problem: ProblemInfo) -> dict[str, Any]:
        # Demand in {0, 1} is 1/2-sub-Gaussian, Gaussian demand has unit variance.
        steepest = (problem.zeta or 1.0) / 4
        usual = 0.5 / steepest if problem.demand == "logistic" else 1.0
        return dict(scale=self.scale or usual)


@register_agent(
    "explore-commit-pricing",
    supports=["pricing"],
    protects=("anticipating", "user-round"),
    needs_horizon=True,
)
class ExploreCommit(Likelihood):
    """Explore then commit: random prices, one maximum-likelihood fit, then greedy prices.

    With a budget, the fit is one release of objective perturbation, which takes the whole budget
    (anticipating, per user-round, replace-one). Responses after the random start are not used.

    Args:
        explore: Number of random prices; by default ceil(sqrt(d T)), or with a budget
            ceil((d T)^(2/3)), as private estimates need more; both at most T / 4.
        demand_bound: With a budget, Gaussian demand is clipped to [-B_Y, B_Y], > 0.
    """

    functions = COMMIT
    # enough records to move theta far
    audit_params: ClassVar[dict[str, Any]] = {"explore": 1024}
    audit_horizon = 1026
    tuning_grid: ClassVar[dict[str, list[Any]]] = {
        "explore": [None, 100, 200, 400, 800, 1600, 3200, 6400]
    }

    explore: int | None = integer(None, 0)  # type: ignore[assignment]
    growth: float = field(default=2.0, init=False)
    demand_bound: float = positive(3.0)

    def random_prices(self, problem: ProblemInfo, private: bool) -> int:
        T = problem.longest
        d = problem.dim
        if self.explore is not None:
            return min(self.explore, T)
        power = 2 / 3 if private else 1 / 2
        return max(1, min(math.ceil(portable.power(d * T, power)), T // 4))

    def records(self, problem: ProblemInfo, private: bool) -> int | None:
        # No fit uses later records, so they are not stored.
        return max(1, self.random_prices(problem, private))

    def estimator(self, problem: ProblemInfo, curator: Curator) -> Any:
        if not curator.private:
            return super().estimator(problem, curator)
        assert problem.demand is not None
        demand = Demand.of(problem.demand, problem.zeta, self.demand_bound)
        records = max(1, self.random_prices(problem, True))
        return PrivateMLE(curator, problem.dim, records, demand)


@register_agent("mle-cycle-pricing", supports=["pricing"])
class MLECycle(Likelihood):
    """MLE-cycle: episodes of doubling length, each with random prices first and then a fit.

    After Broder & Rusmevichientong (2012) and Javanmard & Nazerzadeh (2019), with features.

    Args:
        first: Length of the first episode, >= 2.
        tests: Random prices at the start of an episode: ``"sqrt"`` (the square root of its
            length, rounded up) or ``"dim"`` (d of them).
    """

    functions = CYCLE
    tuning_grid: ClassVar[dict[str, list[Any]]] = {
        "first": [16, 64],
        "tests": ["sqrt", "dim"],
        "ridge": [1.0, 4.0],
    }

    explore: int = field(default=0, init=False)
    growth: float = field(default=2.0, init=False)
    first: int = integer(16, 2)
    tests: str = choice("sqrt", ("sqrt", "dim"))

    def constants(self, problem: ProblemInfo) -> dict[str, Any]:
        return dict(first=self.first, tests=problem.dim if self.tests == "dim" else 0)


@register_agent("cils-pricing", supports=["pricing"])
class ControlledVariance(Likelihood):
    """Constrained iterated least squares (Keskin & Zeevi 2014), by maximum likelihood.

    The greedy price, moved to at least k t^(-1/4) away from the mean of past prices, so that
    learning never stops. Controlled variance pricing (den Boer & Zwart) has the same rule. For
    Gaussian demand the fit is least squares.

    Args:
        width: k, >= 0; 0 is iterated least squares.
    """

    functions = APART
    tuning_grid: ClassVar[dict[str, list[Any]]] = {
        "width": [0.03, 0.1],
        "explore": [0, 10],
        "ridge": [1.0, 4.0],
    }

    width: float = real(0.1, 0.0, 1.0)
    growth: float = 1.25

    def constants(self, problem: ProblemInfo) -> dict[str, Any]:
        return dict(width=self.width)
