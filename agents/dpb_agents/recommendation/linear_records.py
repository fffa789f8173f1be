"""Records of linear bandits: recommended candidates, and estimates from noisy sums."""

from __future__ import annotations

import numpy as np

from dpb_agents import kernels as agent_kernels
from dpb_gym import kernels, portable
from dpb_gym.errors import ActionError
from dpb_gym.problems.base import Array


def take_recommended(features: Array, action: Array, observed: Array, out: Array) -> Array:
    """Write w x of the recommended candidate to `out`, 0 where nothing was observed.

    Returns:
        w = 1 / max(1, ||x||), ``(B,)``, which scales x into the unit ball. Exact sums multiply r by
        w as well, which leaves a linear model unchanged. Noisy sums use r itself, as in the papers,
        which costs less than a weaker signal.

    Raises:
        ActionError: If a candidate does not exist.
    """
    weight = np.ones(len(action))
    bad = kernels.regression_records.take(features, action, observed, out, weight)
    if bad:
        raise ActionError(
            f"candidate {action[bad - 1]} of replicate {bad - 1} is outside "
            f"0..{features.shape[1] - 1}"
        )
    return weight


def shifted_inverse(
    noisy: Array, shift: float, inverse: Array, theta: Array, logdet: Array
) -> None:
    """Call the kernel of this name, and raise eigenvalues of V below half the shift to that."""
    agent_kernels.linear.shifted_inverse(noisy, shift, inverse, theta, logdet)
    for b in np.flatnonzero(np.isnan(logdet)):
        values, vectors = kernels.linalg.eigh(noisy[None, b, :-1, :-1])
        values = np.maximum(values + shift, 0.5 * shift)
        inverse[b] = kernels.linalg.compose(1.0 / values, vectors)[0]
        kernels.linalg.multiply_one(inverse[b], noisy[b, :-1, -1].copy(), theta[b])
        logdet[b] = portable.each(portable.log, values).sum()
