"""Bounding what one user contributes over the whole horizon: the basis of user-level privacy.

Neighbouring data sets differ in the **rewards of all rounds of one user**. Which round is
whose, the contexts and the actions are public: they decide alone which rounds are admitted.
Replicates keep separate books.

Two bounds, sound for users whose rounds spread over any number of batches (erratum R10):

* `ContributionCap`: only the first `limit` rounds of a user enter any release. If replacing
  one record moves the whole sequence of noise-normalised releases by at most Delta / sigma in
  2-norm, whatever the linear mechanism, then by the triangle inequality replacing a user moves
  it by at most ``limit Delta / sigma``: group privacy, rho / limit^2 per record.
* `LifetimeClip`: a user's sum c_j of each batch j is shortened so that over the horizon
  ``sum_j ||c_j||^2 <= radius^2`` (``order=2``) or ``sum_j ||c_j|| <= radius`` (``order=1``).
  Replacing a user moves the releases by at most ``2 radius / sigma``: with ``order=2`` if
  every batch is released once, with noise of its own (`BatchSum`); with ``order=1`` for
  every linear mechanism in which a record of norm 1 has norm at most 1 / sigma in the
  normalised releases (`WeightedSum`, `RunningSum` with its sensitivity).

Both hold along every sequence of releases, so the policy may adapt to them.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dpb_gym import kernels, validation
from dpb_gym.errors import ParameterError
from dpb_gym.privacy.releasers.sums import BatchSum
from dpb_gym.validation import FloatArray

if TYPE_CHECKING:
    from dpb_gym.privacy.curator import Curator

IdArray = NDArray[np.int64]
MOST_USERS = 2**26
_FIRST_USERS = 64


class _Users:
    """A table ``(B, users)`` with one column per user id, which grows."""

    def __init__(self, replicates: int, dtype: type) -> None:
        shape = (validation.integer("replicates", replicates, 1), _FIRST_USERS)
        self.table: NDArray[Any] = np.zeros(shape, dtype)

    def check(self, users: ArrayLike | None) -> IdArray:
        """The ids as ``(B,)`` integers, the table grown to hold them.

        Raises:
            ParameterError: If there are none, or they are no integers in 0..2^26 - 1.
        """
        if users is None:
            raise ParameterError(
                "user-level privacy needs an environment that identifies users (context.users); "
                "e.g. interactions_per_user=k of DPB/Recommendation-v0"
            )
        ids, (replicates, size) = np.asarray(users), self.table.shape
        if ids.shape != (replicates,) or ids.dtype.kind not in "iu":
            raise ParameterError(
                f"users must be integers of shape ({replicates},); got {ids.dtype} of shape "
                f"{ids.shape}"
            )
        least, largest = int(ids.min()), int(ids.max())
        if least < 0 or largest >= MOST_USERS:
            raise ParameterError(
                f"user ids must lie in 0..{MOST_USERS - 1}, best numbered consecutively; got "
                f"{least}..{largest}"
            )
        if largest >= size:
            more = np.zeros((replicates, max(largest + 1 - size, size)), self.table.dtype)
            self.table = np.concatenate([self.table, more], axis=1)
        return np.ascontiguousarray(ids, dtype=np.int64)


class ContributionCap:
    """Admits the first `limit` rounds of every user, in every replicate.

    Uses public data only: user ids and whether the round yields a record.

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
        self._users = _Users(replicates, np.int32)

    def admit(self, users: ArrayLike | None, counted: ArrayLike | None = None) -> NDArray[np.bool_]:
        """Whether this round may enter the releases, ``(B,)``; counts it if so.

        Args:
            users: User ids ``(B,)``, ``context.users``.
            counted: False where the round yields no record (``feedback.observed``).

        Raises:
            ParameterError: If users are not identified, or an id is out of range.
        """
        ids = self._users.check(users)
        where = np.ones(len(ids), bool)
        if counted is not None:
            where = np.ascontiguousarray(counted, dtype=bool)
        if where.shape != ids.shape:
            raise ParameterError(f"counted must have shape {ids.shape}; got {where.shape}")
        counts, mine = self._users.table, (np.arange(len(ids)), ids)
        admitted: NDArray[np.bool_] = where & (counts[mine] < self.limit)
        counts[mine] += admitted
        return admitted


