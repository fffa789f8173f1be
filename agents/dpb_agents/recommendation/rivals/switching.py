"""Rarely switching private LinUCB: what its two registered forms share."""

from __future__ import annotations

from abc import abstractmethod

import numpy as np

from dpb_agents.common.parameters import positive
from dpb_agents.recommendation.rivals.base import RewardRival
from dpb_gym import kernels, portable
from dpb_gym.privacy import Curator, Segment
from dpb_gym.problems.base import Array, ProblemInfo


class Switching(RewardRival):
    """LinUCB that learns when det A has grown by a factor ``1 + growth``.

    A = ridge I + sum x x' is public. At a switch the sum of r x since the last one is released
    with noise and added to b; theta = A^-1 b and the metric of the bonus stay frozen until the
    next.

    Args:
        growth: A switch comes when det A exceeds ``1 + growth`` times its value at the last.
    """

    growth: float = positive(4.0)

    def _open(self, problem: ProblemInfo, bound: Segment, curator: Curator) -> None:
        self._sums(bound, curator, "reward sum between switches")
        B = len(self._theta)
        self._current = self._inverse.copy()
        self._response = np.zeros_like(self._theta)
        self._logdet = np.zeros(B)
        self._switched_at = np.zeros(B)
        self._switches = np.zeros(B, np.int64)
        self._rise = portable.log1p(self.growth)
        self._width = self._widths(self._all)

    @abstractmethod
    def _widths(self, due: Array) -> Array:
        """Widths of the bonus ``(B,)``, renewed where `due`."""

    def _learn(self, reward: Array) -> None:
        self.releaser.add(reward, self._chosen)
        self._grow(self._current, self._logdet)
        due = self._logdet - self._switched_at > self._rise
        if not due.any():
            return
        self._response[due] += self.releaser.release(due)[due]
        self._switched_at[due] = self._logdet[due]
        self._switches += due
        self._inverse[due] = self._current[due]
        kernels.linalg.multiply(self._inverse, self._response, self._theta)
        self._width = self._widths(due)
