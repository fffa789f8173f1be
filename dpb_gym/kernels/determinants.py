"""Determinants of matrices that need not be positive definite."""

from __future__ import annotations

import numpy as np

from dpb_gym.kernels._jit import jit
from dpb_gym.kernels.elementary import log


@jit
def signed_logdet_one(matrix, work):
    """Return sign and logarithm of |det|, by elimination with pivoting; `work` is scratch."""
    d = matrix.shape[0]
    for j in range(d):
        for k in range(d):
            work[j, k] = matrix[j, k]
    sign = 1.0
    total = 0.0
    for j in range(d):
        pivot = j
        for i in range(j + 1, d):
            if abs(work[i, j]) > abs(work[pivot, j]):
                pivot = i
        if work[pivot, j] == 0.0:
            return 0.0, -np.inf
        if pivot != j:
            sign = -sign
            for k in range(d):
                work[j, k], work[pivot, k] = work[pivot, k], work[j, k]
        if work[j, j] < 0.0:
            sign = -sign
        total += log(abs(work[j, j]))
        for i in range(j + 1, d):
            factor = work[i, j] / work[j, j]
            for k in range(j, d):
                work[i, k] -= factor * work[j, k]
    return sign, total
