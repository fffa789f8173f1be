"""Bounds of one user's contribution over the whole horizon, for user-level privacy.

Neighbouring data sets differ in the **rewards of all rounds of one user**. The user ids of the
rounds, the contexts and the actions are public; admission depends on them alone. Replicates are
counted separately.

Both bounds hold for users whose rounds spread over any number of batches (erratum R10):

* `ContributionCap`: only the first `limit` rounds of a user enter any release. Suppose that
  replacing one record moves the whole sequence of noise-normalised releases of a linear mechanism
  by at most Delta / sigma in 2-norm. Then replacing a user moves it by at most
  ``limit Delta / sigma`` (triangle inequality): group privacy, rho / limit^2 per record.
* `LifetimeClip`: a user's sum c_j of each batch j is shortened so that over the horizon
  ``sum_j ||c_j||^2 <= radius^2`` (``order=2``) or ``sum_j ||c_j|| <= radius`` (``order=1``).
  Replacing a user moves the releases by at most ``2 radius / sigma``. With ``order=2`` this holds
  if every batch is released once, with independent noise (`BatchSum`). With ``order=1`` it holds
  for every linear mechanism in which a record of norm 1 has norm at most 1 / sigma in the
  normalised releases (`WeightedSum`, `RunningSum` with its sensitivity).

Both hold for every sequence of releases, so the policy may adapt to them.
"""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dpb_gym import kernels, state, validation
from dpb_gym.errors import ParameterError
from dpb_gym.validation import FloatArray

IdArray = NDArray[np.int64]
MOST_USERS = 2**26
_FIRST_USERS = 64


@state.register
class _UserTable:
    """Array ``(B, users)`` with one column per user id; it grows on demand."""

    evolves: ClassVar[tuple[str, ...]] = ("table+",)

    def __init__(self, replicates: int, dtype: type) -> None:
        shape = (validation.integer("replicates", replicates, 1), _FIRST_USERS)
        self.table: NDArray[Any] = np.zeros(shape, dtype)

    def check(self, users: ArrayLike | None) -> IdArray:
        """Return the ids as ``(B,)`` integers, after growing the table to hold them.

        Raises:
            ParameterError: If there are none, or they are no integers in -1..2^26 - 1.
        """
        if users is None:
            raise ParameterError(
                "user-level privacy needs an environment that identifies users (context.users); "
                "e.g. interactions_per_user=k of DPB/Recommendation-v0"
            )
        ids = np.asarray(users)
        replicates, size = self.table.shape
        if ids.shape != (replicates,) or ids.dtype.kind not in "iu":
            raise ParameterError(
                f"users must be integers of shape ({replicates},); got {ids.dtype} of shape "
                f"{ids.shape}"
            )
        least = int(ids.min())
        largest = int(ids.max())
        if least < -1 or largest >= MOST_USERS:
            raise ParameterError(
                f"user ids must lie in 0..{MOST_USERS - 1}, best numbered consecutively, or be -1 "
                f"for nobody; got {least}..{largest}"
            )
        if largest >= size:
            # at least twice as wide, so that n new users cost O(n) copies in all
            more = np.zeros((replicates, max(largest + 1 - size, size)), self.table.dtype)
            self.table = np.concatenate([self.table, more], axis=1)
        return np.ascontiguousarray(ids, dtype=np.int64)


