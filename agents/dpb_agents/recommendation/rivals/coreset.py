"""CoreSet-Elimination-DP: phased elimination of arms."""

from __future__ import annotations

import math
from typing import Any, ClassVar, NamedTuple

import numpy as np

from dpb_agents.recommendation.ridge_agents import central
from dpb_agents.recommendation.rivals.linear_rival import (
    COMPOSITIONS,
    LinearRival,
    RivalFacts,
    doubling,
    record_reward,
    shrunk,
)
from dpb_gym import portable
from dpb_gym.kernels.vectors import (
    clipped,
    copy_matrix,
    copy_to,
    grow_inverse_clipped,
    inner,
    largest,
    times,
)
from dpb_gym.parameters import choice, integer
from dpb_gym.play import Functions, Plan, jit
from dpb_gym.privacy import Curator
from dpb_gym.problems.rounds import ProblemInfo


class Known(NamedTuple):
    """Public constants.

    Attributes:
        ridge: lambda.
        mean: Prior mean of theta, ``(d,)``.
        informed: Whether it is not 0.
        shift: Subtracted from rewards.
        noisy: Whether sums carry noise.
        spread: Width for the randomness of the rewards.
        noise: Width for the privacy noise.
    """

    ridge: float
    mean: Any
    informed: bool
    shift: float
    noisy: bool
    spread: float
    noise: float


class State(NamedTuple):
    """State of one replicate.

    Attributes:
        theta: Estimate of the last phase, ``(d,)``.
        V: V^-1 of the last phase, ``(d, d)``.
        own: V^-1 of this phase, ``(d, d)``.
        phase: Finished phases, ``(1,)``.
        table: Features of the arms of a pool, ``(n, d)``; n = 0 without a pool.
        seen: Whether an arm was offered, ``(n,)``.
        active: Whether it remains, ``(n,)``.
    """

    theta: Any
    V: Any
    own: Any
    phase: Any
    table: Any
    seen: Any
    active: Any


@jit
def estimate(c, s):
    """theta, shrunk towards the prior mean."""
    if c.informed:
        return shrunk(s.theta, s.V, c.ridge, c.mean)
    return s.theta.copy()


@jit
def eliminate(c, s, x, left):
    """Deactivate rows of x whose upper bound is below the largest lower bound."""
    theta = estimate(c, s)
    upper = np.zeros(x.shape[0])
    highest = -np.inf
    for k in range(x.shape[0]):
        if left[k]:
            v = clipped(x[k])
            image = times(s.V, v)
            form = max(0.0, inner(v, image))
            # The error of <x, theta> from rewards is sub-Gaussian with half the range times
            # ||x||_{V^-1}. That of the noise has the deviation sigma ||V^-1 x||.
            width = c.spread * math.sqrt(form) + c.noise * math.sqrt(inner(image, image))
            mean = inner(v, theta)
            upper[k] = mean + width
            highest = max(highest, mean - width)
    for k in range(x.shape[0]):
        if left[k] and upper[k] < highest:
            left[k] = False


@jit
def remaining(c, s, x):
    """Which candidates are not eliminated."""
    left = np.ones(x.features.shape[0], np.bool_)
    if s.active.shape[0] > 0:
        for k in range(left.shape[0]):
            left[k] = s.active[x.arms[k]]
    # Fresh arms have no history. From the first estimate on a round's candidates are compared.
    elif s.phase[0] > 0:
        eliminate(c, s, x.features, left)
    return left


@jit
def act(c, s, t, x, z):
    """Remaining candidate of the largest ||x||_{V^-1}; without one, the largest <x, theta>."""
    left = remaining(c, s, x)
    some = left.any()
    theta = estimate(c, s)
    scores = np.zeros(left.shape[0])
    for k in range(left.shape[0]):
        v = clipped(x.features[k])
        if not some:
            scores[k] = inner(v, theta)
        # The widest interval in this phase, whose estimate uses its own rounds only.
        elif left[k]:
            scores[k] = inner(v, times(s.own, v))
        else:
            scores[k] = -np.inf
    return largest(scores, z[0, 0] if z.shape[0] > 0 else 0.0)


@jit
def see(c, s, t, x, k):
    """V <- V + x x', and remember the features of arms."""
    grow_inverse_clipped(s.own, x.features[k])
    if s.active.shape[0] > 0:
        for i in range(x.arms.shape[0]):
            arm = x.arms[i]
            # The features of an arm are known once it was offered.
            if not s.seen[arm]:
                s.seen[arm] = True
                copy_to(x.features[i], s.table[arm])


