"""zCDP-Episodic: every estimate comes from one episode, and the episodes are forgotten."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np

from dpb_agents import kernels as zoo
from dpb_agents.common.parameters import integer, real
from dpb_agents.recommendation.linear import central
from dpb_agents.recommendation.rivals.base import LinearRival, operator_norm
from dpb_agents.recommendation.rivals.reward_sums import RewardSums
from dpb_gym import portable
from dpb_gym.privacy import Curator, Segment
from dpb_gym.problems.base import Array, ProblemInfo


@central("zcdp-episodic")
class Episodic(LinearRival):
    """Episodes of doubling length, one noisy estimate from each, after RU's comparison [construct].

    At the end of an episode with Gram matrix V = ridge I + sum x x' of its own rounds, theta =
    V^-1 sum r x plus noise of standard deviation D sigma, D = ||V^-1||, is released, and the
    next episode plays <x, theta> + alpha ||x||_{V^-1} with that theta and V. An episode ends
    when it is long enough and det A, of all rounds, has grown by `trigger` since the last end.

    Replacing one reward moves theta by at most the reward's range times ||V^-1 x|| <= D; V is
    public. An estimate from *all* data would contain every reward again and again, and sigma
    would no longer do: the episodes must be forgotten. As it is, every reward is in one
    estimate and they compose in parallel. The guarantee is central, for the **reward** of one
    round, replace-one.

    Args:
        length: Rounds of the first episode; the next are twice as long each. Where only one in
            n_candidates rounds is observed (rejection replay), n_candidates times as many.
        trigger: Least growth of det A per episode, >= 1; 1 is by length alone.
    """

    tuning_grid: ClassVar[dict[str, list[Any]]] = {
        "alpha": [0.1, 0.5],
        "ridge": [1.0, 100.0],
        "centre": [False, True],
    }

    alpha: float = 0.5
    length: int = integer(100, 1)
    trigger: float = real(2.0, 1.0)

    def _open(self, problem: ProblemInfo, bound: Segment, curator: Curator) -> None:
        self.releaser = RewardSums(curator, self._theta.shape[1], bound, "estimate of one episode")
        B = len(self._theta)
        self._everything = self._inverse.copy()
        self._episode = self._inverse.copy()
        self._start = self._inverse[0].copy()
        self._gain = np.zeros(B)
        self._length = np.zeros(B, np.int64)
        self._least = np.full(B, self.length * self._stretch)
        self._enough = portable.log(self.trigger)

    def _learn(self, reward: Array) -> None:
        self.releaser.add(reward, self._chosen)
        zoo.linear.grow(self._everything, self._chosen, self._gain)
        zoo.linear.grow(self._episode, self._chosen, self._spare)
        self._length += 1
        due = (self._length >= self._least) & (self._gain >= self._enough)
        if not due.any():
            return
        norm = np.ones(len(due))
        norm[due] = operator_norm(self._episode[due])
        self._theta = self.releaser.release(due, self._episode, norm)
        self._inverse[due] = self._episode[due]
        self._episode[due] = self._start
        self._least[due] *= 2
        self._length[due] = 0
        self._gain[due] = 0.0