@state.register
class ContributionCap:
    """Admit the first `limit` rounds of every user, separately in every replicate.

    It reads public data only: user ids and whether the round yields a record.

    Args:
        limit: Most rounds of a user that may enter any release, k >= 1.
        replicates: Number of replicates B.

    Raises:
        ParameterError: If an argument is no positive integer.

    Example:
        >>> cap = ContributionCap(limit=2, replicates=1)
        >>> [bool(cap.admit(np.array([user]))[0]) for user in (7, 7, 3, 7)]
        [True, True, True, False]
    """

    def __init__(self, limit: int, replicates: int) -> None:
        self.limit = validation.integer("limit", limit, 1)
        self._users = _UserTable(replicates, np.int32)

    def admit(self, users: ArrayLike | None, counted: ArrayLike | None = None) -> NDArray[np.bool_]:
        """Return whether this round may enter the releases, ``(B,)``, and count it if so.

        Args:
            users: User ids ``(B,)``, ``context.users``; -1 where nobody came, who is not admitted.
            counted: False where the round yields no record (``feedback.observed``).

        Raises:
            ParameterError: If users are not identified, or an id is out of range.
        """
        ids = self._users.check(users)
        where = ids >= 0
        if counted is not None:
            if np.shape(counted) != ids.shape:
                raise ParameterError(f"counted must have shape {ids.shape}; got {counted}")
            where &= np.asarray(counted, dtype=bool)
        counts = self._users.table
        mine = (np.arange(len(ids)), ids)
        # a row of each replicate, as replicates are separate data sets
        admitted: NDArray[np.bool_] = where & (counts[mine] < self.limit)
        counts[mine] += admitted
        return admitted


@state.register
class LifetimeClip:
    """Sum of a batch in which each user's sum is clipped to the rest of the user's budget.

    Stores the records of the open batch until `close` (memory: batch x B x width numbers).

    Args:
        width: Numbers per record.
        replicates: Number of replicates B.
        radius: Lifetime budget C > 0; see the module's docstring.
        order: 2: the root of the sum of squares over the batches stays within it; 1: the sum
            of the norms does.

    Raises:
        ParameterError: If an argument is out of range.

    Example:
        >>> clip = LifetimeClip(width=1, replicates=1, radius=5.0)
        >>> sums = []
        >>> for value in (3.0, 10.0, 1.0):
        ...     clip.add(np.array([0]), np.array([[value]]))
        ...     sums.append(round(float(clip.close()[0, 0]), 6))
        >>> sums
        [3.0, 4.0, 0.0]
    """

    evolves: ClassVar[tuple[str, ...]] = ("clipped_count", "_ids", "_rows")

    def __init__(self, width: int, replicates: int, radius: float, *, order: int = 2) -> None:
        self.width = validation.integer("width", width, 1)
        self.radius = validation.real("radius", radius, 0.0, open_low=True)
        if order not in (1, 2):
            raise ParameterError(f"order must be 1 or 2; got {order!r}")
        self.order = order
        self.replicates = replicates
        self._spent = _UserTable(replicates, np.float64)
        self.clipped_count: NDArray[np.int64] = np.zeros(replicates, np.int64)
        self._ids: list[IdArray] = []
        self._rows: list[FloatArray] = []

    @property
    def sensitivity(self) -> float:
        """Largest distance between the clipped sums of a user and of a replacement, 2 C."""
        return 2.0 * self.radius

    def add(self, users: ArrayLike | None, rows: FloatArray) -> None:
        """Store one record per replicate in the open batch.

        Args:
            users: User ids ``(B,)``.
            rows: Records ``(B, width)``; a row of zeros (no record) costs its user nothing.

        Raises:
            ParameterError: On a wrong shape, NaN or infinity; nothing changes.
        """
        values = np.asarray(rows, dtype=np.float64)
        if values.shape != (self.replicates, self.width) or not np.isfinite(values).all():
            raise ParameterError(
                f"records must be finite and of shape {(self.replicates, self.width)}; got shape "
                f"{values.shape}"
            )
        ids = self._spent.check(users)
        # no user's budget would pay for it
        if (ids < 0).any() and values[ids < 0].any():
            raise ParameterError("a record that is not zero needs its user")
        self._ids.append(ids)
        self._rows.append(values.copy())

    def close(self) -> FloatArray:
        """Close the batch and return the sum of the users' clipped sums, ``(B, width)``.

        These are raw data, for a releaser with sensitivity `sensitivity`.
        """
        out = np.zeros((self.replicates, self.width))
        if self._ids:
            users = np.stack(self._ids)
            kernels.user_clipping.close_batch(
                users,
                np.stack(self._rows),
                # stable, so that a user's records are added in the order of rounds
                np.argsort(users, axis=0, kind="stable"),
                self._spent.table,
                self.radius,
                self.order == 2,
                out,
                self.clipped_count,
            )
        self._ids = []
        self._rows = []
        return out
