"""The smallest Excel sheet that holds a matrix of numbers, for testing the .xls reader."""

from __future__ import annotations

import struct

import numpy as np
from numpy.typing import NDArray

_BOF, _DIMENSIONS, _NUMBER, _EOF = 0x0009, 0x0000, 0x0003, 0x000A
_WORKSHEET = 0x0010


def biff_sheet(matrix: NDArray[np.float64]) -> bytes:
    """Encodes a matrix as a BIFF 2 worksheet stream, a form of .xls that Excel and xlrd read.

    Args:
        matrix: Finite numbers, shape (rows, columns), at most 16,384 rows and 256 columns.

    Returns:
        The bytes of the file.
    """
    n_rows, n_columns = matrix.shape
    parts = [
        _record(_BOF, struct.pack("<HH", 2, _WORKSHEET)),
        _record(_DIMENSIONS, struct.pack("<HHHH", 0, n_rows, 0, n_columns)),
    ]
    for row, values in enumerate(matrix.tolist()):
        for column, value in enumerate(values):
            parts.append(_record(_NUMBER, struct.pack("<HH3xd", row, column, value)))
    parts.append(_record(_EOF, b""))
    return b"".join(parts)


def _record(kind: int, body: bytes) -> bytes:
    return struct.pack("<HH", kind, len(body)) + body
