"""When to release running sums so that a greedy policy loses least: a public calculation."""

from __future__ import annotations

import numpy as np

from dpb_gym.privacy import Schedule

ITERATIONS = 100
# Later releases may count for nothing; their noise must stay finite.
LEAST_SCALE = 1e-6


def planned(
    horizon: int, first: float, ratio: float, *, noise: float, spread: float, prior: float
) -> Schedule:
    """Release weights that minimise a model of the greedy policy's regret.

    Among all mechanisms that release linear combinations of batches with independent Gaussian
    noise, those of a `Schedule` suffice: every stationary point of the model has rank one (proof
    in docs/agents/one-pass-linear.md). What remains are the releases' precisions a_i. With
    b_j^2 = 1 / sum_{i >= j} a_i^2 the releases 1..k determine a coordinate of theta up to the
    variance v_k = noise^2 / P_k + spread / t_k, P_k = sum_{i <= k} a_i^2 (sum_{j <= i} b_j n_j)^2,
    and a greedy policy earns about rho_k = (prior / (prior + v_k))^(1/2) of what can be earned.
    The a_i maximise the sum of rho_k over all rounds, by a fixed-point iteration
    a_i <- lambda_i q_i, q_i = a_i sum_{j <= i} b_j n_j, lambda_i = sum_{k >= i} d rho_k / d P_k.
    Everything in it is public.

    Args:
        horizon: T.
        first: Round of the first release.
        ratio: Factor between two releases' rounds, > 1.
        noise: Standard deviation of one release's noise in a coordinate of the sum, in units of
            one round's information about a coordinate of theta.
        spread: Variance of one round's own randomness in the same units.
        prior: Prior variance of a coordinate of theta.
    """
    start = Schedule.geometric(horizon, first, ratio, 1.0)
    ends, sizes = start.ends, start.sizes
    # at least one round: a release may fall on the very last one
    rounds = np.maximum(np.diff(ends, append=horizon), 1)
    scales = start.scales.copy()
    for _ in range(ITERATIONS):
        weights = 1.0 / np.sqrt(np.cumsum(scales[::-1] ** 2)[::-1])
        signal = scales * np.cumsum(weights * sizes)
        precision = np.cumsum(signal**2)
        variance = noise**2 / precision + spread / ends
        share = np.sqrt(prior / (prior + variance))
        gain = share / (prior + variance) * (noise / precision) ** 2 * rounds
        worth = np.cumsum(gain[::-1])[::-1]
        scales = worth * signal
        scales = np.maximum(scales / scales.max(), LEAST_SCALE)
    rest = np.cumsum(scales[::-1] ** 2)[::-1]
    return Schedule(ends, 1.0 / np.sqrt(rest), scales)
