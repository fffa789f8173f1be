"""DP-SE: private successive elimination."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np

from dpb_agents.common.parameters import positive
from dpb_agents.multi_armed.arms import SUPPORTS, ArmSums, MultiArmed
from dpb_gym import portable
from dpb_gym.privacy import Curator
from dpb_gym.problems.base import Array, ProblemInfo
from dpb_gym.registry import register_agent


@register_agent("dp-se", supports=SUPPORTS, protects=("central", "reward"), fixed_arms=True)
class DPSE(MultiArmed):
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

    tuning_grid: ClassVar[dict[str, list[Any]]] = {
        "scale": [0.03, 0.05, 0.07, 0.1, 0.15, 0.2, 0.3, 1.0]
    }

    scale: float = positive(0.1)

    def _open(self, problem: ProblemInfo, curator: Curator) -> None:
        self.sums = ArmSums(
            curator,
            self._shape[1],
            reward=problem.reward_range,
            law="laplace",
            what="reward sums of an epoch",
        )
        self._horizon = problem.longest
        self._active = np.ones(self._shape, bool)
        self._epoch = np.ones(self._shape[0], np.int64)
        self._count = np.zeros(self._shape, np.int64)
        self._length: Array | None = None

    def _plan(self, b: np.integer[Any]) -> tuple[int, float]:
        """Return R and 2 h + 2 c of the replicate's epoch."""
        s, e, left = self.scale, int(self._epoch[b]), int(self._active[b].sum())
        many = portable.log(8.0 * left * e * e * self._horizon)
        few = portable.log(4.0 * left * e * e * self._horizon)
        per_epsilon = self.sums.scale / self._range
        gap = 0.5**e
        rounds = max(32.0 * s * s * many / gap**2, 8.0 * s * few * per_epsilon / gap)
        R = int(np.ceil(rounds)) + 1
        return R, 2.0 * s * (np.sqrt(many / (2.0 * R)) + few * per_epsilon / R)

    def _choose(self, t: int) -> Array:
        left = np.argsort(~self._active, axis=1, kind="stable")
        turn: Array = left[self._rows, t % self._active.sum(axis=1)]
        return turn

    def _learn(self, t: int, arm: Array, reward: Array, seen: Array) -> None:
        if self._length is None:  # the curator calibrates its noise after `begin`
            self._length = np.array([self._plan(b)[0] for b in self._rows])
        wanted = self._active & (self._count < self._length[:, None])
        taken = seen & wanted[self._rows, arm]
        self.sums.add(reward, arm, taken)
        self._count[self._rows, arm] += taken
        full = ~self._active | (self._count == self._length[:, None])
        due = full.all(axis=1) & (self._active.sum(axis=1) > 1)
        if not due.any():
            return
        means = self.sums.release(due) / (self._length[:, None] * self._range)
        for b in np.flatnonzero(due):
            best = means[b][self._active[b]].max()
            self._active[b] &= best - means[b] <= self._plan(b)[1]
            self._epoch[b] += 1
            self._length[b] = self._plan(b)[0]
            self._count[b] = 0
