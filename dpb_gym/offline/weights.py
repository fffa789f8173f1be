"""Estimators that weigh logged rewards, for any kind of log.

Notation: in round i the log has the reward r_i, and the target policy gives what was logged the
weight w_i, the ratio of its probability to that of the logging policy (a kernel's, for prices);
q(x, a) is a model of the expected reward. The formulas are those of the Open Bandit Pipeline
(Saito, Aihara, Matsutani & Narita 2021).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from dpb_gym import validation
from dpb_gym.errors import ParameterError
from dpb_gym.offline.terms import Terms
from dpb_gym.problems.base import Array


@dataclass(frozen=True, eq=False)
class Weighted:
    """What the estimators are made of.

    Attributes:
        weights: w ``(n,)``.
        rewards: r ``(n,)``.
        reward_range: Lowest and highest reward.
        model_value: Mean of q under the target policy ``(n,)``; zero without a model.
        model_shown: q of what was logged ``(n,)``; zero without a model.
        grouped: Weights of the groups of actions ``(n,)``; None without groups.
        limits: Given thresholds, by name of the estimator or of the limit.
        chosen: Limits that were used, by estimator; filled as they are chosen.
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
"""Per name, from the ingredients to the terms of the estimate:

``logged``: the mean reward, whatever the policy. ``ips``: mean of w r, unbiased where the log
covers the policy (Horvitz & Thompson 1952). ``snips``: sum of w r over sum of w, which never leaves
the rewards' range (Swaminathan & Joachims 2015). ``dm``: mean of sum_a pi(a|x) q(x, a), as good as
the model. ``dr``: dm plus the mean of w (r - q), unbiased like ips for any cross-fitted model
(Dudik, Langford & Li 2011). ``sndr``: the same with weights divided by their mean. ``mips`` and
``snmips``: ips and snips with weights of groups of candidates, unbiased if the reward depends on
the group only (Saito & Joachims 2022). ``switch-``, ``clipped-`` and ``shrunk-ips`` and ``-dr``:
weights changed by `CHANGES`.
"""


def switched(w: Array, threshold: float) -> Array:
    """w where it is at most the threshold, else 0 (Wang, Agarwal & Dudik 2017)."""
    return np.where(w <= threshold, w, 0.0)


def clipped(w: Array, clip: float) -> Array:
    """min(w, clip) (Ionides 2008); with a model, pessimistic shrinkage (Su et al. 2020)."""
    return np.minimum(w, clip)


def shrunk(w: Array, shrinkage: float) -> Array:
    """lambda w / (w^2 + lambda), optimistic shrinkage (Su et al. 2020); infinite leaves w."""
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
        with_model = base == "dr"
        offset = p.model_value if with_model else np.zeros_like(p.rewards)
        residuals = p.residuals if with_model else p.rewards
        given = p.limits.get(limit_name)
        if given is None:
            limit = _automatic(change, p, offset, residuals, with_model)
        elif np.isposinf(given):
            limit = np.inf
        else:
            limit = validation.real(limit_name, given, 0.0)
        p.chosen[f"{change}-{base}"] = limit
        return Terms.mean(offset + weigh(p.weights, limit) * residuals)

    return terms


WEIGHTING |= {f"{c}-{base}": _changed(c, base) for c in CHANGES for base in ("ips", "dr")}
NEEDS_MODEL = ("dm", "dr", "sndr", *(f"{change}-dr" for change in CHANGES))


def _automatic(
    change: str, p: Weighted, offset: Array, residuals: Array, with_model: bool
) -> float:
    """The limit with the smallest estimated squared error.

    Among 21 quantiles of the positive weights (their squares for shrinkage), the one that minimises
    the sample variance of the estimate plus the square of a bound on its bias: the largest residual
    times the mean of the weight taken away (Wang, Agarwal & Dudik 2017, section 4; they bound the
    bias by all candidates, we by the logged ones, since a log knows no other propensity).
    """
    positive = p.weights[p.weights > 0.0]
    if not len(positive):
        return float(np.inf)
    candidates = np.unique(np.quantile(positive, np.linspace(0.0, 1.0, 21), method="higher"))
    if change == "shrunk":
        candidates = np.append(candidates**2, np.inf)
    low, high = p.reward_range
    largest = high - low if with_model else max(abs(low), abs(high))
    weigh, n = CHANGES[change][1], len(residuals)
    best, smallest = float(candidates[-1]), np.inf
    for limit in candidates[::-1]:
        kept = weigh(p.weights, limit)
        variance = float((offset + kept * residuals).var(ddof=1)) / n
        error = variance + (largest * float((p.weights - kept).mean())) ** 2
        # Ties go to the larger limit, which is less biased.
        if error < smallest:
            best, smallest = float(limit), error
    return best


def effective_sample_size(weights: Array) -> float:
    """(sum w)^2 / sum w^2: how many rounds under the target policy the log is worth; 0 if
    every weight is zero."""
    squares = float((weights * weights).sum())
    return float(weights.sum()) ** 2 / squares if squares > 0.0 else 0.0


def check_estimators(names: Sequence[str] | str, known: Mapping[str, object]) -> tuple[str, ...]:
    """Validates a list of estimators' names.

    Raises:
        ParameterError: If one is unknown or the list is empty.
    """
    chosen = (names,) if isinstance(names, str) else tuple(names)
    if not chosen:
        raise ParameterError(f"name at least one estimator of {', '.join(known)}")
    return tuple(validation.choice("estimators", name, known) for name in chosen)
