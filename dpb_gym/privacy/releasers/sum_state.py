"""What mechanisms read of a sum: its records, their distance, and its curator."""

from __future__ import annotations

from typing import Protocol

from dpb_gym.privacy.releasers.record_bounds import Bound, RecordShape
from dpb_gym.privacy.releasers.releaser import CuratorProtocol


class SumState(Protocol):
    """Public facts about a `Sum`, from which its noise is calibrated.

    Attributes:
        curator: Its curator.
        what: Name of the sum in the ledger.
        shape: Shape of a record.
        clip: Bound of a record.
        sensitivity: Largest 2-norm distance between the records of two neighbours.
        records_per_unit: Records of one protected unit.
        counted: Whether their number is given, rather than a distance of all of them together.
        gain: Sensitivity of all releases together at unit distance of two records.
        least_weight: Smallest factor of a record in a sum before rounding to a grid.
        horizon: Largest number of records per replicate.
        part: Part of the budget that the sum was given, or 1 if none was named.
        pure: Whether messages are private for any two rows, whatever their distance.
        printed_sigma: Standard deviation given instead of a share of the budget, or None.
    """

    curator: CuratorProtocol
    what: str
    shape: RecordShape
    clip: Bound | None
    sensitivity: float
    records_per_unit: int
    counted: bool
    gain: float
    least_weight: float
    horizon: int | None
    part: float
    pure: bool
    printed_sigma: float | None
