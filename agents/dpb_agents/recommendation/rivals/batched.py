"""Batched-Aggregation-DP: batch sums that share the budget although they need not."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np

from dpb_agents import kernels as zoo
from dpb_agents.common.parameters import choice, integer
from dpb_agents.recommendation.linear import central
from dpb_agents.recommendation.rivals.base import COMPOSITIONS, LinearRival
from dpb_agents.recommendation.rivals.reward_sums import RewardSums
from dpb_gym import kernels
from dpb_gym.privacy import Curator, Segment
from dpb_gym.problems.base import Array, ProblemInfo


@central("batched-aggregation", needs_horizon=True)
class BatchedAggregation(LinearRival):
    """LinUCB on noisy batch sums that divide the budget among them (RU, Table 6) [construct].

    A = ridge I + sum x x' is public and grows every round; every `batch` rounds the batch's sum
    of r x is released with noise and added to b. RU gives each batch rho B / T. The batches
    are disjoint, so that is needless: each could have all of rho, which makes this agent
    `adaprivate-ucb`. Table 6 compares with a handicapped baseline.

    Sensitivity of a batch's sum: the reward's range. The ledger accounts for what is released:
    batches compose in parallel, so with ``composition="sequential"`` the noise is the paper's
    and the guarantee is about B / T of the budget. Central, for the **reward** of one round,
    replace-one.

    Args:
        batch: Rounds between releases. Where only one in n_candidates rounds is observed
            (rejection replay), n_candidates times as many.
        composition: ``"sequential"``: the batches share the budget, as in the paper;
            ``"parallel"``: each has all of it.
    """

    tuning_grid: ClassVar[dict[str, list[Any]]] = {
        "composition": ["sequential", "parallel"],
        "ridge": [1.0, 100.0],
        "centre": [False, True],
    }

    batch: int = integer(300, 1)
    composition: str = choice("sequential", COMPOSITIONS)

    def _open(self, problem: ProblemInfo, bound: Segment, curator: Curator) -> None:
        self._interval = self.batch * self._stretch
        batches = max(1, self._horizon // self._interval)
        split = batches if self.composition == "sequential" else 1
        self.releaser = RewardSums(
            curator, self._theta.shape[1], bound, "reward sum of a batch", split=split
        )
        self._response = np.zeros_like(self._theta)

    def _learn(self, reward: Array) -> None:
        self.releaser.add(reward, self._chosen)
        zoo.linear.grow(self._inverse, self._chosen, self._spare)
        if self._rounds % self._interval == 0:
            self._response += self.releaser.release(self._all)
        kernels.linalg.multiply(self._inverse, self._response, self._theta)
