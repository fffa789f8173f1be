"""DGS-LinUCB: noisy estimates whose sensitivity shrinks with the Gram matrix.

arXiv:2208.14555.
"""

from __future__ import annotations

import math
from typing import Any, ClassVar

import numpy as np

from dpb_agents import kernels as zoo
from dpb_agents.common.parameters import integer
from dpb_agents.recommendation.linear import central
from dpb_agents.recommendation.rivals.base import LinearRival, operator_norm
from dpb_agents.recommendation.rivals.reward_sums import RewardSums
from dpb_gym.privacy import Curator, Segment
from dpb_gym.problems.base import Array, ProblemInfo

# The norm of A^-1 is renewed when the rounds have grown by so much.
STALE = 1.02


@central("dgs-lin-ucb", needs_horizon=True)
class DynamicSensitivity(LinearRival):
    """LinUCB on estimates noised by their dynamic global sensitivity.

    After Wang, Zhao, Wu, Chopra, Khaitan & Wang (2022), from the abstract and RU's use of it:
    every `every` rounds theta = A^-1 b + N(0, (||A^-1|| sigma)^2 I) is released afresh, and the
    bonus is alpha ||x||_{A^-1}; A is public. (The original draws the noise by a tree; on
    estimates, which are not sums, a tree has no proof.)

    Replacing one reward moves A^-1 b by at most the reward's range times ||A^-1||, for rewards
    only: a replaced context would move A itself, which is used as it is. Every reward is in all
    later releases, at most n = T // every, so they compose in sequence: sigma =
    range sqrt(n / (2 rho)). At ``every=1`` that is so much noise that it drowns the estimate at
    any usual budget. The guarantee is central, for the **reward** of one round, replace-one.

    The norm of A^-1 in use is at most 2% of the rounds old, which is sound as it only falls.

    Args:
        every: Rounds between releases; 1 is the published schedule. Where only one in
            n_candidates rounds is observed (rejection replay), n_candidates times as many.
    """

    tuning_grid: ClassVar[dict[str, list[Any]]] = {
        "every": [1, 1000],
        "ridge": [1.0, 100.0],
        "centre": [False, True],
    }

    every: int = integer(1, 1)

    def _open(self, problem: ProblemInfo, bound: Segment, curator: Curator) -> None:
        self._interval = self.every * self._stretch
        releases = max(1, self._horizon // self._interval)
        self.releaser = RewardSums(
            curator, self._theta.shape[1], bound, "estimates from all rounds", keep=releases
        )
        self._norm = np.full(len(self._theta), 1.0 / self.ridge)
        self._renew_norm = 1

    def _learn(self, reward: Array) -> None:
        self.releaser.add(reward, self._chosen)
        zoo.linear.grow(self._inverse, self._chosen, self._spare)
        if self._rounds % self._interval:
            return
        if self._rounds >= self._renew_norm:
            self._norm = operator_norm(self._inverse)
            self._renew_norm = math.ceil(STALE * self._rounds)
        self._theta = self.releaser.release(self._all, self._inverse, self._norm)
