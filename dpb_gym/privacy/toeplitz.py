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
from typing import Any

import numpy as np

from dpb_gym import portable, validation
from dpb_gym.validation import FloatArray

BUFFERS = 5
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

    From the shipped table, whose step counts grow by a factor of at most 2^(1/4): the entry
    for the least count that is not below `steps`, which is within 1% of the optimum and the
    same on every machine. Beyond the table (2^24) the optimiser runs once per process.
    Privacy rests on the sensitivity, which is computed for `steps` exactly, never on how good
    the parameters are.

    Raises:
        ParameterError: If `steps` is not a positive integer.
    """
    validation.integer("steps", steps, 1)
    table = _shipped()
    larger = [n for n in table if n >= steps]
    if larger:
        return table[min(larger)]
    return optimise_blt(steps)


def optimise_blt(steps: int, buffers: int = BUFFERS) -> Parameters:
    """Minimises the largest noise variance ``sens^2 * sum_k g_k^2`` over BLTs for `steps` steps.

    The strategy's generating function is parametrised by its poles and zeros,
    ``c(x) = prod (1 - zero_i x) / prod (1 - theta_i x)`` with
    ``1 > theta_1 > zero_1 > theta_2 > ...``, which makes both factors sums of geometric
    series in closed form; the gaps ``1 - value`` are optimised in increasing logits, by
    quasi-Newton steps from geometrically spaced starts.

    Args:
        steps: Number of steps n.
        buffers: Number of buffers.

    Returns:
        theta (decreasing) and omega, as tuples.
    """
    from scipy.optimize import minimize

    if steps == 1:
        return (0.5,) * buffers, (0.0,) * buffers
    best: tuple[float, FloatArray] | None = None
    options: Any = {"maxiter": 400, "gtol": 1e-7}

    def objective(parameters: FloatArray) -> float:
        return _log_variance(parameters, steps)

    for slowest in (0.5, 3.0):
        for fastest in (0.3, 0.7):
            low, high = math.log(slowest / max(steps, 16)), math.log(fastest)
            gaps = np.exp(np.linspace(low, high, 2 * buffers))
            logits = np.log(gaps / (1 - gaps))
            start = np.concatenate([logits[:1], np.log(np.diff(logits))])
            found = minimize(objective, start, method="BFGS", options=options)
            if best is None or found.fun < best[0]:
                best = (float(found.fun), found.x)
    assert best is not None
    theta_gaps, zero_gaps = _gaps(best[1])
    omega = _residues(theta_gaps, zero_gaps)
    return tuple(float(v) for v in 1.0 - theta_gaps), tuple(float(v) for v in omega)


def _gaps(parameters: FloatArray) -> tuple[FloatArray, FloatArray]:
    clipped = np.clip(parameters, -40.0, 40.0)
    logits = np.cumsum(np.concatenate([clipped[:1], np.exp(np.minimum(clipped[1:], 4.0))]))
    gaps = 1.0 / (1.0 + np.exp(-np.minimum(logits, 30.0)))
    return gaps[0::2], gaps[1::2]


def _residues(theta_gaps: FloatArray, zero_gaps: FloatArray) -> FloatArray:
    """omega_i = prod_j (theta_i - zero_j) / prod_{j != i} (theta_i - theta_j)."""
    out = np.empty_like(theta_gaps)
    for i, gap in enumerate(theta_gaps):
        others = np.delete(theta_gaps, i) - gap
        out[i] = (zero_gaps - gap).prod() / others.prod()
    return out


def _log_variance(parameters: FloatArray, steps: int) -> float:
    theta_gaps, zero_gaps = _gaps(parameters)
    all_gaps = np.sort(np.concatenate([theta_gaps, zero_gaps]))
    if np.any(np.diff(all_gaps) <= 1e-14 * all_gaps[1:]):
        return 1e3
    omega = _residues(theta_gaps, zero_gaps)
    strategy = 1.0 + _energy(omega, theta_gaps, steps - 1)
    # noise coefficients g_k = r_0 + sum_j r_j zero_j^k
    zeros = 1.0 - zero_gaps
    weights = np.empty(zeros.size + 1)
    weights[0] = (theta_gaps / zero_gaps).prod()
    for j, gap in enumerate(zero_gaps):
        others = np.delete(zero_gaps, j)
        top = ((theta_gaps - gap) / zeros[j]).prod()
        weights[j + 1] = top / (-gap / zeros[j] * ((others - gap) / zeros[j]).prod())
    energy = _energy(weights, np.concatenate([[0.0], zero_gaps]), steps)
    if not (strategy > 0 and energy > 0):
        return 1e3
    return math.log(strategy) + math.log(energy)


def _energy(weights: FloatArray, gaps: FloatArray, terms: int) -> float:
    """sum_{k < terms} (sum_i weights_i (1 - gaps_i)^k)^2."""
    pair = gaps[:, None] + gaps[None, :] - gaps[:, None] * gaps[None, :]
    logs = np.log1p(-gaps)
    with np.errstate(divide="ignore", invalid="ignore"):
        series = np.where(
            pair > 0, -np.expm1(terms * (logs[:, None] + logs[None, :])) / pair, float(terms)
        )
    return float((weights[:, None] * weights[None, :] * series).sum())
