"""Rarely switching LinUCB: theta and the bonus are constant between switches."""

from __future__ import annotations

import math
from typing import Any, ClassVar, NamedTuple

import numpy as np

from dpb_agents.recommendation.ridge_agents import CENTRED, SUPPORTS, WIDTHS, central
from dpb_agents.recommendation.rivals.linear_rival import (
    LinearRival,
    RewardSums,
    optimistic,
    record_reward,
    shrunk,
)
from dpb_gym import portable
from dpb_gym.kernels.vectors import (
    add,
    copy_matrix,
    copy_to,
    eigenvalues,
    grow_inverse_clipped,
    log,
    times,
)
from dpb_gym.parameters import inside, positive, real
from dpb_gym.play import Functions, Plan, jit
from dpb_gym.privacy import Curator, Segment
from dpb_gym.problems.rounds import ProblemInfo
from dpb_gym.registry import register_agent


class Known(NamedTuple):
    """Public constants.

    Attributes:
        alpha: Width of the bonus, or its factor.
        ridge: lambda.
        mean: Prior mean of theta, ``(d,)``.
        informed: Whether it is not 0.
        shift: Subtracted from rewards.
        noisy: Whether sums carry noise.
        rise: Growth of log det A that causes a switch.
        half: R: half the width of the rewards' range.
        norm: Assumed bound of ||theta||.
        level: 2 log T (AdaC-OFUL) or 2 log(1 / delta) (OFUL).
        sigma: Standard deviation of the noise of one sum.
    """

    alpha: float
    ridge: float
    mean: Any
    informed: bool
    shift: float
    noisy: bool
    rise: float
    half: float
    norm: float
    level: float
    sigma: float


class State(NamedTuple):
    """State of one replicate.

    Attributes:
        theta: V^-1 b, ``(d,)``.
        V: V^-1, ``(d, d)``.
        A: A^-1 of all rounds, ``(d, d)``.
        b: Sum of all releases, ``(d,)``.
        gain: Growth of log det A since the start, ``(1,)``.
        last: Its value at the last switch, ``(1,)``.
        switches: l, ``(1,)``.
        width: Width of the bonus, ``(1,)``.
    """

    theta: Any
    V: Any
    A: Any
    b: Any
    gain: Any
    last: Any
    switches: Any
    width: Any


@jit
def act(c, s, t, x, z):
    """Candidate of the largest <x, theta> + width ||x||_{V^-1}."""
    if c.informed:
        return optimistic(x, shrunk(s.theta, s.V, c.ridge, c.mean), s.V, s.width[0], z)
    return optimistic(x, s.theta, s.V, s.width[0], z)


@jit
def record(c, s, t, x, k, reward, z):
    """r and x."""
    return record_reward(c, x, k, reward)


@jit
def see(c, s, t, x, k):
    """A <- A + x x'."""
    # det(A + x x') / det A = 1 + x' A^-1 x, which `grow_inverse_clipped` returns.
    s.gain[0] += log(grow_inverse_clipped(s.A, x[k]))


@jit
def due(c, s, t):
    """Whether det A has grown by the factor 1 + growth since the last switch."""
    # Only features decide, which are public: the time of a release tells nothing about rewards.
    return s.gain[0] - s.last[0] > c.rise


@jit
def switch(c, s, released, t):
    """b <- b + the noisy sum since the last switch, V <- A, theta <- V^-1 b."""
    add(s.b, 1.0, released.sum)
    s.last[0] = s.gain[0]
    s.switches[0] += 1
    copy_matrix(s.A, s.V)
    copy_to(times(s.V, s.b), s.theta)


@jit
def switch_adac(c, s, released, t):
    """`switch`, and the width of AdaC-OFUL."""
    switch(c, s, released, t)
    d = s.b.shape[0]
    # The noise of l releases adds up in b. The largest eigenvalue of V^-1 is the last one.
    noise = c.sigma * math.sqrt(s.switches[0] * eigenvalues(s.V)[d - 1])
    s.width[0] = c.alpha * (
        math.sqrt(c.ridge) * c.norm
        + c.half * math.sqrt(c.level + s.last[0])
        + noise * (math.sqrt(d) + math.sqrt(c.level))
    )


@jit
def switch_oful(c, s, released, t):
    """`switch`, and the width of OFUL."""
    switch(c, s, released, t)
    printed = c.half * math.sqrt(s.last[0] + c.level) + math.sqrt(c.ridge) * c.norm
    s.width[0] = c.alpha * printed


def switching_plan(agent: Any, problem: ProblemInfo, curator: Curator) -> Plan:
    """Return the plan of reward sums between switches."""
    facts = agent.facts(problem)
    bound = Segment(*facts.reward)
    sums = RewardSums(curator, facts.dim, bound, "reward sum between switches")
    return agent.planned(problem, sums)  # type: ignore[no-any-return]


def switching_start(
    agent: Any, problem: ProblemInfo, sums: Any, width: float, norm: float = 0.0, level: float = 0.0
) -> tuple[Known, State]:
    """Return c and s; see `Known`."""
    facts = agent.facts(problem)
    known = Known(
        alpha=agent.alpha,
        ridge=agent.ridge,
        mean=facts.mean,
        informed=bool(facts.mean.any()),
        shift=facts.shift,
        noisy=sums.sigma > 0.0,
        rise=portable.log1p(agent.growth),
        half=facts.half,
        norm=norm,
        level=level,
        sigma=float(sums.sigma),
    )
    # Without records A and V are ridge I.
    start = np.eye(facts.dim) / agent.ridge
    return known, State(
        theta=np.zeros(facts.dim),
        V=start,
        A=start,
        b=np.zeros(facts.dim),
        gain=np.zeros(1),
        last=np.zeros(1),
        switches=np.zeros(1, np.int64),
        width=np.full(1, width),
    )