class LifetimeClip:
    """Sums of a batch with every user's contribution clipped to what is left of a budget.

    Records of the open batch are kept (memory: batch x B x width numbers) until `close`.

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

    def __init__(self, width: int, replicates: int, radius: float, *, order: int = 2) -> None:
        self.width = validation.integer("width", width, 1)
        self.radius = validation.real("radius", radius, 0.0, open_low=True)
        if order not in (1, 2):
            raise ParameterError(f"order must be 1 or 2; got {order!r}")
        self.order, self.replicates = order, replicates
        self._spent = _Users(replicates, np.float64)
        self.clipped_count: NDArray[np.int64] = np.zeros(replicates, np.int64)
        self._ids: list[IdArray] = []
        self._rows: list[FloatArray] = []

    @property
    def sensitivity(self) -> float:
        """Largest distance between the clipped sums of a user and of her replacement, 2 C."""
        return 2.0 * self.radius

    def add(self, users: ArrayLike | None, rows: FloatArray) -> None:
        """Keeps one record per replicate for the open batch.

        Args:
            users: User ids ``(B,)``.
            rows: Records ``(B, width)``; rows of zeros (nothing observed, not admitted) cost
                their user nothing.

        Raises:
            ParameterError: On a wrong shape, NaN or infinity; nothing changes.
        """
        values = np.asarray(rows, dtype=np.float64)
        if values.shape != (self.replicates, self.width) or not np.isfinite(values).all():
            raise ParameterError(
                f"records must be finite and of shape {(self.replicates, self.width)}; got shape "
                f"{values.shape}"
            )
        self._ids.append(self._spent.check(users))
        self._rows.append(values.copy())

    def close(self) -> FloatArray:
        """Ends the batch: the sum of the users' clipped sums, ``(B, width)``.

        Raw data: to be handed to a releaser whose sensitivity is `sensitivity`.
        """
        out = np.zeros((self.replicates, self.width))
        if self._ids:
            users = np.stack(self._ids)
            kernels.contributions.close_batch(
                users,
                np.stack(self._rows),
                np.argsort(users, axis=0, kind="stable"),
                self._spent.table,
                self.radius,
                self.order == 2,
                out,
                self.clipped_count,
            )
        self._ids, self._rows = [], []
        return out


class UserSum(BatchSum):
    """Noisy sums of batches in which every user's contribution is clipped (RU 6.1, corrected).

    A `LifetimeClip` of order 2 before the noise of a `BatchSum`: RU clip per batch to C and add
    noise C / sqrt(2 rho), but replacing a user costs 2C, in every batch she is in. Here her sums
    of all batches together stay within C, so the sensitivity of all releases together is 2C; one
    charge covers all batches.

    Args:
        radius: Lifetime budget C > 0 of a user.
        reward: Range of the protected numbers, which multiply public directions.
        **options: The others of `BatchSum`.
    """

    def __init__(
        self,
        curator: Curator,
        width: int,
        *,
        radius: float,
        reward: tuple[float, float],
        **options: object,
    ) -> None:
        if "sampling" in options:
            raise ParameterError("every record enters a sum of clipped users: leave sampling out")
        if curator.unit == "user-round":
            raise ParameterError(
                "whose round is whose is public where users' sums are clipped; the unit "
                "'user-round' protects that too"
            )
        self._clip = LifetimeClip(width, curator.replicates, radius)
        options |= {"reward": reward, "sensitivity": self._clip.sensitivity}
        super().__init__(curator, width, **options)  # type: ignore[arg-type]
        self._scratch = np.zeros_like(self._total)
        # rounding a batch's sum moves it by half a cell per coordinate in either world, and she may
        # be in as many batches as there are rounds
        self.least_weight = 1.0 / math.sqrt(self.horizon or 1)

    def add(
        self, records: ArrayLike, along: ArrayLike | None = None, users: ArrayLike | None = None
    ) -> None:
        """Adds one record per replicate to the open batch.

        Args:
            records: Protected numbers ``(B,)``.
            along: Public vectors ``(B, width)``; zeros where there is no record.
            users: User ids ``(B,)``, public.

        Raises:
            ParameterError: If users are not identified; or see `Sum.add`.
        """
        self.ready()
        self._scratch[:] = 0.0
        self._take(records, along, self._scratch)
        self._clip.add(users, self._scratch)

    def release(self) -> FloatArray:
        """Closes the batch and returns the noisy sum, ``(B, width)``; see `BatchSum`."""
        self._total += self._rounded(self._clip.close())
        return super().release()
