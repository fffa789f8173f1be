"""Independent oracles shared by the tests of this folder: everything written out plainly."""

from __future__ import annotations

import numpy as np
from scipy.linalg import solve_triangular, toeplitz

from dpb_gym.privacy.toeplitz import (
    blt_coefficients,
    blt_parameters,
    square_root_coefficients,
)


def lower(first_column: np.ndarray) -> np.ndarray:
    return np.tril(toeplitz(first_column))


def running_sum(steps: int) -> np.ndarray:
    return np.tril(np.ones((steps, steps)))


def blt_arrays(steps: int) -> tuple[np.ndarray, np.ndarray]:
    theta, omega = blt_parameters(steps)
    return np.array(theta), np.array(omega)


def factors(name: str, steps: int) -> tuple[np.ndarray, np.ndarray]:
    """Matrices (noise, strategy) with noise @ strategy = running sum, written out."""
    sums = running_sum(steps)
    if name == "binary-tree":
        levels = steps.bit_length()
        nodes = [(level, i) for level in range(levels) for i in range(steps >> level)]
        strategy = np.zeros((len(nodes), steps))
        for row, (level, i) in enumerate(nodes):
            strategy[row, i << level : (i + 1) << level] = 1.0
        noise = np.zeros((steps, len(nodes)))
        for t in range(1, steps + 1):
            start = 0
            for level in reversed(range(levels)):
                if t >> level & 1:
                    noise[t - 1, nodes.index((level, start >> level))] = 1.0
                    start += 1 << level
        return noise, strategy
    if name == "blt":
        strategy = lower(blt_coefficients(*blt_arrays(steps), steps))
    else:
        strategy = lower(square_root_coefficients(steps))
    noise = solve_triangular(strategy.T, sums.T, lower=False).T
    return noise, strategy
