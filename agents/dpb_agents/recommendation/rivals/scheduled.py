"""LinUCB on noisy sums or estimates that are released on a fixed schedule."""

from __future__ import annotations

import math
from typing import Any, ClassVar

import numpy as np

from dpb_agents.common.parameters import choice, integer, real
from dpb_agents.recommendation.linear import central
from dpb_agents.recommendation.rivals.linear_rival import (
    COMPOSITIONS,
    LinearRival,
    RewardSums,
    operator_norm,
)
from dpb_gym import portable
from dpb_gym.privacy import Curator, Segment
from dpb_gym.problems.base import Array, ProblemInfo

# Growth of the number of rounds between two updates of the norm of A^-1.
STALE = 1.02


@central("batched-aggregation", needs_horizon=True)
class BatchedAggregation(LinearRival):
    """LinUCB on noisy batch sums that divide the budget among them (RU, Table 6) [construct].

    A = ridge I + sum x x' is public and grows every round; every `batch` rounds the batch's sum
    of r x is released with noise and added to b. RU gives each batch rho B / T. The batches
    are disjoint, so each could spend all of rho. That agent is `adaprivate-ucb`, and Table 6
    compares with a weaker baseline than necessary.

    Sensitivity of a batch's sum: the reward's range. The ledger composes the batches in parallel,
    so with ``composition="sequential"`` the noise is that of the paper and the guarantee is about
    B / T of the budget. Central, for the **reward** of one round,
    replace-one.

    Args:
        batch: Rounds between releases. Where only one in n_candidates rounds is observed
            (rejection replay), n_candidates times as many.
        composition: ``"sequential"``: the batches share the budget, as in the paper;
            ``"parallel"``: each batch spends all of it.
    """

    tuning_grid: ClassVar[dict[str, list[Any]]] = {
        "composition": ["sequential", "parallel"],
        "ridge": [1.0, 100.0],
        "centre": [False, True],
    }

    moves = True
    batch: int = integer(300, 1)
    composition: str = choice("sequential", COMPOSITIONS)

    def _open(self, problem: ProblemInfo, bound: Segment, curator: Curator) -> None:
        self._next = self._interval = self.batch * self._stretch
        batches = max(1, self._horizon // self._interval)
        split = batches if self.composition == "sequential" else 1
        self.releaser = RewardSums(
            curator, self._theta.shape[1], bound, "reward sum of a batch", split=split
        )
        self._grown = self._grams(1)
        self._response = self._pull[:, None] * self._mean

    def _pulled(self) -> Array:
        return self._response

    def _learn(self, reward: Array, chosen: Array) -> None:
        self.releaser.add_rounds(reward, chosen)
        if self._rounds == self._next:
            self._next += self._interval
            self._response += self.releaser.release(self._all)


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

    moves = True
    every: int = integer(1, 1)

    def _open(self, problem: ProblemInfo, bound: Segment, curator: Curator) -> None:
        self._next = self._interval = self.every * self._stretch
        releases = max(1, self._horizon // self._interval)
        self.releaser = RewardSums(
            curator, self._theta.shape[1], bound, "estimates from all rounds", keep=releases
        )
        self._grown = self._grams(1)
        self._norm = np.full(len(self._theta), 1.0 / self.ridge)
        self._renew_norm = 1

    def _learn(self, reward: Array, chosen: Array) -> None:
        self.releaser.add_rounds(reward, chosen)
        if self._rounds < self._next:
            return
        self._next += self._interval
        if self._rounds >= self._renew_norm:
            self._norm = operator_norm(self._metric)
            self._renew_norm = math.ceil(STALE * self._rounds)
        self._theta = self.releaser.release(self._all, self._metric, self._norm)


@central("zcdp-episodic")
class Episodic(LinearRival):
    """Episodes of doubling length, one noisy estimate from each, after RU's comparison [construct].

    At the end of an episode with Gram matrix V = ridge I + sum x x' of its own rounds, theta =
    V^-1 sum r x plus noise of standard deviation D sigma, D = ||V^-1||, is released, and the
    next episode plays <x, theta> + alpha ||x||_{V^-1} with that theta and V. An episode ends
    when it is long enough and det A, of all rounds, has grown by `trigger` since the last end.

    Replacing one reward moves theta by at most the reward's range times ||V^-1 x|| <= D; V is
    public. An estimate from *all* data would contain every reward many times, and sigma
    would be too small. With an estimate from each episode alone, every reward is in one
    estimate, and they compose in parallel. The guarantee is central, for the **reward** of one
    round, replace-one.

    Args:
        length: Rounds of the first episode; the next are twice as long each. Where only one in
            n_candidates rounds is observed (rejection replay), n_candidates times as many.
        trigger: Least growth of det A per episode, >= 1; at 1 only the length counts.
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
        self._grown = self._grams(2)
        self._start = self._inverse[0].copy()
        self._length = np.zeros(len(self._theta), np.int64)
        self._least = np.full(len(self._theta), self.length * self._stretch)
        self._less = math.nextafter(portable.log(self.trigger), -math.inf)

    def _limits(self) -> tuple[Array, Array, float]:
        return self._least - self._length, np.zeros(len(self._theta)), self._less

    def _learn(self, reward: Array, chosen: Array) -> None:
        self.releaser.add_rounds(reward, chosen)
        (_, episode), (gain, _) = self._grown
        self._length += len(reward)
        due = (self._length >= self._least) & (gain > self._less)
        if not due.any():
            return
        norm = np.ones(len(due))
        norm[due] = operator_norm(episode[due])
        self._theta = self.releaser.release(due, episode, norm)
        self._inverse[due] = episode[due]
        episode[due] = self._start
        self._least[due] *= 2
        self._length[due] = 0
        gain[due] = 0.0
