"""Lower-triangular Toeplitz noise for running sums: coefficients, sensitivity, variance.

The running sums ``A x`` (A all ones below the diagonal) are released as ``A C^-1 (C x + z)``
with z ~ N(0, sigma^2 I): one record changes ``C x`` by a column of C times its distance, whose
norm is at most that of the first column, ``sens``. The noise at step t is the t-th entry of
``A C^-1 z``.

* square root: C = A^(1/2), first column f_0 = 1, f_k = f_{k-1} (1 - 1/(2k)); then
  A C^-1 = C (Fichtenberger, Henzinger & Upadhyay 2023).
* BLT, buffered linear Toeplitz: first column c_0 = 1, c_k = sum_i omega_i theta_i^(k-1); then
  the noise needs one buffer per term instead of the whole past (Dvijotham, McMahan, Pillutla,
  Steinke & Thakurta 2024).
"""

from __future__ import annotations

import functools
import json
import math
from importlib import resources

import numpy as np

from dpb_gym import portable, validation
from dpb_gym.validation import FloatArray

Parameters = tuple[tuple[float, ...], tuple[float, ...]]


def square_root_coefficients(steps: int) -> FloatArray:
    """f_0..f_{steps-1} of the square root of the running-sum matrix."""
    k = np.arange(1, steps)
    return np.concatenate([[1.0], np.cumprod(1.0 - 0.5 / k)])


def blt_sensitivity(theta: FloatArray, omega: FloatArray, steps: int) -> float:
    """Norm of the first column of the strategy matrix for `steps` steps, in closed form."""
    if steps == 1:
        return 1.0
    product = theta[:, None] * theta[None, :]
    grown = (steps - 1) * portable.each(portable.log, product)
    series = -portable.each(portable.expm1, grown) / (1.0 - product)
    return math.sqrt(1.0 + float((omega[:, None] * omega[None, :] * series).sum()))


def blt_noise_coefficients(theta: FloatArray, omega: FloatArray, steps: int) -> FloatArray:
    """First column of A C^-1: weight of each past normal in the noise, newest first."""
    from dpb_gym.kernels import continual

    return continual.blt_impulse(theta, omega, steps)


@functools.lru_cache(maxsize=1)
def _shipped() -> dict[int, Parameters]:
    text = (resources.files("dpb_gym.privacy") / "data" / "blt.json").read_text()
    table = json.loads(text)["parameters"]
    return {int(n): (tuple(row["theta"]), tuple(row["omega"])) for n, row in table.items()}


@functools.lru_cache(maxsize=128)
def blt_parameters(steps: int) -> Parameters:
    """Parameters (theta, omega) of a good BLT for `steps` steps.

    From the shipped table (``benchmarks/make_blt_table.py``), whose step counts grow by a factor
    of at most 2^(1/4): the entry for the least count that is not below `steps`, which is within 1%
    of the optimum; beyond the table (2^30) its last entry. Privacy rests on the sensitivity, which
    is computed for `steps` exactly, never on how good the parameters are.

    Raises:
        ParameterError: If `steps` is not a positive integer.
    """
    validation.integer("steps", steps, 1)
    table = _shipped()
    return table[min((n for n in table if n >= steps), default=max(table))]
