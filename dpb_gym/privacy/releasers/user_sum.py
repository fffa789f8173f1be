"""Sums of batches in which every user's contribution is clipped."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike

from dpb_gym.errors import ParameterError
from dpb_gym.privacy.releasers.batch_sum import BatchSum
from dpb_gym.privacy.releasers.contributions import LifetimeClip
from dpb_gym.privacy.releasers.releaser import CuratorProtocol
from dpb_gym.validation import FloatArray


class UserSum(BatchSum):
    """Noisy sums of batches in which every user's contribution is clipped (RU 6.1, corrected).

    A `LifetimeClip` of order 2, then the noise of a `BatchSum`. RU clip per batch to C and add
    noise C / sqrt(2 rho), but replacing a user moves every batch with a record of the user by up
    to 2C. Here a user's sums of all batches together stay within C. So the sensitivity of all
    releases together is 2C, and one charge covers all batches.

    Args:
        radius: Lifetime budget C > 0 of a user.
        reward: Range of the protected numbers, which multiply public directions.
        **options: Further parameters of `BatchSum`.
    """

    enforces = True

    def __init__(
        self,
        curator: CuratorProtocol,
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
        # rounding moves each batch's sum by half a cell per coordinate in both neighbours, and a
        # user may be in as many batches as there are rounds
        self.least_weight = 1.0 / math.sqrt(self.horizon or 1)

    def add(
        self, records: ArrayLike, along: ArrayLike | None = None, users: ArrayLike | None = None
    ) -> None:
        """Add one record per replicate to the open batch.

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
        """Close the batch and return the noisy sum, ``(B, width)``; see `BatchSum`."""
        self._total += self._rounded(self._clip.close())
        return super().release()