@jit
def record(c, s, t, x, k, reward, z):
    """r and x."""
    return record_reward(c, x.features, k, reward)


@jit
def learn(c, s, released, t):
    """theta <- V^-1 (noisy sum of the phase). Drop arms; those never offered remain."""
    d = s.theta.shape[0]
    copy_matrix(s.own, s.V)
    for i in range(d):
        for j in range(d):
            # The next phase is estimated from its own rounds, so that phases are disjoint.
            s.own[i, j] = 1.0 / c.ridge if i == j else 0.0
    copy_to(times(s.V, released.sum), s.theta)
    s.phase[0] += 1
    n = s.active.shape[0]
    if n > 0:
        left = np.zeros(n, np.bool_)
        for arm in range(n):
            # An arm without features has no interval and cannot be dropped.
            left[arm] = s.active[arm] and s.seen[arm]
        eliminate(c, s, s.table, left)
        for arm in range(n):
            s.active[arm] = left[arm] or not s.seen[arm]


@central("coreset-elimination")
class CoresetElimination(LinearRival):
    """Phased elimination on one noisy estimate per phase, after RU, Table 6 [construct].

    RU cites no central algorithm of this name. Phases double in length. In a phase the agent
    plays the offered, still active candidate of largest ||x|| in the metric of the phase's own
    Gram matrix V, or, if none is active, the largest <x, theta>. At the end theta = V^-1
    (sum r x + noise), from the phase's own rounds, and arms whose upper bound is below the
    largest lower bound are dropped; half-width ``alpha (range/2 ||x||_{V^-1} +
    sigma ||V^-1 x||) sqrt(2 log(2 n K T))`` for n arms and K phases. Arms of a fixed pool are
    dropped for good; with fresh arms every round's candidates are compared with each other.

    Sensitivity of a phase's sum: the reward's range. RU divides the budget by the number of phases,
    although the phases are disjoint. The ledger composes the releases in parallel, so with
    ``composition="sequential"`` the guarantee is 1 / K of the budget. Central, for the **reward**
    of one round, replace-one.

    Args:
        alpha: Factor of the confidence width, >= 0.
        length: Rounds of the first phase. Where only one in n_candidates rounds is observed
            (rejection replay), n_candidates times as many.
        composition: ``"sequential"``: the phases share the budget, as in the paper;
            ``"parallel"``: each phase spends all of it.
    """

    functions = Functions(act, record, learn, see)
    context = ("features", "arms")
    tuning_grid: ClassVar[dict[str, list[Any]]] = {
        "composition": ["sequential", "parallel"],
        "ridge": [1.0, 100.0],
        "centre": [False, True],
    }

    alpha: float = 0.1
    length: int = integer(100, 1)
    composition: str = choice("sequential", COMPOSITIONS)

    def phases(self, facts: RivalFacts) -> tuple[int, ...]:
        """Return the ends of the phases, of which the last may be cut short."""
        return doubling(self.length * facts.stretch, facts.horizon)

    def plan(self, problem: ProblemInfo, curator: Curator) -> Plan:
        facts = self.facts(problem)
        ends = self.phases(facts)
        split = len(ends) if self.composition == "sequential" else 1
        sums = curator.batch_sum(
            facts.dim, reward=facts.reward, share=1.0 / split, what="reward sum of a phase"
        )
        return self.planned(problem, sums, ends=ends)

    def start(self, problem: ProblemInfo, sums: Any) -> tuple[Known, State]:
        facts = self.facts(problem)
        arms = problem.n_arms or problem.n_candidates
        phases = len(self.phases(facts))
        # All intervals hold with probability 1 - 1 / T: n arms in K phases, two sides each.
        log = math.sqrt(2.0 * portable.log(2.0 * arms * phases * facts.horizon))
        known = Known(
            ridge=self.ridge,
            mean=facts.mean,
            informed=bool(facts.mean.any()),
            shift=facts.shift,
            noisy=sums.sigma > 0.0,
            spread=self.alpha * facts.half * log,
            noise=self.alpha * float(sums.sigma) * log,
        )
        n = problem.n_arms or 0
        start = np.eye(facts.dim) / self.ridge
        return known, State(
            theta=np.zeros(facts.dim),
            V=start,
            own=start,
            phase=np.zeros(1, np.int64),
            table=np.zeros((n, facts.dim)),
            seen=np.zeros(n, np.bool_),
            active=np.ones(n, np.bool_),
        )
