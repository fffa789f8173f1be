"""Estimators of a policy's value from a log, as ratios of means over rounds.

Notation: round i offered candidates with features x_i, the logging policy chose a_i with
probability p_i and got r_i; the target policy chooses a with probability pi(a|x_i);
w_i = pi(a_i|x_i) / p_i; q(x, a) is a model of the expected reward. The formulas are those of
the Open Bandit Pipeline (Saito, Aihara, Matsutani & Narita 2021).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from dpb_gym import validation
from dpb_gym.errors import DataError, ParameterError
from dpb_gym.offline.log import LoggedData
from dpb_gym.offline.targets import check_distribution
from dpb_gym.problems.base import Array


class Terms(NamedTuple):
    """An estimate as ``mean(numerator) / mean(denominator)``, both ``(n,)``."""

    numerator: Array
    denominator: Array

    @property
    def value(self) -> float:
        """The estimate.

        Raises:
            DataError: If every weight is zero.
        """
        bottom = float(self.denominator.mean())
        if bottom == 0.0:
            raise DataError(
                "the target policy never chooses what was logged: every weight is zero, and "
                "the self-normalised estimate does not exist"
            )
        return float(self.numerator.mean()) / bottom


class Ingredients(NamedTuple):
    """What the estimators are made of; all of them ``(n,)`` but the threshold."""

    weights: Array
    rewards: Array
    model_value: Array
    model_shown: Array
    threshold: float


def importance_weights(log: LoggedData, policy: ArrayLike) -> Array:
    """w_i = pi(a_i|x_i) / p_i, ``(n,)``.

    Args:
        log: The log.
        policy: Probabilities of the target policy ``(n, m)``.

    Raises:
        ParameterError: If `policy` is no distribution over the candidates.
    """
    pi = check_distribution("policy", policy, (len(log), log.n_candidates))
    weights: Array = pi[np.arange(len(log)), log.actions] / log.propensities
    return weights


def effective_sample_size(log: LoggedData, policy: ArrayLike) -> float:
    """(sum w)^2 / sum w^2: how many rounds under the target policy the log is worth; 0 if
    every weight is zero."""
    w = importance_weights(log, policy)
    squares = float((w * w).sum())
    return float(w.sum()) ** 2 / squares if squares > 0.0 else 0.0


def ingredients(
    log: LoggedData, policy: ArrayLike, q: ArrayLike | None, threshold: float | None
) -> Ingredients:
    """Validates and prepares what `TERMS` need; without `q` the model is zero."""
    pi = check_distribution("policy", policy, (len(log), log.n_candidates))
    model = np.zeros_like(pi) if q is None else validation.array("q", q, pi.shape)
    parts = Ingredients(
        importance_weights(log, pi),
        log.rewards,
        (pi * model).sum(axis=1),
        model[np.arange(len(log)), log.actions],
        np.inf,
    )
    if threshold is None:
        chosen = _automatic(parts, log.reward_range)
    elif np.isposinf(threshold):
        chosen = np.inf
    else:
        chosen = validation.real("threshold", threshold, 0.0)
    return parts._replace(threshold=chosen)


def _logged(p: Ingredients) -> Terms:
    return Terms(p.rewards, np.ones_like(p.rewards))


def _ips(p: Ingredients) -> Terms:
    return Terms(p.weights * p.rewards, np.ones_like(p.rewards))


def _snips(p: Ingredients) -> Terms:
    return Terms(p.weights * p.rewards, p.weights)


def _dm(p: Ingredients) -> Terms:
    return Terms(p.model_value, np.ones_like(p.rewards))


def _dr(p: Ingredients) -> Terms:
    corrected = p.model_value + p.weights * (p.rewards - p.model_shown)
    return Terms(corrected, np.ones_like(p.rewards))


def _switch_dr(p: Ingredients) -> Terms:
    kept = np.where(p.weights <= p.threshold, p.weights, 0.0)
    return Terms(p.model_value + kept * (p.rewards - p.model_shown), np.ones_like(p.rewards))


TERMS: dict[str, Callable[[Ingredients], Terms]] = {
    "logged": _logged,
    "ips": _ips,
    "snips": _snips,
    "dm": _dm,
    "dr": _dr,
    "switch-dr": _switch_dr,
}
ESTIMATORS = ("ips", "snips", "dm", "dr", "switch-dr")


def ips(log: LoggedData, policy: ArrayLike) -> float:
    """Inverse propensity scoring, mean of w r: unbiased if no candidate that the target
    chooses is impossible in the log (Horvitz & Thompson 1952)."""
    return _ips(ingredients(log, policy, None, np.inf)).value


def snips(log: LoggedData, policy: ArrayLike) -> float:
    """Self-normalised IPS, sum of w r over sum of w: consistent, never leaves the range of
    the rewards (Swaminathan & Joachims 2015).

    Raises:
        DataError: If every weight is zero.
    """
    return _snips(ingredients(log, policy, None, np.inf)).value


def dm(log: LoggedData, policy: ArrayLike, q: ArrayLike) -> float:
    """Direct method, mean of sum_a pi(a|x) q(x, a): as good as the model `q` ``(n, m)``."""
    return _dm(ingredients(log, policy, q, np.inf)).value


def dr(log: LoggedData, policy: ArrayLike, q: ArrayLike) -> float:
    """Doubly robust, the direct method plus the mean of w (r - q(x, a)): unbiased like IPS
    for any cross-fitted `q` ``(n, m)``, with less variance for a good one (Dudik, Langford &
    Li 2011)."""
    return _dr(ingredients(log, policy, q, np.inf)).value


def switch_dr(
    log: LoggedData, policy: ArrayLike, q: ArrayLike, threshold: float | None = None
) -> float:
    """Doubly robust where w <= threshold, the direct method elsewhere (Wang, Agarwal & Dudik
    2017).

    Args:
        log: The log.
        policy: Probabilities of the target policy ``(n, m)``.
        q: Predicted rewards ``(n, m)``.
        threshold: At least 0; infinite gives `dr`. None chooses `automatic_threshold`.
    """
    return _switch_dr(ingredients(log, policy, q, threshold)).value


def automatic_threshold(log: LoggedData, policy: ArrayLike, q: ArrayLike) -> float:
    """The threshold of `switch_dr` with the smallest estimated squared error.

    Among 21 quantiles of the positive weights, the one that minimises the sample variance of
    the estimate plus the square of a bound on its bias: the range of the rewards times the mean
    of the weights above the threshold (Wang, Agarwal & Dudik 2017, section 4; they bound
    the bias by all candidates, we by the logged ones, since a log knows no other propensity).
    """
    return _automatic(ingredients(log, policy, q, np.inf), log.reward_range)


def _automatic(parts: Ingredients, reward_range: tuple[float, float]) -> float:
    positive = parts.weights[parts.weights > 0.0]
    if not len(positive):
        return float(np.inf)
    candidates = np.unique(np.quantile(positive, np.linspace(0.0, 1.0, 21), method="higher"))
    width, n = reward_range[1] - reward_range[0], len(parts.rewards)
    best, smallest = float(candidates[-1]), np.inf
    for tau in candidates[::-1]:
        terms = _switch_dr(parts._replace(threshold=float(tau))).numerator
        lost = float(np.where(parts.weights > tau, parts.weights, 0.0).mean())
        error = float(terms.var(ddof=1)) / n + (width * lost) ** 2
        # Ties go to the larger threshold, which is less biased.
        if error < smallest:
            best, smallest = float(tau), error
    return best


def check_estimators(names: object) -> tuple[str, ...]:
    """Validates a list of estimators' names.

    Raises:
        ParameterError: If one is unknown or the list is empty.
    """
    chosen = (names,) if isinstance(names, str) else tuple(names)  # type: ignore[arg-type]
    if not chosen:
        raise ParameterError(f"name at least one estimator of {', '.join(TERMS)}")
    return tuple(validation.choice("estimators", name, TERMS) for name in chosen)
