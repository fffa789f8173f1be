"""Sums of disjoint batches of records or of users' clipped contributions."""

from __future__ import annotations

import math
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from dpb_gym import validation
from dpb_gym.errors import BudgetError, ParameterError
from dpb_gym.overrides import overridden
from dpb_gym.privacy.events import Event, PoissonGaussianEvent
from dpb_gym.privacy.guarantee import RESPONSES
from dpb_gym.privacy.noise import NoiseSource
from dpb_gym.privacy.releasers.contributions import LifetimeClip
from dpb_gym.privacy.releasers.record_bounds import RecordShape, Segment
from dpb_gym.privacy.releasers.releaser import CuratorProtocol
from dpb_gym.privacy.releasers.sums import Sum
from dpb_gym.validation import FloatArray


class BatchSum(Sum):
    """Sums of disjoint batches of records plus N(0, sigma^2 I) (RU, Algorithm 1).

    Each `release` closes a batch: the records since the last release. Every record is in one
    batch, so all releases together cost as much as one. When a batch closes must not depend on the
    records of the open batch.

    Args:
        cumulative: True: a release is the sum of all noisy batches so far (the noise
            accumulates, erratum R5); False: the batch just closed.
        sampling: q: each record enters with probability q, by a secret bit, and the sums are
            divided by q (RU, section 3.2). An (epsilon, delta) budget is accounted with the exact
            profile of the sampled mechanism, for one record per unit. zCDP must hold at every
            order, where sampling does not help, so its noise is that without sampling.
        **options: Further parameters of `Sum`.
    """

    evolves: ClassVar[tuple[str, ...]] = ("batches", "_held", "_aged", "_at", "_block")

    def __init__(
        self,
        curator: CuratorProtocol,
        width: int | RecordShape,
        *,
        cumulative: bool = False,
        sampling: float = 1.0,
        **options: object,
    ) -> None:
        options.setdefault("what", "sums of disjoint batches")
        super().__init__(curator, width, **options)  # type: ignore[arg-type]
        self.cumulative = cumulative
        self.sampling = validation.real("sampling", sampling, 0.0, 1.0, open_low=True)
        self.batches = 0
        self._held = self._aged = 0  # batches in a cumulative release; those of earlier blocks
        self._at = 0
        self._block = np.zeros_like(self._released)
        single = self._participations in (None, 1) and curator.unit in RESPONSES
        if self.sampling < 1 and not (single and isinstance(self.clip, Segment)):
            raise ParameterError(
                "sampling is for rewards along public directions, one record of each unit"
            )
        if self.sampling < 1 and curator.system_noise:
            raise ParameterError("sampling needs noise='seeded': its accounting is continuous")

    def cost(self, rho: float) -> Event:
        sigma, _, event = self._scales(rho)
        if self.sampling == 1:
            return event
        assert self.clip is not None
        longest = self.clip.longest
        symmetric = math.isclose(2 * longest, self.sensitivity)
        # a record may also be left out altogether, which moves the sum by its own length
        distance = self.sensitivity if symmetric else max(self.sensitivity, longest)
        pair = "symmetric" if symmetric else "zero-out"
        return PoissonGaussianEvent(self.sampling, sigma, distance, 1, pair)

    def open(self, rho: float | None, noise: NoiseSource) -> None:
        super().open(rho, noise)
        if rho is None:
            self.sampling = 1.0
        self._bits = noise.spawn() if self.sampling < 1 else None

    @property
    def noise_std(self) -> float:
        """Standard deviation of the last release's noise per coordinate of the row."""
        batches = self._held if self.cumulative else min(self.batches, 1)
        return self.sigma * math.sqrt(batches) / self.sampling

    def _add(self, records: ArrayLike, along: ArrayLike | None) -> None:
        if self._bits is not None:
            included = self._bits.uniform() < self.sampling
            along = np.where(included[:, None], np.asarray(along, np.float64), 0.0)
        self._take(records, along, self._total)

    def add_rounds(self, records: FloatArray, along: FloatArray | None = None) -> None:
        self.ready()
        sampled = self._bits is not None or overridden(self, "add_rounds", "add")
        if sampled or (self.shape.symmetric and along is None):
            super().add_rounds(records, along)
        else:
            self._take_rounds(records, along, self._total)

    def exact_sums(self, rounds: int) -> tuple[FloatArray, float, float, NDArray[np.int64]]:
        """Leave the next rounds to compiled code, which adds a record and releases every round.

        Returns:
            The cumulative sums ``(B, width)``, to which `dpb_gym.kernels.continual.add_scaled`
            adds, the lowest and highest value of a record, and the counts of clipped records.

        Raises:
            ParameterError: If releases carry noise, are not cumulative, or a batch is open.
        """
        self.ready()
        exact = self._sigma == 0.0 and self.cumulative and self.rounds == self._at
        if not exact or not isinstance(self.clip, Segment):
            raise ParameterError("only exact cumulative sums of values can be left to others")
        self._check_room(rounds)
        self.rounds += rounds
        self._at = self.rounds
        self.batches += rounds
        self._held += rounds
        return self._released, self.clip.low, self.clip.high, self.clipped_count

    def _noisy(self) -> FloatArray:
        """Return the open batch's rows with noise."""
        return self._total + self._noise.gaussian(self._sigma, self.shape.width)

    def release(self) -> FloatArray:
        """Close the batch and return its noisy sum, ``(B, *shape)``.

        Raises:
            ParameterError: If no record was added since the last release.
            AgentError: If the releasers were handed over.
        """
        self.ready()
        if self.rounds == self._at:
            raise ParameterError("no record since the last release: the batch is empty")
        rows = self._noisy() if self._sigma else self._total
        if self.sampling < 1:
            rows = rows / self.sampling
        self._released = self._released + rows if self.cumulative else rows.copy()
        self._total[:] = 0.0
        self._at = self.rounds
        self.batches += 1
        self._held += 1
        return self.value

    def forget(self) -> FloatArray:
        """End a block of batches and remove the block before it from cumulative releases.

        The earlier block's releases are subtracted with their noise. So this is post-processing,
        and the noise of the remaining batches remains.

        Returns:
            The newest release, without the removed block.

        Raises:
            ParameterError: If releases are not cumulative.
        """
        if not self.cumulative:
            raise ParameterError("only cumulative sums have something to forget")
        self._released = self._released - self._block
        self._block = self._released.copy()
        self._held -= self._aged
        self._aged = self._held
        return self.value


class LogSum(BatchSum):
    """Sum of one record that library code computes from a whole log.

    The caller bounds what each unit of the log contributes and passes the `sensitivity`. So it is
    not for agents, whose sums bound each record themselves.

    Raises:
        BudgetError: If the curator is an agent's.
    """

    enforces = True

    def __init__(self, curator: CuratorProtocol, width: int | RecordShape, **options: Any) -> None:
        if curator.rounds.of_agent:
            raise BudgetError(
                "a LogSum takes its sensitivity from the caller, who computes it from a whole log; "
                "in an agent take curator.batch_sum, which bounds every record"
            )
        super().__init__(curator, width, horizon=1, **options)

    def of(self, record: FloatArray) -> FloatArray:
        """Release the record, of one replicate and without its axis."""
        self.add(record[None])
        return np.asarray(self.release()[0])


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

    evolves: ClassVar[tuple[str, ...]] = ("_scratch",)
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
        self.ready()
        self._total += self._rounded(self._clip.close())
        return super().release()
