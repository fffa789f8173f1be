"""Reward sums whose segments close replicate by replicate, at times that are public."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from dpb_agents import kernels as zoo
from dpb_gym.errors import BudgetExceeded, ParameterError
from dpb_gym.privacy.releasers.base import Intake
from dpb_gym.privacy.releasers.shapes import RecordShape
from dpb_gym.problems.base import Array

if TYPE_CHECKING:
    from dpb_gym.privacy import Ledger, NoiseSource, Segment

AHEAD = 256


class RewardSums:
    """Sums of r x plus Gaussian noise, released for the replicates that are due.

    A record is a protected reward r, clipped to its range, times a public direction x, clipped
    to the unit ball; neighbours differ in one reward, so a sum has sensitivity
    ``high - low``. When a segment ends may depend on directions and on earlier releases, which
    are public, and on no reward of the open segment.

    Without `keep` a release closes the segment: every record is in one release, so they compose
    in parallel and the ledger is charged with one. With ``keep=n`` the sums stay open, every
    record is in all later releases, at most n of them, and the ledger is charged with n.

    Charged once, when it is made, since replicates release at times of their own.

    Args:
        width: Length d of a direction.
        replicates: Number of replicates B.
        clip: Range of the rewards.
        sigma: Noise standard deviation.
        noise: Source of the noise; the releaser spawns its own stream from it.
        ledger: Charged here.
        horizon: Largest number of records per replicate.
        what: What is released, in words.
        keep: Number of releases that all of a replicate's records may be part of.

    Raises:
        BudgetExceeded: If the ledger refuses.
    """

    def __init__(
        self,
        width: int,
        replicates: int,
        *,
        clip: Segment,
        sigma: float,
        noise: NoiseSource,
        ledger: Ledger,
        horizon: int,
        what: str,
        keep: int | None = None,
    ) -> None:
        from dpb_gym.privacy import GaussianEvent

        self.sigma = sigma
        self.keep = keep
        self.event = GaussianEvent(sigma, clip.sensitivity(), keep or 1)
        ledger.charge(self.event, what=what, parallel=None if keep else what)
        self.releases = np.zeros(replicates, np.int64)
        self._intake = Intake(RecordShape(dim=width), replicates, clip, horizon)
        self._source = noise.spawn()
        self._sums = np.zeros((replicates, width))
        self._released = np.zeros((replicates, width))
        self._normals = np.empty((replicates, AHEAD // width + 1, width))
        self._cursor = np.full(replicates, self._normals.shape[1])
        self._no_inverse = np.empty((replicates, 0, 0))
        self._no_norm = np.empty(replicates)

    @property
    def clipped_count(self) -> Array:
        """Rewards outside their declared range so far, ``(B,)``."""
        return self._intake.clipped_count

    def add(self, records: Array, directions: Array) -> None:
        """Adds one reward per replicate ``(B,)``, times its direction ``(B, d)``."""
        self._intake.take(records, directions, self._sums)

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
        if self.keep is not None and (self.releases[due] >= self.keep).any():
            raise BudgetExceeded(f"all {self.keep} releases of a replicate are used up")
        for b in np.flatnonzero(due & (self._cursor == self._normals.shape[1])):
            self._source.generators[b].standard_normal(out=self._normals[b])
            self._cursor[b] = 0
        zoo.linear.release(
            self._sums,
            self._normals,
            self._cursor,
            due,
            self.sigma,
            inverse is not None,
            self._no_inverse if inverse is None else inverse,
            self._no_norm if norm is None else norm,
            self.keep is not None,
            self._released,
        )
        self.releases += due
        return self._released.copy()
