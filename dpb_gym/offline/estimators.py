"""Estimators that weigh logged rewards, for all kinds of logs.

Notation: in round i the log has the reward r_i. The weight w_i is the target policy's probability
of the logged choice over the logging policy's (for prices, a kernel over a density). q(x, a) is a
model of the expected reward. The formulas are those of the Open Bandit Pipeline (Saito, Aihara,
Matsutani & Narita 2021).

Models of rewards, and of unknown propensities, are cross-fitted: the rounds are split at random
into parts, and a part is predicted by a model fitted to the other parts (Chernozhukov et al.
2018). They read raw data: **not private**.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import numpy as np

from dpb_gym import validation
from dpb_gym.errors import DataError, ParameterError
from dpb_gym.problems.base import Array
from dpb_gym.problems.log_likelihood import fit_mnl


class Terms(NamedTuple):
    """Terms of the estimate ``mean(base) + sum over C of mean(top) / mean(bottom)`` of n rounds.

    Attributes:
        base: ``(n,)``.
        top: ``(n, C)``, numerators.
        bottom: ``(n, C)``, denominators.
    """

    base: Array
    top: Array
    bottom: Array

    @classmethod
    def mean(cls, base: Array) -> Terms:
        """Return the terms of a mean."""
        return cls(base, np.empty((len(base), 0)), np.empty((len(base), 0)))

    @classmethod
    def ratio(cls, top: Array, bottom: Array, base: Array | None = None) -> Terms:
        """Return the terms of a ratio of means, or of a sum of ratios, one per column."""
        n = len(top)
        return cls(np.zeros(n) if base is None else base, top.reshape(n, -1), bottom.reshape(n, -1))

    @property
    def value(self) -> float:
        """The estimate.

        Raises:
            DataError: If every weight is zero.
        """
        bottom = self.bottom.mean(axis=0)
        if (bottom == 0.0).any():
            raise DataError(
                "the target policy never chooses what was logged: every weight is zero, and "
                "the self-normalised estimate does not exist"
            )
        return float(self.base.mean() + (self.top.mean(axis=0) / bottom).sum())

    @property
    def std_error(self) -> float:
        """Standard error over rounds; ratios are linearised."""
        bottom = self.bottom.mean(axis=0)
        ratios = self.top.mean(axis=0) / bottom
        influence = self.base + ((self.top - ratios * self.bottom) / bottom).sum(axis=1)
        return float(influence.std(ddof=1)) / math.sqrt(len(influence))


@dataclass(frozen=True, eq=False)
class Weighted:
    """Input of the estimators.

    Attributes:
        weights: w ``(n,)``.
        rewards: r ``(n,)``.
        reward_range: Lowest and highest reward.
        model_value: Mean of q under the target policy ``(n,)``; zero without a model.
        model_shown: q of the logged choice ``(n,)``; zero without a model.
        grouped: Weights of the groups of actions ``(n,)``; None without groups.
        limits: Thresholds given by the user, by name of the limit.
        chosen: Thresholds in use, by estimator; filled when they are chosen.
    """

    weights: Array
    rewards: Array
    reward_range: tuple[float, float]
    model_value: Array
    model_shown: Array
    grouped: Array | None = None
    limits: Mapping[str, float | None] = field(default_factory=dict)
    chosen: dict[str, float] = field(default_factory=dict)

    @property
    def residuals(self) -> Array:
        """r - q ``(n,)``."""
        return self.rewards - self.model_shown


def _groups(p: Weighted) -> Array:
    if p.grouped is None:
        raise ParameterError(
            "marginalised estimates need groups= of the candidates, and a log that knows the "
            "logging policy's probability of every candidate (behaviour=)"
        )
    return p.grouped


Estimator = Callable[[Weighted], Terms]
WEIGHTING: dict[str, Estimator] = {
    "logged": lambda p: Terms.mean(p.rewards),
    "ips": lambda p: Terms.mean(p.weights * p.rewards),
    "snips": lambda p: Terms.ratio(p.weights * p.rewards, p.weights),
    "dm": lambda p: Terms.mean(p.model_value),
    "dr": lambda p: Terms.mean(p.model_value + p.weights * p.residuals),
    "sndr": lambda p: Terms.ratio(p.weights * p.residuals, p.weights, p.model_value),
    "mips": lambda p: Terms.mean(_groups(p) * p.rewards),
    "snmips": lambda p: Terms.ratio(_groups(p) * p.rewards, _groups(p)),
}
"""Estimators by name; each maps `Weighted` to `Terms`:

