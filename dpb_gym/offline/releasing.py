"""Private releases of a log: a value estimate, and a prior for agents."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from dpb_gym import kernels, validation
from dpb_gym.errors import ParameterError
from dpb_gym.offline.array_checks import distribution
from dpb_gym.offline.recommendation_log import LoggedData
from dpb_gym.privacy import Budget, Curator, Guarantee, RecordShape
from dpb_gym.privacy.releasers.named_sums import LogSum
from dpb_gym.problems.prior import Prior

UNITS = ("reward", "user-round")


@dataclass(frozen=True)
class PrivateValue:
    """Result of `release_value`.

    Attributes:
        value: The estimate with noise.
        sensitivity: Largest change of the estimate by one unit of protection.
        sigma: Standard deviation of the noise.
        clip: Upper bound of the weights.
        std_error: Upper bound on the standard deviation of `value`, sampling and noise together.
            It holds for every log and is public.
        guarantee: Guarantee of the release.
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
    """Release an off-policy estimate by the Gaussian mechanism.

    The estimate is the mean over the n rounds of ``b + min(w, clip) (r - b)``, b the middle of
    the declared range of rewards: IPS around b, with clipped weights. With a public model `q`
    it is doubly robust, ``sum_a pi(a|x) q(x, a) + min(w, clip) (r - q(x, a))``. Clipping biases
    the estimate if weights exceed `clip`. There is no bias if `clip` is at least the largest
    weight, e.g. m for a uniform log.

    Sensitivity, replace-one, n public: exchanging a reward moves a round's term by at most
    ``min(w, clip)`` times the width of the range, so the mean by ``c width / n``. For
    ``unit="reward"`` contexts, choices, propensities and policy are public and c is the largest
    clipped weight of the log. For ``unit="user-round"`` the round's weight may change too. Its
    term stays within ``b -+ clip width / 2``, so c is `clip`. The noise is N(0, sigma^2), sigma by
    the exact Gaussian mechanism.

    The policy must not depend on the log's rewards, unless it comes from a private agent. Then the
    two guarantees add up. The same holds for `q`: cross-fitted predictions
    (`LoggedData.predicted`) are **not** allowed.

    Args:
        log: The log.
        policy: Probabilities of the target policy ``(n, m)``.
        budget: Privacy budget, with noise from the operating system; or a `Curator` of one
            replicate that protects ("central", "reward") or ("central", "user-round"). Its noise
            must be secret: the seed of a seeded source reveals it.
        clip: Largest weight, > 0.
        q: Predicted rewards ``(n, m)`` of a public model, for ``unit="reward"``.
        unit: ``"reward"`` or ``"user-round"``; ignored if a curator is given.
        share: Part of the curator's budget.

    Raises:
        BudgetError: If the curator has sealed already.
        ParameterError: If an argument is out of range.
    """
    clip = validation.real("clip", clip, 0.0, open_low=True)
    curator = _curator(budget, unit)
    unit = curator.unit
    if q is not None and unit != "reward":
        raise ParameterError("a model q is supported for unit='reward' only")
    if log.estimated and unit != "reward":
        raise ParameterError(
            "estimated propensities depend on the rounds of all customers, so that one round "
            "moves the weights of others: they are supported for unit='reward' only"
        )
    pi = distribution("policy", policy, (len(log), log.n_candidates))
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
    # the mean is the only record of this sum
    size = max(abs(low), abs(high)) + largest * (high - low)
    what = "off-policy value"
    sums = LogSum(curator, 1, clip=size, sensitivity=sensitivity, share=share, what=what)
    value = float(sums.of(terms.mean(keepdims=True))[0])
    error = math.sqrt(spread**2 / n + sums.sigma**2)
    return PrivateValue(value, sensitivity, sums.sigma, clip, error, curator.ledger.guarantee)


