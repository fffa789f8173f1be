"""A value estimate that may be published: clipped weights and Gaussian noise."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from dpb_gym import validation
from dpb_gym.errors import ParameterError
from dpb_gym.offline.checks import check_distribution
from dpb_gym.offline.log import LoggedData
from dpb_gym.privacy import BatchSum, Budget, Curator, Guarantee

UNITS = ("reward", "user-round")


@dataclass(frozen=True)
class PrivateValue:
    """A released estimate.

    Attributes:
        value: The estimate with its noise.
        sensitivity: Most that one unit of protection can change the estimate.
        sigma: Standard deviation of the noise.
        clip: Bound on the weights that was applied.
        std_error: Bound on the standard deviation of `value`, sampling and noise together,
            that holds for every log and may be published with it.
        guarantee: What the release costs.
    """

    value: float
    sensitivity: float
    sigma: float
    clip: float
    std_error: float
    guarantee: Guarantee


def release_value(
    log: LoggedData,
    policy: ArrayLike,
    budget: Curator | Budget | str,
    *,
    clip: float = 10.0,
    q: ArrayLike | None = None,
    unit: str = "reward",
    share: float | None = None,
) -> PrivateValue:
    """Releases an off-policy estimate by the Gaussian mechanism.

    The estimate is the mean over the n rounds of ``b + min(w, clip) (r - b)``, b the middle of
    the declared range of rewards: IPS around b, with clipped weights. With a public model `q`
    it is doubly robust, ``sum_a pi(a|x) q(x, a) + min(w, clip) (r - q(x, a))``. Clipping
    biases it where weights exceed `clip`; `clip` at least the largest weight, e.g. m for a
    uniform log, biases nothing.

    Sensitivity, replace-one, n public: exchanging a reward moves a round's term by at most
    ``min(w, clip)`` times the width of the range, so the mean by ``c width / n``. For
    ``unit="reward"`` contexts, choices, propensities and policy are public and c is the largest
    clipped weight that occurs. For ``unit="user-round"`` the round's weight may change too;
    its term stays within ``b -+ clip width / 2``, so c is `clip` itself. The noise is
    N(0, sigma^2), sigma by the exact Gaussian mechanism.

    The policy must not depend on the log's rewards, unless it comes from a private agent: then
    the two guarantees add up. The same holds for `q`, for which cross-fitted predictions
    (`LoggedData.predicted`) are **not** allowed.

    Args:
        log: The log.
        policy: Probabilities of the target policy ``(n, m)``.
        budget: What the release may spend, with noise from the operating system; or a `Curator`
            of one replicate that protects ("central", "reward") or ("central", "user-round").
            Its noise must be secret: whoever knows the seed of a seeded source subtracts it.
        clip: Largest weight, > 0.
        q: Predicted rewards ``(n, m)`` of a public model, where the unit is the reward.
        unit: ``"reward"`` or ``"user-round"``; that of the curator, if one is given.
        share: Part of the curator's budget.

    Raises:
        BudgetError: If the curator has sealed already.
        ParameterError: If an argument is out of range.
    """
    clip = validation.real("clip", clip, 0.0, open_low=True)
    if isinstance(budget, Curator):
        curator = budget
    else:
        curator = Curator(
            budget, ("central", validation.choice("unit", unit, UNITS)), noise="system"
        )
    unit = validation.choice("the curator's unit", curator.unit, UNITS)
    if curator.replicates != 1:
        raise ParameterError(f"the curator must have one replicate, got {curator.replicates}")
    if q is not None and unit != "reward":
        raise ParameterError("a model q is supported for unit='reward' only")
    if log.estimated and unit != "reward":
        raise ParameterError(
            "estimated propensities depend on everybody's rounds, so that one round moves the "
            "weights of others: they are supported for unit='reward' only"
        )
    pi = check_distribution("policy", policy, (len(log), log.n_candidates))
    weights = np.minimum(pi[np.arange(len(log)), log.actions] / log.propensities, clip)
    low, high = log.reward_range
    largest = clip if unit == "user-round" else float(weights.max())
    n = len(log)
    # A policy that never agrees with the log has an estimate that no reward can move.
    sensitivity = max(largest, 1e-12) * (high - low) / n
    if q is None:
        middle = 0.5 * (low + high)
        terms = middle + weights * (log.rewards - middle)
        spread = 0.5 * largest * (high - low)
    else:
        model = validation.array("q", q, pi.shape, low, high)
        shown = model[np.arange(n), log.actions]
        terms = (pi * model).sum(axis=1) + weights * (log.rewards - shown)
        spread = (0.5 + largest) * (high - low)
    # the whole log is one record of a sum of one number
    size = max(abs(low), abs(high)) + largest * (high - low)
    sums = BatchSum(
        curator,
        1,
        clip=size,
        sensitivity=sensitivity,
        horizon=1,
        share=share,
        what="off-policy value",
    )
    sums.add(np.array([[terms.mean()]]))
    value = float(sums.release()[0, 0])
    error = math.sqrt(spread**2 / n + sums.sigma**2)
    return PrivateValue(value, sensitivity, sums.sigma, clip, error, curator.ledger.guarantee)
