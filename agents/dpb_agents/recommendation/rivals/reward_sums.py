"""Reward sums whose segments close replicate by replicate, at times that are public."""

from __future__ import annotations

import math

import numpy as np

from dpb_agents import kernels as zoo
from dpb_gym.errors import BudgetExceeded, ParameterError
from dpb_gym.privacy import Curator, Segment, Sum
from dpb_gym.problems.base import Array

AHEAD = 256


class RewardSums(Sum):
    """Sums of r x plus Gaussian noise, released for the replicates that are due.

    A record is a protected reward r, clipped to its range, times a public direction x, clipped
    to the unit ball; neighbours differ in one reward, so a sum has sensitivity
    ``high - low``. When a segment ends may depend on directions and on earlier releases, which
    are public, and on no reward of the open segment.

    Without `keep` a release closes the segment: every record is in one release, so they cost
    what one does. With ``keep=n`` the sums stay open, every record is in all later releases, at
    most n of them, and n are charged.

    Args:
        curator: Whose budget it uses.
        width: Length d of a direction.
        reward: Range of the rewards.
        what: What is released, in words.
        split: Number of parts of the budget, of which each release costs one.
        keep: Number of releases that all of a replicate's records may be part of.
    """

    def __init__(
        self,
        curator: Curator,
        width: int,
        reward: Segment,
        what: str,
        *,
        split: int = 1,
        keep: int | None = None,
    ) -> None:
        B = curator.replicates
        self.keep, self.gain = keep, math.sqrt(keep or 1)
        self.releases = np.zeros(B, np.int64)
        self._released = np.zeros((B, width))
        self._normals = np.empty((B, AHEAD // width + 1, width))
        self._cursor = np.full(B, self._normals.shape[1])
        self._plain = np.tile(np.eye(width), (B, 1, 1)), np.ones(B)
        super().__init__(
            curator, width, reward=(reward.low, reward.high), share=1.0 / split, what=what
        )
        if curator.system_noise:
            raise ParameterError(
                f"{what}: noise='system' is not available here; images of sums leave the grid"
            )

    def release(self, due: Array, inverse: Array | None = None, norm: Array | None = None) -> Array:
        """Releases ``(B, d)``, renewed where `due`.

        Args:
            due: ``(B,)`` bool.
            inverse: Public symmetric matrices M ``(B, d, d)``: release M s + norm sigma z
                instead of s + sigma z. Sensitivity ||M x|| (high - low) of the image is at most
                norm times that of the sum.
            norm: Upper bounds of the operator norms of M, ``(B,)``; the caller vouches for
                them. Needed with `inverse`.

        Raises:
            BudgetExceeded: If a replicate has used up its releases; nothing is released.
            ParameterError: If only one of `inverse` and `norm` is given.
        """
        if (inverse is None) != (norm is None):
            raise ParameterError("give both inverse and norm, or neither")
        self.ready()
        if self.keep is not None and (self.releases[due] >= self.keep).any():
            raise BudgetExceeded(f"all {self.keep} releases of a replicate are used up")
        for b in np.flatnonzero(due & (self._cursor == self._normals.shape[1])):
            self._noise.fill(int(b), self._normals[b])
            self._cursor[b] = 0
        sums, keep = (self._total, self._normals, self._cursor, due), self.keep is not None
        image = self._plain if inverse is None else (inverse, norm)
        zoo.linear.release(*sums, self._sigma, *image, keep, self._released)
        self.releases += due
        return self._released.copy()
