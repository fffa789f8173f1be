"""Write `dpb_gym/privacy/data/blt.json`: ``python benchmarks/make_blt_table.py``.

Existing entries do not change, as their parameters are part of every result.
"""

from __future__ import annotations

import argparse
import json
import math
from pathlib import Path
from typing import Any

import numpy as np

import dpb_gym.privacy
from dpb_gym.privacy.releasers.correlated_noise import Parameters
from dpb_gym.validation import FloatArray

BUFFERS = 5
LARGEST = 2**30


def step_counts() -> list[int]:
    """Return all counts up to 16, powers of 2^(1/4) up to 2^30, and powers of ten."""
    counts = set(range(1, 17)) | {10**k for k in range(2, 10)}
    counts |= {math.ceil(2 ** (j / 4)) for j in range(16, 4 * 30 + 1)}
    return sorted(n for n in counts if n <= LARGEST)


def main() -> None:
    """Optimise the missing entries and write the table."""
    argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0]).parse_args()
    path = Path(dpb_gym.privacy.__file__).parent / "data" / "blt.json"
    known = json.loads(path.read_text())["parameters"]
    rows = {}
    for steps in step_counts():
        if (parameters := known.get(str(steps))) is None:
            theta, omega = optimise_blt(steps)
            parameters = {"theta": theta, "omega": omega}
        rows[str(steps)] = parameters
    text = json.dumps({"buffers": BUFFERS, "parameters": rows}, indent=None)
    path.write_text(text.replace('}, "', '},\n "') + "\n")


def optimise_blt(steps: int, buffers: int = BUFFERS) -> Parameters:
    """Minimise the largest noise variance ``sens^2 * sum_k g_k^2`` over BLTs for `steps` steps.

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
            minimum = minimize(objective, start, method="BFGS", options=options)
            if best is None or minimum.fun < best[0]:
                best = (float(minimum.fun), minimum.x)
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
    """Return omega_i = prod_j (theta_i - zero_j) / prod_{j != i} (theta_i - theta_j)."""
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
    """Return sum_{k < terms} (sum_i weights_i (1 - gaps_i)^k)^2."""
    pair = gaps[:, None] + gaps[None, :] - gaps[:, None] * gaps[None, :]
    logs = np.log1p(-gaps)
    with np.errstate(divide="ignore", invalid="ignore"):
        series = np.where(
            pair > 0, -np.expm1(terms * (logs[:, None] + logs[None, :])) / pair, float(terms)
        )
    return float((weights[:, None] * weights[None, :] * series).sum())


if __name__ == "__main__":
    main()
