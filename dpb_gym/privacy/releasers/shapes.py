"""Vectors and symmetric matrices as flat rows, isometrically."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dpb_gym import kernels
from dpb_gym.errors import ParameterError
from dpb_gym.privacy.checks import FloatArray, count


@dataclass(frozen=True)
class RecordShape:
    """Shape of one record: a vector of `dim` numbers or a symmetric matrix.

    A symmetric d x d matrix becomes a row of d (d + 1) / 2 numbers, its upper triangle row by
    row with the off-diagonal entries times sqrt(2), so that the 2-norm of the row is the
    Frobenius norm. Equal noise on the row is then GOE noise on the matrix: the off-diagonal
    variance is half of the diagonal's.

    Attributes:
        dim: Length of a vector record, or 0.
        symmetric: Side of a symmetric matrix record, or 0.
    """

    dim: int = 0
    symmetric: int = 0

    def __post_init__(self) -> None:
        if (self.dim == 0) == (self.symmetric == 0):
            raise ParameterError(
                "give either dim (vectors) or symmetric (side of symmetric matrices); got "
                f"dim={self.dim!r}, symmetric={self.symmetric!r}"
            )
        count("dim" if self.dim else "symmetric", self.dim or self.symmetric)

    @classmethod
    def of(cls, dim: int | None, symmetric: int | None) -> RecordShape:
        """From the two exclusive arguments of a releaser."""
        return cls(dim=dim or 0, symmetric=symmetric or 0)

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of one record as the user sees it."""
        return (self.symmetric, self.symmetric) if self.symmetric else (self.dim,)

    @property
    def width(self) -> int:
        """Numbers per record in a row."""
        return self.symmetric * (self.symmetric + 1) // 2 if self.symmetric else self.dim

    def emit(self, rows: FloatArray, noise: FloatArray, scale: float) -> FloatArray:
        """``rows + scale * noise``, both (B, width), as fresh records (B, *shape)."""
        out = np.empty((rows.shape[0], *self.shape))
        if self.symmetric:
            kernels.continual.emit_symmetric(rows, noise, scale, out)
        else:
            kernels.continual.emit(rows, noise, scale, out)
        return out
