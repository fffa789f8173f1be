"""Public weights that bound the effect of all rewards of one user."""

from __future__ import annotations

import math

import numpy as np

from dpb_agents import kernels as agent_kernels
from dpb_gym.privacy import ContributionCap
from dpb_gym.problems.base import Array


class LifetimeWeights:
    """Scale the public directions of a user's rounds to bound their joint effect.

    Replacing the rewards of a user, each within a range of length 1, moves the sum of rewards
    times directions z_t by D = sum_t c_t z_t with |c_t| <= 1, and ||D||^2 is at most
    sum_{s,t} |<z_s, z_t>|. Directions are scaled down once this sum would exceed ``reach^2``. In
    a linear mechanism, where a record of norm 1 moves the noise-normalised releases by a vector
    of norm at most 1 / sigma, record z_t moves them by z_t (x) e_t with ||e_t|| <= 1 / sigma,
    and |<z_s (x) e_s, z_t (x) e_t>| <= |<z_s, z_t>| / sigma^2: the same bound holds for the
    whole stream of releases, however a user's rounds spread over batches (erratum R10).
    Weights depend on public data only and cause no bias. k orthogonal directions cost sqrt(k).

    Args:
        replicates: Number of replicates B.
        width: Length of a direction.
        limit: k, the most rounds of a user that count.

    Attributes:
        reach: Bound of ||D||, in units of the range: sqrt(k (1 + (k - 1) / sqrt(width))), the
            value for k directions with cosines of 1 / sqrt(width); at most k.
    """

    def __init__(self, replicates: int, width: int, limit: int) -> None:
        self._cap = ContributionCap(limit, replicates)
        self.reach = math.sqrt(limit * (1.0 + (limit - 1) / math.sqrt(width)))
        self._counts = np.zeros((replicates, 64), np.int32)
        self._spent = np.zeros((replicates, 64))
        # Earlier directions of every user, at most k; the arrays grow with the largest id.
        self._kept = np.zeros((replicates, 64, limit, width), np.float32)

    def scale(self, users: Array | None, counted: Array, directions: Array) -> Array:
        """Scale this round's directions ``(B, width)`` in place and return the factors ``(B,)``.

        Beyond the cap they are 0.

        Args:
            users: User ids ``(B,)``, small non-negative integers.
            counted: False where the round yields no record.
            directions: Vectors of norm at most 1.

        Raises:
            ParameterError: If users are not identified, or an id is out of range.
        """
        admitted = self._cap.admit(users, counted)
        assert users is not None
        ids = np.ascontiguousarray(users, np.int64)
        have = self._counts.shape[1]
        need = int(ids.max()) + 1
        if need > have:
            grow = max(need, 2 * have) - have
            self._counts = np.pad(self._counts, ((0, 0), (0, grow)))
            self._spent = np.pad(self._spent, ((0, 0), (0, grow)))
            self._kept = np.pad(self._kept, ((0, 0), (0, grow), (0, 0), (0, 0)))
        # the margin covers the rounding of directions stored in single precision
        bound = self.reach**2 * (1.0 - 1e-6)
        weights = np.empty(len(directions))
        agent_kernels.linear_records.lifetime_weights(
            ids, admitted, bound, self._counts, self._spent, self._kept, directions, weights
        )
        return weights
