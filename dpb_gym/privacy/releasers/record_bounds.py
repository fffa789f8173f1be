"""Records of the private sums: their shape as rows, and the bounds they are clipped to."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np

from dpb_gym import kernels, state, validation
from dpb_gym.errors import ParameterError
from dpb_gym.validation import FloatArray


@state.register
@dataclass(frozen=True)
class RecordShape:
    """Shape of one record: a vector of `dim` numbers or a symmetric matrix.

    A symmetric d x d matrix becomes a row of d (d + 1) / 2 numbers: its upper triangle row by
    row, off-diagonal entries times sqrt(2). So the 2-norm of the row is the Frobenius norm of the
    matrix. Equal noise on the row is GOE noise on the matrix: the variance off the diagonal is
    half of that on it.

    Attributes:
        dim: Length of a vector record, or 0.
        symmetric: Side of a symmetric matrix record, or 0.
        shape: Shape of one record as the user sees it.
        width: Numbers per record in a row.
    """

    dim: int = 0
    symmetric: int = 0
    shape: tuple[int, ...] = field(init=False)
    width: int = field(init=False)

    def __post_init__(self) -> None:
        if (self.dim == 0) == (self.symmetric == 0):
            raise ParameterError(
                "give either dim (vectors) or symmetric (side of symmetric matrices); got "
                f"dim={self.dim!r}, symmetric={self.symmetric!r}"
            )
        validation.settle(self, "dim" if self.dim else "symmetric", validation.integer, 1)

        side = self.symmetric
        # derived once: the fields of a frozen dataclass are set by its base
        object.__setattr__(self, "shape", (side, side) if side else (self.dim,))
        object.__setattr__(self, "width", side * (side + 1) // 2 if side else self.dim)

    def emit(self, rows: FloatArray, noise: FloatArray, scale: float) -> FloatArray:
        """Return ``rows + scale * noise``, both (B, width), as new records ``(B, *shape)``."""
        if not self.symmetric:
            return rows + scale * noise
        out = np.empty((rows.shape[0], *self.shape))
        kernels.continual.emit_symmetric(rows, noise, scale, out)
        return out


@state.register
@dataclass(frozen=True)
class Ball:
    """Records of 2-norm (Frobenius norm for matrices) at most `radius`.

    Replace-one sensitivity ``2 radius``; add-remove ``radius``.

    Attributes:
        radius: Largest norm. Longer records are scaled down to it.
        apart: Largest replace-one distance of two records, in radii.
    """

    radius: float
    apart: ClassVar[float] = 2.0

    def __post_init__(self) -> None:
        validation.settle(self, "radius", validation.real, 0.0, open_low=True)

    @property
    def longest(self) -> float:
        """Largest norm of a record."""
        return self.radius

    def sensitivity(self, relation: str = "replace-one", public: bool = True) -> float:
        """Return the largest distance between two records, or for add-remove from zero."""
        return self.radius * (self.apart if relation == "replace-one" else 1.0)


@state.register
@dataclass(frozen=True)
class PSDBall(Ball):
    """Positive semidefinite matrices of Frobenius norm at most `radius`.

    Replace-one sensitivity ``sqrt(2) radius``: the inner product of two positive semidefinite
    matrices is not negative. The Gram matrix of a vector of norm c has Frobenius norm c^2. The
    Gram matrix of K vectors of norm at most 1 may have norm K (erratum A1), hence sensitivity
    ``sqrt(2) K``. The releaser rejects records that are not positive semidefinite.
    """

    # ||A - B||^2 = ||A||^2 + ||B||^2 - 2 <A, B>, and <A, B> >= 0
    apart: ClassVar[float] = math.sqrt(2.0)


@state.register
@dataclass(frozen=True)
class NonNegativeBall(Ball):
    """Vectors of non-negative numbers and of norm at most `radius`, such as units sold per item.

    Replace-one sensitivity ``sqrt(2) radius``, as their inner products are not negative. The
    releaser raises negative numbers to 0. Records have no directions.
    """

    apart: ClassVar[float] = math.sqrt(2.0)


@state.register
@dataclass(frozen=True)
class Segment:
    """Records ``value * direction``: a protected number times a vector that may be public.

    The value is clipped to [low, high], the direction to the unit ball. If directions are public,
    neighbours differ in the value only: replace-one sensitivity ``high - low``. If the unit
    protects contexts, neighbours differ in the direction too: twice the larger absolute value.
    Add-remove: the larger absolute value. For RU's rewards ``Segment(0, 1)``, or centred
    ``Segment(-0.5, 0.5)``.
    """

    low: float
    high: float

    def __post_init__(self) -> None:
        low, high = validation.span("the ends of a segment", (self.low, self.high))
        object.__setattr__(self, "low", low)
        object.__setattr__(self, "high", high)

    @property
    def longest(self) -> float:
        """Largest norm of a record."""
        return max(abs(self.low), abs(self.high))

    def sensitivity(self, relation: str = "replace-one", public: bool = True) -> float:
        """Return the largest distance between two records; same direction if `public`."""
        if relation != "replace-one":
            return self.longest
        return self.high - self.low if public else 2.0 * self.longest


Bound = Ball | PSDBall | NonNegativeBall | Segment