def release_prior(
    log: LoggedData,
    budget: Curator | Budget | str | None,
    *,
    unit: str = "reward",
    norm: float = 1.0,
) -> Prior:
    """Release a prior of theta: the posterior of a linear model, from noisy sums of a log.

    A reward is level + <x, theta> + e around the middle of its range of width w, x the recommended
    candidate's features in the unit ball. With v = [x; 1] / sqrt(2), sum v v' and sum r v are
    released once. Their sensitivities are sqrt(2) (0 for ``unit="reward"``, where contexts and
    choices are public) and w. The posterior is Gaussian, with the noise as additional variance. The
    coefficients of v have prior mean 0 and variance (norm w / 2)^2 / (d + 1), and a reward has
    variance (w / 2)^2.

    Args:
        log: The log.
        budget: Privacy budget, with noise from the operating system; or a `Curator` as for
            `release_value`. None: the log is public.
        unit: ``"reward"`` or ``"user-round"``; ignored if a curator is given.
        norm: See above, > 0.

    Returns:
        The prior. Every agent that starts from it charges its guarantee to its ledger.

    Raises:
        BudgetError: If the curator has sealed already.
        ParameterError: If an argument is out of range.
    """
    norm = validation.real("norm", norm, 0.0, open_low=True)
    curator = _curator(budget, unit)
    n = len(log)
    d = log.dim
    low, high = log.reward_range
    half = 0.5 * (high - low)
    x = log.features[np.arange(n), log.actions].astype(np.float64)
    x /= np.maximum(1.0, np.sqrt((x * x).sum(axis=1)))[:, None]
    v = np.column_stack([x, np.ones(n)]) / math.sqrt(2.0)
    # each sum has one record, which is that of the whole log
    clip = float(n) * max(1.0, half)
    what = "responses along features"
    sums = LogSum(curator, d + 1, clip=clip, sensitivity=2 * half, what=what)
    public = curator.unit == "reward" or not curator.private
    grams = None
    if not public:
        what = "Gram matrix of features"
        side = RecordShape(symmetric=d + 1)
        grams = LogSum(curator, side, clip=clip, sensitivity=math.sqrt(2.0), what=what)
    response = sums.of((v * (log.rewards - low - half)[:, None]).sum(axis=0))
    gram = v.T @ v
    curved = 0.0
    if grams is not None:
        gram = grams.of(gram)
        curved = grams.sigma**2
    values, vectors = (batch[0] for batch in kernels.linalg.eigh(gram[None]))
    h = np.maximum(values, 0.0)
    variance = (norm * half) ** 2 / (d + 1)
    size = variance * (d + 1)  # mean squared norm of the coefficients: prior, then posterior
    for _ in range(2):
        # variance of the Gram matrix's isometric noise times the coefficients
        noise = sums.sigma**2 + 0.5 * (1.0 + 1.0 / (d + 1)) * curved * size
        precision = h / np.maximum(half**2 * h + noise, 1e-300)
        posterior = (vectors / (precision * h + 1.0 / variance)) @ vectors.T
        mean = posterior @ (vectors @ (precision * (vectors.T @ response)))
        size = float(mean @ mean + np.trace(posterior))
    # marginal distribution of the slopes of x
    slopes = posterior[:d, :d] / 2.0
    return Prior(mean[:d] / math.sqrt(2.0), np.linalg.inv(slopes), curator.guarantee)


def _curator(budget: Curator | Budget | str | None, unit: str) -> Curator:
    """Return the given curator, or one of one replicate with the budget."""
    if isinstance(budget, Curator):
        curator = budget
    else:
        protects = ("central", validation.choice("unit", unit, UNITS))
        noise = None if Budget.parse(budget) is None else "system"
        curator = Curator(budget, protects, noise=noise)
    validation.choice("the curator's unit", curator.unit, UNITS)
    if curator.replicates != 1:
        raise ParameterError(f"the curator must have one replicate, got {curator.replicates}")
    return curator