@central("rarely-switching-zcdp")
class RarelySwitching(LinearRival):
    """Rarely switching private LinUCB with a plain bonus, after RU's comparison [construct].

    RU names "RarelySwitching-zCDP" without a definition. This is `adac-oful-zcdp` with the bonus
    alpha ||x||_{V^-1} and a larger `growth`. A = ridge I + sum x x' is public. When det A has grown
    by the factor ``1 + growth``, the sum of r x since the last switch is released with noise and
    added to b. theta = A^-1 b and V = A are constant until the next switch.

    Sensitivity of a released sum: the reward's range. Every reward is in one sum. The guarantee is
    central, for the **reward** of one round, replace-one. Features, actions and the times of
    switches count as public.

    Args:
        growth: A switch happens when det A exceeds ``1 + growth`` times its value at the last.
    """

    functions = Functions(act, record, switch, see, due)
    tuning_grid: ClassVar[dict[str, list[Any]]] = {
        "growth": [4.0, 16.0],
        "ridge": [1.0, 100.0],
        "centre": [False, True],
    }

    growth: float = positive(4.0)

    def plan(self, problem: ProblemInfo, curator: Curator) -> Plan:
        return switching_plan(self, problem, curator)

    def start(self, problem: ProblemInfo, sums: Any) -> tuple[Known, State]:
        return switching_start(self, problem, sums, self.alpha)


@central("adac-oful-zcdp")
class AdaCOFUL(LinearRival):
    """AdaC-OFUL (Azize & Basu): rarely switching OFUL on noisy reward sums.

    arXiv:2309.00557, from the abstract and the literature, not from the text. It switches as
    `rarely-switching-zcdp` does. Width of the bonus:
    alpha times ``sqrt(ridge) norm`` + half the reward's range times
    ``sqrt(2 log T + log det V - d log ridge)`` + ``sigma sqrt(l) (sqrt(d) + sqrt(2 log T)) /
    sqrt(smallest eigenvalue of V)`` after l switches: the noise of the blocks adds up in b.

    Sensitivity of a block's sum of r x: the reward's range, since features are public and lie
    in the unit ball; sigma = range / sqrt(2 rho), or the exact Gaussian one for an
    (epsilon, delta) budget. (The paper takes rewards in [-1, 1], hence 2 / sqrt(2 rho).) Every
    reward is in one block, so the blocks compose in parallel; the switches depend on the public
    features only. The guarantee is central, for the **reward** of one round, replace-one.

    Args:
        alpha: Factor of the confidence width, >= 0.
        growth: A switch happens when det A exceeds ``1 + growth`` times its value at the last.
        norm: Assumed bound of ||theta||, >= 0.
    """

    functions = Functions(act, record, switch_adac, see, due)
    tuning_grid: ClassVar[dict[str, list[Any]]] = {
        "growth": [1.0, 4.0],
        "ridge": [1.0, 100.0],
        "centre": [False, True],
    }

    alpha: float = 0.5
    growth: float = positive(1.0)
    norm: float = real(1.0, 0.0)

    def plan(self, problem: ProblemInfo, curator: Curator) -> Plan:
        return switching_plan(self, problem, curator)

    def start(self, problem: ProblemInfo, sums: Any) -> tuple[Known, State]:
        facts = self.facts(problem)
        level = 2.0 * portable.log(facts.horizon)
        # the width before any switch
        width = self.alpha * (math.sqrt(self.ridge) * self.norm + facts.half * math.sqrt(level))
        return switching_start(self, problem, sums, width, self.norm, level)


@register_agent("oful", supports=SUPPORTS)
class OFUL(LinearRival):
    """OFUL (Abbasi-Yadkori, Pal & Szepesvari 2011): ridge regression, self-normalised bonus.

    https://papers.nips.cc/paper/4417-improved-algorithms-for-linear-stochastic-bandits. Recommends
    the largest ``<x, theta> + alpha width ||x||_{V^-1}`` with the width of their Theorem 2, ``R
    sqrt(log(det V / ridge^d) + 2 log(1 / delta)) + sqrt(ridge) norm``, where rewards in a range
    are sub-Gaussian with R half of it. theta, V and width are updated when det V has grown by the
    factor ``1 + growth`` (their rarely switching form; 1 doubles it). `lin-ucb` has a constant
    width instead and updates every round.

    Args:
        alpha: Factor of the width, >= 0; 1 in the paper.
        growth: Growth of det V that causes an update, > 0.
        norm: Assumed bound of ||theta||, >= 0.
        delta: Probability with which the confidence set may fail, in (0, 1).
    """

    functions = Functions(act, record, switch_oful, see, due)
    tuning_grid: ClassVar[dict[str, list[Any]]] = {"alpha": WIDTHS, **CENTRED}

    growth: float = positive(1.0)
    norm: float = real(1.0, 0.0)
    delta: float = inside(0.01)

    def plan(self, problem: ProblemInfo, curator: Curator) -> Plan:
        return switching_plan(self, problem, curator)

    def start(self, problem: ProblemInfo, sums: Any) -> tuple[Known, State]:
        facts = self.facts(problem)
        level = -2.0 * portable.log(self.delta)
        # the width before any switch
        width = facts.half * math.sqrt(level) + math.sqrt(self.ridge) * self.norm
        return switching_start(self, problem, sums, self.alpha * width, self.norm, level)
