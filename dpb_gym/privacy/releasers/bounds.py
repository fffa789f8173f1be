"""What a releaser clips its records to, and the sensitivity that follows."""

from __future__ import annotations

import math
from dataclasses import dataclass

from dpb_gym.errors import ParameterError
from dpb_gym.privacy.checks import positive


@dataclass(frozen=True)
class Ball:
    """Records of 2-norm (Frobenius norm for matrices) at most `radius`.

    Replace-one sensitivity ``2 radius``; add-remove ``radius``.

    Attributes:
        radius: Largest norm; longer records are scaled down to it.
    """

    radius: float

    def __post_init__(self) -> None:
        positive("radius", self.radius)

    def sensitivity(self, relation: str = "replace-one") -> float:
        """Largest distance between two records, or of a record from zero."""
        return self.radius * (2.0 if relation == "replace-one" else 1.0)


@dataclass(frozen=True)
class PSDBall(Ball):
    """Positive semidefinite matrices of Frobenius norm at most `radius`.

    Replace-one sensitivity ``sqrt(2) radius``: the inner product of two positive semidefinite
    matrices is not negative. A Gram matrix of a vector of norm c has Frobenius norm c^2; the
    Gram matrix of K vectors of norm at most 1 may have norm K (erratum A1), hence sensitivity
    ``sqrt(2) K``. The releaser rejects records that are not positive semidefinite.
    """

    def sensitivity(self, relation: str = "replace-one") -> float:
        return self.radius * (math.sqrt(2.0) if relation == "replace-one" else 1.0)


@dataclass(frozen=True)
class Segment:
    """Records ``value * direction``: a protected number times a **public** vector.

    The value is clipped to [low, high], the direction to the unit ball. Neighbours differ in
    the value only, so the replace-one sensitivity is ``high - low`` (add-remove: the larger
    absolute value). For RU's rewards ``Segment(0, 1)``, or centred ``Segment(-0.5, 0.5)``.
    """

    low: float
    high: float

    def __post_init__(self) -> None:
        if not (math.isfinite(self.low) and math.isfinite(self.high) and self.low < self.high):
            raise ParameterError(
                f"a segment needs finite low < high; got [{self.low!r}, {self.high!r}]"
            )

    def sensitivity(self, relation: str = "replace-one") -> float:
        """Largest distance between two records with the same direction."""
        if relation == "replace-one":
            return self.high - self.low
        return max(abs(self.low), abs(self.high))


Bound = Ball | PSDBall | Segment
