"""DP-SE: private successive elimination."""

from __future__ import annotations

import math
from typing import Any, ClassVar, NamedTuple

import numpy as np

from dpb_agents.multi_armed.arms import SUPPORTS, ArmSums, check_arms, indicator, place
from dpb_gym.kernels.vectors import log
from dpb_gym.parameters import positive
from dpb_gym.play import Algorithm, Functions, Plan, jit
from dpb_gym.privacy import Curator
from dpb_gym.problems.rounds import ProblemInfo
from dpb_gym.registry import register_agent


class Known(NamedTuple):
    """Public constants.

    Attributes:
        scale: Multiplier of the confidence widths.
        per_epsilon: 1 / epsilon.
        horizon: T.
        width: Width of the rewards' range.
    """

    scale: float
    per_epsilon: float
    horizon: int
    width: float


class State(NamedTuple):
    """State of one replicate.

    Attributes:
        active: Whether an arm remains, ``(n_arms,)``.
        count: Its rounds in this epoch, ``(n_arms,)``.
        epoch: e, ``(1,)``.
        length: R, ``(1,)``.
    """

    active: Any
    count: Any
    epoch: Any
    length: Any


@jit
def epoch_plan(c, s):
    """R and 2 h + 2 c of the epoch."""
    e = s.epoch[0]
    left = 0
    for arm in range(s.active.shape[0]):
        left += s.active[arm]
    # L and l of the docstring, with beta = 1 / T.
    many = log(8.0 * left * e * e * c.horizon)
    few = log(4.0 * left * e * e * c.horizon)
    gap = 1.0
    # Halving is exact, so the lengths of epochs are the same on every processor.
    for _ in range(e):
        gap *= 0.5
    part = 32.0 * c.scale * c.scale * many / gap**2
    R = math.ceil(max(part, 8.0 * c.scale * few * c.per_epsilon / gap)) + 1
    return R, 2.0 * c.scale * (math.sqrt(many / (2.0 * R)) + few * c.per_epsilon / R)


@jit
def act(c, s, t, x, z):
    """The remaining arms in turn."""
    left = 0
    for arm in range(s.active.shape[0]):
        left += s.active[arm]
    # By the round, which is public, not by rewards.
    turn = t % left
    for arm in range(s.active.shape[0]):
        if s.active[arm]:
            if turn == 0:
                return place(x, arm)
            turn -= 1
    return 0


@jit
def wanted(c, s, arm):
    """Whether a reward of an arm enters the epoch's sums."""
    # The first epoch has no length before its first round was seen.
    R = s.length[0] if s.length[0] > 0 else epoch_plan(c, s)[0]
    # The margin is computed for means of R rewards: later ones of the epoch are left out.
    return s.active[arm] and s.count[arm] < R


@jit
def see(c, s, t, x, k):
    """Count the round."""
    if s.length[0] == 0:
        s.length[0] = epoch_plan(c, s)[0]
    if wanted(c, s, x[k]):
        s.count[x[k]] += 1


@jit
def record(c, s, t, x, k, reward, z):
    """The reward in the direction of its arm, if its epoch wants it."""
    v = indicator(s.count.shape[0], x[k])
    if not wanted(c, s, x[k]):
        v[x[k]] = 0.0
    return reward, v


@jit
def due(c, s, t):
    """Whether every remaining arm has R rounds, and more than one remains."""
    left = 0
    for arm in range(s.active.shape[0]):
        if s.active[arm]:
            left += 1
            if s.count[arm] != s.length[0]:
                return False
    # With one arm left there is nothing to decide, so nothing is released.
    return left > 1 and s.length[0] > 0


@jit
def learn(c, s, released, t):
    """Eliminate arms whose mean is too far below the largest, and begin the next epoch."""
    n = s.active.shape[0]
    best = -np.inf
    means = np.zeros(n)
    for arm in range(n):
        # In units of the range, for which h and c are stated.
        means[arm] = released.sum[arm] / (s.length[0] * c.width)
        if s.active[arm]:
            best = max(best, means[arm])
    margin = epoch_plan(c, s)[1]
    for arm in range(n):
        s.active[arm] = s.active[arm] and best - means[arm] <= margin
        # No epoch uses an earlier one, so each reward is in one release.
        s.count[arm] = 0
    s.epoch[0] += 1
    s.length[0] = epoch_plan(c, s)[0]


@register_agent("dp-se", supports=SUPPORTS, protects=("central", "reward"), fixed_arms=True)
class DPSE(Algorithm):
    """DP-SE: successive elimination by Laplace means, pure privacy (Sajed & Sheffet 2019).

    Algorithm 2 of arXiv:1905.09383. Epoch e plays the remaining arms S in turn, R times each,
    and uses no earlier epoch. Its means get Laplace(1 / (epsilon R)) noise. An arm is eliminated
    if its mean is more than 2 h + 2 c below the largest. With gap = 2^-e, L = log(8 |S| e^2 /
    beta), l = log(4 |S| e^2 / beta), beta = 1 / T and rewards in [0, 1]:

    - R = max(32 L / gap^2, 8 l / (epsilon gap)) + 1, rounded up,
    - h = sqrt(L / (2 R)), c = l / (epsilon R).

    `scale` multiplies h and c, and the two parts of R by its square and itself, which keeps their
    proportions. At ``scale=1`` the first epoch of ten arms takes more than 10^4 rounds. epsilon is
    that of the curator's noise, infinite without a budget.

    Each reward is in one epoch, which is released once, so epochs compose in parallel. The
    guarantee is pure and central, for the **reward** of one round, replace-one.

    Args:
        scale: Multiplier of the confidence widths, > 0; 1 in the paper.
    """

    functions = Functions(act, record, learn, see, due)
    context = ("arms",)
    tuning_grid: ClassVar[dict[str, list[Any]]] = {
        "scale": [0.03, 0.05, 0.07, 0.1, 0.15, 0.2, 0.3, 1.0]
    }

    scale: float = positive(0.1)

    def check(self, problem: ProblemInfo) -> None:
        check_arms("dp-se", problem)

    def plan(self, problem: ProblemInfo, curator: Curator) -> Plan:
        assert problem.n_arms is not None
        sums = ArmSums(
            curator,
            problem.n_arms,
            reward=problem.reward_range,
            law="laplace",
            what="reward sums of an epoch",
        )
        return Plan(sums, directed=True)

    def start(self, problem: ProblemInfo, sums: Any) -> tuple[Known, State]:
        low, high = problem.reward_range
        n = problem.n_arms
        # Laplace noise of a sum has the scale range / epsilon, so this is 1 / epsilon.
        known = Known(self.scale, float(sums.scale) / (high - low), problem.longest, high - low)
        return known, State(
            active=np.ones(n, np.bool_),
            count=np.zeros(n, np.int64),
            epoch=np.ones(1, np.int64),
            length=np.zeros(1, np.int64),
        )
