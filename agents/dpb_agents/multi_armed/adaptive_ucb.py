"""AdaC-UCB and AdaP-UCB: UCB in doubling episodes that discard earlier ones."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np

from dpb_agents.common.parameters import choice, real
from dpb_agents.multi_armed.arms import LAWS, SUPPORTS, ArmSums, MultiArmed
from dpb_gym import portable
from dpb_gym.privacy import Curator
from dpb_gym.problems.base import Array, ProblemInfo
from dpb_gym.registry import register_agent


@register_agent(
    "adap-ucb",
    supports=SUPPORTS,
    protects=("central", "reward"),
    fixed_arms=True,
    summary="AdaP-UCB (Azize & Basu 2022): UCB in doubling episodes, Laplace noise.",
    law="laplace",
)
@register_agent("adac-ucb", supports=SUPPORTS, protects=("central", "reward"), fixed_arms=True)
class AdaptiveUCB(MultiArmed):
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

    tuning_grid: ClassVar[dict[str, list[Any]]] = {
        "alpha": [0.03, 0.1, 0.2, 0.3, 0.5, 1.0, 2.0, 3.1]
    }

    alpha: float = real(0.3, 0.0)
    law: str = choice("gaussian", LAWS)

    def _open(self, problem: ProblemInfo, curator: Curator) -> None:
        B, _ = self._shape
        self.sums = ArmSums(
            curator,
            self._shape[1],
            reward=problem.reward_range,
            law=self.law,
            what="reward sum of an episode",
        )
        self._arm = np.zeros(B, np.int64)
        self._played = np.zeros(self._shape, np.int64)
        self._count = np.zeros(B, np.int64)
        self._length = np.ones(B, np.int64)
        self._mean = np.full(self._shape, np.inf)  # arms that were never played come first
        self._n = np.ones(self._shape)

    def _choose(self, t: int) -> Array:
        return self._arm

    def _learn(self, t: int, arm: Array, reward: Array, seen: Array) -> None:
        mine = seen & (arm == self._arm)
        self.sums.add(reward, arm, mine)
        self._played[self._rows, self._arm] += mine
        self._count += mine
        due = self._count == self._length
        if not due.any():
            return
        rows, arms = self._rows[due], self._arm[due]
        self._n[rows, arms] = self._length[due]
        self._mean[rows, arms] = self.sums.release(due)[due, arms] / self._length[due]
        self._arm[due] = self._index(t + 1)[due].argmax(axis=1)
        self._length[due] = np.maximum(self._played[rows, self._arm[due]], 1)
        self._count[due] = 0

    def _index(self, t: int) -> Array:
        """Return upper confidence bounds ``(B, n_arms)``."""
        log, n = self.alpha * portable.log(t), self._n
        spread = self._range * self._range / (2.0 * n)
        if self.law == "laplace":
            return self._mean + np.sqrt(spread * log) + log * self.sums.scale / n
        return self._mean + np.sqrt((spread + 2.0 * (self.sums.sigma / n) ** 2) * log)
