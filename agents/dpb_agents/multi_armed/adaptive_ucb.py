"""AdaC-UCB and AdaP-UCB: UCB in doubling episodes that discard earlier ones."""

from __future__ import annotations

import math
from typing import Any, ClassVar, NamedTuple

import numpy as np

from dpb_agents.multi_armed.arms import LAWS, SUPPORTS, ArmSums, check_arms, indicator, place
from dpb_gym.kernels.vectors import largest, log
from dpb_gym.parameters import choice, real
from dpb_gym.play import Algorithm, Functions, Plan, jit
from dpb_gym.privacy import Curator
from dpb_gym.problems.rounds import ProblemInfo
from dpb_gym.registry import register_agent


class Known(NamedTuple):
    """Public constants.

    Attributes:
        alpha: Exponent of the confidence level t^-alpha.
        width: Width of the rewards' range.
        laplace: Whether the noise is Laplace's.
        sigma: Standard deviation of the noise.
        scale: Scale of Laplace noise.
    """

    alpha: float
    width: float
    laplace: bool
    sigma: float
    scale: float


class State(NamedTuple):
    """State of one replicate.

    Attributes:
        arm: Arm of the episode, or -1 between episodes, ``(1,)``.
        length: Rounds of the episode, ``(1,)``.
        count: Its rounds so far, ``(1,)``.
        played: Rounds of every arm, ``(n_arms,)``.
        mean: Mean of the last episode of every arm; infinite for none, ``(n_arms,)``.
        n: Rounds of that episode, ``(n_arms,)``.
    """

    arm: Any
    length: Any
    count: Any
    played: Any
    mean: Any
    n: Any


@jit
def act(c, s, t, x, z):
    """Arm of the episode, or the arm of the largest index for a new one."""
    if s.arm[0] >= 0:
        return place(x, s.arm[0])
    log_t = c.alpha * log(t)
    # by arm, so that a tie does not depend on the order of the candidates
    index = np.zeros(s.mean.shape[0])
    for arm in range(s.mean.shape[0]):
        n = s.n[arm]
        # Hoeffding's bound of a mean of n rewards at level t^-alpha is sqrt(spread alpha log t).
        spread = c.width * c.width / (2.0 * n)
        if c.laplace:
            # Laplace noise exceeds x scales with probability exp(-x) / 2: no square root.
            index[arm] = s.mean[arm] + math.sqrt(spread * log_t) + log_t * c.scale / n
        else:
            # Both errors are sub-Gaussian, so that their variances add up under one root.
            noise = c.sigma / n
            index[arm] = s.mean[arm] + math.sqrt((spread + 2.0 * noise**2) * log_t)
    return place(x, largest(index, z[0, 0]))


@jit
def see(c, s, t, x, k):
    """Count the round, of the episode's arm; the first round of an episode opens it."""
    arm = x[k]
    if s.arm[0] < 0:
        s.arm[0] = arm
        # As many rounds as before double the arm's plays.
        s.length[0] = max(s.played[arm], 1)
        s.count[0] = 0
    if arm == s.arm[0]:
        s.played[arm] += 1
        s.count[0] += 1


@jit
def record(c, s, t, x, k, reward, z):
    """The reward in the direction of the episode's arm; other arms' rewards enter no sum."""
    v = indicator(s.mean.shape[0], x[k])
    if s.arm[0] >= 0 and x[k] != s.arm[0]:
        v[x[k]] = 0.0
    return reward, v


@jit
def due(c, s, t):
    """Whether the episode is over."""
    return s.arm[0] >= 0 and s.count[0] == s.length[0]


@jit
def learn(c, s, released, t):
    """Replace the arm's mean by the episode's, and close the episode."""
    arm = s.arm[0]
    s.n[arm] = s.length[0]
    # The earlier estimate is forgotten, not averaged: each reward is in one release.
    s.mean[arm] = released.sum[arm] / s.length[0]
    s.arm[0] = -1


@register_agent(
    "adap-ucb",
    supports=SUPPORTS,
    protects=("central", "reward"),
    fixed_arms=True,
    summary="AdaP-UCB (Azize & Basu 2022): UCB in doubling episodes, Laplace noise.",
    law="laplace",
)
@register_agent("adac-ucb", supports=SUPPORTS, protects=("central", "reward"), fixed_arms=True)
class AdaptiveUCB(Algorithm):
    """AdaC-UCB (Azize & Basu 2024): UCB in doubling episodes, Gaussian noise.

    After arXiv:2309.00557; with Laplace noise it is the AdaP-UCB of arXiv:2209.02570. Every arm is
    played once. Then an episode plays the arm of largest index until that arm has been played
    twice as often as before. The noisy mean reward of the episode's n rounds replaces the earlier
    estimate of the arm. With rewards in [0, 1] the index in round t is

    - mean + sqrt((1 / (2 n) + 2 sigma^2 / n^2) alpha log t) for sums with N(0, sigma^2), where
      sigma^2 = 1 / (2 rho) under zCDP,
    - mean + sqrt(alpha log t / (2 n)) + alpha log t / (epsilon n) for sums with
      Laplace(1 / epsilon) (AdaP-UCB, pure epsilon).

    Each reward is in one episode and in one release, so episodes compose in parallel. The
    guarantee is central, for the **reward** of one round, replace-one.

    Args:
        alpha: Exponent of the confidence level t^-alpha, >= 0. The papers' proofs need more than
            3, which explores too much at horizons of 10^4 rounds.
        law: ``"gaussian"`` or ``"laplace"``.
    """

    functions = Functions(act, record, learn, see, due)
    context = ("arms",)
    tuning_grid: ClassVar[dict[str, list[Any]]] = {
        "alpha": [0.03, 0.1, 0.2, 0.3, 0.5, 1.0, 2.0, 3.1]
    }

    alpha: float = real(0.3, 0.0)
    law: str = choice("gaussian", LAWS)

    def check(self, problem: ProblemInfo) -> None:
        check_arms(type(self).__name__, problem)

    def plan(self, problem: ProblemInfo, curator: Curator) -> Plan:
        assert problem.n_arms is not None
        sums = ArmSums(
            curator,
            problem.n_arms,
            reward=problem.reward_range,
            law=self.law,
            what="reward sum of an episode",
        )
        return Plan(sums, directed=True, draws=1, dim=1, law="uniforms")

    def start(self, problem: ProblemInfo, sums: Any) -> tuple[Known, State]:
        low, high = problem.reward_range
        n = problem.n_arms
        known = Known(
            alpha=self.alpha,
            width=high - low,
            laplace=self.law == "laplace",
            sigma=float(sums.sigma),
            scale=float(sums.scale),
        )
        return known, State(
            arm=np.full(1, -1),
            length=np.ones(1, np.int64),
            count=np.zeros(1, np.int64),
            played=np.zeros(n, np.int64),
            # So every arm is played once before indices are compared.
            mean=np.full(n, np.inf),
            n=np.ones(n),
        )
