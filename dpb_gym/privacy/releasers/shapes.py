"""Vectors and symmetric matrices as flat rows, isometrically."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from dpb_gym.errors import ParameterError
from dpb_gym.privacy.checks import FloatArray, count

_ROOT2 = math.sqrt(2.0)


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
    rows: NDArray[np.intp] = field(init=False, repr=False, compare=False)
    columns: NDArray[np.intp] = field(init=False, repr=False, compare=False)
    weights: FloatArray = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if (self.dim == 0) == (self.symmetric == 0):
            raise ParameterError(
                "give either dim (vectors) or symmetric (side of symmetric matrices); got "
                f"dim={self.dim!r}, symmetric={self.symmetric!r}"
            )
        side = count("symmetric", self.symmetric) if self.symmetric else count("dim", self.dim)
        rows, columns = np.triu_indices(side) if self.symmetric else np.diag_indices(1)
        object.__setattr__(self, "rows", rows)
        object.__setattr__(self, "columns", columns)
        object.__setattr__(self, "weights", np.where(rows == columns, 1.0, _ROOT2))

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

    def pack(self, records: FloatArray) -> FloatArray:
        """Records (B, *shape) as rows (B, width).

        Raises:
            ParameterError: If a matrix is not symmetric (to 1e-9 of its largest entry).
        """
        if not self.symmetric:
            return records
        gap = np.abs(records - records.transpose(0, 2, 1)).max(initial=0.0)
        if gap > 1e-9 * max(1e-300, float(np.abs(records).max(initial=0.0))):
            raise ParameterError(f"matrix records must be symmetric; off by {gap:.3g}")
        packed: FloatArray = records[:, self.rows, self.columns] * self.weights
        return packed

    def unpack(self, rows: FloatArray) -> FloatArray:
        """Rows (B, width) as records (B, *shape), fresh."""
        if not self.symmetric:
            return rows.copy()
        values = rows / self.weights
        out = np.empty((rows.shape[0], self.symmetric, self.symmetric))
        out[:, self.rows, self.columns] = values
        out[:, self.columns, self.rows] = values
        return out
