"""What the jointly private LinUCBs share: noisy sums of [x; r] [x; r]'."""

from __future__ import annotations

import math
from abc import abstractmethod
from dataclasses import field

import numpy as np

from dpb_agents import kernels as zoo
from dpb_agents.common.parameters import choice, integer, real
from dpb_agents.recommendation.linear import shifted_inverse
from dpb_agents.recommendation.rivals.base import LinearRival
from dpb_gym import portable
from dpb_gym.privacy import BatchSum, Curator, PSDBall, RunningSum, Segment
from dpb_gym.problems.base import Array, ProblemInfo

CALIBRATIONS = ("verified", "paper")


class JointLinUCB(LinearRival):
    """LinUCB that knows features and rewards through noisy sums of [x; r] [x; r]' only.

    V is the sum of x x' plus noise plus a shift that bounds the noise's operator norm with high
    probability; theta = V^-1 u with the noisy u = sum r x. Eigenvalues of V below half the shift
    are raised to that.

    Args:
        shift: Multiple of the bound on the noise's operator norm that is added to V, >= 0.
        ridge: Added to V besides, > 0.
    """

    releaser: RunningSum | BatchSum = field(init=False, repr=False)
    every: int = integer(1, 1)
    calibration: str = choice("verified", CALIBRATIONS)
    shift: float = real(1.0, 0.0)

    def _open(self, problem: ProblemInfo, bound: Segment, curator: Curator) -> None:
        B, d = self._theta.shape
        # ||[x; r]||^2, with rewards in `bound` and ||x|| <= 1
        self._size = 1.0 + max(bound.low * bound.low, bound.high * bound.high)
        self._low, self._high = bound.low, bound.high
        self._interval = min(self.every * self._stretch, self._horizon)
        self._records = np.empty((B, d + 1))
        self._logdet = np.empty(B)
        self._open_sums(PSDBall(self._size), curator)

    @abstractmethod
    def _open_sums(self, clip: PSDBall, curator: Curator) -> None:
        """Makes the releaser."""

    @abstractmethod
    def _newest(self) -> Array:
        """The release that is due, ``(B, d + 1, d + 1)``."""

    @abstractmethod
    def _noise_norm(self) -> float:
        """A bound on the operator norm of the current noise that holds with high probability."""

    def _widths(self) -> Array:
        """Widths of the bonus after a release, ``(B,)``."""
        return self._width

    def _learn(self, reward: Array) -> None:
        inside = np.minimum(np.maximum(reward, self._low), self._high)
        zoo.linear.with_reward(self._chosen, inside, self._records)
        self.releaser.add(self._ones, self._records)
        if self._rounds % self._interval == 0:
            self._refresh(self._newest())

    def _refresh(self, noisy: Array) -> None:
        shift = self.ridge + self.shift * self._noise_norm()
        self._pull[:] = shift
        shifted_inverse(noisy, shift, self._inverse, self._theta, self._logdet)
        self._width = self._widths()


def isometric_noise_norm(std: float, side: int, horizon: int) -> float:
    """Bound on the operator norm of isometric symmetric noise, all T rounds with 1 - 1/T.

    Noise of standard deviation s on the diagonal and s / sqrt(2) off it has mean operator norm
    at most s sqrt(2 side) and is 1-Lipschitz in the underlying normals, so it exceeds the bound
    with probability 1 / T^2 per round.
    """
    return std * (math.sqrt(2 * side) + math.sqrt(4 * portable.log(horizon)))