``logged``: the mean reward. ``ips``: mean of w r, unbiased where the log
covers the policy (Horvitz & Thompson 1952). ``snips``: sum of w r over sum of w, always within
the rewards' range (Swaminathan & Joachims 2015). ``dm``: mean of sum_a pi(a|x) q(x, a), with the
bias of the model. ``dr``: dm plus the mean of w (r - q), unbiased like ips for any cross-fitted
model (Dudik, Langford & Li 2011). ``sndr``: the same with weights divided by their mean. ``mips``
and ``snmips``: ips and snips with weights of groups of candidates, unbiased if the reward depends
on the group only (Saito & Joachims 2022). ``switch-``, ``clipped-`` and ``shrunk-ips`` and ``-dr``:
weights changed by `CHANGES`.
"""


def switched(w: Array, threshold: float) -> Array:
    """Return w if it is at most the threshold, else 0 (Wang, Agarwal & Dudik 2017)."""
    return np.where(w <= threshold, w, 0.0)


def clipped(w: Array, clip: float) -> Array:
    """Return min(w, clip) (Ionides 2008); with a model, pessimistic shrinkage (Su et al. 2020)."""
    return np.minimum(w, clip)


def shrunk(w: Array, shrinkage: float) -> Array:
    """Return lambda w / (w^2 + lambda), optimistic shrinkage (Su et al. 2020); w if infinite."""
    if np.isposinf(shrinkage):
        return w
    return shrinkage * w / np.maximum(w * w + shrinkage, np.finfo(float).tiny)


CHANGES: dict[str, tuple[str, Callable[[Array, float], Array]]] = {
    "switch": ("threshold", switched),
    "clipped": ("clip", clipped),
    "shrunk": ("shrinkage", shrunk),
}
LIMITS = tuple(limit for limit, _ in CHANGES.values())


def _changed(change: str, base: str) -> Estimator:
    limit_name, weigh = CHANGES[change]

    def terms(p: Weighted) -> Terms:
        low, high = p.reward_range
        largest = high - low
        if base == "ips":
            largest = max(abs(low), abs(high))
            zero = np.zeros_like(p.rewards)
            p = replace(p, model_value=zero, model_shown=zero)
        limit = p.limits.get(limit_name)
        if limit is None:
            limit = _automatic(change, p, largest)
        elif not np.isposinf(limit):
            limit = validation.real(limit_name, limit, 0.0)
        p.chosen[f"{change}-{base}"] = limit
        return Terms.mean(p.model_value + weigh(p.weights, limit) * p.residuals)

    return terms


WEIGHTING |= {f"{c}-{base}": _changed(c, base) for c in CHANGES for base in ("ips", "dr")}
NEEDS_MODEL = ("dm", "dr", "sndr", *(f"{change}-dr" for change in CHANGES))


def _automatic(change: str, p: Weighted, largest: float) -> float:
    """Return the limit with the smallest estimated squared error.

    Candidates are 21 quantiles of the positive weights (their squares for shrinkage). The error is
    the sample variance of the estimate plus the square of a bound on its bias: the largest
    residual times the mean reduction of the weights (Wang, Agarwal & Dudik 2017, section 4). They
    bound the bias over all candidates. Here it is bounded over the logged ones, because a log has
    no other propensities.
    """
    positive = p.weights[p.weights > 0.0]
    if not len(positive):
        return float(np.inf)
    candidates = np.unique(np.quantile(positive, np.linspace(0.0, 1.0, 21), method="higher"))
    if change == "shrunk":
        candidates = np.append(candidates**2, np.inf)
    weigh = CHANGES[change][1]
    n = len(p.rewards)
    best = float(candidates[-1])
    smallest = np.inf
    for limit in candidates[::-1]:
        limited = weigh(p.weights, limit)
        variance = float((p.model_value + limited * p.residuals).var(ddof=1)) / n
        error = variance + (largest * float((p.weights - limited).mean())) ** 2
        # the larger limit wins ties: it is less biased
        if error < smallest:
            best = float(limit)
            smallest = error
    return best


def effective_sample_size(weights: Array) -> float:
    """Return (sum w)^2 / sum w^2, the effective number of rounds under the target policy.

    It is 0 if every weight is zero.
    """
    squares = float((weights * weights).sum())
    return float(weights.sum()) ** 2 / squares if squares > 0.0 else 0.0


@dataclass(frozen=True)
class Estimate:
    """One estimate of a policy's value.

    Attributes:
        name: The estimator.
        value: The estimate.
        std_error: Standard error over rounds (linearised for ratios). For ``"dm"`` and the
            model part of ``"dr"`` it takes the model as given.
        normal: Ends of the normal interval, value -+ z std_error.
        percentile: Ends of the percentile-bootstrap interval; NaN without resamples.
    """

    name: str
    value: float
    std_error: float
    normal: tuple[float, float]
    percentile: tuple[float, float]


def with_intervals(
    terms: Mapping[str, Terms], level: float, resamples: int, seed: int
) -> tuple[Estimate, ...]:
    """Return estimates with normal and percentile intervals, on common bootstrap resamples.

    All terms have one length n. 0 resamples give no percentile interval.
    """
    from scipy.special import ndtri

    z = float(ndtri(0.5 + 0.5 * level))
    drawn = _bootstrap(list(terms.values()), resamples, seed)
    result = []
    for own, (name, one) in zip(drawn, terms.items()):
        value = one.value
        error = one.std_error
        ends = (math.nan, math.nan)
        if resamples:
            low, high = np.nanquantile(own, (0.5 - 0.5 * level, 0.5 + 0.5 * level))
            ends = (float(low), float(high))
        result.append(Estimate(name, value, error, (value - z * error, value + z * error), ends))
    return tuple(result)


def _bootstrap(terms: list[Terms], resamples: int, seed: int) -> list[Array]:
    """Return resampled estimates ``(resamples,)`` of each; NaN if a ratio does not exist."""
    n = len(terms[0].base)
    columns = np.ascontiguousarray(
        np.concatenate([np.column_stack([t.base, t.top, t.bottom]) for t in terms], axis=1).T
    )
    generator = np.random.default_rng(seed)
    means = np.empty((resamples, len(columns)))
    for row in means:
        counts = np.bincount(generator.integers(0, n, n), minlength=n).astype(np.float64)
        row[:] = columns @ counts / n
    result = []
    at = 0
    for one in terms:
        width = one.top.shape[1]
        top, bottom = (means[:, at + 1 + i * width : at + 1 + (i + 1) * width] for i in (0, 1))
        ratios = np.where(bottom > 0.0, top / np.where(bottom > 0.0, bottom, 1.0), np.nan)
        result.append(means[:, at] + ratios.sum(axis=1))
        at += 1 + 2 * width
    return result


def folds_of(n: int, folds: int, seed: int) -> Iterator[tuple[Array, Array]]:
    """Yield the parts of a cross-fit: masks of the rounds to fit to and of those to predict."""
    folds = validation.integer("folds", folds, 2, n)
    part = np.random.default_rng(validation.integer("seed", seed, 0)).permutation(n) % folds
    yield from ((part != fold, part == fold) for fold in range(folds))


def cross_fitted(
    x: Array, r: Array, new: Array, ridge: float = 1.0, folds: int = 2, seed: int = 0
) -> Array:
    """Return predictions of a cross-fitted ridge regression with unpenalised intercept.

    Args:
        x: Features of the logged choices ``(n, d)``.
        r: Rewards ``(n,)``.
        new: Features to predict from, ``(n, ..., d)``.
        ridge: Penalty on the squared norm of the coefficients, > 0.
        folds: Number of parts, at least 2.
        seed: Seed of the split.

    Returns:
        Predictions ``(n, ...)``.

    Raises:
        ParameterError: If a parameter is out of range.
    """
    ridge = validation.real("ridge", ridge, 0.0, open_low=True)
    predicted = np.empty(new.shape[:-1])
    for others, here in folds_of(len(x), folds, seed):
        centre = x[others].mean(axis=0)
        level = r[others].mean()
        centred = x[others] - centre
        gram = centred.T @ centred + ridge * np.eye(x.shape[1])
        theta = np.linalg.solve(gram, centred.T @ (r[others] - level))
        predicted[here] = level + (new[here] - centre) @ theta
    return predicted


def estimated_propensities(
    features: Array, actions: Array, penalty: float = 1.0, folds: int = 2, seed: int = 0
) -> Array:
    """Return propensities of a cross-fitted conditional logit, P(k) ~ exp(b'x_k + c_k).

    Args:
        features: ``(n, m, d)``.
        actions: ``(n,)``.
        penalty: Penalty on the squared norm of b and c, > 0.
        folds: Number of parts, at least 2.
        seed: Seed of the split.

    Returns:
        Probabilities ``(n, m)``, positive.
    """
    n, m, _ = features.shape
    design = np.concatenate([features, np.broadcast_to(np.eye(m), (n, m, m))], axis=2)
    # only differences of utilities matter, so candidate 0 is the outside option
    relative = design[:, 1:] - design[:, :1]
    propensities = np.empty((n, m))
    for others, here in folds_of(n, folds, seed):
        rows = relative[others].reshape(-1, design.shape[2])
        starts = np.arange(0, len(rows) + 1, m - 1)
        beta = fit_mnl(rows, starts, actions[others] - 1, penalty, "propensities")
        weights = np.exp(design[here] @ beta - (design[here] @ beta).max(axis=1, keepdims=True))
        propensities[here] = weights / weights.sum(axis=1, keepdims=True)
    return propensities
